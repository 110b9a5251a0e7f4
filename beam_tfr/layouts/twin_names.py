"""Finds photos that exist twice, in two formats."""

import collections
from collections.abc import Iterable

from beam_tfr.console.terminal import counted
from beam_tfr.schema.extensions import FORMAT_OF, stem_of_image
from beam_tfr.schema.spelling import spell_option

_MAIN_FORMAT = "jpeg"
_NO_PHOTOS = ("png", "gif", "ppm")  # these may be masks of JPEGs, which are reported elsewhere


def describe_twins(keys: Iterable[str]) -> str:
    """Reports JPEGs next to images with the same name in another format.

    An example is `IMG_1.HEIC` next to `IMG_1.JPG`: two images of one photo, whose bytes differ.
    Returns an empty string if there are no such images.
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
        f"{photos} may exist twice, such as {first[_MAIN_FORMAT]} and {other}, which count as two "
        f"images, perhaps in two splits: {spell_option('exclude', f'**/*.{extension}')} leaves out "
        "the latter"
    )


def _are_twins(formats: Iterable[str]) -> bool:
    return _MAIN_FORMAT in formats and any(map(_is_other, formats))


def _is_other(image_format: str) -> bool:
    """Whether a format may be another format of the same photo."""
    return image_format not in ("", _MAIN_FORMAT, *_NO_PHOTOS)
