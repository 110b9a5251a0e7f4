"""Finds class folders whose files have the same names, as in folders of pairs."""

import math
import re
from collections.abc import Collection, Iterable, Mapping, Set

from beam_tfr.layouts.mask_cures import NamesIn
from beam_tfr.layouts.pair_folders import JOINED
from beam_tfr.schema.differences import join_names
from beam_tfr.schema.extensions import stem_of_image

_MOST_FOLDERS = 20  # that are compared
_MOST_FILES = 900  # in a folder whose names are all known
_LEAST_FILES = 5
_LEAST_SHARED = 0.9  # of the names in each folder
_LEAST_GAP = 10  # mean distance of numbers that do not count files
_NUMBER = re.compile("[0-9]{1,18}")


def describe_same_names(folders: Iterable[str], names_in: NamesIn) -> str:
    """Returns a message about folders that hold files with the same names, or an empty string.

    Names that only number the files of a folder do not count: dog/1.jpg and cat/1.jpg.

    Args:
        folders: image folders, whose names are their classes.
        names_in: folder -> the names of its files, if known.
    """
    stems_of = dict[str, set[str]]()
    for folder in sorted(folders)[:_MOST_FOLDERS]:
        names = names_in(folder)
        if _LEAST_FILES <= len(names) < _MOST_FILES:
            stems_of[folder] = {*map(stem_of_image, names)}
    for first, stems in stems_of.items():
        alike = _find_alike(first, stems_of)
        if alike and not _are_numbered(stems):
            return (
                f"the folders {join_names([first, *alike])} hold files with the same names, such "
                f"as {min(stems)}: if these belong together, make a dataset of each folder without "
                f"classes (`layout='*'`), {JOINED}"
            )
    return ""


def _find_alike(first: str, stems_of: Mapping[str, Set[str]]) -> list[str]:
    """Returns the folders whose files have nearly the same names as the files of the first folder.

    Args:
        first: the folder.
        stems_of: folder -> stems of its files.
    """
    parent = first.rpartition("/")[0]
    own = stems_of[first]
    alike = []
    for folder, stems in stems_of.items():
        shared = len(own & stems)
        are_alike = shared >= _LEAST_SHARED * max(len(own), len(stems))
        if folder != first and folder.rpartition("/")[0] == parent and are_alike:
            alike.append(folder)
    return alike


def _are_numbered(stems: Collection[str]) -> bool:
    """Whether names count files or differ in few words: 0001, IMG_12, a_10 and b_10.

    The numbers may have gaps, as those of every 30th frame do.
    """
    words = {_NUMBER.sub("", stem) for stem in stems}
    if 2 * len(words) > len(stems):
        return False
    firsts = [_NUMBER.search(stem) for stem in stems]
    numbers = sorted({int(first[0]) for first in firsts if first})
    if len(numbers) < 2:
        return True
    step = math.gcd(*(number - numbers[0] for number in numbers))
    return (numbers[-1] - numbers[0]) // step < _LEAST_GAP * len(numbers)
