"""Paths and names in the cells of tables."""

import os
import posixpath
from typing import Any

from beam_tfr import storage
from beam_tfr.features.cells import check_cell, is_missing


def read_text(cell: Any, what: str = "path") -> str:
    """The text in a cell.

    Args:
        cell: the cell.
        what: what it should be, for messages.

    Raises:
        ValueError: it holds anything else, or nothing.
    """
    if is_missing(cell):
        raise ValueError("has no value")
    check_cell(cell)
    if not isinstance(cell, str):
        raise ValueError(f"{cell!r:.100} is no {what}")
    if "\0" in cell:
        raise ValueError("has a NUL character")
    return cell


def resolve_path(cell: Any, base: str) -> str:
    """The path of the file that a cell names.

    Args:
        cell: a path: gs://, absolute, or relative to `base`.
        base: folder, with a trailing slash.

    Raises:
        ValueError: the cell is not a path.
    """
    path = read_text(cell)
    if storage.is_gcs(path):
        if not all(path[len(storage.GCS) :].partition("/")):
            raise ValueError(f"{path!r:.100} has no object name; it must be gs://BUCKET/NAME")
        return path
    if "://" in path:
        raise ValueError(f"{path!r:.100}: only local paths and gs:// are read")
    if storage.is_gcs(base) and not path.startswith("/"):
        name = f"{base[len(storage.GCS) :]}{path}"
        return storage.GCS + (posixpath.normpath(name) if ".." in path.split("/") else name)
    return os.path.normpath(os.path.join(base, path))


def folder_of(path: str) -> str:
    """The folder of a file, with a trailing slash."""
    return path[: path.rindex("/") + 1]
