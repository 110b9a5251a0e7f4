"""Annotations of Pascal VOC: an XML file for each image.

As in the PASCAL VOC devkit, pixels count from 1, and the last one belongs to its box.
"""

from collections.abc import Callable, Iterator
from typing import IO, Any
from xml.etree import ElementTree  # nosec B405  # a document with entities is refused

from beam_tfr.schema.feature_names import SOURCE_HEIGHT, SOURCE_WIDTH
from beam_tfr.tables.annotations.text import parse_numbers, read_text

_SIDES = ("xmin", "ymin", "xmax", "ymax")


def read_voc(
    _path: str, file: IO[bytes], _say: Callable[[str], object]
) -> Iterator[dict[str, Any]]:
    """Yields the one row of a file.

    Raises:
        ValueError, ElementTree.ParseError: it is not such a file.
    """
    text = read_text(file)
    if "<!" in text.replace("<!--", ""):
        raise ValueError("has a DOCTYPE or an entity, which no such file needs")
    root = ElementTree.fromstring(text)  # noqa: S314  # nosec B314
    objects = root.findall("object")
    name = root.findtext("filename")
    yield {
        "file": name,
        "class": [obj.findtext("name") for obj in objects],
        "box": [_read_box(obj) for obj in objects],
        "image/source_id": name,
        SOURCE_WIDTH: root.findtext("size/width"),
        SOURCE_HEIGHT: root.findtext("size/height"),
        "image/object/difficult": [_read_flag(obj, "difficult") for obj in objects],
        "image/object/truncated": [_read_flag(obj, "truncated") for obj in objects],
    }


def _read_box(obj: ElementTree.Element) -> list[float]:
    """xmin, ymin, xmax, ymax, counted from 0; all NaN if one is missing."""
    sides = [obj.findtext(f"bndbox/{side}", "") for side in _SIDES]
    left, top, right, bottom = parse_numbers(sides)
    return [left - 1, top - 1, right, bottom]


def _read_flag(obj: ElementTree.Element, name: str) -> str:
    return obj.findtext(name) or "0"
