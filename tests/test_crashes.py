"""A photo that kills the process that decodes it is a reject; what was killed for other reasons is none."""

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

from beam_tfr import attempts, images, storage, transforms
from beam_tfr.options import ImageOptions
from beam_tfr.planning.survey import Survey
from beam_tfr.records import read_records
from beam_tfr.schema import ImageRef, Item, Shard, ShardWork
from tests.conftest import Run, files_of
from tests.fake_gcs import FakeGcs
from tests.gcs_fixtures import fake, fake_server
from tests.portable import prism
from tests.test_transforms import run

__all__ = ["fake", "fake_server", "prism"]

ROOT = Path(__file__).parents[1]
NUM_PHOTOS, SAMPLED = 48, 32
HOW = {"segfault": signal.SIGSEGV, "abort": signal.SIGABRT, "out of memory": signal.SIGKILL}  # as the kernel does it
# Every process of a run imports this first: it dies on a photo with a certain comment, or at its Nth photo.
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
    PIL.Image.new("RGB", (16, 16), (number, 5 * number, 99)).save(buffer, "JPEG", comment=f"{comment:13}")
    return buffer.getvalue()


def write_photos(folder: Path, comments: dict[str, str]) -> Path:
    folder.mkdir()
    for i in range(NUM_PHOTOS):
        (folder / f"{i}.jpg").write_bytes(photo(i, comments.get(f"{i}.jpg", "")))
    return folder


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A key of the sample, and one of the others; they do not depend on comments, which are all of one length."""
    survey = Survey(0)
    for path in write_photos(tmp_path_factory.mktemp("photos") / "p", {}).iterdir():
        survey.add(ImageRef(path.name, path.stat().st_size, 0, "train").encode())
    sampled = {ref.key for ref in survey.sample_refs()}
    assert len(sampled) == SAMPLED
    return min(sampled), min({f"{i}.jpg" for i in range(NUM_PHOTOS)} - sampled)


def convert(photos: Path, output: Path, *flags: str, kill_at: int = 0) -> Run:
    site = output.parent / "site"
    site.mkdir(exist_ok=True)
    (site / "sitecustomize.py").write_text(DECODER)
    command = [sys.executable, "-m", "beam_tfr", "convert", "--input", f"{photos}/*.jpg", "--output", str(output)]
    command += [
        "--name",
        "d",
        "--layout",
        "*",
        "--num_shards",
        "3",
        "--image_size",
        "8x8",
        "--max_rejects",
        "1",
        *flags,
    ]
    path = os.pathsep.join([str(site), str(ROOT)])
    env = {**os.environ, "PYTHONPATH": path, "KILL_AT": str(kill_at)}
    run = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=600, check=False)
    return Run(run.returncode, run.stdout, run.stderr)


def records_of(output: Path) -> dict[str, list[bytes]]:
    return {path.name: list(read_records(str(path))) for path in sorted(output.glob("*.tfrecord*"))}


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What sound photos become."""
    folder = tmp_path_factory.mktemp("sound")
    assert convert(write_photos(folder / "photos", {}), folder / "out").code == 0
    return folder / "out"


ENGINES = {
    "threads": [],
    "processes": ["--direct_running_mode=multi_processing", "--direct_num_workers=2"],
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "in_sample", "engine"),
    [
        ("segfault", False, "threads"),
        ("abort", True, "threads"),
        ("out of memory", False, "processes"),
    ],
)
def test_what_crashed_twice_is_a_reject_of_the_third_call(
    tmp_path: Path, sound: Path, keys: tuple[str, str], how: str, in_sample: bool, engine: str
) -> None:
    key = keys[0] if in_sample else keys[1]
    photos, output = write_photos(tmp_path / "photos", {key: how}), tmp_path / "out"
    died = 1 if engine == "processes" else -HOW[how]
    runs = [convert(photos, output, *ENGINES[engine]) for _ in range(3)]
    assert [run.code for run in runs] == [died, died, 0], [run.err for run in runs]
    assert "earlier runs crashed: this one decodes each image in a guarded process" in runs[2].err
    (reject,) = [json.loads(line) for line in (output / "rejects.jsonl").read_text().splitlines()]
    assert (reject["key"], reject["stage"], reject["reason"]) == (key, "ResizeImages", "crashed-decoder")
    assert reject["detail"] == f"the guarded process died of {HOW[how].name}"
    found, expected = records_of(output), records_of(sound)
    name = bytes([len(key)]) + key.encode()
    assert found == {file: [record for record in of if name not in record] for file, of in expected.items()}
    assert sum(map(len, found.values())) == NUM_PHOTOS - 1
    assert not (output / ".beam_tfr").exists()
    again = convert(photos, output, *ENGINES[engine])  # samples its photos before it finds that it is complete
    assert (again.code, "nothing was written" in again.out) == (0, True), again


@pytest.mark.slow
def test_a_dataset_over_its_budget_of_rejects_stays_guarded(tmp_path: Path, keys: tuple[str, str]) -> None:
    photos, output = write_photos(tmp_path / "photos", {keys[0]: "abort", keys[1]: "segfault"}), tmp_path / "out"
    assert [convert(photos, output).code for _ in range(3)] == [-signal.SIGABRT, -signal.SIGABRT, 1]
    assert convert(photos, output, "--max_rejects", "2").code == 0


@pytest.mark.slow
def test_so_it_is_on_gs(fake: FakeGcs, tmp_path: Path, keys: tuple[str, str]) -> None:
    photos = write_photos(tmp_path / "photos", {keys[1]: "segfault"})
    runs = [convert(photos, tmp_path / "x", "--output", "gs://b/out") for _ in range(3)]
    assert [run.code for run in runs] == [-signal.SIGSEGV, -signal.SIGSEGV, 0], runs
    assert json.loads(fake.get("out/rejects.jsonl"))["reason"] == "crashed-decoder"


@pytest.mark.slow
def test_runs_that_were_killed_make_no_rejects(tmp_path: Path, sound: Path) -> None:
    photos, output = write_photos(tmp_path / "photos", {}), tmp_path / "out"
    for _ in range(2):
        assert convert(photos, output, "--direct_num_workers=1", kill_at=SAMPLED + 2).code == -signal.SIGKILL
    last = convert(photos, output)
    assert (last.code, "earlier runs crashed" in last.err) == (0, True)
    assert files_of(output) == files_of(sound)


@pytest.mark.slow
def test_prism_loses_nothing(tmp_path: Path, keys: tuple[str, str], prism: Path) -> None:
    photos, output = write_photos(tmp_path / "photos", {keys[1]: "segfault"}), tmp_path / "out"
    flags = ["--runner=PrismRunner", f"--prism_location={prism}", "--experiments=disable_prism_server_singleton"]
    codes = [convert(photos, output, *flags).code for _ in range(3)]
    assert (codes[2], 0 in codes[:2]) == (0, False)
    assert json.loads((output / "rejects.jsonl").read_text())["reason"] == "crashed-decoder"


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
        with attempts.marked(path) as crashed:
            assert (crashed, marks_in(output)) == (crashes > 1, {"a.attempts": crashes + 1})
        with pytest.raises(RuntimeError), attempts.marked(path):
            raise RuntimeError
        assert marks_in(output) == ({"a.attempts": crashes} if crashes else {})
        storage.write_bytes(path, b"." * (crashes + 1), scratch=storage.work_path(output, ""))  # as a crash leaves it


def test_only_the_items_of_a_shard_that_crashed_are_guarded(tmp_path: Path, output: str) -> None:
    """As a job's service repeats it after its worker died."""
    photos = write_photos(tmp_path / "photos", {})
    shards = [Shard("train", number, 2, 20, "plan") for number in range(2)]
    work = [
        ShardWork(shard, [ImageRef(f"{20 * i + j}.jpg", 0, 0, "train").encode() for j in range(20)])
        for i, shard in enumerate(shards)
    ]
    storage.write_bytes(
        storage.work_path(output, f"{shards[1].name}.attempts"), b"..", scratch=storage.work_path(output, "")
    )
    read = transforms.ReadImages(f"{photos}/", output=output)
    look = beam.Map(lambda items: [(item.shard.number, item.guarded, marks_in(output)) for item in items])
    seen = [*itertools.chain.from_iterable(run(lambda p: p | beam.Create(work, reshuffle=False) | read | look))]
    names = [f"{shard.name}.attempts" for shard in shards]
    assert seen == [(0, False, {names[0]: 1, names[1]: 2})] * 20 + [(1, True, {names[1]: 3})] * 20
    assert marks_in(output) == {names[1]: 2}


def test_guarded_items_are_decoded_in_a_guarded_process(monkeypatch: pytest.MonkeyPatch) -> None:
    data, options = photo(1, ""), ImageOptions(image_size=(8, 8))
    ref, step = ImageRef("1.jpg", 0, 0, "train"), transforms.ResizeImages(options)
    assert step.guarded(data, ref) == step.fn(data, ref)
    called = list[Any]()
    monkeypatch.setattr(images, "convert_guarded", lambda *arguments, **named: called.append((arguments, named)))
    item = Item(Shard("train", 0, 1, 2, "plan"), 0, "/1.jpg", ref, data)
    step._apply(item)
    assert not called
    step._apply(item._replace(guarded=True))
    assert called == [((data, options), {"name": "1.jpg"})]
