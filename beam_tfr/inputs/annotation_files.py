"""Finds annotations, which are tables, among the files that a folder of images skips."""

import contextlib
import os
import posixpath
import re
from collections.abc import Mapping, Sequence

from beam_tfr import storage
from beam_tfr.schema.extensions import FORMAT_OF

MOST_LOOKED_INTO = 5  # files of each extension
_FIRST_LINES = 10  # of it, if it has lines
_BEGIN_BYTES = 64 << 10  # of a file that is looked into
_COCO_KEYS = re.compile(rb'"(?:images|annotations|categories|licenses|info|coordinates)"\s*:')
_LABELME_KEYS = re.compile(rb'"(?:shapes|imagePath|flags|version)"\s*:')
_VOC = re.compile(rb"<annotation[\s>]")
_YOLO = re.compile(rb"(?m)^names\s*:")
_YOLO_LINE = re.compile(rb"[0-9]+(?:[ \t]+[0-9.eE+-]+){4,}\s*")
_NAME_OF_IMAGE = re.compile(rf"\.(?i:{'|'.join(FORMAT_OF)})\b".encode())
# A word in the first line of a table with classes.
_CLASS_COLUMN = re.compile(
    rb"(?i)(?<![a-z])(?:labels?|class(?:es)?|category|target|breed|diagnosis|species)(?![a-z])"
)
_TEXTS = (".csv", ".tsv", ".jsonl", ".ndjson")
_EXTENSIONS = (".xml", ".json", ".yaml", ".yml", ".txt", *_TEXTS)


def annotation_extension(path: str) -> str:
    """The extension of a file that may hold annotations; empty if it has another."""
    extension = os.path.splitext(path)[1].lower()
    return extension if extension in _EXTENSIONS else ""


def describe_annotations(candidates: Mapping[str, Sequence[str]]) -> str:
    """Says which skipped files are annotations, and that they are tables; empty if none are.

    Args:
        candidates: extension -> the first files that have it.
    """
    tables = list[str]()
    for extension in sorted(candidates):
        table = _find_table(extension, candidates[extension])
        if table:
            tables.append(table)
    if not tables:
        return ""
    return f"skipped files hold boxes or classes of images: {', '.join(tables)}"


def _find_table(extension: str, paths: Sequence[str]) -> str:
    """Says what table the first of some files with annotations is part of; empty if none is."""
    for path in sorted(paths):
        with contextlib.suppress(OSError):
            begin = storage.read_part(path, 0, _BEGIN_BYTES)
            if _holds_annotations(extension, begin):
                return _name_table(extension, path)
    return ""


def _name_table(extension: str, path: str) -> str:
    """Says what table a file of annotations is part of."""
    folder, name = posixpath.split(path)
    if extension == ".xml":  # of one image
        return f"{folder}/*{os.path.splitext(name)[1]} are a `table=`"
    if extension == ".txt":
        return f"{folder}/*.txt belong to a data.yaml of YOLO, which is a `table=`"
    return f"{path} is a `table=`"


def _holds_annotations(extension: str, begin: bytes) -> bool:
    """Whether a file that begins so is one of VOC, COCO, Create ML, LabelMe or YOLO, or a table."""
    if extension == ".txt":
        lines = begin.splitlines()[:_FIRST_LINES]
        return bool(lines) and all(map(_YOLO_LINE.fullmatch, lines))
    if extension in _TEXTS:
        return _is_table(begin.splitlines()[:_FIRST_LINES])
    if extension == ".xml":
        return _VOC.search(begin) is not None
    if extension == ".json":
        is_labelme = len({*_LABELME_KEYS.findall(begin)}) > 2
        return is_labelme or len({*_COCO_KEYS.findall(begin)}) > 1
    return _YOLO.search(begin) is not None


def _is_table(lines: Sequence[bytes]) -> bool:
    """Whether a text that begins with these lines is a table of images, or of their classes."""
    rows = lines[1:]
    if not rows:
        return False
    return _CLASS_COLUMN.search(lines[0]) is not None or all(map(_NAME_OF_IMAGE.search, rows))
