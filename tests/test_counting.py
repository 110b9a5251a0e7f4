"""What is seen of a run: counters that balance, and progress image by image."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.metrics import MetricsFilter

from beam_tfr import pipeline
from beam_tfr.console.display import Progress
from beam_tfr.engine import beam_internals, runs
from beam_tfr.inputs.read_ahead import ReadAhead
from beam_tfr.launch import convert
from beam_tfr.launch import progress as reports
from beam_tfr.options import ConvertOptions
from beam_tfr.output import sidecars
from beam_tfr.output.claim import BegunPlan, Claim
from beam_tfr.schema.dataset import ADJUSTMENTS, REJECT_REASONS
from beam_tfr.schema.items import ImageRef, ShardWork
from beam_tfr.schema.plan import Shard, SplitPlan
from beam_tfr.sources import open_source
from beam_tfr.transforms import ReadImages
from tests.claims import make_plan
from tests.conftest import wait_for
from tests.converted import spoiled_photos
from tests.fake_gcs import FakeGcs
from tests.gcs_fixtures import Clock
from tests.local_pipeline import metrics_of
from tests.pages import DOCS


def test_counters_balance(tmp_path: Path) -> None:
    photos = spoiled_photos()
    options = ConvertOptions(
        input=(f"{photos}/**/*",),
        output=tmp_path,
        layout="{split}/{label}/*",
        max_rejects=1.0,
        num_shards={"train": 2},
        resize="stretch",
    )
    step = pipeline.Convert(options, open_source(options), run_id="mine")
    result = metrics_of(lambda p: p | step)
    counts = json.loads((tmp_path / "manifest.json").read_text())["counts"]
    counted = runs.read_counters(result)
    (table,) = re.findall(r"\| counter \|.*?\n\n", (DOCS / "dataflow.md").read_text(), re.DOTALL)
    documented = {*re.findall(r"`([^`]+)`", table)} - {"rejected-REASON", "adjusted-KIND", "verify"}
    documented |= {f"rejected-{reason}" for reason in REJECT_REASONS} | {
        f"adjusted-{kind}" for kind in ADJUSTMENTS
    }
    assert counted.keys() <= documented  # none is named after a file, a class or an extension
    assert counted["matched"] == counted["images"] == counts["matched"]
    assert counted["written"] == counts["written"]
    assert counted["rejected"] == counts["matched"] - counts["written"] > 3
    told = {
        name.partition("-")[2]: n for name, n in counted.items() if name.startswith("rejected-")
    }
    assert told == counts["rejected"]
    told = {
        name.partition("-")[2]: n for name, n in counted.items() if name.startswith("adjusted-")
    }
    assert told == counts["adjusted"] != {}
    files = [*tmp_path.glob("*.tfrecord.gz")]
    assert counted["bytes-written"] == sum(file.stat().st_size for file in files)
    assert counted["shards"] == counted["planned-shards"]


def test_images_count_before_their_shard_is_whole(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Progress] = []
    write = sidecars.write_sidecar

    def write_when_seen(*arguments: Any, **named: Any) -> Any:
        wait_for(lambda: seen and (seen[-1].stage, seen[-1].done) == ("converting", 18))
        return write(*arguments, **named)

    monkeypatch.setattr(beam_internals, "PROGRESS_REQUEST_S", 0.01)
    monkeypatch.setattr(runs, "PROGRESS_S", 0.0)
    monkeypatch.setattr(sidecars, "write_sidecar", write_when_seen)
    options = ConvertOptions(
        input=(f"{photos}/**/*.jpg",), output=tmp_path / "out", layout="*", num_shards=1
    )
    by_grpc = ["--direct_running_mode=multi_threading", "--direct_num_workers=1"]
    convert(options, by_grpc, progress=seen.append)
    size = sum(path.stat().st_size for path in photos.rglob("*.jpg"))
    assert Progress("converting", 18, 18, 0, 1, num_bytes=size) in seen


def test_a_long_listing_of_finished_shards_delays_no_report(fake: FakeGcs, photos: Path) -> None:
    train = SplitPlan(matched=20_000, num_shards=10_000, cuts=["80"] * 9_999, class_counts={})
    plan = dataclasses.replace(make_plan(), splits={"train": train})
    fake.put(
        "out/.beam_tfr/plan.json",
        BegunPlan(plan, run_id="earlier", claim=Claim(replaces=0, overwrite=False)).to_json(),
    )
    fake.put_many([f"out/.beam_tfr/train-{number:05}-of-10000.json" for number in range(5_000)])
    step = pipeline.Convert(ConvertOptions(input=(f"{photos}/**/*.jpg",), output="gs://b/out"))
    seen, counters = list[Progress](), dict[str, int]()
    said = list[str]()
    reporter = reports.Reporter(step, seen.append, said.append)
    reporter(counters)
    counters["planned-shards"] = 10_000  # the folder is claimed, perhaps for another plan
    reporter(counters)
    assert seen == [Progress("listing", 0), Progress("converting", 0, 20_000, 0, 10_000)]
    assert said == ["an earlier run has finished 5,000 of 10,000 shards"]
    assert len(fake.take_log()) > 2 * 5
    counters |= {"resumed-shards": 5_000, "resumed-images": 10_000, "shards": 3, "images": 7}
    reporter(counters)
    assert seen[2:] == [Progress("converting", 10_007, 20_000, 5_003, 10_000)]
    assert fake.take_log() == []


@pytest.mark.parametrize(
    ("counters", "images", "stage"),
    [
        ({"images": 3_000}, 3_000, "converting"),
        (
            {"images": 6_000, "resumed-images": 4_000, "shards": 5, "resumed-shards": 4},
            10_000,
            "converting",
        ),
        (
            {"images": 6_000, "resumed-images": 4_000, "shards": 6, "resumed-shards": 4},
            10_000,
            "publishing",
        ),
        # A retried bundle counted twice.
        ({"images": 12_000, "shards": 9}, 10_000, "converting"),
    ],
)
def test_a_run_publishes_when_it_has_come_to_all_shards(
    counters: dict[str, int], images: int, stage: str
) -> None:
    finished = Progress("converting", 4_000, 10_000, 4, 10)  # of an earlier run
    progress = reports.count_progress(finished, {"planned-shards": 10, **counters})
    assert (progress.done, progress.stage) == (images, stage)


def test_a_run_that_takes_over_lists_before_it_publishes(
    photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An earlier run finished all shards; what it did is no sign that this one is at its end."""
    there = Progress("converting", 18, 18, 3, 3)
    counters = dict[str, int]()
    step = pipeline.Convert(
        ConvertOptions(input=(f"{photos}/**/*.jpg",), output=str(photos / "out"))
    )
    monkeypatch.setattr(type(step), "progress", lambda _: there)
    seen, said = list[Progress](), list[str]()
    reporter = reports.Reporter(step, seen.append, said.append)
    reporter(counters)
    for more in ({"listed": 9}, {"planned-shards": 3}, {"resumed-shards": 3, "resumed-images": 18}):
        counters |= more
        reporter(counters)
    stages = ["listing", "listing", "converting", "publishing"]
    assert [progress.stage for progress in seen] == stages
    assert said == ["an earlier run has finished 3 of 3 shards"]


def test_waiting_for_a_service_that_asks_for_fewer_requests_is_counted(
    fake: FakeGcs, clock: Clock
) -> None:
    fake.put("in/a.jpg", b"some bytes")
    fake.set(faults={"in/a.jpg": ["429:7", "503", "reset"]})
    refs = [ImageRef("a.jpg", 10, 0, "train")]
    work = ShardWork(Shard("train", 0, 1, 1, "plan"), [ref.encode() for ref in refs])
    result = metrics_of(
        lambda p: p | beam.Create([work]) | ReadImages("gs://b/in/", ahead=ReadAhead())
    )
    counted = runs.read_counters(result)
    assert (counted["retries"], counted["too-many-requests"], counted["bytes-read"]) == (3, 1, 10)
    (waited,) = result.metrics().query(MetricsFilter().with_namespace("gcsio"))["counters"]
    assert (waited.key.metric.name, waited.committed) == ("cumulativeThrottlingSeconds", 7)
