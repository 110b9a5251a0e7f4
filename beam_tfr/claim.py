"""Who may write into an output folder: its lock, and the plan that all its files belong to.

    OUT/.beam_tfr/lock         the run that holds the folder, and its heartbeat
    OUT/.beam_tfr/plan.json    what it writes; the same plan goes on with what an earlier run finished
    OUT/.beam_tfr/SHARD.json   the sidecar of a finished shard

The folder `.beam_tfr` goes after the manifest is written.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from beam_tfr import manifest, storage
from beam_tfr.schema import (
    FORMAT_VERSION,
    LABELS_FILE,
    MANIFEST_FILE,
    REJECTS_FILE,
    WORK_FOLDER,
    DataError,
    Plan,
    RunError,
    ShardInfo,
    UsageError,
    canonical_json,
    sha256_hex,
)

LOCK_FILE = "lock"
PLAN_FILE = "plan.json"
HEARTBEAT_S = 10.0
DEAD_AFTER_S = 60.0  # without a heartbeat, where it cannot be asked whether the process lives
_SHARD_FILE = re.compile(r"([A-Za-z0-9_]+)-[A-Za-z0-9_]+-[0-9]{5,}-of-[0-9]{5,}\.tfrecord(\.gz)?")


def work_path(output: str, name: str) -> str:
    return storage.join(storage.join(output, WORK_FOLDER), name)


# The lock


def _process_start(pid: int) -> str:
    """When a process of this machine began, in ticks since the machine did; empty where that cannot be known."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def _machine() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return f"{socket.gethostname()}/{file.read().strip()}"
    except OSError:
        return socket.gethostname()


def _holder_lives(lock: Mapping[str, Any]) -> bool:
    if lock.get("machine") == _machine():
        pid = int(lock.get("pid", 0))
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass
        return bool(_process_start(pid) == lock.get("process_start"))
    return time.time() - float(lock.get("heartbeat", 0)) < DEAD_AFTER_S


def _read_lock(output: str) -> dict[str, Any] | None:
    try:
        lock = json.loads(storage.read_bytes(work_path(output, LOCK_FILE), max_bytes=1 << 16))
    except FileNotFoundError:
        return None
    except ValueError:  # not ours, or cut by a power loss: nobody's
        return {}
    return lock if isinstance(lock, dict) else {}


def _write_lock(output: str, lock: Mapping[str, Any], *, replace: bool) -> None:
    storage.write_bytes(
        work_path(output, LOCK_FILE), canonical_json(lock), scratch=work_path(output, ""), replace=replace
    )


def acquire(output: str, run_id: str) -> None:
    """Takes the folder for this run; does nothing when it holds it already.

    Raises:
        UsageError: the folder cannot be made or written to.
        RunError: another run, which lives, holds it.
    """
    try:
        storage.make_folder(work_path(output, ""))
        held = _read_lock(output)
        if held is not None and held.get("run_id") == run_id:
            return
        if held is not None:
            if held and _holder_lives(held):
                since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(float(held.get("started", 0))))
                raise RunError(
                    f"another run holds {output}: process {held.get('pid')} on "
                    f"{str(held.get('machine')).split('/')[0]}, since {since}. Wait for it, or stop it and call again"
                )
            storage.delete(work_path(output, LOCK_FILE))
        now = time.time()
        lock = {
            "run_id": run_id,
            "machine": _machine(),
            "pid": os.getpid(),
            "process_start": _process_start(os.getpid()),
            "started": now,
            "heartbeat": now,
        }
        _write_lock(output, lock, replace=False)
    except storage.AlreadyExistsError:
        raise RunError(f"another run has just taken {output}; wait for it, or stop it and call again") from None
    except OSError as error:
        raise UsageError(
            f"--output {output}: cannot be written to: {error.strerror or error}; name a folder that you may write to"
        ) from error


def check_held(output: str, run_id: str) -> None:
    """
    Raises:
        RunError: the folder was taken over by another run.
    """
    held = _read_lock(output)
    if held is None or held.get("run_id") != run_id:
        raise RunError(f"{output} was taken over by another run; this one stops")


def release(output: str, run_id: str) -> None:
    """Gives the folder back; what is finished stays for the next run of the same plan."""
    with contextlib.suppress(OSError):
        held = _read_lock(output)
        if held is not None and held.get("run_id") == run_id:
            storage.delete(work_path(output, LOCK_FILE))
            if not storage.is_gcs(output):
                os.rmdir(work_path(output, ""))  # only when nothing was begun: else it is not empty


@contextlib.contextmanager
def held(output: str, run_id: str) -> Iterator[None]:
    """Holds the folder, with a heartbeat, as long as the block runs. Raises what `acquire` does."""
    made = not storage.is_gcs(output) and not os.path.isdir(output)
    acquire(output, run_id)
    stopped = threading.Event()

    def beat() -> None:
        while not stopped.wait(HEARTBEAT_S):
            with contextlib.suppress(OSError):
                lock = _read_lock(output)
                if lock is None or lock.get("run_id") != run_id:
                    return
                _write_lock(output, {**lock, "heartbeat": time.time()}, replace=True)

    thread = threading.Thread(target=beat, name="beam_tfr-heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()
        release(output, run_id)
        if made:
            with contextlib.suppress(OSError):
                os.rmdir(output)  # only when nothing is in it


# The plan


def _plan_bytes(plan: Plan) -> bytes:
    fields = dataclasses.asdict(plan)
    del fields["complete"]
    return canonical_json({"format_version": FORMAT_VERSION, "digest": plan.digest, "plan": fields})


def _read_plan(output: str) -> dict[str, Any] | None:
    """The plan in the folder as JSON, or None where there is none that can be read."""
    try:
        found = json.loads(storage.read_bytes(work_path(output, PLAN_FILE)))
    except (FileNotFoundError, ValueError):
        return None
    return found["plan"] if isinstance(found, dict) and isinstance(found.get("plan"), dict) else None


def _read_manifest(output: str) -> manifest.Manifest | None:
    if storage.size_bytes(storage.join(output, MANIFEST_FILE)) is None:
        return None
    return manifest.read(output)


def claim(output: str, plan: Plan, *, run_id: str, overwrite: bool) -> Plan:
    """Makes the folder this plan's: refuses another dataset in it, or, with `overwrite`, removes it first.

    Returns:
        The plan; `complete` when its dataset is there already.

    Raises:
        UsageError: the folder holds another dataset, one begun with another plan, or shard files of no known dataset.
        RunError: another run holds the folder.
    """
    acquire(output, run_id)
    cure = "Choose another --output, or give --overwrite to replace it"
    try:
        there = _read_manifest(output)
    except DataError as error:
        if not overwrite:
            raise UsageError(f"--output {output}: {error}. {cure}") from None
        there = None
    if there is not None and not overwrite:
        now = {"name": plan.name, "options": plan.options, "input_digest": plan.input_digest}
        differences = describe_difference({key: there.fields[key] for key in now}, now)
        if differences:
            raise UsageError(_refusal(output, "a dataset", differences, cure))
        return dataclasses.replace(plan, complete=True)
    begun = _read_plan(output)
    if begun is not None and not overwrite:
        fields = json.loads(_plan_bytes(plan))["plan"]
        if differences := describe_difference(begun, fields):
            raise UsageError(_refusal(output, "the beginning of a dataset", differences, cure))
        _remove_unfinished(output)
        return plan
    if overwrite:
        _remove_dataset(output)
    elif strays := _shard_files(output):
        raise UsageError(
            f"--output {output} holds {len(strays)} shard files of an unknown dataset (such as {strays[0]}). {cure}"
        )
    storage.write_bytes(work_path(output, PLAN_FILE), _plan_bytes(plan), scratch=work_path(output, ""))
    return plan


def _refusal(output: str, what: str, differences: Sequence[str], cure: str) -> str:
    shown = "".join(f"\n  {line}" for line in differences[:10])
    more = f"\n  and {len(differences) - 10} more" if len(differences) > 10 else ""
    return f"--output {output} holds {what} of other input or options:{shown}{more}\n{cure}"


def _shard_files(output: str) -> list[str]:
    return [name for name in storage.list_folder(output) if _SHARD_FILE.fullmatch(name)]


def _remove_unfinished(output: str) -> None:
    """Files that a dead run left half-written; the lock says that no living one writes here."""
    for name in storage.list_folder(work_path(output, "")):
        if name.startswith(".tmp-"):
            storage.delete(work_path(output, name))


def _remove_dataset(output: str) -> None:
    """The manifest first: from then on the folder is no dataset, so never a mixture of two."""
    storage.delete(storage.join(output, MANIFEST_FILE))
    for name in [*_shard_files(output), LABELS_FILE, REJECTS_FILE]:
        storage.delete(storage.join(output, name))
    for name in storage.list_folder(work_path(output, "")):
        if name != LOCK_FILE:
            storage.delete(work_path(output, name))


def finish(output: str) -> None:
    """Removes the work folder of a complete dataset; what cannot be removed is harmless beside a manifest."""
    with contextlib.suppress(OSError):
        storage.delete_folder(work_path(output, ""))


def read_finished(output: str, shard_name: str) -> ShardInfo | None:
    """The books of a shard that an earlier run of the same plan finished, if its file is still what it wrote."""
    sidecar = read_sidecar(output, shard_name)
    if sidecar is None:
        return None
    info = sidecar[0]
    if info.file:
        try:
            with storage.open_binary(storage.join(output, info.file)) as file:
                if storage.file_sha256(file) != info.sha256:
                    return None
        except OSError:
            return None
    return info


# Sidecars: one JSON line with the books of the shard, its reject lines, one line with the checksum of those before it.


def write_sidecar(output: str, info: ShardInfo, reject_lines: Sequence[str]) -> None:
    body = "\n".join([info.to_json(), *reject_lines]) + "\n"
    data = body.encode() + sha256_hex(body.encode()).encode() + b"\n"
    storage.write_bytes(_sidecar(output, info.shard.name), data, scratch=work_path(output, ""))


def _sidecar(output: str, shard_name: str) -> str:
    return work_path(output, f"{shard_name}.json")


def read_sidecar(output: str, shard_name: str) -> tuple[ShardInfo, list[bytes]] | None:
    """The books of a shard and its reject lines; None where there is no sound sidecar."""
    try:
        data = storage.read_bytes(_sidecar(output, shard_name))
    except FileNotFoundError:
        return None
    body, _, checksum = data.removesuffix(b"\n").rpartition(b"\n")
    body += b"\n"
    if sha256_hex(body).encode() != checksum:
        return None
    first, *lines = body.splitlines(keepends=True)
    return ShardInfo.from_json(first), lines


def read_rejects(output: str, shard_name: str) -> Iterator[bytes]:
    """The reject lines of a finished shard.

    Raises:
        RunError: its sidecar is gone or damaged.
    """
    sidecar = read_sidecar(output, shard_name)
    if sidecar is None:
        raise RunError(
            f"the sidecar of shard {shard_name} in {work_path(output, '')} is gone: another program removed it"
        )
    yield from sidecar[1]


def describe_difference(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> list[str]:
    """What differs between two plans (or options) as JSON objects, a line each, for a person."""
    lines: list[str] = []
    for name in sorted(old.keys() | new.keys()):
        before, after = old.get(name), new.get(name)
        if before == after:
            continue
        if isinstance(before, dict) and isinstance(after, dict):
            lines += describe_difference(before, after, f"{prefix}{name}.")
        else:
            lines.append(f"{prefix}{name}: {_short(before)} there, {_short(after)} now")
    return lines


def _short(value: Any) -> str:
    text = ",".join(map(str, value)) if isinstance(value, Sequence) and not isinstance(value, str) else str(value)
    return text if len(text) <= 60 else text[:57] + "..."
