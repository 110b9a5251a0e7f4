"""Reads paths in the cells of tables."""

import contextlib
import os
import posixpath
import re
from typing import Any

from beam_tfr import storage
from beam_tfr.features.cells import check_cell, is_missing
from beam_tfr.inputs.spellings import MAX_PATH_LENGTH, list_spellings, read_address
from beam_tfr.schema.errors import check_text

_HOME = re.compile(r"~[^/]*/")
_LEAST_CONTENT = 80  # characters of a string that may be an image itself
# The beginnings of JPEG, PNG, GIF and WebP in base64.
_BASE64 = ("/9j/", "iVBORw0KGgo", "R0lGOD", "UklGR")
_PYTHON_BYTES = ("b'\\x", 'b"\\x', "b'GIF8", "b'RIFF", "{'bytes':")
_PIXELS = re.compile(r"\[*[0-9]{1,3}(?:[ ,]+[0-9]{1,3}){15}")


def read_text(cell: Any, what: str = "path") -> str:
    """Returns the string in a cell.

    Args:
        cell: the cell.
        what: what the string should be, for messages.

    Raises:
        ValueError: the cell is empty, or holds anything else.
    """
    if is_missing(cell):
        raise ValueError("has no value")
    check_cell(cell)
    if not isinstance(cell, str):
        raise ValueError(f"{cell!r:.100} is not a {what}")
    if "\0" in cell:
        raise ValueError("has a NUL character")
    return cell if cell.isascii() else check_text(cell)


def spell_number(cell: Any) -> Any:
    """Returns a cell; a whole number becomes a string, since it may be a name without extension."""
    return str(cell) if type(cell) is int else cell


def read_path(cell: Any) -> str:
    """Returns the path in a cell, which may be relative; `file:` and `~/` become absolute paths.

    Raises:
        ValueError: the cell is not a path.
    """
    path = read_text(cell)
    if len(path) > _LEAST_CONTENT:
        _check_content(path)
    if len(path) > MAX_PATH_LENGTH:
        raise ValueError(f"{path!r:.60} has more than {MAX_PATH_LENGTH:,} characters")
    if ":" in path:
        return read_address(path)
    return os.path.expanduser(path) if _HOME.match(path) else path


def _check_content(text: str) -> None:
    """Checks that a string is not an image itself.

    Raises:
        ValueError: the string is an image.
    """
    content = ""
    if text.startswith(_BASE64):
        content = "an image in base64"
    elif text.startswith(_PYTHON_BYTES):
        content = "a printout of bytes in Python"
    elif text[:5].lower() == "data:":
        content = "an image itself"
    elif _PIXELS.match(text):
        content = "a list of pixel values"
    if content:
        raise ValueError(
            f"{text[:30]!r}… is {content}, but only paths are read: write each image to a file, "
            "and the path of the file into the table"
        )


def is_absolute(path: str) -> bool:
    """Whether a path is absolute, on disk or gs://."""
    return path.startswith(("/", storage.GCS))


def resolve_path(cell: Any, base: str) -> str:
    """Returns the path of the file that a cell names.

    Args:
        cell: a path: gs://, absolute, or relative to `base`.
        base: a folder, with a trailing slash.

    Raises:
        ValueError: the cell is not a path.
    """
    path = read_path(cell)
    if storage.is_gcs(path):
        if not all(path[len(storage.GCS) :].partition("/")):
            raise ValueError(f"{path!r:.100} has no object name; it must be gs://BUCKET/NAME")
        return path
    if storage.is_gcs(base) and not path.startswith("/"):
        name = f"{base[len(storage.GCS) :]}{path}"
        return storage.GCS + (posixpath.normpath(name) if ".." in path.split("/") else name)
    return os.path.normpath(os.path.join(base, path))


def list_other_paths(cell: str, base: str, table: str = "") -> list[str]:
    """Lists other paths that a cell may mean, to try if its path leads to no file.

    Args:
        cell: a path, perhaps with backslashes, percent escapes or surrounding spaces.
        base: the folder that the path is relative to, with a trailing slash.
        table: the table; a path with .. may start from its folder.
    """
    spellings = list_spellings(cell, remote=storage.is_gcs(base) or storage.is_gcs(cell))
    bases = [base]
    if table and ".." in cell:
        bases.append(folder_of(table))
    paths = []
    for spelling in [cell, *spellings] if len(bases) > 1 else spellings:
        with contextlib.suppress(ValueError):
            paths += [resolve_path(spelling, folder) for folder in bases]
    return paths


def folder_of(path: str) -> str:
    """Returns the folder of a file, with a trailing slash."""
    return path[: path.rindex("/") + 1]


def folder_around(folder: str) -> str:
    """Returns the parent of a folder, with a trailing slash; for the root, the root itself."""
    return folder[: folder.rstrip("/").rfind("/") + 1] or folder
