"""Finds images that are named like masks of other images: 1_mask.png or 1.png next to 1.jpg."""

import collections
import re
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from beam_tfr.console.terminal import counted
from beam_tfr.schema.extensions import EXTENSIONS
from beam_tfr.schema.spelling import spell_option

_MASKS = (
    "masks?|segm?s?|segmentations?|labels?|labelids|gt|ground_?truth|anno(?:tation)?s?|trimap"
    "|manual|[12](?:st|nd)ho|gt(?:fine|coarse)_(?:labelids|labeltrainids|instanceids|color)"
)
_OTHERS = "alpha|matte|depth|disp|disparity|normals?|parts?"
_WORDS = rf"(?:{_MASKS}|(?P<other>{_OTHERS}))"
_PARTS = (
    "mask",
    "seg",
    "label",
    "gt",
    "truth",
    "anno",
    "trimap",
    "manual",
    "ho.",
)  # every such name contains one of these words
_OTHER_PARTS = ("alpha", "matte", "depth", "disp", "normal", "part")
_BEHIND = re.compile(rf"(?is)(?P<stem>.*[^/])(?P<mark>[-_. ]{_WORDS}(?:[-_]?[0-9]+)?)")
_MOST_GROUPS = 100  # different ways of naming masks
_MOST_PATTERNS = 5  # patterns in a message
_JPEGS = EXTENSIONS["jpeg"]
# An image name whose last word differs from that of its mask: 1_sat.jpg for 1_mask.png.
_IMAGE_END = re.compile(r"(?s)(?P<stem>.*[^/])(?P<end>[-_. ][A-Za-z][A-Za-z0-9]*)")
_BEFORE = re.compile(rf"(?is)(?P<folder>(?:.*/)?)(?P<mark>{_WORDS}[-_. ])(?P<name>[^/]+)")


class _Marked(NamedTuple):
    """A file that is named like the mask of another file.

    Attributes:
        path: path of the file.
        stem: path of the other file, without its extension.
        name: name of the pair in `pair=`.
        mask: path of the mask in `pair=`; {} stands for the image.
        files: pattern for the names of all such files.
    """

    path: str
    stem: str
    name: str
    mask: str
    files: str

    def name_pair(self, image: str) -> str:
        """Returns the value of `pair=` that makes this file the mask of an image."""
        end = image.rpartition(".")[0].removeprefix(self.stem)
        field = "path" if self.mask.startswith("{}") else "stem"
        removed = f"%{end}" if end else ""
        return f"{self.name}={self.mask.replace('{}', f'{{{field}{removed}}}')}"


class _MaskGroup:
    """Masks that are all named in the same way after their images.

    Attributes:
        number: number of masks.
        mask, image: paths of the first mask and its image.
        pair: the value of `pair=` that puts each mask into the record of its image.
        files: pattern for the names of the masks.
    """

    def __init__(self, files: str) -> None:
        self.number = 0
        self.mask = ""
        self.image = ""
        self.pair = ""
        self.files = files

    def add(self, mask: str, image: str, pair: str) -> None:
        self.number += 1
        if not self.mask or (mask, image) < (self.mask, self.image):
            self.mask = mask
            self.image = image
            self.pair = pair


def _rank_group(group: _MaskGroup) -> tuple[int, bool, str]:
    """Returns the sort key of a group: large groups come first, and masks before other pairs."""
    return -group.number, not group.pair.startswith("mask="), group.mask


class MaskNames:
    """Counts files that are named like masks of files next to them, such as 1_mask.png.

    1.png next to 1.jpg counts as well.

    Attributes:
        number: number of masks.
        num_further: number of masks beyond the first of each image.
    """

    def __init__(self) -> None:
        self.number = 0
        self.num_further = 0
        self._group_of = dict[str, _MaskGroup]()  # pattern of names -> masks

    def look_at(self, keys: Sequence[str]) -> None:
        """Inspects some files; a mask counts if its image is among them."""
        text = "\n".join(keys).lower()
        images = list[str]()
        if any(part in text for part in (*_PARTS, *_OTHER_PARTS)):  # few batches pass
            images += self._look_at_marks(keys)
        if ".png" in text and ".jp" in text:
            images += self._look_at_extensions(keys)
        self.number += len(images)
        self.num_further += len(images) - len({*images})

    def _look_at_marks(self, keys: Sequence[str]) -> Iterator[str]:
        """Yields the images of masks with names such as 1_mask.png."""
        marked = [*filter(None, map(_read_mark, keys))]
        if not marked:
            return
        image_of = {key.rpartition(".")[0]: key for key in keys}
        if any(mask.stem not in image_of for mask in marked):
            image_of = _list_shortened(keys) | image_of
        for mask in marked:
            image = image_of.get(mask.stem)
            if image is not None:
                self._add(mask.files, mask.path, image, mask.name_pair(image))
                yield image

    def _look_at_extensions(self, keys: Sequence[str]) -> Iterator[str]:
        """Yields the JPEGs next to PNGs with the same name."""
        image_of = dict[str, str]()
        for key in keys:
            stem, _, extension = key.rpartition(".")
            if extension.lower() in _JPEGS:
                image_of[stem] = key
        for key in keys:
            stem, _, extension = key.rpartition(".")
            if extension.lower() == "png" and stem in image_of:
                self._add(f"*.{extension}", key, image_of[stem], f"mask={{path}}.{extension}")
                yield image_of[stem]

    def _add(self, files: str, mask: str, image: str, pair: str) -> None:
        """Adds a mask to its group; see `_MaskGroup`."""
        group = self._group_of.get(files)
        if group is None:
            if len(self._group_of) >= _MOST_GROUPS:
                return
            group = self._group_of[files] = _MaskGroup(files)
        group.add(mask, image, pair)

    def describe(self, *, in_archives: bool, given_pairs: Collection[str] = ()) -> str:
        """Returns a message about the masks, or an empty string if there are none.

        Args:
            in_archives: whether some images may be in archives, where no other files are found.
            given_pairs: names of pairs that images already have.
        """
        if not self.number:
            return ""
        groups = sorted(self._group_of.values(), key=_rank_group)
        first = groups[0]
        start = (
            f"files named like masks of others ({self.number:,}), such as {first.mask} for "
            f"{first.image}, are converted as images; "
        )
        name = first.pair.partition("=")[0]
        if name in given_pairs:
            return f"{start}`pair=` accepts one {name} per image: {_cure_further(groups)}"
        unpacked = ", once archives are unpacked" if in_archives else ""
        text = (
            f"{start}{spell_option('pair', first.pair)} puts each into the record of its "
            f"image{unpacked}, and {spell_option('exclude', f'**/{first.files}')} leaves them out"
        )
        if not self.num_further:
            return text
        further = counted(self.num_further, "file")
        return f"{text}; {further} beyond the first of an image: {_cure_further(groups[1:])}"


def _cure_further(groups: Sequence[_MaskGroup]) -> str:
    """Says what to do about additional masks of an image."""
    patterns = [f"**/{group.files}" for group in groups[:_MOST_PATTERNS]]
    return (
        "merge all masks of an image into one file, or leave out the others with "
        f"{spell_option('exclude', *patterns)}"
    )


def _list_shortened(keys: Sequence[str]) -> dict[str, str]:
    """Returns the path without the last word -> the image, for images that share the last word."""
    images = dict[str, re.Match[str]]()
    for key in keys:
        image = _IMAGE_END.fullmatch(key.rpartition(".")[0])
        if image and not _read_mark(key):
            images[key] = image
    ends = collections.Counter(image["end"] for image in images.values())
    return {image["stem"]: key for key, image in images.items() if ends[image["end"]] > 1}


def _read_mark(key: str) -> _Marked | None:
    """Parses a file name that looks like the name of a mask; None for other names."""
    path, _, extension = key.rpartition(".")
    behind = _BEHIND.fullmatch(path)
    if behind:
        name = _name_pair(behind["other"])
        end = f"{behind['mark']}.{extension}"
        return _Marked(key, behind["stem"], name, f"{{}}{end}", f"*{end}")
    before = _BEFORE.fullmatch(path)
    if before:
        name = _name_pair(before["other"])
        stem = f"{before['folder']}{before['name']}"
        start = before["mark"]
        mask = f"{before['folder']}{start}{{}}.{extension}"
        return _Marked(key, stem, name, mask, f"{start}*.{extension}")
    return None


def _name_pair(other: str | None) -> str:
    """Returns the name of the pair in `pair=`: mask, unless the file name has a word for it."""
    return other.lower() if other else "mask"
