"""The plan that all files of an output folder belong to, and what is finished of it.

    OUT/.beam_tfr/lock.N       the run that holds the folder: see `lock`
    OUT/.beam_tfr/plan.json    what it writes; the same plan goes on with what an earlier run finished
    OUT/.beam_tfr/SHARD.json   the sidecar of a finished shard

The folder `.beam_tfr` goes after the manifest is written.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from typing import Any, NamedTuple

from beam_tfr import diff, lock, manifest, naming, sidecars, storage
from beam_tfr.lock import LOCK_FILE
from beam_tfr.schema import (
    FORMAT_VERSION,
    LABELS_FILE,
    MANIFEST_FILE,
    REJECTS_FILE,
    DataError,
    Plan,
    SplitPlan,
    UsageError,
    canonical_json,
)
from beam_tfr.storage import work_path

PLAN_FILE = "plan.json"


def _plan_bytes(plan: Plan, run_id: str) -> bytes:
    return canonical_json(
        {"format_version": FORMAT_VERSION, "digest": plan.digest, "run_id": run_id, "plan": plan.fields()}
    )


def _read_plan(output: str) -> dict[str, Any] | None:
    """What plan.json holds, or None where there is none that can be read."""
    try:
        found = json.loads(storage.read_bytes(work_path(output, PLAN_FILE)))
    except (FileNotFoundError, ValueError):
        return None
    return found if isinstance(found, dict) and isinstance(found.get("plan"), dict) else None


def claim(output: str, plan: Plan, *, run_id: str, overwrite: bool) -> Plan:
    """Makes the folder this plan's: refuses another dataset in it, or, with `overwrite`, removes it first.

    Returns:
        The plan; `complete` when its dataset is there already.

    Raises:
        UsageError: the folder holds another dataset, one begun with another plan, or shard files of no known dataset.
        DataError: its dataset is there, but a file of it is missing or has another size.
        RunError: another run holds the folder.
    """
    lock.acquire(output, run_id)
    cure = "Choose another --output, or give --overwrite to replace it"
    try:
        there = manifest.find(output)
    except DataError as error:
        if not overwrite:
            raise UsageError(f"--output {output}: {error}") from None
        there = None
    if there is not None and not overwrite:
        now = {"name": plan.name, "options": plan.options, "input_digest": plan.input_digest}
        if different := diff.describe({key: there.fields[key] for key in now}, now):
            raise UsageError(f"--output {output} holds a dataset of other input or options:{different}\n{cure}")
        manifest.check_shards(there, there.splits.values())
        return dataclasses.replace(plan, complete=True)
    begun = _read_plan(output)
    data = _plan_bytes(plan, run_id)
    if begun == json.loads(data):  # this step ran before: what came of it since may not be overwritten
        return plan
    if begun is not None and not overwrite:
        if different := diff.describe(begun["plan"], json.loads(data)["plan"]):
            raise UsageError(
                f"--output {output} holds the beginning of a dataset of other input or options:{different}\n{cure}"
            )
        _clear_work_folder(output, unfinished_only=True)
        return plan
    if overwrite:
        _remove_dataset(output)
    elif strays := _dataset_files(output):
        raise UsageError(
            f"--output {output} holds {len(strays)} files of an unknown dataset (such as {strays[0]}). {cure}"
        )
    _clear_work_folder(output)
    storage.write_bytes(work_path(output, PLAN_FILE), data, scratch=work_path(output, ""))
    return plan


def _dataset_files(output: str) -> list[str]:
    """What a conversion writes or replaces, but the manifest."""
    names = storage.list_folder(output)
    return [name for name in names if naming.parse_file_name(name) or name in (LABELS_FILE, REJECTS_FILE)]


def _clear_work_folder(output: str, *, unfinished_only: bool = False) -> None:
    """Removes what a dead run left half-written, or all but the lock; the lock says that no living one writes here."""
    for name in storage.list_folder(work_path(output, "")):
        if name.startswith(".tmp-") if unfinished_only else not LOCK_FILE.fullmatch(name):
            storage.delete(work_path(output, name))


def _remove_dataset(output: str) -> None:
    """The manifest first: from then on the folder is no dataset, so never a mixture of two."""
    storage.delete(storage.join(output, MANIFEST_FILE))
    for name in _dataset_files(output):
        storage.delete(storage.join(output, name))


class Progress(NamedTuple):
    """How far a plan is: committed shards, and their images, rejects included."""

    finished_shards: int
    num_shards: int
    finished_images: int
    matched: int


def read_progress(output: str) -> Progress | None:
    """What of the plan in the folder is finished; None where no plan is."""
    begun = _read_plan(output)
    if begun is None:
        return None
    splits = {name: SplitPlan(**fields) for name, fields in begun["plan"]["splits"].items()}
    found = [shard.split for shard in sidecars.find(output)]
    finished = {split: found.count(split) for split in splits}
    return Progress(
        sum(finished.values()),
        sum(of.num_shards for of in splits.values()),
        sum(of.matched * finished[split] // of.num_shards for split, of in splits.items()),  # they are even
        sum(of.matched for of in splits.values()),
    )


def finish(output: str) -> None:
    """Removes the work folder of a complete dataset; what cannot be removed is harmless beside a manifest."""
    with contextlib.suppress(OSError):
        storage.delete_folder(work_path(output, ""))
