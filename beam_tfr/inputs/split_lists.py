"""Finds lists of the images in each split that are next to images and tables, but are not read.

Examples are Food-101's `meta/train.txt`, whose lines are like `apple_pie/1005649`, CUB-200-2011's
`train_test_split.txt`, whose lines are numbers, and `TrainImages.txt` of MIT Indoor67.
"""

import collections
import contextlib
import itertools
import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence, Set
from typing import NamedTuple

from beam_tfr import storage
from beam_tfr.inputs.annotation_texts import has_texts_of_images
from beam_tfr.inputs.first_names import FirstNames
from beam_tfr.layouts.split_names import DEFAULT_SPLIT, seeming_split, splits_of_file
from beam_tfr.schema.differences import join_texts
from beam_tfr.schema.extensions import has_image_name

_CURE = (
    f"all images go to {DEFAULT_SPLIT}, unless a `table=` has each image's split in a column "
    "`split`; `splits=train=1` confirms that there is only one split"
)
# Folders in which lists are looked for on gs://; on a disk, all of the first folders are searched.
_REMOTE_FOLDERS = ("meta", "splits", "annotations")
_VOC_LISTS = "ImageSets"  # its folders hold lists
_MOST_FOLDERS = 50  # subfolders of a folder
_MOST_AROUND = 3  # image folders whose parents are searched
_MOST_FILES = 10_000  # listed in a folder
_MOST_BELOW = 1_000  # listed in a subfolder
_UNREAD = ".mat"  # files of MATLAB, which nothing here reads
_TABLES = (".csv", ".tsv")
_EXTENSIONS = (".txt", ".lst", ".list", ".json", _UNREAD, *_TABLES)
_MOST_READ = 10  # files in a folder that are named like lists
_MOST_PARTS = 3  # parts of a folder path that lists may name
_MOST_LISTS = 4  # lists that a message names
_BEGIN_BYTES = 64 << 10  # the part of a list that is looked at
_MOST_LINES = 20  # lines whose images are looked for
_MOST_REMOTE_LINES = 2
_DIVISION = re.compile("split|partition", re.IGNORECASE)
_OTHER_NAMES = ("setid.mat",)  # of Flowers-102
# Subfolders of a dataset that are not datasets of their own.
_OWN_FOLDER = re.compile(
    "(?i)(?:meta(?:data)?|eval|devkit|data|(?:.*[-_ ]|images?)?"
    "(?:lists?|splits?|sets|partitions?|protocols?|labels?|annotations?))"
)
_TOKENS = re.compile(r"""[\s,;"']+""")
_JSON_ITEMS = re.compile(r"[\n,\[\]{}]+")
_ANNOTATIONS = re.compile(r'"(?:images|annotations|shapes)"\s*:')  # reported elsewhere
_NUMBERS = re.compile(r"[0-9]+(?:\s+-?[0-9.]+)+")  # as in label files
# After the number of an image: its split, or whether it is in train.
_SPLIT_OF_LINE = re.compile(
    r"(?i)[0-9]+[\s,;]+(?:[0-3]|train(?:ing)?|val(?:idation)?|test(?:ing)?)"
)


def describe_split_lists(
    folders: Iterable[str],
    images: Collection[str],
    *,
    cure: str = _CURE,
    first_names: FirstNames | None = None,
    tables: Collection[str] = (),
) -> str:
    """Returns a message about lists of the images in each split, or "" if there are none.

    Args:
        folders: folders that contain all images, and those of the tables. Lists are looked for in
            these folders, in those of the first images, in the parents of both, and in all
            subfolders.
        images: paths of some images; lists may mention them without extensions.
        cure: how to use the splits in the lists.
        first_names: lists folders.
        tables: tables that are read.
    """
    listing = first_names or FirstNames()
    image_folders = itertools.islice(dict.fromkeys(map(os.path.dirname, images)), _MOST_AROUND)
    own_folders = [folder.rstrip("/") for folder in (*folders, *image_folders)]
    all_folders = dict.fromkeys([*own_folders, *map(os.path.dirname, own_folders)])
    bases = [folder for folder in all_folders if folder.removeprefix("gs:")]
    candidates = dict[str, None]()
    for base in bases:
        # Folders next to the image folder may be other datasets.
        paths = _list_candidates(base, listing, only_own=base not in own_folders)
        candidates.update(dict.fromkeys(paths))
    extensions = ["", *{os.path.splitext(path)[1] for path in images}]
    unread = _choose_unread(candidates, tables)
    images_of = _ImagePlaces(bases, extensions, _name_folders(images))
    lists = [path for path in unread if _lists_images(path, images_of)]
    if not lists:
        return ""
    shown = join_texts(sorted(lists), most=_MOST_LISTS, separator=", ")
    return f"files that seem to say which images are in which split are not read: {shown}; {cure}"


def _choose_unread(candidates: Collection[str], tables: Collection[str]) -> list[str]:
    """Chooses files that may be lists, except tables that are read or that cover one split.

    An example of a table of one split is train.csv, with the labels that a test set lacks.
    """
    splits_in = collections.defaultdict[str, set[str]](set)  # folder -> splits of its tables
    for path in candidates:
        folder, name = os.path.split(path)
        if _is_table(name):
            splits_in[folder].update(splits_of_file(name))
    unread = []
    for path in candidates:
        is_one_of_several = len(splits_in[os.path.dirname(path)]) > 1 or _divides(path)
        if path not in tables and (is_one_of_several or not _is_table(path)):
            unread.append(path)
    return unread


def _is_table(path: str) -> bool:
    return path.lower().endswith(_TABLES)


def _divides(path: str) -> bool:
    """Whether a file is named like a list of all splits, such as list_eval_partition.csv."""
    return _DIVISION.search(os.path.basename(path)) is not None


def _list_candidates(folder: str, first_names: FirstNames, *, only_own: bool) -> Iterator[str]:
    """Yields the paths of files in and below a folder that are named like lists of splits.

    Args:
        only_own: whether to skip subfolders that may be datasets of their own.
    """
    names = first_names.list_folders(folder, _MOST_FILES)
    inner = [folder]
    if _VOC_LISTS in names:
        lists_folder = storage.join(folder, _VOC_LISTS)
        inner += _join_first(lists_folder, first_names.list_folders(lists_folder, _MOST_FILES))
    if storage.is_remote(folder):
        names = [name for name in names if name in _REMOTE_FOLDERS]
    elif only_own:
        names = [name for name in names if _OWN_FOLDER.fullmatch(name)]
    inner += _join_first(folder, names)
    for path in inner:
        most = _MOST_FILES if path == folder else _MOST_BELOW
        names = first_names.list_names(path, most)
        paths = (storage.join(path, name) for name in names if _is_named_so(name))
        yield from sorted(paths)[:_MOST_READ]


def _join_first(folder: str, names: Sequence[str]) -> list[str]:
    """Returns the paths of the first subfolders of a folder."""
    return [storage.join(folder, name) for name in names[:_MOST_FOLDERS]]


def _is_named_so(name: str) -> bool:
    """Whether a file is named like a list of the images in one split, or in all splits."""
    stem, extension = os.path.splitext(name)
    if extension.lower() not in _EXTENSIONS:
        return False
    if splits_of_file(stem) or _divides(name) or name.lower() in _OTHER_NAMES:
        return True
    is_certain_only = extension.lower() in (_UNREAD, *_TABLES)  # to exclude latest.mat
    return not is_certain_only and bool(seeming_split(stem))


class _ImagePlaces(NamedTuple):
    """The places of images that lists may mention.

    Attributes:
        bases: folders that paths may be relative to.
        extensions: image extensions, and the empty extension.
        folders: last parts of the paths of the image folders, such as bear and 480p/bear.
    """

    bases: Sequence[str]
    extensions: Sequence[str]
    folders: Set[str]

    def hold(self, text: str) -> bool:
        """Whether an image, or a folder of images, has this path."""
        if text.rstrip("/") in self.folders:
            return True
        return any(_is_file(f"{base}/{text}", self.extensions) for base in self.bases)


def _name_folders(images: Iterable[str]) -> set[str]:
    """Returns the last parts of the paths of the folders that hold the images."""
    ends = set[str]()
    for folder in {*map(os.path.dirname, images)}:
        parts = folder.split("/")
        ends.update("/".join(parts[-number:]) for number in range(1, _MOST_PARTS + 1))
    return ends - {""}


def _lists_images(path: str, images: _ImagePlaces) -> bool:
    """Whether a file that is named like a split list mentions images, or folders with images."""
    folder, _, name = path.rpartition("/")
    is_near = folder in images.bases
    if name.lower().endswith(_UNREAD):
        return is_near or _OWN_FOLDER.fullmatch(os.path.basename(folder)) is not None
    lines = _read_lines(path)
    if is_near and _divides(name) and all(map(_SPLIT_OF_LINE.fullmatch, lines)):
        return bool(lines)
    return _are_there(path, lines, images, is_near=is_near)


def _are_there(path: str, lines: Sequence[str], images: _ImagePlaces, *, is_near: bool) -> bool:
    """Whether images mentioned in a file exist: at least one, or half if the file is far away.

    Args:
        path, lines: path of the file, and its lines.
        images: where the images may be.
        is_near: whether the file is near the images; then one existing image suffices.
    """
    folder = os.path.dirname(path)
    numbers = collections.Counter[bool]()
    for texts in _list_texts(path, lines):
        if not is_near and any(_is_file(f"{folder}/{text}", images.extensions) for text in texts):
            return False  # the file belongs to another dataset
        is_there = any(map(images.hold, texts))
        if is_there and is_near:
            return True
        numbers[is_there] += 1
    return numbers[True] >= max(1, numbers[False])


def _read_lines(path: str) -> list[str]:
    """Returns the first nonblank lines of a file, or the first items of a JSON file.

    Returns no lines for a table of annotations, or if the file cannot be read.
    """
    with contextlib.suppress(OSError):
        content = storage.read_part(path, 0, _BEGIN_BYTES)
        if has_texts_of_images(content):
            return []
        begin = content.decode("utf-8-sig", "replace")
        items = begin.splitlines()[:-1] if len(begin) >= _BEGIN_BYTES else begin.splitlines()
        if path.lower().endswith(".json"):
            items = [] if _ANNOTATIONS.search(begin) else _JSON_ITEMS.split(begin)
        return [item.strip() for item in items if item.strip()]
    return []


def _list_texts(path: str, lines: Sequence[str]) -> Iterator[list[str]]:
    """Yields the possible image paths in each of the first few lines of a file."""
    most = _MOST_REMOTE_LINES if storage.is_remote(path) else _MOST_LINES
    list_words = _list_cells if _is_table(path) else _list_paths
    for line in lines[:most]:
        yield list_words(line)


def _list_paths(line: str) -> list[str]:
    """Lists the possible image paths in a line: the whole line, and its first or last word."""
    if _NUMBERS.fullmatch(line):
        return []
    words = [word for word in _TOKENS.split(line) if word]
    if not words:
        return []
    word = words[-1] if "/" in words[-1] else words[0]
    return [path.replace("\\", "/").lstrip("/") for path in dict.fromkeys([line, word])]


def _list_cells(row: str) -> list[str]:
    """Lists the possible image paths in a table row: cells with image extensions."""
    return [word.lstrip("/") for word in _TOKENS.split(row) if has_image_name(word)]


def _is_file(path: str, extensions: Sequence[str]) -> bool:
    with contextlib.suppress(OSError, ValueError):
        return any(storage.find(path + extension) for extension in extensions)
    return False
