"""Finds splits in the names of folders and files: `train`, `Training`, `val2017`, `test_set`."""

import collections
import functools
import itertools
import re
from collections.abc import Collection, Iterable, Mapping, Set
from typing import NamedTuple

from beam_tfr.layouts.name_pattern import MOST_CHARACTERS
from beam_tfr.layouts.parsing import is_split_name

DEFAULT_SPLIT = "train"
_WORD = "(train(?:ing)?|val(?:id(?:ation)?)?|dev|test(?:ing)?|eval(?:uation)?|holdout)"
_SPLIT = re.compile(_WORD, re.IGNORECASE)
_VERSION = "(?:[-_ ]v[0-9]+)?"  # as in ISIC-2017_Test_v2_Data
_FOLDER = re.compile(rf"{_WORD}{_VERSION}(?:[-_ ]?(?:set|data|images))?[-_ ]?[0-9]*", re.IGNORECASE)
_WORD_AND_END = re.compile(rf"{_WORD}([-_ ](?:set|data|images))", re.IGNORECASE)
# A longer name that ends in a split: seg_train.
_LONGER_FOLDER = re.compile(rf"(.+[-_ .]){_FOLDER.pattern}", re.IGNORECASE | re.DOTALL)
# A name that begins with a split: train_cat.
_LONGER_BEHIND = re.compile(rf"{_WORD}([-_ .].+)", re.IGNORECASE | re.DOTALL)
# A name with a split in its middle: ISIC_Training_Input.
_LONGER_AROUND = re.compile(rf"(.+[-_ .]){_WORD}([-_ .].+)", re.IGNORECASE | re.DOTALL)
_SEPARATOR = re.compile("(?<=[-_ .])")
# Training and validation images together, as next to test: trainval, train_val2018.
_BOTH = re.compile(r"train[-_ ]?val(?:id(?:ation)?)?[0-9]*", re.IGNORECASE)
# A fold of a cross-validation: fold1, audio_fold1.
_FOLD = re.compile(r"(|.+[-_ .])((?:fold|split|cv)[-_ ]?[0-9]+)", re.IGNORECASE | re.DOTALL)
_DIGITS = re.compile("[0-9]+")
# A word of a name, maybe with a year, as in val2017, between characters that are not letters.
_IN_NAME = re.compile(rf"(?<![^\W\d_]){_WORD}(?![^\W\d_])[0-9]*", re.IGNORECASE)
# The word before the number of a shard, which stands for the split whatever comes before it.
_BEFORE_NUMBER = re.compile(
    rf"(?<![^\W\d_]){_WORD}[0-9]*(?:\.[^\W_]+)?[-_][0-9]+-of-[0-9]+", re.IGNORECASE
)
# A possible split within a word, such as labelsTrain, or in a short form: y_tr, imagesTs, tst.
_WITHIN_WORD = re.compile("train|val|test|dev|holdout|fold[-_ ]?[0-9]+", re.IGNORECASE)
_SHORT = re.compile(
    "(?:(?<![A-Za-z])|(?<=[a-z])(?=[A-Z]))(?:[Tt](?:r|rn|e|s|st)|[Vv](?:a|l))(?![a-z])"
    "|(?<![A-Za-z])(?:TRN?|TE|TST?|VA|VAL)(?![A-Za-z])"
)
_SHORT_WORD = re.compile("Tr|Trn|Te|Ts|Tst|Va|Vl|TR|TRN|TE|TS|TST|VA|tr|trn|te|ts|tst")
_OUTER_FOLDERS = 2  # folders at the end of a path: test, or test/Annotations


def is_split_word(text: str) -> bool:
    """Whether a text is a common name of a split, in upper or lower case."""
    return _SPLIT.fullmatch(text) is not None


def is_split_word_or_short(text: str) -> bool:
    """Whether a text is a common name of a split, or a short form: train, Tr, TST."""
    return is_split_word(text) or _SHORT_WORD.fullmatch(text) is not None


def split_of_folder(name: str) -> str:
    """Returns the split that a folder is named after, in lower case, or an empty string."""
    match = _FOLDER.fullmatch(name)
    return match[1].lower() if match else ""


class SplitFolder(NamedTuple):
    """The parts of the name of a split folder.

    Attributes:
        before: text before the split, such as `seg_` in seg_train.
        split: the split, spelled so that a split may have this name.
        behind: text after the split, such as `-Set` in Train-Set, or `_cat` in train_cat.
        is_shared: whether another folder name has a different split between the same texts.
    """

    before: str
    split: str
    behind: str = ""
    is_shared: bool = False


def find_split_folders(names: Iterable[str]) -> Mapping[str, SplitFolder]:
    """Finds the folders that are named like splits, among the folders at one level.

    A split at the end of a longer name counts if another folder has another split after the same
    prefix: seg_train and seg_test count, and then seg_pred too, but bullet_train alone does not.
    The same holds for a split at the beginning or in the middle: train_cat and test_cat, a_train_b
    and a_test_b. Numbers may differ: 1-Training and 2-Testing. Several folds, such as fold1 and
    fold2, are splits too, and so is trainval next to another split. A word at the end of all splits
    is not part of the splits: `_images` in train_images and test_images.

    Returns:
        Name -> its parts.
    """
    all_names = [*names]
    shared = _find_shared(name for name in all_names if not split_of_folder(name))
    divided = {name: _find_parts(name, shared) for name in all_names}
    if shared:
        divided |= _divide_others(name for name, parts in divided.items() if not parts)
    folds = [*filter(None, map(_FOLD.fullmatch, all_names))]
    if are_different(fold[2] for fold in folds):
        divided |= {fold[0]: SplitFolder(fold[1], fold[2]) for fold in folds}
    found = {name: parts for name, parts in divided.items() if parts}
    if found:
        found |= {name: SplitFolder("", name) for name in filter(_BOTH.fullmatch, all_names)}
    return _cut_shared_end(found)


def _cut_shared_end(folders: dict[str, SplitFolder]) -> dict[str, SplitFolder]:
    """Returns the parts of names; splits lose a last word that all share, such as `_images`."""
    cut = dict[str, SplitFolder]()
    for name, parts in folders.items():
        match = _WORD_AND_END.fullmatch(parts.split)
        if match:
            cut[name] = parts._replace(split=match[1], behind=match[2])
    ends = {parts.behind for parts in cut.values()}
    return cut if len(cut) == len(folders) and len(ends) == 1 else folders


def _divide_others(names: Iterable[str]) -> dict[str, SplitFolder]:
    """Divides the remaining names, next to names that share the text around their splits.

    Returns an empty dict unless all names end in splits: noisy_train next to clean_val and
    clean_test.
    """
    others = {}
    for name in names:
        match = _LONGER_FOLDER.fullmatch(name)
        if not match:
            return {}
        others[name] = _divide_behind(name, match[1])
    return others


def have_classes(folders: Iterable[SplitFolder]) -> bool:
    """Whether folder names have classes around their splits: cat_train, cat_test and dog_train.

    The numbers in 1-train and 2-test are not classes.
    """
    splits_around = collections.defaultdict[str, set[str]](set)
    for folder in folders:
        around = f"{folder.before}/{folder.behind}".lower()
        splits_around[around].add(folder.split.lower())
    return len(splits_around) > 1 and any(len(splits) > 1 for splits in splits_around.values())


def _find_shared(names: Iterable[str]) -> set[str]:
    """Returns the texts that several names have around different splits; see `_text_around`."""
    splits_around = collections.defaultdict[str, set[str]](set)
    for name in names:
        last = _LONGER_FOLDER.fullmatch(name)
        if last:
            splits_around[_text_around(last[1])].add(last[2].lower())
        first = _LONGER_BEHIND.fullmatch(name)
        if first:
            splits_around[_text_around(behind=first[2])].add(first[1].lower())
        middle = _LONGER_AROUND.fullmatch(name)
        if middle:
            splits_around[_text_around(middle[1], middle[3])].add(middle[2].lower())
    return {around for around, splits in splits_around.items() if len(splits) > 1}


def _find_parts(name: str, shared: Collection[str]) -> SplitFolder | None:
    """Returns the parts of a name with a split; `shared` holds the texts that names share."""
    if split_of_folder(name):
        return _divide_name(name)
    if len(name) > MOST_CHARACTERS:  # the total length of all its prefixes is quadratic
        return None
    starts = itertools.accumulate(_SEPARATOR.split(name)[:-1], str.__add__)
    own_prefixes = [start for start in starts if _text_around(start) in shared]
    if own_prefixes:
        return _divide_behind(name, own_prefixes[-1])
    first = _LONGER_BEHIND.fullmatch(name)
    if first and _text_around(behind=first[2]) in shared:
        return SplitFolder("", first[1], first[2], is_shared=True)
    middle = _LONGER_AROUND.fullmatch(name)
    if middle and _text_around(middle[1], middle[3]) in shared:
        return SplitFolder(middle[1], middle[2], middle[3], is_shared=True)
    return None


def _text_around(before: str = "", behind: str = "") -> str:
    """Returns the text around a split, in lower case; 0 stands for any number, / for the split."""
    return _DIGITS.sub("0", f"{before}/{behind}".lower())


def _divide_name(name: str) -> SplitFolder:
    """Divides a name that begins with a split; the whole name is the split if it is valid."""
    match = _FOLDER.fullmatch(name)
    if is_split_name(name) or not match:
        return SplitFolder("", name)
    return SplitFolder("", match[1], name[len(match[1]) :])


def _divide_behind(name: str, before: str) -> SplitFolder:
    """Divides a name whose split follows a text that other names share."""
    parts = _divide_name(name.removeprefix(before))
    return parts._replace(before=before, is_shared=True)


class UnmarkedTrain(NamedTuple):
    """Two folders, one of which is named like a split of the other: rps-test-set next to rps.

    Attributes:
        marked: the folder that is named like a split.
        unmarked: the other folder, which seems to be the split train.
        renamed: the name that the other folder would have as a split.
    """

    marked: str
    unmarked: str
    renamed: str


def find_unmarked_train(names: Collection[str]) -> UnmarkedTrain | None:
    """Finds a folder that seems to hold the train split next to a folder named like another split.

    The folder is named like the other folder without the split; or there are only two folders,
    whose names begin alike, such as images_background and images_evaluation.
    """
    for name in sorted(names):
        match = _LONGER_FOLDER.fullmatch(name) or _LONGER_BEHIND.fullmatch(name)
        if not match:
            continue
        is_at_end = match.re is _LONGER_FOLDER
        rest = match[1][:-1] if is_at_end else match[2][1:]
        begin, end = match.span(2 if is_at_end else 1)
        if name[begin:end].lower().startswith(DEFAULT_SPLIT):
            continue
        renamed = f"{name[:begin]}{DEFAULT_SPLIT}{name[end:]}"
        if rest in names:
            return UnmarkedTrain(name, rest, renamed)
        others = {*names} - {name}
        if is_at_end and len(others) == 1 and min(others).startswith(match[1]):
            return UnmarkedTrain(name, min(others), renamed)
    return None


def split_within(folder: str) -> str:
    """Returns the first split that a folder in a path names, or an empty string."""
    return next(filter(None, map(split_of_folder, folder.split("/"))), "")


def split_around(folder: str) -> str:
    """Returns the split named by a folder, or by the folder around it, or an empty string.

    The name of the folder itself may be longer, and end in a split, such as seg_test.

    Args:
        folder: path of the folder, with a trailing slash.
    """
    names = folder.split("/")[:-1]
    splits = filter(None, map(split_of_folder, reversed(names[-_OUTER_FOLDERS:])))
    longer = _LONGER_FOLDER.fullmatch(names[-1]) if names else None  # seg_test
    return next(splits, longer[2].lower() if longer else "")


def splits_within(folders: Collection[str]) -> Mapping[str, str]:
    """Returns the split that a folder in each path names; see `find_split_folders`.

    Returns:
        Path -> split, in lower case, or an empty string.
    """
    names_at = collections.defaultdict[int, set[str]](set)  # depth -> names
    for folder in folders:
        for depth, name in enumerate(folder.split("/")):
            names_at[depth].add(name)
    found_at = {depth: find_split_folders(names) for depth, names in names_at.items()}
    split_of = dict[str, str]()
    for folder in folders:
        parts = [found_at[depth].get(name) for depth, name in enumerate(folder.split("/"))]
        splits = [split_of_folder(part.split) or part.split.lower() for part in parts if part]
        split_of[folder] = splits[0] if splits else ""
    return split_of


@functools.lru_cache
def splits_of_file(name: str) -> dict[str, str]:
    """Returns the splits that are words in a file name.

    Returns:
        Split, in lower case -> its word, with the digits after it: "train" -> "train2017".
    """
    numbered = _BEFORE_NUMBER.search(name)
    if numbered:
        return {numbered[1].lower(): numbered[1]}
    return {match[1].lower(): match[0] for match in _IN_NAME.finditer(name)}


def seeming_split(name: str) -> str:
    """Returns the part of a name that hints at a split, in lower case, or an empty string.

    A hint is not certain: labelsTest has one, but so does latest.
    """
    match = _WITHIN_WORD.search(name) or _SHORT.search(name)
    return match[0].lower() if match else ""


def find_seeming_splits(names: Iterable[str]) -> Mapping[str, str]:
    """Finds the splits that folder names at one level hint at: imagesTr and imagesTs.

    Returns:
        Hint -> the first name with the hint; an empty mapping unless all names have hints, and the
        hints differ.
    """
    example_of = dict[str, str]()
    for name in sorted(names):
        example_of.setdefault(seeming_split(name), name)
    return example_of if "" not in example_of and len(example_of) > 1 else {}


def without_splits(name: str) -> str:
    """Returns a name without the words in it that are splits: CLEVR_ for CLEVR_train."""
    return _IN_NAME.sub("", name)


def describe_split_names(names: Iterable[str]) -> str:
    """Reports splits in image names, at the beginning or as words, or returns an empty string.

    All names must have a split, and the splits must differ, as in train_1.jpg and test_1.jpg.

    Args:
        names: names of files, without folders.
    """
    example_of = dict[str, str]()  # split -> the first name
    for name in names:
        splits = splits_of_file(name)
        if len(splits) != 1:
            return ""
        example_of.setdefault(min(splits), name)
    if len(example_of) < 2:
        return ""
    examples = " and ".join([*example_of.values()][:2])
    return f"names of images seem to name splits, such as {examples}, but all go to {DEFAULT_SPLIT}"


def are_different(splits: Iterable[str]) -> bool:
    """Whether folders are named after at least two different splits."""
    return len({name.lower() for name in splits}) > 1


def are_splits(names: Set[str]) -> bool:
    """Whether all folders at a level are named like splits."""
    return names == find_split_folders(names).keys()
