"""Finds annotations, which are tables, among the files that a folder of images skips."""

import contextlib
import os
import posixpath
import re
from collections.abc import Mapping, Sequence

from beam_tfr import storage

MOST_LOOKED_INTO = 5  # files of each extension
_BEGIN_BYTES = 64 << 10  # of a file that is looked into
_COCO_KEYS = re.compile(rb'"(?:images|annotations|categories|licenses|info|coordinates)"\s*:')
_VOC = re.compile(rb"<annotation[\s>]")
_YOLO = re.compile(rb"(?m)^names\s*:")
_EXTENSIONS = (".xml", ".json", ".yaml", ".yml")


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
                if extension != ".xml":  # which has many images
                    return f"{path} is a `table=`"
                folder, name = posixpath.split(path)
                return f"{folder}/*{os.path.splitext(name)[1]} are a `table=`"
    return ""


def _holds_annotations(extension: str, begin: bytes) -> bool:
    """Whether a file that begins so is one of Pascal VOC, COCO, Create ML or YOLO."""
    if extension == ".xml":
        return _VOC.search(begin) is not None
    if extension == ".json":
        return len({*_COCO_KEYS.findall(begin)}) > 1
    return _YOLO.search(begin) is not None
