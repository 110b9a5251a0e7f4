"""Finds files whose names are similar to the name of a missing file."""

import contextlib
import os
import unicodedata

from beam_tfr import storage
from beam_tfr.schema.extensions import has_image_name

_MOST_NAMES = 100_000  # in a folder; more take long to list
_MOST_SHOWN = 2


def fold_name(name: str) -> str:
    """Returns a name in folded case, with each accented letter as one character."""
    return unicodedata.normalize("NFC", name).casefold()


def describe_near_names(path: str) -> str:
    """Says which files on disk have nearly the same name as a path; returns "" if there are none.

    Their names differ from that of the path only in case; failing that, the files are images whose
    names differ only in the extension.
    """
    if storage.is_remote(path):
        return ""
    folder, name = os.path.split(path)
    folded = fold_name(name)
    stem = os.path.splitext(folded)[0]
    same = []
    related = []
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for number, entry in enumerate(entries):
            if number >= _MOST_NAMES:
                break
            if entry.name == name:
                continue  # a link that leads nowhere
            other = fold_name(entry.name)
            if other == folded:
                same.append(entry.name)
            elif os.path.splitext(other)[0] == stem and has_image_name(entry.name):
                related.append(entry.name)
    names = sorted(same or related)[:_MOST_SHOWN]
    return f"there is {' and '.join(names)}" if names else ""
