"""Attempts that fail anywhere and are made again, late and twice.

The same bytes, nothing left over.
"""

from __future__ import annotations

import gc
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from beam_tfr.verification import verify
from tests.conftest import Run, few_at_once, files_of
from tests.converted import converted_spoiled_photos, spoiled_photos
from tests.faults.finalize import Job, retried, undisturbed
from tests.retries import Attempts, InjectedError, every_bundle_twice, failing

Command = Callable[..., Run]
LAYOUT = ("--layout", "{split}/{label}/*", "--num_shards", "train=3,test=2", "--max_rejects", "7")
ONE_THREAD = ("--direct_running_mode=in_memory", "--direct_num_workers=1")
NUM_SHARDS = 3


def convert(beam_tfr: Command, output: Path, *flags: str) -> Run:
    command = [
        "convert",
        "--input",
        f"{spoiled_photos()}/**/*.jpg",
        "--output",
        output,
        "--name",
        "d",
    ]
    return beam_tfr(*command, *LAYOUT, *ONE_THREAD, *flags)


def test_every_bundle_run_twice_gives_the_same_bytes(
    beam_tfr: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output, expected = tmp_path / "twice", files_of(converted_spoiled_photos())
    assert len(expected) == 17
    with every_bundle_twice(monkeypatch, None) as attempts:
        assert convert(beam_tfr, output).code == 0
        times = {path: path.stat().st_mtime_ns for path in output.iterdir()}
        assert convert(beam_tfr, output, "--overwrite").code == 0
    assert attempts.done > 10
    assert not {path.name for path, time in times.items() if path.stat().st_mtime_ns <= time}
    assert files_of(output) == expected


@pytest.mark.slow
def test_bundles_that_fail_anywhere_and_are_run_again_give_the_same_bytes(
    beam_tfr: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = files_of(converted_spoiled_photos())
    places: set[str] = set()
    for seed in range(5):
        output = (
            tmp_path / f"shaken {seed // 2}"
        )  # every other run replaces the dataset of the one before
        with every_bundle_twice(monkeypatch, random.Random(seed)) as attempts:
            assert convert(beam_tfr, output, *(["--overwrite"] if seed % 2 else [])).code == 0
        assert attempts.failed
        places |= set(attempts.failed)
        files = files_of(
            output
        )  # a process that died in `create` may leave an empty file; the next run removes it
        files = {
            name: data for name, data in files.items() if not name.startswith(".beam_tfr/.tmp-")
        }
        assert files == expected, attempts.failed
    assert {"after commit", "before write_sidecar"} & places
    assert len(places) > 8, places
    assert verify(str(output)).ok


# The steps that write and publish, on a disk and on gs://


@pytest.fixture(params=["disk", "gs"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "gs":
        request.getfixturevalue("fake")
        return "gs://b"
    return str(tmp_path)


@pytest.fixture
def expected(folder: str) -> dict[str, bytes]:
    return undisturbed(f"{folder}/whole", NUM_SHARDS)


@pytest.fixture
def job(folder: str) -> Job:
    job = Job(f"{folder}/out", NUM_SHARDS)
    job.claim()
    return job


def test_the_writer_of_a_failed_attempt_that_ends_late_changes_nothing(
    job: Job, expected: dict[str, bytes]
) -> None:
    """A writer that streams would publish its half when it is collected."""
    failed = [job.writer() for _ in range(2)]
    for writer in failed:
        writer.start_bundle()
        list(writer.process(job.shards()[0][:2]))
    infos = job.write(job.writer(), job.shards())
    failed.pop().teardown()
    job.publish(infos)
    del writer, failed[:]
    gc.collect()
    assert job.files() == expected


def test_a_shard_that_two_workers_write_at_once_is_one_shard(
    job: Job, expected: dict[str, bytes]
) -> None:
    first, second = job.writer(), job.writer()
    for writer in (first, second):
        writer.start_bundle()
    infos = []
    for items in job.shards():
        for item in items:
            infos += [*first.process([item]), *second.process([item])]
    assert len(infos) == 2 * NUM_SHARDS
    job.publish(infos)
    assert job.files() == expected


def test_a_worker_that_is_lost_while_it_writes_leaves_nothing(
    job: Job, expected: dict[str, bytes]
) -> None:
    lost = job.writer()
    lost.start_bundle()
    list(lost.process([*job.shards()[0], *job.shards()[1][:1]]))
    job.publish(job.write(job.writer(), job.shards()))  # meanwhile another one has all its work
    assert job.files() == expected


@pytest.mark.parametrize("folder", few_at_once(["disk", "gs"], "disk"), indirect=True)
@pytest.mark.slow
def test_publishing_that_fails_after_each_effect_is_run_again(
    folder: str, expected: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = Attempts()
    for effects in range(100):
        job = Job(f"{folder}/{effects}", NUM_SHARDS)
        job.claim()
        infos = job.write(job.writer(), job.shards())
        attempts.left = effects
        with failing(monkeypatch, attempts):
            try:
                job.publish(infos)
                break
            except InjectedError:
                attempts.left = None
                job.publish(infos)
        assert job.files() == expected, attempts.failed
    steps = ("commit", "publish_dataset", "delete_all", "remove_work_folder")
    assert {f"after {step}" for step in steps} <= {*attempts.failed}


def test_attempts_of_all_steps_that_fail_anywhere(folder: str, expected: dict[str, bytes]) -> None:
    """A few; `python -m tests.faults --kind finalize` for more."""
    for seed in range(4):
        found, failed = retried(f"{folder}/{seed}", NUM_SHARDS, random.Random(seed))
        assert found == expected, seed
        assert failed > 1
