"""Who may write into a folder: real processes that race for it, die and take over."""

from __future__ import annotations

import json
import os
import random
import threading
import time
import uuid
from pathlib import Path
from typing import Any

import pytest

from beam_tfr.output import lock, lock_holder
from beam_tfr.schema.dataset import canonical_json, sha256_hex
from beam_tfr.schema.errors import RunError, UsageError
from tests import claims
from tests.conftest import wait_for
from tests.fake_gcs import FakeGcs
from tests.lock_fixtures import Other


def lock_of(output: Path) -> dict[str, object]:
    (file,) = (output / ".beam_tfr").glob("lock.*")
    return json.loads(file.read_text())


def write_lock(output: Path, number: int = 0, *, silent_s: float = 0.0, **fields: object) -> None:
    """A lock whose holder was last heard of so many seconds ago."""
    (output / ".beam_tfr").mkdir(parents=True, exist_ok=True)
    lock = {
        "run_id": "other",
        "machine": "elsewhere/boot/pid",
        "pid": 1,
        "process_start": "5",
        "started": time.time(),
    }
    path = output / ".beam_tfr" / f"lock.{number}"
    path.write_text(
        json.dumps({**lock, **fields, "digest": sha256_hex(canonical_json({**lock, **fields}))})
    )
    os.utime(path, (time.time() - silent_s,) * 2)


@pytest.fixture(autouse=True)
def _unwatched(monkeypatch: pytest.MonkeyPatch) -> None:
    """A silent lock is taken at once."""
    monkeypatch.setattr(lock_holder, "WATCHED_S", 0.0)


def test_a_living_holder_is_named_and_a_killed_one_replaced(
    others: list[Other], tmp_path: Path
) -> None:
    output = tmp_path / "out"
    holder = others[0]
    holder.ask(output, "one")
    assert holder.answer() == "holds"
    since = time.strftime("since %Y-%m-%d %H:%M:%S", time.localtime(lock_of(output)["started"]))
    with pytest.raises(
        RunError, match=f"another run holds {output}: process {holder.process.pid} on .*, {since}"
    ):
        lock.acquire_lock(str(output), "two")
    others[1].ask(output, "three")
    assert others[1].answer().startswith("RunError another run holds ")
    holder.ask(output, "one")  # the same run may ask again
    assert holder.answer() == "holds"
    holder.kill()  # its parent, this process, has not waited for it: a zombie
    lock.acquire_lock(str(output), "two")
    assert lock_of(output)["pid"] == os.getpid()
    lock.check_lock(str(output), "two")
    with pytest.raises(RunError, match="was taken over by another run"):
        lock.check_lock(str(output), "one")
    others[1].ask(output, "three")
    assert (
        others[1]
        .answer()
        .startswith(f"RunError another run holds {output}: process {os.getpid()} on ")
    )
    lock.release_lock(str(output), "two")
    assert not list((output).iterdir())
    others[1].ask(output, "three")
    assert others[1].answer() == "holds"


def test_a_lock_that_somebody_removed_is_told(tmp_path: Path) -> None:
    lock.acquire_lock(str(tmp_path), "mine")
    lock.check_lock(str(tmp_path), "mine")
    (tmp_path / ".beam_tfr/lock.0").unlink()
    with pytest.raises(RunError, match=rf"somebody removed the lock in {tmp_path}/\.beam_tfr"):
        lock.check_lock(str(tmp_path), "mine")
    lock.acquire_lock(str(tmp_path), "other")
    with pytest.raises(RunError, match=r"was taken over by another run; this run stops"):
        lock.check_lock(str(tmp_path), "mine")


BEFORE: list[list[dict[str, object]]] = [
    [],
    [{"silent_s": 1e6}],
    [{"number": number, "silent_s": 1e6, "run_id": str(number)} for number in (0, 1, 7)],
]


@pytest.mark.parametrize("locks", BEFORE, ids=["nothing", "a dead lock", "several dead locks"])
def test_exactly_one_of_racing_processes_wins(
    others: list[Other], tmp_path: Path, locks: list[dict[str, Any]]
) -> None:
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
    write_lock(tmp_path, silent_s=20)
    with pytest.raises(RunError, match=r"another run holds .*: process 1 on elsewhere, since "):
        lock.acquire_lock(str(tmp_path), "mine")
    write_lock(tmp_path, silent_s=61)
    lock.acquire_lock(str(tmp_path), "mine")
    assert lock_of(tmp_path)["run_id"] == "mine"


def test_a_heartbeat_far_in_the_future_is_of_a_wrong_clock_and_holds_nothing(
    tmp_path: Path,
) -> None:
    write_lock(tmp_path, silent_s=-40)
    with pytest.raises(RunError, match="another run holds"):
        lock.acquire_lock(str(tmp_path), "mine")
    write_lock(tmp_path, silent_s=-3600)
    lock.acquire_lock(str(tmp_path), "mine")
    assert lock_of(tmp_path)["run_id"] == "mine"


@pytest.mark.parametrize("silent_s", [90, -3600])
def test_a_living_holder_whose_clock_is_wrong_keeps_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, silent_s: float
) -> None:
    monkeypatch.setattr(lock_holder, "WATCHED_S", 60.0)
    write_lock(tmp_path, silent_s=silent_s)
    path, ended = tmp_path / ".beam_tfr" / "lock.0", threading.Event()

    def beat() -> None:
        while not ended.wait(0.5):
            os.utime(path, (time.time() - silent_s,) * 2)

    thread = threading.Thread(target=beat)
    thread.start()
    try:
        with pytest.raises(RunError, match="another run holds"):
            lock.acquire_lock(str(tmp_path), "mine")
    finally:
        ended.set()
        thread.join()
    monkeypatch.setattr(lock_holder, "WATCHED_S", 1.0)  # now it is silent
    lock.acquire_lock(str(tmp_path), "mine")
    assert lock_of(tmp_path)["run_id"] == "mine"


@pytest.mark.parametrize(
    ("machine", "told"),
    [
        (lock_holder.this_machine(), r"Wait for it, or stop it \(kill 1\) and try again$"),
        (
            "elsewhere/boot/pid",
            "or stop it there and try again. Its last heartbeat was 20 s ago. After 60 s without ",
        ),
        (
            f"{lock_holder.JOB}2026-11",
            (
                "job 2026-11, since .*or cancel it and try again. Dataflow does not report that "
                "the job has e"
            ),
        ),
    ],
)
def test_who_holds_a_folder_is_told_with_how_to_take_over(
    tmp_path: Path, machine: str, told: str
) -> None:
    write_lock(
        tmp_path, 3, machine=machine, process_start=lock_holder.read_process_start(1), silent_s=20
    )
    with pytest.raises(RunError, match=told) as error:
        lock.acquire_lock(str(tmp_path), "mine")
    path = tmp_path / ".beam_tfr" / "lock.3"
    assert str(error.value).endswith(f" delete {path}") == (machine != lock_holder.this_machine())
    if machine != lock_holder.this_machine():
        path.unlink()
        lock.acquire_lock(str(tmp_path), "mine")


def test_a_reused_process_id_is_not_the_holder(tmp_path: Path) -> None:
    mine = {"machine": lock_holder.this_machine(), "pid": os.getpid()}
    write_lock(tmp_path, **mine, process_start="1")
    lock.acquire_lock(str(tmp_path), "mine")
    write_lock(
        tmp_path,
        1,
        **mine,
        process_start=lock_holder.read_process_start(os.getpid()),
        run_id="same process",
    )
    with pytest.raises(RunError, match="another run holds"):
        lock.acquire_lock(str(tmp_path), "mine too")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        bytes(4096),
        b'{"run_id":"x","machine":"m","pi',
        b"[]",
        b"[" * 50_000,
        b'{"run_id":"x"}',
        b'{"digest":"","machine":"elsewhere/boot/pid","pid":1,"process_start":"5","run_id":"x","started":1e10}',
    ],
)
def test_a_damaged_lock_is_held_by_nobody(tmp_path: Path, content: bytes) -> None:
    (tmp_path / ".beam_tfr").mkdir()
    (tmp_path / ".beam_tfr" / "lock.0").write_bytes(content)
    lock.acquire_lock(str(tmp_path), "mine")
    assert lock_of(tmp_path)["run_id"] == "mine"


@pytest.mark.parametrize(
    "wrong",
    [
        {"pid": -1},  # which `kill` takes for all processes
        {"pid": 0},
        {"pid": "7"},
        {"pid": 1 << 70},
        {"machine": 5},
        {"machine": "m" * 2000},
        {"process_start": None},
        {"started": 1e300},
        {"started": "now"},
        {"run_id": []},
    ],
)
def test_a_lock_that_no_run_writes_is_held_by_nobody(
    wrong: dict[str, object], tmp_path: Path
) -> None:
    """As in a folder that was copied from a stranger."""
    write_lock(tmp_path, machine=lock_holder.this_machine(), process_start="")
    write_lock(tmp_path, **{"machine": lock_holder.this_machine(), **wrong})
    lock.acquire_lock(str(tmp_path), "mine")
    assert lock._find_own_lock(str(tmp_path), "mine")


@pytest.mark.parametrize("name", ["plan.json", "switch.json"])
def test_files_of_a_run_that_nest_deeply_are_damaged(name: str, tmp_path: Path) -> None:
    plan = claims.begin(tmp_path)
    path = tmp_path / ".beam_tfr" / name
    path.write_text("[" * 200_000)
    assert claims.begin(tmp_path, overwrite=True) == plan


def test_heartbeats_stop_when_another_run_takes_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "HEARTBEAT_S", 0.02)
    output = tmp_path / "deep" / "out"
    with lock.hold_lock(str(output), "mine"):
        path = output / ".beam_tfr" / "lock.0"
        first = path.stat().st_mtime_ns
        wait_for(lambda: path.stat().st_mtime_ns > first)
        write_lock(output, 1, run_id="thief", silent_s=30)
        path.unlink()
        wait_for(
            lambda: "beam_tfr-heartbeat" not in {thread.name for thread in threading.enumerate()}
        )
        assert not path.exists()
        with pytest.raises(RunError, match="was taken over"):
            lock.check_lock(str(output), "mine")
    assert time.time() - (output / ".beam_tfr" / "lock.1").stat().st_mtime > 29


def test_a_lock_left_to_a_job_is_held_until_the_service_says_that_it_has_ended(
    tmp_path: Path,
) -> None:
    with lock.hold_lock(str(tmp_path), "mine") as held_lock:
        held_lock.leave_to_job("2026-11")
    # it may wait for hours before it begins
    os.utime(tmp_path / ".beam_tfr" / "lock.0", (1.0, 1.0))
    with pytest.raises(RunError, match=r"job 2026-11, since .*; if it has, delete .*lock\.0$"):
        lock.acquire_lock(str(tmp_path), "next")
    lock.acquire_lock(
        str(tmp_path),
        "next",
        job="2026-12",
        job_state=lambda job: "DONE" if job == "2026-11" else "",
    )
    assert lock_of(tmp_path)["machine"] == "job 2026-12"
    lock.acquire_lock(str(tmp_path), "next")  # its own
    with pytest.raises(
        RunError, match=r"job 2026-12 \(queued\), since .*or cancel it and try again$"
    ):
        lock.acquire_lock(
            str(tmp_path), "third", job_state=lambda job: "QUEUED" if job == "2026-12" else ""
        )


def test_a_heartbeat_is_one_request_whatever_lies_in_the_folder(
    fake: FakeGcs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "HEARTBEAT_S", 1)  # also what a heartbeat may take
    log, beats = list[dict[str, str]](), list[dict[str, str]]()
    fake.put_many([f"out/.beam_tfr/train-{number:05}-of-10000.json" for number in range(10_000)])
    with lock.hold_lock("gs://b/out", "mine"):
        wait_for(lambda: any(r["method"] == "PATCH" for r in log.extend(fake.take_log()) or log))
        assert {r["prefix"] for r in log if "prefix" in r} == {"out/.beam_tfr/lock."}
        wait_for(lambda: len(beats.extend(fake.take_log()) or beats) >= 2)
        assert {(beat["method"], beat["name"]) for beat in beats} == {
            ("PATCH", "out/.beam_tfr/lock.0")
        }
        monkeypatch.setattr(lock_holder, "this_machine", lambda: "elsewhere")
        with pytest.raises(RunError, match=r"Its last heartbeat was \d+ s ago"):
            lock.acquire_lock("gs://b/out", "other")


def test_a_heartbeat_that_fails_is_said_once(
    fake: FakeGcs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "HEARTBEAT_S", 0.02)
    said: list[str] = []
    with lock.hold_lock("gs://b/out", "mine", say=said.append):
        fake.set(denied=["PATCH"])
        sent: list[str] = []

        def has_failed_twice() -> bool:
            sent.extend(request["method"] for request in fake.take_log())
            return sent.count("PATCH") >= 2 and bool(said)

        wait_for(has_failed_twice)
        fake.set()
    assert len(said) == 1
    assert "this run cannot write its heartbeat: " in said[0]
    assert "needs storage.objects.update on gs://b" in said[0]
    assert said[0].endswith("; after 60 s without one, another run may take over gs://b/out")


def test_a_run_that_wrote_nothing_leaves_nothing(tmp_path: Path) -> None:
    output = tmp_path / "new"
    with pytest.raises(ValueError, match="mine"), lock.hold_lock(str(output), "one"):
        raise ValueError("mine")
    assert not output.exists()
    output.mkdir()
    with lock.hold_lock(str(output), "one"):
        pass
    assert list(tmp_path.iterdir()) == [output]
    assert not list(output.iterdir())
    (output / "notes.txt").write_text("mine")
    with lock.hold_lock(str(output), "one"):
        pass
    assert [path.name for path in output.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("output", ["/proc/nothing/here", "/dev/null/out"])
def test_a_folder_that_cannot_be_made(output: str) -> None:
    with pytest.raises(UsageError, match=f"{output}: cannot be written to: "):
        lock.acquire_lock(output, "mine")
