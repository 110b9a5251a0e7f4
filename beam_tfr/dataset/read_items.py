"""Describes how items were read, so that a summary shows a misunderstood input."""

import collections
import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from beam_tfr.console.terminal import counted, shorten
from beam_tfr.features.base import Stored
from beam_tfr.features.features_dict import FeaturesDict
from beam_tfr.features.instance_masks import InstanceMasks
from beam_tfr.features.points import Points
from beam_tfr.features.scalars import Scalar
from beam_tfr.schema.differences import join_names
from beam_tfr.schema.encoded_ref import to_text
from beam_tfr.schema.feature_names import OBJECT_MASK, SIDES
from beam_tfr.schema.untrusted import quote
from beam_tfr.schema.value_places import ValuePlaces

MOST_ITEMS = 3  # splits with an example
_MOST_VALUES = 3  # values of columns that a line shows
_MOST_NAME = 120  # characters shown of a key, a class or a file
_MOST_VALUE = 40  # characters shown of a value


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReadItem:
    """An item of a dataset as it was read: an example for a summary.

    Attributes:
        key: its key.
        split: its split.
        places: where its class and split were read from.
        classes: class -> how often the item has it, for its boxes.
        boxes: number of its boxes; None in a dataset without boxes.
        parts: column of points or masks of boxes -> number of boxes that have any.
        files: name of a mask or paired image -> its file, which is the key if it is stored with the
            image; empty if the item has none.
        values: column -> its value as text.
    """

    key: str
    split: str
    places: ValuePlaces
    classes: Mapping[str, int]
    boxes: int | None
    parts: Mapping[str, int]
    files: Mapping[str, str]
    values: Mapping[str, str]

    def as_json(self) -> dict[str, Any]:
        """Returns the item as JSON values."""
        return {
            "key": self.key,
            "split": self.split,
            "split_from": self.places.split,
            "classes": dict(self.classes),
            "class_from": self.places.label,
            "boxes": self.boxes,
            "box_parts": dict(self.parts),
            "files": dict(self.files),
            "values": dict(self.values),
        }

    def describe(self) -> str:
        """Describes the item in a line, such as "cat/1.jpg -> train, class cat (folder)"."""
        return f"{_cut(self.key)} -> {', '.join(self._describe_facts())}"

    def _describe_facts(self) -> Iterator[str]:
        yield self.split + _in_brackets(self.places.split)
        if self.boxes is None:
            yield self._describe_classes() + _in_brackets(self.places.label)
        else:
            yield self._describe_boxes()
        for name, number in self.parts.items():
            yield f"{number:,} with {_cut(name)}"
        for name, file in self.files.items():
            yield self._describe_file(name, file)
        for name, value in itertools.islice(self.values.items(), _MOST_VALUES):
            yield f"{_cut(name)} {value}"
        more = len(self.values) - _MOST_VALUES
        if more > 0:
            yield counted(more, "more column")

    def _describe_file(self, name: str, file: str) -> str:
        if file == self.key:
            return name
        return f"{name} {_cut(file)}" if file else f"no {name}"

    def _describe_classes(self) -> str:
        if not self.classes:
            return "no class"
        noun = "class" if len(self.classes) == 1 else "classes"
        return f"{noun} {join_names([*map(_cut, self.classes)])}"

    def _describe_boxes(self) -> str:
        if not self.boxes:
            return "no boxes"
        boxes = counted(self.boxes, "box", "boxes")
        texts = []
        for name, number in self.classes.items():
            texts.append(f"{number:,} {_cut(name)}" if number > 1 else _cut(name))
        return f"{boxes} ({join_names(texts)})" if texts else f"{boxes} without a class"


def build_item(
    stored: Stored,
    *,
    split: str,
    features: FeaturesDict,
    places: ValuePlaces,
    files: Mapping[str, str],
    labels: Sequence[str] | None = None,
) -> ReadItem:
    """Builds the example of a record.

    Args:
        stored: the record.
        split: its split.
        features: the features of the dataset.
        places: where classes and splits were read from.
        files: name of a mask or paired image -> its file; see `ReadItem`.
        labels: the classes of its reference; None if the record has its classes.
    """
    names = features.names
    if labels is None:
        labels = [to_text(text) for text in stored.get(names.text, ())]
    boxes = len(stored.get(SIDES[0], ())) if features.boxes else None
    if boxes is not None and len(labels) != boxes:
        # the record lacks boxes of its reference, and it is not known which
        labels = ()
    values = {}
    for column in sorted(features.columns, key=lambda column: column.name):
        if isinstance(column, Scalar) and not column.per_box and not _is_implied(column.name):
            values[column.name] = _describe_value(stored.get(column.name, ()))
    return ReadItem(
        key=to_text(b"".join(stored.get(names.key, ()))),
        split=split,
        places=places,
        classes=collections.Counter(filter(None, labels)),
        boxes=boxes,
        parts=_count_parts(stored, features),
        files=files,
        values=values,
    )


def _is_implied(column: str) -> bool:
    """Whether annotations have a column, such as image/source_id, without being asked for it."""
    return column.startswith("image/")


def _count_parts(stored: Stored, features: FeaturesDict) -> dict[str, int]:
    """Returns the `parts` of a `ReadItem`."""
    numbers = {}
    for column in features.columns:
        if isinstance(column, Points):
            numbers[column.name] = sum(map(bool, stored.get(column.number_feature, ())))
        elif isinstance(column, InstanceMasks):
            numbers[column.name] = sum(map(bool, stored.get(OBJECT_MASK, ())))
    return {name: number for name, number in numbers.items() if number}


def _describe_value(values: Sequence[Any]) -> str:
    """Describes the values of a column in a few words, such as "'a cat'" or "512 values"."""
    if len(values) != 1:
        return counted(len(values), "value")
    (value,) = values
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, bytes):
        try:
            value = value.decode()
        except UnicodeDecodeError:
            return f"{len(value):,} bytes"
    return shorten(quote(value), _MOST_VALUE)


def _cut(text: str) -> str:
    return shorten(text, _MOST_NAME)


def _in_brackets(place: str) -> str:
    return f" ({_cut(place)})" if place else ""
