"""Finds lists of the images of splits, which nothing reads, beside images and tables.

Such as Food-101's `meta/train.txt`, whose lines are `apple_pie/1005649`, `train_test_split.txt` of
CUB-200-2011, whose lines are numbers, and `TrainImages.txt` of MIT Indoor67.
"""

import contextlib
import itertools
import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence

from beam_tfr import storage
from beam_tfr.layouts.split_names import DEFAULT_SPLIT, is_split_word, seeming_split, splits_of_file
from beam_tfr.schema.differences import join_texts
from beam_tfr.schema.extensions import FORMAT_OF

# In which lists are looked for, below a folder; on gs://, only in the first few.
_FOLDERS = (
    *("", "meta", "splits", "ImageSets/Main", "annotations"),
    *("split", "lists", "list", "ImageSets", "ImageSplits", "labels", "data", "partitions"),
    *("Partitions", "Eval", "Anno"),
)
_MOST_REMOTE = 5
_EXTENSIONS = (".txt", ".lst", ".list", ".json", ".mat")
_MOST_FILES = 10_000  # of a folder
_MOST_READ = 10  # of a folder, that are named like lists
_MOST_LISTS = 4  # that a message names
_BEGIN_BYTES = 64 << 10  # of a list that are looked at
_MOST_LINES = 1_000
_ENOUGH_LINES = 3  # that name an image
_DIVISION = re.compile("split|partition|setid", re.IGNORECASE)
_IMAGE = re.compile(rf"\.(?i:{'|'.join(FORMAT_OF)})\Z")
_TOKENS = re.compile(r"""[\s,;"']+""")
_JSON_ITEMS = re.compile(r"[\n,\[\]{}]+")
_ANNOTATIONS = re.compile(r'"(?:images|annotations|shapes)"\s*:')  # which are told otherwise
# Behind the name or number of an image: its split, or whether it is in train.
_SPLIT_OF_LINE = re.compile(r"(?i)\S+[\s,;]+(?:[0-3]|train(?:ing)?|val(?:idation)?|test(?:ing)?)")


def describe_split_lists(folders: Iterable[str], stems: Collection[str]) -> str:
    """The message about lists of the images of splits; empty if there are none.

    Args:
        folders: of images, and of tables; lists are looked for in these, in those around them,
            and in folders in all of these that have the usual names.
        stems: names of some images, without their extensions; none if they are unknown.
    """
    own_folders = [folder.rstrip("/") for folder in folders]
    all_folders = dict.fromkeys([*own_folders, *map(os.path.dirname, own_folders)])
    searched = [folder for folder in all_folders if folder.removeprefix("gs:")]
    candidates = itertools.chain.from_iterable(map(_list_candidates, searched))
    lists = [path for path in dict.fromkeys(candidates) if _lists_images(path, stems)]
    if not lists:
        return ""
    shown = join_texts(sorted(lists), most=_MOST_LISTS, separator=", ")
    return (
        f"files that seem to say which images are in which split are not read, so all go to "
        f"{DEFAULT_SPLIT}: {shown}; write the split of each image into a column `split` of a "
        "`table=`, or give `splits=train=1` if there is only one"
    )


def _list_candidates(folder: str) -> Iterator[str]:
    """Yields the paths in and below a folder that are named like lists of splits."""
    for name in _FOLDERS[: _MOST_REMOTE if storage.is_remote(folder) else None]:
        with contextlib.suppress(OSError):
            listed = storage.walk(storage.join(folder, name).rstrip("/"), _enter_none, deep=False)
            paths = [entry.path for entry in itertools.islice(listed, _MOST_FILES)]
            yield from sorted(filter(_is_named_so, paths))[:_MOST_READ]


def _enter_none(path: str) -> bool:
    return False


def _is_named_so(path: str) -> bool:
    """Whether a file is named like a list of the images of a split, or of all splits."""
    stem, extension = os.path.splitext(path.rpartition("/")[2])
    if extension.lower() not in _EXTENSIONS:
        return False
    return bool(splits_of_file(stem) or seeming_split(stem) or _DIVISION.search(stem))


def _lists_images(path: str, stems: Collection[str]) -> bool:
    """Whether a file that is named like a list of splits names images."""
    stem, extension = os.path.splitext(path.rpartition("/")[2])
    if extension.lower() == ".mat":
        return True  # which nothing here reads
    with contextlib.suppress(OSError):
        begin = storage.read_part(path, 0, _BEGIN_BYTES).decode("utf-8-sig", "replace")
        if extension.lower() == ".json":
            items = [] if _ANNOTATIONS.search(begin) else _JSON_ITEMS.split(begin)
        else:
            items = begin.splitlines()
        lines = [item.strip() for item in items[:_MOST_LINES] if item.strip()]
        if _DIVISION.search(stem) and lines and all(map(_SPLIT_OF_LINE.fullmatch, lines[1:-1])):
            return True
        if not stems and is_split_word(stem):
            return bool(lines)
        return _name_images(lines, stems)
    return False


def _name_images(lines: Sequence[str], stems: Collection[str]) -> bool:
    """Whether some lines name images: with an extension, or as those that are known."""
    enough = min(_ENOUGH_LINES, -(-len(lines) // 2))
    naming = (line for line in lines if _names_image(line, stems))
    return enough > 0 and sum(1 for _ in itertools.islice(naming, enough)) == enough


def _names_image(line: str, stems: Collection[str]) -> bool:
    """Whether a line, or the first word in it, names an image."""
    words = [word for word in _TOKENS.split(line) if word]
    for text in (line, *words[:1]):
        name = text.replace("\\", "/").rpartition("/")[2]
        if _IMAGE.search(name) or name in stems:
            return True
    return False
