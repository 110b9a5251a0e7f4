"""Reads the label, split and group of an image from its path: the second half of MatchImages."""

import bisect
import dataclasses
import functools
import hashlib
import itertools
from collections.abc import Collection, Mapping
from fractions import Fraction
from typing import NamedTuple

from beam_tfr import storage
from beam_tfr.inputs.patterns import ARCHIVE
from beam_tfr.layouts.parsing import SPLIT_RULE, Layout, is_split_name
from beam_tfr.layouts.split_names import DEFAULT_SPLIT, split_around, splits_of_file
from beam_tfr.schema.dataset import MOST_CLASS_LETTERS, NO_SPLIT, is_class_name
from beam_tfr.schema.encoded_ref import open_split
from beam_tfr.schema.items import ImageRef
from beam_tfr.schema.spelling import spell_option
from beam_tfr.schema.value_places import SHARES, ValuePlaces

LABEL_RULE = (
    "it must be one line of UTF-8 text, without control characters or spaces at either end, of at "
    f"most {MOST_CLASS_LETTERS:,} letters"
)
_BACKSLASH = "has a backslash, which separates folders on Windows only"
_is_class_name = functools.lru_cache(is_class_name)  # images of the same class follow each other


class _PathValues(NamedTuple):
    """The split and labels of an image, read from its path, or why the path cannot be used."""

    split: str
    labels: tuple[str, ...] = ()
    reason: str = ""
    detail: str = ""


@dataclasses.dataclass(frozen=True)
class Labeler:
    """The rules that assign a split and label to a listed image.

    Attributes:
        layout: how to find labels, splits and groups in keys.
        splits: split -> fraction, if the layout names no split; None puts all images into train.
        classes: the allowed classes, or None for any.
        stratify: whether `transforms.splitting` chooses the splits later.
    """

    layout: Layout
    splits: Mapping[str, Fraction] | None = None
    classes: frozenset[str] | None = None
    stratify: bool = False

    def label(self, entry: storage.Entry, key: str) -> ImageRef:
        """Returns the reference to an image, or to a damaged archive that stands for its images.

        If the image or archive cannot be used, the reference contains the reason for the reject.
        """
        if entry.problem and ARCHIVE.search(entry.path):
            return ImageRef(
                key,
                entry.size_bytes,
                entry.generation,
                NO_SPLIT,
                reason="unusable-file",
                detail=entry.problem,
            )
        values = self._read_key(key)
        reason = values.reason
        detail = values.detail
        if entry.problem and not reason:
            reason = "unusable-file"
            detail = entry.problem
        return ImageRef(
            key,
            entry.size_bytes,
            entry.generation,
            values.split,
            values.labels,
            reason=reason,
            detail=detail,
            crc32c=entry.crc32c,
            place=entry.place,
        )

    @property
    def places(self) -> ValuePlaces:
        """Where classes and splits come from."""
        split = self.layout.place_of("split")
        if not split and (self.splits or self.stratify):
            split = SHARES
        return ValuePlaces(self.layout.place_of("label"), split)

    @property
    def all_splits(self) -> Collection[str]:
        """The splits that images go to if the layout names none."""
        return self.splits or (DEFAULT_SPLIT,)

    def describe_root(self, root: str) -> str:
        """Returns a message if the folder of all images is named like a split; otherwise "".

        Args:
            root: the folder that keys are relative to, with a trailing slash.
        """
        if self.splits or "{split}" in str(self.layout):
            return ""
        split = split_around(root)
        if not split or split.startswith(DEFAULT_SPLIT):
            return ""
        return (
            f"all images are in {root}, and go to {DEFAULT_SPLIT}: "
            f"{spell_option('splits', f'{split}=1')} puts them into {split}"
        )

    def describe_list(self, input_list: str | None) -> str:
        """Returns a message if a list of images is named like a split; otherwise ""."""
        if not input_list or self.splits or "{split}" in str(self.layout):
            return ""
        splits = splits_of_file(input_list.rpartition("/")[2])
        if len(splits) != 1 or DEFAULT_SPLIT in splits:
            return ""
        split = min(splits)
        return (
            f"the images listed in {input_list} go to {DEFAULT_SPLIT}: "
            f"{spell_option('splits', f'{split}=1')} puts them into {split}"
        )

    def _read_key(self, key: str) -> _PathValues:
        values = self.layout.parse_key(key)
        if values is None:
            return self._mismatch(key)
        if self.layout.may_hide_folders(key):
            return _unusable(f"{_BACKSLASH}: its split or class would be wrong")
        if "split" in values:
            split = values["split"]
            if not is_split_name(split):
                return _unusable(f"{split!r} cannot be a split: {SPLIT_RULE}")
        elif self.stratify:
            split = open_split(values.get("group", ""))
        elif self.splits:
            split = choose_split(values.get("group", key), self.splits)
        else:
            split = DEFAULT_SPLIT
        if "label" not in values:
            return _PathValues(split)
        label = values["label"]
        if not _is_class_name(label):
            return _unusable(f"{label!r:.1000} cannot be a class: {LABEL_RULE}")
        if self.classes is not None and label not in self.classes:
            return _PathValues(split, (label,), "unknown-class", _describe_unknown(label))
        return _PathValues(split, (label,))

    def _mismatch(self, key: str) -> _PathValues:
        layout = str(self.layout)
        problem = f"does not match {layout}"
        if key.count("/") < layout.count("/"):
            problem = f"has fewer parts than {layout}"
        if "\\" in key:
            problem = f"{_BACKSLASH}, and {problem}"
        return _unusable(problem)


def _describe_unknown(label: str) -> str:
    """Says why a class is not allowed, and what to do if it is a number."""
    detail = f"class {label!r} is not in the file of --classes"
    if label.isdecimal():
        detail += (
            "; if it is the number of a class there, write that file as JSON with all numbers: "
            '{"0": "cat", "1": "dog"}'
        )
    return detail


def _unusable(detail: str) -> _PathValues:
    return _PathValues(NO_SPLIT, reason="layout-mismatch", detail=detail)


def choose_split(text: str, splits: Mapping[str, Fraction]) -> str:
    """Chooses the split of a key or group by the SHA-256 of the string.

    The hash is a point in the unit interval, which is divided into the fractions of the splits. So
    the same key always goes to the same split, regardless of the rest of the dataset and of the
    seed. If the last fraction grows, the split before it is the only one that loses images.
    """
    digest = hashlib.sha256(b"beam_tfr split\0" + text.encode("utf-8", "surrogateescape")).digest()
    point = Fraction(int.from_bytes(digest[:8], "big"), 1 << 64)
    names = list(splits)
    ends = list(itertools.accumulate(splits.values()))
    return names[min(bisect.bisect_right(ends, point), len(names) - 1)]
