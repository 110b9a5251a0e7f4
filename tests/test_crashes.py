"""A photo that kills the process that decodes it is a reject.

What was killed for other reasons is none.
"""

from __future__ import annotations

import io
import itertools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import apache_beam as beam
import PIL.Image
import pytest

from beam_tfr import cli, images, storage, transforms
from beam_tfr.options import ImageOptions
from beam_tfr.output import attempts
from beam_tfr.planning.survey import Survey
from beam_tfr.records.tfrecords import RecordFile
from beam_tfr.schema.items import ImageRef, Item, ShardWork
from beam_tfr.schema.plan import Shard
from tests.conftest import Run, files_of
from tests.fake_gcs import FakeGcs
from tests.local_pipeline import run

ROOT = Path(__file__).parents[1]
NUM_PHOTOS, SAMPLED = 48, 32
HOW = {"segfault": signal.SIGSEGV, "abort": signal.SIGABRT}
# Every process of a run imports this first: it dies on a photo with a certain comment, or at its
# Nth photo.
DECODER = """
import ctypes, itertools, os, signal, simplejpeg

decode, number, last = simplejpeg.decode_jpeg, itertools.count(1), int(os.environ.get("KILL_AT", 0))

def decode_or_die(data, *arguments, **named):
    if next(number) == last or b"out of memory" in data:
        os.kill(os.getpid(), signal.SIGKILL)
    if b"segfault" in data:
        ctypes.string_at(0)
    if b"abort" in data:
        os.abort()
    return decode(data, *arguments, **named)

simplejpeg.decode_jpeg = decode_or_die
"""


def photo(number: int, comment: str) -> bytes:
    buffer = io.BytesIO()
    PIL.Image.new("RGB", (16, 16), (number, 5 * number, 99)).save(
        buffer, "JPEG", comment=f"{comment:13}"
    )
    return buffer.getvalue()


def write_photos(folder: Path, comments: dict[str, str]) -> Path:
    folder.mkdir()
    for i in range(NUM_PHOTOS):
        (folder / f"{i}.jpg").write_bytes(photo(i, comments.get(f"{i}.jpg", "")))
    return folder


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A key of the sample, and one of the others.

    They do not depend on comments, which are all of one length.
    """
    survey = Survey(0)
    for path in write_photos(tmp_path_factory.mktemp("photos") / "p", {}).iterdir():
        survey.add([ImageRef(path.name, path.stat().st_size, 0, "train").encode()])
    sampled = {ref.key for ref in survey.sample_refs()}
    assert len(sampled) == SAMPLED
    return min(sampled), min({f"{i}.jpg" for i in range(NUM_PHOTOS)} - sampled)


def call(photos: Path, output: Path) -> list[str]:
    flags = "--name d --layout * --num_shards 3 --image_size 8x8 --max_rejects 1"
    return ["convert", "--input", f"{photos}/*.jpg", "--output", str(output), *flags.split()]


def convert(photos: Path, output: Path, *flags: str, kill_at: int = 0) -> Run:
    site = output.parent / "site"
    site.mkdir(exist_ok=True)
    (site / "sitecustomize.py").write_text(DECODER)
    command = [sys.executable, "-m", "beam_tfr", *call(photos, output), *flags]
    path = os.pathsep.join([str(site), str(ROOT)])
    env = {**os.environ, "PYTHONPATH": path, "KILL_AT": str(kill_at)}
    run = subprocess.run(
        command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=600, check=False
    )
    return Run(run.returncode, run.stdout, run.stderr)


def records_of(output: Path) -> dict[str, list[bytes]]:
    return {path.name: list(RecordFile(str(path))) for path in sorted(output.glob("*.tfrecord*"))}


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What sound photos become."""
    folder = tmp_path_factory.mktemp("sound")
    assert cli.main(call(write_photos(folder / "photos", {}), folder / "out")) == 0
    return folder / "out"


def crash_again(output: str) -> None:
    """Adds an attempt to what a run left that died while it read a shard.

    The next one is the third.
    """
    marks = {name: size for name, size in marks_in(output).items() if name.endswith(".attempts")}
    assert marks
    assert {*marks.values()} == {1}
    for name in marks:
        storage.write_bytes(
            storage.work_path(output, name), b"..", scratch=storage.work_path(output, "")
        )


@pytest.mark.slow
def test_what_crashed_twice_is_a_reject_of_the_third_call(
    tmp_path: Path, sound: Path, keys: tuple[str, str]
) -> None:
    """It may be in the sample or elsewhere, where it has crashed nothing yet.

    All photos are guarded then.
    """
    hows = {keys[0]: "abort", keys[1]: "segfault"}
    photos, output = write_photos(tmp_path / "photos", hows), tmp_path / "out"
    runs = [convert(photos, output) for _ in range(3)]
    assert [run.code for run in runs] == [-signal.SIGABRT, -signal.SIGABRT, 1], [
        run.err for run in runs
    ]
    assert "2 of 48 images were rejected" in runs[2].err
    last = convert(photos, output, "--max_rejects", "2")  # over its budget it stays guarded
    assert (
        last.code,
        "earlier runs crashed; this run decodes each image in a guarded process" in last.err,
    ) == (
        0,
        True,
    )
    rejects = [json.loads(line) for line in (output / "rejects.jsonl").read_text().splitlines()]
    assert {reject["key"]: reject["detail"] for reject in rejects} == {
        key: f"the guarded process died of {HOW[how].name}" for key, how in hows.items()
    }
    assert {(reject["stage"], reject["reason"]) for reject in rejects} == {
        ("ResizeImages", "crashed-decoder")
    }
    found, expected = records_of(output), records_of(sound)
    names = [bytes([len(key)]) + key.encode() for key in keys]
    assert found == {
        file: [record for record in of if not any(name in record for name in names)]
        for file, of in expected.items()
    }
    assert sum(map(len, found.values())) == NUM_PHOTOS - 2
    assert not (output / ".beam_tfr").exists()
    again = convert(
        photos, output, "--max_rejects", "2"
    )  # samples its photos before it finds that it is complete
    assert (again.code, "nothing was written" in again.out) == (0, True), again


@pytest.mark.slow
def test_so_it_is_in_worker_processes(tmp_path: Path, keys: tuple[str, str]) -> None:
    flags = ["--direct_running_mode=multi_processing", "--direct_num_workers=2"]
    photos, output = write_photos(tmp_path / "photos", {keys[1]: "out of memory"}), tmp_path / "out"
    assert convert(photos, output, *flags).code != 0
    crash_again(str(output))
    last = convert(photos, output, *flags)
    assert last.code == 0, last.err
    (reject,) = [json.loads(line) for line in (output / "rejects.jsonl").read_text().splitlines()]
    assert (reject["key"], reject["detail"]) == (keys[1], "the guarded process died of SIGKILL")


@pytest.mark.slow
def test_so_it_is_on_gs(fake: FakeGcs, tmp_path: Path, keys: tuple[str, str]) -> None:
    photos = write_photos(tmp_path / "photos", {keys[1]: "segfault"})
    assert convert(photos, tmp_path / "x", "--output", "gs://b/out").code == -signal.SIGSEGV
    crash_again("gs://b/out")
    last = convert(photos, tmp_path / "x", "--output", "gs://b/out")
    assert last.code == 0, last.err
    assert json.loads(fake.get("out/rejects.jsonl"))["reason"] == "crashed-decoder"


@pytest.mark.slow
def test_runs_that_were_killed_make_no_rejects(tmp_path: Path, sound: Path) -> None:
    photos, output = write_photos(tmp_path / "photos", {}), tmp_path / "out"
    assert (
        convert(photos, output, "--direct_num_workers=1", kill_at=SAMPLED + 2).code
        == -signal.SIGKILL
    )
    crash_again(str(output))
    last = convert(photos, output)
    assert (last.code, "earlier runs crashed" in last.err) == (0, True)
    assert files_of(output) == files_of(sound)


@pytest.fixture(params=["disk", "gs"])
def output(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "gs":
        request.getfixturevalue("fake")
        return "gs://b/out"
    (tmp_path / "out" / ".beam_tfr").mkdir(parents=True)
    return str(tmp_path / "out")


def marks_in(output: str) -> dict[str, int]:
    found = storage.walk(storage.work_path(output, "").rstrip("/"), lambda _: False)
    return {Path(entry.path).name: entry.size_bytes for entry in found}


def test_attempts_are_marked_while_they_last(output: str) -> None:
    path = storage.work_path(output, "a.attempts")
    for crashes in range(3):
        assert attempts.has_crashed(output) is (crashes > 1)
        with attempts.mark_attempt(path) as crashed:
            assert (crashed, marks_in(output)) == (crashes > 1, {"a.attempts": crashes + 1})
        with pytest.raises(RuntimeError), attempts.mark_attempt(path):
            raise RuntimeError
        assert marks_in(output) == ({"a.attempts": crashes} if crashes else {})
        storage.write_bytes(
            path, b"." * (crashes + 1), scratch=storage.work_path(output, "")
        )  # as a crash leaves it


@pytest.mark.parametrize("crashes", [0, 1])
@pytest.mark.parametrize("first_to_end", [0, 1])
def test_simultaneous_attempts_leave_no_mark_of_their_own(
    output: str, crashes: int, first_to_end: int
) -> None:
    path = storage.work_path(output, "a.attempts")
    before = {"a.attempts": crashes} if crashes else {}
    if crashes:
        storage.write_bytes(path, b"." * crashes, scratch=storage.work_path(output, ""))
    both = [attempts.mark_attempt(path), attempts.mark_attempt(path)]
    for attempt in both:
        attempt.__enter__()
    assert marks_in(output) == {"a.attempts": crashes + 2}
    both.pop(first_to_end).__exit__(None, None, None)
    assert marks_in(output) == {"a.attempts": crashes + 1}  # and a crash of the other counts
    both.pop().__exit__(None, None, None)
    assert marks_in(output) == before


def test_only_the_items_of_a_shard_that_crashed_are_guarded(tmp_path: Path, output: str) -> None:
    """As a job's service repeats it after its worker died."""
    photos = write_photos(tmp_path / "photos", {})
    shards = [Shard("train", number, 2, 20, "plan") for number in range(2)]
    work = [
        ShardWork(shard, [ImageRef(f"{20 * i + j}.jpg", 0, 0, "train").encode() for j in range(20)])
        for i, shard in enumerate(shards)
    ]
    storage.write_bytes(
        storage.work_path(output, f"{shards[1].name}.attempts"),
        b"..",
        scratch=storage.work_path(output, ""),
    )
    read = transforms.ReadImages(f"{photos}/", output=output)
    look = beam.Map(
        lambda items: [(item.shard.number, item.guarded, marks_in(output)) for item in items]
    )
    seen = [
        *itertools.chain.from_iterable(
            run(lambda p: p | beam.Create(work, reshuffle=False) | read | look)
        )
    ]
    names = [f"{shard.name}.attempts" for shard in shards]
    assert seen == [(0, False, {names[0]: 1, names[1]: 2})] * 20 + [(1, True, {names[1]: 3})] * 20
    assert marks_in(output) == {names[1]: 2}


def test_guarded_items_are_decoded_in_a_guarded_process(monkeypatch: pytest.MonkeyPatch) -> None:
    data, options = photo(1, ""), ImageOptions(image_size=(8, 8))
    ref, step = ImageRef("1.jpg", 0, 0, "train"), transforms.ResizeImages(options)
    assert step.guarded(data, ref) == step.fn(data, ref)
    called = list[Any]()
    monkeypatch.setattr(
        images, "convert_guarded", lambda *arguments, **named: called.append((arguments, named))
    )
    item = Item(Shard("train", 0, 1, 2, "plan"), 0, "/1.jpg", ref, data)
    step._apply(item)
    assert not called
    step._apply(item._replace(guarded=True))
    assert called == [((data, options), {"name": "1.jpg", "statistics": True})]
