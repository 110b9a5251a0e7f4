"""Images of Pascal VOC and COCO that none of the files describes."""

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from beam_tfr import storage
from beam_tfr.console.terminal import counted
from beam_tfr.schema.errors import UsageError
from beam_tfr.schema.extensions import has_image_name
from beam_tfr.tables.image_names import ImageFinder
from beam_tfr.tables.image_sets import name_of_image
from beam_tfr.tables.paths import folder_of

_MOST_BYTES = 32 << 20  # of tables that are read to know all images that they list


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
    images = _list_images(folders)
    unlabelled = [path for path in images if name_of_image(path) not in stems]
    return _describe_left_out(unlabelled, "no XML file that is given has its name")


def describe_unlisted(
    tables: Sequence[str],
    read_uris: Callable[[str], Iterator[Any]],
    choose_base: Callable[[str], str],
) -> str:
    """The message about images that none of the tables lists; empty if there are none.

    Looks at the folders of those that they list, on a disk only, and says nothing of large tables,
    which take long to read.

    Args:
        tables: all tables.
        read_uris: yields the cells of a table with the paths of images.
        choose_base: gives the folder that the paths of a table start from.
    """
    entries = filter(None, map(storage.find, tables))
    if sum(entry.size_bytes for entry in entries) > _MOST_BYTES:
        return ""
    listed = set[str]()
    finder = ImageFinder()
    for table in tables:
        base = choose_base(table)
        if storage.is_remote(base):
            return ""
        for uri in read_uris(table):
            with contextlib.suppress(ValueError, UsageError):  # which reading the rows tells
                listed.add(finder.find(uri, base, table))
    images = _list_images({os.path.dirname(path) for path in listed})
    unlisted = [path for path in images if path not in listed]
    return _describe_left_out(unlisted, "no file of annotations that is given lists it")


def _list_images(folders: Iterable[str]) -> Iterator[str]:
    """Yields the paths of images in some folders."""
    for folder in sorted(folders):
        with contextlib.suppress(OSError):
            for name in sorted(storage.list_folder(folder)):
                if has_image_name(name):
                    yield f"{folder}/{name}"


def _describe_left_out(paths: Sequence[str], cause: str) -> str:
    if not paths:
        return ""
    images = counted(len(paths), "image")
    return f"{images} in the folders of the others are left out, such as {paths[0]}: {cause}"
