"""Finds folders that a layout reads as something else than they look like: splits, and classes
within classes."""

import collections
import re
from collections.abc import Mapping
from typing import Any

from beam_tfr.console.terminal import counted
from beam_tfr.layouts.parsing import DEFAULT_LAYOUT, Layout
from beam_tfr.schema.errors import UsageError

# train, Training, test_set, val2017, …
_SPLIT_NAME = re.compile(
    r"(train(ing)?|val(id(ation)?)?|dev|test(ing)?|eval(uation)?|holdout)([-_ ]?(set|data|images))?[-_ ]?[0-9]*",
    re.I,
)


def check_split_folders(folders: Mapping[str, int], splits: Mapping[str, Any] | None) -> None:
    """Checks that the default layout ignores no splits: several folders of one level that are named
    like splits.

    Args:
        folders: folder of images, whose last part is their class -> number of images.
        splits: shares of `splits=`.

    Raises:
        UsageError: folders of one level are named like two or more splits; suggests a layout that
            reads them.
    """
    names = collections.defaultdict[int, collections.Counter[str]](collections.Counter)
    # folders of splits may have no classes in them
    lowest = 0 if all(_SPLIT_NAME.fullmatch(folder.rpartition("/")[2]) for folder in folders) else 1
    for folder, images in folders.items():
        for level, name in enumerate(reversed(folder.split("/"))):
            if level >= lowest and _SPLIT_NAME.fullmatch(name):
                names[level][name] += images
    level = min(
        (level for level, counts in names.items() if len({*map(str.lower, counts)}) > 1), default=-1
    )
    if level < 0:
        return
    layout = f"{{split}}/{'*/' * (level - 1)}{DEFAULT_LAYOUT}"
    if not level:  # test/1.jpg, or cat/test/1.jpg
        if len({folder.rpartition("/")[0] for folder in folders}) > 1:
            layout = "{label}/{split}/*"
        else:
            layout = "{split}/*"
    found = ", ".join(f"{name} ({images:,})" for name, images in sorted(names[level].items()))
    instead = " without `splits=`" if splits else ""
    raise UsageError(
        f"folders have the names of splits, {found}, but the default layout {DEFAULT_LAYOUT} ignores them; use "
        f"`layout='{layout}'`{instead}, or `layout='{DEFAULT_LAYOUT}'` to ignore them",
        option="input",
    )


def find_nested_classes(folders: Mapping[str, int], layout: Layout) -> dict[str, int]:
    """The folders of classes that are within those of other classes, with their images."""
    if layout.parts[-2:] != ("{label}", "*"):
        return {}
    return {
        folder: images for folder, images in folders.items() if folder.rpartition("/")[0] in folders
    }


def describe_nested_classes(nested: Mapping[str, int]) -> str:
    """A message about the result of `find_nested_classes`; empty if there are none."""
    if not nested:
        return ""
    folder = min(nested, key=lambda folder: (-nested[folder], folder))
    outer, inner = folder.split("/")[-2:]
    return (
        f"{counted(sum(nested.values()), 'image')} in a folder within that of another class, such as {folder}: class "
        f"{inner!r}, not {outer!r}; move them, leave them out with `exclude=`, or give classes in a `table=`"
    )
