"""Checks that the default layout ignores neither folders of splits nor classes in names."""

import collections
import operator
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from beam_tfr.layouts.class_names import find_split_mark
from beam_tfr.layouts.mask_cures import NamesIn
from beam_tfr.layouts.mask_folders import (
    IMAGES,
    describe_mask_folders,
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
from beam_tfr.layouts.split_levels import SplitLevel, find_split_levels
from beam_tfr.layouts.split_names import are_different, find_split_folders, split_of_folder
from beam_tfr.layouts.unnamed_masks import KindOf, is_unknown
from beam_tfr.schema.differences import join_names, join_texts
from beam_tfr.schema.errors import UsageError
from beam_tfr.schema.wildcards import quote_pattern

_MOST_COUNTS = 20  # of splits
_MOST_NAMES = 1_000  # of files that are looked at


def check_split_folders(
    folders: Mapping[str, int],
    shares_option: str,
    keys: Iterable[str] = (),
    names_in: NamesIn = list_nothing,
    kind_of: KindOf = is_unknown,
) -> None:
    """Checks that the default layout ignores neither splits nor classes that names show.

    Splits show where several folders of one level are named like splits; classes show where all
    images are in one folder, and their names begin with different classes.

    Args:
        folders: folder of images, whose last part is their class -> number of images.
        shares_option: the option that gives the shares of splits; empty if none does.
        keys: keys of some images, whose names may begin with their class.
        names_in: folder -> names of files in it, maybe none.
        kind_of: path of a file -> what it holds.

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
    if "`layout=" in masks:
        raise UsageError(f"folders have the names of splits, and {masks}", option="input")
    layout, images = _choose_level(levels, folders)
    numbers = [f"{name} ({number:,})" for name, number in sorted(images.items())]
    counts = join_texts(numbers, most=_MOST_COUNTS, separator=", ")
    others = _find_other_splits(_read_folders(folders, layout))
    kept = [folder for folder in folders if folder not in others]
    raise UsageError(
        f"folders have the names of splits, {counts}, but the default layout "
        f"{DEFAULT_LAYOUT} ignores them; {_describe_cure(layout, keys, shares_option)}"
        f"{_describe_outer_classes(layout, kept)}, or `layout='{DEFAULT_LAYOUT}'` to ignore them"
        f"{describe_misnamed(kept, layout)}{_describe_unlabelled(folders, layout)}"
        f"{_describe_folds(levels, layout)}{masks and f'; {masks}'}",
        option="input",
    )


def _choose_level(levels: Sequence[SplitLevel], folders: Mapping[str, int]) -> SplitLevel:
    """Chooses the level whose layout misreads the fewest images, or else has most splits.

    A layout that takes the folder of a split for a class is not meant.
    """
    sound_levels = [level for level in levels if not _has_split_as_class(folders, level.layout)]
    candidates = sound_levels or levels[:1]
    misread = [_count_misread(folders, level.layout) for level in candidates]
    fewest = min(misread)
    best = [level for level, number in zip(candidates, misread, strict=True) if number == fewest]
    return max(best, key=operator.attrgetter("num_splits"))


def _count_misread(folders: Mapping[str, int], layout: str) -> tuple[int, int]:
    """Counts images that a layout rejects or puts into splits that are none, and only the latter.

    Of two layouts, that with the smaller result is better.
    """
    values_of = _read_folders(folders, layout)
    in_other_splits = sum(folders[folder] for folder in _find_other_splits(values_of))
    rejected = sum(folders[folder] for folder, values in values_of.items() if not values)
    return in_other_splits + rejected, in_other_splits


def _describe_cure(layout: str, keys: Iterable[str], shares_option: str) -> str:
    """Describes the layout to use, and the option to leave out.

    Args:
        layout: the layout that takes the splits.
        keys: keys of some images.
        shares_option: the option that gives the shares of splits; empty if none does.
    """
    instead = f" without `{shares_option}=`" if shares_option else ""
    named_classes = ""
    if "{label}" not in layout and layout.endswith("/*"):
        named_classes = _describe_named_classes(layout, keys, instead)
    return named_classes or f"use `layout='{layout}'`{instead}"


def _describe_outer_classes(layout: str, folders: Iterable[str]) -> str:
    """Names the layout that takes the folders around those of a layout for classes; mostly empty.

    Args:
        layout: the layout that is used.
        folders: folders of images that the layout takes as they are meant.
    """
    outer_layout = layout.replace("/*/{label}/**", "/{label}/**")
    if outer_layout == layout:
        return ""
    classes = _list_classes(folders, layout)
    outer_classes = _list_classes(folders, outer_layout)
    if len(outer_classes) < 2 or any(map(IMAGES.fullmatch, outer_classes)):
        return ""
    return (
        f" for the classes {join_names(classes)}, or `layout='{outer_layout}'` for "
        f"{join_names(outer_classes)}"
    )


def _list_classes(folders: Iterable[str], layout: str) -> list[str]:
    """Lists the classes that a layout reads, sorted."""
    values_of = _read_folders(folders, layout)
    return sorted({values["label"] for values in values_of.values() if "label" in values})


def _describe_folds(levels: Iterable[SplitLevel], layout: str) -> str:
    """Says what becomes of folds that the layout does not take for splits; may be empty.

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
        f"; the first layout puts images of all folds, {join_names(sorted(folds))}, together: "
        "give the folder of one fold as `input=`"
    )


def _describe_named_classes(layout: str, keys: Iterable[str], instead: str) -> str:
    """Describes the layout that reads classes from file names, such as cat_1.jpg; may be empty.

    Args:
        layout: the layout that takes the splits, and no classes.
        keys: keys of some images.
        instead: says which option to leave out.
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
        f"use `layout='{named_layout}'`{instead}, which reads classes from file names such as "
        f"{example}{leaves_out}, or `layout='{layout}'` for no classes"
    )


def _read_splits(keys: Iterable[str], layout: str) -> set[str]:
    """Returns the splits that a layout reads from some keys."""
    parsed_layout = parse_layout(layout)
    values = [parsed_layout.parse_key(key) or {} for key in keys]
    return {part.get("split", "") for part in values} - {""}


def _describe_unnamed(named: Iterable[str], unnamed: Sequence[str]) -> str:
    """Says what becomes of images whose names have no class; empty if there are none.

    Images in folders without any class can be left out; others become rejects.

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
        excluded = " ".join(quote_pattern(folder, "/*") for folder in folders)
        text = (
            f", and `exclude={excluded}`, which leaves out images without a class, such as "
            f"{without[0]}"
        )
    if rejected:
        text += (
            f" (it rejects images without a class in folders with classes, such as {rejected[0]})"
        )
    return text


def _check_only_folder(folders: Collection[str], keys: Iterable[str]) -> None:
    """Checks that the names of images in the only folder have no classes that are ignored.

    Raises:
        UsageError: the names of some images all have classes; the message suggests a layout that
            reads them.
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
        f"all images are in one folder, {label}, and their names seem to begin with classes, such "
        f"as {examples}: use `layout='{layout}'`, or `layout='*'` for no classes, or "
        f"`layout='{DEFAULT_LAYOUT}'` for the one class {label}",
        option="input",
    )


def _read_folders(folders: Iterable[str], layout: str) -> dict[str, Mapping[str, str]]:
    """Returns folder -> the values that a layout with splits reads from its images.

    Folders are sorted; one whose images the layout rejects has no values.
    """
    parsed_layout = parse_layout(layout)
    return {folder: parsed_layout.parse_key(f"{folder}/1") or {} for folder in sorted(folders)}


def _has_split_as_class(folders: Iterable[str], layout: str) -> bool:
    """Whether a layout takes folders that are named like splits for classes."""
    values_of = _read_folders(folders, layout)
    classes = {values.get("label", "") for values in values_of.values()}
    names = {name for folder in folders for name in folder.split("/")}
    return not classes.isdisjoint(find_split_folders(names))


def describe_misnamed(folders: Iterable[str], layout: str) -> str:
    """Says how to rename a folder whose split, as a layout reads it, has an invalid name.

    Empty if there is no such folder.
    """
    for folder, values in _read_folders(folders, layout).items():
        split = values.get("split", "")
        if split and not is_split_name(split):
            name = _name_with_split(folder, split)
            renamed = name.replace(split, re.sub("[^A-Za-z0-9]+", "_", split))
            return (
                f"; rename {name} first, for example to {renamed}, as {split} cannot be a split: "
                f"{SPLIT_RULE}"
            )
    return ""


def _name_with_split(folder: str, split: str) -> str:
    """Returns the name in a folder's path that its split was read from."""
    return next(name for name in folder.split("/") if split in name)


def _describe_unlabelled(folders: Mapping[str, int], layout: str) -> str:
    """Says what becomes of images in folders that a layout does not read; may be empty."""
    all_values = _read_folders(folders, layout)
    beside_images = _describe_beside_images(folders, layout, all_values)
    if beside_images:
        return beside_images
    rejected = [folder for folder, values in all_values.items() if not values]
    values_of = {folder: values for folder, values in all_values.items() if values}
    no_classes = _find_no_classes(values_of)
    other_split_of = _find_other_splits(values_of)
    texts = []
    patterns = [quote_pattern(folder, "/*") for folder in rejected]
    if rejected:
        texts.append(
            f"images in {join_names(rejected)} are not in the folder of a class, so the first "
            "layout rejects them"
        )
    if other_split_of:
        splits = sorted({*other_split_of.values()})
        kind = f"the split {splits[0]}" if len(splits) == 1 else f"the splits {join_names(splits)}"
        texts.append(f"the first layout puts other images into {kind}")
        patterns += _exclude_other_splits(other_split_of, values_of)
    if no_classes:
        labels = sorted({values_of[folder]["label"] for folder in no_classes})
        texts.append(
            f"the first layout gives images in {join_names(no_classes)} the class "
            f"{join_names(labels)}"
        )
        patterns += [quote_pattern(folder, "/*") for folder in no_classes]
    if not texts:
        return ""
    excluded = " ".join(dict.fromkeys(patterns))
    return f"; {', and '.join(texts)}: `exclude={excluded}` leaves them out"


def _describe_beside_images(
    folders: Mapping[str, int], layout: str, values_of: Mapping[str, Mapping[str, str]]
) -> str:
    """Says how to leave out folders that hold as many files as those of images in each split.

    Such folders may hold masks, as zones beside sar_images. Empty if there are none.

    Args:
        folders: folder of images -> number of images.
        layout: the layout.
        values_of: folder -> what the layout reads from it.
    """
    number_of = collections.defaultdict[str, collections.Counter[str]](collections.Counter)
    for folder, values in values_of.items():
        number_of[values.get("split", "")][values.get("label", "")] += folders[folder]
    images = dict[str, None]()
    others = dict[str, None]()
    for numbers in number_of.values():
        named = [label for label in numbers if IMAGES.fullmatch(label)]
        if not named:
            continue
        if len(numbers) == len(named) or len({*numbers.values()}) > 1:
            return ""
        images.update(dict.fromkeys(named))
        others.update(dict.fromkeys(numbers.keys() - {*named}))
    if not images:
        return ""
    other_patterns = [quote_pattern(label, "/**", "**/") for label in sorted(others)]
    image_patterns = [
        quote_pattern(folder, "/*")
        for folder, values in values_of.items()
        if values.get("label", "") in images
    ]
    return (
        f"; the first layout takes {join_names(sorted(images))} for classes, beside "
        f"{join_names(sorted(others))}, which hold as many files: if these are masks or other data "
        f"of the images, `layout='{layout.replace('{label}', '*')}'` "
        f"`exclude={' '.join(other_patterns)}` converts the images alone; if only these are "
        f"classes, `exclude={' '.join(image_patterns)}` leaves out the other images"
    )


def _exclude_other_splits(split_of: Mapping[str, str], folders: Iterable[str]) -> list[str]:
    """Lists quoted patterns of folders that a layout takes for splits, and of no others.

    Args:
        split_of: such folder of images -> its split.
        folders: all folders of images.
    """
    kept_names = {
        name for folder in folders if folder not in split_of for name in folder.split("/")
    }
    patterns = []
    for folder, split in split_of.items():
        name = _name_with_split(folder, split)
        if name in kept_names:
            patterns.append(quote_pattern(folder, "/*"))
        else:
            patterns.append(quote_pattern(name, "/**", "**/"))
    return patterns


def _find_other_splits(values_of: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Finds folders that a layout puts into splits which no folder is named like.

    Args:
        values_of: folder of images -> what the layout reads from it.

    Returns:
        Folder of images -> its split.
    """
    split_of = {folder: values.get("split", "") for folder, values in values_of.items()}
    known_splits = find_split_folders({*split_of.values()})
    return {
        folder: split for folder, split in split_of.items() if split and split not in known_splits
    }


def _find_no_classes(values_of: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Finds folders whose class is named like images or a split, if other folders have classes.

    Args:
        values_of: folder -> what the layout reads from it.
    """
    split_names = find_split_folders({part for folder in values_of for part in folder.split("/")})
    labels = {values.get("label", "") for values in values_of.values()}
    like_splits = {
        label
        for label in labels.intersection(split_names)
        if not _is_in_all_splits(label, values_of)
    }
    no_classes = []
    for folder, values in values_of.items():
        label = values.get("label", "")
        if IMAGES.fullmatch(label) or label in like_splits:
            no_classes.append(folder)
    return no_classes if len(no_classes) < len(values_of) else []


def _is_in_all_splits(label: str, values_of: Mapping[str, Mapping[str, str]]) -> bool:
    """Whether each of several splits has a class: valid, beside invalid, in both train and test.

    Args:
        label: the class.
        values_of: folder -> what a layout reads from it.
    """
    all_splits = {values.get("split", "") for values in values_of.values()}
    splits = {
        values.get("split", "") for values in values_of.values() if values.get("label") == label
    }
    return len(splits) > 1 and splits == all_splits
