"""Describes fields of Pascal VOC objects that are not stored."""

import contextlib
from collections.abc import Iterator, Sequence
from xml.etree import ElementTree  # nosec B405  # a document with entities is refused

from beam_tfr import storage
from beam_tfr.schema.differences import join_texts
from beam_tfr.schema.errors import BeamTfrError
from beam_tfr.tables.annotations.voc import parse_voc
from beam_tfr.tables.base import open_table

_KNOWN = {"name", "bndbox", "difficult", "truncated", "deleted"}
_POLYGON = "polygon"
_NO_VALUES = ("", "0", "unspecified")
_FIRST_FILES = 20
_FIRST_REMOTE = 2  # each file takes a request


def describe_other_fields(files: Sequence[str]) -> str:
    """Returns the message about object fields that are not read, or an empty string.

    Only the first files are read.
    """
    fields = dict[str, None]()
    most = _FIRST_REMOTE if storage.is_remote(files[0]) else _FIRST_FILES
    for path in files[:most]:
        fields.update(dict.fromkeys(_list_other_fields(path)))
    if not fields:
        return ""
    cures = []
    if _POLYGON in fields:
        cures.append("COCO files, which most labeling programs also export, keep polygons")
    if len(fields) > len(cures):
        cures.append("a table with a row for each box, such as .csv, may have them as columns")
    names = join_texts([*fields], separator=", ")
    return f"no values of the fields {names} of objects are stored: {'; '.join(cures)}"


def _list_other_fields(path: str) -> Iterator[str]:
    """Yields the names of fields that have values but are not read."""
    # If a file cannot be read, its row reports that.
    with contextlib.suppress(OSError, ValueError, BeamTfrError, ElementTree.ParseError):
        with open_table(path) as file:
            root = parse_voc(file)
        for field in root.iterfind("object/*"):
            text = (field.text or "").strip().lower()
            has_value = len(field) > 0 or text not in _NO_VALUES
            if field.tag not in _KNOWN and has_value:
                yield field.tag
