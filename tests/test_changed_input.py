"""Input that changes before a dataset is published.

The shards it falls in are made again, all others are kept.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from beam_tfr.engine.runs import read_counters
from beam_tfr.options import ConvertOptions
from beam_tfr.pipeline import Convert
from tests.conftest import Run, files_of, finished_shards
from tests.fake_gcs import FakeGcs
from tests.local_pipeline import metrics_of

Command = Callable[..., Run]
SHARDS = 6


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """240 files, two of which are empty: more than `--max_rejects 0.001` allows."""
    for i in range(240):
        path = tmp_path / "files" / "a" / f"{i:03}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"" if i in (17, 99) else b"%d" % i)
        os.utime(path, ns=(1, 1))
    return tmp_path / "files"


def convert(beam_tfr: Command, source: object, output: object, *options: object) -> Run:
    flags = [
        "--encoding",
        "bytes",
        "--name",
        "d",
        "--max_rejects",
        0.001,
        "--json",
    ]
    if "--num_shards" not in options:
        flags += ["--num_shards", SHARDS]
    return beam_tfr("convert", "--input", f"{source}/*/*", "--output", output, *flags, *options)


def mend(source: Path) -> None:
    for i in (17, 99):
        (source / "a" / f"{i:03}.bin").write_bytes(b"%d" % i)


def shards(output: Path) -> set[tuple[str, int]]:
    """Names and times of the shards, published or not."""
    return {(name, path.stat().st_mtime_ns) for name, path in finished_shards(output).items()}


def test_mended_files_cost_their_shards_alone(
    beam_tfr: Command, source: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    first = convert(beam_tfr, source, output)
    assert (first.code, first.out) == (1, "")
    before = shards(output)
    assert len(before) == SHARDS
    mend(source)
    second = convert(beam_tfr, source, output)
    assert second.json["written"] == 240
    rewritten = second.json["rewritten_shards"]
    assert len(before - shards(output)) == rewritten <= 2
    done = 240 // SHARDS * rewritten
    assert second.json["resumed"] == 240 - done
    assert second.json["images_per_second"] == pytest.approx(
        done / second.json["seconds"], rel=0.01
    )
    assert convert(beam_tfr, source, tmp_path / "sound").code == 0
    assert files_of(output) == files_of(tmp_path / "sound")  # nothing is left of the work folder


@pytest.mark.slow
def test_a_file_less_moves_the_cuts_and_another_number_of_shards_leaves_nothing_behind(
    beam_tfr: Command, source: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    assert convert(beam_tfr, source, output).code == 1
    (source / "a" / "017.bin").unlink()
    (source / "a" / "099.bin").unlink()
    run = convert(beam_tfr, source, output)
    assert run.json["written"] == 238
    assert 3 <= run.json["rewritten_shards"] <= 6
    assert convert(beam_tfr, source, tmp_path / "sound").code == 0
    assert files_of(output) == files_of(tmp_path / "sound")

    output, fewer = tmp_path / "out2", ("--num_shards", "", "--examples_per_shard", 40)
    (source / "a" / "bad.bin").write_bytes(b"")
    assert convert(beam_tfr, source, output, *fewer).code == 1
    for path in sorted((source / "a").iterdir())[-50:]:
        path.unlink()
    run = convert(beam_tfr, source, output, *fewer)
    assert (run.json["written"], run.json["splits"]["train"]["num_shards"]) == (189, 5)
    assert len(shards(output)) == 5
    assert beam_tfr("verify", output).code == 0


def test_a_pipeline_of_ones_own_leaves_nothing_behind_and_counts_what_changed(
    beam_tfr: Command, source: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    assert convert(beam_tfr, source, output).code == 1
    mend(source)
    options = ConvertOptions(
        input=(f"{source}/*/*",), output=str(output), encoding="bytes", num_shards=SHARDS, name="d"
    )
    counters = read_counters(metrics_of(lambda p: p | Convert(options)))
    assert not (output / ".beam_tfr").exists()
    assert (counters["rewritten-shards"] in (1, 2), counters["changed-images"]) == (True, 2)


@pytest.mark.slow
def test_other_options_are_refused_and_a_published_dataset_keeps_its_rule(
    beam_tfr: Command, source: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    assert convert(beam_tfr, source, output).code == 1
    before = shards(output)
    refused = convert(beam_tfr, source, output, "--seed", 1)
    assert (refused.code, shards(output)) == (2, before)
    assert (
        "holds part of a dataset with different options:\n  options.seed: 0 before, 1 now"
        in refused.err
    )
    mend(source)
    assert convert(beam_tfr, source, output, "--seed", 1, "--overwrite").json["written"] == 240
    assert shards(output) & before == set()  # the beginning of another plan is replaced whole
    assert convert(beam_tfr, source, output, "--overwrite").json["written"] == 240
    digest = json.loads((output / "manifest.json").read_text())["dataset_digest"]
    (source / "a" / "017.bin").write_bytes(b"171")
    refused = convert(beam_tfr, source, output)
    assert refused.code == 2
    assert (
        "holds a dataset with different input or options:\n  the input: different or changed files"
        in refused.err
    )
    assert json.loads((output / "manifest.json").read_text())["dataset_digest"] == digest


def test_replaced_objects_cost_their_shards_alone(beam_tfr: Command, fake: FakeGcs) -> None:
    for i in range(40):
        fake.put(f"in/a/{i:03}", b"" if i == 17 else b"%d" % i)
    source, flags = "gs://b/in", ["--num_shards", 4]
    assert convert(beam_tfr, source, "gs://b/out", *flags).code == 1
    fake.put("in/a/017", b"17")
    fake.take_log()
    run = convert(beam_tfr, source, "gs://b/out", *flags)
    assert (run.json["written"], run.json["rewritten_shards"]) == (40, 1)
    asked = [request["name"] for request in fake.take_log() if request.get("alt") == "media"]
    # the sample, and one shard
    assert len([name for name in asked if name.startswith("in/")]) == 32 + 10
    assert not [name for name in fake.names() if ".beam_tfr" in name]
    assert convert(beam_tfr, source, "gs://b/sound", *flags).code == 0
    names = [
        name for name in fake.names() if name.startswith("sound/") and "/.sources/" not in name
    ]
    assert [fake.get(name) for name in names] == [
        fake.get(name.replace("sound", "out")) for name in names
    ]
