"""Repairs a dataset: rebuilds broken shards from the original sources.

The manifest does not change. Each shard is replaced atomically, and only with a file that has the
SHA-256 in the manifest, so a repair never makes a dataset worse, even if the repair is killed. Each
repair first reads the whole dataset.
"""

import functools
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, NamedTuple, cast

from beam_tfr import storage
from beam_tfr.console.display import Progress
from beam_tfr.console.terminal import counted
from beam_tfr.dataset.base import planned_shards, read_unchanged_manifest, restore_options
from beam_tfr.dataset.manifest import Manifest, labels_text, manifest_bytes
from beam_tfr.engine.failures import Outcome
from beam_tfr.launch.locking import hold_folder, open_to_change
from beam_tfr.launch.results import Result
from beam_tfr.launch.starting import StepBuilder, run_step
from beam_tfr.options import ConvertOptions
from beam_tfr.output import claim, publish, rejects, sidecars
from beam_tfr.output.known import read_sources
from beam_tfr.pipeline import Repair
from beam_tfr.schema import differences
from beam_tfr.schema.dataset import (
    LABELS_FILE,
    MANIFEST_FILE,
    METADATA_FILES,
    REJECTS_FILE,
    SUMS_FILE,
    sha256_hex,
)
from beam_tfr.schema.errors import UsageError
from beam_tfr.schema.naming import contents_name, shard_of_file
from beam_tfr.sources import Input, open_source
from beam_tfr.verification import Report
from beam_tfr.verification.dataset_check import DatasetCheck
from beam_tfr.verification.report import ProblemKind, list_tasks
from beam_tfr.version import __version__

_OUTCOME = Outcome("nothing is lost", "run the same command again to rebuild the remaining shards")
_OTHER_FILES = {
    LABELS_FILE,
    MANIFEST_FILE,
    REJECTS_FILE,
    SUMS_FILE,
    *METADATA_FILES,
}
_REPAIRED_KINDS = {ProblemKind.MISSING, ProblemKind.DAMAGED, ProblemKind.UNREADABLE}


class _Damage(NamedTuple):
    """The broken files of a dataset.

    Attributes:
        shard_files: broken files of shards.
        shards: names of the shards to rebuild.
        other_files: other files to write again.
    """

    shard_files: Set[str]
    shards: Set[str]
    other_files: Set[str]


def repair(
    folder: str,
    input_options: Mapping[str, Any],
    beam_flags: Sequence[str] = (),
    *,
    progress: Callable[[Progress], object] = lambda _: None,
    say: Callable[[str], object] = lambda _: None,
) -> tuple[Report, list[str]]:
    """Rebuilds the broken and missing shards of a dataset, and its other files except the manifest.

    Args:
        folder: folder of the dataset, local or gs://.
        input_options: the options that are not in the manifest: `input`, `table` and so on.
        beam_flags: Beam's own options, as on a command line.
        progress: called while the dataset is read, and while shards are rebuilt.
        say: called with messages, one line each.

    Returns:
        The final report on the whole dataset, and the names of the rebuilt files.

    Raises:
        UsageError: the call is wrong.
        DataError: the manifest is missing or damaged; or the input has changed.
        RunError: the run failed; the same call resumes it.
    """
    dataset, beam_options = open_to_change(folder, beam_flags)
    additions: dict[str, Any] = {}
    if dataset.has_unusable_files:
        additions["max_rejects"] = 1.0  # so that damaged archives can be rejects again
    options = restore_options(dataset, input_options, additions)
    check = DatasetCheck(dataset)
    check.read(list_tasks(dataset), progress=progress)
    report = check.report()
    damage = _find_damage(dataset, report)
    work_files = storage.list_folder(storage.work_path(dataset.folder, ""))
    if not (damage.shards or damage.other_files or work_files):
        return report, []
    if damage.shards:
        if options.settles_copies:
            _check_sources(dataset)
        shards = counted(report.counts["shards"], "shard")
        say(f"{len(damage.shards):,} of {shards} will be rebuilt")
        classes = dataset.options.get("classes")
        result = run_step(
            options,
            beam_flags,
            open_input=functools.partial(open_source, classes=classes),
            choose_step=functools.partial(_choose_repair, dataset=dataset, broken=damage.shards),
            outcome=_OUTCOME,
            progress=progress,
            say=say,
        )
        for note in cast(Result, result).unused:
            say(note)
    with hold_folder(dataset.folder, beam_options) as run_id:
        read_unchanged_manifest(dataset.folder, dataset.fields["manifest_digest"])
        _write_other_files(dataset, damage)
        claim.remove_work_folder(dataset.folder, run_id)
    report = _check_again(dataset, check, damage.shard_files, progress)
    return report, sorted(damage.shard_files | damage.other_files)


def _check_sources(dataset: Manifest) -> None:
    """Checks that sidecars tell which shard each image is in, which can depend on copies.

    Raises:
        UsageError: a sidecar is missing.
    """
    for shard in planned_shards(dataset):
        if read_sources(dataset.folder, shard) is None:
            raise UsageError(
                f"shards of {dataset.folder} are broken, and .sources, which records which images "
                f"are in them, lacks {shard.name}: restore this folder, or write the dataset "
                "again with `beam-tfr convert` and `overwrite=`"
            )


def _find_damage(dataset: Manifest, report: Report) -> _Damage:
    """Lists the broken files in the report on a dataset."""
    files = {problem.file for problem in report.problems if problem.kind in _REPAIRED_KINDS}
    other_files = files & _OTHER_FILES
    shards = {shard_of_file(file) for file in report.broken}
    if REJECTS_FILE in other_files:  # the sidecars of these shards hold the rejects
        shards |= _shards_with_rejects(dataset)
    return _Damage({*report.broken}, shards, other_files)


def _shards_with_rejects(dataset: Manifest) -> set[str]:
    """Returns the names of the shards that have rejects."""
    shards = set[str]()
    for shard in planned_shards(dataset):
        num_examples = shard.entry.num_examples if shard.entry else 0
        if num_examples < shard.images:
            shards.add(shard.name)
    return shards


def _choose_repair(
    options: ConvertOptions, source: Input, *, dataset: Manifest, broken: Set[str]
) -> StepBuilder:
    """Builds the repair, if the dataset was made from this input with these options.

    Raises:
        UsageError: the input or the options differ.
    """
    now = {name: source.plan.options.get(name) for name in dataset.options}
    changes = differences.describe_changes(dict(dataset.options), now)
    if changes:
        raise UsageError(
            "the dataset was made from a different input, or with different options (by beam_tfr "
            f"{dataset.fields['tool_version']}, this is {__version__}):",
            *changes,
        )
    return functools.partial(Repair, options, source, dataset=dataset, broken=broken)


def _write_other_files(dataset: Manifest, damage: _Damage) -> None:
    """Writes broken files other than shards again.

    If shards were rebuilt, also writes `SUMS_FILE` and the files for other programs, because a
    different version of beam_tfr may write different files.
    """
    broken = damage.other_files
    texts = dict[str, bytes]()
    if LABELS_FILE in broken:
        texts[LABELS_FILE] = labels_text(dataset.class_names)
    if MANIFEST_FILE in broken:
        texts[MANIFEST_FILE] = manifest_bytes(dataset.fields)
    if damage.shards or not broken.isdisjoint({SUMS_FILE, *METADATA_FILES}):
        texts |= _build_metadata(dataset)
    for name, text in texts.items():
        _write_if_different(dataset.folder, name, text)
    if REJECTS_FILE in broken:
        shards = sorted(_shards_with_rejects(dataset))
        read = [name for name in shards if sidecars.read_sidecar(dataset.folder, name)]
        path = storage.join(dataset.folder, REJECTS_FILE)
        rejects.write_rejects(path, dataset.folder, dict.fromkeys(read, ""))


def _build_metadata(dataset: Manifest) -> dict[str, bytes]:
    """Builds the files for other programs and `SUMS_FILE`; returns name -> content."""
    metadata = publish.build_metadata(dataset)
    contents = [contents_name(task.entry.file) for task in list_tasks(dataset)]
    checksums = [(name, storage.sha256(storage.join(dataset.folder, name))) for name in contents]
    return {**metadata, SUMS_FILE: publish.format_checksums(checksums, metadata)}


def _write_if_different(folder: str, name: str, text: bytes) -> None:
    """Writes a file of a dataset, unless it already has this content."""
    path = storage.join(folder, name)
    if storage.find(path) is None or storage.sha256(path) != sha256_hex(text):
        storage.write_bytes(path, text, scratch=storage.work_path(folder, ""))


def _check_again(
    dataset: Manifest,
    before: DatasetCheck,
    rebuilt: Set[str],
    progress: Callable[[Progress], object],
) -> Report:
    """Checks a dataset after its repair; reads only the files that were rebuilt."""
    check = DatasetCheck(dataset)
    tasks = []
    for task in list_tasks(dataset):
        if task.entry.file in rebuilt:
            tasks.append(task)
        else:
            check.add(before.results[task.position])
    check.read(tasks, progress=progress)
    return check.report()
