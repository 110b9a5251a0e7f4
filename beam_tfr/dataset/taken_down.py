"""Keeps hashes of the images that were taken down, in removed.txt, so they do not come back.

A line is `key` or `source` and a SHA-256: of a key, or of a source file. Conversions and updates
into the folder leave such keys out, and reject such files as `taken-down`.
"""

import contextlib
from typing import NamedTuple

from beam_tfr import storage
from beam_tfr.schema.dataset import REMOVED_FILE
from beam_tfr.schema.errors import DataError

_MOST_BYTES = 256 << 20  # 256 MiB, of some million images


class Removed(NamedTuple):
    """Hashes of the images that were taken down, in hex: of keys, and of source files."""

    keys: frozenset[str] = frozenset()
    sources: frozenset[str] = frozenset()

    def to_bytes(self) -> bytes:
        """Returns the content of removed.txt."""
        lines = [f"key {sha256}\n" for sha256 in self.keys]
        lines += [f"source {sha256}\n" for sha256 in self.sources]
        return "".join(sorted(lines)).encode()


def read_removed(folder: str) -> Removed:
    """Reads which images were taken down from the dataset in a folder.

    Raises:
        DataError: the file is damaged.
        OSError: it cannot be read.
    """
    path = storage.join(folder, REMOVED_FILE)
    hashes: dict[str, set[str]] = {"key": set(), "source": set()}
    for number, line in enumerate(_read_lines(path), start=1):
        kind, _, sha256 = line.partition(" ")
        if kind not in hashes or len(sha256) != 64:
            raise DataError(
                f"{path}: line {number} is damaged; restore the file, or images may come back"
            )
        hashes[kind].add(sha256)
    return Removed(frozenset(hashes["key"]), frozenset(hashes["source"]))


def _read_lines(path: str) -> list[str]:
    """Reads the lines of a file; empty if there is no such file.

    Raises:
        DataError: it is too long.
    """
    data = b""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        data = storage.read_bytes(path, max_bytes=_MOST_BYTES)
    if len(data) > _MOST_BYTES:
        raise DataError(
            f"{path} has more than {_MOST_BYTES >> 20} MiB; restore the file, or images may come "
            "back"
        )
    return data.decode("utf-8", "replace").splitlines()
