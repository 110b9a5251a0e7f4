"""Finds folders that look like splits, and that a layout does not read as such."""

import collections
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from beam_tfr.console.terminal import counted
from beam_tfr.layouts.class_folders import find_last_names
from beam_tfr.layouts.mask_cures import NamesIn
from beam_tfr.layouts.mask_folders import (
    IMAGES,
    describe_mask_folders,
    find_mask_folders,
    list_nothing,
    without_mask_folders,
)
from beam_tfr.layouts.named_classes import (
    are_all_named,
    find_named_class,
    find_named_classes,
    find_named_layout,
)
from beam_tfr.layouts.parsing import (
    DEFAULT_LAYOUT,
    SPLIT_RULE,
    is_split_name,
    parse_layout,
)
from beam_tfr.layouts.split_names import (
    DEFAULT_SPLIT,
    SplitFolder,
    are_different,
    are_splits,
    find_seeming_splits,
    find_split_folders,
    find_unmarked_train,
    have_classes,
    split_of_folder,
)
from beam_tfr.schema.differences import join_texts
from beam_tfr.schema.errors import UsageError

_MOST_LEVELS = 12  # of folders, from the common one or the files, that may be splits
_MOST_EXCLUDED = 3  # folders that a message names
_MOST_COUNTS = 20  # of splits
_MOST_NAMES = 1_000  # of files, that are looked at
_MARKS = re.compile("[*{}]")  # which layouts cannot have as text


def check_split_folders(
    folders: Mapping[str, int],
    shares_option: str,
    keys: Iterable[str] = (),
    names_in: NamesIn = list_nothing,
) -> None:
    """Checks that the default layout ignores neither splits nor classes that names show.

    Several folders of one level that are named like splits look so, and in the only folder names
    of images that begin with different classes.

    Args:
        folders: folder of images, whose last part is their class -> number of images.
        shares_option: the option that gives the shares of splits; empty if none does.
        keys: some images, whose names may begin with their class.
        names_in: folder -> names of files in it, maybe none.

    Raises:
        UsageError: folders of one level are named like two or more splits, or images in the only
            folder like classes; suggests a layout that reads them.
    """
    images_of = without_mask_folders(folders)
    levels = [level for level in _count_split_names(images_of) if are_different(level[1])]
    if not levels:
        _check_only_folder(folders.keys(), keys)
        return
    # One that takes a folder of a split for that of a class is not meant.
    sound_levels = [level for level in levels if not _has_split_as_class(folders, level[0])]
    certain_levels = [level for level in sound_levels if not _has_other_splits(folders, level[0])]
    layout, images = max(certain_levels or sound_levels or levels[:1], key=_count_splits)
    masks = describe_mask_folders(folders, names_in)
    if "`layout=" in masks:
        raise UsageError(f"folders have the names of splits, and {masks}", option="input")
    numbers = [f"{name} ({number:,})" for name, number in sorted(images.items())]
    counts = join_texts(numbers, most=_MOST_COUNTS, separator=", ")
    instead = f" without `{shares_option}=`" if shares_option else ""
    use = f"use `layout='{layout}'`{instead}"
    if "{label}" not in layout and layout.endswith("/*"):
        use = _describe_named_classes(layout, keys, instead) or use
    raise UsageError(
        f"folders have the names of splits, {counts}, but the default layout "
        f"{DEFAULT_LAYOUT} ignores them; {use}, or `layout='{DEFAULT_LAYOUT}'` to ignore them"
        f"{_describe_misnamed(folders, layout)}{_describe_unlabelled(folders, layout)}"
        f"{_describe_folds(levels, layout)}{masks and f'; {masks}'}",
        option="input",
    )


def _describe_folds(levels: Iterable[tuple[str, Mapping[str, int]]], layout: str) -> str:
    """What becomes of folders of folds that the layout does not take for splits; may be empty.

    Such as fold1/train and fold2/train, whose images are often the same.

    Args:
        levels: layouts, with the images of each split that they take.
        layout: the one that is used.
    """
    folds = set[str]()
    for level in levels:
        if not _count_splits(level):
            folds.update(level[1])
            if level[0] == layout:
                return ""
    if not folds:
        return ""
    return (
        f"; images of all folds, {_join_folders(sorted(folds))}, are together then: give the "
        "folder of one as `input=`"
    )


def _count_splits(level: tuple[str, Mapping[str, int]]) -> int:
    """The different splits that the folders of a level are named like, given with its layout."""
    folders = find_split_folders(level[1]).values()
    return len({split_of_folder(folder.split) for folder in folders} - {""})


def _describe_named_classes(layout: str, keys: Iterable[str], instead: str) -> str:
    """The layout that reads classes of file names, such as cat_1.jpg; empty if there are none.

    Args:
        layout: the one that takes the splits, and no classes.
        keys: some images.
        instead: what is to be left out.
    """
    all_keys = sorted(keys)
    named = find_named_layout(map(os.path.basename, all_keys))
    if not named:
        return ""
    named_layout = parse_layout(f"{layout[:-1]}{named}")
    fit = [key for key in all_keys if find_named_class(os.path.basename(key)) == named]
    unfit = sorted({*all_keys} - {*fit})
    folders = {*map(os.path.dirname, unfit)} - {*map(os.path.dirname, fit)}
    leaves_out = ""
    if folders:
        excluded = " ".join(f"'{folder}/*'" for folder in sorted(folders))
        leaves_out = (
            f", and `exclude={excluded}`, which leaves out those without, such as {unfit[0]}"
        )
    example = os.path.basename(fit[0])
    return (
        f"use `layout='{named_layout}'`{instead}, which reads classes of file names, as of "
        f"{example}{leaves_out}, or `layout='{layout}'` for no classes"
    )


def _check_only_folder(folders: Collection[str], keys: Iterable[str]) -> None:
    """Checks that names of images in the only folder do not have classes that are ignored.

    Raises:
        UsageError: all of some images have such names; suggests a layout that reads them.
    """
    if len(folders) != 1 or "" in folders:
        return
    (folder,) = folders
    all_names = [*map(os.path.basename, keys)]
    names = all_names[:: len(all_names) // _MOST_NAMES + 1]
    if not are_all_named(names):
        return
    label = os.path.basename(folder)
    layout = find_named_layout(names)
    if split_of_folder(label):
        layout = f"{{split}}/{layout}"
    class_of = find_named_classes(names)
    example_of = {class_name: name for name, class_name in sorted(class_of.items(), reverse=True)}
    examples = " and ".join(sorted(example_of.values())[:2])
    raise UsageError(
        f"all images are in one folder, {label}, and their names seem to begin with classes, such "
        f"as {examples}: use `layout='{layout}'`, or `layout='*'` for no classes, or "
        f"`layout='{DEFAULT_LAYOUT}'` for the one class {label}",
        option="input",
    )


def _has_split_as_class(folders: Iterable[str], layout: str) -> bool:
    """Whether a layout takes folders for classes that are named like splits."""
    parsed_layout = parse_layout(layout)
    classes = set()
    for folder in folders:
        values = parsed_layout.parse_key(f"{folder}/1") or {}
        classes.add(values.get("label", ""))
    names = {name for folder in folders for name in folder.split("/")}
    return bool(find_split_folders(names).keys() & classes)


def _count_split_names(
    folders: Mapping[str, int],
) -> Iterator[tuple[str, Mapping[str, int]]]:
    """Yields layouts that read splits from a level of folders, with the images of each split.

    The levels are counted from the files, lowest first, and then from the common folder.
    """
    for level, images in _count_from_files(folders).items():
        yield _spell_split(_layout_with_splits(folders, level), images), images
    for level, images in _count_from_root(folders).items():
        layout = str(parse_layout(_layout_below_splits(folders, level)).below(level))
        yield _spell_split(layout, images), images


def _layout_below_splits(folders: Iterable[str], level: int) -> str:
    """The layout of splits at a level, and of the classes in them or in their folder of images."""
    inner_names = {folder.split("/")[level + 1] for folder in folders if folder.count("/") > level}
    if inner_names and all(map(IMAGES.fullmatch, inner_names)):
        return "{split}/*/{label}/**"  # test/images/cat/1.jpg
    return "{split}/{label}/**"


def _spell_split(layout: str, names: Iterable[str]) -> str:
    """A layout with what folders have around their split, such as `seg_{split}/{label}/*`."""
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
    """The piece of a layout for what folders have beside their split: a class, or any text."""
    if "{label}" in layout:
        return "*"
    are_shared = (folder.is_shared for folder in folders)
    return "{label}" if any(are_shared) and have_classes(folders) else "*"


def _describe_misnamed(folders: Iterable[str], layout: str) -> str:
    """What to do about folders whose names a layout reads, but that no split may have."""
    parsed_layout = parse_layout(layout)
    for folder in sorted(folders):
        values = parsed_layout.parse_key(f"{folder}/1") or {}
        split = values.get("split", "")
        if split and not is_split_name(split):
            name = next(part for part in folder.split("/") if split in part)
            renamed = name.replace(split, re.sub("[^A-Za-z0-9]+", "_", split))
            return (
                f"; rename {name} first, such as {renamed}, as {split} cannot be a split: "
                f"{SPLIT_RULE}"
            )
    return ""


def _describe_unlabelled(folders: Iterable[str], layout: str) -> str:
    """What becomes of images in folders that a layout does not read; empty without any."""
    parsed_layout = parse_layout(layout)
    values_of = {folder: parsed_layout.parse_key(f"{folder}/1") for folder in sorted(folders)}
    unfit = [folder for folder, values in values_of.items() if values is None]
    fit = {folder: values for folder, values in values_of.items() if values is not None}
    other_splits = _find_other_splits(fit)
    no_classes = _find_no_classes(fit)
    texts = []
    patterns = [f"{folder}/*" for folder in unfit]
    if unfit:
        texts.append(
            f"images in {_join_folders(unfit)} are in no folder of a class, so that layout rejects "
            "them"
        )
    for name, split in other_splits.items():
        texts.append(f"images in folders called {name} are of the split {split} then")
        patterns.append(f"**/{name}/**")
    if no_classes:
        labels = sorted({fit[folder]["label"] for folder in no_classes})
        texts.append(
            f"the class of images in {_join_folders(no_classes)} is {_join_folders(labels)} then"
        )
        patterns += [f"{folder}/*" for folder in no_classes]
    if not texts:
        return ""
    excluded = " ".join(f"'{pattern}'" for pattern in patterns)
    return f"; {', and '.join(texts)}: `exclude={excluded}` leaves them out"


def _join_folders(names: Sequence[str]) -> str:
    return join_texts(names, most=_MOST_EXCLUDED, separator=", ")


def _find_other_splits(values_of: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Name of a folder that a layout takes for a split, but is not named like one -> that split.

    Args:
        values_of: folder -> what the layout reads of it.
    """
    split_of = {folder: values.get("split", "") for folder, values in values_of.items()}
    known_splits = find_split_folders({*split_of.values()})
    others = {}
    for folder, split in split_of.items():
        if split and split not in known_splits:
            name = next(part for part in folder.split("/") if split in part)
            others[name] = split
    return others


def _has_other_splits(folders: Iterable[str], layout: str) -> bool:
    """Whether a layout takes folders for splits that are not named like one."""
    parsed_layout = parse_layout(layout)
    values_of = {folder: parsed_layout.parse_key(f"{folder}/1") or {} for folder in folders}
    return bool(_find_other_splits(values_of))


def _find_no_classes(values_of: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Folders whose class, as a layout reads it, is the name of images or splits; some have one.

    Args:
        values_of: folder -> what the layout reads of it.
    """
    split_names = find_split_folders({part for folder in values_of for part in folder.split("/")})
    no_classes = []
    for folder, values in values_of.items():
        label = values.get("label", "")
        if IMAGES.fullmatch(label) or label in split_names:
            no_classes.append(folder)
    return no_classes if len(no_classes) < len(values_of) else []


def _find_unlabelled_splits(folders: Mapping[str, int]) -> set[str]:
    """The folders of splits with images, but without folders of classes, beside one with those.

    All folders beside them are named like splits: else they may be classes.
    """
    unlabelled = set[str]()
    for level in _list_levels(folders):
        if level.holders and are_splits(level.names):
            unlabelled |= {f"{level.start}{name}" for name in level.names - level.holders}
    return unlabelled


def _count_from_root(folders: Mapping[str, int]) -> dict[int, collections.Counter[str]]:
    """Level below the common folder -> each name of a split there -> its images."""
    unlabelled = _find_unlabelled_splits(folders)
    images = collections.defaultdict[int, collections.Counter[str]](collections.Counter)
    for folder, number in folders.items():
        names = folder.split("/")
        above_images = names if folder in unlabelled else names[:-1]
        for level, name in enumerate(above_images[:_MOST_LEVELS]):
            images[level][name] += number
    return _keep_splits(images)


def _keep_splits(images: Mapping[int, Mapping[str, int]]) -> dict[int, collections.Counter[str]]:
    """The levels with folders that are named like splits, with these alone, the first level first.

    Args:
        images: level -> each name of a folder there -> its images.
    """
    kept = {}
    for level, images_in in sorted(images.items()):
        splits = find_split_folders(images_in)
        if splits:
            kept[level] = collections.Counter({name: images_in[name] for name in splits})
    return kept


def _count_from_files(folders: Mapping[str, int]) -> dict[int, collections.Counter[str]]:
    """Level above the files, lowest first -> each name of a split there -> its images."""
    images = collections.defaultdict[int, collections.Counter[str]](collections.Counter)
    for folder, number in folders.items():
        lowest_names = folder.rsplit("/", _MOST_LEVELS)[-_MOST_LEVELS:]
        for level, name in enumerate(reversed(lowest_names)):
            images[level][name] += number
    splits = _keep_splits(images)
    # A class may be called like a split; where all are, the folders of splits have no classes.
    if 0 in splits and splits[0].keys() != images[0].keys() and not _are_within_classes(folders):
        split_folders = find_split_folders(images[0])
        splits[0] = collections.Counter(
            {name: number for name, number in splits[0].items() if split_folders[name].is_shared}
        )
    return {level: images_in for level, images_in in splits.items() if images_in}


def _are_within_classes(folders: Iterable[str]) -> bool:
    """Whether several folders hold nothing but splits, as in cat/train, cat/val and dog/train."""
    names_in = find_last_names(folders)
    names_in.pop("", None)
    with_splits = [names for names in names_in.values() if are_different(names)]
    return sum(map(are_splits, with_splits)) > 1


def _layout_with_splits(folders: Mapping[str, int], level: int) -> str:
    """The layout that reads splits from this level above the files."""
    last_names = {folder.rpartition("/")[2] for folder in folders}
    if level and len(last_names) == 1:
        if IMAGES.fullmatch(min(last_names)) and level == 1:
            return "{split}/**"  # test/images/1.jpg
        if level > 1 and (IMAGES.fullmatch(min(last_names)) or _has_siblings(folders, level)):
            between = "*/" * (level - 2)
            layout = parse_layout(f"{{split}}/{between}{{label}}/**")  # test/cat/raw/1.jpg
            shallowest = min(folder.count("/") for folder in folders)
            return str(layout.below(max(0, shallowest - level)))
    if level:
        between = "*/" * (level - 1)
        return f"{{split}}/{between}{DEFAULT_LAYOUT}"
    last_parts = [folder.rpartition("/") for folder in folders]
    splits = find_split_folders(name for _, _, name in last_parts)
    parents = {parent for parent, _, name in last_parts if name in splits}
    if len(parents) == 1 or are_splits({parent.rpartition("/")[2] for parent in parents}):
        return "{split}/*"  # test/1.jpg, test/test/1.jpg
    return "{label}/{split}/*"  # cat/test/1.jpg


def _has_siblings(folders: Iterable[str], level: int) -> bool:
    """Whether a split, at a level above the files, has several folders with folders of images."""
    parents = {folder.rpartition("/")[0] for folder in folders}
    splits = {parent.rsplit("/", level - 1)[0] for parent in parents}
    return len(splits) < len(parents)


def describe_ignored_split(folders: Mapping[str, int]) -> str:
    """A message about folders of one split, which the default layout ignores; empty without any.

    Or which it takes for classes, if all images are in them.

    Args:
        folders: folder of images, whose last part is their class -> number of images.
    """
    total = sum(folders.values())
    for layout, images in _count_split_names(folders):
        if are_different(images):
            return ""  # which `check_split_folders` refuses
        name = min(images)
        number = sum(images.values())
        if "{label}" not in layout:
            if number == total:
                return f"{name} is the class of all images: `layout='{layout}'` takes it as split"
        elif split_of_folder(name) != DEFAULT_SPLIT:
            which = "all images" if number == total else counted(number, "image")
            return (
                f"{which} in folders called {name} go to {DEFAULT_SPLIT}: `layout='{layout}'` "
                f"takes {name} as their split, `layout='{DEFAULT_LAYOUT}'` says that it is none"
                f"{_describe_misnamed(folders, layout)}"
            )
    return (
        _describe_doubtful_splits(folders)
        or _describe_split_classes(folders)
        or _describe_unmarked_train(folders)
        or _describe_seeming_splits(folders)
    )


def _describe_split_classes(folders: Mapping[str, int]) -> str:
    """A message about classes that are named like splits, beside others; empty without any.

    Such as train, test and extra.
    """
    for level in _list_levels(folders):
        splits = sorted(find_split_folders(level.names))
        if level.holders or not are_different(splits) or find_mask_folders(folders, list_nothing):
            continue
        others = join_texts(sorted(level.names - {*splits}), most=3, separator=", ")
        layout = _spell_split(str(parse_layout("{split}/*").below(level.depth)), splits)
        return (
            f"{join_texts(splits, most=3, separator=', ')} are classes, as is {others}: "
            f"`layout='{layout}'` takes folders as splits; leave out those that are none with "
            f"`exclude=`, or give `layout='{DEFAULT_LAYOUT}'` if they are classes"
        )
    return ""


def _describe_doubtful_splits(folders: Mapping[str, int]) -> str:
    """A message about folders of splits, of which some are without classes, beside other folders.

    Such as Train/0, Train/1, Test and Meta, where Test and Meta may be classes. Empty without any.
    """
    for level in _list_levels(folders):
        splits = sorted(find_split_folders(level.names))
        without = [name for name in splits if name not in level.holders]
        if not are_different(splits) or len(without) in (0, len(splits)):
            continue
        layout = parse_layout("{split}/{label}/**").below(level.depth)
        others = sorted({*without, *(level.names - {*splits})})[:_MOST_EXCLUDED]
        excluded = " ".join(f"`exclude='{level.start}{name}/*'`" for name in others)
        return (
            f"{join_texts(splits, most=3, separator=', ')} are named like splits, but all images "
            f"go to {DEFAULT_SPLIT}, and {without[0]} is a class: `layout='{layout}'` takes them "
            f"as splits, and {excluded} leaves out folders without classes"
        )
    return ""


def _describe_unmarked_train(folders: Mapping[str, int]) -> str:
    """A message about a folder of a split beside one without, as rps-test-set beside rps.

    Empty if there is none.
    """
    for level in _list_levels(folders):
        unmarked = find_unmarked_train(level.names)
        if not unmarked:
            continue
        start = level.start
        renamed = dict[str, int]()
        for folder, number in folders.items():
            if f"{folder}/".startswith(f"{start}{unmarked.unmarked}/"):
                folder = f"{start}{unmarked.renamed}{folder[len(start + unmarked.unmarked) :]}"
            renamed[folder] = number
        layouts = [layout for layout, images in _count_split_names(renamed) if len(images) > 1]
        if layouts:
            return (
                f"images in {start}{unmarked.marked} go to {DEFAULT_SPLIT}, as those in "
                f"{start}{unmarked.unmarked} do: rename the latter {unmarked.renamed}, and "
                f"`layout='{layouts[0]}'` takes both as splits"
            )
    return ""


def _describe_seeming_splits(folders: Iterable[str]) -> str:
    """A message about folders whose names seem to say splits: imagesTr, imagesTs; may be empty."""
    for level in _list_levels(folders):
        if find_split_folders(level.names):
            continue  # which are told otherwise
        example_of = find_seeming_splits(level.names)
        if not example_of:
            continue
        examples = " and ".join([*example_of.values()][:2])
        return (
            f"names of folders seem to say splits, such as {examples}, but all images go to "
            f"{DEFAULT_SPLIT}: rename them so that the split is a whole word, such as train and "
            "test, and the run names the layout that takes them"
        )
    return ""


class _Level(NamedTuple):
    """The folders in one folder.

    Attributes:
        start: the path of that folder, with a trailing slash; empty for the common one.
        names: their names.
        holders: the names of those that hold folders.
    """

    start: str
    names: set[str]
    holders: set[str]

    @property
    def depth(self) -> int:
        """The number of folders around these, below the common one."""
        return self.start.count("/")


def _list_levels(folders: Iterable[str]) -> Iterator[_Level]:
    """Yields the folders in each folder that has some."""
    names_in = _find_names_in(folders)
    for parent, names in names_in.items():
        start = f"{parent}/" if parent else ""
        holders = {name for name in names if f"{start}{name}" in names_in}
        yield _Level(start, names, holders)


def _find_names_in(folders: Iterable[str]) -> Mapping[str, set[str]]:
    """Each folder with folders below it -> their names; the common one is empty."""
    names_in = collections.defaultdict[str, set[str]](set)
    for folder in folders:
        parts = folder.split("/")
        for depth, name in enumerate(parts[:_MOST_LEVELS]):
            names_in["/".join(parts[:depth])].add(name)
    return names_in
