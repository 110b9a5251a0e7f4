"""Chooses where the splits of rows come from if no option says so.

Splits come from image lists next to the annotations of Pascal VOC, or from the paths of tables.
"""

import collections
import contextlib
import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from beam_tfr.console.terminal import counted
from beam_tfr.inputs.split_lists import describe_split_lists
from beam_tfr.schema.dataset import sort_splits
from beam_tfr.schema.errors import UsageError
from beam_tfr.tables import places, roles
from beam_tfr.tables.base import table_error
from beam_tfr.tables.formats import format_of
from beam_tfr.tables.image_sets import (
    UNLISTED,
    ImageSets,
    clear_caches,
    name_of_image,
    read_image_sets,
)
from beam_tfr.tables.our_exports import read_export_splits
from beam_tfr.tables.paths import folder_of


class SplitSource(NamedTuple):
    """The source of splits.

    Attributes:
        role: the step that assigns each row its split.
        warnings: lines about the source.
        given: where the splits come from, and their names; an empty string unless there are several
            splits.
    """

    role: roles.Role = roles.OneSplit()
    warnings: tuple[str, ...] = ()
    given: str = ""


def describe_splits(tables: Sequence[str], folder: str) -> str:
    """Says where several splits of rows come from, and names them, or returns an empty string.

    Args:
        tables: all tables.
        folder: the folder of all tables, with a trailing slash.
    """
    if all(format_of(table).of_one_image for table in tables):
        with contextlib.suppress(UsageError):  # such lists are not used
            image_sets = _choose_image_sets(tables)
            if image_sets.given:
                return image_sets.given
    tables_of = places.group_by_split(tables, folder, read_export_splits(folder))
    return places.describe_tables(tables_of) if len(tables_of.keys() - {""}) > 1 else ""


def choose_split_source(
    tables: Sequence[str],
    folder: str,
    images: Sequence[str] = (),
    root: str = "",
    *,
    is_of_all: bool = False,
) -> SplitSource:
    """Chooses where splits come from.

    Args:
        tables: all tables.
        folder: the folder of all tables, with a trailing slash.
        images: paths of the images of the first rows, relative to the folder of all images.
        root: the folder of all images, with a trailing slash.
        is_of_all: whether there is one table with rows of all splits, whatever its name suggests.

    Raises:
        UsageError: only some tables name a split, or lists of images conflict or are incomplete.
    """
    image_sets = SplitSource()
    if all(format_of(table).of_one_image for table in tables):
        image_sets = _choose_image_sets(tables)
        if isinstance(image_sets.role, roles.ImageSetRole):
            return image_sets
    export_splits = read_export_splits(folder)
    tables_of = {} if is_of_all else places.name_splits(tables, folder, export_splits)
    if tables_of:
        warnings = filter(None, [*image_sets.warnings, places.describe_splits(tables_of)])
        shared_splits = places.find_shared_splits(path[len(folder) :] for path in tables)
        by_place = roles.PlaceRole(export_splits=export_splits, shared_splits=shared_splits)
        return SplitSource(by_place, tuple(warnings))
    image_places = places.describe_image_places(images)
    texts = [
        *image_sets.warnings,
        image_places,
        places.describe_image_names(images),
        places.describe_unused_places(tables, folder),
        places.describe_seeming_splits(tables, folder),
        _describe_unread_lists(tables, folder, images, root),
    ]
    role = roles.OneSplit(is_told=bool(image_places))
    return SplitSource(role, tuple(filter(None, texts)))


def _describe_unread_lists(
    tables: Sequence[str], folder: str, images: Sequence[str], root: str
) -> str:
    """Returns the message about split lists near tables or images, or an empty string."""
    if not images:
        return ""
    paths = [f"{root}{image}" for image in images]
    return describe_split_lists([folder, root], paths, tables=tables)


def _choose_image_sets(tables: Sequence[str]) -> SplitSource:
    """Returns image lists next to annotations as the source, or the default source.

    Raises:
        UsageError: some folders of annotations have lists in `ImageSets`, and others do not; or all
            images of a list are in another list.
    """
    clear_caches()
    images_of = collections.defaultdict[str, list[str]](list)
    for table in tables:
        images_of[folder_of(table)].append(name_of_image(table))
    image_sets = {folder: _read_image_sets(folder) for folder in images_of}
    with_lists = [folder for folder, sets in image_sets.items() if sets.lists]
    without = [folder for folder, sets in image_sets.items() if not sets.lists]
    if not with_lists:
        return SplitSource()
    counts = _count_images(images_of, image_sets)
    first_list = image_sets[with_lists[0]].lists[0]
    if counts.keys() == {UNLISTED}:
        return _leave_out_lists(first_list, "it names none of the images")
    if without and "/ImageSets/" not in first_list:
        return _leave_out_lists(first_list, f"there is no list for {without[0]}")
    if without:
        raise _missing_lists_error(without[0], with_lists[0])
    lists = _describe_lists(first_list, counts, _count_missing(images_of, image_sets))
    warning = f"{lists}; `splits=train=1` puts all images into one split"
    return SplitSource(
        roles.ImageSetRole(),
        (warning, *_collect_notes(image_sets.values())),
        given=lists if len(counts) > 1 else "",
    )


def _missing_lists_error(without: str, with_lists: str) -> UsageError:
    """Returns the error for a folder of annotations without image lists if another has lists."""
    return table_error(
        without,
        "has no lists of images such as ImageSets/Main/train.txt next to it, but "
        f"{with_lists} has: add lists, or put all images into one split: `splits=train=1`",
    )


def _count_images(
    images_of: Mapping[str, Sequence[str]], image_sets: Mapping[str, ImageSets]
) -> collections.Counter[str]:
    """Returns split -> number of images, given the images and lists of each folder."""
    counts = collections.Counter[str]()
    for folder, images in images_of.items():
        counts.update(map(image_sets[folder].split_of, images))
    return counts


def _count_missing(
    images_of: Mapping[str, Sequence[str]], image_sets: Mapping[str, ImageSets]
) -> int:
    """Counts the images that are in lists but that no file describes; see `_count_images`."""
    with_files = {*itertools.chain.from_iterable(images_of.values())}
    listed = {*itertools.chain.from_iterable(sets.splits for sets in image_sets.values())}
    return len(listed - with_files)


def _collect_notes(image_sets: Collection[ImageSets]) -> Iterator[str]:
    """Yields the notes on image lists, without repeats."""
    yield from dict.fromkeys(note for sets in image_sets for note in sets.notes)
    rest = next(filter(None, (sets.rest for sets in image_sets)), "")
    if rest:
        yield f"{rest} has the images in trainval.txt that the list of the other split lacks"


def _leave_out_lists(path: str, reason: str) -> SplitSource:
    """Returns the default source, with a line that says that existing lists are not used."""
    text = f"{path} is not used as a list of the images in a split, since {reason}"
    return SplitSource(warnings=(text,))


def _read_image_sets(folder: str) -> ImageSets:
    try:
        return read_image_sets(folder)
    except OSError as error:
        problem = f"the lists of images next to it cannot be read: {error.strerror or error}"
        raise table_error(folder, problem) from error


def _describe_lists(first_list: str, counts: Mapping[str, int], num_missing: int) -> str:
    """Returns the message about splits that come from image lists."""
    listed = [split for split in sort_splits(counts) if split != UNLISTED]
    splits = ", ".join(f"{split} ({counted(counts[split], 'image')})" for split in listed)
    message = f"lists of images give the splits: {splits or 'none'}, such as {first_list}"
    if counts[UNLISTED]:
        message += (
            f"; {counted(counts[UNLISTED], 'image')} that no list names go to the split {UNLISTED}"
        )
    if num_missing:
        message += f"; no XML file in the tables for {counted(num_missing, 'name')} in the lists"
    return message
