"""The first names in folders; those on gs:// are listed once for all that look at them."""

import contextlib
import itertools
import os
from collections.abc import Iterator

from beam_tfr import storage


class FirstNames:
    """Lists the first names in folders; on gs://, each page of a listing once."""

    def __init__(self) -> None:
        self._names = dict[str, list[str]]()
        self._rest = dict[str, Iterator[str]]()

    def list_names(self, folder: str, most: int) -> list[str]:
        """Up to so many names in a folder; none if it cannot be listed.

        On gs://, of files alone and in their order; on a disk, of folders too and in no order.
        """
        if not storage.is_remote(folder):
            return _list_on_disk(folder, most)
        if folder not in self._names:
            self._names[folder] = []
            self._rest[folder] = _walk_remote(folder)
        names = self._names[folder]
        names += itertools.islice(self._rest[folder], max(0, most - len(names)))
        return names[:most]


def _list_on_disk(folder: str, most: int) -> list[str]:
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        return [entry.name for entry in itertools.islice(entries, most)]
    return []


def _walk_remote(folder: str) -> Iterator[str]:
    with contextlib.suppress(OSError):
        for file in storage.walk(folder, lambda _: False, deep=False):
            yield file.name
