"""Splits of Pascal VOC: lists of images, such as `ImageSets/Main/train.txt`.

They are beside the folder of the XML files (`Annotations`). See section 3 of the devkit's
documentation, http://host.robots.ox.ac.uk/pascal/VOC/voc2012/htmldoc/devkit_doc.html.
"""

import functools
import os
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from beam_tfr import storage
from beam_tfr.layouts.split_names import is_split_word
from beam_tfr.schema.errors import UsageError
from beam_tfr.schema.extensions import FORMAT_OF

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
    return os.path.splitext(annotation.rpartition("/")[2])[0]


@functools.lru_cache(maxsize=16)
def read_image_sets(annotations: str) -> ImageSets:
    """Reads the lists of images beside a folder of annotations.

    Args:
        annotations: the folder, with a trailing slash.

    Raises:
        UsageError: an image is in two lists.
        OSError: a list cannot be read.
    """
    paths = _find_lists(annotations)
    list_of = dict[str, str]()  # image -> the list that names it
    for path in paths:
        for image in _read_names(path):
            first = list_of.setdefault(image, path)
            if first != path:
                raise UsageError(
                    f"names {image}, as {path} does; take it out of one, or give "
                    "`splits=train=1`, which ignores these lists",
                    option="table",
                    value=first,
                )
    splits = {image: _split_of(path) for image, path in list_of.items()}
    return ImageSets(tuple(paths), splits)


def _find_lists(annotations: str) -> list[str]:
    """The lists beside a folder of annotations whose names are those of splits."""
    beside = annotations.rstrip("/").rpartition("/")[0]
    for folder in _FOLDERS:
        files = storage.list_files(storage.join(beside, folder))
        paths = [file.path for file in files if file.path.endswith(".txt")]
        lists = [path for path in paths if is_split_word(_split_of(path))]
        names = {_split_of(path) for path in lists}
        if not names & {"train", "val"}:
            lists += [path for path in paths if _split_of(path) == _BOTH]
        if lists:
            return sorted(lists)
    return []


def _read_names(path: str) -> Iterator[str]:
    """Yields the names of the images in a list."""
    text = storage.read_bytes(path).decode("utf-8-sig", "surrogateescape")
    for line in text.split("\n"):
        name = _name_of(line)
        if name:
            yield name


def _split_of(path: str) -> str:
    """The split of a list."""
    return os.path.splitext(path.rpartition("/")[2])[0].lower()


def _name_of(line: str) -> str:
    """The name of the image in a line of a list: without folder and extension."""
    name = line.strip().rpartition("/")[2]
    stem, extension = os.path.splitext(name)
    is_extension = extension[1:].lower() in FORMAT_OF or extension.lower() == ".xml"
    return stem if is_extension else name
