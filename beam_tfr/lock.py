"""Locks, so that only one run at a time writes to an output folder.

`OUT/.beam_tfr/lock.N` names the run that holds the folder, with its heartbeat. A run that takes over a dead one creates
the lock with the next number.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from beam_tfr import storage
from beam_tfr.schema import WORK_FOLDER, RunError, UsageError, canonical_json
from beam_tfr.storage import work_path

HEARTBEAT_S = 10.0
DEAD_AFTER_S = 60.0  # without a heartbeat, for a process on another machine
JOB = "job "  # prefix of the machine in a lock that was left to a job
LOCK_FILE = re.compile(r"lock\.([0-9]+)")


def _process_start(pid: int) -> str:
    """When a process of this machine started, in ticks since boot; empty if unknown, and for a zombie."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
        return "" if fields[0] in "ZX" else fields[19]
    except (OSError, IndexError):
        return ""


def _machine() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="utf-8") as file:
            return f"{socket.gethostname()}/{file.read().strip()}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return socket.gethostname()


def _holder_lives(lock: Mapping[str, Any]) -> bool:
    if not lock:
        return False
    if lock["machine"] == _machine():
        try:
            os.kill(lock["pid"], 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass
        return bool(_process_start(lock["pid"]) == lock["process_start"])
    return bool(abs(time.time() - lock["heartbeat"]) < DEAD_AFTER_S)  # in the future: a clock was wrong


def _described(lock: Mapping[str, Any], path: str) -> str:
    """Who holds a lock, and how to take over."""
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(lock["started"]))
    machine = lock["machine"].split("/")[0]
    is_job = machine.startswith(JOB)
    holder = machine if is_job else f"process {lock['pid']} on {machine}"
    here = lock["machine"] == _machine()
    stop = f"stop it (kill {lock['pid']})" if here else "cancel it" if is_job else "stop it there"
    told = f"{holder}, since {since}. Wait for it, or {stop} and call again"
    if here:
        return told
    silent = max(0, time.time() - lock["heartbeat"])
    return (
        f"{told}. It was last heard of {silent:.0f} s ago; after {DEAD_AFTER_S:.0f} s of silence the next call takes "
        f"over, and at once if you delete {path}"
    )


def _read_locks(output: str) -> dict[int, dict[str, Any]]:
    """Number -> lock, empty if its file is damaged."""
    locks = {}
    for name in storage.list_folder(work_path(output, "")):
        if match := LOCK_FILE.fullmatch(name):
            try:
                locks[int(match[1])] = json.loads(storage.read_bytes(work_path(output, name)))
            except FileNotFoundError:
                continue
            except ValueError:  # cut off by a power failure: held by nobody
                locks[int(match[1])] = {}
    return locks


def _write_lock(output: str, number: int, lock: Mapping[str, Any], *, replace: bool) -> None:
    scratch = work_path(output, "")
    storage.write_bytes(work_path(output, f"lock.{number}"), canonical_json(lock), scratch=scratch, replace=replace)


def _own_lock(output: str, run_id: str) -> tuple[int, dict[str, Any]] | None:
    """This run's lock and its number, unless another run has taken over."""
    number, lock = max(_read_locks(output).items(), default=(-1, {}), key=lambda item: item[0])
    return (number, lock) if lock.get("run_id") == run_id else None


def acquire(output: str, run_id: str) -> None:
    """Takes the folder for this run; does nothing if the run holds it already.

    The lock of a dead holder is not removed to make room, since the second of two runs that find it would remove the
    first one's. Instead both try to create the lock after it, which only one can.

    Raises:
        UsageError: the folder cannot be made or written to.
        RunError: another living run holds it, or the disk is full.
    """
    try:
        _acquire(output, run_id)
    except storage.AlreadyExistsError:
        raise RunError(f"another run has just taken or left {output}; wait for it, or stop it and call again") from None
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise RunError(f"{error.strerror}; make room and call again", option="output", value=output) from error
        message = f"cannot be written to: {error.strerror or error}; name a folder that you may write to"
        raise UsageError(message, option="output", value=output) from error


def _acquire(output: str, run_id: str) -> None:
    work_folder = work_path(output, "").rstrip("/")
    if not storage.is_gcs(output):
        os.makedirs(work_folder, exist_ok=True)
        if os.path.islink(work_folder):
            message = f"{WORK_FOLDER} in it is a link, and would be emptied; remove it"
            raise UsageError(message, option="output", value=output)
    if _own_lock(output, run_id) is not None:
        return
    locks = _read_locks(output)
    for number, held in locks.items():
        if _holder_lives(held):
            raise RunError(f"another run holds {output}: {_described(held, work_path(output, f'lock.{number}'))}")
    now = time.time()
    lock = {
        "run_id": run_id,
        "machine": _machine(),
        "pid": os.getpid(),
        "process_start": _process_start(os.getpid()),
        "started": now,
        "heartbeat": now,
    }
    number = max(locks, default=-1) + 1
    try:
        _write_lock(output, number, lock, replace=False)
    except FileNotFoundError:  # a run that has just ended removed the folder
        raise storage.AlreadyExistsError from None
    others = {other: held for other, held in _read_locks(output).items() if other != number}
    if any(map(_holder_lives, others.values())):  # it came after the first look
        storage.delete(work_path(output, f"lock.{number}"))
        raise storage.AlreadyExistsError
    for other in others:
        storage.delete(work_path(output, f"lock.{other}"))
    if storage.is_gcs(output):  # find out now whether deleting is permitted, not at the end
        storage.delete(work_path(output, f"may-delete.{run_id}"))


def check_held(output: str, run_id: str) -> None:
    """Checks that this run still holds the folder.

    Raises:
        RunError: another run took it over.
    """
    if _own_lock(output, run_id) is None:
        raise RunError(f"{output} was taken over by another run; this one stops")


def release(output: str, run_id: str) -> None:
    """Releases the folder; finished shards stay for the next run of the same plan."""
    with contextlib.suppress(OSError):
        if own := _own_lock(output, run_id):
            storage.delete(work_path(output, f"lock.{own[0]}"))
            if not storage.is_gcs(output):
                os.rmdir(work_path(output, ""))  # succeeds only if nothing was begun


def beat(output: str, run_id: str) -> None:
    """Renews the heartbeat of this run's lock, if it is old enough."""
    with contextlib.suppress(OSError, storage.AlreadyExistsError):
        if (own := _own_lock(output, run_id)) and abs(time.time() - own[1]["heartbeat"]) >= HEARTBEAT_S / 2:
            _write_lock(output, own[0], {**own[1], "heartbeat": time.time()}, replace=True)


@contextlib.contextmanager
def held(output: str, run_id: str) -> Iterator[Callable[[str], None]]:
    """Holds the folder, with a heartbeat, in the block; raises what `acquire` raises.

    Yields:
        A function that hands the lock to the workers of a job (by its id), whose heartbeats hold it from then on.
    """
    made = not storage.is_gcs(output) and not os.path.isdir(output)
    acquire(output, run_id)
    stopped, left = threading.Event(), threading.Event()

    def keep_beating() -> None:
        while not stopped.wait(HEARTBEAT_S):
            beat(output, run_id)

    def leave(job: str) -> None:
        left.set()
        if own := _own_lock(output, run_id):
            lock = {**own[1], "machine": f"{JOB}{job}", "heartbeat": time.time()}
            _write_lock(output, own[0], lock, replace=True)

    thread = threading.Thread(target=keep_beating, name="beam_tfr-heartbeat", daemon=True)
    thread.start()
    try:
        yield leave
    finally:
        stopped.set()
        thread.join()
        if not left.is_set():
            release(output, run_id)
        if made:
            with contextlib.suppress(OSError):
                os.rmdir(output)  # succeeds only if it is empty
