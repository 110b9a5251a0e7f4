"""Repairs a dataset: rebuilds broken shards from the same sources.

The manifest does not change. Each shard is replaced atomically, and only by a file with the SHA-256
in the manifest, so a repair never makes a dataset worse, even if it is killed. The next repair
reads the dataset again.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from beam_tfr import storage
from beam_tfr.console.display import Progress
from beam_tfr.console.terminal import counted
from beam_tfr.dataset.base import planned_shards, read_unchanged_manifest, restore_options
from beam_tfr.dataset.manifest import Manifest, labels_text, manifest_bytes
from beam_tfr.engine.failures import Outcome
from beam_tfr.launch.starting import start
from beam_tfr.launch.updating import held, read_to_change
from beam_tfr.options import ConvertOptions
from beam_tfr.output import claim, publish, rejects, sidecars
from beam_tfr.pipeline import Convert, Repair
from beam_tfr.schema import dataset as names
from beam_tfr.schema import differences
from beam_tfr.schema.errors import UsageError
from beam_tfr.schema.naming import contents_name, parse_file_name
from beam_tfr.sources import Input, open_source
from beam_tfr.verification import Report
from beam_tfr.verification.dataset_check import DatasetCheck
from beam_tfr.verification.report import list_tasks
from beam_tfr.version import __version__

_OUTCOME = Outcome("nothing is lost", "run the same command again for the shards that are left")
_OTHERS = {
    names.LABELS_FILE,
    names.MANIFEST_FILE,
    names.REJECTS_FILE,
    names.SUMS_FILE,
    *names.METADATA_FILES,
}
_REPAIRED = ("missing", "damaged", "unreadable")


def repair(
    folder: str,
    given: Mapping[str, Any],
    beam_flags: Sequence[str] = (),
    *,
    progress: Callable[[Progress], object] = lambda _: None,
    say: Callable[[str], object] = lambda _: None,
) -> tuple[Report, list[str]]:
    """Rebuilds the broken and missing shards of a dataset, and its other files except the manifest.

    Args:
        folder: folder of the dataset, local or gs://.
        given: the options that are not in the manifest: `input`, `table` and so on.
        beam_flags: Beam's own options, as on a command line.
        progress: called while the dataset is read, and while shards are rebuilt.
        say: called with messages, one line each.

    Returns:
        The report on the whole dataset at the end, and the names of the rebuilt files.

    Raises:
        UsageError: the call is wrong.
        DataError: the manifest is missing or damaged; or the input has changed.
        RunError: the run failed; the same call resumes.
    """
    dataset, beam_options = read_to_change(folder, beam_flags)
    options = restore_options(dataset, given, {})
    check = DatasetCheck(dataset)
    check.read(tasks := list_tasks(dataset), progress=progress)
    report = check.report()
    broken = {*report.broken}
    files = {problem.file for problem in report.problems if problem.kind in _REPAIRED} & _OTHERS
    wanted = {parse_file_name(file)[1] for file in broken}  # type: ignore[index]
    if names.REJECTS_FILE in files:
        wanted |= _with_rejects(dataset)
    if not (wanted or files or storage.list_folder(storage.work_path(dataset.folder, ""))):
        return report, []
    if wanted:
        say(f"{len(wanted):,} of {counted(report.counts['shards'], 'shard')} will be rebuilt")
        make = functools.partial(_make, dataset=dataset, wanted=wanted)
        opened = functools.partial(open_source, classes=dataset.options.get("classes"))
        start(
            options,
            beam_flags,
            open_input=opened,
            make=make,
            outcome=_OUTCOME,
            progress=progress,
            say=say,
        )
    with held(dataset.folder, beam_options) as run_id:
        read_unchanged_manifest(dataset.folder, dataset.fields["manifest_digest"])
        _write_others(dataset, files, rebuilt=bool(wanted))
        claim.remove_work_folder(dataset.folder, run_id)
    after = DatasetCheck(dataset)
    for task in tasks:
        if task.entry.file not in broken:
            after.add(check.results[task.position])
    after.read([task for task in tasks if task.entry.file in broken], progress=progress)
    return after.report(), sorted(broken | files)


def _make(
    options: ConvertOptions, source: Input, *, dataset: Manifest, wanted: set[str]
) -> Convert:
    now = {name: source.plan.options.get(name) for name in dataset.options}
    different = differences.describe_changes(dict(dataset.options), now)
    if different:
        versions = f"beam_tfr {dataset.fields['tool_version']}, this is {__version__}"
        raise UsageError(
            f"the dataset was made from other input, or with other options (by {versions}):{different}"
        )
    return Repair(options, source, dataset=dataset, wanted=wanted)


def _with_rejects(dataset: Manifest) -> set[str]:
    """Names of the shards that have rejects."""
    shards = planned_shards(dataset)
    return {
        shard.name
        for shard in shards
        if shard.images > (shard.entry.num_examples if shard.entry else 0)
    }


def _write_others(dataset: Manifest, broken: set[str], *, rebuilt: bool) -> None:
    """Rewrites other files that are broken, and if shards were rebuilt SHA256SUMS and the files for
    other programs."""
    folder = dataset.folder
    scratch = storage.work_path(dataset.folder, "")
    texts = {
        names.LABELS_FILE: labels_text(dataset.class_names),
        names.MANIFEST_FILE: manifest_bytes(dataset.fields),
    }
    wanted = {name: texts[name] for name in texts.keys() & broken}
    if rebuilt or broken & {
        names.SUMS_FILE,
        *names.METADATA_FILES,
    }:  # other versions may write other contents
        has_metadata = broken & {*names.METADATA_FILES} or storage.find(
            storage.join(folder, names.CROISSANT_FILE)
        )
        metadata = (
            publish.build_metadata(dataset) if has_metadata else {}
        )  # an earlier version wrote none
        files = [
            contents_name(shard.file) for split in dataset.splits.values() for shard in split.shards
        ]
        sums = publish.format_checksums(
            ((name, storage.sha256(storage.join(folder, name))) for name in files), metadata
        )
        wanted |= {**metadata, names.SUMS_FILE: sums}
    for name, text in wanted.items():
        path = storage.join(folder, name)
        if storage.find(path) is None or storage.sha256(path) != names.sha256_hex(text):
            storage.write_bytes(path, text, scratch=scratch)
    if names.REJECTS_FILE in broken:
        shards = [
            name for name in sorted(_with_rejects(dataset)) if sidecars.read_sidecar(folder, name)
        ]
        rejects.write_rejects(
            storage.join(folder, names.REJECTS_FILE), folder, dict.fromkeys(shards, "")
        )
