"""Defines the points of each box: keypoints and polygons.

Keypoints may be invisible; the points of a polygon are its corners.
"""

import abc
import dataclasses
import functools
import itertools
import re
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from beam_tfr.features.base import ColumnKind, Floats, PixelMap, Stored, TensorReading, Values
from beam_tfr.features.boxes import scale, unit_of
from beam_tfr.features.cells import as_list, flatten_list, group_numbers, to_finite, to_integer
from beam_tfr.features.elements import ElementSpec, Request, StoredExample, count_stored
from beam_tfr.features.polygons import iter_polygons, list_polygons, parse_polygons
from beam_tfr.features.shapes import Dots, Outline, Shape, box_classes
from beam_tfr.schema.feature_names import FeatureSpec

_NUMBER_FEATURE = re.compile(r"(image/object/.*)/num", re.DOTALL)
_COLUMN_TYPES: dict[str, type] = {"float": np.float64, "int64": np.int64}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Points(ColumnKind):
    """Any number of points for each box.

    A record holds the coordinates of all points, one after another, as fractions of the stored
    image, like keypoints in TensorFlow's object detection API, and the number of points of each
    box. A reference holds the coordinates as in the cells.

    Attributes:
        is_relative: whether coordinates in cells are fractions of the sides of the image.
        parts: the ends of the names of features with a value for each point -> their dtypes.
        letters: the letters that stand for a point's numbers in a declaration.
    """

    is_relative: bool
    parts: ClassVar[Mapping[str, str]]
    letters: ClassVar[str]

    noun = "points"
    may_be_bad = True
    follows_pixels = True
    marks_places = True
    export_order = 2

    @classmethod
    def from_match(cls, name: str, match: re.Match[str]) -> Self:
        return cls(name=name, text=match.string, is_relative=bool(match["relative"]))

    @property
    def per_box(self) -> bool:
        return True

    @functools.cached_property
    def part_features(self) -> dict[str, str]:
        """The features with a value for each point -> their dtypes."""
        return {f"image/object/{self.name}/{part}": dtype for part, dtype in self.parts.items()}

    @property
    def number_feature(self) -> str:
        """The feature with the number of points of each box."""
        return f"image/object/{self.name}/num"

    @functools.cached_property
    def specs(self) -> Mapping[str, FeatureSpec]:
        dtypes = {**self.part_features, self.number_feature: "int64"}
        return {feature: FeatureSpec(dtype, (-1,)) for feature, dtype in dtypes.items()}

    @property
    def box_features(self) -> tuple[str, ...]:
        return (self.number_feature,)

    # Cells of tables

    def parse(self, cell: Any) -> list[Any]:
        return [self.parse_points(part) for part in self.split(cell)]

    @abc.abstractmethod
    def parse_points(self, part: Any) -> list[tuple[float, ...]]:
        """Parses the points of a box, given a member of a cell.

        Raises:
            ValueError: the member holds no points.
        """

    def encode(self, values: list[Any]) -> Values:
        points = [*itertools.chain.from_iterable(values)]
        encoded: Values = {self.number_feature: ("int64", [*map(len, values)])}
        for axis, (feature, dtype) in enumerate(self.part_features.items()):
            encoded[feature] = (dtype, [point[axis] for point in points])
        return encoded

    def as_column(self) -> Self:
        return dataclasses.replace(self, text=f"points[rel_{self.letters}]", is_relative=True)

    def to_cell(self, stored: Stored) -> Any:
        columns = [stored[feature] for feature in self.part_features]
        points = zip(*columns, strict=True)  # of all boxes
        cell = []
        for number in stored[self.number_feature]:
            of_box = itertools.islice(points, number)
            cell.append(list_polygons(of_box))
        return cell

    # Records

    def place(self, values: Values, pixels: PixelMap, kept: Sequence[int]) -> Values:
        numbers = np.array(values[self.number_feature][1], np.int64)
        is_kept = np.zeros(len(numbers), bool)
        is_kept[[*kept]] = True
        columns = [values[feature][1] for feature in self.part_features]
        all_points = np.column_stack(columns)
        points = all_points[np.repeat(is_kept, numbers)]
        if self.is_relative:
            points[:, :2] *= pixels.source_size
        points[:, :2] = pixels.map_points(points[:, :2]) / pixels.size
        self.clip(points)
        placed: Values = {self.number_feature: ("int64", numbers[is_kept].tolist())}
        for axis, (feature, dtype) in enumerate(self.part_features.items()):
            column = points[:, axis].astype(_COLUMN_TYPES[dtype])
            placed[feature] = (dtype, column.tolist())
        return placed

    def clip(self, points: Floats) -> None:
        """Changes, in place, points that the record does not show.

        Args:
            points: [n, 2 or 3]: x and y as fractions of the sides of the record, and any third
                number.
        """

    def fits_boxes(self, stored: Stored, number: int) -> bool:
        total = sum(stored[self.number_feature])
        numbers = {len(stored[feature]) for feature in self.part_features}
        return numbers == {total} and super().fits_boxes(stored, number)

    # Readers

    def is_decoded(self, request: Request) -> bool:
        return request.has_objects

    def elements(self, request: Request) -> dict[str, ElementSpec]:
        return {self.name: ElementSpec(object, [-1])}

    def decode(
        self, example: StoredExample, size: tuple[int, int], request: Request
    ) -> dict[str, Any]:
        numbers = example.values(self.number_feature, "int64", count_stored(example))
        total = max(0, sum(numbers))
        columns = []
        for feature, dtype in self.part_features.items():
            columns.append(example.values(feature, dtype, total))
        points = np.array(columns, np.float32).T
        points[:, :2] *= np.array(unit_of(example, request), np.float32)
        return {self.name: _split_points(points, numbers)}

    def collect_tensors(self, features: MutableMapping[str, Any]) -> dict[str, Any]:
        import tensorflow as tf

        columns = []
        for feature in self.part_features:
            column = features.pop(feature).flat_values
            columns.append(tf.cast(column, tf.float32))
        points = tf.stack(columns, axis=1)
        numbers = features.pop(self.number_feature)
        of_boxes = tf.RaggedTensor.from_row_lengths(points, numbers.flat_values)
        return {self.name: numbers.with_values(of_boxes)}

    def decode_tensors(self, tensors: Mapping[str, Any], reading: TensorReading) -> dict[str, Any]:
        import tensorflow as tf

        points = tensors[self.name]
        boxes = points.values.value_rowids()  # the box of each point
        images = tf.gather(points.value_rowids(), boxes)
        views = tf.gather(reading.views, images)
        begin, end = tf.split(views, 2, axis=1)
        stored = points.flat_values
        shares = (stored[:, :2] - begin) / (end - begin)
        cropped = self.crop_tensors(tf.concat([shares, stored[:, 2:]], axis=1))
        places = cropped[:, :2] * tf.gather(reading.units, images)
        shown = tf.concat([places, cropped[:, 2:]], axis=1)
        return {self.name: points.with_flat_values(shown)}

    def crop_tensors(self, points: Any) -> Any:
        """Computes the points in crops of their images.

        Args:
            points: float32 [n, 2 or 3]: x and y as fractions of the crops, and any third number.
        """
        return points

    # Pictures and exports

    @classmethod
    def stored_points(cls, stored: Stored) -> Iterator[tuple[Floats, int]]:
        """Yields the points [n, 2] and the class of each box of a record."""
        for name in cls._names_in(stored):
            points = np.column_stack([stored[f"{name}/x"], stored[f"{name}/y"]])
            numbers = stored[f"{name}/num"]
            labels = box_classes(stored, len(numbers))
            yield from zip(_split_points(points, numbers), labels, strict=False)

    @classmethod
    def _names_in(cls, stored: Stored) -> Iterator[str]:
        """Yields the prefixes of the names of features with such points, written by any program."""
        for feature in stored:
            match = _NUMBER_FEATURE.fullmatch(feature)
            if match is None:
                continue
            has_visibility = f"{match[1]}/visibility" in stored
            if has_visibility == ("visibility" in cls.parts):
                yield match[1]

    def arrow_types(self) -> dict[str, Any]:
        import pyarrow as pa

        return {self.export_key: pa.list_(pa.list_(pa.float32()))}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Keypoints(Points):
    """Keypoints, each with its visibility: `points[xyv]`.

    The visibility is 0 outside the image.
    """

    declaration = re.compile(r"points\[(?P<relative>rel_)?xyv\]")
    usage = "points[xyv]"
    letters = "xyv"
    parts: ClassVar[Mapping[str, str]] = {"x": "float", "y": "float", "visibility": "int64"}

    def parse_points(self, part: Any) -> list[tuple[float, ...]]:
        numbers = flatten_list(as_list(part))
        points = group_numbers(numbers, 3)
        return [(to_finite(x), to_finite(y), to_integer(shown)) for x, y, shown in points]

    def clip(self, points: Floats) -> None:
        shares = points[:, :2]
        is_within = (shares >= 0) & (shares <= 1)
        points[~is_within.all(axis=1), 2] = 0
        shares *= points[:, 2:] != 0

    def crop_tensors(self, points: Any) -> Any:
        import tensorflow as tf

        shares = points[:, :2]
        is_within = (shares >= 0) & (shares <= 1)
        is_visible = points[:, 2:] > 0
        is_seen = tf.reduce_all(is_visible & is_within, axis=1, keepdims=True)
        return tf.where(is_seen, points, 0.0)

    @classmethod
    def shapes(cls, stored: Stored) -> Iterator[Shape]:
        for points, label in cls.stored_points(stored):
            yield Dots(points[points.any(axis=1)], label)

    def export(self, stored: Stored) -> dict[str, Any]:
        shapes = self.to_cell(stored)
        return {self.export_key: [flatten_list(box) for box in shapes]}

    def annotations(
        self, stored: Stored, about: Mapping[str, Any], size: tuple[int, int]
    ) -> Sequence[dict[str, Any]]:
        return [_annotate_keypoints(points, size) for points in about[self.export_key]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Polygons(Points):
    """Polygons around each object, separated by points of NaN: `points[xy]`."""

    declaration = re.compile(r"points\[(?P<relative>rel_)?xy\]")
    usage = "points[xy]"
    letters = "xy"
    parts: ClassVar[Mapping[str, str]] = {"x": "float", "y": "float"}

    def parse_points(self, part: Any) -> list[tuple[float, ...]]:
        return parse_polygons(part)

    @classmethod
    def shapes(cls, stored: Stored) -> Iterator[Shape]:
        for points, label in cls.stored_points(stored):
            for corners in iter_polygons(points):
                yield Outline(corners, label)

    def export(self, stored: Stored) -> dict[str, Any]:
        return {self.export_key: self.to_cell(stored)}

    def arrow_types(self) -> dict[str, Any]:
        import pyarrow as pa

        polygon = pa.list_(pa.float32())
        return {self.export_key: pa.list_(pa.list_(polygon))}

    def annotations(
        self, stored: Stored, about: Mapping[str, Any], size: tuple[int, int]
    ) -> Sequence[dict[str, Any]]:
        return [_annotate_polygons(polygons, size) for polygons in about[self.export_key]]


def _annotate_keypoints(points: Sequence[float], size: tuple[int, int]) -> dict[str, Any]:
    if not points:
        return {}
    visible = sum(visibility > 0 for visibility in points[2::3])
    return {"keypoints": scale(points, (*size, 1)), "num_keypoints": visible}


def _annotate_polygons(
    polygons: Sequence[Sequence[float]], size: tuple[int, int]
) -> dict[str, Any]:
    if not polygons:
        return {}
    return {"segmentation": [scale(polygon, size) for polygon in polygons]}


def _split_points(points: NDArray[Any], numbers: Sequence[int]) -> list[NDArray[Any]]:
    """Splits all points into the points of each box, given how many points each box has."""
    ends = np.cumsum(numbers, dtype=np.int64)
    return np.split(points, ends)[:-1]
