"""Finds folders that a layout does not read as what they look like.

They look like splits, or like classes within classes.
"""

import collections
import re
from collections.abc import Mapping
from typing import Any

from beam_tfr.console.terminal import counted
from beam_tfr.layouts.parsing import DEFAULT_LAYOUT, Layout
from beam_tfr.schema.errors import UsageError

# train, Training, test_set, val2017, …
_SPLIT_NAME = re.compile(
    r"(train(ing)?|val(id(ation)?)?|dev|test(ing)?|eval(uation)?|holdout)"
    r"([-_ ]?(set|data|images))?[-_ ]?[0-9]*",
    re.IGNORECASE,
)


def check_split_folders(folders: Mapping[str, int], splits: Mapping[str, Any] | None) -> None:
    """Checks that the default layout ignores no folders that look like splits.

    Several folders of one level that are named like splits look so.

    Args:
        folders: folder of images, whose last part is their class -> number of images.
        splits: shares of `splits=`.

    Raises:
        UsageError: folders of one level are named like two or more splits; suggests a layout that
            reads them.
    """
    for level, images in _count_split_names(folders).items():
        different_names = {name.lower() for name in images}
        if len(different_names) > 1:
            counts = ", ".join(f"{name} ({number:,})" for name, number in sorted(images.items()))
            layout = _layout_with_splits(folders, level)
            instead = " without `splits=`" if splits else ""
            raise UsageError(
                f"folders have the names of splits, {counts}, but the default layout "
                f"{DEFAULT_LAYOUT} ignores them; use `layout='{layout}'`{instead}, or "
                f"`layout='{DEFAULT_LAYOUT}'` to ignore them",
                option="input",
            )


def _count_split_names(folders: Mapping[str, int]) -> dict[int, collections.Counter[str]]:
    """Level above the files, lowest first -> each name of a split there -> its images."""
    images = collections.defaultdict[int, collections.Counter[str]](collections.Counter)
    for folder, number in folders.items():
        for level, name in enumerate(reversed(folder.split("/"))):
            if _SPLIT_NAME.fullmatch(name):
                images[level][name] += number
    # A class may be called like a split; where all are, the folders of splits have no classes.
    last_names = [folder.rpartition("/")[2] for folder in folders]
    if not all(map(_SPLIT_NAME.fullmatch, last_names)):
        images.pop(0, None)
    return dict(sorted(images.items()))


def _layout_with_splits(folders: Mapping[str, int], level: int) -> str:
    """The layout that reads splits from this level above the files."""
    if level:
        between = "*/" * (level - 1)
        return f"{{split}}/{between}{DEFAULT_LAYOUT}"
    parents = {folder.rpartition("/")[0] for folder in folders}
    if len(parents) > 1:
        return "{label}/{split}/*"  # cat/test/1.jpg
    return "{split}/*"  # test/1.jpg


def find_nested_classes(folders: Mapping[str, int], layout: Layout) -> dict[str, int]:
    """The folders of classes within those of other classes.

    Folder -> number of its images.
    """
    if layout.parts[-2:] != ("{label}", "*"):
        return {}
    nested = {}
    for folder, images in folders.items():
        parent = folder.rpartition("/")[0]
        if parent in folders:
            nested[folder] = images
    return nested


def describe_nested_classes(nested: Mapping[str, int]) -> str:
    """A message about the result of `find_nested_classes`; empty if there are none."""
    if not nested:
        return ""
    folder = min(nested, key=lambda folder: (-nested[folder], folder))
    outer, inner = folder.split("/")[-2:]
    return (
        f"{counted(sum(nested.values()), 'image')} in a folder within that of another class, such "
        f"as {folder}: class {inner!r}, not {outer!r}; move them, leave them out with `exclude=`, "
        "or give classes in a `table=`"
    )
