"""Finds images that are named like masks of those beside them: 1_mask.png or 1.png by 1.jpg."""

import collections
import re
from collections.abc import Sequence
from typing import NamedTuple

from beam_tfr.console.terminal import counted
from beam_tfr.schema.extensions import EXTENSIONS

_MASKS = (
    "masks?|segm?s?|segmentations?|labels?|labelids|gt|ground_?truth|anno(?:tation)?s?|trimap"
    "|manual|[12](?:st|nd)ho|gt(?:fine|coarse)_(?:labelids|labeltrainids|instanceids|color)"
)
_OTHERS = "alpha|matte|depth|disp|disparity|normals?"
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
)  # one of which all have
_OTHER_PARTS = ("alpha", "matte", "depth", "disp", "normal")
_BEHIND = re.compile(rf"(?is)(?P<stem>.*[^/])(?P<mark>[-_. ]{_WORDS}(?:[-_]?[0-9]+)?)")
_JPEGS = EXTENSIONS["jpeg"]
# What an image may have where its mask has a mark: 1_sat.jpg beside 1_mask.png.
_IMAGE_END = re.compile(r"(?s)(?P<stem>.*[^/])(?P<end>[-_. ][A-Za-z][A-Za-z0-9]*)")
_BEFORE = re.compile(rf"(?is)(?P<folder>(?:.*/)?)(?P<mark>{_WORDS}[-_. ])(?P<name>[^/]+)")


class _Marked(NamedTuple):
    """A file that is named like the mask of another.

    Attributes:
        path: of the file.
        stem: the path of the other, without its extension.
        name: of the option's pair.
        mask: the path that the option names, in which {} stands for the image.
    """

    path: str
    stem: str
    name: str
    mask: str

    def name_pair(self, image: str) -> str:
        """The option that makes it the mask of an image."""
        end = image.rpartition(".")[0].removeprefix(self.stem)
        field = "path" if self.mask.startswith("{}") else "stem"
        removed = f"%{end}" if end else ""
        return f"{self.name}='{self.mask.replace('{}', f'{{{field}{removed}}}')}'"


class MaskNames:
    """Counts files that are named like masks of those beside them.

    These are names such as 1_mask.png, and 1.png beside 1.jpg.

    Attributes:
        number: how many.
    """

    def __init__(self) -> None:
        self.number = 0
        self._example = ("", "")  # the first mask, and its image
        self._pair = ""

    def look_at(self, keys: Sequence[str]) -> None:
        """Looks at some files; a mask counts if its image is among them."""
        text = "\n".join(keys).lower()
        if any(part in text for part in (*_PARTS, *_OTHER_PARTS)):  # as of few files
            self._look_at_marks(keys)
        if ".png" in text and ".jp" in text:
            self._look_at_extensions(keys)

    def _look_at_marks(self, keys: Sequence[str]) -> None:
        """Looks for names such as 1_mask.png."""
        marked = [*filter(None, map(_read_mark, keys))]
        if not marked:
            return
        image_of = {key.rpartition(".")[0]: key for key in keys}
        if any(mask.stem not in image_of for mask in marked):
            image_of = _list_shortened(keys) | image_of
        for mask in marked:
            image = image_of.get(mask.stem)
            if image is not None:
                self._add(mask.path, image, mask.name_pair(image))

    def _look_at_extensions(self, keys: Sequence[str]) -> None:
        """Looks for PNGs of the same names as JPEGs."""
        image_of = dict[str, str]()
        for key in keys:
            stem, _, extension = key.rpartition(".")
            if extension.lower() in _JPEGS:
                image_of[stem] = key
        for key in keys:
            stem, _, extension = key.rpartition(".")
            if extension.lower() == "png" and stem in image_of:
                self._add(key, image_of[stem], f"mask='{{path}}.{extension}'")

    def _add(self, mask: str, image: str, pair: str) -> None:
        """Counts a mask.

        Args:
            mask, image: their paths.
            pair: the option that puts the mask into the record of the image.
        """
        self.number += 1
        if not self._pair or (mask, image) < self._example:
            self._example = (mask, image)
            self._pair = pair

    def describe(self, *, in_archives: bool) -> str:
        """A message about them; empty if there are none.

        Args:
            in_archives: whether some may be in archives, where only images are found.
        """
        if not self.number:
            return ""
        mask, image = self._example
        files = counted(self.number, "file")
        return (
            f"{files} named like masks of those beside them, such as {mask} beside {image}, are "
            f"converted as images: `pair={self._pair}` puts each into the record of its image"
            f"{', once archives are unpacked' if in_archives else ''}"
        )


def _list_shortened(keys: Sequence[str]) -> dict[str, str]:
    """The path before the last word of a name -> the image, if several images have that word."""
    images = dict[str, re.Match[str]]()
    for key in keys:
        image = _IMAGE_END.fullmatch(key.rpartition(".")[0])
        if image and not _read_mark(key):
            images[key] = image
    ends = collections.Counter(image["end"] for image in images.values())
    return {image["stem"]: key for key, image in images.items() if ends[image["end"]] > 1}


def _read_mark(key: str) -> _Marked | None:
    """What the name of a file says; None if it is not like that of a mask."""
    path, _, extension = key.rpartition(".")
    behind = _BEHIND.fullmatch(path)
    if behind:
        name = _name_pair(behind["other"])
        return _Marked(key, behind["stem"], name, f"{{}}{behind['mark']}.{extension}")
    before = _BEFORE.fullmatch(path)
    if before:
        name = _name_pair(before["other"])
        stem = f"{before['folder']}{before['name']}"
        return _Marked(key, stem, name, f"{before['folder']}{before['mark']}{{}}.{extension}")
    return None


def _name_pair(other: str | None) -> str:
    """The name of the option's pair: a mask, unless a word says that it is something else."""
    return other.lower() if other else "mask"
