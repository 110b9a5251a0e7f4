"""Whole conversions of what lies on gs://.

Which files, as whom, at whose cost, and what is said when it may not be.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from beam_tfr import storage
from beam_tfr.engine import cloud
from beam_tfr.output.sidecars import RECORDS
from beam_tfr.storage import Access
from tests.fake_gcs import FakeGcs
from tests.gcs_fixtures import PHOTO_NAMES, Clock, Command, convert


def rejects(fake: FakeGcs, name: str = "out/rejects.jsonl") -> list[dict[str, Any]]:
    return [json.loads(line) for line in fake.get(name).splitlines()]


def test_each_image_is_asked_for_once_as_it_was_listed(bucket: FakeGcs, beam_tfr: Command) -> None:
    assert convert(beam_tfr).json["written"] == 8
    asked = [
        (r["name"], r.get("ifGenerationMatch"))
        for r in bucket.take_log()
        if r["name"].endswith(".jpg")
    ]
    assert all(generation for _, generation in asked)
    assert sorted({name for name, _ in asked}) == PHOTO_NAMES
    # each once more for the sample from which sizes are estimated
    assert len(asked) == 2 * len(PHOTO_NAMES)


def test_an_object_that_is_replaced_after_the_sample_is_a_reject(
    bucket: FakeGcs, beam_tfr: Command
) -> None:
    bucket.set(faults={PHOTO_NAMES[1]: ["", "change"], PHOTO_NAMES[2]: ["", "vanish"]})
    run = convert(beam_tfr, "--max_rejects", "2")
    assert (run.json["written"], run.json["rejected"]) == (
        6,
        {"changed-while-reading": 1, "not-found": 1},
    )
    found = {(reject["key"], reject["stage"], reject["reason"]) for reject in rejects(bucket)}
    keys = [name.removeprefix("photos/") for name in PHOTO_NAMES]
    assert found == {
        (keys[1], "ReadImages", "changed-while-reading"),
        (keys[2], "ReadImages", "not-found"),
    }


def test_a_resume_reads_no_shard_whose_generation_is_that_of_its_commit(
    bucket: FakeGcs, beam_tfr: Command
) -> None:
    for name in PHOTO_NAMES[:2]:
        bucket.put(name, b"no image")
    assert convert(beam_tfr, "--max_rejects", "1").code == 1  # with both shards finished
    shards = [name for name in bucket.names() if RECORDS in name]
    before = [bucket.get(name) for name in shards]
    bucket.put(shards[1], bytes(len(before[1])))  # of the same size
    bucket.take_log()
    run = convert(beam_tfr, "--max_rejects", "2")
    assert (run.code, run.json["written"]) == (0, 6)
    asked = [
        (r["name"], r["method"], r.get("alt", "")) for r in bucket.take_log() if r["name"] in shards
    ]
    assert [what for what in asked if what[0] == shards[0]] == [(shards[0], "GET", "")]
    assert (shards[1], "GET", "media") in asked
    names = [name for name in bucket.names() if name.endswith(".tfrecord.gz")]
    assert [bucket.get(name) for name in names] == before


def test_deadline_of_a_read(bucket: FakeGcs, clock: Clock, beam_tfr: Command) -> None:
    bucket.set(faults={PHOTO_NAMES[1]: ["", *["503"] * 10_000]})
    run = convert(beam_tfr, "--max_rejects", "1", "--accept_unreadable")
    assert run.json["rejected"] == {"unreadable": 1}
    (reject,) = rejects(bucket)
    assert (
        reject["detail"]
        == "retried until the deadline; the last error: the service failed (HTTP 503): said 503"
    )


def test_read_ahead(bucket: FakeGcs, beam_tfr: Command) -> None:
    bucket.counts()
    one_thread = ("--direct_num_workers", "1", "--num_shards", "1", "--overwrite")
    assert convert(beam_tfr, "--read_ahead", "1", *one_thread).code == 0
    assert bucket.counts()["most"]["downloads"] <= 2  # an image, and what tells the progress
    bucket.take_log()
    assert convert(beam_tfr, "--read_ahead", "1", *one_thread).code == 0
    asked = [request["name"] for request in bucket.take_log() if request.get("alt") == "media"]
    # the sample, and small files
    before = [number for number, name in enumerate(asked) if name in PHOTO_NAMES][len(PHOTO_NAMES)]
    bucket.set(together={"downloads": (before, 4)})
    assert convert(beam_tfr, *one_thread).code == 0
    assert bucket.counts()["most"]["downloads"] >= 4


@pytest.mark.slow
def test_input_list_and_exclude(bucket: FakeGcs, beam_tfr: Command, tmp_path: Path) -> None:
    lines = [f"gs://b/{name}" for name in PHOTO_NAMES[:3]] + ["gs://b/photos/shoes/*"]
    (tmp_path / "list.txt").write_text("\n".join(lines))
    bucket.put("lists/list.txt", (tmp_path / "list.txt").read_bytes())
    for number, source in enumerate(
        (
            ("--input_list", "gs://b/lists/list.txt"),
            ("--input_list", str(tmp_path / "list.txt"), "--input", "gs://b/photos/shoes/?.jpg"),
            ("--input", "gs://b/photos/**", "--exclude", "gs://b/photos/hat/3.jpg", "**/*.gif"),
        )
    ):
        run = convert(beam_tfr, source=source)
        assert (run.json["matched"], run.json["complete_already"]) == (
            7,
            number > 0,
        )  # the same files each time
    run = convert(beam_tfr, "--exclude", "*/[0-3].jpg", "--overwrite")
    assert (run.code, run.err) == (
        2,
        "beam-tfr convert: --input: matches no image: --exclude leaves out all images, or "
        "archives hold no images; archives within archives are not read: unpack them\n",
    )
    run = beam_tfr("convert", "--output", "gs://b/out")
    assert (run.code, run.err) == (
        2,
        "beam-tfr convert: --input: specify at least one pattern, such as 'photos/**/*.jpg', or a "
        "--table\n",
    )


def test_millions_of_lines_are_no_part_of_the_pipeline(tmp_path: Path) -> None:
    import apache_beam as beam

    from beam_tfr.inputs.labels import Labeler
    from beam_tfr.layouts.parsing import parse_layout
    from beam_tfr.transforms import MatchImages

    path = tmp_path / "list.txt"
    path.write_text("".join(f"/photos/hat/{i:06}.jpg\n" for i in range(20_000)))
    pipeline = beam.Pipeline()
    pipeline | MatchImages((), Labeler(parse_layout("{label}/*"), None, None), input_list=str(path))
    assert len(pipeline.to_runner_api().SerializeToString()) < 40_000


# As whom, and who pays


def test_the_project_that_pays_is_named_in_every_request(
    bucket: FakeGcs, beam_tfr: Command
) -> None:
    assert convert(beam_tfr, "--gcs_project", "payer").json["written"] == 8
    log = [
        request for request in bucket.take_log() if request["method"] in ("GET", "POST", "DELETE")
    ]
    assert {request.get("userProject") for request in log} == {"payer"}
    assert {request["method"] for request in log} == {"GET", "POST", "DELETE"}
    assert convert(beam_tfr).json["complete_already"]
    assert {request.get("userProject") for request in bucket.take_log()} == {None}


@pytest.mark.slow
def test_worker_processes_ask_alike(bucket: FakeGcs, beam_tfr: Command) -> None:
    options = [
        "--gcs_project",
        "payer",
        "--direct_running_mode",
        "multi_processing",
        "--direct_num_workers",
        "2",
    ]
    assert convert(beam_tfr, *options).json["written"] == 8
    images = [request for request in bucket.take_log() if request["name"].endswith(".jpg")]
    assert {request.get("userProject") for request in images} == {"payer"}


def test_beam_options_become_the_access(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage.gcs_client, "_access", Access())
    cloud.use_cloud_options(
        PipelineOptions(["--project=p", "--impersonate_service_account=a@x,b@x", "--gcs_project=q"])
    )
    assert storage.gcs_client._access == Access(
        project="p", user_project="q", impersonate=("a@x", "b@x")
    )
    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    made: list[tuple[str, list[str]]] = []
    monkeypatch.setattr("google.auth.default", lambda **_: (object(), "other"))
    monkeypatch.setattr(
        "google.auth.impersonated_credentials.Credentials.__init__",
        lambda self, source, target, scopes, delegates: made.append((target, delegates)),
    )
    storage.gcs_client._impersonated()
    assert made == [("b@x", ["a@x"])]
    cloud.use_cloud_options(PipelineOptions([]))


# What may not be


@pytest.mark.parametrize(
    ("method", "said"),
    [
        (
            "GET",
            r"gs://b/out: cannot be written to: .*; {} needs "
            r"storage\.objects\.(list|get) on gs://b",
        ),
        (
            "POST",
            r"gs://b/out: cannot be written to: .*; {} needs storage\.objects\.create "
            r"on gs://b",
        ),
        (
            "PATCH",
            r"gs://b/out: cannot be written to: .*; {} needs storage\.objects\.update "
            r"on gs://b",
        ),
        (
            "DELETE",
            r"gs://b/out: cannot be written to: .*; {} needs storage\.objects\.delete "
            r"on gs://b",
        ),
    ],
)
def test_a_missing_permission_is_found_before_anything_is_read(
    bucket: FakeGcs, beam_tfr: Command, method: str, said: str
) -> None:
    bucket.set(denied=[method])
    run = convert(beam_tfr)
    assert run.code == 2
    assert re.search(said.format("the account of this run"), run.err), run.err
    assert not any(request["name"].endswith(".jpg") for request in bucket.take_log())
    assert "Traceback" not in run.err


def test_an_image_that_may_not_be_read_ends_the_run(bucket: FakeGcs, beam_tfr: Command) -> None:
    bucket.set(faults={name: ["403"] * 100 for name in PHOTO_NAMES})
    run = convert(beam_tfr)
    assert (run.code, run.err.count("Traceback")) == (1, 0)
    assert re.search(
        r"gs://b/photos/\S+ cannot be read: .*needs storage\.objects\.get on gs://b", run.err
    )


def test_without_credentials_it_is_said_at_once(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "HOME": str(tmp_path),
        "NO_GCE_CHECK": "true",
        "CLOUDSDK_CONFIG": str(tmp_path),
    }
    for name in ("STORAGE_EMULATOR_HOST", "GOOGLE_APPLICATION_CREDENTIALS"):
        environment.pop(name, None)
    command = [
        sys.executable,
        "-m",
        "beam_tfr",
        "convert",
        "--input",
        "gs://b/*",
        "--output",
        str(tmp_path / "out"),
    ]
    run = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    assert run.returncode == 2
    last = run.stderr.splitlines()[-1]
    assert last.startswith("beam-tfr convert: gs://b/* cannot be reached: no credentials: ")
    assert last.endswith("; create some with `gcloud auth application-default login`")
    assert "Traceback" not in run.stderr
    assert not (tmp_path / "out").exists()
