"""Reads and writes removed.txt: hashes of images that were taken down and must not come back.

Each line consists of `key` or `source` and the SHA-256 of a key or source file. Updates, and
conversions into the folder, leave out such keys and reject such files as `taken-down`.
"""

import contextlib
from typing import NamedTuple

from beam_tfr import storage
from beam_tfr.schema.dataset import REMOVED_FILE
from beam_tfr.schema.errors import DataError

_MOST_BYTES = 256 << 20  # 256 MiB, enough for some million images


class Removed(NamedTuple):
    """Hashes, in hex, of the keys and source files of images that were taken down."""

    keys: frozenset[str] = frozenset()
    sources: frozenset[str] = frozenset()

    def to_bytes(self) -> bytes:
        """Returns the content of removed.txt."""
        lines = [f"key {sha256}\n" for sha256 in self.keys]
        lines += [f"source {sha256}\n" for sha256 in self.sources]
        return "".join(sorted(lines)).encode()


def read_removed(folder: str) -> Removed:
    """Reads the hashes of the images that were taken down from the dataset in a folder.

    Raises:
        DataError: the file is damaged.
        OSError: the file cannot be read.
    """
    path = storage.join(folder, REMOVED_FILE)
    hashes: dict[str, set[str]] = {"key": set(), "source": set()}
    for number, line in enumerate(_read_lines(path), start=1):
        kind, _, sha256 = line.partition(" ")
        if kind not in hashes or len(sha256) != 64:
            raise DataError(
                f"{path}: line {number} is damaged; restore the file, or removed images may come "
                "back"
            )
        hashes[kind].add(sha256)
    return Removed(frozenset(hashes["key"]), frozenset(hashes["source"]))


def _read_lines(path: str) -> list[str]:
    """Returns the lines of a file, or an empty list if the file does not exist.

    Raises:
        DataError: the file is too long.
    """
    data = b""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        data = storage.read_bytes(path, max_bytes=_MOST_BYTES)
    if len(data) > _MOST_BYTES:
        raise DataError(
            f"{path} has more than {_MOST_BYTES >> 20} MiB; restore the file, or removed images "
            "may come back"
        )
    return data.decode("utf-8", "replace").splitlines()
