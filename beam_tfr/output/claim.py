"""Claims an output folder for one plan, and reports how much of it is finished.

    OUT/.beam_tfr/lock.N       the run that holds the folder: see `lock`
    OUT/.beam_tfr/plan.json    the plan being written; a run of the same recipe resumes where an
    earlier one stopped OUT/.beam_tfr/SHARD.json   a finished shard: see `sidecars`
    OUT/.beam_tfr/switch.json  puts the finished dataset in its place: see `switch`
    OUT/.beam_tfr/*.records-*, *.contents-*  files that are built: see `switch`
    OUT/.beam_tfr/*.attempts   attempts that crashed: see `attempts`

The folder `.beam_tfr` is removed once the manifest is written, unless another run builds a dataset
in it.
"""

import contextlib
import dataclasses
import json
import shlex
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from beam_tfr import storage
from beam_tfr.console.display import Progress
from beam_tfr.dataset.manifest import check_shard_files, find_manifest
from beam_tfr.output import lock, sidecars, switch
from beam_tfr.output.attempts import SAMPLE_MARK
from beam_tfr.output.lock import LOCK_FILE
from beam_tfr.output.switch import is_of_dataset, list_dataset, name_in_dataset
from beam_tfr.schema import differences
from beam_tfr.schema.dataset import CONTENTS_FOLDER, FORMAT_VERSION, MANIFEST_FILE, canonical_json
from beam_tfr.schema.errors import DataError, RunError, UsageError
from beam_tfr.schema.plan import Plan
from beam_tfr.storage import Entry, work_path

PLAN_FILE = "plan.json"
_CURE = "Choose another `output=`, or use `overwrite=` to replace it"


def _read_plan(output: str) -> dict[str, Any] | None:
    """The content of plan.json, or None if it is missing or damaged."""
    try:
        begun: dict[str, Any] = json.loads(storage.read_bytes(work_path(output, PLAN_FILE)))
        sound = Plan.from_fields(begun["plan"]).digest == begun["digest"]
    except (FileNotFoundError, ValueError, LookupError, TypeError, AttributeError):
        return None
    return begun if sound else None


def claim_folder(
    output: str,
    plan: Plan,
    *,
    run_id: str,
    overwrite: bool,
    job: str = "",
    job_state: lock.JobState = lambda _: "",
) -> Plan:
    """Claims the folder for a plan, and resumes what an earlier run has not published.

    The earlier run had the same plan, or one that differs only in the input; shards with the same
    references are kept. With `overwrite`, starts again if the plan is different. A published
    dataset is not touched.

    Args:
        output: folder of the dataset.
        plan: the plan to write.
        run_id, job, job_state: see `lock.acquire_lock`.
        overwrite: whether to replace another dataset.

    Returns:
        The plan; `complete` if the folder already holds its dataset.

    Raises:
        UsageError: the folder holds another dataset, part of one with other options, or shard files
            of an unknown one.
        DataError: the folder holds this dataset, but one of its files is missing or has another
            size.
        RunError: another run holds the folder.
    """
    lock.acquire_lock(output, run_id, job=job, job_state=job_state)
    if (
        switch.complete_switch(output) and overwrite
    ):  # of a run that was killed at its end, perhaps of the same call
        with contextlib.suppress(UsageError, DataError):
            overwrite = not _is_complete(output, plan)
    found = inspect_output(output, plan, overwrite=overwrite)
    if found.complete:
        return dataclasses.replace(plan, complete=True)
    fields = {
        "format_version": FORMAT_VERSION,
        "digest": plan.digest,
        "run_id": run_id,
        "plan": plan.fields(),
    }
    data = canonical_json({**fields, "replaces": found.replaces, "overwrite": overwrite})
    if found.begun == json.loads(
        data
    ):  # a retry of this step: must keep what the run has written since
        return plan
    check_room(output, plan)
    _clear(output, plan if found.resumes else None, run_id)
    lock.check_lock(output, run_id)
    storage.write_bytes(work_path(output, PLAN_FILE), data, scratch=work_path(output, ""))
    return plan


class OutputState(NamedTuple):
    """What an output holds.

    Attributes:
        complete: whether it holds the dataset of the plan.
        replaces: generation of the manifest that the plan would replace; 0 without one.
        begun: content of plan.json of an unfinished run; None without one.
        resumes: whether the plan would resume that run.
    """

    complete: bool = False
    replaces: int = 0
    begun: dict[str, Any] | None = None
    resumes: bool = False


def inspect_output(output: str, plan: Plan, *, overwrite: bool) -> OutputState:
    """Looks at what an output holds, and writes nothing.

    Raises:
        UsageError, DataError: as `claim_folder`.
    """
    if not storage.is_gcs(output) and storage.find(storage.join(output, CONTENTS_FOLDER)):
        message = (
            f"holds a file {CONTENTS_FOLDER}, where the folder of that name has to be; move it away"
        )
        raise UsageError(message, option="output", value=output)
    if not overwrite and _is_complete(output, plan):
        return OutputState(complete=True)
    begun = _read_plan(output)
    published = storage.find(storage.join(output, MANIFEST_FILE))
    replaces = published.generation if published else 0
    resumes = False
    if begun is not None:
        earlier = Plan.from_fields(begun["plan"])
        resumes = earlier.recipe == plan.recipe
        if not resumes and not overwrite:
            different = _differences(
                begun["plan"], json.loads(canonical_json(plan.fields())), earlier.matched, plan
            )
            message = f"holds part of a dataset with other options:{different}\n{_CURE}"
            raise UsageError(message, option="output", value=output)
        resumes = resumes and begun.get("replaces", 0) == replaces
    elif not overwrite and (
        old := [
            *filter(is_of_dataset, (name_in_dataset(output, file) for file in list_dataset(output)))
        ]
    ):
        message = f"holds files of an unknown dataset, such as {old[0]}. {_CURE}"
        raise UsageError(message, option="output", value=output)
    return OutputState(replaces=replaces, begun=begun, resumes=resumes)


class Claim(NamedTuple):
    """What a run may replace: the manifest of this generation (0: none); with `overwrite`, any
    dataset's files."""

    replaces: int
    overwrite: bool


def find_claim(output: str, run_id: str) -> Claim | None:
    """The claim of a run; None if it no longer has one."""
    begun = _read_plan(output)
    if begun and begun["run_id"] == run_id:
        return Claim(begun["replaces"], begun["overwrite"])
    return None


def _is_complete(output: str, plan: Plan) -> bool:
    try:
        found = find_manifest(output)
    except DataError as error:
        raise UsageError(str(error), option="output", value=output) from None
    if found is None:
        return False
    now = {
        "name": plan.name,
        "options": plan.options,
        "input_digest": plan.input_digest,
        "labels": plan.labels,
    }
    stored = {**{key: found.fields[key] for key in now}, "labels": found.class_names}
    different = _differences(stored, now, found.counts["matched"], plan, folder=output)
    if different:
        problem = f"holds a dataset with other input or options:{different}"
        message = f"{problem}\n{_CURE}; `beam-tfr update` copies what stays"
        raise UsageError(message, option="output", value=output)
    check_shard_files(found, found.splits.values())
    return True


def _differences(
    then: Mapping[str, Any], now: Mapping[str, Any], matched: int, plan: Plan, folder: str = ""
) -> str:
    """The differences between the fields of two plans, one indented line each; input digests and
    class ids in words.

    Args:
        then: fields of the dataset in the folder.
        now: the same fields of `plan`.
        matched: number of images there.
        plan: the present one.
        folder: of the dataset, if it is published.
    """
    digests = ("input_digest", "generations")
    line = ""
    if matched != plan.matched:
        line = f"\n  the input: {matched:,} {plan.noun} there, {plan.matched:,} now"
    elif any(then.get(name) != now.get(name) for name in digests):
        table = "layout" not in plan.options
        if not table or then["options"] == plan.options:  # which may change what is read of a row
            line = f"\n  the input: other {'rows' if table else plan.noun}, or changed ones"
    old = then["labels"] or ()
    new = now["labels"] or ()
    ids = differences.describe_id_changes(old, new)
    if ids:
        keeps = f" (add `classes={shlex.quote(folder)}` to keep the old ones)"
        line += f"\n  the class ids: {ids}{keeps if folder and old and [*old] != [*new[: len(old)]] else ''}"

    def comparable(fields: Mapping[str, Any]) -> dict[str, Any]:
        options = {**fields["options"]}
        if (level := options.pop("gzip_level", "auto")) != "auto":
            options["compression"] = f"gzip:{level}"  # as it is given
        splits = {
            name: {**split, "cuts": None} for name, split in fields.get("splits", {}).items()
        }  # not comparable
        rest = {name: value for name, value in fields.items() if name not in (*digests, "labels")}
        return {**rest, "splits": splits, "options": options}

    return line + differences.describe_changes(comparable(then), comparable(now))


def _clear(output: str, plan: Plan | None, run_id: str) -> None:
    """Removes what dead runs left in the work folder, except locks, marks of crashes, and what a
    plan resumes."""
    found = _list_held(output, run_id)
    names = {entry.name for entry in found}
    planned = set(plan.shards() if plan else ())

    def stays(name: str) -> bool:
        if LOCK_FILE.fullmatch(name) or name in (
            SAMPLE_MARK,
            PLAN_FILE,
        ):  # the plan is replaced at once
            return True
        if name.endswith(".json") or sidecars.RECORDS in name or sidecars.CONTENTS in name:
            shard = name.partition(".")[0]
            return shard in planned and f"{shard}.json" in names
        return bool(plan and not name.startswith(".tmp-"))

    storage.delete_all(entry for entry in found if not stays(entry.name))


def _list_held(output: str, run_id: str) -> list[Entry]:
    """The files in the work folder, none of them by a run that took over; so they may be deleted at
    any later time.

    Raises:
        RunError: another run took over.
    """
    found = storage.list_files(work_path(output, ""))
    lock.check_lock(output, run_id)  # a successor removes this lock before it writes anything else
    return found


def check_room(output: str, plan: Plan) -> None:
    """Checks that a disk has room for the dataset, and the work folder, beside what the output
    holds.

    Raises:
        RunError: there is not enough room.
    """
    free = storage.free_bytes(output)
    if free is None or not plan.num_bytes:
        return
    written = storage.list_files(work_path(output, ""))  # some of it
    room = free + sum(entry.size_bytes for entry in written)
    if plan.num_bytes > room:
        need = f"needs about {plan.num_bytes / 1e6:,.1f} MB, and its disk has room for {room / 1e6:,.1f} MB"
        reason = "copies of the images of Parquet files count, and a dataset that is replaced stays until the end"
        raise RunError(
            f"{need} ({reason}); make room, or choose another folder", option="output", value=output
        )


def read_progress(output: str) -> Progress | None:
    """How many shards of the plan in the folder are finished, without their images; None if there
    is no plan."""
    begun = _read_plan(output)
    if begun is None:
        return None
    plan = Plan.from_fields(begun["plan"])
    planned = plan.shards()
    found = {*storage.list_folder(work_path(output, ""))}
    finished = sum(f"{shard}.json" in found for shard in planned)
    return Progress("converting", 0, plan.matched, finished, len(planned))


def remove_work_folder(output: str, run_id: str, shards: Collection[str] | None = None) -> None:
    """Removes the work folder of a complete dataset.

    The sidecars of its shards are kept for updates. What a run that was killed has built to replace
    the dataset stays, for the next run; so does that of another run.

    Args:
        output: folder of the dataset.
        run_id: id of the run.
        shards: names of all shards of the dataset; None after a repair, which changes no source.
    """
    with contextlib.suppress(OSError, RunError):
        found = _list_held(output, run_id)
        if _is_being_replaced(output):
            return
        if shards is not None:
            sidecars.move_sidecars(output, found, shards)
        storage.delete_all(found)
        storage.remove_folder(work_path(output, ""))


def finish_killed_run(output: str, run_id: str) -> None:
    """Ends what a run began that was killed after its switch, before it had kept its sidecars for
    updates."""
    begun = _read_plan(output)
    if begun is None or (dataset := find_manifest(output)) is None or _is_being_replaced(output):
        return
    plan = begun["plan"]
    if all(plan[name] == dataset.fields[name] for name in ("name", "options", "input_digest")):
        remove_work_folder(output, run_id, Plan.from_fields(plan).shards())


def _is_being_replaced(output: str) -> bool:
    """True if the work folder holds a part of a dataset that will replace the one in the output."""
    begun = _read_plan(output)
    published = storage.find(storage.join(output, MANIFEST_FILE))
    return (
        begun is not None
        and published is not None
        and begun.get("replaces") == published.generation
    )
