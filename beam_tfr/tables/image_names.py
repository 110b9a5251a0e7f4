"""Finds files whose paths in tables are not quite those that are written.

Backslashes, percent escapes and blanks may be meant otherwise. In annotations, programs write names
without an extension, with that of another format, in other case, with a folder before them, or with
their whole path on another machine.
"""

import contextlib
import os
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, Self

from beam_tfr import storage
from beam_tfr.inputs.spellings import is_plain
from beam_tfr.schema.differences import join_texts
from beam_tfr.schema.errors import UsageError
from beam_tfr.schema.extensions import FORMAT_OF
from beam_tfr.tables.paths import list_other_paths, resolve_path

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

    def find(self, cell: Any, base: str, table: str = "") -> str:
        """The path of the file that a cell means, as it is written if there is none.

        Args:
            cell: a path, or the name of an image in annotations.
            base: the folder that it is relative to, with a trailing slash.
            table: the table, from whose folder a path with .. may start.

        Raises:
            ValueError: it is no path, or several images could be meant.
            UsageError: a folder cannot be listed.
        """
        path = resolve_path(cell, base)
        if isinstance(cell, ImageName):
            return self._find_image(cell, base, path)
        if is_plain(cell):
            return self._add_extension(path)
        others = list_other_paths(cell, base, table)
        if others:
            path = self._choose([path, *others])
        if cell.startswith("~/") and not self._exists(path):
            raise ValueError(f"{cell!r:.200} is {path} here, and there is no such file")
        return self._add_extension(path)

    def _add_extension(self, path: str) -> str:
        """A path; if its name has no extension and no file, that of the one image with this stem.

        Only on a disk: names of objects often have none, and it would take long to list them.

        Raises:
            ValueError: there are several.
        """
        folder, _, name = path.rpartition("/")
        if "." in name or storage.is_remote(path) or self._exists(path):
            return path
        with contextlib.suppress(UsageError):  # of a folder that cannot be listed
            similar = self._find_similar(path, name)
            return f"{folder}/{similar}" if similar else path
        return path

    def _find_similar(self, path: str, shown: str) -> str:
        """The name in the folder of a path that is similar to its own; empty if there is none.

        Raises:
            ValueError: there are several.
            UsageError: the folder cannot be listed.
        """
        folder, _, file_name = path.rpartition("/")
        similar = self._list(folder).find_similar(file_name)
        if len(similar) > 1:
            raise ValueError(f"{shown!r:.200} may be each of {join_texts(similar)}")
        return "".join(similar)

    def _find_image(self, name: ImageName, base: str, written: str) -> str:
        """The path of the image that a name means; as written if there is none."""
        places = [written, *list_other_paths(name, base), *_list_places(name, base)]
        for path in places:
            if self._exists(path):
                return path
        for path in places:
            similar = self._find_similar(path, name)
            if similar:
                return f"{path.rpartition('/')[0]}/{similar}"
        return written

    def _choose(self, paths: Sequence[str]) -> str:
        """The first path with a file; the first of all if none has, or a folder is closed."""
        with contextlib.suppress(UsageError):
            return next(filter(self._exists, paths), paths[0])
        return paths[0]

    def _exists(self, path: str) -> bool:
        if not storage.is_remote(path):
            return os.path.lexists(path)
        folder, _, name = path.rpartition("/")
        return self._list(folder).has(name)

    def _list(self, folder: str) -> "_Folder":
        if folder not in self._folders:
            names = list[str]()
            try:
                names = storage.list_folder(folder)
            except PermissionError:
                pass  # reading a file in it says so
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
