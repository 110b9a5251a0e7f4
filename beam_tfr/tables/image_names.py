"""Finds files whose paths in tables differ slightly from the real paths.

Backslashes, percent escapes and spaces may be read in several ways. In annotations, programs write
names without an extension or with the extension of another format, in a different case, with a
folder in front, or as full paths on another machine.
"""

import contextlib
import functools
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self

from beam_tfr import storage
from beam_tfr.inputs.near_names import fold_name
from beam_tfr.inputs.spellings import change_slashes, is_plain
from beam_tfr.schema.differences import join_texts
from beam_tfr.schema.errors import UsageError
from beam_tfr.schema.extensions import has_image_name, stem_of_image
from beam_tfr.tables.part_folders import PartFolders
from beam_tfr.tables.paths import list_other_paths, resolve_path, spell_number

_MOST_NAMES = 500_000  # names in memory, about 300 bytes each
_NAMES_OF_FOLDER = 10  # names that a folder counts as, in addition to those in it
_MOST_FOLDERS = 32  # folders in a path from another machine that are tried here
_NO_FOLDERS = ("", ".", "..")
_DRIVE = re.compile(r"[A-Za-z]:")


class ImageName(str):
    """The name of an image in a cell; the image file may have a slightly different name.

    Attributes:
        folder: a folder that the image may be in, according to the table, or an empty string.
        own: the stem of the annotation file, if it describes one image. The image with this stem is
            used if no image has the written name, or if the image with that name belongs to
            another annotation file.
        is_of_another: whether another annotation file has the image's stem and also names the
            image. If so, annotation files were renamed or copied along with their images, and this
            file still names the old image.
    """

    folder: str
    own: str
    is_of_another: bool

    def __new__(
        cls, name: str, folder: str = "", own: str = "", *, is_of_another: bool = False
    ) -> Self:
        self = super().__new__(cls, name)
        self.folder = folder
        self.own = own
        self.is_of_another = is_of_another
        return self


def drop_prefix(cell: Any, prefix: str) -> Any:
    """Removes the leading folders of another machine from the path in a cell.

    Args:
        cell: the cell.
        prefix: the leading folders, with slashes; may be empty.
    """
    if not prefix or not isinstance(cell, str) or isinstance(cell, ImageName):
        return cell
    path = change_slashes(cell)
    return path[len(prefix) :] if path.startswith(prefix) else cell


class ImageFinder:
    """Finds the files that image names refer to.

    Lists each folder once, or again after many other folders. On disk, no folder is listed as long
    as files exist under the names as written.

    Args:
        prefix: the prefix to remove from paths; see `foreign_paths`.
        ignores_case: whether a path on disk may mean a file whose name differs only in case; if so,
            each path is looked up.
        parts: folders in which names are looked up; None if there are no such folders.
    """

    def __init__(
        self,
        *,
        prefix: str = "",
        ignores_case: bool = False,
        parts: PartFolders | None = None,
    ) -> None:
        self._prefix = prefix
        self._ignores_case = ignores_case
        self._parts = parts
        self._folders = dict[str, _Folder]()
        self._num_names = 0  # in `_folders`
        self._names = dict[str, Mapping[str, list[str]]]()
        self._num_folded = 0  # in `_names`

    def __reduce__(self) -> tuple[Callable[..., Self], tuple[()]]:
        # Cached listings are left out.
        make = functools.partial(
            type(self), prefix=self._prefix, ignores_case=self._ignores_case, parts=self._parts
        )
        return make, ()

    def find(self, cell: Any, base: str, table: str = "") -> str:
        """Returns the path of the file that a cell means, or the path as written if none is found.

        Args:
            cell: a path, or the name of an image in annotations.
            base: the folder that the path is relative to, with a trailing slash.
            table: the table; a path with .. may start from its folder.

        Raises:
            ValueError: the cell is not a path, or may mean several images.
            UsageError: a folder cannot be listed.
        """
        cell = spell_number(cell)
        if self._prefix:
            cell = drop_prefix(cell, self._prefix)
        path = resolve_path(cell, base)
        if self._parts:
            part = self._find_part(self._parts, cell)
            if part:
                return part
        if isinstance(cell, ImageName):
            return self._find_image(cell, base, path)
        if is_plain(cell):
            return self._complete(path)
        others = list_other_paths(cell, base, table)
        if others:
            path = self._choose([path, *others])
        if cell.startswith("~/") and not self._exists(path):
            raise ValueError(f"{cell!r:.200} means {path} here, and there is no such file")
        return self._complete(path)

    def _find_part(self, parts: PartFolders, name: str) -> str:
        """Returns the path of the file with a name in one of several folders, or an empty string.

        Raises:
            ValueError: several folders hold a file with the name.
            UsageError: a folder cannot be listed.
        """
        try:
            return parts.find(name)
        except OSError as error:
            raise UsageError(f"{error.filename} cannot be listed: {error.strerror}") from error

    def _complete(self, path: str) -> str:
        """Returns a path, corrected if only its case is wrong or its extension is missing.

        Raises:
            ValueError: several files match.
        """
        path = self._add_extension(path)
        if not self._ignores_case or storage.is_remote(path) or self._exists(path):
            return path
        return self._ignore_case(path)

    def _ignore_case(self, path: str) -> str:
        """Returns the path on disk that differs only in case, or the path itself if there is none.

        Raises:
            ValueError: several files match.
        """
        folder = path
        missing = list[str]()
        while folder and not os.path.isdir(folder):
            folder, _, name = folder.rpartition("/")
            missing.insert(0, name)
        for name in missing:
            names = self._list_names(folder).get(fold_name(name), [])
            if len(names) > 1 and name not in names:
                raise ValueError(f"{path!r:.200} may be any of {join_texts(names)}")
            if not names:
                return path
            folder = f"{folder}/{name if name in names else names[0]}"
        return folder

    def _list_names(self, folder: str) -> Mapping[str, list[str]]:
        """Returns the files and folders in a folder on disk, by their names without case."""
        if folder not in self._names:
            by_name = defaultdict[str, list[str]](list)
            with contextlib.suppress(OSError):
                for name in sorted(os.listdir(folder or "/")):
                    by_name[fold_name(name)].append(name)
            if self._num_folded > _MOST_NAMES:
                self._names.clear()
                self._num_folded = 0
            self._names[folder] = dict(by_name)
            self._num_folded += len(by_name) + _NAMES_OF_FOLDER
        return self._names[folder]

    def _add_extension(self, path: str) -> str:
        """Returns a path, with an extension added if it then names a single image.

        Extensions are added only on disk: objects in buckets often have none, and listing a bucket
        would take long.

        Raises:
            ValueError: several images match.
        """
        folder, _, name = path.rpartition("/")
        if "." in name or storage.is_remote(path) or self._exists(path):
            return path
        with contextlib.suppress(UsageError):  # the folder cannot be listed
            similar = self._find_similar(path, name)
            return f"{folder}/{similar}" if similar else path
        return path

    def _find_similar(self, path: str, shown: str) -> str:
        """Returns a name in a path's folder that is similar to the path's name, or an empty string.

        Raises:
            ValueError: several names are similar.
            UsageError: the folder cannot be listed.
        """
        folder, _, file_name = path.rpartition("/")
        similar = self._list(folder).find_similar(file_name)
        if len(similar) > 1:
            raise ValueError(f"{shown!r:.200} may be any of {join_texts(similar)}")
        return "".join(similar)

    def _find_image(self, name: ImageName, base: str, written: str) -> str:
        """Returns the path of the image that a name means, or the path as written."""
        found = self._find_written(name, base, written)
        if name.is_of_another or not self._exists(found):
            return self._find_own(found, name.own) or found
        return found

    def _find_own(self, path: str, own: str) -> str:
        """Returns the path of another image, which has the stem of the annotation file.

        Returns an empty string if there is no other image, if there are several, or if the folder
        cannot be listed.
        """
        folder, _, name = path.rpartition("/")
        if not own or stem_of_image(fold_name(name)) == fold_name(own):
            return ""
        with contextlib.suppress(UsageError):
            images = [*filter(has_image_name, self._list(folder).find_similar(own))]
            if len(images) == 1:
                return f"{folder}/{images[0]}"
        return ""

    def _find_written(self, name: ImageName, base: str, written: str) -> str:
        """Returns the path of an image by its name or a similar name, or the path as written."""
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
        """Returns the first path that leads to a file, or `paths[0]` if none does."""
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
                pass  # reading a file in the folder raises the error
            except OSError as error:
                raise UsageError(f"{folder} cannot be listed: {error.strerror}") from error
            if self._num_names > _MOST_NAMES:
                self._folders.clear()
                self._num_names = 0
            self._folders[folder] = _Folder(names)
            self._num_names += len(names) + _NAMES_OF_FOLDER
        return self._folders[folder]


def _list_places(name: ImageName, base: str) -> Iterator[str]:
    """Yields paths below a folder where an image may be, except the path as written."""
    parts = [part for part in re.split(r"[/\\]", name) if part not in _NO_FOLDERS]
    if parts and _DRIVE.fullmatch(parts[0]):
        del parts[0]
    for begin in range(max(0, len(parts) - _MOST_FOLDERS), len(parts)):
        yield base + "/".join(parts[begin:])
    if name.folder and parts:
        yield resolve_path(f"{name.folder}/{parts[-1]}", base)


class _Folder:
    """The files in a folder, by their stems in lower case."""

    def __init__(self, names: Sequence[str]) -> None:
        self._by_stem = defaultdict[str, list[str]](list)
        for name in names:
            self._by_stem[stem_of_image(fold_name(name))].append(name)

    def has(self, name: str) -> bool:
        return name in self._by_stem.get(stem_of_image(fold_name(name)), ())

    def find_similar(self, name: str) -> list[str]:
        """Lists names that differ from `name` only in case or, if none do, images with its stem."""
        folded = fold_name(name)
        stem = stem_of_image(folded)
        relatives = self._by_stem.get(stem, [])
        same = [relative for relative in relatives if fold_name(relative) == folded]
        if same:
            return same
        if stem != folded:
            relatives = relatives + self._by_stem.get(folded, [])  # finds 1.jpg.png for 1.jpg
        return [*filter(has_image_name, relatives)]
