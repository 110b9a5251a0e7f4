"""Finds folder levels that are named like splits, and the layouts that read them."""

import collections
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from beam_tfr.layouts.class_folders import are_parts, find_last_names
from beam_tfr.layouts.name_pattern import IMAGES
from beam_tfr.layouts.parsing import DEFAULT_LAYOUT, parse_layout
from beam_tfr.layouts.split_names import (
    DEFAULT_SPLIT,
    SplitFolder,
    are_different,
    are_splits,
    find_split_folders,
    have_classes,
    split_of_folder,
)

_MOST_LEVELS = 12  # levels of possible splits, from the common folder down and the files up
_LEAST_READ = 0.9  # fraction of the images
_MARKS = re.compile("[*{}]")  # characters that layouts cannot have as text


class SplitLevel(NamedTuple):
    """The folders at a level that are named like splits.

    Attributes:
        layout: the layout that reads the folders as splits.
        images: name of each folder -> number of its images.
    """

    layout: str
    images: Mapping[str, int]

    @property
    def num_splits(self) -> int:
        """The number of different splits in the names of the folders; folds do not count."""
        folders = find_split_folders(self.images).values()
        return len({split_of_folder(folder.split) for folder in folders} - {""})


def find_split_levels(folders: Mapping[str, int]) -> Iterator[SplitLevel]:
    """Yields the levels with folders that are named like splits.

    The levels are counted from the files, lowest first, and then from the common folder.

    Args:
        folders: image folder -> number of images.
    """
    for level, images in _count_from_files(folders).items():
        in_splits = _list_within(folders, images)
        layouts = [_layout_above_files(in_splits, level), f"{{split}}/{'*/' * level}*"]
        yield SplitLevel(_choose_layout(layouts, in_splits, images), images)
    for level, images in _count_from_root(folders).items():
        in_splits = _list_within(folders, images)
        layouts = [_layout_below_splits(in_splits, level, images), "{split}/**"]
        layouts = [str(parse_layout(layout).below(level)) for layout in layouts]
        yield SplitLevel(_choose_layout(layouts, in_splits, images), images)


def _list_within(folders: Mapping[str, int], names: Iterable[str]) -> dict[str, int]:
    """Returns the folders with one of the names, and folders inside such folders."""
    known_names = {*names}
    return {
        folder: number
        for folder, number in folders.items()
        if not known_names.isdisjoint(folder.split("/"))
    }


def _choose_layout(
    layouts: Iterable[str], folders: Mapping[str, int], names: Collection[str]
) -> str:
    """Returns the first layout that reads splits from folders, or the last layout if none does.

    Args:
        layouts: layouts without the text around splits.
        folders: image folder inside a split folder -> number of images.
        names: names of the split folders.
    """
    spelled = [spell_split(layout, names) for layout in layouts]
    return next((layout for layout in spelled if _reads_splits(layout, folders)), spelled[-1])


def _reads_splits(layout: str, folders: Mapping[str, int]) -> bool:
    """Whether a layout reads splits from nearly all images that are in enough folders for it.

    Images in fewer folders, such as the images of a split without classes, can be left out.

    Args:
        layout: the layout.
        folders: image folder inside a split folder -> number of images.
    """
    parsed_layout = parse_layout(layout)
    images_of = collections.Counter[str]()  # split -> images; "" for none
    for folder, number in folders.items():
        if folder.count("/") + 2 >= len(parsed_layout.parts):
            values = parsed_layout.parse_key(f"{folder}/1") or {}
            images_of[values.get("split", "")] += number
    in_splits = sum(images_of[split] for split in find_split_folders(images_of))
    return 0 < images_of.total() * _LEAST_READ <= in_splits


def _count_from_files(folders: Mapping[str, int]) -> dict[int, collections.Counter[str]]:
    """Counts images: level above the files, lowest first -> name of a split -> number of images."""
    images = collections.defaultdict[int, collections.Counter[str]](collections.Counter)
    for folder, number in folders.items():
        lowest_names = folder.rsplit("/", _MOST_LEVELS)[-_MOST_LEVELS:]
        for level, name in enumerate(reversed(lowest_names)):
            images[level][name] += number
    splits = _keep_splits(images)
    # A class may be named like a split; if all are, the folders are splits without classes.
    if 0 in splits and splits[0].keys() != images[0].keys() and not _are_within_classes(folders):
        split_folders = find_split_folders(images[0])
        splits[0] = collections.Counter(
            {name: number for name, number in splits[0].items() if split_folders[name].is_shared}
        )
    return {level: images_in for level, images_in in splits.items() if images_in}


def _are_within_classes(folders: Iterable[str]) -> bool:
    """Whether several folders contain only splits, as in cat/train, cat/val and dog/train."""
    names_in = find_last_names(folders)
    names_in.pop("", None)
    with_splits = [names for names in names_in.values() if are_different(names)]
    return sum(map(are_splits, with_splits)) > 1


def _layout_above_files(folders: Mapping[str, int], level: int) -> str:
    """Returns the layout that reads splits from this level above the files."""
    if not level:
        return _layout_of_last_folders(folders)
    last_names = {folder.rpartition("/")[2] for folder in folders}
    hold_images = all(map(IMAGES.fullmatch, last_names))
    shallowest = min(folder.count("/") for folder in folders)
    if level == 1 and hold_images:
        layout = parse_layout("{split}/**")  # test/images/1.jpg, test/part1/1.jpg
        return str(layout.below(max(0, shallowest - level)))
    hold_all = len(last_names) == 1 and (hold_images or _has_siblings(folders, level))
    are_sequences = level == 2 and _are_sequences(folders)
    if level > 1 and (hold_all or are_sequences or are_parts(find_last_names(folders))):
        between = "*/" * (level - 2)
        layout = parse_layout(f"{{split}}/{between}{{label}}/**")  # test/cat/raw/1.jpg
        return str(layout.below(max(0, shallowest - level)))
    between = "*/" * (level - 1)
    return f"{{split}}/{between}{DEFAULT_LAYOUT}"


def _are_sequences(folders: Iterable[str]) -> bool:
    """Whether splits contain the same folders, but different image folders in these folders.

    The image folders are hardly classes: train/dance/Ab3_1 and val/dance/k9Qw_2, as in Kinetics.
    """
    paths = [folder.split("/")[-3:] for folder in folders if folder.count("/") >= 2]
    inner_names = [(inner, split) for split, _, inner in paths]
    outer_names = [(outer, split) for split, outer, _ in paths]
    return share_names(outer_names) and not share_names(inner_names)


def share_names(names: Iterable[tuple[str, str]]) -> bool:
    """Whether a name is in several splits.

    Args:
        names: pairs of a name and its split.
    """
    different = {*names}
    return len({name for name, _ in different}) < len(different)


def _layout_of_last_folders(folders: Iterable[str]) -> str:
    """Returns the layout that reads splits from the folders that hold the files."""
    last_parts = [folder.rpartition("/") for folder in folders]
    splits = find_split_folders(name for _, _, name in last_parts)
    parents = {parent for parent, _, name in last_parts if name in splits}
    within = {name for parent, _, name in last_parts if parent}
    if not within.issuperset(splits):
        return "{split}/*"  # train/1.jpg, more/test/1.jpg
    if len(parents) == 1 or are_splits({parent.rpartition("/")[2] for parent in parents}):
        return "{split}/*"  # test/1.jpg, test/test/1.jpg
    return "{label}/{split}/*"  # cat/test/1.jpg


def _has_siblings(folders: Iterable[str], level: int) -> bool:
    """Whether a split, at a level above the files, contains several parents of image folders."""
    parents = {folder.rpartition("/")[0] for folder in folders}
    splits = {parent.rsplit("/", level - 1)[0] for parent in parents}
    return len(splits) < len(parents)


def _count_from_root(folders: Mapping[str, int]) -> dict[int, collections.Counter[str]]:
    """Counts images: level below the common folder -> name of a split -> number of images."""
    unlabelled = _find_unlabelled_splits(folders)
    images = collections.defaultdict[int, collections.Counter[str]](collections.Counter)
    for folder, number in folders.items():
        names = folder.split("/")
        above_images = names if folder in unlabelled else names[:-1]
        for level, name in enumerate(above_images[:_MOST_LEVELS]):
            images[level][name] += number
    return _keep_splits(images)


def _find_unlabelled_splits(folders: Mapping[str, int]) -> set[str]:
    """Returns split folders that hold images but no classes, next to a split with classes.

    All folders next to such folders must be named like splits; otherwise they may be classes.
    """
    unlabelled = set[str]()
    for start, names, holders in list_subfolders(folders):
        if holders and are_splits(names):
            unlabelled |= {f"{start}{name}" for name in names - holders}
    return unlabelled


def _layout_below_splits(folders: Iterable[str], level: int, splits: Iterable[str]) -> str:
    """Returns the layout for splits at a level, with classes in them or in an image folder."""
    paths_in = collections.defaultdict[str, list[list[str]]](list)  # split -> paths in it
    for folder in folders:
        names = folder.split("/")
        if len(names) > level + 1:
            paths_in[names[level]].append(names[level + 1 :])
    train = [
        name
        for name, parts in find_split_folders(splits).items()
        if parts.split.lower().startswith(DEFAULT_SPLIT)
    ]
    if train and paths_in.keys().isdisjoint(train):
        return "{split}/**"  # train/1.jpg
    inner_paths = [path for name in splits for path in paths_in[name]]
    inner_names = {path[0] for path in inner_paths}
    if inner_names and all(map(IMAGES.fullmatch, inner_names)):
        return "{split}/*/{label}/**"  # test/images/cat/1.jpg
    between = "*/" * _count_outer_folders(inner_paths)
    return f"{{split}}/{between}{{label}}/**"


def _count_outer_folders(paths: Sequence[Sequence[str]]) -> int:
    """Counts the folders around class folders, such as 1 for Fruit/Apple and Fruit/Pear.

    Classes are the last names at the depth that all paths reach, if several classes share a folder
    and no class is in two folders; otherwise, classes are the first names.

    Args:
        paths: the names of folders from a split to its images.
    """
    depth = min(map(len, paths), default=0)
    if depth < 2:
        return 0
    classes = {tuple(path[:depth]) for path in paths}
    names = {path[-1] for path in classes}
    parents = {path[:-1] for path in classes}
    have_one_parent = len(names) == len(classes)
    return depth - 1 if have_one_parent and len(parents) < len(classes) else 0


def _keep_splits(images: Mapping[int, Mapping[str, int]]) -> dict[int, collections.Counter[str]]:
    """Keeps the folders that are named like splits, by level; the levels are sorted.

    Args:
        images: level -> name of a folder at this level -> number of its images.
    """
    kept = {}
    for level, images_in in sorted(images.items()):
        splits = find_split_folders(images_in)
        if splits:
            kept[level] = collections.Counter({name: images_in[name] for name in splits})
    return kept


def spell_split(layout: str, names: Iterable[str]) -> str:
    """Adds the text around splits in folder names to a layout, as in `seg_{split}/{label}/*`."""
    folders = find_split_folders(names).values()
    befores = {folder.before for folder in folders}
    behinds = {folder.behind for folder in folders}
    if _have_one_separator({before[-1:] for before in befores}):
        before = min(befores)
        if len(befores) > 1 or _MARKS.search(before):
            before = _name_class(layout, folders) + before[-1:]  # cat_train/1.jpg
        layout = layout.replace("{split}", f"{before}{{split}}")
    if _have_one_separator({behind[:1] for behind in behinds}):
        behind = min(behinds)
        if len(behinds) > 1 or _MARKS.search(behind):
            behind = behind[:1] + _name_class(layout, folders)  # train_cat/1.jpg
        layout = layout.replace("{split}", f"{{split}}{behind}")
    return layout


def _have_one_separator(separators: set[str]) -> bool:
    return len(separators) == 1 and separators != {""}


def _name_class(layout: str, folders: Iterable[SplitFolder]) -> str:
    """Returns the layout piece for the text next to splits in names: a class, or any text."""
    if "{label}" in layout:
        return "*"
    are_shared = (folder.is_shared for folder in folders)
    return "{label}" if any(are_shared) and have_classes(folders) else "*"


class Subfolders(NamedTuple):
    """The subfolders of a folder.

    Attributes:
        start: path of the outer folder, with a trailing slash; an empty string for the common
            folder.
        names: names of the subfolders.
        holders: names of the subfolders that have subfolders themselves.
    """

    start: str
    names: set[str]
    holders: set[str]

    @property
    def depth(self) -> int:
        """The number of folders between the common folder and the subfolders."""
        return self.start.count("/")


def list_subfolders(folders: Iterable[str]) -> Iterator[Subfolders]:
    """Yields the subfolders of each folder that has subfolders."""
    names_in = _find_names_in(folders)
    for parent, names in names_in.items():
        start = f"{parent}/" if parent else ""
        holders = {name for name in names if f"{start}{name}" in names_in}
        yield Subfolders(start, names, holders)


def _find_names_in(folders: Iterable[str]) -> Mapping[str, set[str]]:
    """Returns folder -> the names of its subfolders; "" stands for the common folder."""
    names_in = collections.defaultdict[str, set[str]](set)
    for folder in folders:
        parts = folder.split("/")
        for depth, name in enumerate(parts[:_MOST_LEVELS]):
            names_in["/".join(parts[:depth])].add(name)
    return names_in
