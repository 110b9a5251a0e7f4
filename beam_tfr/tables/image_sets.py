"""Splits of Pascal VOC: lists of images, such as `ImageSets/Main/train.txt`.

They are beside the folder of the XML files (`Annotations`). See section 3 of the devkit's
documentation, http://host.robots.ox.ac.uk/pascal/VOC/voc2012/htmldoc/devkit_doc.html.
"""

import functools
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from beam_tfr import storage
from beam_tfr.layouts.split_names import is_split_word
from beam_tfr.schema.errors import UsageError
from beam_tfr.schema.extensions import FORMAT_OF
from beam_tfr.tables.export_splits import read_export_splits
from beam_tfr.tables.shared_images import SeparatedLists, SplitList, separate_lists

UNLISTED = "unlisted"  # the split of images that no list names
_FOLDERS = ("ImageSets/Main", "ImageSets")
_BOTH = "trainval"  # the list of train and val together
_OTHER_OF = {"train": "val", "val": "train"}
_MAX_LIST_BYTES = 64 << 20  # 64 MiB
_MOST_LINES = 2_000_000
_CLASS_FLAGS = ("-1", "0", "1")  # behind names: whether an image shows a class


class ImageSets(NamedTuple):
    """The lists of images beside a folder of annotations.

    Attributes:
        lists: paths of the lists that were read.
        splits: name of an image, without its extension -> its split.
        rest: split of the images of `trainval.txt` that the list of train, or of val, does not
            name; empty if both are there, or none.
        problems: name of an image that two lists name -> what is wrong with it.
        notes: what is said of lists that share images.
    """

    lists: tuple[str, ...] = ()
    splits: Mapping[str, str] = {}
    rest: str = ""
    problems: Mapping[str, str] = {}
    notes: tuple[str, ...] = ()

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
        UsageError: all images of a list are in another one, which has more; or a list is too long.
        OSError: a list cannot be read.
    """
    split_of_list = _find_lists(annotations)
    lists = [SplitList(path, dict.fromkeys(_read_names(path))) for path in split_of_list]
    both = next(filter(_is_of_both, split_of_list), "")
    rest = split_of_list[both] if split_of_list.get(both) in _OTHER_OF else ""
    if rest:
        part = next(path for path, split in split_of_list.items() if split == _OTHER_OF[rest])
        lists = _subtract(lists, both, part)
    separated = _separate(lists)
    splits = dict[str, str]()
    for path, names in zip(split_of_list, separated.images, strict=True):
        splits |= dict.fromkeys(names, split_of_list[path])
    return ImageSets(
        lists=tuple(split_of_list),
        splits=splits,
        rest=rest,
        problems=separated.problems,
        notes=tuple(separated.notes),
    )


def _subtract(lists: Sequence[SplitList], both: str, part: str) -> list[SplitList]:
    """Lists of which one, that of train and val together, loses the images of its part."""
    images_of = {split_list.name: split_list.images for split_list in lists}
    rest = [name for name in images_of[both] if name not in images_of[part]]
    images_of[both] = dict.fromkeys(rest)
    return [SplitList(name, images) for name, images in images_of.items()]


def _separate(lists: Sequence[SplitList]) -> SeparatedLists:
    """Lists of which each image is in one.

    Raises:
        UsageError: all images of a list are in another one, which has more.
    """
    try:
        return separate_lists(lists)
    except ValueError as error:
        cure = ", or `splits=train=1`, which ignores these lists"
        raise UsageError(f"{error}{cure}", option="table", value=lists[0].name) from None


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
    """The lists whose names are words for splits: path -> split.

    That of train and val together is one if there is neither; if one of them is there, the rest of
    it is the other. It is the last one.
    """
    lower_names = {path: name.lower() for path, name in names.items()}
    lists = {path: name for path, name in lower_names.items() if is_split_word(name)}
    split = _split_of_both(lists.values())
    if split:
        lists |= dict.fromkeys(filter(_is_of_both, names), split)
    return lists


def _split_of_both(splits: Collection[str]) -> str:
    """The split of the list of train and val together, given those of the other lists.

    Empty if these have both.
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
    """Whether a list is that of train and val together, by its name."""
    return _stem_of(path).lower() == _BOTH


def _read_names(path: str) -> Iterator[str]:
    """Yields the names of the images in a list.

    Raises:
        UsageError: it is too long.
    """
    data = storage.read_bytes(path, max_bytes=_MAX_LIST_BYTES)
    if len(data) > _MAX_LIST_BYTES or data.count(b"\n") > _MOST_LINES:
        problem = (
            f"has more than {_MAX_LIST_BYTES >> 20} MiB, or {_MOST_LINES:,} lines; "
            "`splits=train=1` ignores such lists"
        )
        raise UsageError(problem, option="table", value=path)
    text = data.decode("utf-8-sig", "surrogateescape")
    lines = [line.strip() for line in text.split("\n")]
    for line in _drop_flags([line for line in lines if line]):
        name = _name_of(line)
        if name:
            yield name


def _drop_flags(lines: Sequence[str]) -> Sequence[str]:
    """The lines of a list without the flags of a class, if all have one: "2008_000002 -1"."""
    names = []
    for line in lines:
        words = line.rsplit(None, 1)
        if len(words) < 2 or words[1] not in _CLASS_FLAGS:
            return lines
        names.append(words[0])
    return names


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
