"""The second half of MatchImages: what the path of an image says of its label, split and group."""

from __future__ import annotations

import bisect
import dataclasses
import hashlib
import itertools
from collections.abc import Mapping, Sequence
from fractions import Fraction

from beam_tfr import storage
from beam_tfr.naming import NAME
from beam_tfr.schema import NO_SPLIT, ImageRef, UsageError, is_class_name

PARTS = ("{label}", "{split}", "{group}", "*")
DEFAULT_SPLIT = "train"
MAX_CLASSES_BYTES = 64 << 20  # 64 MiB
LABEL_RULE = "it must be UTF-8 text in one line, without control characters or spaces at its ends"


@dataclasses.dataclass(frozen=True)
class Layout:
    """How the last parts of a key are read; made by `parse_layout`."""

    parts: tuple[str, ...]

    @property
    def has_labels(self) -> bool:
        return "{label}" in self.parts

    def read(self, key: str) -> dict[str, str] | None:
        """{"label": …, "split": …, "group": …} as far as the layout has them, or None for a key that is too short."""
        parts = key.split("/")
        if len(parts) < len(self.parts):
            return None
        last = parts[len(parts) - len(self.parts) :]
        return {name[1:-1]: part for name, part in zip(self.parts, last, strict=True) if name != "*"}


def parse_layout(text: str) -> Layout:
    """
    Raises:
        UsageError: a part that is not known, one that stands twice, or a last part that is not `*`.
    """
    parts = tuple(text.strip("/").split("/"))
    example = "such as {label}/* or {split}/{label}/*"
    for part in parts:
        if part not in PARTS:
            raise UsageError(
                f"--layout {text}: {part!r} is not one of {', '.join(PARTS)}; write parts with / between, {example}"
            )
        if part != "*" and parts.count(part) > 1:
            raise UsageError(f"--layout {text}: {part} stands in it twice")
    if parts[-1] != "*":
        raise UsageError(f"--layout {text}: the last part is the file and must be *, {example}")
    return Layout(parts)


def read_classes(path: str) -> tuple[str, ...]:
    """The class names of a file, one a line, in order.

    Raises:
        UsageError: it cannot be read, is not UTF-8, or has no, empty or repeated lines.
    """
    flag = f"--classes {path}"
    try:
        data = storage.read_bytes(storage.check_path(path, option="classes"), max_bytes=MAX_CLASSES_BYTES)
        text = data.decode("utf-8-sig")
    except OSError as error:
        raise UsageError(f"{flag}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{flag}: is not UTF-8 text: {error.reason} at byte {error.start}") from error
    if len(data) > MAX_CLASSES_BYTES:
        raise UsageError(f"{flag}: has more than {MAX_CLASSES_BYTES} bytes; name a file with one class per line")
    names = tuple(line.strip() for line in text.removesuffix("\n").split("\n"))
    seen: dict[str, int] = {}
    for number, name in enumerate(names, start=1):
        if not name:
            raise UsageError(f"{flag}: line {number} is empty; write one class per line")
        if not is_class_name(name):
            raise UsageError(f"{flag}: line {number}, {name!r}, cannot be a class: {LABEL_RULE}")
        if name in seen:
            raise UsageError(
                f"{flag}: class {name!r} stands in line {seen[name]} and again in line {number}; remove one"
            )
        seen[name] = number
    return names


@dataclasses.dataclass(frozen=True)
class Labeler:
    """Gives a listed image its split and label.

    Attributes:
        layout: how keys are read.
        splits: shares by a stable hash, when the layout names no split; None puts all into train.
        classes: the only ones allowed, or None.
    """

    layout: Layout
    splits: Mapping[str, Fraction] | None = None
    classes: frozenset[str] | None = None

    def label(self, entry: storage.Entry, key: str) -> ImageRef:
        """The reference of an image; one that has no place carries the reason of its reject."""
        ref = ImageRef(key, entry.size_bytes, entry.generation, NO_SPLIT)
        found = self.layout.read(key)
        if found is None:
            wanted = "/".join(self.layout.parts)
            return ref._replace(reason="layout-mismatch", detail=f"has fewer parts than {wanted}")
        if "split" in found:
            split = found["split"]
            if not NAME.fullmatch(split) or split == NO_SPLIT:
                detail = f"{split!r} cannot be a split: letters, digits and _ only, and not {NO_SPLIT}"
                return ref._replace(reason="layout-mismatch", detail=detail)
        else:
            split = choose_split(found.get("group", key), self.splits) if self.splits else DEFAULT_SPLIT
        label = found.get("label", "")
        if self.layout.has_labels and not is_class_name(label):
            detail = f"{label!r} cannot be a class: {LABEL_RULE}"
            return ref._replace(reason="layout-mismatch", detail=detail)
        ref = ref._replace(split=split, labels=(label,) if self.layout.has_labels else ())
        if self.classes is not None and self.layout.has_labels and label not in self.classes:
            return ref._replace(reason="unknown-class", detail=f"class {label!r} is not in the file of --classes")
        return ref


def choose_split(text: str, splits: Mapping[str, Fraction]) -> str:
    """The split of a key or group: its place on the unit interval by SHA-256, cut by the shares in their order.

    The same text always falls into the same split, whatever else is in the dataset and whatever the seed; a share that
    grows at the end takes only from its neighbour.
    """
    digest = hashlib.sha256(b"beam_tfr split\0" + text.encode("utf-8", "surrogateescape")).digest()
    place = Fraction(int.from_bytes(digest[:8], "big"), 1 << 64)
    names: Sequence[str] = list(splits)
    ends = list(itertools.accumulate(splits.values()))
    return names[min(bisect.bisect_right(ends, place), len(names) - 1)]
