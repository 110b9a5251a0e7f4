"""Reads annotations of objects as tables: COCO, Create ML, Pascal VOC and YOLO.

A row is an image with the boxes and classes of its objects; `options.implied.ANNOTATIONS` names the
columns. `json_files` reads .json (`coco`, `create_ml`), `voc` reads .xml, and `yolo` reads .yaml.
"""

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, Any
from xml.etree import ElementTree  # nosec B405  # for `ParseError`

import msgspec
import yaml

from beam_tfr.options.implied import ANNOTATIONS, implied_options, optional_columns
from beam_tfr.schema.bad_bytes import describe_bad_byte
from beam_tfr.tables.annotations.json_files import read_json
from beam_tfr.tables.annotations.voc import describe_origin, describe_other_names, read_voc
from beam_tfr.tables.annotations.voc_fields import describe_other_fields
from beam_tfr.tables.annotations.yolo import read_names, read_yolo
from beam_tfr.tables.base import (
    ColumnSelection,
    DamagedTableError,
    Note,
    ObjectFormat,
    damaged_table,
    open_table,
)

YOLO = (".yaml", ".yml")
_Reader = Callable[[str, IO[bytes], Callable[[Note], object]], Iterator[dict[str, Any]]]
# Extension -> the name of the format, and the function that reads it.
_FORMATS: dict[str, tuple[str, _Reader]] = {
    ".json": ("COCO or Create ML", read_json),
    ".xml": ("Pascal VOC", read_voc),
    **dict.fromkeys(YOLO, ("YOLO", read_yolo)),
}
_SHOWN_BYTES = 30  # shown before and after bytes that are not in the file's encoding


class Annotations(ObjectFormat):
    """Annotation files, whose extensions determine their columns.

    A JSON file is held in memory: first its bytes, and then 500 bytes per box. For a cell that
    cannot be read, a `BadCell` says why.
    """

    def __init__(self, *, of_one_image: bool = False, has_row_files: bool = False) -> None:
        self.of_one_image = of_one_image
        self.has_row_files = has_row_files

    def read_columns(self, path: str, most_rows: int) -> list[str]:
        implied = implied_options(path, {})
        roles = [name for name in implied.values() if isinstance(name, str)]
        return [*roles, *implied["feature_columns"], *optional_columns(path)]

    def read_objects(
        self, path: str, file: IO[bytes], selection: ColumnSelection
    ) -> Iterator[dict[str, Any]]:
        return read_annotations(path, file, selection.say)

    def read_class_names(self, path: str, column: str) -> list[str]:
        if _extension_of(path) not in YOLO or column != ANNOTATIONS[".yaml"]["label_column"]:
            return []
        with open_table(path) as file, _naming_format(path):
            return read_names(file)


def read_annotations(
    path: str, file: IO[bytes], say: Callable[[Note], object] = lambda _: None
) -> Iterator[dict[str, Any]]:
    """Yields a mapping of column to cell for each image, in the order of the file.

    For `say` see `ColumnSelection`.

    Raises:
        DamagedTableError: the file does not hold such annotations; the message describes and
            locates the problem.
    """
    _, read = _FORMATS[_extension_of(path)]
    with _naming_format(path):
        yield from read(path, file, say)


@contextlib.contextmanager
def _naming_format(path: str) -> Iterator[None]:
    """Turns a read error in the block into an error that names the file and its format."""
    name, _ = _FORMATS[_extension_of(path)]
    try:
        yield
    except UnicodeDecodeError as error:
        raise _unreadable(path, name, _describe_encoding(error)) from None
    except (
        ValueError,
        RecursionError,
        msgspec.MsgspecError,
        yaml.YAMLError,
        ElementTree.ParseError,
    ) as error:
        raise _unreadable(path, name, " ".join(str(error).split())) from None


def _describe_encoding(error: UnicodeDecodeError) -> str:
    """Says which text does not match the encoding of the file, and how to fix this."""
    begin = max(error.start - _SHOWN_BYTES, 0)
    text = error.object[begin : error.start + _SHOWN_BYTES]
    if error.encoding != "utf-8":
        return f"{text!r} is not {error.encoding.upper()}"
    return f"in {text!r}, {describe_bad_byte(error.object, error.start)}"


def _extension_of(path: str) -> str:
    return os.path.splitext(path)[1].lower()


def describe_doubts(files: Sequence[str], cells: Mapping[str, Sequence[Any]]) -> Iterator[str]:
    """Yields messages about parts of annotations that are uncertain or not stored, if any.

    Args:
        files: all tables.
        cells: column -> its cells in the first rows.
    """
    if _extension_of(files[0]) != ".xml":
        return
    if "box" in cells:
        yield from filter(None, [describe_origin(cells)])
    if "file" in cells:
        yield from filter(None, [describe_other_names(cells)])
    yield from filter(None, [describe_other_fields(files)])


def _unreadable(path: str, name: str, problem: str) -> DamagedTableError:
    return damaged_table(path, f"cannot be read as {name}: {problem}")
