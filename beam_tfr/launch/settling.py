"""Groups or drops copies of images: puts copies into one split, or keeps only one of them.

Copies are known only once all images are converted, but splits are chosen before. So a conversion
has two steps. The first writes a dataset into a folder of its own, with all copies. The second
copies its records into the output, as an update would; until then, the output stays unchanged. A
run that was killed resumes in the step that it had reached.
"""

import copy
import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import cast

import apache_beam as beam

from beam_tfr import storage
from beam_tfr.console.display import Progress
from beam_tfr.dataflow import checks, jobs
from beam_tfr.dataset.base import BaseDataset
from beam_tfr.dataset.history import Update, read_history
from beam_tfr.dataset.manifest import Manifest, find_manifest, read_manifest
from beam_tfr.dataset.taken_down import Removed, read_removed
from beam_tfr.engine.failures import UNPUBLISHED, Outcome
from beam_tfr.launch.flags import parse_beam_flags
from beam_tfr.launch.relisting import open_dataset
from beam_tfr.launch.results import Result
from beam_tfr.launch.reuse import choose_base
from beam_tfr.launch.starting import StepBuilder, choose_convert, run_step
from beam_tfr.options import ConvertOptions
from beam_tfr.options.convert import COPIES_OF_ROWS
from beam_tfr.options.run import UpdateOptions
from beam_tfr.pipeline import Convert
from beam_tfr.schema.dataset import CONTENTS_FOLDER, FIRST_FOLDER, SOURCES_FOLDER, WORK_FOLDER
from beam_tfr.schema.errors import RunError, UsageError
from beam_tfr.schema.spelling import spell_option
from beam_tfr.sources import Input, open_source
from beam_tfr.transforms.copies import FindCopies


def steps_that_settle(
    duplicates: str, base: BaseDataset, *, are_splits_open: bool = False
) -> dict[str, beam.PTransform]:
    """Returns the arguments of `Convert` that group or drop the copies in a dataset.

    Args:
        duplicates: the option.
        base: the dataset.
        are_splits_open: whether some of its images may change their splits, so that even copies
            that are in one split now may be separated.
    """
    if duplicates == "drop":
        return {"copies": FindCopies(base, rejects=True)}
    return {"groups": FindCopies(base, only_torn=not are_splits_open)}


def convert_and_settle(
    options: ConvertOptions,
    beam_flags: Sequence[str] = (),
    *,
    open_input: Callable[[ConvertOptions], Input] = open_source,
    choose_step: Callable[[ConvertOptions, Input], StepBuilder] = choose_convert,
    update: Update | None = None,
    splits_of: BaseDataset | None = None,
    before: BaseDataset | None = None,
    outcome: Outcome = UNPUBLISHED,
    progress: Callable[[Progress], object] = lambda _: None,
    say: Callable[[str], object] = lambda _: None,
) -> Result:
    """Converts images, and groups or drops the copies among them.

    Args:
        options: checked options, with `duplicates`.
        choose_step: chooses the first step, from its options and the opened source.
        update: what the history records about an update, if the run is an update.
        splits_of: with `stratify`, the dataset whose splits the images keep; copies follow them.
        before: the dataset that is updated, if the run is an update; see `Convert`.
        beam_flags, open_input, outcome, progress, say: see `run_step`.

    Raises the errors of `run_step`.
    """
    _check_waits(options, beam_flags)
    run = functools.partial(
        run_step, beam_flags=beam_flags, outcome=outcome, progress=progress, say=say
    )
    first = copy.copy(options)
    first.set_option("output", _first_folder(options.output))
    first.set_option("duplicates", "report")
    first.set_option("overwrite", False)
    choose_first = functools.partial(
        _choose_first,
        choose_step=choose_step,
        output=options.output,
        duplicates=options.duplicates,
    )
    run_first = functools.partial(run, first, open_input=open_input)
    try:
        first_result = run_first(choose_step=functools.partial(choose_first, say=say))
    except UsageError:
        if not storage.is_folder(first.output):
            raise
        remove_first(options.output)  # it may be made from other images or options
        first_result = run_first(choose_step=choose_first)
    dataset = read_manifest(first.output)
    if update:
        update = _add_changes(update, first.output)
    open_first = functools.partial(_open_first, dataset=dataset)
    choose_second = functools.partial(
        _choose_second, dataset=dataset, update=update, splits_of=splits_of, before=before
    )
    second = copy.copy(options)
    # The first step accepted its rejects, and copies are rejected on purpose.
    second.set_option("max_rejects", 1.0)
    second.set_option("allow_empty", (*dataset.class_names, *dataset.splits))
    result = run(second, open_input=open_first, choose_step=choose_second)
    remove_first(options.output)
    return _join_results(cast(Result, first_result), cast(Result, result))


def _join_results(first: Result, second: Result) -> Result:
    """Joins the results of both steps; only the first result has facts about the input."""
    run = first.run.copy()
    for name, number in second.run.items():
        run[name] = max(run[name], number)
    run["moved"] = second.run["moved"]
    run["followed"] = second.run["followed"]
    if second.changed:
        run["resumed"] = second.run["resumed"]
    return dataclasses.replace(
        second,
        seconds=first.seconds + second.seconds,
        run=run,
        unused=first.unused,
        class_numbers=first.class_numbers,
    )


def _check_waits(options: ConvertOptions, beam_flags: Sequence[str]) -> None:
    """Checks that the options let this process wait for the first of the two runs.

    Raises:
        UsageError: with these options, this process would not wait.
    """
    if options.no_wait or checks.creates_no_job(parse_beam_flags(beam_flags)):
        raise UsageError(
            "takes two runs, one after the other: leave out `no_wait=`, `template_location=` and "
            "`dry_run=`; or convert without `duplicates=`, and run `beam-tfr update DIR "
            "--duplicates` later",
            option="duplicates",
            value=options.duplicates,
        )


def _first_folder(output: str) -> str:
    return storage.work_path(output, FIRST_FOLDER)


def remove_first(output: str) -> None:
    """Removes the files that a conversion's first step left in the work folder of its output."""
    folder = _first_folder(output)
    storage.delete_all(storage.walk(folder, lambda _: True))
    for name in (CONTENTS_FOLDER, SOURCES_FOLDER, WORK_FOLDER, ""):
        storage.remove_folder(storage.join(folder, name).rstrip("/"))
    storage.remove_folder(storage.work_path(output, "").rstrip("/"))


def _choose_first(
    options: ConvertOptions,
    source: Input,
    *,
    choose_step: Callable[[ConvertOptions, Input], StepBuilder],
    output: str,
    duplicates: str,
    say: Callable[[str], object] = lambda _: None,
) -> StepBuilder:
    """Chooses the first step, which leaves out images that were removed from the output.

    Raises:
        UsageError: the records are table rows, which are not compared.
    """
    if source.encoding == "row":
        raise UsageError(COPIES_OF_ROWS, option="duplicates", value=duplicates)
    build_step = choose_step(options, source)
    say("copies are known only after all images are converted, so this takes two runs")

    def build(*, run_id: str, removed: Removed, guarded: bool) -> Convert:
        step = build_step(run_id=run_id, removed=read_removed(output), guarded=guarded)
        if step.update:  # counts the changes; only the second step updates the output
            step.update = step.update._replace(folder=output)
        return step

    return build


def _add_changes(update: Update, first: str) -> Update:
    """Adds the changes that the first step made, if they are known, to those of an update."""
    updates = read_history(first)
    if not updates or "added" not in updates[-1]:
        return update
    changes = {kind: updates[-1].get(kind, 0) for kind in ("changed", "relabelled", "renamed")}
    return update._replace(counted=True, changes=changes)


def _open_first(options: ConvertOptions, *, dataset: Manifest) -> Input:
    """Opens the dataset from the first step as the input of the second."""
    return open_dataset(options, dataset, {"duplicates": options.duplicates})


def _choose_second(
    options: ConvertOptions,
    source: Input,
    *,
    dataset: Manifest,
    update: Update | None,
    splits_of: BaseDataset | None,
    before: BaseDataset | None,
) -> StepBuilder:
    """Chooses the second step, which copies all records from the first."""
    base, _ = choose_base(dataset, source, UpdateOptions(codecs="keep"), lambda _: None)
    if base is None or not base.copies:
        raise UsageError(f"{dataset.folder} was changed by another program; remove the folder")
    settling = steps_that_settle(options.duplicates, base, are_splits_open=splits_of is not None)
    return functools.partial(
        Convert,
        options,
        source,
        base=base,
        update=update,
        splits_of=splits_of,
        before=before,
        **settling,
    )


def start(
    options: ConvertOptions,
    beam_flags: Sequence[str] = (),
    *,
    progress: Callable[[Progress], object] = lambda _: None,
    say: Callable[[str], object] = lambda _: None,
) -> Result | jobs.Job:
    """Converts images into a dataset, in one run or in two; see `run_step`."""
    if not options.settles_copies:
        return run_step(options, beam_flags, progress=progress, say=say)
    dataset = None if options.overwrite else find_manifest(options.output)
    if dataset is None:
        return convert_and_settle(options, beam_flags, progress=progress, say=say)
    _check_same_copies(options, dataset)
    result = run_step(
        options, beam_flags, choose_step=_choose_comparison, progress=progress, say=say
    )
    remove_first(options.output)  # left by a run that was killed at its end
    return result


def _check_same_copies(options: ConvertOptions, dataset: Manifest) -> None:
    """Checks that the copies in the output's dataset were handled as requested.

    Raises:
        UsageError: `duplicates` has a different value than in the dataset.
    """
    before = dataset.options.get("duplicates", "report")
    if before != options.duplicates:
        raise UsageError(
            f"has no effect on the dataset in {dataset.folder}, which was made with "
            f"{spell_option('duplicates', before)}: use `beam-tfr update` to group or drop its "
            "copies, or `overwrite=` to replace it",
            option="duplicates",
            value=options.duplicates,
        )


def _choose_comparison(options: ConvertOptions, source: Input) -> StepBuilder:
    """Chooses the step that compares the dataset in the output with the requested one.

    It plans like any conversion. If the output holds a complete dataset, the step ends there: the
    dataset is the same, or an error states the differences.
    """
    build_step = choose_convert(options, source)

    def build(*, run_id: str, removed: Removed, guarded: bool) -> Convert:
        if find_manifest(options.output) is None:  # a new conversion would ignore copies
            raise RunError(
                f"the dataset in {options.output} has just been removed; run the same command again"
            )
        return build_step(run_id=run_id, removed=removed, guarded=guarded)

    return build


def convert(
    options: ConvertOptions,
    beam_flags: Sequence[str] = (),
    *,
    progress: Callable[[Progress], object] = lambda _: None,
    say: Callable[[str], object] = lambda _: None,
) -> Result:
    """Converts images and returns the complete dataset; see `start` for arguments and errors."""
    if options.no_wait or checks.creates_no_job(parse_beam_flags(beam_flags)):
        raise UsageError(
            "`no_wait=`, `template_location=` and `dry_run=` leave no dataset to return: call "
            "beam_tfr.launch.start(ConvertOptions(…), beam_flags)"
        )
    return cast(Result, start(options, beam_flags, progress=progress, say=say))
