"""Finds images whose names are numbers that have lost their leading zeros in a table."""

import contextlib
import itertools
import os
import re
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from beam_tfr import storage
from beam_tfr.schema.extensions import has_image_name
from beam_tfr.tables.lost_images import name_root

_MOST_FILES = 10_000  # listed in a folder
_MOST_FOLDERS = 20  # folders next to a table that are searched
_NUMBER = re.compile("[0-9]{1,12}")


class PaddedImages(NamedTuple):
    """Images named by numbers in a table; some names have more leading zeros than the numbers.

    Attributes:
        folder: the folder, with a trailing slash.
        names: the names of the files.
        example: the first name with more leading zeros than its number in the table.
    """

    folder: str
    names: Sequence[str]
    example: str


def describe_lost_zeros(texts: Sequence[str], base: str) -> str:
    """Says what to do about lost zeros of names like 0001.jpg, or returns an empty string.

    Args:
        texts: the first paths in a table that lead to no file.
        base: the folder in which the files are looked up, but only if it is on disk.
    """
    images = find_padded_images(texts, base)
    if not images:
        return ""
    stem, extension = os.path.splitext(images.example)
    column = "table[NAME].astype(str).str"
    if any(os.path.splitext(text)[1] for text in texts):
        column += ".rsplit('.', n=1).str[0].str"
    root = "" if images.folder == base else f", and give {name_root(images.folder)}"
    return (
        f"there is {images.example}: if numbers have lost their leading zeros, as in pandas or a "
        f"spreadsheet, write the names of the files; with pandas: {column}.zfill({len(stem)}) + "
        f"{extension!r}{root}"
    )


def find_padded_images(texts: Collection[str], base: str) -> PaddedImages | None:
    """Finds the folder with images named by numbers of a table, but with more leading zeros.

    Args:
        texts: the first paths in a table.
        base: the folder to search, with its subfolders; not listed if it is not on disk.

    Returns:
        The images in the first such folder; None if there is none, or if a text is not a number.
    """
    stems = [os.path.splitext(text)[0] for text in texts]
    if storage.is_remote(base) or not all(map(_NUMBER.fullmatch, stems)):
        return None
    length_of = {int(stem): len(stem) for stem in stems}
    for folder in (base, *_list_inner(base)):
        names = [name for name in _list_numbered(folder) if _number_of(name) in length_of]
        padded = [name for name in names if _stem_length(name) > length_of[_number_of(name)]]
        if padded:
            return PaddedImages(folder, names, min(padded))
    return None


def _number_of(name: str) -> int:
    return int(os.path.splitext(name)[0])


def _stem_length(name: str) -> int:
    return len(os.path.splitext(name)[0])


def _list_inner(folder: str) -> list[str]:
    """Lists the first subfolders of a folder, with trailing slashes."""
    with contextlib.suppress(OSError), os.scandir(folder) as listed:
        inner = sorted(f"{entry.path}/" for entry in listed if entry.is_dir())
        return inner[:_MOST_FOLDERS]
    return []


def _list_numbered(folder: str) -> Iterator[str]:
    """Yields the names of the first images in a folder whose names are numbers."""
    with contextlib.suppress(OSError), os.scandir(folder) as listed:
        for entry in itertools.islice(listed, _MOST_FILES):
            stem = os.path.splitext(entry.name)[0]
            if has_image_name(entry.name) and _NUMBER.fullmatch(stem):
                yield entry.name
