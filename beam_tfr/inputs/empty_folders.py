"""Finds folders without images beside folders with images, such as those of empty classes."""

import os
from collections.abc import Iterable

from beam_tfr.schema.dataset import MANIFEST_FILE, WORK_FOLDER
from beam_tfr.schema.differences import join_names
from beam_tfr.schema.extensions import is_junk

_MOST_FOLDERS = 100_000  # remembered at most
_OF_DATASETS = (MANIFEST_FILE, WORK_FOLDER)  # in a complete dataset, or an unfinished one


class EmptyFolders:
    """A search on a disk for folders without images beside folders with images."""

    def __init__(self) -> None:
        self._entered = set[str]()
        self._filled = set[str]()

    def enter(self, folder: str) -> None:
        """Notes a folder that is listed."""
        if len(self._entered) < _MOST_FOLDERS:
            self._entered.add(folder)

    def fill(self, paths: Iterable[str]) -> None:
        """Notes the folders of images, and of files that are left out on purpose."""
        self._filled.update(map(os.path.dirname, paths))

    def find(self) -> list[str]:
        """Returns the paths of the empty folders, sorted."""
        around = set(map(os.path.dirname, self._filled))
        empty = self._entered - self._filled - _list_ancestors(self._filled)
        beside = [folder for folder in empty if os.path.dirname(folder) in around]
        return sorted(folder for folder in beside if not _holds_no_images(folder))

    def describe(self) -> str:
        """Reports the empty folders; empty if there are none."""
        folders = self.find()
        if not folders:
            return ""
        listed = join_names(folders)
        return f"folders without images beside folders with images ({len(folders):,}): {listed}"


def _holds_no_images(folder: str) -> bool:
    """Whether nobody expects images in a folder, since it belongs to a program, or is a dataset."""
    if is_junk(os.path.basename(folder)):
        return True
    return any(os.path.exists(os.path.join(folder, name)) for name in _OF_DATASETS)


def _list_ancestors(folders: Iterable[str]) -> set[str]:
    """Returns all folders above some folders."""
    ancestors = set[str]()
    waiting = [*folders]
    while waiting:
        folder = os.path.dirname(waiting.pop())
        if folder not in ancestors and folder.strip("/"):
            ancestors.add(folder)
            waiting.append(folder)
    return ancestors
