"""Images of Pascal VOC that none of the XML files describes."""

import contextlib
import os
from collections.abc import Iterable, Sequence
from typing import Any

from beam_tfr import storage
from beam_tfr.console.terminal import counted
from beam_tfr.schema.extensions import has_image_name
from beam_tfr.tables.image_names import ImageFinder
from beam_tfr.tables.image_sets import name_of_image
from beam_tfr.tables.paths import folder_of


def describe_unlabelled(tables: Sequence[str], names: Iterable[Any], base: str) -> str:
    """The message about images that are left out; empty if there are none.

    Looks at the folders of the first images, on a disk only, and says nothing if one is not named
    like its XML file.

    Args:
        tables: all XML files.
        names: the first cells with names of images.
        base: the folder that these start from, with a trailing slash; empty for that of the tables.
    """
    folder = base or folder_of(tables[0])
    if storage.is_remote(folder):
        return ""
    stems = {name_of_image(table) for table in tables}
    finder = ImageFinder()
    folders = set[str]()
    for name in names:
        with contextlib.suppress(ValueError):  # which rejects its image
            image = finder.find(name, folder)
            if name_of_image(image) not in stems:
                return ""
            folders.add(os.path.dirname(image))
    unlabelled = [*_find_unlabelled(folders, stems)]
    if not unlabelled:
        return ""
    images = counted(len(unlabelled), "image")
    return (
        f"{images} in the folders of the others are left out, such as {unlabelled[0]}: no XML file "
        "that is given has its name"
    )


def _find_unlabelled(folders: Iterable[str], stems: set[str]) -> Iterable[str]:
    """Yields the paths of images in some folders whose names are not among the stems."""
    for folder in sorted(folders):
        with contextlib.suppress(OSError):
            for name in sorted(storage.list_folder(folder)):
                if has_image_name(name) and name_of_image(name) not in stems:
                    yield f"{folder}/{name}"
