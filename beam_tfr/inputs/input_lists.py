"""Reads lists of images: files with one path or pattern per line."""

import contextlib
import os
from collections.abc import Sequence
from typing import NamedTuple

from beam_tfr import storage
from beam_tfr.inputs.patterns import (
    escape_if_file,
    is_wild,
    read_lines,
    split_pattern,
)
from beam_tfr.inputs.spellings import list_spellings, read_address
from beam_tfr.schema.errors import UsageError
from beam_tfr.schema.extensions import has_image_name
from beam_tfr.schema.number_ranges import expand_ranges
from beam_tfr.schema.wildcards import WILDCARD, escape_pattern

_TRIED_LINES = 10  # lines that are tried, to find the folder that paths are relative to
_WHOLE = ("/", "~", storage.GCS)


class InputList(NamedTuple):
    """The content of a list.

    Attributes:
        patterns: the paths and patterns in the lines; a folder ends in a slash.
        note: names the folder that paths are relative to, if it is not the current folder; else
            empty.
    """

    patterns: tuple[str, ...]
    note: str = ""


def read_input_list(path: str | None) -> tuple[str, ...]:
    """Returns the patterns of a list; see `open_input_list`."""
    return open_input_list(path).patterns


def open_input_list(path: str | None) -> InputList:
    """Reads a list, and skips empty lines.

    Paths are relative to the current folder, or to the folder of the list if the first files exist
    only in the latter.

    Raises:
        UsageError: the file cannot be read or is empty, or a line is not a path; the message names
            the line.
    """
    lines = read_lines(path, option="input_list", needs="one path or pattern per line")
    folder = _find_folder(path or "", lines)
    patterns = list[str]()
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        start = folder if _is_relative(line) else ""
        try:
            for expanded in expand_ranges([line], option="input_list"):
                patterns.append(_read_pattern(start, expanded))
        except UsageError as error:
            message = f"line {number}: {error}"
            raise UsageError(message, option="input_list", value=path) from None
    note = ""
    if folder:
        note = f"paths in {path} are relative to its folder, {folder}, where the first files are"
    return InputList(tuple(patterns), note)


def _find_folder(path: str, lines: Sequence[str]) -> str:
    """Returns the folder of a list, with a final slash, if paths are relative to it; else ""."""
    relative = [line for line in lines if line and _is_relative(line)][:_TRIED_LINES]
    folder = path.rpartition("/")[0]
    if not folder or any(map(_exists, relative)):
        return ""
    starts_there = any(_exists(f"{folder}/{line}") for line in relative)
    return f"{folder}/" if starts_there else ""


def _is_relative(line: str) -> bool:
    """Whether a line is neither an absolute path nor a URL."""
    return not line.startswith(_WHOLE) and ":" not in line.partition("/")[0]


def _exists(line: str) -> bool:
    """Whether the path in a line, or the folder before the wildcards of a pattern, exists."""
    with contextlib.suppress(UsageError, OSError):  # reading the line raises them
        path = storage.check_path(line.replace("\\", "/").strip())
        if is_wild(path):
            path = split_pattern(path)[0]
        return storage.find(path) is not None or storage.is_folder(path)
    return False


def _read_pattern(start: str, line: str) -> str:
    r"""Returns the path or pattern in a line.

    A path may be spelled as on other systems, such as a\b.jpg. An existing file may be named like a
    pattern.

    Args:
        start: the folder that the line is relative to; empty for the current folder, and for
            absolute paths.

    Raises:
        UsageError: the line is not a path or pattern.
    """
    if WILDCARD.search(f"{start}{line}"):
        name = line.replace("\\", "/")
        path = storage.check_path(f"{start}{name}")
        if not storage.is_gcs(path) and os.path.exists(path):
            return _mark_folder(escape_if_file(path))
        return storage.check_path(f"{escape_pattern(start)}{name}")
    line = f"{start}{line}"
    path = line
    with contextlib.suppress(ValueError):  # raised for other URLs
        path = read_address(line)
    written = storage.check_path(path)
    spellings = list_spellings(line, remote=storage.is_gcs(line))
    if not spellings or storage.find(written):
        return _mark_folder(written)
    others = map(storage.check_path, spellings)
    return _mark_folder(next(filter(storage.find, others), written))


def _mark_folder(path: str) -> str:
    """Returns a path, with a final slash if it is a folder on disk."""
    may_be_folder = not storage.is_gcs(path) and not has_image_name(path)
    return f"{path.rstrip('/')}/" if may_be_folder and os.path.isdir(path) else path
