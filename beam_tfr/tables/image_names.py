"""Finds images whose names in annotations are not quite those of their files.

Programs write names without an extension, with that of another format, in other case, with a folder
before them, or with their whole path on another machine.
"""

import os
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Self

from beam_tfr import storage
from beam_tfr.schema.differences import join_texts
from beam_tfr.schema.errors import UsageError
from beam_tfr.schema.extensions import FORMAT_OF
from beam_tfr.tables.paths import resolve_path

_MOST_NAMES = 500_000  # held at a time, about 300 bytes each
_NO_FOLDERS = ("", ".", "..")
_DRIVE = re.compile(r"[A-Za-z]:")


class ImageName(str):
    """The name of an image in a cell, whose file may have a slightly different one.

    Attributes:
        folder: a folder that it may be in, as the table says; empty for none.
    """

    folder: str

    def __new__(cls, name: str, folder: str = "") -> Self:
        self = super().__new__(cls, name)
        self.folder = folder
        return self


class ImageFinder:
    """Finds the files of image names; lists each folder once, or again after many others.

    On a disk, no folder is listed while files have the names that are written.
    """

    def __init__(self) -> None:
        self._folders = dict[str, _Folder]()

    def __reduce__(self) -> tuple[type[Self], tuple[()]]:
        return type(self), ()  # what was listed stays where it was

    def find(self, name: ImageName, base: str) -> str:
        """The path of the image that a name means, as it is written if there is none.

        Args:
            name: the name.
            base: the folder that relative names start from, with a trailing slash.

        Raises:
            ValueError: it is no path, or several images could be meant.
            UsageError: a folder cannot be listed.
        """
        written = resolve_path(name, base)
        places = [written, *_list_places(name, base)]
        for path in places:
            if self._exists(path):
                return path
        for path in places:
            folder, _, file_name = path.rpartition("/")
            similar = self._list(folder).find_similar(file_name)
            if len(similar) > 1:
                raise ValueError(f"{name!r:.200} may be each of {join_texts(similar)}")
            if similar:
                return f"{folder}/{similar[0]}"
        return written

    def _exists(self, path: str) -> bool:
        if not storage.is_remote(path):
            return os.path.lexists(path)
        folder, _, name = path.rpartition("/")
        return self._list(folder).has(name)

    def _list(self, folder: str) -> "_Folder":
        if folder not in self._folders:
            try:
                names = storage.list_folder(folder)
            except OSError as error:
                raise UsageError(f"{folder} cannot be listed: {error.strerror}") from error
            if sum(known.num_names for known in self._folders.values()) > _MOST_NAMES:
                self._folders.clear()
            self._folders[folder] = _Folder(names)
        return self._folders[folder]


def _list_places(name: ImageName, base: str) -> Iterator[str]:
    """Yields where an image may be below a folder, besides where its name says."""
    parts = [part for part in re.split(r"[/\\]", name) if part not in _NO_FOLDERS]
    if parts and _DRIVE.fullmatch(parts[0]):
        del parts[0]
    for begin in range(len(parts)):
        yield base + "/".join(parts[begin:])
    if name.folder and parts:
        yield resolve_path(f"{name.folder}/{parts[-1]}", base)


class _Folder:
    """The files in a folder, by their stems in lower case."""

    def __init__(self, names: Sequence[str]) -> None:
        self.num_names = len(names)
        self._by_stem = defaultdict[str, list[str]](list)
        for name in names:
            self._by_stem[_stem_of(_fold(name))].append(name)

    def has(self, name: str) -> bool:
        return name in self._by_stem.get(_stem_of(_fold(name)), ())

    def find_similar(self, name: str) -> list[str]:
        """The names that are this one in other case; or else images of the same stem."""
        folded = _fold(name)
        stem = _stem_of(folded)
        relatives = self._by_stem.get(stem, [])
        same = [relative for relative in relatives if _fold(relative) == folded]
        if same:
            return same
        if stem != folded:
            relatives = relatives + self._by_stem.get(folded, [])  # of 1.jpg.png for 1.jpg
        return [relative for relative in relatives if _is_image(relative)]


def _fold(name: str) -> str:
    """A name without its case, its umlauts in one piece each."""
    return unicodedata.normalize("NFC", name).casefold()


def _stem_of(name: str) -> str:
    """A name in lower case without the extension of an image, if it has one."""
    stem, _, extension = name.rpartition(".")
    return stem if extension in FORMAT_OF else name


def _is_image(name: str) -> bool:
    return name.rpartition(".")[2].lower() in FORMAT_OF
