"""Finds folders with copies of other images, such as thumbnails or drawings on photos."""

from collections.abc import Iterable, Sequence

from beam_tfr.layouts.name_pattern import NamePattern
from beam_tfr.schema.extensions import stem_of_image
from beam_tfr.schema.spelling import spell_option
from beam_tfr.schema.wildcards import pattern_below

_OF_COPIES = NamePattern(
    r"(?i)(?:.*[-_ ])?(?:thumb(?:nail)?s?|previews?|aug(?:mented|mentations?)?"
    r"|visuali[sz](?:ed|ations?)|overlays?)(?:[-_ ].*)?"
)


def describe_copy_folders(keys: Sequence[str]) -> str:
    """Reports folders of thumbnails or changed images next to originals with the same names.

    Examples are cat/thumbs/1.jpg next to cat/1.jpg, and thumbs/cat/1.jpg next to cat/1.jpg or
    images/cat/1.jpg, and visualized/1.jpg next to images/1.jpg. Returns an empty string if there
    are no such folders.
    """
    level_of = {key: _find_level(key) for key in keys}
    levels = {level for level in level_of.values() if level >= 0}
    original_of = dict[str, str]()
    for key, level in level_of.items():
        if level < 0:
            original_of |= dict.fromkeys(_list_names(key, levels), key)
    names = dict[str, str]()  # folder of copies -> the first copy in it
    num_copies = 0
    for key, level in level_of.items():
        if level >= 0 and _without(key, level) in original_of:
            num_copies += 1
            names.setdefault(key.split("/")[level], key)
    if 2 * num_copies <= sum(level >= 0 for level in level_of.values()):
        return ""
    first = min(names.values())
    excluded = [pattern_below(name, "/**", "**/") for name in sorted(names)]
    return (
        f"some images seem to be copies of others, such as {first} of "
        f"{original_of[_without(first, level_of[first])]}, which count as two images, perhaps in "
        f"two splits: {spell_option('exclude', *excluded)} leaves out the copies"
    )


def _find_level(key: str) -> int:
    """Returns the level of the first folder that is named like a folder of copies, or -1."""
    folders = key.split("/")[:-1]
    return next((level for level, name in enumerate(folders) if _OF_COPIES.fullmatch(name)), -1)


def _list_names(key: str, levels: Iterable[int]) -> set[str]:
    """Lists the names that a copy of an image may have, without the folder of copies."""
    depth = key.count("/")
    return {stem_of_image(key), *(_without(key, level) for level in levels if level < depth)}


def _without(key: str, level: int) -> str:
    """Returns a key without its extension and without the folder at a level."""
    parts = stem_of_image(key).split("/")
    return "/".join(parts[:level] + parts[level + 1 :])
