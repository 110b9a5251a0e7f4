"""Exports a dataset to formats of other programs, on any Beam runner."""

import collections
import functools
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from beam_tfr import storage
from beam_tfr.console.display import Progress
from beam_tfr.dataset.base import BaseDataset, read_unchanged_manifest
from beam_tfr.dataset.conditions import Where, parse_conditions
from beam_tfr.dataset.manifest import Manifest, read_manifest
from beam_tfr.dataset.splits import ShardPart, choose_splits, select_examples
from beam_tfr.engine import cloud
from beam_tfr.engine.failures import Outcome
from beam_tfr.engine.runs import follow_run, handling_interrupts, translated_errors
from beam_tfr.exports.export_formats import (
    EXPORT_FORMATS,
    ExportJob,
    check_format,
    check_names,
    count_keypoints,
    find_shared_stems,
)
from beam_tfr.exports.shard import ExportedShard
from beam_tfr.launch.export_mark import ExportMark
from beam_tfr.launch.flags import choose_dataset_runner, make_run, parse_beam_flags
from beam_tfr.launch.locking import hold_folder
from beam_tfr.output import claim
from beam_tfr.schema.errors import RunError, UsageError
from beam_tfr.schema.naming import parse_shard_names
from beam_tfr.transforms.shards import ExportShards

_OUTCOME = Outcome(
    "the export is not complete", "run the same command again to resume from the finished shards"
)


class Export(NamedTuple):
    """A complete export.

    Attributes:
        folder: its folder.
        format: one of `exports.export_formats.EXPORT_FORMATS`.
        images: number of images, or of other records.
        splits: split -> number of its images.
        load: a line of Python that opens the export.
        fresh: False if the export was already complete.
    """

    folder: str
    format: str
    images: int
    splits: Mapping[str, int]
    load: str
    fresh: bool


def export(
    folder: str,
    output: str,
    form: str,
    *,
    split: str | None = None,
    where: Where = None,
    beam_flags: Sequence[str] = (),
    progress: Callable[[Progress], object] = lambda _: None,
    say: Callable[[str], object] = lambda _: None,
) -> Export:
    """Exports a dataset, or a part of it.

    See `beam_tfr.export` for the other arguments, and for errors.

    Args:
        form: one of `exports.export_formats.EXPORT_FORMATS`.
        beam_flags: Beam's own options, as on a command line.
        progress: called while records are searched and written.
        say: called with messages about columns that are left out and about a remote job, one line
            each.
    """
    folder = storage.check_path(folder)
    output = _check_output(output)
    beam_options = parse_beam_flags(beam_flags)
    conditions = parse_conditions(where)
    runner = choose_dataset_runner("export", (folder, output), beam_options, beam_flags)
    cloud.use_cloud_options(beam_options)
    dataset = read_manifest(folder)
    companions = dataset.feature_kinds.companions
    pairs = [companion.key for companion in companions if not companion.exported_files]
    if pairs:
        say(f"images of pairs are left out: {', '.join(pairs)}")
    check_format(dataset, form)
    if f"{storage.real_path(output)}/".startswith(f"{storage.real_path(folder)}/"):
        raise UsageError(f"{output}: must not be in the dataset")
    progress(Progress("searching", 0))
    counts = _count_records(dataset, split, conditions)
    result = _describe_export(dataset, output, form, counts)
    export_format = EXPORT_FORMATS[form]
    export_format.check_dataset(dataset, result.splits)
    keypoints = count_keypoints(dataset, form, [*counts])
    left_out = export_format.list_left_out(dataset, keypoints)
    if left_out:
        say(f"{form} has no place for these columns, which are left out: {', '.join(left_out)}")
    mark = ExportMark(
        output,
        {
            "name": dataset.name,
            "dataset_digest": dataset.dataset_digest,
            "splits": [*result.splits],
            "classes": [*dataset.class_names],
            "where": conditions,
            "format": form,
        },
    )
    if mark.is_complete():
        return result._replace(fresh=False)
    base = BaseDataset.of(dataset)
    shared_stems = find_shared_stems(dataset, form, [*counts])
    job = ExportJob(base, conditions, output, form, keypoints, shared_stems)
    report = functools.partial(
        _report_progress, progress=progress, images=result.images, shards=len(counts)
    )
    with (
        handling_interrupts(),
        hold_folder(output, beam_options) as run_id,
        translated_errors(_OUTCOME),
    ):
        if mark.is_complete():  # another run has just completed it
            return result._replace(fresh=False)
        check_names(job, dataset, [*counts])
        mark.begin()
        run = make_run(runner, ExportShards(job, counts), beam_options, say=say)
        follow_run(run, report, _OUTCOME)
        read_unchanged_manifest(folder, base.digest)
        files = {job.path(part): images for part, images in counts.items()}
        _check_files([*files])
        export_format.complete(dataset, output, files)
        mark.complete()
        claim.remove_work_folder(output, run_id)
    return result


def _check_output(output: str) -> str:
    """Checks and returns the folder of an export, without a trailing slash."""
    output = storage.check_path(output)
    if not output:
        raise UsageError("choose an empty folder for the export", option="output", value=output)
    return output.rstrip("/") or "/"


def _count_records(
    dataset: Manifest, split: str | None, where: Mapping[str, str]
) -> dict[ShardPart, int]:
    """Counts the records to export from each shard; leaves out shards that have none.

    Raises:
        UsageError: the split or column does not exist, or no record matches.
    """
    names = [name for name, entry in dataset.splits.items() if entry.num_examples]
    try:
        chosen = choose_splits(dataset, split, names)
    except UsageError:
        raise UsageError(
            'must name whole splits that have records: one, several such as "train+test", "all", '
            f'or all but some, such as "all-test"; the splits are: {", ".join(names)}',
            option="split",
            value=split,
        ) from None
    parts = select_examples(dataset, "+".join(chosen)).parts
    if not where:
        return {part: part.take for part in parts}
    count_fitting = functools.partial(_count_fitting, dataset, where)
    with ThreadPoolExecutor(storage.READ_AHEAD) as pool:
        numbers = pool.map(count_fitting, parts)
        counts = {part: number for part, number in zip(parts, numbers, strict=True) if number}
    if not counts:
        conditions = ",".join(f"{name}={value}" for name, value in where.items())
        raise UsageError("matches no record", option="where", value=conditions)
    return counts


def _count_fitting(dataset: Manifest, where: Mapping[str, str], part: ShardPart) -> int:
    """Counts the records of a shard that meet all conditions."""
    return len(ExportedShard(dataset, part, where).wanted)


def _describe_export(
    dataset: Manifest, output: str, form: str, counts: Mapping[ShardPart, int]
) -> Export:
    """Builds the result of `export` from the numbers of exported records."""
    splits = collections.Counter[str]()
    for part, images in counts.items():
        split = parse_shard_names(part.file).split
        splits[split] += images
    load = EXPORT_FORMATS[form].load.format(name=dataset.name, output=output)
    return Export(output, form, splits.total(), dict(splits), load, fresh=True)


def _report_progress(
    counters: Mapping[str, int], *, progress: Callable[[Progress], object], images: int, shards: int
) -> None:
    """Reports the progress of a run, based on its counters.

    A retried bundle may be counted twice.
    """
    exported_images = counters.get("exported-images", 0)
    exported_shards = counters.get("exported-shards", 0)
    progress(
        Progress(
            "exporting",
            done=min(exported_images, images),
            total=images,
            shards=min(exported_shards, shards),
            num_shards=shards,
            num_bytes=counters.get("exported-bytes", 0),
        )
    )


def _check_files(paths: Sequence[str]) -> None:
    """Checks that the last file of each shard was written; all files are in one folder.

    Raises:
        RunError: a file is missing.
    """
    folder = paths[0].rpartition("/")[0]
    names = {*storage.list_folder(folder)}
    for path in paths:
        if path.rpartition("/")[2] not in names:
            raise RunError(
                f"the engine reports success, but {path} is missing; run the same command again"
            )
