"""Finds images that exist twice: in two formats, or in the two folders of image pairs."""

import collections
import re
from collections.abc import Iterable

from beam_tfr.console.terminal import counted
from beam_tfr.layouts.name_pattern import NamePattern
from beam_tfr.schema.differences import join_texts
from beam_tfr.schema.extensions import FORMAT_OF, stem_of_image

# Names of folders that hold one of the images of each pair.
_PAIR_FOLDER = NamePattern(
    r"(?i)(?:.*[-_ ])?(?:[hl][rq]|[hl](?:igh|ow)(?:[-_ ]?res)?|gts?|inputs?|targets?|sharp"
    r"|blur(?:red|ry)?|clean|clear|nois[ey]|hazy|rainy?|bicubic|upsampled|originals?|edited)"
)
_SCALE_FOLDER = re.compile("(?i)x[0-9]{1,2}")  # DIV2K's LR_bicubic/X2, with 0001x2.png
_SCALE = re.compile("(?i)[-_ ]?x[0-9]{1,2}$")
_MAIN_FORMAT = "jpeg"
_NO_PHOTOS = ("png", "gif", "ppm")  # these may be masks of JPEGs, which are reported elsewhere


def describe_twins(keys: Iterable[str]) -> str:
    """Reports JPEGs next to images with the same name in another format.

    `IMG_1.HEIC` next to `IMG_1.JPG` is an example: two images of one photo, whose bytes differ.
    Empty if there are none.
    """
    formats_of = collections.defaultdict[str, dict[str, str]](dict)  # stem -> format -> key
    for key in keys:
        image_format = FORMAT_OF.get(key.rpartition(".")[2].lower(), "")
        formats_of[stem_of_image(key)][image_format] = key
    twins = [formats for formats in formats_of.values() if _are_twins(formats)]
    if not twins:
        return ""
    first = twins[0]
    other = next(key for name, key in first.items() if _is_other(name))
    extension = other.rpartition(".")[2]
    photos = counted(len(twins), "photo")
    return (
        f"{photos} may exist twice, such as {first[_MAIN_FORMAT]} and {other}, which count as "
        f"two images, maybe in two splits: `exclude='**/*.{extension}'` leaves out the latter"
    )


def describe_pair_folders(keys: Iterable[str]) -> str:
    """Reports folders that hold the images of pairs, such as HR and LR.

    The folders have typical names, and their files have the same names except for scale suffixes.
    Empty if there are none.
    """
    names_in = collections.defaultdict[str, set[str]](set)
    for key in keys:
        folder, _, name = key.rpartition("/")
        names_in[folder].add(_SCALE.sub("", stem_of_image(name)))
    folders = sorted(names_in)
    if len(folders) < 2 or not all(map(_holds_pairs, folders)):
        return ""
    first = names_in[folders[0]]
    if any(names_in[folder] != first for folder in folders):
        return ""
    shown = join_texts(folders, separator=" and ")
    return (
        f"the folders {shown} seem to hold pairs of images, since their files have the same "
        "names, but become classes: make a dataset from each, with `layout='*'` and the same "
        "options, including `num_shards=` and `max_rejects=0`, and zip the datasets where you load "
        "them"
    )


def _holds_pairs(folder: str) -> bool:
    """Whether a folder is named like one for pairs, or a scale in such a folder: LR_bicubic/X2."""
    around, _, name = folder.rpartition("/")
    if _SCALE_FOLDER.fullmatch(name):
        name = around.rpartition("/")[2]
    return _PAIR_FOLDER.fullmatch(name) is not None


def _are_twins(formats: Iterable[str]) -> bool:
    return _MAIN_FORMAT in formats and any(map(_is_other, formats))


def _is_other(image_format: str) -> bool:
    """Whether a format may be another format of the same photo."""
    return image_format not in ("", _MAIN_FORMAT, *_NO_PHOTOS)
