"""Finds folders that hold pairs of photos: HR and LR, source and target, blur and sharp."""

import collections
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from beam_tfr.layouts.mask_cures import NamesIn
from beam_tfr.layouts.mask_folders import is_of_masks, list_nothing
from beam_tfr.layouts.name_pattern import NamePattern
from beam_tfr.schema.differences import join_names, join_texts
from beam_tfr.schema.extensions import stem_of_image

# Names of folders that hold one photo of each pair: DIV2K_train_LR_bicubic.
_PAIR_FOLDER = NamePattern(
    r"(?i)(?P<before>.*?[-_ ])??"
    r"(?P<word>[hl][rq]|high|low|gts?|inputs?|outputs?|sources?|targets?|refs?|references?|sharp"
    r"|blur(?:red|ry)?|clean|clear|nois[ey]|denoised|haz[ey]|(?:no)?rainy?|degraded|restored"
    r"|bicubic|upsampled|originals?|edited|before|after|day|night|conditions?|conditioning"
    r"|im(?:g|age)?[-_ ]?[0-9ab]|t(?:ime)?[-_ ]?[12]|(?-i:[AB](?![-_ ])))"
    r"(?:[-_ ].*|res)?"
)
_SCALE_FOLDER = re.compile("(?i)x[0-9]{1,2}")  # DIV2K's LR_bicubic/X2, with 0001x2.png
_SCALE = re.compile("(?i)[-_ ]?x[0-9]{1,2}$")
_MOST_LEVELS = 12  # of folders that may hold pairs, counted from the files
_MOST_FILES = 900  # in a folder whose names are all known


class _Place(NamedTuple):
    """A place in paths where folders of pairs may be.

    Attributes:
        parent: path of the folder that they are in.
        before: what their names begin with.
        below: path of the folder in each that holds files, without scales.
    """

    parent: str
    before: str
    below: str


class _PairFolder(NamedTuple):
    """A folder that may hold one photo of each pair.

    Attributes:
        path: path of the folder of the files.
        name: the name that says what it holds.
        word: the word in the name, in lower case.
    """

    path: str
    name: str
    word: str


def describe_pair_folders(
    folders: Mapping[str, int], names_in: NamesIn = list_nothing, *, in_archives: bool = False
) -> str:
    """Reports folders that look like pairs of photos; empty if there are none.

    Their names say so, and they hold as many files, with the same names but for scales.

    Args:
        folders: folder of images -> number of images.
        names_in: folder -> names of files in it, maybe none.
        in_archives: whether some may be in archives.
    """
    pairs = find_pair_folders(folders, names_in)
    if not pairs:
        return ""
    names = sorted({folder.name for group in pairs.values() for folder in group})
    rename = ""
    if any(_have_other_names(group, names_in) for group in pairs.values()):
        rename = "give their files the same names and extensions, and "
    cure = "unpack them and make a dataset of each" if in_archives else _describe_cure(pairs, names)
    return (
        f"the folders {join_names(names)} look like pairs of photos, but each photo becomes a "
        f"record of its own: {rename}{cure}, with `num_shards=4` `max_rejects=0` and otherwise "
        "equal options; tf.data.Dataset.zip joins what `load` returns of each"
    )


def find_pair_folders(
    folders: Mapping[str, int], names_in: NamesIn = list_nothing
) -> Mapping[_Place, Sequence[_PairFolder]]:
    """Finds folders that look like pairs of photos.

    Args:
        folders: folder of images -> number of images.
        names_in: folder -> names of files in it, maybe none.

    Returns:
        Place -> its folders; empty if other folders hold images too, as then these may be classes.
    """
    places = _group_folders(folders)
    in_places = {folder.path for group in places.values() for folder in group}
    if any(folder not in in_places and not is_of_masks(folder) for folder in folders):
        return {}
    pairs = {place: group for place, group in places.items() if _are_pairs(group, folders)}
    pairs = {place: group for place, group in pairs.items() if _have_one_name(group, names_in)}
    in_pairs = {folder.path for group in pairs.values() for folder in group}
    images = sum(folders[path] for path in in_pairs)
    return pairs if images * 2 >= sum(folders.values()) else {}


def _group_folders(folders: Iterable[str]) -> dict[_Place, list[_PairFolder]]:
    """Groups the folders that are named like those of pairs."""
    places = collections.defaultdict[_Place, list[_PairFolder]](list)
    for path in folders:
        parts = path.split("/")
        for level in range(max(0, len(parts) - _MOST_LEVELS), len(parts)):
            match = _PAIR_FOLDER.fullmatch(parts[level])
            if not match:
                continue
            below = [name for name in parts[level + 1 :] if not _SCALE_FOLDER.fullmatch(name)]
            place = _Place("/".join(parts[:level]), match["before"] or "", "/".join(below))
            places[place].append(_PairFolder(path, parts[level], match["word"].lower()))
    return places


def _are_pairs(group: Iterable[_PairFolder], folders: Mapping[str, int]) -> bool:
    """Whether the folders of a place have different names, and equal numbers of images."""
    words = {folder.word for folder in group}
    numbers = {folders[folder.path] for folder in group}
    return len(words) > 1 and len(numbers) == 1


def _have_one_name(group: Iterable[_PairFolder], names_in: NamesIn) -> bool:
    """Whether the files of folders have the same names, but for scales, as far as they are known.

    Args:
        group: the folders.
        names_in: folder -> names of files in it, maybe none.
    """
    all_stems = set[frozenset[str]]()
    for folder in group:
        names = names_in(folder.path)
        if 0 < len(names) < _MOST_FILES:
            all_stems.add(frozenset(_SCALE.sub("", stem_of_image(name)) for name in names))
    return len(all_stems) < 2


def _have_other_names(group: Iterable[_PairFolder], names_in: NamesIn) -> bool:
    """Whether the names of files differ in scales or extensions, as far as they are known."""
    all_names = set[frozenset[str]]()
    for folder in group:
        names = names_in(folder.path)
        if 0 < len(names) < _MOST_FILES:
            all_names.add(frozenset(names))
    return len(all_names) > 1


def _describe_cure(pairs: Mapping[_Place, Sequence[_PairFolder]], names: Sequence[str]) -> str:
    """Says how to get the folders of each name as an input.

    Args:
        pairs: place -> folders.
        names: the names of the folders, sorted.
    """
    parents = {place.parent for place in pairs}
    if len(parents) > 1:
        script = (
            f'for n in {shlex.join(names)}; do find . -path "*/$n/*" -type f | '
            'tar cf "../$n.tar" --transform "s,/$n/,/," -T -; done'
        )
        return (
            f"use (cd DIR; {script}), which writes archives such as DIR/../{names[0]}.tar, and "
            "make a dataset of each"
        )
    (parent,) = parents
    start = f"DIR/{parent}" if parent else "DIR"
    paths = [f"{start}/{name}" for name in names]
    layout = ""
    if not any(place.below for place in pairs):
        paths = sorted(f"DIR/{folder.path}" for group in pairs.values() for folder in group)
        layout = " without classes (`layout='*'`)"
    inputs = join_texts([f"`input={shlex.quote(path)}`" for path in paths], separator=", ")
    return f"make a dataset of each ({inputs}){layout}"
