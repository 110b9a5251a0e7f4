"""Claims an output folder for one plan, and reports how much of the plan is finished.

    OUT/.beam_tfr/lock.N        the run that holds the folder: see `lock`
    OUT/.beam_tfr/plan.json     the plan being written; a run of the same recipe resumes where an
                                earlier run stopped
    OUT/.beam_tfr/SHARD.json    a finished shard: see `sidecars`
    OUT/.beam_tfr/switch.json   moves the files of the finished dataset into place: see `switch`
    OUT/.beam_tfr/*.records-*, *.contents-*   files being built: see `switch`
    OUT/.beam_tfr/*.attempts    attempts that crashed: see `attempts`

The folder `.beam_tfr` is removed once the manifest is written, unless another run is building a
dataset in it.
"""

import contextlib
import dataclasses
import functools
import json
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple, Self

import fastjsonschema

from beam_tfr import storage
from beam_tfr.console.display import Progress
from beam_tfr.dataset.manifest import check_shard_files, find_manifest
from beam_tfr.output import lock, sidecars, switch
from beam_tfr.output.attempts import SAMPLE_MARK
from beam_tfr.output.lock import LOCK_FILE
from beam_tfr.output.lock_holder import JobState
from beam_tfr.output.plan_differences import PresentDataset, describe_differences
from beam_tfr.output.switch import (
    MOST_STATE_BYTES,
    find_generation,
    is_of_dataset,
    list_dataset,
    name_in_dataset,
    parse_state,
)
from beam_tfr.schema.dataset import (
    CONTENTS_FOLDER,
    FORMAT_VERSION,
    MANIFEST_FILE,
    MOST_SHARDS,
    canonical_json,
)
from beam_tfr.schema.differences import find_other_codecs
from beam_tfr.schema.errors import DataError, RunError, UsageError
from beam_tfr.schema.plan import Plan
from beam_tfr.storage import Entry, join, work_path

PLAN_FILE = "plan.json"
_TEXT = {"type": "string"}
_TEXTS = {"type": "array", "items": _TEXT}
_NUMBER = {"type": "integer", "minimum": 0}
_SPLIT = {
    "type": "object",
    "properties": {
        "matched": _NUMBER,
        "num_shards": _NUMBER,
        "cuts": _TEXTS,
        "class_counts": {"type": "object", "additionalProperties": _NUMBER},
    },
}
# The types of the values in plan.json, which may come from a stranger.
_TYPES = {
    "type": "object",
    "properties": {
        "run_id": _TEXT,
        "replaces": {"type": "integer"},
        "overwrite": {"type": "boolean"},
        "plan": {
            "type": "object",
            "properties": {
                "name": _TEXT,
                "suffix": _TEXT,
                "options": {"type": "object"},
                "input_digest": _TEXT,
                "labels": {"anyOf": [_TEXTS, {"type": "null"}]},
                "splits": {"type": "object", "additionalProperties": _SPLIT},
                "codecs": {"type": "object", "additionalProperties": _TEXT},
                "generations": _TEXT,
            },
        },
    },
}
_CURE = "Choose another `output=`, or use `overwrite=` to replace it"


class Claim(NamedTuple):
    """A run's permission to replace files in an output folder.

    Attributes:
        replaces: generation of the manifest that may be replaced; 0 if there is no manifest.
        overwrite: whether the files of any dataset may be replaced.
    """

    replaces: int
    overwrite: bool


class BegunPlan(NamedTuple):
    """The content of plan.json: a plan that a run is writing, or was writing when it was killed."""

    plan: Plan
    run_id: str
    claim: Claim

    def to_json(self) -> bytes:
        fields = {
            "format_version": FORMAT_VERSION,
            "digest": self.plan.digest,
            "run_id": self.run_id,
            "plan": self.plan.fields(),
            "replaces": self.claim.replaces,
            "overwrite": self.claim.overwrite,
        }
        return canonical_json(fields)

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        """Parses the content of plan.json.

        Raises:
            ValueError, LookupError, TypeError, RecursionError: the content is damaged.
        """
        fields = parse_state(data)
        _compile_types()(fields)
        plan = Plan.from_fields(fields["plan"])
        if plan.num_shards > MOST_SHARDS:
            raise ValueError("there are too many shards")
        if plan.digest != fields["digest"]:
            raise ValueError("the digest of the plan differs")
        return cls(plan, fields["run_id"], Claim(fields["replaces"], fields["overwrite"]))


def _read_plan(output: str) -> BegunPlan | None:
    """Reads the plan in the work folder; returns None if the plan is missing or damaged."""
    try:
        data = storage.read_bytes(work_path(output, PLAN_FILE), max_bytes=MOST_STATE_BYTES)
        return BegunPlan.from_json(data)
    except (FileNotFoundError, ValueError, LookupError, TypeError, RecursionError):
        return None


@functools.cache
def _compile_types() -> Callable[[object], object]:
    """Compiles `_TYPES` to a function that raises a ValueError for values of other types."""
    check: Callable[[object], object] = fastjsonschema.compile(_TYPES)
    return check


def find_claim(output: str, run_id: str) -> Claim | None:
    """Returns the claim of a run; None if the run no longer has a claim."""
    begun = _read_plan(output)
    if begun is not None and begun.run_id == run_id:
        return begun.claim
    return None


def claim_folder(
    output: str,
    plan: Plan,
    *,
    run_id: str,
    overwrite: bool,
    job: str = "",
    job_state: JobState = lambda _: "",
) -> Plan:
    """Claims the folder for a plan, and resumes an earlier run that has not published.

    The earlier run must have had the same plan, or a plan that differs only in the input; shards
    with the same references are kept. With `overwrite`, starts again if the plan is different. A
    published dataset is not touched.

    Args:
        output: folder of the dataset.
        plan: the plan to write.
        run_id, job, job_state: see `lock.acquire_lock`.
        overwrite: whether to replace another dataset.

    Returns:
        The plan, which is `complete` if the folder already holds its dataset.

    Raises:
        UsageError: the folder holds another dataset, part of a dataset with different options, or
            shard files of an unknown dataset.
        DataError: the folder holds this dataset, but one of its files is missing or has the wrong
            size.
        RunError: another run holds the folder.
    """
    lock.acquire_lock(output, run_id, job=job, job_state=job_state)
    published = switch.complete_switch(output)
    # by a run that was killed at its end, perhaps an earlier try of this call
    if published and overwrite:
        with contextlib.suppress(UsageError, DataError):
            overwrite = not _holds_dataset(output, plan)
    state = inspect_output(output, plan, overwrite=overwrite)
    if state.complete:
        return dataclasses.replace(plan, complete=True)
    claim = Claim(state.replaces, overwrite)
    data = BegunPlan(plan, run_id, claim).to_json()
    if state.begun is not None and state.begun.to_json() == data:
        return plan  # this is a retry, which must keep the files written since
    check_room(output, plan)
    _clear_work_folder(output, plan if state.resumes else None, run_id)
    lock.check_lock(output, run_id)
    storage.write_bytes(work_path(output, PLAN_FILE), data, scratch=work_path(output, ""))
    return plan


class OutputState(NamedTuple):
    """The state of an output folder.

    Attributes:
        complete: whether the folder holds the dataset of the plan.
        replaces: generation of the manifest that the plan would replace; 0 if there is no manifest.
        begun: the plan of an unfinished run; None if there is no such run.
        resumes: whether the plan would resume that run.
    """

    complete: bool = False
    replaces: int = 0
    begun: BegunPlan | None = None
    resumes: bool = False


def inspect_output(output: str, plan: Plan, *, overwrite: bool) -> OutputState:
    """Finds the state of an output folder without writing anything.

    Raises:
        UsageError, DataError: as in `claim_folder`.
    """
    _check_contents_folder(output)
    if not overwrite and _holds_dataset(output, plan):
        return OutputState(complete=True)
    begun = _read_plan(output)
    replaces = find_generation(join(output, MANIFEST_FILE))
    if begun is not None:
        continues = plan.continues(begun.plan)
        if not continues and not overwrite:
            raise _other_options(output, begun.plan, plan)
        resumes = continues and begun.claim.replaces == replaces
        return OutputState(replaces=replaces, begun=begun, resumes=resumes)
    if not overwrite:
        _check_no_dataset(output)
    return OutputState(replaces=replaces)


def _check_contents_folder(output: str) -> None:
    """Checks that no local file has the name of the contents folder.

    Raises:
        UsageError: a file has that name.
    """
    if not storage.is_gcs(output) and storage.find(join(output, CONTENTS_FOLDER)):
        raise UsageError(
            f"{output}: holds a file named {CONTENTS_FOLDER}, but needs a folder with that name; "
            "move the file away"
        )


def _check_no_dataset(output: str) -> None:
    """Checks that a folder without a plan holds no files of a dataset.

    Raises:
        UsageError: the folder holds such files.
    """
    for entry in list_dataset(output):
        name = name_in_dataset(output, entry)
        if is_of_dataset(name):
            raise UsageError(
                f"holds files of an unknown dataset, such as {name}. {_CURE}",
                option="output",
                value=output,
            )


def _other_options(output: str, earlier: Plan, plan: Plan) -> UsageError:
    """Creates the exception for a folder that holds part of a dataset with different options."""
    codecs = plan.codecs | find_other_codecs(earlier.codecs, plan.codecs)
    stated = {**earlier.fields(), "codecs": codecs}
    present = PresentDataset(stated, earlier.matched, earlier.classes)
    fields = json.loads(canonical_json(plan.fields()))
    differences = describe_differences(present, plan, fields)
    return UsageError(
        "holds part of a dataset with different options:",
        *differences,
        _CURE,
        option="output",
        value=output,
    )


def _holds_dataset(output: str, plan: Plan) -> bool:
    """Whether an output holds the dataset of a plan; False if it holds no dataset.

    Raises:
        UsageError: the output holds another dataset.
        DataError: the output holds the dataset, but a file is missing or has the wrong size.
    """
    try:
        dataset = find_manifest(output)
    except DataError as error:
        raise UsageError(str(error), option="output", value=output) from None
    if dataset is None:
        return False
    fields = {
        "name": plan.name,
        "options": plan.options,
        "input_digest": plan.input_digest,
    }
    stated = {name: dataset.fields[name] for name in fields}
    matched = dataset.counts["matched"]
    present = PresentDataset(stated, matched, dataset.class_names, output)
    differences = describe_differences(present, plan, fields)
    if differences:
        raise UsageError(
            "holds a dataset with different input or options:",
            *differences,
            f"{_CURE}; `beam-tfr update` copies unchanged records",
            option="output",
            value=output,
        )
    check_shard_files(dataset, dataset.splits.values())
    return True


def _clear_work_folder(output: str, plan: Plan | None, run_id: str) -> None:
    """Removes files that dead runs left in the work folder.

    Locks, marks of attempts and the plan stay; the caller replaces the plan at once.

    Args:
        plan: the plan to resume, whose finished shards stay; None to begin a new plan.
    """
    entries = _list_own_files(output, run_id)
    finished = _find_finished(plan, entries) if plan else set[str]()

    def stays(name: str) -> bool:
        if name in (SAMPLE_MARK, PLAN_FILE) or LOCK_FILE.fullmatch(name):
            return True
        shard_file = sidecars.SHARD_FILE.fullmatch(name)
        if shard_file:
            return shard_file[1] in finished
        return plan is not None and not name.startswith(".tmp-")

    storage.delete_all(entry for entry in entries if not stays(entry.name))


def _find_finished(plan: Plan, entries: Iterable[Entry]) -> set[str]:
    """Lists the shards of a plan that have sidecars in the work folder, by name."""
    names = {entry.name for entry in entries}
    return {shard for shard in plan.shards() if sidecars.sidecar_name(shard) in names}


def _list_own_files(output: str, run_id: str) -> list[Entry]:
    """Lists the files in the work folder, then checks that no other run has taken over.

    The listed files can therefore be deleted safely, even later: a run that takes over removes this
    run's lock before it writes anything else.

    Raises:
        RunError: another run has taken over.
    """
    entries = storage.list_files(work_path(output, ""))
    lock.check_lock(output, run_id)
    return entries


def check_room(output: str, plan: Plan) -> None:
    """Checks that the disk has enough free space for the rest of the dataset.

    Raises:
        RunError: the disk does not have enough free space.
    """
    free = storage.free_bytes(output)
    if free is None:
        return
    written = storage.list_files(work_path(output, ""))  # finished files of the dataset
    room = free + sum(entry.size_bytes for entry in written)
    if plan.num_bytes > room:
        raise RunError(
            f"{output}: needs about {plan.num_bytes / 1e6:,.1f} MB, but its disk has "
            f"{room / 1e6:,.1f} MB available (this includes copies of images in Parquet files, and "
            "a replaced dataset stays until the end); free disk space, or choose another folder"
        )


def read_progress(output: str) -> Progress | None:
    """Counts the finished shards of the plan that a folder holds; returns None without a plan.

    The number of finished images is not known.
    """
    begun = _read_plan(output)
    if begun is None:
        return None
    finished = _find_finished(begun.plan, storage.list_files(work_path(output, "")))
    num_shards = len(begun.plan.shards())
    return Progress("converting", 0, begun.plan.matched, len(finished), num_shards)


def remove_work_folder(output: str, run_id: str, shards: Collection[str] | None = None) -> None:
    """Removes the work folder of a complete dataset.

    Keeps the sidecars of the dataset's shards for updates. Files of other runs stay, and so do
    files that a killed run built to replace the dataset: the next run uses them.

    Args:
        output: folder of the dataset.
        run_id: id of the run.
        shards: names of all shards of the dataset; None after a repair, which changes no sources.
    """
    with contextlib.suppress(OSError, RunError):
        entries = _list_own_files(output, run_id)
        if _is_being_replaced(output):
            return
        if shards is not None:
            sidecars.move_sidecars(output, entries, shards)
        storage.delete_all(entries)
        storage.remove_folder(work_path(output, ""))


def finish_killed_run(output: str, run_id: str) -> None:
    """Finishes a run that was killed after its switch, before it moved its sidecars."""
    begun = _read_plan(output)
    if begun is None:
        return
    dataset = find_manifest(output)
    if dataset is None or _is_being_replaced(output):
        return
    plan = begun.plan
    stated = [dataset.fields[name] for name in ("name", "options", "input_digest")]
    if stated == [plan.name, plan.options, plan.input_digest]:
        remove_work_folder(output, run_id, plan.shards())


def _is_being_replaced(output: str) -> bool:
    """Whether the work folder holds part of a dataset that will replace the published dataset."""
    begun = _read_plan(output)
    published = find_generation(join(output, MANIFEST_FILE))
    if begun is None or not published:
        return False
    return begun.claim.replaces == published
