"""Finds folders that a layout mistakes for classes, and class folders inside other classes."""

import collections
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from beam_tfr.console.terminal import counted
from beam_tfr.layouts.name_pattern import IMAGES
from beam_tfr.layouts.parsing import DEFAULT_LAYOUT, Layout, parse_layout
from beam_tfr.layouts.split_names import (
    are_different,
    are_splits,
    find_seeming_splits,
    find_split_folders,
    find_unmarked_train,
    split_of_folder,
    split_within,
)
from beam_tfr.schema.differences import common_start, join_names
from beam_tfr.schema.spelling import spell_option

_DIGITS = re.compile("[0-9]+")
_NUMBER = re.compile("[0-9]{1,15}")
_RANGES = (100, 1_000, 10_000)  # possible numbers of files in a folder
_OF_CAMERA = re.compile(r"(?:^|/)[1-9][0-9]{2}[A-Z0-9_]{5}$")  # 100CANON, as in the DCF standard
_MONTH = "(?:0[1-9]|1[0-2])"
_DATE = re.compile(
    rf"(?:^|/)(?:19|20)[0-9]{{2}}(?:[-_./]{_MONTH}(?:[-_./][0-3][0-9])?|{_MONTH}[0-3][0-9])"
    r"(?:[^0-9/][^/]*)?$"
)  # 2021-05, 2021/05/03, 20210503_Rome
_LEAST_WORD = 3  # characters; a word this long is hardly part of another name by chance


def find_last_names(folders: Iterable[str]) -> dict[str, set[str]]:
    """Returns folder -> the names of the image folders in it; "" stands for the common folder."""
    names_in = collections.defaultdict[str, set[str]](set)
    for folder in folders:
        parent, _, name = folder.rpartition("/")
        names_in[parent].add(name)
    return names_in


def describe_last_folders(folders: Mapping[str, int]) -> str:
    """Returns a message about classes that are probably not classes, or an empty string.

    The default layout uses folders of images as classes. Classes are doubtful if there is only one
    class, if several folders contain the same names, or if all names suggest images or parts of a
    class.

    Args:
        folders: image folder, whose last part is its class -> number of images.
    """
    names_in = find_last_names(folders)
    names = sorted(set().union(*names_in.values()))
    if len(names_in) < 2:
        are_in_split = any(split_within(folder) for folder in names_in)
        return "" if are_in_split and len(names) == 1 else _describe_folders_of_one(names)
    return _describe_folders_of_several(names, names_in)


def _describe_folders_of_one(names: Sequence[str]) -> str:
    """Returns a message about image folders with these names and a common parent folder."""
    if len(names) == 1 and names != [""] and not split_of_folder(names[0]):
        return (
            f"the only class is {names[0]}, the folder of all images: `layout='*'` converts "
            "images without classes"
        )
    hold_images = all(map(IMAGES.fullmatch, names))
    if not hold_images or not names or are_different(find_split_folders(names)):
        return ""
    return _describe_image_folders(names)


def _describe_image_folders(names: Sequence[str]) -> str:
    """Returns the message about classes whose names only say that they are image folders."""
    return (
        f"the classes are {join_names(names)}, which are folders of images: "
        "`layout='*'` converts images without classes"
    )


def _describe_folders_of_several(names: Sequence[str], names_in: Mapping[str, set[str]]) -> str:
    """Returns a message about image folders that have several parent folders.

    Args:
        names: names of all image folders.
        names_in: folder -> names of the image folders in it.
    """
    if "" in names_in or are_splits({parent.rpartition("/")[2] for parent in names_in}):
        return ""
    have_images = all(map(IMAGES.fullmatch, names))
    merged = _find_merged(names_in)
    if not have_images and not merged and not are_parts(names_in):
        return ""
    level, outer_names = _find_outer_names(names_in)
    if find_split_folders(outer_names) or find_seeming_splits(outer_names):
        return ""  # `check_split_folders` refuses them, or `describe_ignored_split` reports them
    if have_images and all(map(IMAGES.fullmatch, outer_names)):
        return _describe_image_folders(names)
    first, second, *_ = sorted(names_in)
    what = f"folders below each of {len(names_in):,} others, such as {first} and {second}"
    rename = ""
    if merged and not have_images:
        first, second, *_ = merged
        what = f"folders with the same name, such as {first} and {second}, are one class"
        own_name = first.replace("/", "_")
        rename = f", or rename folders that are classes of their own, such as {own_name}"
    return (
        f"the classes are {join_names(names)}: {what}; {_suggest_outer_classes(level, outer_names)}"
        f"use {spell_option('layout', DEFAULT_LAYOUT)}{rename}"
    )


def _find_outer_names(folders: Collection[str]) -> tuple[int, set[str]]:
    """Returns the first level where folders differ in more than splits, and the names there."""
    level = len(common_start([folder.split("/") for folder in folders]))
    names = _list_names(folders, level)
    if find_unmarked_train(names):  # reported elsewhere
        level += 1
        names = _list_names(folders, level)
    return level, names


def _suggest_outer_classes(level: int, names: Collection[str]) -> str:
    """Suggests a layout whose classes are the folders at a level, if there are several classes."""
    if len(names) < 2:
        return ""
    layout = parse_layout("{label}/**").below(level)
    classes = join_names(sorted(names))
    return f"if the classes are {classes} instead, use {spell_option('layout', layout)}; otherwise "


def _list_names(folders: Iterable[str], level: int) -> set[str]:
    """Returns the names of folders at a level, counted from 0 below the common folder."""
    return {folder.split("/")[level] for folder in folders if folder.count("/") >= level}


def _find_merged(names_in: Mapping[str, set[str]]) -> list[str]:
    """Returns all paths to the first name that several folders contain, or an empty list.

    Args:
        names_in: folder -> names of the image folders in it.
    """
    paths_of = collections.defaultdict[str, list[str]](list)
    for parent in sorted(names_in):
        for name in names_in[parent]:
            paths_of[name].append(f"{parent}/{name}")
    merged = [name for name, paths in paths_of.items() if len(paths) > 1]
    return paths_of[min(merged)] if merged else []


def are_parts(names_in: Mapping[str, set[str]]) -> bool:
    """Whether the names of folders suggest parts of the outer folders' contents.

    The names contain the names of the outer folders, as in Archery/v_Archery_g01, or consist of the
    same word and a number, as in dog/clip1, dog/clip2 and cat/clip3.

    Args:
        names_in: folder -> names of the image folders in it.
    """
    all_names = [name for names in names_in.values() for name in names]
    if len(all_names) == len(names_in):
        return False
    have_outer_name = True
    for parent, names in names_in.items():
        outer_name = parent.rpartition("/")[2].lower()
        is_in_all = all(outer_name in name.lower() for name in names)
        have_outer_name = have_outer_name and is_in_all and len(outer_name) >= _LEAST_WORD
    words = {_DIGITS.sub("", name) for name in all_names}
    has_word = any(map(str.isalpha, min(words)))
    are_numbered = len(words) == 1 and has_word and len({*all_names}) > 1
    return have_outer_name or are_numbered


class DeepFolder(NamedTuple):
    """A class folder that is deeper than other class folders.

    Attributes:
        path: path of the folder, whose last part is the class.
        outer: an outer folder that is a class, or looks like one.
        images: number of images in the folder.
    """

    path: str
    outer: str
    images: int


def find_deep_folders(folders: Mapping[str, int], layout: Layout) -> list[DeepFolder]:
    """Finds class folders that are deeper than other class folders.

    Such a folder is inside the folder of another class, at any depth. Or it is merely below the
    level of all other classes, like dog/2021/summer next to cat, and its class has no folder at
    that level.

    Args:
        folders: image folder, whose last part is its class -> number of images.
        layout: the layout that read the classes.
    """
    if layout.parts[-2:] != ("{label}", "*") or not folders:
        return []
    shallowest = min(folder.count("/") for folder in folders)
    shallow = [folder for folder in folders if folder.count("/") == shallowest]
    classes = {folder.rpartition("/")[2] for folder in shallow}
    outermost = _find_outermost(folders)
    deep_folders = []
    for folder, images in folders.items():
        outer = outermost.get(folder, "")
        if not outer and folder.rpartition("/")[2] not in classes:
            outer = "/".join(folder.split("/")[: shallowest + 1])
        if outer:
            deep_folders.append(DeepFolder(folder, outer, images))
    return deep_folders


def _find_outermost(folders: Iterable[str]) -> dict[str, str]:
    """Maps each folder inside another folder to the outermost folder that contains it."""
    outermost = dict[str, str]()
    outer = ""
    for folder in sorted(folders, key="{}/".format):
        if outer and folder.startswith(f"{outer}/"):
            outermost[folder] = outer
        else:
            outer = folder
    return outermost


def describe_deep_folders(deep_folders: Sequence[DeepFolder], layout: Layout) -> str:
    """Returns a message about the result of `find_deep_folders`, or an empty string."""
    if not deep_folders:
        return ""
    images = sum(folder.images for folder in deep_folders)
    example = min(deep_folders, key=lambda folder: (-folder.images, folder.path))
    inner_class = example.path.rpartition("/")[2]
    outer_class = example.outer.rpartition("/")[2]
    levels = example.outer.count("/") + 2 - len(layout.parts)
    deep_layout = layout.deep.below(levels)
    read = f"{outer_class!r}"
    if split_of_folder(outer_class) and "{split}" not in layout.parts:
        deep_layout = Layout(("{split}", *layout.deep.parts)).below(levels)
        read = f"{outer_class!r} as a split"
    return (
        f"{counted(images, 'image')} in deeper folders than those of other classes, such as "
        f"{example.path}: class {inner_class!r}, not {outer_class!r}; "
        f"{spell_option('layout', deep_layout)} reads {read}; or move them, leave them out with "
        f"`exclude=`, or name classes in a `table=`{_describe_merged(deep_folders)}"
    )


def _describe_merged(deep_folders: Sequence[DeepFolder]) -> str:
    """Names deep folders with the same name, and so the same class: bar/indoor, church/indoor."""
    paths_of = collections.defaultdict[str, dict[str, str]](dict)  # class -> outer folder -> path
    for folder in deep_folders:
        paths_of[folder.path.rpartition("/")[2]].setdefault(folder.outer, folder.path)
    merged = {label: paths for label, paths in paths_of.items() if len(paths) > 1}
    if not merged:
        return ""
    label = min(merged)
    first, second, *_ = sorted(merged[label].values())
    return f"; folders with the same name, such as {first} and {second}, are one class"


def describe_no_classes(keys: Collection[str]) -> str:
    """Returns a message about folders whose names are probably not classes, or an empty string.

    Args:
        keys: keys of some images.
    """
    return describe_ranges(keys) or describe_camera_folders(keys)


def describe_ranges(keys: Iterable[str]) -> str:
    """Returns a message about folders that each hold a range of numbered files, or an empty string.

    Such folders are not classes: 01000/01999.png in FFHQ, and 00001/000010000.jpg from img2dataset.

    Args:
        keys: keys of some images.
    """
    key_of = dict[int, str]()  # number of a folder -> a file in it
    pairs = set[tuple[int, int]]()  # numbers of a folder and of a file
    for key in keys:
        folder, _, name = key.rpartition("/")
        folder_name = folder.rpartition("/")[2]
        stem = name.partition(".")[0]
        if not (_NUMBER.fullmatch(folder_name) and _NUMBER.fullmatch(stem)):
            return ""
        pairs.add((int(folder_name), int(stem)))
        key_of[int(folder_name)] = key
    if len(key_of) < 2:
        return ""
    for size in _RANGES:
        are_ranges = all(number // size == folder for folder, number in pairs)
        if are_ranges or all(number // size * size == folder for folder, number in pairs):
            first, second, *_ = sorted(key_of.values())
            return (
                f"each folder holds files with a range of numbers, such as {first} and {second}: "
                "if folders are not classes, `layout='*'` converts images without classes"
            )
    return ""


def describe_camera_folders(keys: Iterable[str]) -> str:
    """Returns a message if all folders are named by cameras or after dates, or an empty string.

    Args:
        keys: keys of some images.
    """
    folders = sorted({key.rpartition("/")[0] for key in keys})
    for regex, kind in ((_OF_CAMERA, "as cameras do"), (_DATE, "after dates")):
        if len(folders) > 1 and all(map(regex.search, folders)):
            return (
                f"folders are named {kind}, such as {folders[0]}, and become classes: if they are "
                "not classes, `layout='*'` converts images without classes"
            )
    return ""


def describe_only_class(classes: Sequence[str], layout: str) -> str:
    """Returns a message if a chosen layout gives all images one class, or an empty string.

    Args:
        classes: all classes.
        layout: the option; `describe_last_folders` is about the default layout.
    """
    if len(classes) != 1 or "{label}" not in layout or layout == DEFAULT_LAYOUT:
        return ""
    return f"{spell_option('layout', layout)} gives all images one class, {classes[0]}"
