"""Finds folders that a layout reads as something else than they look like: the splits of a dataset."""

import collections
import re
from collections.abc import Mapping
from typing import Any

from beam_tfr.layouts.parsing import DEFAULT_LAYOUT
from beam_tfr.schema.errors import UsageError

# train, Training, test_set, val2017, …
_SPLIT_NAME = re.compile(
    r"(train(ing)?|val(id(ation)?)?|dev|test(ing)?|eval(uation)?|holdout)([-_ ]?(set|data|images))?[-_ ]?[0-9]*", re.I
)
MAX_FOLDERS = 100_000  # of classes: about 20 MB


def looks_like_split(name: str) -> bool:
    """True for names that people give to the folders of splits."""
    return _SPLIT_NAME.fullmatch(name) is not None


class Folders:
    """The folders that give images their labels."""

    def __init__(self) -> None:
        self.classes = collections.Counter[tuple[str, str]]()  # (folder above, class) -> images; the first MAX_FOLDERS

    def add(self, key: str, label: str, images: int = 1) -> None:
        """Counts images by the key of one of them; does nothing if the label is not the name of a folder in it."""
        above, found, _ = f"/{key}".rpartition(f"/{label}/")
        if found:
            self._count((above, label), images)

    def merge(self, other: "Folders") -> None:
        """Adds the folders of other images."""
        for folder, images in other.classes.items():
            self._count(folder, images)

    def _count(self, folder: tuple[str, str], images: int) -> None:
        if folder in self.classes or len(self.classes) < MAX_FOLDERS:
            self.classes[folder] += images

    def check(self, splits: Mapping[str, Any] | None) -> None:
        """Checks that the default layout ignores no splits: several folders of one level that are named like splits.

        Args:
            splits: shares of `splits=`.

        Raises:
            UsageError: folders of one level are named like two or more splits; suggests a layout that reads them.
        """
        names = collections.defaultdict[int, collections.Counter[str]](collections.Counter)
        # folders of splits may have no classes in them
        lowest = 0 if all(looks_like_split(label) for _, label in self.classes) else 1
        for (above, label), images in self.classes.items():
            for level, name in enumerate([label, *reversed(above.split("/"))]):
                if level >= lowest and looks_like_split(name):
                    names[level][name] += images
        level = min((level for level, counts in names.items() if len({*map(str.lower, counts)}) > 1), default=-1)
        if level < 0:
            return
        layout = f"{{split}}/{'*/' * (level - 1)}{DEFAULT_LAYOUT}"
        if not level:  # test/1.jpg, or cat/test/1.jpg
            layout = "{label}/{split}/*" if len({above for above, _ in self.classes}) > 1 else "{split}/*"
        found = ", ".join(f"{name} ({images:,})" for name, images in sorted(names[level].items()))
        instead = " without `splits=`" if splits else ""
        raise UsageError(
            f"folders have the names of splits, {found}, but the default layout {DEFAULT_LAYOUT} ignores them; use "
            f"`layout='{layout}'`{instead}, or `layout='{DEFAULT_LAYOUT}'` to ignore them",
            option="input",
        )
