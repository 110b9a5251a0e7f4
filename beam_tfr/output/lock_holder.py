"""Finds out which process or job holds a lock, whether it is alive, and how to take over."""

import contextlib
import dataclasses
import os
import socket
import time
from collections.abc import Callable
from typing import Self

from beam_tfr import storage
from beam_tfr.schema.dataset import canonical_json, json_digest
from beam_tfr.schema.untrusted import parse_json

DEAD_AFTER_S = 60.0  # without a heartbeat, for a process on another machine
# After that, the heartbeat is watched, since the clock of one of the machines may be wrong.
WATCHED_S = 30.0
MOST_LOCK_BYTES = 1 << 16  # 64 KiB
_MOST_CHARACTERS = 1000
_LAST_S = 1e11  # seconds since 1970, in the year 5138
JOB = "job "  # prefix of the machine in a lock that was left to a job
_ENDED = ("DONE", "FAILED", "CANCELLED", "UPDATED", "DRAINED", "STOPPED")

# Job id -> the state that the service reports, such as "RUNNING"; empty if unknown.
JobState = Callable[[str], str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lock:
    """The content of a lock file: the holder of a folder.

    Attributes:
        run_id: id of the run.
        machine: machine of the process (see `this_machine`), or `JOB` and the id of the job.
        pid: id of the process.
        process_start: when the process started (see `read_process_start`).
        started: when the run locked the folder, in seconds since 1970.
    """

    run_id: str
    machine: str
    pid: int
    process_start: str
    started: float

    @property
    def job(self) -> str:
        """The id of the job that holds the folder; an empty string if a process holds it."""
        return self.machine.removeprefix(JOB) if self.machine.startswith(JOB) else ""

    def to_json(self) -> bytes:
        fields = dataclasses.asdict(self)
        return canonical_json({**fields, "digest": json_digest(fields)})

    @classmethod
    def from_json(cls, data: bytes) -> Self | None:
        """Parses the content of a lock file; None if a power failure, for example, damaged it."""
        try:
            fields = parse_json(data)
            digest = fields.pop("digest")
            lock = cls(**fields)
        except (ValueError, LookupError, TypeError, AttributeError):
            return None
        return lock if digest == json_digest(fields) and lock._is_plausible() else None

    def _is_plausible(self) -> bool:
        """Whether a run can have written the lock; the folder may come from a stranger."""
        for text in (self.run_id, self.machine, self.process_start):
            if not isinstance(text, str) or len(text) > _MOST_CHARACTERS:
                return False
        if not isinstance(self.started, int | float) or not 0 <= self.started < _LAST_S:
            return False
        return isinstance(self.pid, int) and 0 < self.pid < 1 << 31


def make_lock(run_id: str, job: str = "") -> Lock:
    """Creates the lock for a run in this process, or for a job that this process works for."""
    pid = os.getpid()
    return Lock(
        run_id=run_id,
        machine=f"{JOB}{job}" if job else this_machine(),
        pid=pid,
        process_start=read_process_start(pid),
        started=time.time(),
    )


def this_machine() -> str:
    """Returns a name for this machine; on Linux, it includes the boot and the process namespace."""
    with (
        contextlib.suppress(OSError),
        open("/proc/sys/kernel/random/boot_id", encoding="utf-8") as file,
    ):
        boot = file.read().strip()
        namespace = os.readlink("/proc/self/ns/pid")
        return f"{socket.gethostname()}/{boot}/{namespace}"
    return socket.gethostname()


def read_process_start(pid: int) -> str:
    """Reads when a process on this machine started, in ticks since boot.

    Returns an empty string if the time is unknown, or the process is a zombie.
    """
    path = f"/proc/{pid}/stat"
    with (
        contextlib.suppress(OSError, IndexError),
        open(path, encoding="utf-8", errors="replace") as file,
    ):
        # The list begins with the state, which is the third field of the file.
        fields = file.read().rpartition(")")[2].split()
        return "" if fields[0] in "ZX" else fields[19]
    return ""


def holder_lives(lock: Lock, path: str, job_state: JobState) -> bool:
    """Whether the holder of a lock is alive.

    Args:
        lock: the lock.
        path: path of the lock's file.
        job_state: function that asks the service for the state of a job.
    """
    if lock.job:
        return job_state(lock.job) not in _ENDED
    if lock.machine == this_machine():
        return _process_lives(lock)
    with contextlib.suppress(FileNotFoundError):
        return abs(_silence_s(path)) < DEAD_AFTER_S or _beats_again(path)
    return False


def _process_lives(lock: Lock) -> bool:
    """Whether a lock's process is alive on this machine, and not another process with its id."""
    try:
        with contextlib.suppress(PermissionError):  # the process belongs to another user
            os.kill(lock.pid, 0)
    except ProcessLookupError:
        return False
    return read_process_start(lock.pid) == lock.process_start


def _silence_s(path: str) -> float:
    """Returns the seconds since the last heartbeat; the number may be negative if clocks differ."""
    return time.time() - storage.modified(path)


def _beats_again(path: str) -> bool:
    """Watches a lock whose last heartbeat seems old; returns True if another heartbeat follows."""
    before = storage.modified(path)
    end = time.monotonic() + WATCHED_S
    while time.monotonic() < end:
        time.sleep(1.0)
        if storage.modified(path) != before:
            return True
    return False


def describe_holder(lock: Lock, path: str, job_state: JobState) -> str:
    """Describes the holder of a lock, which is alive, and how to take over.

    Args:
        lock, path, job_state: as in `holder_lives`.
    """
    since = time.strftime("since %Y-%m-%d %H:%M:%S", time.localtime(lock.started))
    if lock.job:
        return _describe_job(lock.job, since, path, job_state(lock.job))
    machine = lock.machine.partition("/")[0]
    process = f"process {lock.pid} on {machine}, {since}. Wait for it"
    if lock.machine == this_machine():
        return f"{process}, or stop it (kill {lock.pid}) and try again"
    silence_s = max(0, _silence_s(path))
    return (
        f"{process}, or stop it there and try again. "
        f"Its last heartbeat was {silence_s:.0f} s ago. After {DEAD_AFTER_S:.0f} s "
        f"without one, the next run waits {WATCHED_S:.0f} s for another and then takes over. "
        f"To take over at once, delete {path}"
    )


def _describe_job(job: str, since: str, path: str, state: str) -> str:
    if state:
        return (
            f"job {job} ({state.lower().replace('_', ' ')}), {since}. "
            "Wait for it, or cancel it and try again"
        )
    return (
        f"job {job}, {since}. Wait for it, or cancel it and try again. Dataflow does not report "
        f"that the job has ended; if it has, delete {path}"
    )
