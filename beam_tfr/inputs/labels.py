"""MatchImages, second half: reads the label, split and group of an image from its path."""

import bisect
import dataclasses
import functools
import hashlib
import itertools
from collections.abc import Mapping, Sequence
from fractions import Fraction

from beam_tfr import storage
from beam_tfr.inputs.patterns import read_lines
from beam_tfr.layouts.parsing import SPLIT_RULE, Layout, is_split_name
from beam_tfr.schema.dataset import NO_SPLIT, is_class_name
from beam_tfr.schema.errors import UsageError
from beam_tfr.schema.items import ImageRef
from beam_tfr.schema.naming import find_two_spellings

DEFAULT_SPLIT = "train"
LABEL_RULE = "it must be one line of UTF-8 text, without control characters or spaces at either end"
_is_class_name = functools.lru_cache(is_class_name)  # images of a class follow each other


def read_classes(path: str) -> tuple[str, ...]:
    """Reads the class names of a file, one per line, in order.

    Raises:
        UsageError: the file cannot be read, is not UTF-8, or has empty or repeated lines.
    """
    names: dict[str, int] = {}  # name -> line
    fail = functools.partial(UsageError, option="classes", value=path)
    for number, line in enumerate(
        read_lines(path, option="classes", needs="one class per line, or a dataset"), 1
    ):
        name = line.strip()
        if not is_class_name(name):
            raise fail(f"line {number}, {name!r}, cannot be a class: {LABEL_RULE}")
        if name in names:
            raise fail(
                f"class {name!r} is on line {names[name]} and again on line {number}; remove one"
            )
        names[name] = number
    pair = find_two_spellings(names)
    if pair:
        lines = " and ".join(map(str, sorted(names[name] for name in pair)))
        raise fail(
            f"lines {lines} are the same name in two Unicode spellings, {pair[0]!a} and {pair[1]!a}; remove one"
        )
    return tuple(names)


@dataclasses.dataclass(frozen=True)
class Labeler:
    """Assigns split and label to a listed image.

    Attributes:
        layout: how to read keys.
        splits: split -> share, if the layout names no split; None puts all images into train.
        classes: the allowed classes, or None for any.
    """

    layout: Layout
    splits: Mapping[str, Fraction] | None = None
    classes: frozenset[str] | None = None

    def label(self, entry: storage.Entry, key: str) -> ImageRef:
        """Returns the reference of an image; one that cannot be used carries the reason of its
        reject."""
        ref = functools.partial(ImageRef, key, *entry[1:3], crc32c=entry.crc32c, place=entry.place)
        if entry.problem:
            ref = functools.partial(ref, reason="unusable-file", detail=entry.problem)
        found = self.layout.read(key)
        if found is None:
            wanted = "/".join(self.layout.parts)
            short = key.count("/") + 1 < len(self.layout.parts)
            detail = f"{'has fewer parts than' if short else 'does not match'} {wanted}"
            return ref(NO_SPLIT, reason="layout-mismatch", detail=detail)
        split = found.get("split")
        if split is None:
            split = (
                choose_split(found.get("group", key), self.splits) if self.splits else DEFAULT_SPLIT
            )
        elif not is_split_name(split):
            return ref(
                NO_SPLIT,
                reason="layout-mismatch",
                detail=f"{split!r} cannot be a split: {SPLIT_RULE}",
            )
        label = found.get("label")
        if label is None:
            return ref(split)
        if not _is_class_name(label):
            return ref(
                NO_SPLIT,
                reason="layout-mismatch",
                detail=f"{label!r} cannot be a class: {LABEL_RULE}",
            )
        if self.classes is not None and label not in self.classes:
            detail = f"class {label!r} is not in the file of --classes"
            return ref(split, (label,), reason="unknown-class", detail=detail)
        return ref(split, (label,))


def choose_split(text: str, splits: Mapping[str, Fraction]) -> str:
    """Chooses the split of a key or group by its SHA-256, which places it on the unit interval that
    the shares divide.

    The same text always goes to the same split, regardless of the rest of the dataset and of the
    seed. If the last share grows, it takes only from the one before it.
    """
    digest = hashlib.sha256(b"beam_tfr split\0" + text.encode("utf-8", "surrogateescape")).digest()
    place = Fraction(int.from_bytes(digest[:8], "big"), 1 << 64)
    names: Sequence[str] = list(splits)
    ends = list(itertools.accumulate(splits.values()))
    return names[min(bisect.bisect_right(ends, place), len(names) - 1)]
