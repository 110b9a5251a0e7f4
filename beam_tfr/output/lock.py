"""Locks output folders, so that only one run at a time writes to each.

`OUT/.beam_tfr/lock.N` names the run that holds the folder. Its modification time is the holder's
heartbeat, which the main process renews with one request. The lock of a Dataflow job has none: the
service is asked whether the job has ended, so a queued job holds its lock too. A run that takes
over a dead one creates the lock with the next number.
"""

import contextlib
import errno
import functools
import json
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from beam_tfr import storage
from beam_tfr.schema.dataset import WORK_FOLDER, canonical_json, json_digest
from beam_tfr.schema.errors import RunError, UsageError
from beam_tfr.storage import work_path

HEARTBEAT_S = 10.0
DEAD_AFTER_S = 60.0  # without a heartbeat, for a process on another machine
WATCHED_S = (
    30.0  # then its heartbeat is watched, since the clock of one of the machines may be wrong
)
JOB = "job "  # prefix of the machine in a lock that was left to a job
JobState = Callable[
    [str], str
]  # job id -> state that the service reports, such as "RUNNING"; empty if unknown
_ENDED = ("DONE", "FAILED", "CANCELLED", "UPDATED", "DRAINED", "STOPPED")
LOCK_FILE = re.compile(r"lock\.([0-9]+)")


def _process_start(pid: int) -> str:
    """When a process of this machine started, in ticks since boot; empty if unknown, and for a
    zombie."""
    path = f"/proc/{pid}/stat"
    with (
        contextlib.suppress(OSError, IndexError),
        open(path, encoding="utf-8", errors="replace") as file,
    ):
        fields = file.read().rpartition(")")[2].split()
        return "" if fields[0] in "ZX" else fields[19]
    return ""


def _machine() -> str:
    with (
        contextlib.suppress(OSError),
        open("/proc/sys/kernel/random/boot_id", encoding="utf-8") as file,
    ):
        return f"{socket.gethostname()}/{file.read().strip()}/{os.readlink('/proc/self/ns/pid')}"
    return socket.gethostname()


def _silence_s(path: str) -> float:
    """Seconds since the last heartbeat; negative if a clock is wrong."""
    return time.time() - storage.modified(path)


def _holder_lives(lock: Mapping[str, Any], path: str, job_state: JobState) -> bool:
    if not lock:
        return False
    if lock["machine"].startswith(JOB):
        return job_state(lock["machine"].removeprefix(JOB)) not in _ENDED
    if lock["machine"] == _machine():
        try:
            os.kill(lock["pid"], 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass
        return bool(_process_start(lock["pid"]) == lock["process_start"])
    with contextlib.suppress(FileNotFoundError):
        return abs(_silence_s(path)) < DEAD_AFTER_S or _beats(path)
    return False


def _beats(path: str) -> bool:
    """Watches a lock whose last heartbeat seems old: True if another one comes."""
    before = storage.modified(path)
    end = time.monotonic() + WATCHED_S
    while time.monotonic() < end:
        time.sleep(1.0)
        if storage.modified(path) != before:
            return True
    return False


def _described(lock: Mapping[str, Any], path: str, job_state: JobState) -> str:
    """Describes who holds a lock, and how to take over."""
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(lock["started"]))
    machine = lock["machine"].split("/")[0]
    if machine.startswith(JOB):
        cure = f"since {since}. Wait for it, or cancel it and call again"
        state = job_state(machine.removeprefix(JOB))
        if state:
            return f"{machine} ({state.lower().replace('_', ' ')}), {cure}"
        return (
            f"{machine}, {cure}. Dataflow does not say that it has ended; if it has, delete {path}"
        )
    here = lock["machine"] == _machine()
    stop = f"stop it (kill {lock['pid']})" if here else "stop it there"
    holder = (
        f"process {lock['pid']} on {machine}, since {since}. Wait for it, or {stop} and call again"
    )
    if here:
        return holder
    silent = f"Its last heartbeat was {max(0, _silence_s(path)):.0f} s ago; after {DEAD_AFTER_S:.0f} s without one"
    then = f"the next call watches it for {WATCHED_S:.0f} s and takes over. To take over at once, delete {path}"
    return f"{holder}. {silent}, {then}"


def _read_locks(output: str) -> dict[int, dict[str, Any]]:
    """Number -> lock, empty if its file is damaged."""
    locks = {}
    for name in storage.list_folder(work_path(output, ""), prefix="lock."):
        match = LOCK_FILE.fullmatch(name)
        if match:
            try:
                lock = json.loads(storage.read_bytes(work_path(output, name)))
                sound = lock.pop("digest") == json_digest(lock)
            except FileNotFoundError:
                continue
            except (
                ValueError,
                LookupError,
                TypeError,
                AttributeError,
            ):  # cut off by a power failure, say
                sound = False
            locks[int(match[1])] = lock if sound else {}  # held by nobody
    return locks


def _write_lock(output: str, number: int, lock: Mapping[str, Any], *, replace: bool) -> None:
    data = canonical_json({**lock, "digest": json_digest(lock)})
    storage.write_bytes(
        work_path(output, f"lock.{number}"), data, scratch=work_path(output, ""), replace=replace
    )


def _own_lock(output: str, run_id: str) -> tuple[int, dict[str, Any]] | None:
    """This run's lock and its number, unless another run has taken over."""
    number, lock = max(_read_locks(output).items(), default=(-1, {}), key=lambda item: item[0])
    return (number, lock) if lock.get("run_id") == run_id else None


def acquire_lock(
    output: str, run_id: str, *, job: str = "", job_state: JobState = lambda _: ""
) -> str:
    """Locks the folder for this run, unless it already holds it; returns the path of the lock.

    The lock of a dead holder is not removed, since the second of two runs that find it would remove
    the new lock of the first. Instead, both try to create the next lock, which only one can.

    Args:
        output: folder of the dataset.
        run_id: id of this run.
        job: the job that this process works for, which will hold the lock; empty for this process.
        job_state: function that asks the service for the state of the job that holds a lock.

    Raises:
        UsageError: the folder cannot be made or written to.
        RunError: another living run holds it, or the disk is full.
    """
    with _explained(output):
        return work_path(output, f"lock.{_acquire(output, run_id, job, job_state)}")


def check_lockable(output: str, *, job_state: JobState = lambda _: "") -> None:
    """Checks that a run could lock the folder, and writes nothing; raises what `acquire_lock` raises."""
    with _explained(output):
        _check_free(output, job_state)


@contextlib.contextmanager
def _explained(output: str) -> Iterator[None]:
    """Says why a folder cannot be locked."""
    try:
        yield
    except storage.AlreadyExistsError:
        message = f"another run has just started or ended in {output}; wait for it, or stop it and call again"
        raise RunError(message) from None
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise RunError(
                f"{error.strerror}; make room and call again", option="output", value=output
            ) from error
        message = (
            f"cannot be written to: {error.strerror or error}; give a folder that you may write to"
        )
        raise UsageError(message, option="output", value=output) from error


def _acquire(output: str, run_id: str, job: str, job_state: JobState) -> int:
    storage.make_folder(work_path(output, ""))
    own = _own_lock(output, run_id)
    if own:
        return own[0]
    locks = _check_free(output, job_state)
    lock = {
        "run_id": run_id,
        "machine": f"{JOB}{job}" if job else _machine(),
        "pid": os.getpid(),
        "process_start": _process_start(os.getpid()),
        "started": time.time(),
    }
    number = max(locks, default=-1) + 1
    if storage.is_gcs(
        output
    ):  # find out now whether a heartbeat, moving and deleting are permitted, not later
        trial, moved = (work_path(output, f"may-{verb}.{run_id}") for verb in ("move", "delete"))
        storage.write_bytes(trial, b"", scratch="", replace=False)
        try:
            storage.touch(trial)
            with contextlib.suppress(
                FileNotFoundError
            ):  # moved already, by a request whose answer was lost
                storage.move(trial, moved)
        finally:
            storage.delete(trial)
            storage.delete(moved)
    try:
        _write_lock(output, number, lock, replace=False)
    except FileNotFoundError:  # a run that has just ended removed the folder
        raise storage.AlreadyExistsError from None
    others = {other: held for other, held in _read_locks(output).items() if other != number}
    if _living(
        output,
        {other: held for other, held in others.items() if held != locks.get(other)},
        job_state,
    ):
        # it started after the first look
        storage.delete(work_path(output, f"lock.{number}"))
        raise storage.AlreadyExistsError
    for other in others:
        storage.delete(work_path(output, f"lock.{other}"))
    return number


def _check_free(output: str, job_state: JobState) -> dict[int, dict[str, Any]]:
    """The locks in a folder, whose holders are all dead.

    Raises:
        UsageError: the work folder is a link.
        RunError: a holder lives.
        OSError: the folder cannot be written to; on gs:// only `_acquire` finds out.
    """
    if storage.is_link(work_path(output, "").rstrip("/")):
        message = f"{WORK_FOLDER} in it is a link, and would be emptied; remove it"
        raise UsageError(message, option="output", value=output)
    locks = _read_locks(output)
    for number in _living(output, locks, job_state):
        described = _described(locks[number], work_path(output, f"lock.{number}"), job_state)
        raise RunError(f"another run holds {output}: {described}")
    if not storage.is_writable(output):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    return locks


def _living(output: str, locks: Mapping[int, Mapping[str, Any]], job_state: JobState) -> list[int]:
    """The numbers of the locks whose holders live."""
    paths = {number: work_path(output, f"lock.{number}") for number in locks}
    return [
        number for number, held in locks.items() if _holder_lives(held, paths[number], job_state)
    ]


def check_lock(output: str, run_id: str) -> None:
    """Checks that this run still holds the folder, with one request.

    Raises:
        RunError: another run took it over.
    """
    with contextlib.suppress(
        FileNotFoundError, ValueError, LookupError
    ):  # a run that takes over removes it first
        if (
            json.loads(storage.read_bytes(_find_lock_path(output, run_id)))["run_id"] == run_id
        ):  # its number may be used again
            return
    raise takeover_error(output)


def takeover_error(output: str) -> RunError:
    """The error of a run that has lost the folder."""
    return RunError(
        f"{output} was taken over by another run; this one stops, and publishes nothing"
    )


@functools.lru_cache(maxsize=16)
def _find_lock_path(output: str, run_id: str) -> str:
    """The path of the lock of a run."""
    own = _own_lock(output, run_id)
    if own:
        return work_path(output, f"lock.{own[0]}")
    raise takeover_error(output)


def release_lock(output: str, run_id: str) -> None:
    """Releases the folder; finished shards stay for the next run of the same plan."""
    with contextlib.suppress(OSError):
        own = _own_lock(output, run_id)
        if own:
            storage.delete(work_path(output, f"lock.{own[0]}"))
            storage.remove_folder(work_path(output, ""))  # unless something was begun


class HeldLock:
    """A lock that is held, with a heartbeat.

    Args:
        output: folder of the dataset.
        run_id: id of this run.
        path: path of the lock.
        say: called when the heartbeat fails.
    """

    def __init__(self, output: str, run_id: str, path: str, say: Callable[[str], object]) -> None:
        self._output = output
        self._run_id = run_id
        self._path = path
        self._say = say
        self._stopped = threading.Event()
        self.left = False
        self._thread = threading.Thread(
            target=self._keep_beating, name="beam_tfr-heartbeat", daemon=True
        )
        self._thread.start()

    def _keep_beating(self) -> None:
        failed = False
        while not self._stopped.wait(HEARTBEAT_S):
            try:
                storage.touch(self._path, deadline_s=HEARTBEAT_S)
                failed = False
            except FileNotFoundError:  # another run took over, or the dataset is complete
                return
            except OSError as error:
                if not failed:
                    then = f"after {DEAD_AFTER_S:.0f} s without one, another run may take over {self._output}"
                    self._say(f"this run cannot write its heartbeat: {error}; {then}")
                failed = True

    def leave(self, job: str) -> None:
        """Leaves the lock to a job, by its id, which holds it from then on until it ends."""
        self.left = True
        self._stopped.set()
        own = _own_lock(self._output, self._run_id)
        if own:
            _write_lock(self._output, own[0], {**own[1], "machine": f"{JOB}{job}"}, replace=True)

    def stop(self) -> None:
        """Ends the heartbeat."""
        self._stopped.set()
        self._thread.join()


@contextlib.contextmanager
def hold_lock(
    output: str,
    run_id: str,
    *,
    say: Callable[[str], object] = lambda _: None,
    job_state: JobState = lambda _: "",
) -> Iterator[HeldLock]:
    """Holds the folder within the block; see `acquire_lock` for arguments and errors, and `HeldLock` for
    `say`."""
    created = not storage.is_folder(output)  # on gs:// there is nothing to remove
    path = acquire_lock(output, run_id, job_state=job_state)
    hold = HeldLock(output, run_id, path, say)
    try:
        yield hold
    finally:
        hold.stop()
        if not hold.left:
            release_lock(output, run_id)
        if created:
            storage.remove_folder(output)
