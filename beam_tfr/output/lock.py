"""Locks output folders, so that only one run at a time writes to each.

`OUT/.beam_tfr/lock.N` names the run that holds the folder. The lock's modification time is the
holder's heartbeat, which the main process renews with one request. The lock of a Dataflow job has
no heartbeat: the service is asked whether the job has ended, so a queued job also keeps its lock. A
run that takes over from a dead run creates the lock with the next number.
"""

import contextlib
import dataclasses
import errno
import functools
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from beam_tfr import storage
from beam_tfr.output import lock_holder
from beam_tfr.output.lock_holder import DEAD_AFTER_S, JOB, JobState, Lock
from beam_tfr.schema.dataset import CONTENTS_FOLDER, SOURCES_FOLDER, WORK_FOLDER
from beam_tfr.schema.errors import RunError, UsageError
from beam_tfr.storage import work_path

HEARTBEAT_S = 10.0
LOCK_FILE = re.compile(r"lock\.([0-9]{1,18})")


class _LockFile(NamedTuple):
    path: str
    lock: Lock


def _lock_path(output: str, number: int) -> str:
    return work_path(output, f"lock.{number}")


def _read_locks(output: str) -> dict[int, Lock | None]:
    """Reads number -> lock; None stands for a damaged lock, which nobody holds."""
    locks = dict[int, Lock | None]()
    for name in storage.list_folder(work_path(output, ""), prefix="lock."):
        match = LOCK_FILE.fullmatch(name)
        if match is None:
            continue
        with contextlib.suppress(FileNotFoundError):
            locks[int(match[1])] = _read_lock(work_path(output, name))
    return locks


def _read_lock(path: str) -> Lock | None:
    """Reads a lock; returns None if the lock is damaged.

    Raises:
        OSError: the lock does not exist, or cannot be read.
    """
    return Lock.from_json(storage.read_bytes(path, max_bytes=lock_holder.MOST_LOCK_BYTES))


def _find_own_lock(output: str, run_id: str) -> _LockFile | None:
    """Finds the lock of a run; returns None if another run has taken over."""
    locks = _read_locks(output)
    number = max(locks, default=0)
    lock = locks.get(number)
    if lock is None or lock.run_id != run_id:
        return None
    return _LockFile(_lock_path(output, number), lock)


def acquire_lock(
    output: str, run_id: str, *, job: str = "", job_state: JobState = lambda _: ""
) -> str:
    """Locks the folder for this run, unless the run already holds it; returns the path of the lock.

    The lock of a dead holder is not removed: if two runs found it at the same time, the second run
    would remove the new lock of the first. Instead, both try to create the next lock, and only one
    of them can.

    Args:
        output: folder of the dataset.
        run_id: id of this run.
        job: id of the job that will hold the lock; an empty string if this process will hold it.
        job_state: function that asks the service for the state of a job that holds a lock.

    Raises:
        UsageError: the folder cannot be created or written to.
        RunError: another living run holds the folder, or the disk is full.
    """
    with _explain_failures(output):
        storage.make_folder(work_path(output, ""))
        own_lock = _find_own_lock(output, run_id)
        if own_lock is not None:
            return own_lock.path
        dead = _check_free(output, job_state)
        lock = lock_holder.make_lock(run_id, job)
        if storage.is_gcs(output):
            _check_permissions(output, run_id)
        number = max(dead, default=-1) + 1
        path = _lock_path(output, number)
        _create_lock(output, path, lock)
        others = _read_locks(output)
        others.pop(number, None)
        new = {other: others[other] for other in others if others[other] != dead.get(other)}
        if _find_living(output, new, job_state):  # another run started after the first check
            storage.delete(path)
            raise storage.AlreadyExistsError
        for other in others:
            storage.delete(_lock_path(output, other))
        return path


def check_lockable(output: str, *, job_state: JobState = lambda _: "") -> None:
    """Checks that a run could lock the folder, without writing anything.

    Raises:
        UsageError, RunError: as in `acquire_lock`.
    """
    with _explain_failures(output):
        _check_free(output, job_state)


@contextlib.contextmanager
def _explain_failures(output: str) -> Iterator[None]:
    """Turns errors that occur while locking into messages that say why this is impossible."""
    try:
        yield
    except storage.AlreadyExistsError:
        raise RunError(
            f"another run has just started or ended in {output}; "
            "wait for it, or stop it and try again"
        ) from None
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise RunError(f"{output}: {error.strerror}; free disk space and try again") from error
        raise UsageError(
            f"{output}: cannot be written to: {error.strerror or error}; choose a folder that you "
            "can write to"
        ) from error


def _check_free(output: str, job_state: JobState) -> dict[int, Lock | None]:
    """Returns the locks in a folder, and checks that all holders are dead.

    Raises:
        UsageError: a folder in the path of the locks is a link.
        RunError: a holder is alive.
        OSError: the folder cannot be written to; on gs://, only `_check_permissions` can tell.
    """
    for name in (WORK_FOLDER, SOURCES_FOLDER, CONTENTS_FOLDER):
        if storage.is_link(storage.join(output, name)):
            raise UsageError(
                f"{output}: contains a link, {name}, and files in its target would be replaced and "
                "removed; remove the link"
            )
    locks = _read_locks(output)
    living = _find_living(output, locks, job_state)
    if living:
        holder = lock_holder.describe_holder(living[0].lock, living[0].path, job_state)
        raise RunError(f"another run holds {output}: {holder}")
    if not storage.is_writable(output):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    return locks


def _find_living(
    output: str, locks: Mapping[int, Lock | None], job_state: JobState
) -> list[_LockFile]:
    """Returns the locks whose holders are alive."""
    living = list[_LockFile]()
    for number, lock in locks.items():
        path = _lock_path(output, number)
        if lock is not None and lock_holder.holder_lives(lock, path, job_state):
            living.append(_LockFile(path, lock))
    return living


def _check_permissions(output: str, run_id: str) -> None:
    """Checks early that a run has the permissions that it needs on gs://, such as to delete files.

    Raises:
        OSError: a permission is missing.
    """
    trial = work_path(output, f"may-move.{run_id}")
    moved = work_path(output, f"may-delete.{run_id}")
    storage.write_bytes(trial, b"", scratch="", replace=False)
    try:
        storage.touch(trial)
        # A missing file was already moved, by a request whose answer was lost.
        with contextlib.suppress(FileNotFoundError):
            storage.move(trial, moved)
    finally:
        storage.delete(trial)
        storage.delete(moved)


def _create_lock(output: str, path: str, lock: Lock) -> None:
    """Creates a lock.

    Raises:
        AlreadyExistsError: another run has just created this lock, or has ended and removed the
            folder.
    """
    try:
        scratch = work_path(output, "")
        storage.write_bytes(path, lock.to_json(), scratch=scratch, replace=False)
    except FileNotFoundError:
        raise storage.AlreadyExistsError from None


def check_lock(output: str, run_id: str) -> None:
    """Checks with one request that this run still holds the folder.

    Raises:
        RunError: another run has taken over the folder.
    """
    path = _find_lock_path(output, run_id)
    with contextlib.suppress(FileNotFoundError):  # a run that takes over removes it first
        lock = _read_lock(path)
        if lock is not None and lock.run_id == run_id:  # lock numbers may be reused
            return
    raise takeover_error(output)


def takeover_error(output: str) -> RunError:
    """Creates the exception for a run that has lost the folder."""
    if not _is_locked(output):
        return RunError(
            f"{output} was taken over by another run, which has ended, or somebody removed the "
            f"lock in {work_path(output, '')}; this run stops and publishes nothing"
        )
    return RunError(f"{output} was taken over by another run; this run stops and publishes nothing")


def _is_locked(output: str) -> bool:
    """Whether any run has a lock in a folder; False if the folder cannot be read."""
    with contextlib.suppress(OSError):
        return bool(_read_locks(output))
    return False


@functools.lru_cache(maxsize=16)
def _find_lock_path(output: str, run_id: str) -> str:
    """Finds the path of the lock of a run.

    Raises:
        RunError: another run has taken over.
    """
    own_lock = _find_own_lock(output, run_id)
    if own_lock is None:
        raise takeover_error(output)
    return own_lock.path


def release_lock(output: str, run_id: str) -> None:
    """Releases the folder; finished shards stay for the next run of the same plan."""
    with contextlib.suppress(OSError):
        own_lock = _find_own_lock(output, run_id)
        if own_lock is not None:
            storage.delete(own_lock.path)
            storage.remove_folder(work_path(output, ""))  # unless a dataset was begun


class HeldLock:
    """A lock that this process holds and keeps alive with a heartbeat.

    Args:
        output: folder of the dataset.
        run_id: id of the run.
        path: path of the lock.
        say: called with a message when the heartbeat fails.
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
                    self._say(
                        f"this run cannot write its heartbeat: {error}; after {DEAD_AFTER_S:.0f} s "
                        f"without one, another run may take over {self._output}"
                    )
                failed = True

    def leave_to_job(self, job: str) -> None:
        """Leaves the lock to the job with this id, which then holds the lock until it ends."""
        self.left = True
        self._stopped.set()
        own_lock = _find_own_lock(self._output, self._run_id)
        if own_lock is not None:
            lock = dataclasses.replace(own_lock.lock, machine=f"{JOB}{job}")
            scratch = work_path(self._output, "")
            storage.write_bytes(own_lock.path, lock.to_json(), scratch=scratch)

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
    """Holds the folder while the block runs.

    See `acquire_lock` for arguments and errors, and `HeldLock` for `say`.
    """
    created = not storage.is_folder(output)  # on gs:// there is nothing to remove
    path = acquire_lock(output, run_id, job_state=job_state)
    held_lock = HeldLock(output, run_id, path, say)
    try:
        yield held_lock
    finally:
        held_lock.stop()
        if not held_lock.left:
            release_lock(output, run_id)
        if created:
            storage.remove_folder(output)
