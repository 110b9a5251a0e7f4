"""Points of each box: keypoints and polygons.

Keypoints may be invisible; points of polygons are their corners.
"""

import dataclasses
import functools
import itertools
import math
import re
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from beam_tfr.features.base import ColumnKind, Floats, PixelMap, Stored, TensorReading, Values
from beam_tfr.features.boxes import scale, unit_of
from beam_tfr.features.cells import check_cell, to_finite, to_integer
from beam_tfr.features.elements import ElementSpec, Request, StoredExample, count_stored
from beam_tfr.features.shapes import Dots, Outline, Shape, box_classes
from beam_tfr.schema.feature_names import FeatureSpec

_POINTS = re.compile(r"(image/object/.*)/num", re.DOTALL)
_COLUMN_TYPES: dict[str, type] = {"float": np.float64, "int64": np.int64}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Points(ColumnKind):
    """Any number of points for each box.

    A record has the coordinates of all points, one after the other, as shares of the stored image,
    as TensorFlow's object detection API has keypoints; and how many are of each box. In a
    reference they are those of the source.

    Attributes:
        is_relative: whether coordinates in cells are shares of the sides of the image.
        parts: the ends of the features with a value for each point -> their dtypes.
        letters: those of a point in a declaration.
    """

    is_relative: bool
    parts: ClassVar[Mapping[str, str]]
    letters: ClassVar[str]

    noun = "points"
    may_be_bad = True
    follows_pixels = True
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
        """The feature with the number of the points of each box."""
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

    def parse_points(self, part: Any) -> list[tuple[float, ...]]:
        """The points of a box, given the member of a cell.

        Raises:
            ValueError: it holds none.
        """
        raise NotImplementedError

    def encode(self, values: list[Any]) -> Values:
        points = [point for points in values for point in points]
        columns: Sequence[Sequence[Any]] = [*zip(*points, strict=True)]
        encoded: Values = {self.number_feature: ("int64", [len(points) for points in values])}
        for number, (feature, dtype) in enumerate(self.part_features.items()):
            encoded[feature] = (dtype, columns[number] if points else ())
        return encoded

    def as_column(self) -> Self:
        return dataclasses.replace(self, text=f"points[rel_{self.letters}]", is_relative=True)

    def to_cell(self, stored: Stored) -> Any:
        return [[*self._shapes(points)] for points in self._points_of(stored)]

    def _points_of(self, stored: Stored) -> list[list[tuple[float, ...]]]:
        """The points of each box of a record."""
        points = zip(*(stored[feature] for feature in self.part_features), strict=True)
        return [[*itertools.islice(points, number)] for number in stored[self.number_feature]]

    def _shapes(self, points: Sequence[tuple[float, ...]]) -> Iterator[list[float]]:
        """Yields the numbers of each polygon of a box, or of all its keypoints."""
        for is_gap, group in itertools.groupby(points, lambda point: math.isnan(point[0])):
            if not is_gap:
                yield [number for point in group for number in point]

    # Records

    def place(self, values: Values, pixels: PixelMap, kept: Sequence[int]) -> Values:
        numbers = np.array(values[self.number_feature][1], np.int64)
        is_kept = np.zeros(len(numbers), bool)
        is_kept[[*kept]] = True
        columns = [values[feature][1] for feature in self.part_features]
        points: Floats = np.column_stack(columns)[np.repeat(is_kept, numbers)]
        places = points[:, :2] * pixels.source_size if self.is_relative else points[:, :2]
        points[:, :2] = pixels.map_points(places) / pixels.size
        self.clip(points)
        placed: Values = {self.number_feature: ("int64", numbers[is_kept].tolist())}
        for column, (feature, dtype) in zip(points.T, self.part_features.items(), strict=True):
            placed[feature] = (dtype, column.astype(_COLUMN_TYPES[dtype]).tolist())
        return placed

    def clip(self, points: Floats) -> None:
        """Changes points that the record does not show.

        Args:
            points: [n, 2 or 3], as shares of the sides of the record, and what else there is.
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
        number = count_stored(example)
        numbers = np.array(example.values(self.number_feature, "int64", number), np.int64)
        total = max(0, int(numbers.sum()))
        columns = [
            example.values(feature, dtype, total) for feature, dtype in self.part_features.items()
        ]
        points = np.array(columns, np.float32).T
        points[:, :2] *= np.array(unit_of(example, request), np.float32)
        ends = numbers.cumsum().tolist()
        begins = [0, *ends]
        return {self.name: [points[begin:end] for begin, end in zip(begins, ends, strict=False)]}

    def collect_tensors(self, features: MutableMapping[str, Any]) -> dict[str, Any]:
        import tensorflow as tf

        columns = [
            tf.cast(features.pop(feature).flat_values, tf.float32) for feature in self.part_features
        ]
        numbers = features.pop(self.number_feature)
        points = tf.RaggedTensor.from_row_lengths(tf.stack(columns, axis=1), numbers.flat_values)
        return {self.name: numbers.with_values(points)}

    def decode_tensors(self, tensors: Mapping[str, Any], reading: TensorReading) -> dict[str, Any]:
        import tensorflow as tf

        points = tensors[self.name]
        images = tf.gather(points.value_rowids(), points.values.value_rowids())
        begin, end = tf.split(tf.gather(reading.views, images), 2, axis=1)
        places = (points.flat_values[:, :2] - begin) / (end - begin)
        cropped = self.crop_tensors(tf.concat([places, points.flat_values[:, 2:]], axis=1))
        places = cropped[:, :2] * tf.gather(reading.units, images)
        return {self.name: points.with_flat_values(tf.concat([places, cropped[:, 2:]], axis=1))}

    def crop_tensors(self, points: Any) -> Any:
        """The points of crops of their images.

        Args:
            points: float32 [n, 2 or 3], as shares of the crops, and what else there is.
        """
        return points

    # Pictures and exports

    @classmethod
    def stored_points(cls, stored: Stored) -> Iterator[tuple[NDArray[np.float64], int]]:
        """Yields the points of each box of a record, [n, 2], and its class."""
        for feature in stored:
            name = _POINTS.fullmatch(feature)
            if name is None or (f"{name[1]}/visibility" in stored) != ("visibility" in cls.parts):
                continue
            points = np.column_stack([stored[f"{name[1]}/x"], stored[f"{name[1]}/y"]])
            ends = np.cumsum(stored[feature]).tolist()
            labels = box_classes(stored, len(ends))
            for begin, end, label in zip([0, *ends], ends, labels, strict=False):
                yield points[begin:end], label

    def arrow_types(self) -> dict[str, Any]:
        import pyarrow as pa

        return {self.export_key: pa.list_(pa.list_(pa.float32()))}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Keypoints(Points):
    """Keypoints, each with its visibility: `points[xyv]`.

    The visibility is 0 outside of the image.
    """

    declaration = re.compile(r"points\[(?P<relative>rel_)?xyv\]")
    usage = "points[xyv]"
    letters = "xyv"
    parts: ClassVar[Mapping[str, str]] = {"x": "float", "y": "float", "visibility": "int64"}

    def parse_points(self, part: Any) -> list[tuple[float, ...]]:
        numbers = _flatten(_as_list(part))
        _check_number(numbers, 3)
        return [
            (to_finite(x), to_finite(y), to_integer(visibility))
            for x, y, visibility in zip(*[iter(numbers)] * 3, strict=True)
        ]

    def clip(self, points: Floats) -> None:
        is_inside = ((points[:, :2] >= 0) & (points[:, :2] <= 1)).all(axis=1)
        points[:, 2] = np.where(is_inside, points[:, 2], 0)
        points[:, :2] *= points[:, 2:] != 0

    def crop_tensors(self, points: Any) -> Any:
        import tensorflow as tf

        is_inside = (points[:, :2] >= 0) & (points[:, :2] <= 1)
        is_seen = tf.reduce_all((points[:, 2:] > 0) & is_inside, axis=1, keepdims=True)
        return tf.where(is_seen, points, 0.0)

    @classmethod
    def shapes(cls, stored: Stored) -> Iterator[Shape]:
        for points, label in cls.stored_points(stored):
            yield Dots(points[points.any(axis=1)], label)

    def export(self, stored: Stored) -> dict[str, Any]:
        shapes = self.to_cell(stored)
        return {self.export_key: [[*itertools.chain.from_iterable(box)] for box in shapes]}

    def annotations(
        self, stored: Stored, about: Mapping[str, Any], size: tuple[int, int]
    ) -> Sequence[dict[str, Any]]:
        return [_annotate_keypoints(points, size) for points in about[self.export_key]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Polygons(Points):
    """Polygons around each object, between which is a point of NaN: `points[xy]`."""

    declaration = re.compile(r"points\[(?P<relative>rel_)?xy\]")
    usage = "points[xy]"
    letters = "xy"
    parts: ClassVar[Mapping[str, str]] = {"x": "float", "y": "float"}

    def parse_points(self, part: Any) -> list[tuple[float, ...]]:
        return parse_polygons(part)

    @classmethod
    def shapes(cls, stored: Stored) -> Iterator[Shape]:
        for points, label in cls.stored_points(stored):
            is_gap = np.isnan(points[:, 0])
            for polygon in np.split(points, np.flatnonzero(is_gap)):
                corners = polygon[~np.isnan(polygon[:, 0])]
                if len(corners):
                    yield Outline(corners, label)

    def export(self, stored: Stored) -> dict[str, Any]:
        return {self.export_key: self.to_cell(stored)}

    def arrow_types(self) -> dict[str, Any]:
        import pyarrow as pa

        return {key: pa.list_(kind) for key, kind in super().arrow_types().items()}

    def annotations(
        self, stored: Stored, about: Mapping[str, Any], size: tuple[int, int]
    ) -> Sequence[dict[str, Any]]:
        return [_annotate_polygons(polygons, size) for polygons in about[self.export_key]]


def parse_polygons(part: Any) -> list[tuple[float, ...]]:
    """The corners of the polygons of a box, between which is a point of NaN.

    Args:
        part: a list of numbers, of points or of polygons.

    Raises:
        ValueError: it is none.
    """
    members = _as_list(part)
    has_polygons = any(isinstance(member, list) and len(member) > 2 for member in members)
    polygons = members if has_polygons else [_flatten(members)]
    points = list[tuple[float, ...]]()
    for numbers in polygons:
        _check_number(numbers, 2)
        if points:
            points.append((math.nan, math.nan))
        corners = zip(*[iter(numbers)] * 2, strict=True)
        points += [(to_finite(x), to_finite(y)) for x, y in corners]
    return points


def _as_list(part: Any) -> list[Any]:
    check_cell(part)
    if part is None:
        return []
    return part if isinstance(part, list) else [part]


def _flatten(members: Sequence[Any]) -> list[Any]:
    """Numbers, of which some may be in lists, one after the other."""
    numbers = list[Any]()
    for member in members:
        numbers += member if isinstance(member, list) else [member]
    return numbers


def _check_number(numbers: Any, size: int) -> None:
    """Checks that there is a list of numbers for points of this size.

    Raises:
        ValueError: there is none.
    """
    if not isinstance(numbers, list) or len(numbers) % size:
        raise ValueError(f"{numbers!a:.60} are no points of {size} numbers each")


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
