"""Finds folders without images next to folders with images, such as those of empty classes."""

import os
import sys
from collections.abc import Iterable, Set

from beam_tfr.schema.dataset import MANIFEST_FILE, WORK_FOLDER
from beam_tfr.schema.differences import join_names
from beam_tfr.schema.extensions import is_junk

_MOST_BYTES = 24_000_000  # for the paths of remembered folders
_OF_DATASETS = (MANIFEST_FILE, WORK_FOLDER)  # in complete and unfinished datasets


class EmptyFolders:
    """A search on disk for folders without images next to folders with images."""

    def __init__(self) -> None:
        self._entered = set[str]()
        self._filled = set[str]()
        self._num_bytes = 0  # of all paths in `_entered`

    def enter(self, folder: str) -> None:
        """Records a folder that is listed."""
        if self._num_bytes < _MOST_BYTES:
            self._num_bytes += sys.getsizeof(folder)
            self._entered.add(folder)

    def fill(self, paths: Iterable[str]) -> None:
        """Records the folders of images, and the folders of files that are left out on purpose."""
        self._filled.update(map(os.path.dirname, paths))

    def find(self) -> list[str]:
        """Returns the paths of the empty folders, sorted."""
        around = set(map(os.path.dirname, self._filled))
        empty = self._entered - self._filled - _list_ancestors(self._filled, self._entered)
        beside = [folder for folder in empty if os.path.dirname(folder) in around]
        return sorted(folder for folder in beside if not _holds_no_images(folder))

    def describe(self) -> str:
        """Returns a message about the empty folders, or an empty string if there are none."""
        folders = self.find()
        if not folders:
            return ""
        listed = join_names(folders)
        return f"folders without images next to folders with images ({len(folders):,}): {listed}"


def _holds_no_images(folder: str) -> bool:
    """Whether a folder is not meant for images: a program's own folder, or a dataset."""
    if is_junk(os.path.basename(folder)):
        return True
    return any(os.path.exists(os.path.join(folder, name)) for name in _OF_DATASETS)


def _list_ancestors(folders: Iterable[str], known_folders: Set[str]) -> set[str]:
    """Returns the known folders among the given folders and their ancestors.

    The folders may be in an archive, and thus be nested far more deeply than any known folder.
    """
    most_parts = 1 + max((folder.count("/") for folder in known_folders), default=0)
    ancestors = set[str]()
    seen = set[int]()  # hashes of paths, which may be long
    for folder in folders:
        above = "/".join(folder.split("/", most_parts)[:most_parts])
        while above.strip("/") and hash(above) not in seen:
            seen.add(hash(above))
            if above in known_folders:
                ancestors.add(above)
            above = os.path.dirname(above)
    return ancestors
