"""Defines the base class of all kinds of features: their interface, and its defaults.

A feature is a column of a table, a label, or a companion image, such as a mask. Its kind is a class
that defines how such a feature is declared, how a cell becomes a value, which features of a record
hold the values, how the values follow the pixels of their image, what is counted in them, how
readers return them, and how they are checked and exported. No code outside this package asks which
kind a feature has.

TensorFlow and PyArrow are imported by the methods that need them.
"""

import abc
import contextlib
import dataclasses
import functools
import re
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from beam_tfr.features.cells import split_cell
from beam_tfr.features.elements import ElementSpec, Request, StoredExample
from beam_tfr.features.pixel_parts import PixelPart
from beam_tfr.features.shapes import Shape
from beam_tfr.schema.feature_names import FeatureSpec
from beam_tfr.schema.plan import Counts

Values = dict[str, tuple[str, Sequence[Any]]]  # a record: feature -> (dtype, values)
Stored = Mapping[str, Sequence[Any]]  # a parsed record: feature -> values
Floats = NDArray[np.float64]

# Keys of an exported record, and of its files. A column with such a name gets a _.
EXPORT_KEYS = ("key", "split", "class", "label", "boxes", "masks", "image", "mask", "file_name")


# Ends details about boxes and masks that were drawn on pixels as stored. Images that are mirrored
# or rotated by 180 degrees have the same size either way, so no reject reports them.
IGNORES_ORIENTATION = (
    "EXIF orientation, so those for images mirrored or rotated by 180 degrees are wrong too: "
    "remove it from all images (exiftool -r -Orientation= -overwrite_original FOLDER)"
)


class PixelMap(Protocol):
    """The mapping from the pixels of a source to those of its record.

    Coordinates are continuous: x to the right and y down from the corner of the picture, so the
    first pixel covers 0 to 1. Coordinates of a source refer to the upright image, as viewers show
    it.
    """

    @property
    def source_size(self) -> tuple[int, int]:
        """The (width, height) of the source, upright."""

    @property
    def stored_size(self) -> tuple[int, int]:
        """The (width, height) of the source as stored, regardless of its orientation."""

    @property
    def shown_size(self) -> tuple[int, int]:
        """The `source_size` or the `stored_size`, depending on which pixels the record shows."""

    @property
    def size(self) -> tuple[int, int]:
        """The (width, height) of the record."""

    @property
    def content(self) -> tuple[int, int, int, int]:
        """The part of the record that shows the source: left, top, right, bottom."""

    def map_points(self, points: ArrayLike) -> Floats:
        """Maps [n, 2] points (x, y) of the source to pixels of the record."""

    def map_boxes(self, boxes: ArrayLike) -> tuple[Floats, Floats]:
        """Maps and clips [n, 4] boxes of the source; also returns the visible fraction of each."""

    def turn_pixels(self, pixels: NDArray[Any]) -> NDArray[Any]:
        """Rotates pixels [h, w] of `source_size` to `shown_size`."""

    def map_pixels(self, pixels: NDArray[Any], *, outside: int = 0) -> NDArray[Any]:
        """Maps pixels [h, w] of `shown_size` to the record, without interpolating their values.

        Args:
            pixels: uint8 or uint16.
            outside: the value of pixels where the record does not show the source.
        """

    def map_part(self, part: PixelPart) -> PixelPart:
        """Maps a part of the upright source to the record, like rotated pixels in `map_pixels`."""

    def hold_memory(self, num_bytes: int) -> contextlib.AbstractContextManager[None]:
        """Waits until this many bytes may be used for decoding, and reserves them."""


class TensorReading(Protocol):
    """What `beam_tfr.reader` knows about a batch of images that it decodes."""

    request: Request

    @property
    def views(self) -> Any:
        """The part of each stored image that is returned, as fractions: float32 [images, 4].

        The sides are left, top, right and bottom; if the part is mirrored, right is less than left.
        """

    @property
    def units(self) -> Any:
        """The (width, height) of each image in the unit of its boxes: float32 [images, 2].

        Both are 1 if boxes are given as fractions of the image.
        """

    def decode_pixels(self, pngs: Any) -> Any:
        """Decodes each image's companion to int32 [images, height, width]."""

    def decode_box_pixels(self, pngs: Any) -> Any:
        """Decodes the PNG of each box to uint8 [images, boxes, height, width]."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class FeatureKind(abc.ABC):
    """A feature of a dataset; each subclass is a kind of feature.

    Attributes:
        name: name of its column, or another name for the feature.
        follows_pixels: whether its values depend on where the record shows the pixels of the
            source.
        marks_places: whether its values mark places in an image, which a crop may cut off.
        is_counted: whether there are statistics of its values.
        export_order: the rank of its values in an exported record.
    """

    name: str
    follows_pixels: ClassVar[bool] = False
    marks_places: ClassVar[bool] = False
    is_counted: ClassVar[bool] = False
    export_order: ClassVar[int] = 9

    @property
    @abc.abstractmethod
    def specs(self) -> Mapping[str, FeatureSpec]:
        """The features of a record that hold this feature."""

    @property
    def per_box(self) -> bool:
        """Whether the feature has a value for each box of an image."""
        return False

    @property
    def box_features(self) -> tuple[str, ...]:
        """The features of this kind that have one value for each box."""
        return (*self.specs,) if self.per_box else ()

    @property
    def taken_names(self) -> set[str]:
        """The names of its features in records, and others that readers and records use for it."""
        return {*self.specs}

    @property
    def reserved(self) -> set[str]:
        """The names that no other column can have."""
        return self.taken_names

    @property
    def compared(self) -> tuple[str, ...]:
        """The features that show whether two records have the same values."""
        return (*self.specs,)

    @property
    def content_sizes(self) -> tuple[str, ...]:
        """The features for which the contents hold the size instead of the values."""
        return ()

    def place(self, values: Values, pixels: PixelMap, kept: Sequence[int]) -> Values:
        """Returns the features of a record, given those of its reference.

        Args:
            values: the features of the reference, which describe its source.
            pixels: the mapping from the source to the record.
            kept: the numbers of the boxes that are kept.

        Raises:
            RejectError: `bad-value`: the values do not match the image.
        """
        placed = {feature: values[feature] for feature in self.specs if feature in values}
        if not self.per_box:
            return placed
        return {
            feature: (dtype, [members[number] for number in kept])
            for feature, (dtype, members) in placed.items()
        }

    def count(self, stored: Stored, source: Stored | None) -> Counts:
        """Returns the counts of a record, if `is_counted`.

        Args:
            stored: the record.
            source: the reference of the record, or None if there is none.
        """
        return Counts()

    def statistics(self, counts: Counts) -> dict[str, Any]:
        """Computes the statistics of the manifest from the counts."""
        return {}

    def is_decoded(self, request: Request) -> bool:
        """Whether readers return something other than the stored values of its features."""
        return False

    @property
    def replaced(self) -> tuple[str, ...]:
        """The features that readers do not return when they decode this feature."""
        return (*self.specs,)

    def elements(self, request: Request) -> dict[str, ElementSpec]:
        """Describes what readers return, by key, when they decode the feature."""
        return {}

    def decode(
        self, example: StoredExample, size: tuple[int, int], request: Request
    ) -> dict[str, Any]:
        """Decodes the values of `elements` in a record.

        Args:
            example: the record.
            size: (height, width) of its image.
            request: what the reader requests.

        Raises:
            ValueError: the values do not match the manifest or each other.
        """
        return {}

    def collect_tensors(self, features: MutableMapping[str, Any]) -> dict[str, Any]:
        """Removes this feature's tensors from a batch; returns them by the keys of elements.

        Args:
            features: tensors of the batch, by feature; lists of any length are ragged. For a single
                record without boxes, these are the tensors of that record.
        """
        names = [name for name in self.specs if name in features]
        return {name: features.pop(name) for name in names}

    def decode_tensors(self, tensors: Mapping[str, Any], reading: TensorReading) -> dict[str, Any]:
        """Computes what readers return, by key, instead of the tensors of `collect_tensors`.

        Args:
            tensors: tensors of all features, without invisible boxes and the values of such boxes.
            reading: what is known about the batch.
        """
        return {}

    def filler(self, size: tuple[int, int]) -> dict[str, bytes]:
        """Returns the features that a missing example needs because they cannot be 0 or empty.

        Args:
            size: (height, width) of its image.
        """
        return {}

    def problems(self, stored: Stored, size: tuple[int, int]) -> Iterator[str]:
        """Yields what is wrong with the values of a record.

        Args:
            stored: the record, which has the features of `specs`.
            size: (height, width) of its image.
        """
        yield from ()

    def fits_boxes(self, stored: Stored, number: int) -> bool:
        """Whether a record has values for this many boxes."""
        return all(len(stored[name]) == number for name in self.box_features)

    @classmethod
    def is_drawn(cls, stored: Stored) -> bool:
        """Whether a picture of a record needs space for shapes of this kind.

        Args:
            stored: a record, which any program may have written.
        """
        return False

    @classmethod
    def shapes(cls, stored: Stored) -> Iterator[Shape]:
        """Yields the shapes of this kind that a picture of a record shows.

        Args:
            stored: a record, which any program may have written.

        Raises:
            LookupError, TypeError, ValueError: the values, written by another program, cannot be
                drawn.
        """
        yield from ()

    def export(self, stored: Stored) -> dict[str, Any]:
        """Returns the fields of an exported record: key -> JSON value."""
        return {}

    def arrow_types(self) -> dict[str, Any]:
        """Returns PyArrow types, by key, for the fields of `export`."""
        return {}

    def hub_types(self) -> dict[str, Any]:
        """Returns Hugging Face's metadata, by key, for `arrow_types`."""
        return {}

    @property
    def exported_files(self) -> tuple[str, ...]:
        """The keys of `export_files`."""
        return ()

    def export_files(self, stored: Stored) -> dict[str, bytes]:
        """Returns the images that an exported record has in addition to its own: key -> PNG."""
        return {}

    def annotations(
        self, stored: Stored, about: Mapping[str, Any], size: tuple[int, int]
    ) -> Sequence[dict[str, Any]]:
        """Returns the fields for this feature in COCO's annotations of an image, one dict per box.

        Args:
            stored: the record.
            about: the exported record.
            size: (width, height) of the image.
        """
        return ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class ColumnKind(FeatureKind):
    """A feature that a table column holds.

    Attributes:
        text: its declaration, as written in plans and manifests.
        declaration: matches the strings that declare this kind.
        usage: how to declare it, for messages.
        noun: what a column of this kind holds, for messages.
        needs_images: whether only datasets of images can have such columns.
        is_unique: whether a dataset has at most one such column.
        is_plain: whether it holds numbers or strings of any meaning, which may even be places in
            images.
        may_be_bad: whether the values in all of the first rows may be bad, and dropped with their
            boxes.
        holds_files: whether its cells are paths of files, which are read with the images.
    """

    text: str
    declaration: ClassVar[re.Pattern[str]]
    usage: ClassVar[str]
    noun: ClassVar[str] = "values"
    needs_images: ClassVar[bool] = False
    is_unique: ClassVar[bool] = False
    is_plain: ClassVar[bool] = False
    may_be_bad: ClassVar[bool] = False
    holds_files: ClassVar[bool] = False

    @classmethod
    def declare(cls, name: str, text: str) -> "ColumnKind | None":
        """Returns the feature that a string declares; None if the string declares another kind.

        Raises:
            ValueError: the string declares this kind, but incorrectly.
        """
        match = cls.declaration.fullmatch(text)
        return cls.from_match(name, match) if match else None

    @classmethod
    @abc.abstractmethod
    def from_match(cls, name: str, match: re.Match[str]) -> "ColumnKind":
        """Returns the feature that a string declares, given its match; raises like `declare`."""

    @property
    def reserved(self) -> set[str]:
        return self.taken_names - {self.name}

    @property
    def is_optional(self) -> bool:
        """Whether cells with paths of files may be empty, and the files may be missing."""
        return False

    def beside_boxes(self, form: str) -> "ColumnKind":
        """Returns the feature to use in place of this one if the table has boxes in this format."""
        return self

    @functools.cached_property
    def export_key(self) -> str:
        """The key of this feature in an exported record."""
        return f"{self.name}_" if self.name in EXPORT_KEYS else self.name

    def split(self, cell: Any) -> Sequence[Any]:
        """Splits a cell into its members; if each box has a value, into one member per box.

        Raises:
            ValueError: the cell is not a list.
        """
        return split_cell(cell)

    @abc.abstractmethod
    def parse(self, cell: Any) -> list[Any]:
        """Parses the value in a cell, or the values of a list.

        Raises:
            ValueError: the cell does not match the declaration.
        """

    @abc.abstractmethod
    def encode(self, values: list[Any]) -> Values:
        """Returns the features of a reference that hold the values of a cell."""

    def as_column(self) -> "ColumnKind | None":
        """Returns the column for this feature when a dataset is read as a table, or None."""
        return self

    def to_cell(self, stored: Stored) -> Any:
        """Returns the cell for the column `as_column()`, given a record of the dataset."""
        return None
