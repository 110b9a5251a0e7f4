"""Lists the first names in folders; folders on gs:// are listed only once."""

import contextlib
import itertools
import os
from collections.abc import Iterator

from beam_tfr import storage


class FirstNames:
    """A lister of the first names in folders; it lists each page of a gs:// folder only once."""

    def __init__(self) -> None:
        self._listings = dict[str, _RemoteNames]()

    def list_names(self, folder: str, most: int) -> list[str]:
        """Returns at most `most` names in a folder; no names if the folder cannot be listed.

        On gs://, these are names of files, in order; on disk, names of files and folders, in no
        particular order.
        """
        if storage.is_remote(folder):
            return self._listing_of(folder).list_files(most)
        return [entry.name for entry in _scan_disk(folder, most)]

    def list_folders(self, folder: str, most: int) -> list[str]:
        """Returns the sorted names of the first subfolders; none if the folder cannot be listed.

        Args:
            folder: the folder with the subfolders.
            most: the maximum number of names to look at on disk.
        """
        if storage.is_remote(folder):
            return self._listing_of(folder).list_folders()
        with contextlib.suppress(OSError):  # raised for a link
            return sorted(entry.name for entry in _scan_disk(folder, most) if entry.is_dir())
        return []

    def _listing_of(self, folder: str) -> "_RemoteNames":
        return self._listings.setdefault(folder, _RemoteNames(folder))


class _RemoteNames:
    """The names in a gs:// folder, listed only as far as needed.

    Args:
        folder: the folder; there are no names if the folder cannot be listed.
    """

    def __init__(self, folder: str) -> None:
        self._rest = _list_remote(folder)
        self._files = list[str]()
        self._folders = list[str]()

    def list_files(self, most: int) -> list[str]:
        """Returns at most `most` file names."""
        while len(self._files) < most:
            if not self._read_name():
                break
        return self._files[:most]

    def list_folders(self) -> list[str]:
        """Returns the sorted names of the folders among the first names."""
        while len(self._files) + len(self._folders) < storage.MOST_REMOTE_NAMES:
            if not self._read_name():
                break
        return sorted(self._folders)

    def _read_name(self) -> bool:
        """Reads the next name; returns False if there is none."""
        name = next(self._rest, "")
        if name.endswith("/"):
            self._folders.append(name.rstrip("/"))
        elif name:
            self._files.append(name)
        return bool(name)


def _scan_disk(folder: str, most: int) -> list[os.DirEntry[str]]:
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        return [*itertools.islice(entries, most)]
    return []


def _list_remote(folder: str) -> Iterator[str]:
    with contextlib.suppress(OSError):
        yield from storage.list_names(folder)
