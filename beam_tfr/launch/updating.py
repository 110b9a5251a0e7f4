"""Updates a dataset: writes the result of a new conversion, but copies unchanged records."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from beam_tfr import storage
from beam_tfr.console.display import Progress
from beam_tfr.console.terminal import counted
from beam_tfr.copies.summary import is_summarized
from beam_tfr.dataset.base import INPUTS, BaseDataset, restore_options
from beam_tfr.dataset.history import Update
from beam_tfr.dataset.manifest import Manifest
from beam_tfr.dataset.taken_down import Removed, read_removed
from beam_tfr.engine.failures import Outcome
from beam_tfr.launch.locking import hold_folder, open_to_change
from beam_tfr.launch.relisting import (
    NEEDS_IMAGES,
    classes_in_own_order,
    find_renamed_classes,
    open_dataset,
)
from beam_tfr.launch.results import Result
from beam_tfr.launch.reuse import KEPT_CODECS, choose_base
from beam_tfr.launch.settling import convert_and_settle, remove_first, steps_that_settle
from beam_tfr.launch.starting import StepBuilder, run_step
from beam_tfr.options import ConvertOptions
from beam_tfr.options.convert import RENAMES
from beam_tfr.options.run import NOT_FOR_UPDATES, UpdateOptions
from beam_tfr.output.drop_limit import DropLimit
from beam_tfr.output.removed import (
    FoundImages,
    ImageSelection,
    find_images,
)
from beam_tfr.pipeline import Convert
from beam_tfr.schema.dataset import REMOVED_FILE
from beam_tfr.schema.differences import join_texts
from beam_tfr.schema.errors import DataError, InterruptedRunError, RunError, UsageError
from beam_tfr.schema.renames import compose_renames, parse_renames
from beam_tfr.schema.untrusted import quote
from beam_tfr.sources import Input, open_source

_OUTCOME = Outcome("the dataset is unchanged", "run the same command again to resume")
_MOST_NAMED = 5  # keys named in a message


def update(
    folder: str,
    changes: Mapping[str, Any],
    update_options: UpdateOptions,
    beam_flags: Sequence[str] = (),
    *,
    command: str = "update",
    progress: Callable[[Progress], object] = lambda _: None,
    say: Callable[[str], object] = lambda _: None,
) -> Result:
    """Updates a dataset; returns when it is complete.

    Args:
        folder: folder of the dataset, local or gs://.
        changes: options of `convert`: the input, and options that replace the dataset's. Without an
            input, the dataset keeps its images, and only options about files may change.
        update_options: how to compare images, how many may be dropped, and what to do with other
            codecs.
        command: name of the update in the history.
        beam_flags, progress, say: see `run_step`.

    Raises:
        UsageError: the call is wrong, or codec versions differ from those of the dataset.
        DataError: as for a conversion, or the input lacks more images of the dataset than
            `max_removed` allows. After any error, the dataset is unchanged.
        RunError, InterruptedRunError: as for a conversion.
    """
    changes = {name: value for name, value in changes.items() if value not in (None, "", (), [])}
    for name in NOT_FOR_UPDATES:
        if name in changes:
            raise UsageError("is not for an update: leave it out", option=name, value=changes[name])
    if not changes and update_options == UpdateOptions():
        say("without `input=` or `table=`, images are not checked for changes")
    dataset, _ = open_to_change(folder, beam_flags)
    if "rename" in changes:
        changes["rename"] = _compose_renames(dataset, changes["rename"])
    placeholder = {} if _names_input(changes) else _stand_in_for_input(dataset, update_options)
    options = restore_options(dataset, {**changes, "overwrite": True}, placeholder)
    open_input = functools.partial(_open_input, dataset=dataset, changes=changes)
    choose_step = functools.partial(
        _choose_update,
        dataset=dataset,
        update_options=update_options,
        command=command,
        say=say,
        settles="duplicates" in changes,
        drop_limit=_limit_drops(options, dataset, update_options, changes),
    )
    if options.settles_copies and _names_input(changes):
        return convert_and_settle(
            options,
            beam_flags,
            open_input=open_input,
            choose_step=choose_step,
            update=Update(command, counted=False, resplit=update_options.resplit),
            splits_of=_find_splits_of(options, dataset, update_options),
            before=BaseDataset.of(dataset),
            outcome=_OUTCOME,
            progress=progress,
            say=say,
        )
    result = run_step(
        options,
        beam_flags,
        open_input=open_input,
        choose_step=choose_step,
        outcome=_OUTCOME,
        progress=progress,
        say=say,
    )
    return cast(Result, result)


def _compose_renames(
    dataset: Manifest, texts: str | Mapping[str, str] | Sequence[str]
) -> list[str]:
    """Adds renames to those of a dataset; renames that it already has change nothing.

    Raises:
        UsageError: the dataset has no such class, or already has a class with the new name.
    """
    given = RENAMES.list_values(texts)
    try:
        renames = parse_renames(given)
    except ValueError as error:
        raise UsageError(str(error), option="rename", value=" ".join(given)) from None
    classes = dataset.class_names
    listed = join_texts(classes, separator=", ")
    known = parse_renames(dataset.options.get("rename", ()))
    wanted = {old: new for old, new in renames.items() if old in classes or known.get(old) != new}
    for old, new in wanted.items():
        text = f"{old}={new}"
        if old not in classes:
            raise UsageError(
                f"{dataset.folder} has no class {old}; its classes are: {listed}",
                option="rename",
                value=text,
            )
        if new in classes and new not in wanted:
            raise UsageError(
                f"{dataset.folder} already has a class {new}, and merging the two would change "
                "ids: assign the classes in a `table=` or with other folders",
                option="rename",
                value=text,
            )
    return compose_renames(known, wanted)


def remove(
    folder: str,
    selection: ImageSelection,
    beam_flags: Sequence[str] = (),
    *,
    allow_missing: bool = False,
    progress: Callable[[Progress], object] = lambda _: None,
    say: Callable[[str], object] = lambda _: None,
) -> Result:
    """Takes images down: removes their records and all other traces of them.

    Needs no input. Only hashes stay, in removed.txt. Later conversions and updates into the folder
    reject images with these hashes, so they do not come back.

    Args:
        folder: folder of the dataset, local or gs://.
        selection: the images to remove.
        beam_flags, progress, say: see `run_step`.
        allow_missing: whether to accept keys and hashes that the dataset does not have, and
            conditions that no image meets.

    Raises:
        UsageError: the call is wrong.
        DataError: the dataset lacks a part of the selection, and `allow_missing` is not set.
        DataError, RunError, InterruptedRunError: as for `update`.
    """
    dataset, beam_options = open_to_change(folder, beam_flags)
    if dataset.options["encoding"] == "row":
        raise UsageError(
            f"{dataset.folder} holds table rows: remove the rows from the table, and convert it "
            "again with `overwrite=`"
        )
    images = find_images(dataset, selection, progress)
    if images.number == dataset.counts["matched"]:
        raise UsageError(f"these are all images in {dataset.folder}: delete the folder instead")
    if not allow_missing:
        _check_all_found(dataset, selection, images)
    if images.missing:
        say(f"{_describe_missing(dataset, images)}; such images are kept out of updates too")
    remove_first(dataset.folder)  # a killed run may have left these images in it
    before = read_removed(dataset.folder)
    total = Removed(before.keys | images.hashes.keys, before.sources | images.hashes.sources)
    if total != before:
        with hold_folder(dataset.folder, beam_options):
            path = storage.join(dataset.folder, REMOVED_FILE)
            scratch = storage.work_path(dataset.folder, "")
            storage.write_bytes(path, total.to_bytes(), scratch=scratch)
    if not images.number:
        return Result(manifest=dataset, seconds=0.0, fresh=False)
    if images.dropped_copies:
        say(_describe_dropped(images.dropped_copies))
    if not is_summarized(dataset):
        say(
            f"{dataset.folder} has too many images to search for copies of the removed ones; "
            "`beam-tfr duplicates` lists all copies"
        )
    keep = UpdateOptions(codecs="keep")
    try:
        result = update(folder, {}, keep, beam_flags, command="remove", progress=progress, say=say)
    except (DataError, RunError, InterruptedRunError) as error:
        raise type(error)(
            *error.args,
            f"Only {REMOVED_FILE} was written: it keeps these images out of updates. Run the same "
            "command again to take them down now",
        ) from error
    return dataclasses.replace(result, copies_that_stay=images.copies_that_stay)


def _describe_dropped(keys: Sequence[str]) -> str:
    named = join_texts(keys, most=_MOST_NAMED, separator=", ")
    images = counted(len(keys), "image")
    return (
        f"{images} that `duplicates=drop` rejected as copies of the removed ones are also kept "
        f"out: {named}"
    )


def _check_all_found(dataset: Manifest, selection: ImageSelection, images: FoundImages) -> None:
    """Checks that the dataset has all images to be removed.

    Raises:
        DataError: some images are missing.
    """
    if images.missing:
        raise DataError(
            f"{_describe_missing(dataset, images)}: nothing was removed. Keys must be spelled as "
            f"in the contents, such as {images.some_key}. Correct the list, or use "
            "`allow_missing=` to remove the others and keep the missing ones out of later updates"
        )
    if selection.where and not images.number:
        raise DataError(f"no image in {dataset.folder} has these values: nothing was removed")


def _describe_missing(dataset: Manifest, images: FoundImages) -> str:
    named = ", ".join(images.missing[:_MOST_NAMED])
    if len(images.missing) > _MOST_NAMED:
        named += ", …"
    number = len(images.missing)
    return f"{dataset.folder} does not have {number:,} of the specified images: {named}"


def _names_input(changes: Mapping[str, Any]) -> bool:
    """Whether options specify an input."""
    return not changes.keys().isdisjoint(INPUTS)


def _stand_in_for_input(dataset: Manifest, update_options: UpdateOptions) -> dict[str, Any]:
    """Returns options that replace a missing input: the images of the dataset."""
    if update_options.compare != "auto":
        raise UsageError(
            "has no effect without `input=` or `table=`, because nothing is compared",
            option="compare",
            value=update_options.compare,
        )
    if update_options.is_given("max_removed"):
        raise UsageError(
            "has no effect without `input=` or `table=`, because no image is dropped",
            option="max_removed",
            value=update_options.max_removed,
        )
    return {
        "input" if "layout" in dataset.options else "table": dataset.folder,
        # The rejects were accepted when the dataset was made.
        "max_rejects": 1.0,
        "allow_empty": (*dataset.class_names, *dataset.splits),
    }


def _open_input(options: ConvertOptions, *, dataset: Manifest, changes: Mapping[str, Any]) -> Input:
    """Opens the input, or the dataset's own list of its images."""
    if not _names_input(changes):
        return open_dataset(options, dataset, changes)
    source = _open_new(options, dataset, changes)
    first = source.plan.first
    if first:
        renamed = find_renamed_classes(dataset, options)
        first = [renamed.get(name, name) for name in first]
    else:
        first = classes_in_own_order(dataset, options)
    plan = dataclasses.replace(source.plan, first=first)
    return dataclasses.replace(source, plan=plan)


def _open_new(options: ConvertOptions, dataset: Manifest, changes: Mapping[str, Any]) -> Input:
    """Opens the input of an update, with the options of the dataset.

    Raises:
        UsageError: the input does not match these options; if it lacks the column of splits, the
            message says which table the column is from.
    """
    try:
        return open_source(options, dataset.options.get("classes"))
    except UsageError as error:
        column = options.split_column
        is_missing = f"there is no column {quote(column)}" in str(error)
        if not column or "split_column" in changes or not is_missing:
            raise
        raise UsageError(
            f"{error}. {dataset.folder} has its splits from this column: for other splits, such "
            "as those in names of tables, convert the tables again with `overwrite=`"
        ) from None


def _choose_update(
    options: ConvertOptions,
    source: Input,
    *,
    dataset: Manifest,
    update_options: UpdateOptions,
    command: str,
    say: Callable[[str], object],
    settles: bool,
    drop_limit: DropLimit | None,
) -> StepBuilder:
    """Chooses what the update copies, and adds the codecs of copied records to the options.

    Args:
        settles: whether the update groups or drops the copies in the dataset.
        drop_limit: how many images the update may drop; None for all.
    """
    base, kept_codecs = choose_base(dataset, source, update_options, say)
    copies = base is not None and base.copies
    if not copies and isinstance(source.origin, BaseDataset):
        raise UsageError(f"{dataset.folder}: {NEEDS_IMAGES}")
    if kept_codecs:
        data_options = {**source.plan.options, KEPT_CODECS: kept_codecs}
        plan = dataclasses.replace(source.plan, options=data_options)
        source = dataclasses.replace(source, plan=plan)
    splits_of = _choose_splits_of(options, source, dataset, update_options)
    settling = {}
    if base and isinstance(source.origin, BaseDataset) and settles:
        settling = steps_that_settle(options.duplicates, base)
    return functools.partial(
        Convert,
        options,
        source,
        base=base,
        update=Update(command, counted=base is not None, resplit=update_options.resplit),
        splits_of=splits_of,
        before=BaseDataset.of(dataset),
        drop_limit=drop_limit,
        **settling,
    )


def _limit_drops(
    options: ConvertOptions,
    dataset: Manifest,
    update_options: UpdateOptions,
    changes: Mapping[str, Any],
) -> DropLimit | None:
    """Returns how many images an update may drop; None without an input, which drops none."""
    if not _names_input(changes):
        return None
    return DropLimit(
        dataset.folder,
        dataset.counts["written"],
        update_options.max_removed,
        options.limit,
    )


def _choose_splits_of(
    options: ConvertOptions, source: Input, dataset: Manifest, update_options: UpdateOptions
) -> BaseDataset | None:
    """Returns the dataset if its images keep their splits; otherwise None, as without `stratify`.

    Raises:
        UsageError: images would keep a split that no longer exists, or `resplit` has no effect.
    """
    if update_options.resplit:
        if isinstance(source.origin, BaseDataset):
            raise UsageError(NEEDS_IMAGES, option="resplit", value=True)
        if not options.stratify:
            raise UsageError("`resplit=` has no effect without `stratify=`")
    splits_of = _find_splits_of(options, dataset, update_options)
    if splits_of is None:
        return None
    gone = [name for name in dataset.split_names if name not in options.shares]
    if gone and not isinstance(source.origin, BaseDataset):
        raise UsageError(
            f"would leave images of {dataset.folder} in {gone[0]}, which is not one of the splits "
            f"({', '.join(options.shares)}): `resplit=` divides all images again",
            option=options.shares_option,
        )
    return splits_of


def _find_splits_of(
    options: ConvertOptions, dataset: Manifest, update_options: UpdateOptions
) -> BaseDataset | None:
    """Returns the dataset if its images keep their splits; otherwise None."""
    if update_options.resplit or not options.stratify:
        return None
    return BaseDataset.of(dataset)
