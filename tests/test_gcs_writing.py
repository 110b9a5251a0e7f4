"""Writing to gs://, and whole conversions.

Objects appear whole, once, and never over those of another writer.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from beam_tfr import storage
from beam_tfr.dataset.manifest import read_manifest
from beam_tfr.storage import AlreadyExistsError
from beam_tfr.verification import verify
from tests.conftest import SAMPLE, Run, files_of, wait_for
from tests.converted import converted_sample
from tests.fake_gcs import FakeGcs
from tests.gcs_fixtures import objects_below

Command = Callable[..., Run]
LARGE = random.Random(7).randbytes(40_000_000)


def write(data: bytes, *, replace: bool = True) -> None:
    storage.write_bytes("gs://b/x", data, scratch="", replace=replace)


def test_every_upload_has_a_precondition(fake: FakeGcs) -> None:
    write(b"one", replace=False)
    write(b"two")
    uploads = [request for request in fake.take_log() if request["method"] == "POST"]
    assert [request["ifGenerationMatch"] for request in uploads] == ["0", "1"]
    assert fake.get("x") == b"two"


def test_equal_bytes_are_success_others_are_not(fake: FakeGcs) -> None:
    write(b"one", replace=False)
    write(b"one", replace=False)
    for other in (b"", b"One", b"one more"):
        with pytest.raises(AlreadyExistsError, match=r"^gs://b/x$"):
            write(other, replace=False)
    assert fake.get("x") == b"one"


def test_what_another_writer_put_there_meanwhile_stays(fake: FakeGcs) -> None:
    for first, before in (("nothing", None), ("something", b"before")):
        fake.clear()
        if before is not None:
            fake.put("x", before)
        with storage.create("gs://b/x", scratch="") as file:
            file.write(b"mine")
            fake.put("x", b"theirs")
            with pytest.raises(AlreadyExistsError):
                file.commit()
        assert fake.get("x") == b"theirs", first
    with storage.create("gs://b/x", scratch="") as file:
        file.write(b"mine")
        fake.put("x", b"mine")
        file.commit()
    with storage.create("gs://b/x", scratch="") as file:
        file.write(b"mine")
        storage.delete("gs://b/x")
        with pytest.raises(AlreadyExistsError):
            file.commit()
    assert fake.names() == []


@pytest.mark.parametrize(
    "faults",
    [["503"], ["429:0.1"], ["reset"], ["lost"], ["500", "reset", "lost", "503"]],
    ids=lambda f: "+".join(f),
)
def test_faults_of_an_upload_are_waited_out(fake: FakeGcs, faults: list[str]) -> None:
    fake.set(faults={"x": list(faults)})
    write(b"one", replace=False)
    assert (fake.get("x"), fake.names()) == (b"one", ["x"])
    fake.put("x", b"before")
    fake.set(faults={"x": ["", *faults]})
    write(b"two")
    assert (fake.get("x"), fake.names()) == (b"two", ["x"])


@pytest.mark.parametrize(
    "faults",
    [
        ["lost"],
        ["", "503"],
        ["", "reset"],
        ["", "", "lost"],
        ["", "", "", "lost"],
        ["", "", "", "503", "reset"],
    ],
    ids="+".join,
)
def test_large_files_go_in_parts(fake: FakeGcs, faults: list[str]) -> None:
    fake.set(faults={"x": list(faults)})
    write(LARGE, replace=False)
    assert (fake.get("x") == LARGE, fake.names()) == (True, ["x"])


def test_an_upload_that_never_succeeds_leaves_nothing(
    fake: FakeGcs, monkeypatch: pytest.MonkeyPatch
) -> None:
    retrying = storage.gcs.retrying
    monkeypatch.setattr(storage.gcs, "retrying", lambda: retrying(0.3))
    for fault, said in (("503", r"\(HTTP 503\): said 503"), ("reset", "ConnectionError: ")):
        fake.set(faults={"x": [fault] * 1000})
        with pytest.raises(
            OSError, match=f"retried until the deadline; the last error: .*{said}"
        ) as caught:
            write(b"one", replace=False)
        assert storage.may_pass(caught.value)
        assert fake.names() == []


KILLED = """
import sys
from beam_tfr import storage
storage.write_bytes("gs://b/x", bytes(40_000_000), scratch="")
"""


def test_a_writer_that_is_killed_leaves_nothing(fake: FakeGcs) -> None:
    fake.set(latency_s=0.2)
    with subprocess.Popen([sys.executable, "-c", KILLED]) as process:
        wait_for(lambda: any(request["method"] == "PUT" for request in fake.take_log()))
        process.send_signal(signal.SIGKILL)
    assert fake.names() == []
    fake.set()


def test_listed_files_are_deleted(fake: FakeGcs) -> None:
    for i in range(30):
        fake.put(f"f/{i}", b"x")
    fake.put("f/sub/1", b"x")
    fake.put("fx", b"x")
    fake.set(page_size=7, faults={"f/3": ["503", "lost"], "f/4": ["reset"]})
    for _ in range(2):
        storage.delete_all(storage.walk("gs://b/f", lambda _: True))
    assert fake.names() == ["fx"]


# Whole conversions


OPTIONS = [
    "--name",
    "d",
    "--layout",
    "{split}/{label}/*",
    "--num_shards",
    "train=4,validation=1,test=2",
]


@pytest.fixture
def local() -> Path:
    """The sample, converted on the disk."""
    return converted_sample(" ".join(OPTIONS))


def test_with_a_fifth_of_the_requests_failing_nothing_is_lost(
    fake: FakeGcs, local: Path, beam_tfr: Command
) -> None:
    fake.put_folder(SAMPLE, "photos")
    fake.set(fail_share=0.2, page_size=50)
    command = [
        "convert",
        "--input",
        "gs://b/photos/**/*.jpg",
        "--output",
        "gs://b/out",
        *OPTIONS,
        "--json",
    ]
    run = beam_tfr(*command)
    assert run.code == 0
    photos = len(list(SAMPLE.rglob("*.jpg")))
    assert (run.json["matched"], run.json["written"]) == (photos, photos)
    log = fake.take_log()
    images = [
        request["name"]
        for request in log
        if request.get("alt") == "media" and request["name"].endswith(".jpg")
    ]
    assert len(set(images)) == photos
    assert len(images) > 1.1 * photos
    assert objects_below(fake, "out") == files_of(local)
    assert verify("gs://b/out").ok
    fake.set()


def convert(output: str, *options: str) -> subprocess.Popen[str]:
    command = [
        sys.executable,
        "-m",
        "beam_tfr",
        "convert",
        "--input",
        "gs://b/photos/**/*.jpg",
        "--output",
        output,
    ]
    return subprocess.Popen(
        [*command, *OPTIONS, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ},
    )


def shards(fake: FakeGcs) -> list[str]:
    return [name for name in fake.names() if name.startswith("out/d-")]


@pytest.mark.slow
def test_a_run_that_is_killed_goes_on_to_the_same_objects(
    fake: FakeGcs, local: Path, beam_tfr: Command
) -> None:
    fake.put_folder(SAMPLE, "photos")
    fake.set(held=["out/manifest.json"])
    with convert("gs://b/out") as process:
        wait_for(lambda: shards(fake) or process.poll() is not None)
        process.send_signal(signal.SIGKILL)
    finished = shards(fake)
    assert finished
    assert "out/manifest.json" not in fake.names()
    fake.set()
    fake.take_log()
    command = [
        "convert",
        "--input",
        "gs://b/photos/**/*.jpg",
        "--output",
        "gs://b/out",
        *OPTIONS,
        "--json",
    ]
    run = beam_tfr(*command)
    assert run.code == 0
    assert objects_below(fake, "out") == files_of(local)
    assert read_manifest("gs://b/out").dataset_digest == read_manifest(str(local)).dataset_digest


@pytest.mark.slow
def test_of_two_runs_into_one_folder_one_publishes(fake: FakeGcs, local: Path) -> None:
    fake.put_folder(SAMPLE, "photos")
    fake.set(latency_s=0.02)
    with convert("gs://b/out") as first, convert("gs://b/out", "--seed", "5") as second:
        ends = [process.communicate(timeout=240) for process in (first, second)]
    codes = sorted((first.returncode, second.returncode))
    assert codes[0] == 0
    assert codes[1] in (1, 2)
    said = ends[0 if first.returncode else 1][1]
    assert "another run" in said or "holds" in said
    assert "Traceback" not in said
    assert verify("gs://b/out").ok
    left = objects_below(fake, "out")
    assert len(left) == len(files_of(local))
    seed = json.loads(fake.get("out/manifest.json"))["options"]["seed"]
    assert seed == (0 if first.returncode == 0 else 5)
    fake.set()
