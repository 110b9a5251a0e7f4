"""Splits that the names of folders and files name: `train`, `Training`, `val2017`, `test_set`."""

import collections
import functools
import itertools
import re
from collections.abc import Iterable, Mapping

DEFAULT_SPLIT = "train"
_WORD = "(train(?:ing)?|val(?:id(?:ation)?)?|dev|test(?:ing)?|eval(?:uation)?|holdout)"
_SPLIT = re.compile(_WORD, re.IGNORECASE)
_FOLDER = re.compile(rf"{_WORD}(?:[-_ ]?(?:set|data|images))?[-_ ]?[0-9]*", re.IGNORECASE)
# A longer name that ends so: seg_train.
_LONGER_FOLDER = re.compile(rf"(.+[-_ .]){_FOLDER.pattern}", re.IGNORECASE | re.DOTALL)
_SEPARATOR = re.compile("(?<=[-_ .])")
# A word of a name, with a year such as that of val2017, between characters that are no letters.
_IN_NAME = re.compile(rf"(?<![^\W\d_]){_WORD}(?![^\W\d_])[0-9]*", re.IGNORECASE)
# The word before the number of a shard, which stands for the split whatever comes before it.
_BEFORE_NUMBER = re.compile(
    rf"(?<![^\W\d_]){_WORD}[0-9]*(?:\.[^\W_]+)?[-_][0-9]+-of-[0-9]+", re.IGNORECASE
)
# What seems to be a split within a word, such as labelsTrain, or a short form: y_tr, imagesTs.
_WITHIN_WORD = re.compile("train|val|test|dev|holdout", re.IGNORECASE)
_SHORT = re.compile("(?:(?<![A-Za-z])|(?<=[a-z])(?=[A-Z]))(?:[Tt][ers]|[Vv]a)(?![a-z])")
_OUTER_FOLDERS = 2  # at the end of a path: test, or test/Annotations


def is_split_word(text: str) -> bool:
    """Whether a text is a usual name of a split, in any case."""
    return _SPLIT.fullmatch(text) is not None


def split_of_folder(name: str) -> str:
    """The split that a folder is named like, in lower case; empty if it is another folder."""
    match = _FOLDER.fullmatch(name)
    return match[1].lower() if match else ""


def find_split_folders(names: Iterable[str]) -> Mapping[str, str]:
    """Finds the folders that are named like splits, among those of one level.

    A split at the end of a longer name counts if another folder has another split behind the same
    prefix: seg_train beside seg_test, and then seg_pred too, but not bullet_train.

    Returns:
        Name -> the prefix before its split, empty if there is none.
    """
    found = dict[str, str]()
    others = list[str]()
    splits_behind = collections.defaultdict[str, set[str]](set)  # prefix -> splits
    for name in names:
        longer = _LONGER_FOLDER.fullmatch(name)
        if split_of_folder(name):
            found[name] = ""
            continue
        others.append(name)
        if longer:
            splits_behind[longer[1]].add(longer[2].lower())
    prefixes = {prefix for prefix, splits in splits_behind.items() if len(splits) > 1}
    for name in others:
        parts = _SEPARATOR.split(name)
        starts = itertools.accumulate(parts[:-1], str.__add__)
        own_prefixes = [start for start in starts if start in prefixes]
        if own_prefixes:
            found[name] = own_prefixes[-1]
    return found


def split_within(folder: str) -> str:
    """The split that the outermost folder of a path is named like; empty if none is named so."""
    return next(filter(None, map(split_of_folder, folder.split("/"))), "")


def split_around(folder: str) -> str:
    """The split that a folder, or the one around it, is named like; empty if there is none.

    Args:
        folder: with a trailing slash.
    """
    names = folder.split("/")[:-1]
    splits = map(split_of_folder, reversed(names[-_OUTER_FOLDERS:]))
    return next(filter(None, splits), "")


@functools.lru_cache
def splits_of_file(name: str) -> dict[str, str]:
    """The splits that words of a file's name name.

    Split, in lower case -> its word, with the digits after it: "train" -> "train2017".
    """
    numbered = _BEFORE_NUMBER.search(name)
    if numbered:
        return {numbered[1].lower(): numbered[1]}
    return {match[1].lower(): match[0] for match in _IN_NAME.finditer(name)}


def seeming_split(name: str) -> str:
    """The part of a name that seems to say a split, in lower case; empty if there is none.

    It is not certain: labelsTest does, but so does latest.
    """
    match = _WITHIN_WORD.search(name) or _SHORT.search(name)
    return match[0].lower() if match else ""
