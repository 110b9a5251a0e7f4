"""Finds images that are named like masks of those beside them: 1_mask.png beside 1.jpg."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from beam_tfr.console.terminal import counted

_MASKS = "masks?|segm?s?|segmentations?|labels?|labelids|gt|ground_?truth|anno(?:tation)?s?|trimap"
_OTHERS = "alpha|matte|depth|disp|disparity|normals?"
_WORDS = rf"(?:{_MASKS}|(?P<other>{_OTHERS}))"
_PARTS = ("mask", "seg", "label", "gt", "truth", "anno", "trimap")  # one of which all have
_OTHER_PARTS = ("alpha", "matte", "depth", "disp", "normal")
_BEHIND = re.compile(rf"(?is)(?P<stem>.*[^/])(?P<mark>[-_. ]{_WORDS}(?:[-_]?[0-9]+)?)")
_BEFORE = re.compile(rf"(?is)(?P<folder>(?:.*/)?)(?P<mark>{_WORDS}[-_. ])(?P<name>[^/]+)")


class _Marked(NamedTuple):
    """A file that is named like the mask of another.

    Attributes:
        path: of the file.
        stem: the path of the other, without its extension.
        pair: the option that makes it a mask.
    """

    path: str
    stem: str
    pair: str


class MaskNames:
    """Counts files that are named like masks of those beside them.

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
        if not any(part in text for part in (*_PARTS, *_OTHER_PARTS)):
            return  # as of most files, in a tenth of the time
        marked = [*filter(None, map(_read_mark, keys))]
        if not marked:
            return
        image_of = {key.rpartition(".")[0]: key for key in keys}
        for mask in marked:
            image = image_of.get(mask.stem)
            if image is None:
                continue
            self.number += 1
            example = (mask.path, image)
            if not self._pair or example < self._example:
                self._example = example
                self._pair = mask.pair

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


def _read_mark(key: str) -> _Marked | None:
    """What the name of a file says; None if it is not like that of a mask."""
    path, _, extension = key.rpartition(".")
    behind = _BEHIND.fullmatch(path)
    if behind:
        name = _name_pair(behind["other"])
        pair = f"{name}='{{path}}{behind['mark']}.{extension}'"
        return _Marked(key, behind["stem"], pair)
    before = _BEFORE.fullmatch(path)
    if before:
        name = _name_pair(before["other"])
        pair = f"{name}='{before['folder']}{before['mark']}{{stem}}.{extension}'"
        return _Marked(key, f"{before['folder']}{before['name']}", pair)
    return None


def _name_pair(other: str | None) -> str:
    """The name of the option's pair: a mask, unless a word says that it is something else."""
    return other.lower() if other else "mask"
