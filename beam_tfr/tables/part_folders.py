"""Finds the images of tables that hold bare file names, if images are in several folders.

Examples are ChestX-ray14, with `images_001/images` to `images_012/images`, and HAM10000.
"""

import functools
import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from beam_tfr import storage
from beam_tfr.layouts.mask_folders import is_of_masks
from beam_tfr.layouts.name_pattern import IMAGES
from beam_tfr.schema.differences import join_texts
from beam_tfr.schema.extensions import has_image_name, is_junk
from beam_tfr.tables.lost_images import (
    FilesOf,
    find_files,
    list_complete_roots,
    list_roots_of,
)

MOST_NAMES = 1_000  # names that show which folders are meant
_MOST_FOLDERS = 1_000
_DIGITS = re.compile("[0-9]+")
_SHOWN = 3  # folders in messages
_FIRST_FILES = 100  # files that show whether a folder holds images
# The split that a folder of images is named after, as in JPEGImages-trainval.
_SPLIT_END = re.compile(r"(?i)[-_ ](?:train(?:val|ing)?|val(?:id(?:ation)?)?|test(?:ing)?)[0-9]*$")


class PartFolders(NamedTuple):
    """Folders that each hold a part of a table's images.

    Attributes:
        folders: the paths of the folders, with a trailing slash.
        endings: endings that names in the table may lack, such as `.jpg`; the first ending is an
            empty string.
    """

    folders: tuple[str, ...]
    endings: tuple[str, ...]

    def find(self, name: str) -> str:
        """Returns the path of the file that a name means, or an empty string if there is none.

        Raises:
            ValueError: several files have the name.
            OSError: a folder cannot be listed.
        """
        paths = self.list_paths(name)
        if len(paths) > 1:
            raise ValueError(f"{name!r:.200} may be any of {join_texts(paths, _SHOWN, ', ')}")
        return "".join(paths)

    def list_paths(self, name: str) -> list[str]:
        """Lists the paths of all files that a name may mean: exact matches, or else longer names.

        Raises:
            OSError: a folder cannot be listed.
        """
        names = _list_names(self.folders)
        for ending in self.endings:
            folders = names.find_folders(f"{name}{ending}")
            if folders:
                return [f"{folder}{name}{ending}" for folder in folders]
        return []

    def describe(self) -> str:
        """Returns the message that images are looked up in these folders."""
        return (
            "images are spread over several folders, all of which are searched: "
            f"{join_texts(self.folders, _SHOWN, ', ')}"
        )


def find_part_folders(names: Sequence[Any], folder: str, *, own: str) -> PartFolders | None:
    """Finds the folders below a folder that together hold the images, mostly one file per name.

    Returns None if one folder holds all images, and other folders hold some of these images too.

    Args:
        names: the first cells with images, up to `MOST_NAMES`.
        folder: the folder to search, with a trailing slash.
        own: the folder of the table. If `folder` is the parent of `own`, which may hold other data
            sets, only folders in `own`, and folders whose names say that they hold images, count.

    Raises:
        OSError: a folder cannot be listed.
    """
    texts = [name for name in names if isinstance(name, str)]
    if not texts or any("/" in text for text in texts):
        return None
    files_of = _without_masks(find_files(texts, folder))
    files_of = _without_other_sets(files_of, folder, own)
    roots = _list_inner_roots(files_of, folder)
    if not roots:
        return None
    folders = [part for part in _list_parts(roots, folder) if _is_of_table(part, folder, own)]
    if not 1 < len(folders) <= _MOST_FOLDERS:
        return None
    parts = PartFolders(tuple(folders), ("", *_list_endings(files_of)))
    return parts if _have_one_each(parts, texts) else None


def _list_inner_roots(files_of: FilesOf, folder: str) -> list[str]:
    """Lists the folders below a folder that hold files; [] if one of several holds all files."""
    roots = [root for root in list_roots_of(files_of) if root != folder]
    complete = [root for root in list_complete_roots(files_of) if root != folder]
    return [] if complete and len(roots) > 1 else roots


def _have_one_each(parts: PartFolders, names: Sequence[str]) -> bool:
    """Whether more names match a single file in the folders than match several files."""
    numbers = [len(parts.list_paths(name)) for name in names]
    number_in_several = sum(number > 1 for number in numbers)
    return numbers.count(1) > number_in_several


def _without_masks(files_of: FilesOf) -> FilesOf:
    """Returns the files of images, without files in folders named for masks."""
    images = dict[str, dict[str, str]]()
    for name, files in files_of.items():
        others = {root: file for root, file in files.items() if not is_of_masks(root)}
        images[name] = others or files
    return images


def _without_other_sets(files_of: FilesOf, folder: str, own: str) -> FilesOf:
    """Returns the files that may belong to a table; see `find_part_folders`."""
    of_table = dict[str, dict[str, str]]()
    for name, files in files_of.items():
        kept = {root: file for root, file in files.items() if _is_of_table(root, folder, own)}
        if kept:
            of_table[name] = kept
    return of_table


def _is_of_table(root: str, folder: str, own: str) -> bool:
    """Whether the place and name of a folder suggest that it may hold the images of a table."""
    if root.startswith(own):
        return True
    name = root[len(folder) :].partition("/")[0]
    return IMAGES.fullmatch(_SPLIT_END.sub("", name)) is not None


def _list_endings(files_of: FilesOf) -> list[str]:
    """Lists the endings of file names that names in the table lack."""
    endings = set[str]()
    for name, files in files_of.items():
        endings |= {path[len(root + name) :] for root, path in files.items()}
    return sorted(endings - {""})


def _list_parts(roots: Sequence[str], folder: str) -> list[str]:
    """Lists all image folders that are similar to the folders in which images were found.

    Paths of similar folders differ in the same parts as the paths of the known folders or, if only
    one folder is known, in digits.

    Args:
        roots: the folders in which images were found.
        folder: the folder that contains these folders.
    """
    paths = [root[len(folder) :].rstrip("/").split("/") for root in roots]
    if len({*map(len, paths)}) > 1:
        return [*roots]
    patterns = []
    for level in zip(*paths, strict=True):
        if len({*level}) > 1:
            patterns.append(re.compile(".+"))
        elif len(roots) > 1:
            patterns.append(re.compile(re.escape(level[0])))
        else:
            patterns.append(re.compile(_DIGITS.sub("[0-9]+", re.escape(level[0]))))
    matches = _match_folders(folder, patterns)
    return [match for match in matches if match in roots or _holds_images(match)]


def _holds_images(folder: str) -> bool:
    """Whether one of the first files in a folder is named like an image."""
    files = storage.walk(folder.rstrip("/"), lambda _: False, deep=False)
    return any(has_image_name(file.name) for file in itertools.islice(files, _FIRST_FILES))


def _match_folders(folder: str, patterns: Sequence[re.Pattern[str]]) -> Iterator[str]:
    """Yields the folders below a folder that match a pattern for each level, in order.

    All paths have a trailing slash.
    """
    if not patterns:
        yield folder
        return
    for name in storage.list_folders(folder):
        if patterns[0].fullmatch(name) and not is_junk(name):
            yield from _match_folders(f"{folder}{name}/", patterns[1:])


class _Names:
    """The names of the files in some folders, in 10 bytes of memory each.

    Args:
        folders: the folders.
    """

    def __init__(self, folders: Sequence[str]) -> None:
        self._folders = folders
        hashes = [*map(_hash_names, folders)]
        numbers = np.repeat(np.arange(len(folders), dtype=np.uint16), [*map(len, hashes)])
        all_hashes = np.concatenate(hashes)
        order = np.argsort(all_hashes, kind="stable")
        self._hashes = all_hashes[order]
        self._numbers = numbers[order]

    def find_folders(self, name: str) -> list[str]:
        """Lists the folders that hold a file with this name."""
        hashed = hash(name)
        begin = np.searchsorted(self._hashes, hashed, side="left")
        end = np.searchsorted(self._hashes, hashed, side="right")
        return [self._folders[number] for number in self._numbers[begin:end]]


def _hash_names(folder: str) -> NDArray[np.int64]:
    files = storage.walk(folder.rstrip("/"), lambda _: False, deep=False)
    return np.fromiter((hash(file.name) for file in files), np.int64)


@functools.lru_cache(maxsize=1)
def _list_names(folders: tuple[str, ...]) -> _Names:
    """Returns the names in folders, which a process lists only once."""
    return _Names(folders)


def clear_names() -> None:
    """Clears cached names in folders, which may change before the next run in this process."""
    _list_names.cache_clear()
