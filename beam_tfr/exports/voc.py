"""Writes the format `voc`: JPEGImages/NAME, Annotations/NAME.xml and ImageSets/Main/SPLIT.txt.

As in the devkit of Pascal VOC, pixels are counted from 1, and the last pixel belongs to its box.
The name of an image is its key, with _ in place of slashes and of dots before inner extensions,
because lists contain the names of files in a single folder, without extensions. See
http://host.robots.ox.ac.uk/pascal/VOC/voc2012/htmldoc/devkit_doc.html.
"""

import html
import posixpath
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from beam_tfr.dataset.manifest import Manifest
from beam_tfr.exports.image_files import (
    ImageFiles,
    read_checked_parts,
    write_text,
)
from beam_tfr.exports.image_names import NamedImage, image_of, unique_file_name
from beam_tfr.exports.shard import ExportedSample, ExportedShard
from beam_tfr.features.boxes import BOXES_KEY
from beam_tfr.schema.dataset import VOC_DATABASE
from beam_tfr.schema.errors import DataError, UsageError
from beam_tfr.schema.extensions import FORMAT_OF
from beam_tfr.schema.feature_names import CHANNELS, HEIGHT, OBJECT_TEXT, WIDTH
from beam_tfr.schema.untrusted import quote

_FLAGS = ("truncated", "difficult")
_COLUMN = "image/object/{flag}"  # made by a conversion of Pascal VOC
_NO_XML = re.compile("[^ -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_MOST_DECIMALS = 6


def check_classes(dataset: Manifest, _: Collection[str]) -> None:
    """Checks that XML can represent the names of the classes.

    Raises:
        UsageError: XML cannot represent the name of a class.
    """
    for name in dataset.class_names:
        if _NO_XML.search(name):
            raise UsageError(
                f"uses XML, which cannot represent the class {quote(name)}: use another format",
                option="format",
                value="voc",
            )


def list_left_out(dataset: Manifest, _: int) -> list[str]:
    """Lists the columns that annotations cannot store."""
    features = dataset.feature_kinds
    kept = [_COLUMN.format(flag=flag) for flag in _FLAGS]
    if features.boxes:
        kept.append(features.boxes.name)
    return [column.name for column in features.columns if column.specs and column.name not in kept]


_LIST = "ImageSets/Main/{split}.txt"


def list_own_files(_: Manifest, splits: Collection[str]) -> list[str]:
    """Lists the lists of images."""
    return [_LIST.format(split=split) for split in splits]


def name_files(image: NamedImage) -> list[str]:
    """Returns the paths of an image and its annotations.

    Raises:
        DataError: XML cannot represent the name of the image.
    """
    key = unique_file_name(image)
    if _NO_XML.search(key):
        raise DataError(f"lists and XML cannot represent the key {quote(key)}: use `format=folder`")
    name = _flatten_name(key)
    stem = posixpath.splitext(name)[0]
    return [f"JPEGImages/{name}", f"Annotations/{stem}.xml"]


def describe_image(shard: ExportedShard, sample: ExportedSample) -> ImageFiles:
    """Returns the files of an image: the image itself and its annotations."""
    image_path, annotations_path = name_files(image_of(shard, sample))
    name = image_path.rpartition("/")[2]
    stem = posixpath.splitext(name)[0]
    text = _annotation(name, sample)
    files = {image_path: sample.image, annotations_path: text.encode()}
    return ImageFiles(files, [sample.about["split"], stem])


def _flatten_name(key: str) -> str:
    """Returns the name of an image in a single folder; its stem has no extensions of images.

    `a/1.png.jpg` becomes `a_1_png.jpg`, because programs that find `a_1.png` in a list take it for
    the name of a file.
    """
    stem, extension = posixpath.splitext(key.replace("/", "_"))
    inner_stem, inner_extension = posixpath.splitext(stem)
    while inner_extension[1:].lower() in (*FORMAT_OF, "xml"):
        stem = f"{inner_stem}_{inner_extension[1:]}"
        inner_stem, inner_extension = posixpath.splitext(stem)
    return stem + extension


def _annotation(name: str, sample: ExportedSample) -> str:
    """Returns the text of an image's XML file."""
    values = sample.values
    (width,) = values[WIDTH]
    (height,) = values[HEIGHT]
    (depth,) = values[CHANNELS]
    boxes = sample.about[BOXES_KEY]
    classes = values.get(OBJECT_TEXT, [b"object"] * len(boxes))
    flags = {flag: values.get(_COLUMN.format(flag=flag), [0] * len(boxes)) for flag in _FLAGS}
    lines = [
        "<annotation>",
        "  <folder>JPEGImages</folder>",
        f"  <filename>{html.escape(name, quote=False)}</filename>",
        "  <source>",
        f"    <database>{VOC_DATABASE}</database>",
        "  </source>",
        "  <size>",
        f"    <width>{width}</width>",
        f"    <height>{height}</height>",
        f"    <depth>{depth}</depth>",
        "  </size>",
        "  <segmented>0</segmented>",
    ]
    for number, (box, class_name) in enumerate(zip(boxes, classes, strict=True)):
        lines += [
            "  <object>",
            f"    <name>{html.escape(class_name.decode(), quote=False)}</name>",
            "    <pose>Unspecified</pose>",
        ]
        lines += [f"    <{flag}>{flags[flag][number]}</{flag}>" for flag in _FLAGS]
        lines += _bounding_box(box, (width, height))
        lines.append("  </object>")
    return "\n".join([*lines, "</annotation>", ""])


def _bounding_box(box: Sequence[float], size: tuple[int, int]) -> list[str]:
    """Returns the lines for a box, whose sides are given as fractions of the image."""
    left, top, right, bottom = box
    width, height = size
    sides = {
        "xmin": _count_pixels(left, width, first=1),
        "ymin": _count_pixels(top, height, first=1),
        "xmax": _count_pixels(right, width),
        "ymax": _count_pixels(bottom, height),
    }
    corners = [f"      <{side}>{text}</{side}>" for side, text in sides.items()]
    return ["    <bndbox>", *corners, "    </bndbox>"]


def _count_pixels(share: float, side: int, *, first: int = 0) -> str:
    """Converts a fraction of a side into pixels, with the fewest decimals that keep its value.

    Args:
        share: the fraction, a 32-bit float.
        first: the number of the first pixel.
    """
    pixels = share * side
    for decimals in range(_MOST_DECIMALS):
        rounded = round(pixels, decimals)
        if np.float32(rounded / side) == np.float32(share):
            return f"{rounded + first:.{decimals}f}"
    return f"{pixels + first:.{_MOST_DECIMALS}f}"


def complete_voc(_: Manifest, output: str, counts: Mapping[str, int]) -> None:
    """Writes the lists of images for each split.

    Raises:
        DataError: see `read_checked_parts`.
    """
    names_of = dict[str, list[str]]()  # split -> names of its images
    images: Any = read_checked_parts(output, counts)
    for split, name in images:
        names_of.setdefault(split, []).append(f"{name}\n")
    for split, names in names_of.items():
        write_text(output, _LIST.format(split=split), names)
