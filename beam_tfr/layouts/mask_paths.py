"""Finds the path that derives names of masks from names of images: 1_mask.png for 1.jpg."""

import collections
import os
import re
from collections.abc import Iterable, Sequence, Set

from beam_tfr.schema.differences import common_start
from beam_tfr.schema.pair_paths import fill_path

LIKE_PHOTOS = (".jpg", ".jpeg")  # never masks
_MOST_MASKS = 100  # masks that are compared with an image
_SEPARATORS = "-_. "
_SEPARATOR = re.compile(f"[{_SEPARATORS}]".replace("-", r"\-"))
_MOST_ODD = 0.1  # the fraction of masks that may have other names
_NUMBER_BEHIND = re.compile(r"(?<=[^-_. ])[-_. ]+[0-9]+(?=\.[A-Za-z]+$)")
# Parts of the names of masks for people to look at, or for other tasks: these masks come last.
_OTHER_KINDS = re.compile("(?i)colou?r|rgb|vis|instance|train")


def find_mask_name(images: Sequence[str], masks: Sequence[str]) -> str:
    """Returns the path that names the masks of most images, such as `{stem%_rgb}_mask.png`.

    Returns an empty string if there is no such path.

    Args:
        images, masks: names of files.
    """
    if not images or not masks:
        return ""
    stem = os.path.splitext(min(images))[0]
    alike = sorted(masks, key=lambda mask: (-_count_shared(stem, mask), mask))
    paths = {*filter(None, (_derive_path(stem, mask) for mask in alike[:_MOST_MASKS]))}
    known_masks = frozenset(masks)

    def rank(path: str) -> tuple[int, bool, bool, str]:
        number = _count_masks(path, images, known_masks)
        mark = fill_path(path, "")
        is_numbered = _NUMBER_BEHIND.search(path) is not None
        return -number, _OTHER_KINDS.search(mark) is not None, is_numbered, path

    return min(paths, key=rank, default="")


def _count_masks(path: str, images: Iterable[str], masks: Set[str]) -> int:
    """Counts the images for which a path names an existing mask."""
    return sum(fill_path(path, image) in masks for image in images)


def _count_shared(stem: str, mask: str) -> int:
    """Counts the characters that two names share at the start or at the end, whichever is more."""
    mask_stem = os.path.splitext(mask)[0]
    at_start = len(common_start([stem, mask_stem]))
    at_end = len(common_start([stem[::-1], mask_stem[::-1]]))
    return max(at_start, at_end)


def _derive_path(stem: str, mask: str) -> str:
    """Returns the path from an image to a mask, or an empty string for names with little in common.

    Args:
        stem: the name of the image, without its extension.
        mask: the name of the mask.
    """
    mask_stem, extension = os.path.splitext(mask)
    if mask_stem.startswith(stem):
        return "{stem}" + mask_stem.removeprefix(stem) + extension
    if mask_stem.endswith(stem):
        return mask_stem.removesuffix(stem) + "{stem}" + extension
    shared = len(common_start([stem, mask_stem]))
    begin = last_separator(stem[:shared])
    if begin > 0 and _has_letters(stem[begin:]):
        return f"{{stem%{stem[begin:]}}}{mask_stem[begin:]}{extension}"
    shared = len(common_start([stem[::-1], mask_stem[::-1]]))
    start = stem[:-shared] if shared else ""
    if _has_letters(start):
        return f"{mask_stem[:-shared]}{{stem#{start}}}{extension}"
    return ""


def _has_letters(text: str) -> bool:
    """Whether a text has letters, as a typical ending does, and no brackets."""
    return any(map(str.isalpha, text)) and not any(map(text.count, "[{}"))


def have_masks(images: Sequence[str], masks: Sequence[str]) -> bool:
    """Whether most of the images have a mask among the other files, judging by names alone."""
    path = find_mask_name(images, masks)
    if have_scattered_masks(images, masks, path) or find_inner_mark(images, masks, path):
        return True
    if not path or path.endswith(LIKE_PHOTOS):
        return False
    return _count_masks(path, images, frozenset(masks)) > len(images) // 2


def find_inner_mark(images: Sequence[str], masks: Sequence[str], path: str) -> str:
    """Returns the text inserted into image names for masks: `_zones` in a_zones_1.png, for a_1.png.

    Returns an empty string if there is no such text, or if a path names the masks of most images.

    Args:
        images, masks: names of files.
        path: path that names the mask of an image, from `find_mask_name`.
    """
    if not images or not masks or _count_masks(path, images, frozenset(masks)) > len(images) // 2:
        return ""
    stems = {os.path.splitext(image)[0] for image in images}
    mask_stems = [os.path.splitext(mask)[0] for mask in masks]
    mark = _find_inserted(min(stems), mask_stems)
    if not any(map(str.isalpha, mark)):
        return ""
    marked = stems.intersection(stem.replace(mark, "", 1) for stem in mask_stems if mark in stem)
    return mark if len(marked) > len(stems) // 2 else ""


def _find_inserted(stem: str, others: Iterable[str]) -> str:
    """Returns the text that, if inserted, turns a stem into one of `others`, or an empty string."""
    for other in others:
        start = len(common_start([stem, other]))
        rest = stem[start:]
        if len(other) > len(stem) and other.endswith(rest):
            return other[start : len(other) - len(rest)]
    return ""


def have_numbered_masks(images: Sequence[str], masks: Sequence[str], path: str) -> bool:
    """Whether an image has several masks that differ in a number: 1_0.png and 1_1.png, for 1.jpg.

    Args:
        images, masks: names of files.
        path: path that names the mask of an image, from `find_mask_name`.
    """
    plain_path = _NUMBER_BEHIND.sub("", path)
    mask_of = {image: fill_path(path, image) for image in images}
    all_masks = frozenset(mask_of.values())
    numbers = collections.Counter[str]()
    for mask in {*masks} - all_masks:
        numbers[_NUMBER_BEHIND.sub("", mask)] += 1
    for image, mask in mask_of.items():
        others = numbers[fill_path(plain_path, image)]
        if others and mask in masks:
            return True
    return False


def have_scattered_masks(images: Sequence[str], masks: Sequence[str], path: str) -> bool:
    """Whether images have several masks that no path names: 1_cat_0.png, 1_dog_1.png, for 1.jpg.

    Args:
        images, masks: names of files.
        path: path that names the mask of an image, from `find_mask_name`.
    """
    stems = {os.path.splitext(image)[0] for image in images}
    numbers = collections.Counter[str]()  # stem of an image -> number of its masks
    for mask in masks:
        starts = (mask[: separator.start()] for separator in _SEPARATOR.finditer(mask))
        numbers.update([max(stems.intersection(starts), key=len, default="")])
    if numbers.pop("", 0) > len(masks) * _MOST_ODD:
        return False
    several = sum(number > 1 for number in numbers.values())
    named = _count_masks(path, numbers, frozenset(masks))
    return several > len(numbers) // 2 and named < len(numbers) * (1 - _MOST_ODD)


def last_separator(text: str) -> int:
    """Returns the position of the last word separator in a text; -1 if there is none."""
    return max(map(text.rfind, _SEPARATORS))
