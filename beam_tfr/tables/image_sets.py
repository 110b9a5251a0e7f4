"""Reads the splits of Pascal VOC: lists of images, such as `ImageSets/Main/train.txt`.

The lists are next to the folder of the XML files (`Annotations`). See section 3 of the devkit's
documentation, http://host.robots.ox.ac.uk/pascal/VOC/voc2012/htmldoc/devkit_doc.html. Other data
sets keep lists in the parent folder of the XML files, or together with the XML files:
PaddleDetection's `train.txt` has an image and its XML file on each line, and the Oxford pets have
class numbers after the names.
"""

import contextlib
import functools
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from beam_tfr import storage
from beam_tfr.layouts.split_names import is_split_word, splits_of_file
from beam_tfr.schema.errors import UsageError
from beam_tfr.schema.extensions import FORMAT_OF
from beam_tfr.tables.our_exports import read_export_splits
from beam_tfr.tables.shared_images import SeparatedLists, SplitList, separate_lists

# Chooses the lists among text files, given path -> name: path -> split.
_Choose = Callable[[Mapping[str, str]], dict[str, str]]
UNLISTED = "unlisted"  # the split of images that no list names
# Folders of lists, next to the folder of annotations or its parent: for all images, and for the
# images of a task.
_FOLDERS = ("ImageSets/Main", "ImageSets")
_TASK_FOLDERS = ("ImageSets/Segmentation", "ImageSets/Layout", "ImageSets/Action")
_FIRST_LIST = "train"  # if it is missing, no other lists are expected among annotations
_OTHER_LISTS = ("val", "valid", "validation", "test", "trainval")
_BOTH = "trainval"  # the list of train and val together
_OTHER_OF = {"train": "val", "val": "train"}
_MAX_LIST_BYTES = 64 << 20  # 64 MiB
_MOST_LINES = 2_000_000
# A path in a line, followed by another path or a class.
_FILE = re.compile(rf"(?i)(.+?\.(?:{'|'.join(FORMAT_OF)}|xml))(?:[\s,;].*)?")
# Numbers after names, such as whether an image shows a class, in a line that is read backwards.
_NUMBERS = re.compile(r"(?:[0-9]++-?+\s++)++")


class ImageSets(NamedTuple):
    """The image lists of a folder of annotations.

    Attributes:
        lists: the paths of the lists that were read.
        splits: name of an image, without its extension -> its split.
        rest: the split of images that `trainval.txt` names, but the only list of train or val does
            not name; an empty string if both or neither of these lists exist.
        problems: name of an image that is in two lists -> what is wrong with the image.
        notes: lines about lists that share images.
    """

    lists: tuple[str, ...] = ()
    splits: Mapping[str, str] = {}
    rest: str = ""
    problems: Mapping[str, str] = {}
    notes: tuple[str, ...] = ()

    def split_of(self, image: str) -> str:
        """Returns the split of an image, given its name without the extension."""
        return self.splits.get(image, UNLISTED)


def name_of_image(annotation: str) -> str:
    """Returns the name that lists use for the image of an XML file."""
    return _name_of(annotation)


@functools.lru_cache(maxsize=16)
def read_image_sets(annotations: str) -> ImageSets:
    """Reads the image lists of a folder of annotations.

    Args:
        annotations: the folder, with a trailing slash.

    Raises:
        UsageError: all images of a list are in another, longer list; or a list is too long.
        OSError: a list cannot be read.
    """
    split_of_list = _find_lists(annotations)
    lists = _read_lists(split_of_list)
    both = next(filter(_is_of_both, split_of_list), "")
    rest = split_of_list[both] if split_of_list.get(both) in _OTHER_OF else ""
    if rest:
        part = lists[_OTHER_OF[rest]].images
        images = [name for name in lists[rest].images if name not in part]
        lists[rest] = lists[rest]._replace(images=dict.fromkeys(images))
    separated = _separate([*lists.values()])
    splits = dict[str, str]()
    for split, names in zip(lists, separated.images, strict=True):
        splits |= dict.fromkeys(names, split)
    return ImageSets(
        lists=tuple(split_of_list),
        splits=splits,
        rest=rest,
        problems=separated.problems,
        notes=tuple(separated.notes),
    )


def _read_lists(split_of_list: Mapping[str, str]) -> dict[str, SplitList]:
    """Returns split -> list, given the split of each list; joins the lists of a split."""
    lists = dict[str, SplitList]()
    for path, split in split_of_list.items():
        earlier = lists.get(split, SplitList(path, {}))
        images = dict.fromkeys([*earlier.images, *_read_names(path)])
        lists[split] = earlier._replace(images=images)
    return lists


def _separate(lists: Sequence[SplitList]) -> SeparatedLists:
    """Separates lists so that each image is in only one list.

    Raises:
        UsageError: all images of a list are in another, longer list.
    """
    try:
        return separate_lists(lists)
    except ValueError as error:
        cure = ", or `splits=train=1`, which ignores these lists"
        raise UsageError(f"{error}{cure}", option="table", value=lists[0].name) from None


def clear_caches() -> None:
    """Clears all cached lists, since these may change before the next run in this process."""
    read_image_sets.cache_clear()
    _list_texts.cache_clear()


def _find_lists(annotations: str) -> dict[str, str]:
    """Returns path -> split for the lists of a folder of annotations that are named like splits.

    If there are no such lists, lists of classes, such as `cat_train.txt`, are joined. Only the
    first folder that holds a list is used.
    """
    export_splits = read_export_splits(annotations)
    if export_splits:
        for names in _list_image_sets(annotations, _FOLDERS):
            lists = {path: name for path, name in names.items() if name in export_splits}
            if lists:
                return lists
        return {}
    for choose, names in _list_candidates(annotations):
        lists = choose(names)
        if lists:
            return lists
    return {}


def _list_candidates(annotations: str) -> Iterator[tuple[_Choose, Mapping[str, str]]]:
    """Yields (function that chooses lists, text files of a folder), the likeliest folder first.

    Text files are given as path -> name without the extension.
    """
    for names in _list_image_sets(annotations, _FOLDERS):
        yield _choose_lists, names
    for names in _list_around(annotations):
        yield _choose_lists, names
    for names in _list_image_sets(annotations, _FOLDERS):
        yield _choose_longer_names, names
    for names in _list_image_sets(annotations, _TASK_FOLDERS):
        yield _choose_lists, names
    for names in _list_around(annotations):
        yield _choose_longer_names, names


def _list_image_sets(annotations: str, folders: Sequence[str]) -> Iterator[Mapping[str, str]]:
    """Yields the text files in folders next to that of the annotations, then next to its parent."""
    beside = annotations.rstrip("/").rpartition("/")[0]
    outer = beside.rpartition("/")[0]
    for folder in folders:
        yield _list_texts(storage.join(beside, folder))
    if outer.removeprefix(storage.GCS.rstrip("/")):
        for folder in folders:
            yield _list_texts(storage.join(outer, folder))


def _list_around(annotations: str) -> Iterator[Mapping[str, str]]:
    """Yields the text files in the parent of the annotations folder, then those in the folder."""
    beside = annotations.rstrip("/").rpartition("/")[0]
    with contextlib.suppress(PermissionError):  # nothing else needs to list the folder
        yield _list_texts(beside)
    yield _find_among(annotations)


@functools.lru_cache(maxsize=256)
def _list_texts(folder: str) -> Mapping[str, str]:
    """Returns the text files in a folder: path -> name without the extension."""
    paths = [file.path for file in storage.list_files(folder)]
    return {path: _stem_of(path) for path in paths if path.endswith(".txt")}


def _find_among(annotations: str) -> dict[str, str]:
    """Finds the lists in a folder of annotations without listing the folder, which may be large."""
    names = dict[str, str]()
    for name in (_FIRST_LIST, *_OTHER_LISTS):
        path = storage.join(annotations, f"{name}.txt")
        if storage.find(path):
            names[path] = name
        elif name == _FIRST_LIST:
            break
    return names


def _choose_longer_names(names: Mapping[str, str]) -> dict[str, str]:
    """Returns path -> split for lists with one split in their names, such as `cat_train.txt`."""
    lists = dict[str, str]()
    for path, name in names.items():
        splits = splits_of_file(name)
        if len(splits) == 1:
            lists[path] = min(splits)
    return lists


def _choose_lists(names: Mapping[str, str]) -> dict[str, str]:
    """Returns path -> split for lists whose names are words for splits.

    The list of train and val together comes last. If neither train nor val has a list, this list is
    one split; if train or val has a list, the rest of this list is the other split.
    """
    lower_names = {path: name.lower() for path, name in names.items()}
    lists = {path: name for path, name in lower_names.items() if is_split_word(name)}
    split = _split_of_both(lists.values())
    if split:
        lists |= dict.fromkeys(filter(_is_of_both, names), split)
    return lists


def _split_of_both(splits: Collection[str]) -> str:
    """Returns the split for the list of train and val together, given the splits of other lists.

    Returns an empty string if both train and val have lists.
    """
    has_train = any(split.startswith("train") for split in splits)
    has_val = any(split.startswith(("val", "dev")) for split in splits)
    if has_train and has_val:
        return ""
    if "train" in splits:
        return "val"
    if "val" in splits:
        return "train"
    return _BOTH


def _is_of_both(path: str) -> bool:
    """Whether the name of a list says that it is for train and val together."""
    return _stem_of(path).lower() == _BOTH


def _read_names(path: str) -> Iterator[str]:
    """Yields the names of the images in a list.

    Raises:
        UsageError: the list is too long.
    """
    data = storage.read_bytes(path, max_bytes=_MAX_LIST_BYTES)
    if len(data) > _MAX_LIST_BYTES or data.count(b"\n") > _MOST_LINES:
        problem = (
            f"is larger than {_MAX_LIST_BYTES >> 20} MiB, or has more than {_MOST_LINES:,} lines; "
            "`splits=train=1` ignores such lists"
        )
        raise UsageError(problem, option="table", value=path)
    text = data.decode("utf-8-sig", "surrogateescape")
    lines = [line.strip() for line in text.split("\n")]
    paths = [_drop_second(line) for line in lines if line]
    for line in _drop_numbers(paths):
        name = _name_of(line)
        if name:
            yield name


def _drop_second(line: str) -> str:
    """Returns the image path at the start of a line, without its XML file or other text."""
    match = _FILE.fullmatch(line)
    return match[1] if match else line


def _drop_numbers(lines: Sequence[str]) -> Sequence[str]:
    """Removes the numbers after the names in the lines of a list, if all lines have such numbers.

    For example, "2008_000002 -1" has a class flag. Numbers that distinguish images, as in "photo
    1", are kept.
    """
    names = [*map(_without_numbers, lines)]
    all_have_some = all(name and name != line for name, line in zip(names, lines, strict=True))
    if not all_have_some or len({*names}) < len({*lines}):
        return lines
    return names


def _stem_of(path: str) -> str:
    """Returns the name of a list, without its extension."""
    return os.path.splitext(path.rpartition("/")[2])[0]


def _name_of(line: str) -> str:
    """Returns the name of the image in a line of a list, without folders or extensions."""
    name = line.strip().replace("\\", "/").rpartition("/")[2]
    if name.lower().endswith(".xml"):
        name = name[: -len(".xml")]
    stem, extension = os.path.splitext(name)
    return stem if extension[1:].lower() in FORMAT_OF else name


def _without_numbers(line: str) -> str:
    """Returns a line without the numbers after the name."""
    match = _NUMBERS.match(line[::-1])
    return line[: len(line) - match.end()] if match else line
