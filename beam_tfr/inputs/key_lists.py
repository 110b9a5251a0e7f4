"""Reads lists of keys and hashes, for `remove` and `verify`.

A list is a file, `-` for standard input, or a pipe.
"""

import os
import re
import stat
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

from beam_tfr.inputs.patterns import MAX_LIST_BYTES, parse_lines, read_lines
from beam_tfr.schema.errors import UsageError, check_text
from beam_tfr.schema.untrusted import parse_json, quote

_STANDARD_INPUT = "-"
_SHA256 = re.compile(r"([0-9a-fA-F]{64})(?:\s.*)?", re.DOTALL)  # as `sha256sum` writes it


class KeyList(NamedTuple):
    """The keys that a file lists.

    Attributes:
        keys: the keys.
        are_lines: whether each line is a key, so that a key with a line break is read as several
            keys.
    """

    keys: Sequence[str]
    are_lines: bool = False


def read_keys(path: str, *, option: str, needs: str) -> KeyList:
    """Reads the keys in a list: one per line, or JSON Lines of strings or of objects with a `key`.

    Raises the errors of `read_list`.
    """
    lines = read_list(path, option=option, needs=needs)
    keys = [_parse_json_key(line) for line in lines]
    if None in keys:
        return KeyList(lines, are_lines=True)
    return KeyList([key for key in keys if key is not None])


def read_list(path: str, *, option: str, needs: str) -> list[str]:
    """Reads the lines of a list, except empty ones.

    Raises:
        UsageError: the list cannot be read, is not text, is empty, or is too long.
    """
    if path == _STANDARD_INPUT or _is_pipe(path):
        lines = parse_lines(_read_pipe(path), path, option=option, needs=needs)
    else:
        lines = read_lines(path, option=option, needs=needs)
    return [line for line in lines if line]


def _is_pipe(path: str) -> bool:
    try:
        return stat.S_ISFIFO(os.stat(path).st_mode)
    except OSError:
        return False


def _read_pipe(path: str) -> bytes:
    """Reads a pipe, which may never end, up to one byte beyond the limit."""
    if path == _STANDARD_INPUT:
        return sys.stdin.buffer.read(MAX_LIST_BYTES + 1)
    with open(path, "rb") as file:
        return file.read(MAX_LIST_BYTES + 1)


def _parse_json_key(line: str) -> str | None:
    """Returns the key in a line of JSON Lines; None if the whole line is a key."""
    if line[0] not in '"{':
        return None
    try:
        value: Any = parse_json(line)
        key = value["key"] if isinstance(value, dict) else value
        return check_text(key) if isinstance(key, str) else None
    except (ValueError, LookupError):
        return None


def find_hash(line: str) -> str:
    """Returns the SHA-256, in hex, at the start of a line, or an empty string if there is none."""
    match = _SHA256.fullmatch(line)
    return match[1] if match else ""


def read_hashes(path: str, *, option: str) -> list[str]:
    """Reads the hashes in a list, such as the output of `sha256sum`.

    Raises:
        UsageError: a line does not begin with a hash; see also `read_list`.
    """
    hashes = []
    for line in read_list(path, option=option, needs="a SHA-256 per line"):
        sha256 = find_hash(line)
        if not sha256:
            raise UsageError(
                f"{quote(line)} is not a SHA-256: begin each line with a hash of 64 hex digits",
                option=option,
                value=path,
            )
        hashes.append(sha256)
    return hashes
