"""Finds folders that a layout misreads, and options that fix the problem."""

import collections
import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence, Set

from beam_tfr.layouts.name_pattern import IMAGES
from beam_tfr.layouts.parsing import SPLIT_RULE, is_split_name, parse_layout
from beam_tfr.layouts.split_names import find_split_folders, splits_within
from beam_tfr.schema.differences import join_names
from beam_tfr.schema.spelling import spell_option
from beam_tfr.schema.wildcards import pattern_below

_MOST_LEVELS = 4  # of folders around those of splits


def read_folders(folders: Iterable[str], layout: str) -> dict[str, Mapping[str, str]]:
    """Returns folder -> the values that a layout reads from the images in the folder.

    Folders are sorted; values are empty for a folder whose images the layout rejects.
    """
    parsed_layout = parse_layout(layout)
    return {
        folder: parsed_layout.parse_key(posixpath.join(folder, "1")) or {}
        for folder in sorted(folders)
    }


def describe_misnamed(folders: Iterable[str], layout: str) -> str:
    """Says how to rename a folder read as an invalid split, or returns an empty string."""
    for folder, values in read_folders(folders, layout).items():
        split = values.get("split", "")
        if split and not is_split_name(split):
            name = _name_with_split(folder, split)
            renamed = name.replace(split, re.sub("[^A-Za-z0-9]+", "_", split))
            return (
                f"; rename {name} first, for example to {renamed}, since {split} cannot be a "
                f"split: {SPLIT_RULE}"
            )
    return ""


def _name_with_split(folder: str, split: str) -> str:
    """Returns the name in a folder's path that contains its split."""
    return next(name for name in folder.split("/") if split in name)


def describe_unlabelled(folders: Mapping[str, int], layout: str, *, has_masks: bool) -> str:
    """Explains what happens to images in folders that a layout misreads, if there are any.

    Args:
        folders: image folder -> number of images.
        layout: the layout.
        has_masks: whether some folders look like masks of images in other folders.
    """
    all_values = read_folders(folders, layout)
    beside_images = _describe_beside_images(folders, layout, all_values, has_masks=has_masks)
    if beside_images:
        return beside_images
    rejected = [folder for folder, values in all_values.items() if not values]
    values_of = {folder: values for folder, values in all_values.items() if values}
    no_classes = _find_no_classes(values_of)
    other_split_of = find_other_splits(values_of)
    texts = [
        _describe_rejected(rejected),
        _describe_other_splits({*other_split_of.values()}),
        _describe_no_classes(no_classes, values_of),
    ]
    sentences = [*filter(None, texts)]
    if not sentences:
        return ""
    patterns = [pattern_below(folder, "/*") for folder in rejected]
    patterns += _exclude_other_splits(other_split_of, values_of)
    patterns += [pattern_below(folder, "/*") for folder in no_classes]
    excluded = spell_option("exclude", *dict.fromkeys(patterns))
    kept = folders.keys() - {*rejected, *other_split_of, *no_classes}
    text = f"; {', and '.join(sentences)}"
    if not kept:
        return text
    without_classes = _keep_lost_splits(folders, layout, kept)
    return f"{text}: {excluded} leaves them out{without_classes}"


def _keep_lost_splits(folders: Iterable[str], layout: str, kept: Set[str]) -> str:
    """Names the layout without classes that keeps splits that would otherwise be lost, if any.

    Args:
        folders: all image folders.
        layout: the layout with classes.
        kept: the image folders that the layout reads correctly.
    """
    split_of = splits_within([*folders])
    lost = {split_of[folder] for folder in split_of.keys() - kept}
    lost -= {split_of[folder] for folder in kept} | {""}
    if not lost or "{label}" not in layout.split("/"):
        return ""
    part = next(part for part in layout.split("/") if "{split}" in part)
    of_splits = [folder for folder, split in split_of.items() if split]
    for level in range(_MOST_LEVELS):
        flat_layout = str(parse_layout(f"{part}/**").below(level))
        values_of = read_folders(of_splits, flat_layout)
        splits = {values.get("split", "") for values in values_of.values()}
        if find_split_folders(splits).keys() == splits:
            return (
                f", so there is no split {join_names(sorted(lost))}; "
                f"{spell_option('layout', flat_layout)} keeps all images, without classes"
            )
    return ""


def _describe_rejected(folders: Sequence[str]) -> str:
    """Says that a layout rejects images in some folders, or returns an empty string."""
    if not folders:
        return ""
    return (
        f"images in {join_names(folders)} are not in a class folder, so the first layout "
        "rejects them"
    )


def _describe_other_splits(splits: Set[str]) -> str:
    """Says that a layout puts images into wrong splits, or returns an empty string."""
    if not splits:
        return ""
    noun = "split" if len(splits) == 1 else "splits"
    return f"the first layout puts other images into the {noun} {join_names(sorted(splits))}"


def _describe_no_classes(folders: Sequence[str], values_of: Mapping[str, Mapping[str, str]]) -> str:
    """Says that a layout gives images wrong classes, or returns an empty string.

    Args:
        folders: the folders that hold such images.
        values_of: folder -> the values that the layout reads from it.
    """
    if not folders:
        return ""
    labels = sorted({values_of[folder]["label"] for folder in folders})
    return f"the first layout gives images in {join_names(folders)} the class {join_names(labels)}"


def _describe_beside_images(
    folders: Mapping[str, int],
    layout: str,
    values_of: Mapping[str, Mapping[str, str]],
    *,
    has_masks: bool,
) -> str:
    """Says how to leave out folders that hold as many files as the image folders in each split.

    Such folders may hold masks, like zones next to sar_images. Returns an empty string if there are
    no such folders.

    Args:
        folders: image folder -> number of images.
        layout: the layout.
        values_of: folder -> the values that the layout reads from it.
        has_masks: whether some folders look like mask folders, which are not classes.
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
    without_labels = layout.replace("{label}", "*")
    other_patterns = [pattern_below(label, "/**", "**/") for label in sorted(others)]
    text = (
        f"; the first layout reads {join_names(sorted(images))} as classes, along with "
        f"{join_names(sorted(others))}, which hold as many files: if the latter are masks or other "
        f"data of the images, {spell_option('layout', without_labels)} "
        f"{spell_option('exclude', *other_patterns)} converts the images alone"
    )
    if has_masks:
        return text
    image_patterns = [
        pattern_below(folder, "/*")
        for folder, values in values_of.items()
        if values.get("label", "") in images
    ]
    return (
        f"{text}; if only these are classes, {spell_option('exclude', *image_patterns)} leaves out "
        "the other images"
    )


def _exclude_other_splits(split_of: Mapping[str, str], folders: Iterable[str]) -> list[str]:
    """Lists patterns that match exactly the folders that a layout mistakes for splits.

    Args:
        split_of: image folder that is mistaken for a split -> that split.
        folders: all image folders.
    """
    kept_names = {
        name for folder in folders if folder not in split_of for name in folder.split("/")
    }
    patterns = []
    for folder, split in split_of.items():
        name = _name_with_split(folder, split)
        if name in kept_names:
            patterns.append(pattern_below(folder, "/*"))
        else:
            patterns.append(pattern_below(name, "/**", "**/"))
    return patterns


def find_other_splits(values_of: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Finds folders that a layout puts into splits whose names are not split names.

    Args:
        values_of: image folder -> the values that the layout reads from it.

    Returns:
        Image folder -> its split.
    """
    split_of = {folder: values.get("split", "") for folder, values in values_of.items()}
    known_splits = find_split_folders({*split_of.values()})
    return {
        folder: split for folder, split in split_of.items() if split and split not in known_splits
    }


def _find_no_classes(values_of: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Finds folders whose class is named like images or a split, if other classes are not.

    Args:
        values_of: folder -> the values that the layout reads from it.
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
    """Whether a class, such as valid next to invalid, is in all of several splits.

    Args:
        label: the class.
        values_of: folder -> the values that a layout reads from it.
    """
    all_splits = {values.get("split", "") for values in values_of.values()}
    splits = {
        values.get("split", "") for values in values_of.values() if values.get("label") == label
    }
    return len(splits) > 1 and splits == all_splits
