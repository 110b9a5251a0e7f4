"""Splits of Pascal VOC: lists of images, such as `ImageSets/Main/train.txt`.

They are beside the folder of the XML files (`Annotations`). See section 3 of the devkit's
documentation, http://host.robots.ox.ac.uk/pascal/VOC/voc2012/htmldoc/devkit_doc.html.
"""

import functools
import os
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from beam_tfr import storage
from beam_tfr.console.terminal import counted
from beam_tfr.layouts.split_names import is_split_word
from beam_tfr.schema.errors import UsageError
from beam_tfr.schema.extensions import FORMAT_OF
from beam_tfr.tables.export_splits import read_export_splits

UNLISTED = "unlisted"  # the split of images that no list names
_FOLDERS = ("ImageSets/Main", "ImageSets")
_BOTH = "trainval"  # the list of train and val together


class ImageSets(NamedTuple):
    """The lists of images beside a folder of annotations.

    Attributes:
        lists: paths of the lists that were read.
        splits: name of an image, without its extension -> its split.
    """

    lists: tuple[str, ...] = ()
    splits: Mapping[str, str] = {}

    def split_of(self, image: str) -> str:
        """The split of an image, given its name without the extension."""
        return self.splits.get(image, UNLISTED)


def name_of_image(annotation: str) -> str:
    """The name by which lists call the image of an XML file."""
    return _name_of(annotation)


@functools.lru_cache(maxsize=16)
def read_image_sets(annotations: str) -> ImageSets:
    """Reads the lists of images beside a folder of annotations.

    Args:
        annotations: the folder, with a trailing slash.

    Raises:
        UsageError: an image is in two lists.
        OSError: a list cannot be read.
    """
    split_of_list = _find_lists(annotations)
    list_of = dict[str, str]()  # image -> the list that names it
    repeated = dict[str, str]()  # image -> another list that does
    for path in split_of_list:
        for image in _read_names(path):
            if list_of.setdefault(image, path) != path:
                repeated.setdefault(image, path)
    if repeated:
        image, path = next(iter(repeated.items()))
        raise UsageError(
            f"{counted(len(repeated), 'image')} in two lists, such as {image}, which {path} names "
            "too; take each out of one, or give `splits=train=1`, which ignores these lists",
            option="table",
            value=list_of[image],
        )
    splits = {image: split_of_list[path] for image, path in list_of.items()}
    return ImageSets(tuple(split_of_list), splits)


def _find_lists(annotations: str) -> dict[str, str]:
    """The lists beside a folder of annotations that are named like splits: path -> split."""
    beside = annotations.rstrip("/").rpartition("/")[0]
    export_splits = read_export_splits(annotations)
    for folder in _FOLDERS:
        files = storage.list_files(storage.join(beside, folder))
        names = {file.path: _stem_of(file.path) for file in files if file.path.endswith(".txt")}
        if export_splits:
            lists = {path: name for path, name in names.items() if name in export_splits}
        else:
            lists = _choose_lists(names)
        if lists:
            return lists
    return {}


def _choose_lists(names: Mapping[str, str]) -> dict[str, str]:
    """The lists whose names are words for splits.

    That of train and val together is one if there is neither.
    """
    lower_names = {path: name.lower() for path, name in names.items()}
    lists = {path: name for path, name in lower_names.items() if is_split_word(name)}
    if {"train", "val"}.isdisjoint(lists.values()):
        lists |= {path: name for path, name in lower_names.items() if name == _BOTH}
    return lists


def _read_names(path: str) -> Iterator[str]:
    """Yields the names of the images in a list."""
    text = storage.read_bytes(path).decode("utf-8-sig", "surrogateescape")
    for line in text.split("\n"):
        name = _name_of(line)
        if name:
            yield name


def _stem_of(path: str) -> str:
    """The name of a list, without its extension."""
    return os.path.splitext(path.rpartition("/")[2])[0]


def _name_of(line: str) -> str:
    """The name of the image in a line of a list: without folder and extensions."""
    name = line.strip().rpartition("/")[2]
    if name.lower().endswith(".xml"):
        name = name[: -len(".xml")]
    stem, extension = os.path.splitext(name)
    return stem if extension[1:].lower() in FORMAT_OF else name
