"""Who may write into a folder, and what of an earlier run is kept: real processes, damaged and foreign files."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from beam_tfr import claim, diff, lock, sidecars, storage
from beam_tfr.naming import shard_name
from beam_tfr.schema import (
    Plan,
    Reject,
    RunError,
    Shard,
    ShardInfo,
    SplitPlan,
    UsageError,
    sha256_hex,
)
from tests.conftest import files_of, wait_for

ROOT = Path(__file__).parents[1]
DONE = "d-train-00000-of-00002.tfrecord.gz"


def make_plan(seed: int = 0, name: str = "d") -> Plan:
    return Plan(
        name=name,
        suffix=".tfrecord.gz",
        options={"seed": seed, "image_size": [224, 224]},
        input_digest="ab" * 32,
        labels=["hat"],
        splits={
            "train": SplitPlan(matched=4, num_shards=2, cuts=["80"], class_counts={"hat": 4}),
            "none": SplitPlan(matched=1, num_shards=1, cuts=[], class_counts={}),
        },
        codecs={"pillow": "12"},
    )


def lock_of(output: Path) -> dict[str, object]:
    (file,) = (output / ".beam_tfr").glob("lock.*")
    return json.loads(file.read_text())


def write_lock(output: Path, number: int = 0, **fields: object) -> None:
    (output / ".beam_tfr").mkdir(parents=True, exist_ok=True)
    lock = {
        "run_id": "other",
        "machine": "elsewhere/boot/pid",
        "pid": 1,
        "process_start": "5",
        "started": time.time(),
        "heartbeat": time.time(),
    }
    (output / ".beam_tfr" / f"lock.{number}").write_text(json.dumps({**lock, **fields}))


# Processes that hold folders

CHILD = """
import sys, time
from beam_tfr import lock
from beam_tfr.schema import BeamTfrError
for line in sys.stdin:
    output, run_id, start = line.rstrip("\\n").split("\\t")
    while time.time() < float(start):
        pass
    try:
        lock.acquire(output, run_id)
        print("holds", flush=True)
    except BeamTfrError as error:
        print(type(error).__name__, error, flush=True)
"""


class Other:
    """A process of its own that takes folders."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", CHILD], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def ask(self, output: Path, run_id: str, start: float = 0.0) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{output}\t{run_id}\t{start}\n")
        self.process.stdin.flush()

    def answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def kill(self) -> None:
        """Dead, but not looked at yet by its parent."""
        os.kill(self.process.pid, signal.SIGKILL)
        os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOWAIT)

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture(scope="module")
def pool() -> Iterator[list[Other]]:
    started: list[Other] = []
    yield started
    for other in started:
        other.end()


@pytest.fixture
def others(pool: list[Other]) -> list[Other]:
    """Three living processes."""
    pool[:] = [other for other in pool if other.process.poll() is None]
    pool.extend(Other() for _ in range(3 - len(pool)))
    return pool


def test_a_living_holder_is_named_and_a_killed_one_replaced(others: list[Other], tmp_path: Path) -> None:
    output = tmp_path / "out"
    holder = others[0]
    holder.ask(output, "one")
    assert holder.answer() == "holds"
    since = time.strftime("since %Y-%m-%d %H:%M:%S", time.localtime(lock_of(output)["started"]))
    with pytest.raises(RunError, match=f"another run holds {output}: process {holder.process.pid} on .*, {since}"):
        lock.acquire(str(output), "two")
    others[1].ask(output, "three")
    assert others[1].answer().startswith("RunError another run holds ")
    holder.ask(output, "one")  # the same run may ask again
    assert holder.answer() == "holds"
    holder.kill()  # its parent, this process, has not waited for it: a zombie
    lock.acquire(str(output), "two")
    assert lock_of(output)["pid"] == os.getpid()
    lock.check_held(str(output), "two")
    with pytest.raises(RunError, match="was taken over by another run"):
        lock.check_held(str(output), "one")
    others[1].ask(output, "three")
    assert others[1].answer().startswith(f"RunError another run holds {output}: process {os.getpid()} on ")
    lock.release(str(output), "two")
    assert not list((output).iterdir())
    others[1].ask(output, "three")
    assert others[1].answer() == "holds"


BEFORE: list[list[dict[str, object]]] = [
    [],
    [{"heartbeat": 1.0}],
    [{"pid": "many"}],  # damaged
    [{"number": number, "heartbeat": 1.0, "run_id": str(number)} for number in (0, 1, 7)],
]


@pytest.mark.parametrize("locks", BEFORE, ids=["nothing", "a dead lock", "a damaged lock", "several dead locks"])
def test_exactly_one_of_racing_processes_wins(others: list[Other], tmp_path: Path, locks: list[dict[str, Any]]) -> None:
    chance = random.Random(3)
    for attempt in range(30):
        output = tmp_path / str(attempt)
        for fields in locks:
            write_lock(output, **fields)
        start = time.time() + 0.004
        for other in others:
            other.ask(output, uuid.uuid4().hex, start + chance.uniform(0, 0.0006))
        answers = [other.answer() for other in others]
        assert answers.count("holds") == 1, answers
        assert sum(answer.startswith("RunError another run ") for answer in answers) == 2
        winner = others[answers.index("holds")]
        assert lock_of(output)["pid"] == winner.process.pid
        assert not list((output / ".beam_tfr").glob(".tmp-*"))


def test_a_holder_elsewhere_is_dead_after_a_minute_without_heartbeat(tmp_path: Path) -> None:
    write_lock(tmp_path, heartbeat=time.time() - 20)
    with pytest.raises(RunError, match=r"another run holds .*: process 1 on elsewhere, since "):
        lock.acquire(str(tmp_path), "mine")
    write_lock(tmp_path, heartbeat=time.time() - 61)
    lock.acquire(str(tmp_path), "mine")
    assert lock_of(tmp_path)["run_id"] == "mine"


def test_a_reused_process_id_is_not_the_holder(tmp_path: Path) -> None:
    mine = {"machine": lock._machine(), "pid": os.getpid()}
    write_lock(tmp_path, **mine, process_start="1")
    lock.acquire(str(tmp_path), "mine")
    write_lock(tmp_path, 1, **mine, process_start=lock._process_start(os.getpid()), run_id="same process")
    with pytest.raises(RunError, match="another run holds"):
        lock.acquire(str(tmp_path), "mine too")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b"{}",
        b'{"run_id": null}',
        b'{"run_id":"x","machine":"m","pid":"1","process_start":"5","started":1.0,"heartbeat":9e99}',
        b'{"run_id":"x","machine":"m","pid":-1,"process_start":"5","started":1.0,"heartbeat":9e99}',
        b'{"run_id":"x","machine":"m","pid":1,"process_start":"5","started":1.0,"heartbeat":"soon"}',
        b'{"run_id":"x","machine":"m","pid":1,"process_start":"5","started":1.0,"heartbeat":NaN}',
        b"9" * 100_000,
        b'{"run_id":"x","pid":' + b"9" * 400 + b"}",
    ],
)
def test_a_damaged_lock_is_held_by_nobody(tmp_path: Path, content: bytes) -> None:
    (tmp_path / ".beam_tfr").mkdir()
    (tmp_path / ".beam_tfr" / "lock.0").write_bytes(content)
    lock.acquire(str(tmp_path), "mine")
    assert lock_of(tmp_path)["run_id"] == "mine"


def test_heartbeats_stop_when_another_run_takes_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "HEARTBEAT_S", 0.02)
    output = tmp_path / "deep" / "out"
    with lock.held(str(output), "mine"):
        first = lock_of(output)
        wait_for(lambda: lock_of(output)["heartbeat"] > first["heartbeat"])
        assert lock_of(output) == {**first, "heartbeat": lock_of(output)["heartbeat"]}
        write_lock(output, 1, run_id="thief")
        time.sleep(0.2)
        assert json.loads((output / ".beam_tfr" / "lock.1").read_text())["run_id"] == "thief"
        with pytest.raises(RunError, match="was taken over"):
            lock.check_held(str(output), "mine")
    assert (output / ".beam_tfr" / "lock.1").exists()


def test_a_run_that_wrote_nothing_leaves_nothing(tmp_path: Path) -> None:
    output = tmp_path / "new"
    with pytest.raises(ValueError, match="mine"), lock.held(str(output), "one"):
        raise ValueError("mine")
    assert not output.exists()
    output.mkdir()
    with lock.held(str(output), "one"):
        pass
    assert list(tmp_path.iterdir()) == [output]
    assert not list(output.iterdir())
    (output / "notes.txt").write_text("mine")
    with lock.held(str(output), "one"):
        pass
    assert [path.name for path in output.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("output", ["/proc/nothing/here", "/dev/null/out"])
def test_a_folder_that_cannot_be_made(output: str) -> None:
    with pytest.raises(UsageError, match=f"`output={output}`: cannot be written to: "):
        lock.acquire(output, "mine")


# Plans


def begin(output: Path, plan: Plan | None = None, *, overwrite: bool = False, run_id: str = "mine") -> Plan:
    return claim.claim(str(output), plan or make_plan(), run_id=run_id, overwrite=overwrite)


def shard_of(plan: Plan, number: int = 0, split: str = "train") -> Shard:
    of = plan.splits[split]
    return Shard(split, number, of.num_shards, 2 if split == "train" else 1, plan.digest)


def finish_shard(output: Path, plan: Plan, number: int = 0, split: str = "train") -> ShardInfo:
    """A shard as WriteShards leaves it."""
    shard = shard_of(plan, number, split)
    reject = Reject("a\u2028\n.jpg", "/a.jpg", "ReadImages", "not-found", "gone")
    info = ShardInfo(shard=shard, rejected={"not-found": 1})
    if split == "train":
        data = shard.name.encode() * 100
        info = dataclasses.replace(
            info,
            file=f"{plan.name}-{shard.name}.tfrecord.gz",
            num_examples=1,
            sha256=sha256_hex(data),
            num_bytes=len(data),
        )
        (output / info.file).write_bytes(data)
    sidecars.write(str(output), info, [reject.to_json()])
    return info


def sidecar(output: Path, number: int = 0) -> Path:
    return output / ".beam_tfr" / f"{shard_name('train', number, 2)}.json"


def die(output: Path) -> None:
    """The run is killed: its lock stays, nobody holds it."""
    for file in (output / ".beam_tfr").glob("lock.*"):
        file.write_text(json.dumps({**json.loads(file.read_text()), "process_start": "1"}))


def test_the_same_plan_resumes_and_another_is_refused(tmp_path: Path) -> None:
    plan = begin(tmp_path)
    info = finish_shard(tmp_path, plan)
    (tmp_path / ".beam_tfr" / ".tmp-0123").write_bytes(b"half a shard")
    die(tmp_path)
    before = files_of(tmp_path)
    with pytest.raises(
        UsageError, match=r"(?s)holds the beginning of a dataset.*options.seed: 0 there, 1 now.*`overwrite=`"
    ):
        begin(tmp_path, make_plan(seed=1), run_id="second")
    assert {k: v for k, v in files_of(tmp_path).items() if "lock" not in k} == {
        k: v for k, v in before.items() if "lock" not in k
    }
    die(tmp_path)
    assert begin(tmp_path, run_id="third") == plan
    assert not list((tmp_path / ".beam_tfr").glob(".tmp-*"))
    assert sidecars.read_finished(str(tmp_path), info.shard) == info
    assert len(list(sidecars.read_rejects(str(tmp_path), info.shard.name))) == 1


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"plan": 3}', b"\xff", b'{"plan'])
def test_a_damaged_plan_is_ignored(tmp_path: Path, content: bytes) -> None:
    plan = begin(tmp_path)
    finish_shard(tmp_path, plan, split="none")
    (tmp_path / ".beam_tfr" / "plan.json").write_bytes(content)
    die(tmp_path)
    assert begin(tmp_path, run_id="second") == plan
    assert sorted(path.name for path in (tmp_path / ".beam_tfr").iterdir()) == ["lock.1", "plan.json"]
    assert json.loads((tmp_path / ".beam_tfr" / "plan.json").read_text())["digest"] == plan.digest


def test_shards_without_a_plan_are_not_reused(tmp_path: Path) -> None:
    plan = begin(tmp_path)
    finish_shard(tmp_path, plan)
    (tmp_path / ".beam_tfr" / "plan.json").unlink()
    die(tmp_path)
    with pytest.raises(UsageError, match=rf"holds 1 files of an unknown dataset \(such as {DONE}\)"):
        begin(tmp_path, run_id="second")
    assert begin(tmp_path, run_id="second", overwrite=True) == plan
    assert not (tmp_path / DONE).exists()
    assert sidecars.read_finished(str(tmp_path), shard_of(plan)) is None


@pytest.mark.parametrize("name", ["labels.txt", "rejects.jsonl"])
def test_an_unrelated_file_is_not_replaced(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine\n")
    with pytest.raises(UsageError, match=rf"holds 1 files of an unknown dataset \(such as {name}\)"):
        begin(tmp_path)
    assert (tmp_path / name).read_text() == "mine\n"
    begin(tmp_path, overwrite=True)
    assert not (tmp_path / name).exists()


def test_a_work_folder_that_is_a_link_is_not_emptied(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "plan.json").write_text("mine")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / ".beam_tfr").symlink_to("../elsewhere")
    with pytest.raises(UsageError, match=r"\.beam_tfr in it is a link, and would be emptied; remove it"):
        begin(tmp_path / "out", overwrite=True)
    assert [path.read_text() for path in (tmp_path / "elsewhere").iterdir()] == ["mine"]


def test_a_retried_step_claims_once(tmp_path: Path) -> None:
    plan = begin(tmp_path, overwrite=True)
    info = finish_shard(tmp_path, plan)
    assert begin(tmp_path, overwrite=True) == plan  # a runner's retry, of the same run
    assert sidecars.read_finished(str(tmp_path), info.shard) == info
    die(tmp_path)
    assert begin(tmp_path, overwrite=True, run_id="second") == plan  # the user's new call begins anew
    assert sidecars.read_finished(str(tmp_path), info.shard) is None


# Finished shards


@pytest.mark.parametrize("damage", ["empty", "cut", "one bit", "no checksum", "appended", "gone"])
def test_a_damaged_sidecar_is_ignored(tmp_path: Path, damage: str) -> None:
    plan = begin(tmp_path)
    info = finish_shard(tmp_path, plan)
    path = sidecar(tmp_path)
    data = path.read_bytes()
    flipped = bytearray(data)
    flipped[40] ^= 1
    damaged = {
        "empty": b"",
        "cut": data[: len(data) // 2],
        "one bit": bytes(flipped),
        "no checksum": b"".join(data.splitlines(keepends=True)[:-1]),
        "appended": data + b"x\n",
    }
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(damaged[damage])
    assert sidecars.read_finished(str(tmp_path), info.shard) is None
    with pytest.raises(RunError, match=f"the sidecar of shard {info.shard.name} is missing or damaged"):
        list(sidecars.read_rejects(str(tmp_path), info.shard.name))


def test_every_truncation_and_every_flipped_byte_of_a_sidecar_shows(tmp_path: Path) -> None:
    plan = begin(tmp_path)
    info = finish_shard(tmp_path, plan)
    path = sidecar(tmp_path)
    data = path.read_bytes()
    assert sidecars.read(str(tmp_path), info.shard.name) is not None
    for place in range(0, len(data) - 1, 3):  # the last line end may go
        flipped = bytearray(data)
        flipped[place] ^= 0x10
        for damaged in (data[:place], bytes(flipped)):
            path.write_bytes(damaged)
            assert sidecars.read(str(tmp_path), info.shard.name) is None, damaged


def test_sidecars_of_another_plan_are_ignored(tmp_path: Path) -> None:
    plan = begin(tmp_path)
    for shard, split in ((0, "train"), (0, "none")):
        info = finish_shard(tmp_path, plan, shard, split)
        assert sidecars.read_finished(str(tmp_path), info.shard) == info
        assert sidecars.read_finished(str(tmp_path), info.shard._replace(plan_digest=make_plan(seed=1).digest)) is None
        assert sidecars.read_finished(str(tmp_path), info.shard._replace(total=9)) is None
    swapped = sidecar(tmp_path, 1)
    swapped.write_bytes(sidecar(tmp_path, 0).read_bytes())
    assert sidecars.read_finished(str(tmp_path), shard_of(plan, 1)) is None


@pytest.mark.parametrize("change", ["removed", "emptied", "appended", "one bit", "a folder"])
def test_a_finished_shard_with_a_changed_file_is_written_again(tmp_path: Path, change: str) -> None:
    plan = begin(tmp_path)
    info = finish_shard(tmp_path, plan)
    file = tmp_path / info.file
    data = file.read_bytes()
    file.unlink()
    if change == "a folder":
        file.mkdir()
    elif change != "removed":
        changed = {"emptied": b"", "appended": data + b"\0", "one bit": bytes([data[0] ^ 1]) + data[1:]}
        file.write_bytes(changed[change])
    assert sidecars.read_finished(str(tmp_path), info.shard) is None


def test_reject_lines_survive_byte_for_byte(tmp_path: Path) -> None:
    begin(tmp_path)
    shard = shard_of(make_plan(), split="none")
    lines = [Reject(f"{i}\r\x85\u2028\ud800", "u", "s", "not-found", "\x0b\x0c").to_json() for i in range(50)]
    sidecars.write(str(tmp_path), ShardInfo(shard=shard), lines)
    assert b"".join(sidecars.read_rejects(str(tmp_path), shard.name)).decode() == "".join(f"{line}\n" for line in lines)
    sidecars.write(str(tmp_path), ShardInfo(shard=shard), [])
    assert list(sidecars.read_rejects(str(tmp_path), shard.name)) == []


# Overwriting


class Killed(BaseException):
    pass


def old_dataset(output: Path) -> None:
    """A dataset with all its files, a half-made one of another plan over it, and a file of the user's."""
    output.mkdir()
    plan = begin(output)
    for number in (0, 1):
        finish_shard(output, plan, number)
    finish_shard(output, plan, split="none")
    (output / ".beam_tfr" / ".tmp-9").write_bytes(b"half")
    for name in ("manifest.json", "labels.txt", "rejects.jsonl", "notes.txt"):
        (output / name).write_text("old")
    die(output)


def test_overwriting_that_is_killed_never_leaves_a_mixture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new = make_plan(seed=1)
    really_delete = storage.delete
    for step in range(100):
        output = tmp_path / str(step)
        old_dataset(output)
        left = [step]

        def delete(path: str, left: list[int] = left) -> None:
            really_delete(path)
            if "lock" not in path:
                left[0] -= 1
                if left[0] < 0:
                    raise Killed

        monkeypatch.setattr(storage, "delete", delete)
        try:
            begin(output, new, overwrite=True, run_id="second")
            killed = False
        except Killed:
            killed = True
        monkeypatch.setattr(storage, "delete", really_delete)
        assert not (output / "manifest.json").exists()
        assert (output / "notes.txt").read_text() == "old"
        die(output)
        # Whatever comes next, no shard of the old plan is taken for one of the new.
        for overwrite in (False, True):
            try:
                begin(output, new, overwrite=overwrite, run_id=f"third {overwrite}")
            except UsageError:
                assert not overwrite
                assert killed
            else:
                for split, number in (("train", 0), ("train", 1), ("none", 0)):
                    assert sidecars.read_finished(str(output), shard_of(new, number, split)) is None
            die(output)
        assert sorted(path.name for path in output.iterdir()) == [".beam_tfr", "notes.txt"]
        assert {path.name.split(".")[0] for path in (output / ".beam_tfr").iterdir()} == {"lock", "plan"}
        if not killed:
            break
    assert 6 < step < 99


def test_another_run_that_holds_the_folder_keeps_its_files(others: list[Other], tmp_path: Path) -> None:
    plan = begin(tmp_path)
    finish_shard(tmp_path, plan)
    die(tmp_path)
    others[0].ask(tmp_path, "other")
    assert others[0].answer() == "holds"
    before = files_of(tmp_path)
    for overwrite in (False, True):
        with pytest.raises(RunError, match="another run holds"):
            begin(tmp_path, overwrite=overwrite, run_id="second")
    assert files_of(tmp_path) == before


def test_an_edited_manifest_is_refused_and_overwritten(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"format_version": 1}')
    with pytest.raises(UsageError, match=r"is missing; copy the dataset again, or convert it again with "):
        begin(tmp_path)
    assert begin(tmp_path, overwrite=True) == make_plan()
    assert not (tmp_path / "manifest.json").exists()


def test_differences_are_shown_in_short_lines() -> None:
    lines = diff.describe({"a": 1, "b": {"c": [1, 2], "d": 0}, "e": "x" * 99}, {"a": 1, "b": {"c": [1], "d": 0}})
    assert lines == f"\n  b.c: 1,2 there, 1 now\n  e: {'x' * 57}... there, None now"
    assert diff.describe({"a": {"b": 1}}, {"a": None}) == "\n  a: {'b': 1} there, None now"
    assert diff.describe({"a": [1]}, {"a": [1]}) == ""


def test_progress_counts_committed_shards(tmp_path: Path) -> None:
    assert claim.read_progress(str(tmp_path)) is None
    plan = begin(tmp_path)
    total = sum(of.num_shards for of in plan.splits.values())
    assert claim.read_progress(str(tmp_path)) == (0, total, 0, plan.matched)
    finish_shard(tmp_path, plan)
    images = plan.splits["train"].matched // plan.splits["train"].num_shards
    assert claim.read_progress(str(tmp_path)) == (1, total, images, plan.matched)
