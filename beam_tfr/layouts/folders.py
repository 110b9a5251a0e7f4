"""Checks that the default layout does not ignore split folders, or classes in file names."""

import operator
import os
from collections.abc import Collection, Iterable, Mapping, Sequence

from beam_tfr.layouts.class_levels import describe_class_levels
from beam_tfr.layouts.class_names import find_split_mark
from beam_tfr.layouts.mask_cures import NamesIn
from beam_tfr.layouts.mask_folders import (
    PANOPTIC,
    describe_mask_folders,
    list_nothing,
    without_mask_folders,
)
from beam_tfr.layouts.misread_folders import (
    describe_misnamed,
    describe_unlabelled,
    find_other_splits,
    read_folders,
)
from beam_tfr.layouts.named_classes import (
    are_all_named,
    find_named_class,
    find_named_classes,
    find_named_layout,
)
from beam_tfr.layouts.pair_folders import describe_pair_folders
from beam_tfr.layouts.parsing import (
    DEFAULT_LAYOUT,
    parse_layout,
)
from beam_tfr.layouts.split_levels import SplitLevel, find_split_levels
from beam_tfr.layouts.split_names import are_different, find_split_folders, split_of_folder
from beam_tfr.layouts.unnamed_masks import KindOf, is_unknown
from beam_tfr.schema.differences import join_names, join_texts
from beam_tfr.schema.errors import UsageError
from beam_tfr.schema.spelling import spell_option
from beam_tfr.schema.wildcards import pattern_below

_MOST_COUNTS = 20  # splits whose counts a message has
_MOST_NAMES = 1_000  # file names that are inspected


def check_split_folders(
    folders: Mapping[str, int],
    shares_option: str,
    keys: Iterable[str] = (),
    names_in: NamesIn = list_nothing,
    kind_of: KindOf = is_unknown,
) -> None:
    """Checks that the default layout ignores no splits or classes that are evident from names.

    Splits are evident if several folders at one level are named like splits. Classes are evident if
    all images are in one folder, and the file names contain different classes.

    Args:
        folders: image folder, whose last part is its class -> number of images.
        shares_option: the option that sets the fractions of splits, or an empty string.
        keys: keys of some images, whose file names may contain classes.
        names_in: folder -> the names of its files, if known.
        kind_of: path of a file -> the kind of its content.

    Raises:
        UsageError: the layout ignores splits or classes; the message suggests a layout that reads
            them.
    """
    split_levels = find_split_levels(without_mask_folders(folders))
    levels = [level for level in split_levels if are_different(level.images)]
    if not levels:
        _check_only_folder(folders.keys(), keys)
        return
    masks = describe_mask_folders(folders, names_in, kind_of)
    if "`layout=" in masks or masks.endswith(PANOPTIC):
        raise UsageError(f"folders have the names of splits, and {masks}", option="input")
    layout, images = choose_level(levels, folders)
    numbers = [f"{name} ({number:,})" for name, number in sorted(images.items())]
    counts = join_texts(numbers, most=_MOST_COUNTS, separator=", ")
    others = find_other_splits(read_folders(folders, layout))
    kept = [folder for folder in folders if folder not in others]
    unlabelled = describe_unlabelled(folders, layout, has_masks=bool(masks))
    pairs = "" if masks else describe_pair_folders(folders, names_in)
    raise UsageError(
        f"folders have the names of splits, {counts}, but the default layout {DEFAULT_LAYOUT} "
        "ignores them; "
        f"{_describe_cure(layout, keys, shares_option)}"
        f"{describe_class_levels(layout, kept)}, or {spell_option('layout', DEFAULT_LAYOUT)} to "
        f"ignore them{describe_misnamed(kept, layout)}{unlabelled}"
        f"{_describe_folds(levels, layout)}{masks and f'; {masks}'}{pairs and f'; {pairs}'}",
        option="input",
    )


def choose_level(levels: Sequence[SplitLevel], folders: Mapping[str, int]) -> SplitLevel:
    """Chooses the level whose layout misreads the fewest images or, in a tie, has the most splits.

    A layout that reads the folder of a split as a class is chosen only if there is no other layout.
    """
    sound_levels = [level for level in levels if not _has_split_as_class(folders, level.layout)]
    candidates = sound_levels or levels[:1]
    misread = [_count_misread(folders, level.layout) for level in candidates]
    fewest = min(misread)
    best = [level for level, number in zip(candidates, misread, strict=True) if number == fewest]
    return max(best, key=operator.attrgetter("num_splits"))


def _count_misread(folders: Mapping[str, int], layout: str) -> tuple[int, int]:
    """Counts images that a layout rejects or puts into wrong splits, and images in wrong splits.

    The smaller the result, the better the layout.
    """
    values_of = read_folders(folders, layout)
    in_other_splits = sum(folders[folder] for folder in find_other_splits(values_of))
    rejected = sum(folders[folder] for folder, values in values_of.items() if not values)
    return in_other_splits + rejected, in_other_splits


def _describe_cure(layout: str, keys: Iterable[str], shares_option: str) -> str:
    """Describes the layout to use, and the option to omit.

    Args:
        layout: the layout that reads the splits.
        keys: keys of some images.
        shares_option: the option that sets the fractions of splits, or an empty string.
    """
    instead = f" without `{shares_option}=`" if shares_option else ""
    named_classes = ""
    if "{label}" not in layout and layout.endswith("/*"):
        named_classes = _describe_named_classes(layout, keys, instead)
    return named_classes or f"use {spell_option('layout', layout)}{instead}"


def _describe_folds(levels: Iterable[SplitLevel], layout: str) -> str:
    """Explains what happens to folds that are not read as splits, or returns an empty string.

    Examples are fold1/train and fold2/train, which often have the same images.

    Args:
        levels: all levels.
        layout: the layout that is used.
    """
    fold_levels = [level for level in levels if not level.num_splits]
    if not fold_levels or layout in [level.layout for level in fold_levels]:
        return ""
    folds = {name for level in fold_levels for name in level.images}
    return (
        f"; the first layout combines the images of all folds, {join_names(sorted(folds))}: "
        "use the folder of one fold as `input=`"
    )


def _describe_named_classes(layout: str, keys: Iterable[str], instead: str) -> str:
    """Describes the layout that reads classes from file names, or returns an empty string.

    Args:
        layout: the layout that reads the splits, but no classes.
        keys: keys of some images.
        instead: names the option to omit.
    """
    all_keys = sorted(keys)
    named = find_named_layout(map(os.path.basename, all_keys))
    if not named:
        return ""
    named_layout = parse_layout(f"{layout[:-1]}{named}")
    fit = [key for key in all_keys if find_named_class(os.path.basename(key)) == named]
    leaves_out = _describe_unnamed(fit, sorted({*all_keys} - {*fit}))
    lost_splits = sorted(_read_splits(all_keys, layout) - _read_splits(fit, layout))
    if lost_splits:
        leaves_out += f" (so there is no split {join_names(lost_splits)})"
    example = os.path.basename(fit[0])
    return (
        f"use {spell_option('layout', named_layout)}{instead}, which reads classes from file names "
        f"such as {example}{leaves_out}, or {spell_option('layout', layout)} for no classes"
    )


def _read_splits(keys: Iterable[str], layout: str) -> set[str]:
    """Returns the splits that a layout reads from keys."""
    parsed_layout = parse_layout(layout)
    values = [parsed_layout.parse_key(key) or {} for key in keys]
    return {part.get("split", "") for part in values} - {""}


def _describe_unnamed(named: Iterable[str], unnamed: Sequence[str]) -> str:
    """Explains what happens to images whose names have no class, or returns an empty string.

    Images in folders where no name has a class can be left out; other images become rejects.

    Args:
        named: images whose names have a class.
        unnamed: images whose names have no class, sorted.
    """
    with_classes = {*map(os.path.dirname, named)}
    without = [key for key in unnamed if os.path.dirname(key) not in with_classes]
    rejected = [key for key in unnamed if os.path.dirname(key) in with_classes]
    text = ""
    if without:
        folders = sorted({*map(os.path.dirname, without)})
        excluded = [pattern_below(folder, "/*") for folder in folders]
        text = (
            f", and {spell_option('exclude', *excluded)}, which leaves out images without a class, "
            f"such as {without[0]}"
        )
    if rejected:
        text += (
            f" (it rejects images without a class in folders with classes, such as {rejected[0]})"
        )
    return text


def _check_only_folder(folders: Collection[str], keys: Iterable[str]) -> None:
    """Checks that no classes in the names of images are ignored if there is only one folder.

    Raises:
        UsageError: all inspected names contain classes; the message suggests a layout that reads
            them.
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
    mark = find_split_mark(class_of.values())
    if mark and "{split}" not in layout:  # Tr-cat_1.jpg
        layout = layout.replace("{label}", f"{{split}}{mark}{{label}}")
    example_of = {class_name: name for name, class_name in sorted(class_of.items(), reverse=True)}
    examples = " and ".join(sorted(example_of.values())[:2])
    raise UsageError(
        f"all images are in one folder, {label}, and their names seem to contain classes, such "
        f"as {examples}: use {spell_option('layout', layout)}, or `layout='*'` for no classes, or "
        f"{spell_option('layout', DEFAULT_LAYOUT)} for the one class {label}",
        option="input",
    )


def _has_split_as_class(folders: Iterable[str], layout: str) -> bool:
    """Whether a layout reads folders that are named like splits as classes."""
    values_of = read_folders(folders, layout)
    classes = {values.get("label", "") for values in values_of.values()}
    names = {name for folder in folders for name in folder.split("/")}
    return not classes.isdisjoint(find_split_folders(names))
