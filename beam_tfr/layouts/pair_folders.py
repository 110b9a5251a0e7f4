"""Finds folders that hold pairs of photos: HR and LR, source and target, blur and sharp."""

import collections
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import NamedTuple

from beam_tfr.layouts.mask_cures import NamesIn
from beam_tfr.layouts.mask_folders import is_of_masks, list_nothing
from beam_tfr.layouts.name_pattern import NamePattern
from beam_tfr.layouts.split_names import split_of_folder
from beam_tfr.schema.differences import join_names, join_texts
from beam_tfr.schema.extensions import stem_of_image
from beam_tfr.schema.spelling import spell_option

_WORD = (
    r"[hl][rq]|high|low|normal|gts?|inputs?|outputs?|sources?|targets?|refs?|references?|sharp"
    r"|blur(?:red|ry)?|clean|clear|nois[ey]|denoised|haz[ey]|(?:no)?rainy?|degraded|restored"
    r"|final|albedo|bicubic|upsampled|originals?|edited|before|after|day|night|conditions?"
    r"|conditioning|visible|vis?|rgb|infrared|thermal|(?:[lms]w|n)?ir|data"
)
# Names of folders that hold one photo of each pair: DIV2K_train_LR_bicubic.
_PAIR_FOLDER = NamePattern(
    rf"(?i)(?P<before>.*?[-_ ])??(?P<word>{_WORD}"
    r"|im(?:g|age)?[-_ ]?[0-9ab]|t(?:ime)?[-_ ]?[12]|(?-i:[AB](?![-_ ]))"
    r"|(?<![-_ ])(?:left|right|(?:cam|view)[0-9])(?![-_ ]))(?:[-_ ].*|res)?"
)
# Names of folders next to pairs that hold what is measured between them: KITTI's disp_occ_0.
_MEASURED = NamePattern(
    r"(?i)(?:.*[-_ ])?(?:disp(?:arity)?|depth|flow|obj_map|occlusions?|invalid)(?:[-_ ].*)?"
)
WORD_IN_NAME = re.compile(rf"(?i)(?<![a-z])(?:{_WORD})(?![a-z])")  # low00001.png, 01_GT.png
_PLAIN_NAME = re.compile("[A-Za-z0-9_-]+")
_SCALE_FOLDER = re.compile("(?i)x[0-9]{1,2}")  # DIV2K's LR_bicubic/X2, with 0001x2.png
_SCALE = re.compile("(?i)[-_ ]?x[0-9]{1,2}$")
_MOST_LEVELS = 12  # of folders that may hold pairs, counted from the files
LEAST_PAIRED = 0.9  # of the files
JOINED = (  # two datasets of pairs
    "with `num_shards=4` `max_rejects=0` and otherwise equal options; tf.data.Dataset.zip joins "
    "what `load` returns of each"
)
_BEFORE_SEPARATOR = re.compile("[-_]")
_MOST_FILES = 900  # in a folder whose names are all known


class _Place(NamedTuple):
    """A place in paths where folders of pairs may be.

    Attributes:
        parent: path of the folder that contains the folders of pairs.
        before: the text with which the names of the folders begin.
        below: path of the subfolder that holds files, without folders for scales.
    """

    parent: str
    before: str
    below: str


class _PairFolder(NamedTuple):
    """A folder that may hold one photo of each pair.

    Attributes:
        path: path of the folder of the files.
        name: the folder name that says what the folder holds.
        word: the word in this name, in lower case.
    """

    path: str
    name: str
    word: str


def describe_pair_folders(
    folders: Mapping[str, int], names_in: NamesIn = list_nothing, *, in_archives: bool = False
) -> str:
    """Reports folders that look like pairs of photos; returns an empty string if there are none.

    The names of the folders contain words such as HR and LR, and nearly all of their files have the
    same names, apart from scales and such words.

    Args:
        folders: folder of images -> number of images.
        names_in: folder -> the names of its files, if known.
        in_archives: whether some images may be in archives.
    """
    pairs = find_pair_folders(folders, names_in)
    if not pairs:
        return ""
    names = sorted({folder.name for group in pairs.values() for folder in group})
    rename = ""
    if any(_are_unlike(group, folders, names_in) for group in pairs.values()):
        rename = (
            "give their files the same names and extensions, remove files without a partner, and "
        )
    cure = "unpack them and make a dataset of each" if in_archives else _describe_cure(pairs, names)
    if any(_have_variants(group, folders, names_in) for group in pairs.values()):
        rename = "copy each photo of the shorter folder for every photo that it goes with, give "
        rename += "both the same name, and "
    return (
        f"the folders {join_names(names)} look like pairs of photos, but each photo becomes a "
        f"record of its own: {rename}{cure}, {JOINED}"
    )


def find_pair_folders(
    folders: Mapping[str, int], names_in: NamesIn = list_nothing
) -> Mapping[_Place, Sequence[_PairFolder]]:
    """Finds folders that look like pairs of photos.

    Args:
        folders: folder of images -> number of images.
        names_in: folder -> the names of its files, if known.

    Returns:
        Place -> its folders; an empty mapping if other folders hold images too, since all of these
        folders may then be classes.
    """
    places = _group_folders(folders)
    in_places = {folder.path for group in places.values() for folder in group}
    if any(folder not in in_places and not _goes_with_pairs(folder) for folder in folders):
        return {}
    pairs = {
        place: group for place, group in places.items() if _are_pairs(group, folders, names_in)
    }
    in_pairs = {folder.path for group in pairs.values() for folder in group}
    images = sum(folders[path] for path in in_pairs)
    return pairs if images * 2 >= sum(folders[path] for path in in_places) else {}


def _goes_with_pairs(folder: str) -> bool:
    """Whether a folder is named like a folder of masks or measurements, not like a class."""
    return is_of_masks(folder) or any(map(_MEASURED.fullmatch, folder.split("/")))


def _group_folders(folders: Iterable[str]) -> dict[_Place, list[_PairFolder]]:
    """Groups the folders that are named like folders of pairs."""
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


def _are_pairs(group: Sequence[_PairFolder], folders: Mapping[str, int], names_in: NamesIn) -> bool:
    """Whether the folders of a place have different words, and images that go together.

    Args:
        group: the folders.
        folders: folder of images -> number of images.
        names_in: folder -> the names of its files, if known.
    """
    if len({folder.word for folder in group}) == 1:
        return False
    numbers = [folders[folder.path] for folder in group]
    are_as_many = min(numbers) >= LEAST_PAIRED * max(numbers)
    if are_as_many and _have_one_name(group, names_in):
        return True
    return _have_variants(group, folders, names_in)


def _have_variants(
    group: Sequence[_PairFolder], folders: Mapping[str, int], names_in: NamesIn
) -> bool:
    """Whether several photos in one folder go with each photo in the other.

    An example is RESIDE's hazy/1400_1.png and hazy/1400_2.png, which go with clear/1400.png. In
    long folders, whose names are not all known, the numbers of images decide.

    Args:
        group: the folders.
        folders: folder of images -> number of images.
        names_in: folder -> the names of its files, if known.
    """
    if len(group) != 2:
        return False
    few, many = sorted(group, key=lambda folder: folders[folder.path])
    if folders[many.path] >= _MOST_FILES:
        copies, rest = divmod(folders[many.path], folders[few.path])
        return copies > 1 and rest == 0
    scenes = {*map(stem_of_image, names_in(few.path))}
    stems = [*map(stem_of_image, names_in(many.path))]
    found = [stem for stem in stems if _begins_with(stem, scenes)]
    return len(scenes) < len(stems) and len(found) >= LEAST_PAIRED * len(stems)


def _begins_with(stem: str, scenes: Set[str]) -> bool:
    """Whether a stem begins with one of the names, followed by a separator."""
    ends = (match.start() for match in _BEFORE_SEPARATOR.finditer(stem))
    return any(stem[:end] in scenes for end in ends)


def _have_one_name(group: Iterable[_PairFolder], names_in: NamesIn) -> bool:
    """Whether nearly all files of folders have the same names, as far as names are known.

    Scales, and words that name folders of pairs, do not count as parts of these names.

    Args:
        group: the folders.
        names_in: folder -> the names of its files, if known.
    """
    all_stems = list[set[str]]()
    for names in _list_known_names(group, names_in):
        all_stems.append({_stem_of_pair(name) for name in names})
    if not all_stems:
        return True
    shared = set.intersection(*all_stems)
    return len(shared) >= LEAST_PAIRED * max(map(len, all_stems))


def _list_known_names(group: Iterable[_PairFolder], names_in: NamesIn) -> Iterator[Sequence[str]]:
    """Yields the names of all files in each folder; skips folders whose file names are unknown."""
    for folder in group:
        names = names_in(folder.path)
        if 0 < len(names) < _MOST_FILES:
            yield names


def _stem_of_pair(name: str) -> str:
    """Returns the part of a file name that both photos of a pair share."""
    stem = _SCALE.sub("", stem_of_image(name))
    return WORD_IN_NAME.sub("", stem)


def _are_unlike(
    group: Sequence[_PairFolder], folders: Mapping[str, int], names_in: NamesIn
) -> bool:
    """Whether the numbers of files or the known file names of folders differ.

    Args:
        group: the folders.
        folders: folder of images -> number of images.
        names_in: folder -> the names of its files, if known.
    """
    numbers = {folders[folder.path] for folder in group}
    known_names = {frozenset(names) for names in _list_known_names(group, names_in)}
    return len(numbers) > 1 or len(known_names) > 1


def _describe_cure(pairs: Mapping[_Place, Sequence[_PairFolder]], names: Sequence[str]) -> str:
    """Says how to get the folders of each name as an input.

    Args:
        pairs: place -> folders.
        names: the names of the folders, sorted.
    """
    parents = {place.parent for place in pairs}
    if len(parents) > 1 and not all(map(_PLAIN_NAME.fullmatch, names)):
        return "make a dataset of each, from a copy without that level, so that their keys agree"
    if len(parents) > 1:
        script = (
            f'for n in {" ".join(names)}; do find . -path "*/$n/*" -type f | '
            'tar cf "../pairs-$n.tar" --transform "s,/$n/,/," -T -; done'
        )
        return (
            f"use (cd DIR; {script}), which writes archives such as DIR/../pairs-{names[0]}.tar, "
            "and make a dataset of each"
        )
    (parent,) = parents
    start = f"DIR/{parent}" if parent else "DIR"
    paths = [f"{start}/{name}" for name in names]
    layout = ""
    below = {place.below for place in pairs}
    if all(map(split_of_folder, below)):
        layout = " with `layout='{split}/*'`"
    elif not any(below):
        paths = sorted(f"DIR/{folder.path}" for group in pairs.values() for folder in group)
        layout = " without classes (`layout='*'`)"
    inputs = join_texts([spell_option("input", path) for path in paths], separator=", ")
    return f"make a dataset of each ({inputs}){layout}"
