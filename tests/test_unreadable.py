"""Reads that fail now but perhaps not later.

They never close a shard, and the same command reads them again.
"""

from __future__ import annotations

import functools
import json
import os
import re
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from beam_tfr import storage
from beam_tfr.inputs.reading import read_image
from beam_tfr.output import claim
from beam_tfr.schema.errors import RejectError
from beam_tfr.schema.plan import Plan
from tests.conftest import Run, as_nobody, files_of, finished_shards
from tests.converted import SAMPLE
from tests.fake_gcs import FakeGcs
from tests.gcs_fixtures import Clock

Command = Callable[..., Run]
NUM_FILES = 240  # in two folders


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for i in range(NUM_FILES):
        path = tmp_path / "files" / f"{i % 2}" / f"{i}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"%d" % i)
    return tmp_path / "files"


def convert(beam_tfr: Command, source: object, output: object, *options: object) -> Run:
    flags = [
        "--encoding",
        "bytes",
        "--num_shards",
        6,
        "--name",
        "d",
        "--json",
        "--direct_num_workers",
        1,
    ]
    return beam_tfr("convert", "--input", f"{source}/*/*", "--output", output, *flags, *options)


@pytest.fixture
def once_listed(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Takes what to do in the next run once it has listed its input."""
    claimed = claim.claim_folder

    def call(function: Callable[[], object]) -> None:
        def first(*arguments: Any, **named: Any) -> Plan:
            monkeypatch.setattr(claim, "claim_folder", claimed)
            function()
            return claimed(*arguments, **named)

        monkeypatch.setattr(claim, "claim_folder", first)

    return call


def written(folder: Path) -> dict[str, bytes]:
    """The files of an output, without those that belong to a run."""
    return {name: data for name, data in files_of(folder).items() if ".beam_tfr/lock" not in name}


def finished(output: Path) -> set[str]:
    return {path.name for path in (output / ".beam_tfr").glob("train-*.json")}


@pytest.mark.slow
def test_an_unmounted_disk_ends_the_run_and_is_read_when_it_is_back(
    beam_tfr: Command,
    files: Path,
    tmp_path: Path,
    once_listed: Callable[[Callable[[], object]], None],
) -> None:
    assert convert(beam_tfr, files, tmp_path / "sound").code == 0
    output = tmp_path / "out"

    def unmount(empty: bool) -> None:
        files.rename(tmp_path / "away")
        for folder in ("0", "1") if empty else ():
            (files / folder).mkdir(parents=True)

    def mount() -> None:
        for folder in ("0", "1", "") if files.exists() else ():
            (files / folder).rmdir()
        (tmp_path / "away").rename(files)

    for empty in (False, True):
        once_listed(functools.partial(unmount, empty))
        run = convert(beam_tfr, files, output, "--max_rejects", "1.0")
        assert run.code == 1
        assert re.search(
            r"the source seems to be gone: 100 files in a row cannot be read; the last is "
            r"\S+/files/\d/\d+\.bin: No "
            r"such file or directory; its folder is empty or cannot be listed\. Nothing is "
            r"published.* run the same "
            r"command again.* --accept_unreadable, ",
            run.err,
        ), run.err
        assert finished(output) == set()
        mount()
    assert convert(beam_tfr, files, output).json["rejected"] == {}
    assert written(output) == written(tmp_path / "sound")


@pytest.fixture
def two_lost(files: Path) -> list[Path]:
    """Two links to files on a disk that is not mounted, whatever their shards."""
    lost = [files / "0" / "10.bin", files / "1" / "11.bin"]
    for path in lost:
        (files.parent / "disk").mkdir(exist_ok=True)
        path.rename(files.parent / "disk" / path.name)
        path.symlink_to(files.parent / "disk" / path.name)
    return lost


def test_a_file_that_cannot_be_read_leaves_only_its_shard_unfinished(
    beam_tfr: Command,
    files: Path,
    two_lost: list[Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    once_listed: Callable[[Callable[[], object]], None],
) -> None:
    assert convert(beam_tfr, files, tmp_path / "sound").code == 0
    output = tmp_path / "out"
    once_listed(lambda: (tmp_path / "disk").rename(tmp_path / "away"))
    run = convert(beam_tfr, files, output)
    assert run.code == 1
    assert re.search(
        r"2 of 240 files cannot be read, such as \S+/files/./1[01]\.bin \(2: No such file or "
        r"directory; its folder is "
        r"empty or cannot be listed\)\. That leaves [12] of 6 shards unfinished\. Nothing is "
        r"published\. Run "
        r"the same command again: it reads only these shards\. --accept_unreadable rejects files "
        r"that cannot be read",
        run.err,
    ), run.err
    kept = finished(output)
    assert len(kept) in (4, 5)
    assert {f"{name}.json" for name in finished_shards(output)} == kept
    assert not list((output / ".beam_tfr").glob(".tmp-*"))

    # Accepted, they are rejects of a reason of their own; a run without the option reads them
    # again.
    (tmp_path / "away").rename(tmp_path / "disk")
    once_listed(lambda: (tmp_path / "disk").rename(tmp_path / "away"))
    run = convert(beam_tfr, files, output, "--accept_unreadable", "--max_rejects", "1")
    assert (run.code, "2 of 240 files were rejected (unreadable 2)" in run.err) == (1, True), (
        run.err
    )
    assert len(finished(output)) == 6
    (tmp_path / "away").rename(tmp_path / "disk")
    read: list[str] = []
    read_bytes = storage.read_bytes

    def recorded(path: str, **how: Any) -> bytes:
        read.append(path)
        return read_bytes(path, **how)

    once_listed(lambda: monkeypatch.setattr(storage, "read_bytes", recorded))
    assert convert(beam_tfr, files, output).json["rejected"] == {}
    assert 0 < len([path for path in read if str(files) in path]) <= 80
    assert written(output) == written(tmp_path / "sound")


def test_what_is_accepted_is_published_apart(
    beam_tfr: Command, files: Path, two_lost: list[Path], tmp_path: Path
) -> None:
    (tmp_path / "disk").rename(tmp_path / "away")
    (files / "0" / "pipe.bin").unlink(missing_ok=True)
    os.mkfifo(files / "0" / "pipe.bin")
    run = convert(beam_tfr, files, tmp_path / "out", "--accept_unreadable", "--max_rejects", "3")
    assert run.json["rejected"] == {"unreadable": 2, "unusable-file": 1}, run.err
    lines = [
        json.loads(line) for line in (tmp_path / "out" / "rejects.jsonl").read_text().splitlines()
    ]
    assert {line["key"]: line["reason"] for line in lines} == {
        "0/10.bin": "unreadable",
        "1/11.bin": "unreadable",
        "0/pipe.bin": "unusable-file",
    }


def test_a_fault_that_has_passed_at_the_end_of_its_shard_costs_nothing_but_time(
    beam_tfr: Command, fake: FakeGcs, clock: Clock, tmp_path: Path
) -> None:
    for i in range(20):
        fake.put(f"in/0/{i}", b"%d" % i)
    flags = ["--num_shards", 2]
    assert convert(beam_tfr, "gs://b/in", tmp_path / "sound", *flags).code == 0
    fake.set(faults={"in/0/7": ["", "403"]})  # the first read is for the sample
    assert (
        convert(beam_tfr, "gs://b/in", tmp_path / "out", *flags, "--max_rejects", 0).json[
            "rejected"
        ]
        == {}
    )
    assert written(tmp_path / "out") == written(tmp_path / "sound")


@pytest.mark.slow
def test_an_object_that_the_service_does_not_give_leaves_only_its_shard_unfinished(
    beam_tfr: Command, fake: FakeGcs, clock: Clock
) -> None:
    for i in range(20):
        fake.put(f"in/0/{i}", b"%d" % i)
    flags = ["--num_shards", 2]
    assert convert(beam_tfr, "gs://b/in", "gs://b/sound", *flags).code == 0
    fake.set(faults={"in/0/8": ["", *["503"] * 10_000]})
    run = convert(beam_tfr, "gs://b/in", "gs://b/out", *flags)
    # a shard, its contents, its sidecar
    left = [name for name in fake.names() if name.startswith("out/.beam_tfr/train-")]
    assert (run.code, len(left)) == (1, 3)
    assert re.search(
        r"1 of 20 files cannot be read, such as gs://b/in/0/8 \(1: retried until the deadline; ",
        run.err,
    )
    fake.set(faults={})
    assert convert(beam_tfr, "gs://b/in", "gs://b/out", *flags).json["written"] == 20
    names = [
        name for name in fake.names() if name.startswith("sound/") and "/.sources/" not in name
    ]
    assert [fake.get(name) for name in names] == [
        fake.get(name.replace("sound", "out")) for name in names
    ]


def test_a_sample_that_cannot_be_read_whole_is_estimated_again(
    beam_tfr: Command, fake: FakeGcs, tmp_path: Path
) -> None:
    for i in range(9):
        fake.put(f"in/0/{i}", b"%d" % i)
    fake.set(faults={"in/0/7": ["403"]})
    run = convert(beam_tfr, "gs://b/in", tmp_path / "out")
    assert (run.code, len(finished(tmp_path / "out"))) == (1, 6)
    assert (
        "some of the files used to estimate the number of shards could not be read at first"
        in run.err
    )
    fake.set(faults={})
    fake.take_log()
    assert convert(beam_tfr, "gs://b/in", tmp_path / "out").json["written"] == 9
    # the sample alone
    assert len([request for request in fake.take_log() if request.get("alt") == "media"]) == 9


def reason_of(path: object) -> tuple[str, bool]:
    with pytest.raises(RejectError) as caught:
        read_image(storage.Entry(str(path), 0, 0))
    return caught.value.reason, caught.value.may_pass


def test_which_verdicts_are_certain(public_path: Path, fake: FakeGcs) -> None:
    (public_path / "a").mkdir()
    (public_path / "a" / "1").write_bytes(b"x")
    (public_path / "a" / "secret").write_bytes(b"x")
    (public_path / "a" / "secret").chmod(0)
    (public_path / "empty").mkdir()
    (public_path / "link").symlink_to(public_path / "empty" / "2")
    (public_path / "dangling").symlink_to(public_path / "a" / "2")
    assert (
        reason_of(public_path / "a" / "2")
        == reason_of(public_path / "dangling")
        == ("not-found", False)
    )
    for path in ("empty/2", "none/2", "link", "a/1/2"):
        assert reason_of(public_path / path) == ("unreadable", True)
    with as_nobody():
        assert reason_of(public_path / "a" / "secret") == ("unreadable", True)
    assert (
        reason_of(public_path / "a")
        == reason_of(public_path / ("x" * 300))
        == ("unusable-file", False)
    )
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, limits[1]))
    try:
        assert reason_of(public_path / "a" / "1") == ("unreadable", True)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    fake.put("there", b"x")
    assert reason_of("gs://b/gone") == ("not-found", False)
    assert reason_of("gs://none/gone") == ("unreadable", True)
    fake.set(denied=["GET"])
    assert reason_of("gs://b/there") == ("unreadable", True)


@pytest.mark.parametrize("listed", [True, False], ids=["listed", "named in a table"])
@pytest.mark.parametrize("change", ["overwritten", "appended to", "cut", "overwritten once"])
def test_a_read_that_was_torn_gives_no_bytes(
    change: str, listed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was listed does not come back; any other file may be whole in a second."""
    path, size, left = tmp_path / "a", 1 << 16, [1 if change == "overwritten once" else 99]
    path.write_bytes(b"a" * size)
    os.utime(path, ns=(1, 1))
    (entry,) = storage.walk(str(tmp_path), lambda _: False)
    read = os.read

    def read_half(descriptor: int, count: int) -> bytes:
        data = read(descriptor, min(count, size // 2))
        if left[0]:
            left[0] -= 1
            with path.open({"appended to": "ab", "cut": "wb"}.get(change, "r+b")) as file:
                file.write(b"b" * (size // 2 if change == "cut" else size))
        return data

    monkeypatch.setattr(os, "read", read_half)
    if change == "overwritten once" and not listed:
        assert read_image(storage.Entry(str(path), 0, 0)) == b"b" * size
        return
    with pytest.raises(RejectError) as error:
        read_image(entry if listed else storage.Entry(str(path), 0, 0))
    told = "it was changed after it was listed" if listed else "it was changed while it was read"
    assert (error.value.reason, error.value.detail) == ("changed-while-reading", told)
    assert error.value.may_pass != listed


def test_a_file_that_grows_gives_no_byte_more_than_it_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, read, asked = tmp_path / "a", os.read, list[int]()
    path.write_bytes(bytes(100))
    monkeypatch.setattr(
        os, "read", lambda descriptor, count: asked.append(count) or read(descriptor, count)
    )
    assert (
        storage.read_bytes(str(path)) == storage.read_bytes(str(path), max_bytes=100) == bytes(100)
    )
    assert storage.read_bytes(str(path), max_bytes=10) == bytes(11)
    assert asked == [100, 100, 11]


@pytest.mark.parametrize(
    ("flag", "name"),
    [
        ("--table", "a.csv"),
        ("--table", "a.parquet"),
        ("--input", "a.tar"),
        ("--input", "a.zip"),
        ("--input_list", "a.txt"),
        ("--classes", "a.txt"),
    ],
)
def test_a_pipe_is_not_called_damaged(
    tmp_path: Path, beam_tfr: Command, flag: str, name: str
) -> None:
    pipe = tmp_path / name
    os.mkfifo(pipe)
    source = ["--input", SAMPLE] if flag == "--classes" else []
    run = beam_tfr("plan", *source, flag, pipe)
    assert run.code == 2
    assert run.err.startswith(f"beam-tfr plan: {flag} {pipe}: cannot be ")
    assert ": it is a pipe, not a file: write it to a file first" in run.err
