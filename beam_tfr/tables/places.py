"""Finds splits in the paths of tables: in the names of their folders and files."""

import collections
import functools
import re
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from typing import NamedTuple

from beam_tfr.console.terminal import counted
from beam_tfr.layouts.split_names import (
    DEFAULT_SPLIT,
    describe_split_names,
    find_split_folders,
    seeming_split,
    split_around,
    split_of_folder,
    splits_of_file,
    splits_within,
)
from beam_tfr.schema.dataset import sort_splits
from beam_tfr.schema.errors import UsageError
from beam_tfr.schema.spelling import spell_option
from beam_tfr.tables.base import table_error
from beam_tfr.tables.formats import format_of, split_suffix
from beam_tfr.tables.our_exports import split_of_export

OTHER_WAYS = (
    "`splits=train=1` puts all rows into one split, and `split_column=` names a column of splits"
)
_CURES = (
    "add a column with the split of each row and name it in `split_column=`, give a table for each "
    "split, such as val.csv, or let `splits=` divide the rows"
)
_COCO_YEAR = "2017"
_FOLD = re.compile("fold")
_SEPARATOR = re.compile("(?<=[-_ ])")
_MOST_ENDS = 4  # endings of a name, one after each of its first words


class Place(NamedTuple):
    """A part of a table's path that names a split.

    Attributes:
        split: the split, in lower case.
        name: the folder name, or the part of the file name, that names the split: "train2017".
    """

    split: str
    name: str


def find_places(table: str, export_splits: frozenset[str] = frozenset()) -> list[Place]:
    """Finds the parts of a table's path that name splits, without repeats, outermost first.

    Args:
        table: the path of the table, relative to the folder of all tables.
        export_splits: the splits of our export, if the table belongs to one.
    """
    *folders, file = table.split("/")
    if format_of(file).of_one_image:
        file = ""  # the file has the name of an image
    split = split_of_export(file, export_splits)
    if split:
        return [Place(split, split)]
    return [*_find_places(tuple(folders), file)]


@functools.lru_cache
def _find_places(folders: Sequence[str], file: str) -> Collection[Place]:
    places = dict[str, Place]()
    for folder in folders:
        split = split_of_folder(folder)
        if split:
            places.setdefault(split, Place(split, folder))
    for split, word in splits_of_file(file).items():
        places.setdefault(split, Place(split, word))
    return places.values()


@functools.lru_cache  # called for each row of a table
def split_of_place(table: str, export_splits: frozenset[str] = frozenset()) -> str:
    """Returns the only split that the path of a table names, or an empty string."""
    places = find_places(table, export_splits)
    return places[0].split if len(places) == 1 else ""


def find_shared_splits(tables: Iterable[str]) -> dict[str, str]:
    """Finds folders of tables whose names have different splits after or before the same text.

    Examples are Final_Training and Final_Test, as in GTSRB.

    Args:
        tables: paths of all tables, relative to the folder of all tables.

    Returns:
        Name of a folder -> its split, in lower case.
    """
    names_at = collections.defaultdict[int, set[str]](set)  # depth -> names
    for folder in {table.rpartition("/")[0] for table in tables}:
        for depth, name in enumerate(folder.split("/")):
            names_at[depth].add(name)
    split_of = dict[str, str]()
    for names in names_at.values():
        for name, parts in find_split_folders(names).items():
            if parts.is_shared and split_of_folder(parts.split):
                split_of[name] = split_of_folder(parts.split)
    return split_of


def split_of_table(
    table: str, export_splits: frozenset[str], shared_splits: Mapping[str, str]
) -> str:
    """Returns the only split that the path of a table names, or an empty string.

    Args:
        table, export_splits: see `find_places`.
        shared_splits: result of `find_shared_splits`, for tables whose path names no other split.
    """
    split = split_of_place(table, export_splits)
    if split or not shared_splits or find_places(table, export_splits):
        return split
    splits = {shared_splits[name] for name in table.split("/")[:-1] if name in shared_splits}
    return min(splits) if len(splits) == 1 else ""


def name_splits(
    tables: Sequence[str], folder: str, export_splits: frozenset[str]
) -> Mapping[str, list[str]]:
    """Returns the splits that the paths of tables name.

    Args:
        tables: the paths of tables, at least one.
        folder: the folder of all tables, with a trailing slash.
        export_splits: see `find_places`.

    Returns:
        Split -> its tables, relative to the folder; an empty mapping if no path names a split.

    Raises:
        UsageError: some paths name a split, and some do not.
    """
    tables_of = group_by_split(tables, folder, export_splits)
    unnamed = tables_of.pop("", [])
    if tables_of and unnamed:
        raise _refuse_mixture(folder, tables_of, unnamed[0])
    return tables_of


def group_by_split(
    tables: Sequence[str], folder: str, export_splits: frozenset[str]
) -> dict[str, list[str]]:
    """Groups tables by the splits that their paths name; "" is the group of tables without a split.

    Args:
        tables, folder, export_splits: see `name_splits`.
    """
    names = [path[len(folder) :] for path in tables]
    shared_splits = find_shared_splits(names)
    tables_of = collections.defaultdict[str, list[str]](list)
    for table in names:
        tables_of[split_of_table(table, export_splits, shared_splits)].append(table)
    return tables_of


def _refuse_mixture(
    folder: str, tables_of: Mapping[str, Sequence[str]], unnamed: str
) -> UsageError:
    """Returns the error for tables some of whose paths name a split while others do not."""
    split, tables = next(iter(tables_of.items()))
    splits = [place.split for place in find_places(unnamed)]
    what = f"names {' and '.join(splits)}" if splits else "names no split"
    return table_error(
        folder + tables[0],
        f"its folder or name names the split {split}, but {folder}{unnamed} {what}; rename one of "
        f"them, omit one from `table=`, or say where splits come from: {OTHER_WAYS}",
    )


def describe_splits(tables_of: Mapping[str, Sequence[str]]) -> str:
    """Returns the message about splits that come from the paths of tables.

    Returns an empty string if all rows go to the default split.
    """
    if tables_of.keys() == {DEFAULT_SPLIT}:
        return ""
    return f"{describe_tables(tables_of)}; {OTHER_WAYS}"


def describe_tables(tables_of: Mapping[str, Sequence[str]]) -> str:
    """Lists the splits that the paths of tables name, with the number of tables for each."""
    parts = []
    for split in sort_splits({*tables_of} - {""}):
        tables = tables_of[split]
        parts.append(f"{split} ({counted(len(tables), 'table')}, such as {tables[0]})")
    return f"folders or names of tables give the splits: {', '.join(parts)}"


def describe_unused_places(tables: Sequence[str], folder: str) -> str:
    """Returns the message about paths that name splits ambiguously, or an empty string.

    All rows go to the default split then.
    """
    splits = [place.split for place in find_places(tables[0][len(folder) :])]
    if splits:
        reason = f"names several splits, {' and '.join(splits)}, so"
        if len(splits) == 1:
            reason = f"names the split {splits[0]}, but seems to have rows of several, so"
        return (
            f"{tables[0]} {reason} all rows go to {DEFAULT_SPLIT}: `split_column=` names a column "
            "of splits, and `splits=` divides the rows"
        )
    split = split_around(folder)
    if split in ("", DEFAULT_SPLIT):
        return ""
    return (
        f"all tables are in {folder}, but their rows go to {DEFAULT_SPLIT}: "
        f"{spell_option('splits', f'{split}=1')} puts them into {split}"
    )


def describe_seeming_splits(tables: Sequence[str], folder: str) -> str:
    """Returns the message about file names that seem to name splits, such as labelsTrain.csv.

    Returns an empty string unless each table has such a name, and the names differ. All rows go to
    the default split.
    """
    if format_of(tables[0]).of_one_image:
        return ""
    names = [path[len(folder) :] for path in tables]
    example_of = dict[str, str]()  # apparent split -> the first table
    for name in names:
        example_of.setdefault(seeming_split(name), name)
    if "" in example_of or len(example_of) < 2:
        return ""
    examples = [*example_of.values()][:2]
    start = (
        f"names of tables seem to name splits, such as {' and '.join(examples)}, but all rows go "
        f"to {DEFAULT_SPLIT}"
    )
    if all(map(_FOLD.match, example_of)):
        return f"{start}: {_CURES}"
    cure = "them so that the split is a whole word, as in labels_train.csv and labels_test.csv"
    if len({example.rpartition("/")[2] for example in examples}) == 1:
        cure = "their folders after the splits, such as train/ and test/"
    return f"{start}: rename {cure}; {OTHER_WAYS}"


def describe_image_places(images: Iterable[str], shares_option: str = "") -> str:
    """Returns the message about images in folders named like splits, or an empty string.

    There is no message if the only split is the default split, or if only some images are in such
    folders, which may be class folders.

    Args:
        images: paths of the first images, relative to the folder of all images.
        shares_option: the option that divides the rows, or an empty string.
    """
    image_of = dict[str, str]()  # folder -> its first image
    for image in images:
        image_of.setdefault(image.rpartition("/")[0], image)
    example_of = dict[str, str]()  # split, or an empty string -> the first image
    for folder, split in splits_within(image_of.keys()).items():
        example_of.setdefault(split, image_of[folder])
    splits = find_ignored_splits(example_of.keys())
    if not splits:
        return ""
    names = ", ".join(sort_splits(splits))
    example = example_of[sort_splits(splits)[-1]]
    start = f"images are in folders named like splits, {names}, such as {example}, but"
    if shares_option:
        return (
            f"{start} `{shares_option}=` divides all rows: to keep these splits, give a column of "
            "them as `split_column=` instead, or a table for each split"
        )
    return f"{start} all rows go to {DEFAULT_SPLIT}: {_CURES}"


def describe_image_names(images: Iterable[str]) -> str:
    """Returns the message about image names that seem to name splits, or an empty string."""
    text = describe_split_names(image.rpartition("/")[2] for image in images)
    return f"{text}: {_CURES}" if text else ""


def describe_ignored_splits(images: Mapping[str, int]) -> str:
    """Returns the message about images in folders named like splits, or an empty string.

    Args:
        images: split that a folder is named after -> number of images.
    """
    if not images:
        return ""
    number = counted(sum(images.values()), "image")
    verb = "is" if sum(images.values()) == 1 else "are"
    return (
        f"{number} {verb} in folders named like splits, {', '.join(sort_splits(images))}, but all "
        f"rows go to {DEFAULT_SPLIT}: {_CURES}"
    )


def find_ignored_splits(splits: Set[str]) -> Set[str]:
    """Returns the splits that image folders are named after, if rows go to the default split.

    The set is empty if the default split is the only split, or if only some images are in such
    folders, which may be class folders.

    Args:
        splits: the splits that the folders of all images are named after; an empty string stands
            for no split.
    """
    named = splits - {""}
    if named <= {DEFAULT_SPLIT} or (len(named) == 1 and "" in splits):
        return frozenset()
    return named


def image_folder_names(table: str) -> list[str]:
    """Returns possible names for a folder with the images of a table, from the table's path.

    Examples are `train2017`, `train` and `images_train2017` for instances_train2017.json. COCO's
    own name, `train2017`, is also possible for custom_train.json, since tools that expect COCO use
    it. If the path names no split, the end of the file name counts: `default` for
    instances_default.json, as in CVAT.
    """
    places = find_places(table)
    if len(places) == 1:
        split, name = places[0]
        bare = name.rstrip("0123456789")
        names = [name, bare, f"{split}{_COCO_YEAR}"]
        for own_name in dict.fromkeys([name, bare]):
            names += [f"images_{own_name}", f"{own_name}_images"]
        return [*dict.fromkeys(names)]
    if format_of(table).of_one_image:
        return []
    stem = split_suffix(table.rpartition("/")[2])[0]
    words = _SEPARATOR.split(stem)
    ends = ["".join(words[first:]) for first in range(min(len(words), _MOST_ENDS))]
    return [end for end in ends if not end.isdigit()]
