"""Finds folders of images that a layout takes for classes, and that hardly are.

Or that are classes within classes.
"""

import collections
import itertools
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import NamedTuple

from beam_tfr.console.terminal import counted
from beam_tfr.layouts.mask_folders import IMAGES
from beam_tfr.layouts.parsing import DEFAULT_LAYOUT, Layout, parse_layout
from beam_tfr.layouts.split_names import (
    are_different,
    are_splits,
    find_split_folders,
    split_of_folder,
)
from beam_tfr.schema.differences import common_start, join_texts


def find_last_names(folders: Iterable[str]) -> dict[str, set[str]]:
    """Folder -> the names of the folders of images in it; the common one is empty."""
    names_in = collections.defaultdict[str, set[str]](set)
    for folder in folders:
        parent, _, name = folder.rpartition("/")
        names_in[parent].add(name)
    return names_in


def describe_last_folders(folders: Mapping[str, int]) -> str:
    """A message about classes that hardly are classes; empty if there are none.

    The folders of images, which the default layout takes for classes, have the same names below
    each of several folders, or only names such as images; or there is only one.

    Args:
        folders: folder of images, whose last part is their class -> number of images.
    """
    names_in = find_last_names(folders)
    names = sorted(set().union(*names_in.values()))
    if len(names_in) < 2:
        return _describe_folders_of_one(names)
    return _describe_folders_of_several(names, names_in)


def _describe_folders_of_one(names: Sequence[str]) -> str:
    """A message about the folders of images, which lie in one folder and have these names."""
    if len(names) == 1 and names != [""] and not split_of_folder(names[0]):
        return (
            f"the only class is {names[0]}, the folder of all images: `layout='*'` converts them "
            "without classes"
        )
    hold_images = all(map(IMAGES.fullmatch, names))
    if not hold_images or not names or are_different(find_split_folders(names)):
        return ""
    return (
        f"the classes are {join_texts(names, most=3, separator=', ')}, folders of images: "
        "`layout='*'` converts them without classes"
    )


def _describe_folders_of_several(names: Sequence[str], names_in: Mapping[str, set[str]]) -> str:
    """A message about the folders of images, which lie in several folders.

    Args:
        names: all their names.
        names_in: folder -> the names of those in it.
    """
    if "" in names_in or are_splits({parent.rpartition("/")[2] for parent in names_in}):
        return ""
    if not all(map(IMAGES.fullmatch, names)) and not _are_equal([*names_in.values()]):
        return ""
    level = len(common_start([folder.split("/") for folder in names_in]))
    outer_names = {parent.split("/")[level] for parent in names_in if parent.count("/") >= level}
    if are_different(outer_names) and are_splits(outer_names):
        return ""  # which `check_split_folders` refuses
    first, second, *_ = sorted(names_in)
    layout = parse_layout("{label}/**").below(level)
    return (
        f"the classes are {join_texts(names, most=3, separator=', ')}: folders below each of "
        f"{len(names_in):,} others, such as {first} and {second}; if the classes are "
        f"{join_texts(sorted(outer_names), most=3, separator=', ')} instead, `layout='{layout}'` "
        f"takes them, else give `layout='{DEFAULT_LAYOUT}'`"
    )


def _are_equal(sets: Sequence[set[str]]) -> bool:
    return all(names == sets[0] for names in sets)


class DeepFolder(NamedTuple):
    """A folder of a class that lies deeper than those of other classes.

    Attributes:
        path: of the folder, whose last part is its class.
        outer: the folder above it that is, or looks like, that of a class.
        images: how many are in it.
    """

    path: str
    outer: str
    images: int


def find_deep_folders(folders: Mapping[str, int], layout: Layout) -> list[DeepFolder]:
    """Finds folders of classes that lie deeper than those of other classes.

    They are within the folder of another class, at any depth, or only below the others, such as
    dog/2021/summer beside cat, and not of a class that is beside it too.

    Args:
        folders: folder of images, whose last part is their class -> number of images.
        layout: how they were read.
    """
    if layout.parts[-2:] != ("{label}", "*") or not folders:
        return []
    shallowest = min(folder.count("/") for folder in folders)
    shallow = [folder for folder in folders if folder.count("/") == shallowest]
    classes = {folder.rpartition("/")[2] for folder in shallow}
    deep_folders = []
    for folder, images in folders.items():
        outer = _find_first_above(folder, folders)
        if not outer and folder.rpartition("/")[2] not in classes:
            outer = "/".join(folder.split("/")[: shallowest + 1])
        if outer:
            deep_folders.append(DeepFolder(folder, outer, images))
    return deep_folders


def _find_first_above(folder: str, folders: Container[str]) -> str:
    """The first folder above another, from the common one, that is one of some; or empty."""
    parents = itertools.accumulate(folder.split("/")[:-1], "{}/{}".format)
    return next((parent for parent in parents if parent in folders), "")


def describe_deep_folders(deep_folders: Sequence[DeepFolder], layout: Layout) -> str:
    """A message about the result of `find_deep_folders`; empty if there are none."""
    if not deep_folders:
        return ""
    images = sum(folder.images for folder in deep_folders)
    example = min(deep_folders, key=lambda folder: (-folder.images, folder.path))
    inner_class = example.path.rpartition("/")[2]
    outer_class = example.outer.rpartition("/")[2]
    levels = example.outer.count("/") + 2 - len(layout.parts)
    deep_layout = layout.deep.below(levels)
    takes = f"{outer_class!r}"
    if split_of_folder(outer_class) and "{split}" not in layout.parts:
        deep_layout = Layout(("{split}", *layout.deep.parts)).below(levels)
        takes = f"{outer_class!r} as split"
    return (
        f"{counted(images, 'image')} in deeper folders than those of other classes, such as "
        f"{example.path}: class {inner_class!r}, not {outer_class!r}; "
        f"`layout='{deep_layout}'` takes {takes}; or move them, leave them out with `exclude=`, "
        f"or give classes in a `table=`{_describe_merged(deep_folders)}"
    )


def _describe_merged(deep_folders: Sequence[DeepFolder]) -> str:
    """Which deep folders of one name are one class, such as bar/indoor and church/indoor."""
    paths_of = collections.defaultdict[str, dict[str, str]](dict)  # class -> outer folder -> path
    for folder in deep_folders:
        paths_of[folder.path.rpartition("/")[2]].setdefault(folder.outer, folder.path)
    merged = {label: paths for label, paths in paths_of.items() if len(paths) > 1}
    if not merged:
        return ""
    label = min(merged)
    first, second, *_ = sorted(merged[label].values())
    return f"; folders of one name, such as {first} and {second}, are one class"
