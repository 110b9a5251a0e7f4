"""Finds pairs of photos in one folder, whose names differ in a word: GT_010.png, NOISY_010.png."""

import collections
import re
from collections.abc import Iterable, Sequence

from beam_tfr.layouts.pair_folders import JOINED, LEAST_PAIRED, WORD_IN_NAME
from beam_tfr.schema.spelling import quote_word

_MOST_WORDS = 4  # in a message
# The place of a photo in its numbered pair: 00001_img1.ppm in FlyingChairs, 1-0-img0.png in NLVR2.
_PLACE = re.compile(r"(?i)(?<=[0-9][-_])im(?:g|age)?[-_]?[0-2](?=\.[^.]*$)")


def describe_pair_names(keys: Sequence[str], *, in_archives: bool = False) -> str:
    """Reports photos in one folder that look like pairs; returns an empty string if there are none.

    Nearly all names contain a word such as GT, NOISY or img1, and differ only in this word.

    Args:
        keys: keys of images.
        in_archives: whether some images may be in archives.
    """
    pairs = _find_pairs(keys)
    if not pairs or sum(map(len, pairs)) < LEAST_PAIRED * len(keys):
        return ""
    words = sorted({word for photos in pairs for word in photos})
    first, second = min(sorted(photos.values()) for photos in pairs)[:2]
    are_first = all(
        key.rpartition("/")[2].startswith(word) for photos in pairs for word, key in photos.items()
    )
    cure = (
        "move the photos with each word into a folder of their own, without the word in their "
        "names, and make a dataset of each"
    )
    if are_first and len(words) <= _MOST_WORDS and not in_archives:
        cure = _spell_command(words)
    return (
        f"names of images look like pairs of photos, such as {first} and {second}, but each photo "
        f"becomes a record of its own: {cure}, {JOINED}"
    )


def _find_pairs(keys: Iterable[str]) -> list[dict[str, str]]:
    """Groups photos whose names differ only in a word: word -> key."""
    photos_of = collections.defaultdict[tuple[str, str], dict[str, str]](dict)
    for key in keys:
        folder, _, name = key.rpartition("/")
        word = _PLACE.search(name) or WORD_IN_NAME.search(name)
        if word:
            rest = name[: word.start()] + "/" + name[word.end() :]
            photos_of[folder, rest][word[0]] = key
    return [photos for photos in photos_of.values() if len(photos) > 1]


def _spell_command(words: Sequence[str]) -> str:
    """Says how to make an input of the photos whose names begin with each word."""
    names = " ".join(quote_word(word, "WORD") for word in words)
    script = (
        f'for n in {names}; do find . -name "$n*" -type f | '
        'tar cf "../pairs-$n.tar" --transform "s,/$n\\\\([^/]*\\\\)$,/\\\\1," -T -; done'
    )
    return (
        f"use (cd DIR; {script}), which writes archives such as DIR/../pairs-{words[0]}.tar, and "
        "make a dataset of each without classes (`layout='**'`)"
    )
