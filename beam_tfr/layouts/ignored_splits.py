"""Describes folders that look like splits but are ignored by the default layout."""

from collections.abc import Collection, Iterable, Mapping

from beam_tfr.console.terminal import counted
from beam_tfr.layouts.folders import choose_level
from beam_tfr.layouts.mask_folders import find_mask_folders
from beam_tfr.layouts.misread_folders import describe_misnamed
from beam_tfr.layouts.parsing import DEFAULT_LAYOUT, parse_layout
from beam_tfr.layouts.split_levels import (
    SplitLevel,
    find_split_levels,
    list_subfolders,
    spell_split,
)
from beam_tfr.layouts.split_names import (
    DEFAULT_SPLIT,
    are_different,
    find_seeming_splits,
    find_split_folders,
    find_unmarked_train,
    split_of_folder,
)
from beam_tfr.schema.differences import join_names
from beam_tfr.schema.spelling import spell_option
from beam_tfr.schema.wildcards import pattern_below

_MOST_EXCLUDED = 3  # folders named in a message


def describe_ignored_split(
    folders: Mapping[str, int], splits: Collection[str] = (DEFAULT_SPLIT,)
) -> str:
    """Returns a message about an ignored split, or an empty string.

    The default layout ignores the folders of the split, or, if all images are in them, may read the
    folders as classes.

    Args:
        folders: image folder, whose last part is its class -> number of images.
        splits: the splits that all images go to.
    """
    levels = [*find_split_levels(folders)]
    if any(are_different(level.images) for level in levels):
        return ""  # `check_split_folders` refuses them
    total = sum(folders.values())
    ignored_levels = [level for level in levels if _is_ignored(level, total, splits)]
    if ignored_levels:
        return _describe_level(choose_level(ignored_levels, folders), folders, splits)
    return (
        _describe_doubtful_splits(folders)
        or _describe_split_classes(folders)
        or _describe_unmarked_train(folders)
        or _describe_seeming_splits(folders)
    )


def _is_ignored(level: SplitLevel, total: int, splits: Collection[str]) -> bool:
    """Whether images of a split are in another split, or have the split as their class.

    Args:
        level: the level, with folders of one split.
        total: number of all images.
        splits: the splits that all images go to.
    """
    if "{label}" not in level.layout:
        return sum(level.images.values()) == total
    named = split_of_folder(min(level.images))
    return len(splits) > 1 or not named or not _are_alike(named, min(splits))


def _are_alike(named: str, split: str) -> bool:
    """Whether two names stand for the same split, as train and training do."""
    return named.startswith(split) or split.startswith(named)


def _describe_level(level: SplitLevel, folders: Mapping[str, int], splits: Collection[str]) -> str:
    """Returns the message about the folders of one split.

    Args:
        level: the level.
        folders: image folder -> number of images.
        splits: the splits that all images go to.
    """
    layout, images = level
    name = min(images)
    if "{label}" not in layout:
        return (
            f"all images are in folders named {name}: {spell_option('layout', layout)} reads "
            f"{name} as their split"
        )
    number = sum(images.values())
    which = "all images" if number == sum(folders.values()) else counted(number, "image")
    return (
        f"{which} in folders named {name} go to {join_names([*splits])}: "
        f"{spell_option('layout', layout)} reads {name} as their split, "
        f"{spell_option('layout', DEFAULT_LAYOUT)} confirms that it is not one"
        f"{describe_misnamed(folders, layout)}"
    )


def _describe_doubtful_splits(folders: Mapping[str, int]) -> str:
    """Returns a message if only some folders named like splits hold classes, or an empty string.

    Examples are Train/0, Train/1, Test and Meta, where Test and Meta may be classes.
    """
    for subfolders in list_subfolders(folders):
        splits = sorted(find_split_folders(subfolders.names))
        without = [name for name in splits if name not in subfolders.holders]
        if not are_different(splits) or len(without) in (0, len(splits)):
            continue
        layout = parse_layout("{split}/{label}/**").below(subfolders.depth)
        others = sorted({*without, *(subfolders.names - {*splits})})[:_MOST_EXCLUDED]
        excluded = [pattern_below(f"{subfolders.start}{name}", "/*") for name in others]
        return (
            f"{join_names(splits)} are named like splits, but all images go to {DEFAULT_SPLIT}, "
            f"and {without[0]} is a class: {spell_option('layout', layout)} reads them as splits, "
            f"and {spell_option('exclude', *excluded)} leaves out folders without classes"
        )
    return ""


def _describe_split_classes(folders: Mapping[str, int]) -> str:
    """Returns a message if only some of the classes are named like splits, or an empty string.

    Examples are train, test and extra.
    """
    for subfolders in list_subfolders(folders):
        splits = sorted(find_split_folders(subfolders.names))
        if subfolders.holders or not are_different(splits) or find_mask_folders(folders):
            continue
        others = join_names(sorted(subfolders.names - {*splits}))
        layout = spell_split(str(parse_layout("{split}/*").below(subfolders.depth)), splits)
        return (
            f"{join_names(splits)} are classes, as is {others}: {spell_option('layout', layout)} "
            "reads folders as splits; leave out folders that are not splits with `exclude=`, or "
            f"use {spell_option('layout', DEFAULT_LAYOUT)} if they are classes"
        )
    return ""


def _describe_unmarked_train(folders: Mapping[str, int]) -> str:
    """Returns a message about a folder like rps-test-set next to rps, or an empty string."""
    for subfolders in list_subfolders(folders):
        unmarked = find_unmarked_train(subfolders.names)
        if not unmarked:
            continue
        start = subfolders.start
        renamed = _rename_folder(
            folders, f"{start}{unmarked.unmarked}", f"{start}{unmarked.renamed}"
        )
        layouts = [layout for layout, images in find_split_levels(renamed) if len(images) > 1]
        if layouts:
            return (
                f"images in {start}{unmarked.marked} go to {DEFAULT_SPLIT}, like those in "
                f"{start}{unmarked.unmarked}: rename the latter to {unmarked.renamed}, and "
                f"{spell_option('layout', layouts[0])} reads both as splits"
            )
    return ""


def _rename_folder(folders: Mapping[str, int], path: str, new_path: str) -> dict[str, int]:
    """Returns the folders and their numbers of images after a folder is renamed."""
    renamed = dict[str, int]()
    for folder, number in folders.items():
        if f"{folder}/".startswith(f"{path}/"):
            folder = new_path + folder.removeprefix(path)
        renamed[folder] = number
    return renamed


def _describe_seeming_splits(folders: Iterable[str]) -> str:
    """Returns a message about folders with hints of splits, like imagesTr, or an empty string."""
    for subfolders in list_subfolders(folders):
        if find_split_folders(subfolders.names):
            continue  # reported elsewhere
        example_of = find_seeming_splits(subfolders.names)
        if not example_of:
            continue
        examples = " and ".join([*example_of.values()][:2])
        return (
            f"names of folders seem to name splits, such as {examples}, but all images go to "
            f"{DEFAULT_SPLIT}: rename the folders so that the split is a whole word, such as train "
            "or test, and the next run names the layout that reads it"
        )
    return ""
