"""Defines boxes around objects, and the column that holds lists of boxes."""

import dataclasses
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from beam_tfr.features.base import (
    IGNORES_ORIENTATION,
    ColumnKind,
    Floats,
    PixelMap,
    Stored,
    TensorReading,
    Values,
)
from beam_tfr.features.box_counts import WHOLE, box_statistics, count_boxes
from beam_tfr.features.box_formats import (
    BOX_FORMATS,
    Corners,
    from_corners,
    is_outside,
    is_relative,
    to_corners,
)
from beam_tfr.features.cells import BadCell, check_boxes, check_cell, split_boxes
from beam_tfr.features.elements import ElementSpec, Request, StoredExample, count_stored
from beam_tfr.features.shapes import Rectangle, Shape, box_classes
from beam_tfr.schema.differences import join_texts
from beam_tfr.schema.errors import RejectError
from beam_tfr.schema.feature_names import (
    BAD_BOXES,
    BOX_NAMES,
    BOXES,
    OBJECT_TEXT,
    SIDES,
    SOURCE_HEIGHT,
    SOURCE_WIDTH,
    VISIBLE,
    FeatureSpec,
)
from beam_tfr.schema.plan import Counts
from beam_tfr.schema.spelling import spell_option

BOXES_KEY = "boxes"  # in elements of readers, and in exported records
CLASSES_KEY = "classes"
_UNSTATED = ("int64", ())


class BoxPolicy(NamedTuple):
    """How to handle bad boxes, barely visible boxes, and images without boxes.

    Attributes:
        min_visible: fraction of a box's area that must be visible for the box to be kept.
        drop_bad: whether bad boxes are dropped; otherwise their images are rejected.
        need_box: whether images without a box are rejected.
    """

    min_visible: float = 0.1
    drop_bad: bool = False
    need_box: bool = False


class PlacedBoxes(NamedTuple):
    """The boxes of a record.

    Attributes:
        features: the features of the record that hold the boxes.
        kept: for each box, its number in the reference, from 0.
        adjusted: members of `ADJUSTMENTS` that apply.
    """

    features: Values
    kept: list[int]
    adjusted: set[str]


class AnnotatedBox(list[float]):
    """A box in a cell, with the id of its annotation."""

    __slots__ = ("annotation",)
    noun = "annotation"

    def __init__(self, numbers: Iterable[float], annotation: Any) -> None:
        super().__init__(numbers)
        self.annotation = annotation


class RowBox(AnnotatedBox):
    """A box that is a table row, with the number of the row."""

    __slots__ = ()
    noun = "row"


class LineBox(RowBox):
    """A box that is a row of a text file, with the number of its line."""

    __slots__ = ()
    noun = "line"


class ObjectBox(RowBox):
    """A box of an object in a table row, with the number of the object, from 1."""

    __slots__ = ()
    noun = "object"


def name_box(box: Any, number: int) -> str:
    """Returns what messages call a box in a row, given the number of the box, from 1."""
    if isinstance(box, AnnotatedBox):
        return f"{box.noun} {box.annotation!r:.60}"
    return f"box {number}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Boxes(ColumnKind):
    """Any number of boxes around the objects in an image: `bbox[xyxy]`.

    A reference holds the corners of all boxes together, in pixels or fractions of the source. A
    record has the corners of the kept boxes, as fractions of the stored image, under the names of
    TensorFlow's object detection API.

    Attributes:
        form: the format of the cells, one of `BOX_FORMATS`.
        columns: in a table with a row for each box, the four columns that hold the numbers.
    """

    form: str
    columns: tuple[str, ...] = ()

    declaration = re.compile(
        rf"bbox\[({'|'.join(BOX_FORMATS)})\](?:=([^+]+)\+([^+]+)\+([^+]+)\+([^+]+))?"
    )
    usage = "bbox[FORMAT], also with =COLUMN+COLUMN+COLUMN+COLUMN"
    noun = "boxes"
    needs_images = True
    is_unique = True
    may_be_bad = True
    follows_pixels = True
    marks_places = True
    is_counted = True
    export_order = 0

    @classmethod
    def from_match(cls, name: str, match: re.Match[str]) -> Self:
        form, *columns = match.groups()
        return cls(name=name, text=match.string, form=form, columns=tuple(filter(None, columns)))

    @property
    def per_box(self) -> bool:
        return True

    @property
    def specs(self) -> Mapping[str, FeatureSpec]:
        return dict.fromkeys((*SIDES, VISIBLE), FeatureSpec("float", (-1,)))

    @property
    def taken_names(self) -> set[str]:
        return {*BOX_NAMES, BOXES_KEY, CLASSES_KEY}

    @property
    def compared(self) -> tuple[str, ...]:
        return SIDES

    # Cells of tables

    def split(self, cell: Any) -> Sequence[Any]:
        parts = split_boxes(cell)
        if any(isinstance(part, (list, BadCell)) for part in parts):
            check_boxes(len(parts))
            return parts
        rest = len(parts) % 4
        if rest:
            cure = ""
            if isinstance(cell, str) and not any(map(str.isdigit, cell)):
                cure = f"; if this means no boxes, use {spell_option('na_values', cell)}"
            raise ValueError(f"{parts[-rest:]!r:.60} is not a box of four numbers{cure}")
        check_boxes(len(parts) // 4)
        return [parts[begin : begin + 4] for begin in range(0, len(parts), 4)]

    def parse(self, cell: Any) -> list[Any]:
        boxes = self.examine(cell)
        problems = [box.problem for box in boxes if isinstance(box, BadCell)]
        if problems:
            raise ValueError(join_texts(problems))
        if boxes and self._is_tiny(boxes[0]):  # then all boxes are tiny
            raise ValueError(
                "no box is larger than a pixel; if these are fractions of the image, the format is "
                f"rel_{self.form}"
            )
        return boxes

    def examine(self, cell: Any) -> list[Corners | BadCell]:
        """Returns, for each box in a cell, its xmin, ymin, xmax and ymax, or the problem with it.

        Raises:
            ValueError: the cell is not a list of boxes.
        """
        parts = self.split(cell)
        boxes = [self._examine_box(part, number) for number, part in enumerate(parts, 1)]
        tiny = [index for index, box in enumerate(boxes) if self._is_tiny(box)]
        number_sound = sum(isinstance(box, tuple) for box in boxes)
        if len(tiny) == number_sound:
            return boxes  # there are no boxes, or their format is wrong
        for index in tiny:
            name = name_box(parts[index], index + 1)
            boxes[index] = BadCell(f"{name}: less than a pixel")
        return boxes

    def find_bad(self, cell: Any) -> list[str]:
        """Returns each box's problem, or "" for a good box; an empty list if all are good.

        Raises:
            ValueError: the cell is not a list of boxes.
        """
        problems = [box.problem if isinstance(box, BadCell) else "" for box in self.examine(cell)]
        return problems if any(problems) else []

    def _examine_box(self, part: Any, number: int) -> Corners | BadCell:
        try:
            check_cell(part)
            return to_corners(part, self.form)
        except ValueError as error:
            return BadCell(f"{name_box(part, number)}: {error}")

    def _is_tiny(self, box: Corners | BadCell) -> bool:
        """Whether a box ends within the first pixel."""
        if isinstance(box, BadCell) or is_relative(self.form):
            return False
        return box[2] <= 1 and box[3] <= 1

    def encode(self, values: list[Any]) -> Values:
        return {BOXES: ("float", [side for corners in values for side in corners])}

    def name_outside(self, cell: Any, values: Values) -> list[str]:
        """Lists the boxes outside the image, for messages, if the row states the size of the image.

        Args:
            cell: the cell with the boxes.
            values: the features of the row.
        """
        size = _stated_size(values)
        if size is None or is_relative(self.form):
            return []
        sides = values[BOXES][1]
        names = []
        for number, box in enumerate(self.split(cell)):
            corners = sides[4 * number : 4 * number + 4]
            if is_outside(corners, size):
                names.append(name_box(box, number + 1))
        return names

    def as_column(self) -> "Boxes":
        return Boxes(name=self.name, text="bbox[rel_xyxy]", form="rel_xyxy")

    def to_cell(self, stored: Stored) -> Any:
        sides = [stored[side] for side in SIDES]
        return [[*corners] for corners in zip(*sides, strict=True)]

    # Records

    def place_boxes(self, values: Values, pixels: PixelMap, policy: BoxPolicy) -> PlacedBoxes:
        """Maps the boxes in a row to the row's record, and clips them.

        Args:
            values: the features of the reference.
            pixels: the mapping from the source to the record.
            policy: what to do with bad boxes, and with images without boxes.

        Raises:
            RejectError: a box is outside the source, no box is left, or the row states a different
                size for the source.
        """
        _check_stated_size(values, pixels)
        boxes = np.array(values[BOXES][1], np.float64).reshape(-1, 4)
        if is_relative(self.form):
            boxes *= pixels.source_size * 2
        outside = _name_outside(boxes, pixels.source_size)
        _, bad_boxes = values.get(BAD_BOXES, ("bytes", ()))
        if outside and not policy.drop_bad:
            width, height = pixels.source_size
            names = join_texts([name.decode() for name in bad_boxes] or outside)
            raise RejectError("bad-value", f"{names}: outside the {width}x{height} pixels")
        mapped, visible = pixels.map_boxes(boxes)
        is_kept = (visible > 0) & (visible >= policy.min_visible * WHOLE)
        kept: list[int] = np.flatnonzero(is_kept).tolist()
        if policy.need_box and not kept:
            raise RejectError("without-boxes", f"no box is left; the table has {len(boxes)}")
        adjustments = {
            "boxes-dropped": len(kept) < len(boxes) - len(outside),
            "bad-boxes-dropped": bool(bad_boxes or outside),
            "boxes-repeated": _has_repeated(values),
            "boxes-clipped": bool((visible[kept] < WHOLE).any()),
            "no-boxes": not kept,
        }
        adjusted = {name for name, applies in adjustments.items() if applies}
        features = _encode_sides(mapped[kept] / (pixels.size * 2))
        features[VISIBLE] = ("float", visible[kept].tolist())
        return PlacedBoxes(features, kept, adjusted)

    def count(self, stored: Stored, source: Stored | None) -> Counts:
        return count_boxes(stored, source)

    def statistics(self, counts: Counts) -> dict[str, Any]:
        return {"boxes": box_statistics(counts)}

    def fits_boxes(self, stored: Stored, number: int) -> bool:
        if not super().fits_boxes(stored, number):
            return False
        left, top, right, bottom = (np.array(stored[side]) for side in SIDES)
        low = np.concatenate([left, top])
        high = np.concatenate([right, bottom])
        return bool(np.all((low >= 0) & (low <= high) & (high <= 1)))

    # Readers

    def is_decoded(self, request: Request) -> bool:
        return bool(request.boxes)

    @property
    def replaced(self) -> tuple[str, ...]:
        return SIDES

    def elements(self, request: Request) -> dict[str, ElementSpec]:
        return {
            BOXES_KEY: ElementSpec(np.float32, [-1, 4]),
            CLASSES_KEY: ElementSpec(np.int64, [-1]),
        }

    def decode(
        self, example: StoredExample, size: tuple[int, int], request: Request
    ) -> dict[str, Any]:
        number = count_stored(example)
        stored = [example.values(side, "float", number) for side in SIDES]
        units = np.array(unit_of(example, request) * 2, np.float32)
        sides = np.array(stored, np.float32) * units[:, None]
        columns = from_corners(sides, request.boxes or self.form)
        return {
            BOXES_KEY: np.stack(columns, axis=1),
            CLASSES_KEY: np.zeros(number, np.int64),  # unless there are labels
        }

    def collect_tensors(self, features: MutableMapping[str, Any]) -> dict[str, Any]:
        import tensorflow as tf

        tensors = super().collect_tensors(features)
        sides = [tensors.pop(side) for side in SIDES]
        corners = tf.stack([side.flat_values for side in sides], axis=1)
        tensors[BOXES_KEY] = sides[0].with_flat_values(corners)
        tensors[CLASSES_KEY] = tf.zeros_like(sides[0], tf.int64)  # unless there are labels
        return tensors

    def decode_tensors(self, tensors: Mapping[str, Any], reading: TensorReading) -> dict[str, Any]:
        import tensorflow as tf

        boxes = tensors[BOXES_KEY]
        units = tf.tile(reading.units, [1, 2])
        corners = boxes.flat_values * tf.gather(units, boxes.value_rowids())
        sides = tf.unstack(corners, axis=1)
        columns = from_corners(sides, reading.request.boxes or self.form)
        shown = tf.stack(columns, axis=1)
        return {BOXES_KEY: boxes.with_flat_values(shown)}

    # Pictures and exports

    @classmethod
    def is_drawn(cls, stored: Stored) -> bool:
        return bool(stored.get(SIDES[0]))

    @classmethod
    def shapes(cls, stored: Stored) -> Iterator[Shape]:
        boxes = np.column_stack([stored.get(side, ()) for side in SIDES]).clip(0, 1)
        labels = box_classes(stored, len(boxes))
        names = stored.get(OBJECT_TEXT) or [b""] * len(boxes)
        for corners, label, name in zip(boxes.tolist(), labels, names, strict=False):
            yield Rectangle(corners, label, name)

    def export(self, stored: Stored) -> dict[str, Any]:
        sides = [stored[side] for side in SIDES]
        return {BOXES_KEY: [*zip(*sides, strict=True)]}

    def arrow_types(self) -> dict[str, Any]:
        import pyarrow as pa

        return {BOXES_KEY: pa.list_(pa.list_(pa.float32(), 4))}

    def annotations(
        self, stored: Stored, about: Mapping[str, Any], size: tuple[int, int]
    ) -> Sequence[dict[str, Any]]:
        annotations = []
        for corners in about[BOXES_KEY]:
            box = scale(from_corners(corners, "xywh"), size)
            _, _, width, height = box
            annotations.append({"bbox": box, "area": width * height})
        return annotations


def unit_of(example: StoredExample, request: Request) -> tuple[int, int]:
    """Returns the (width, height) of the image in the unit of the requested boxes.

    Both are 1 if boxes are given as fractions of the image.
    """
    return (1, 1) if is_relative(request.boxes or "") else example.size


def scale(numbers: Iterable[float], by: Iterable[int]) -> list[float]:
    """Multiplies numbers by factors in turn, such as by the width and height of an image."""
    return [number * factor for number, factor in zip(numbers, itertools.cycle(by), strict=False)]


def _stated_size(values: Values) -> tuple[int, int] | None:
    """Returns the (width, height) that a row states for its source; None if it states none."""
    _, widths = values.get(SOURCE_WIDTH, _UNSTATED)
    _, heights = values.get(SOURCE_HEIGHT, _UNSTATED)
    size = sum(widths), sum(heights)
    return size if min(size) > 0 else None


def _check_stated_size(values: Values, pixels: PixelMap) -> None:
    """Checks the size that a row states for its source.

    Raises:
        RejectError: the image has a different size.
    """
    stated = _stated_size(values)
    if stated is None or stated == pixels.source_size:
        return
    cause = ""
    if stated == pixels.stored_size:
        cause = f": its boxes ignore {IGNORES_ORIENTATION}"
    width, height = pixels.source_size
    raise RejectError(
        "bad-value",
        f"the table says {stated[0]}x{stated[1]} pixels, but the image has {width}x{height}{cause}",
    )


def _name_outside(boxes: Floats, size: tuple[int, int]) -> list[str]:
    """Lists which of the boxes [n, 4] are entirely outside an image of this size, for messages."""
    numbered = enumerate(boxes.tolist(), 1)
    return [f"box {number}" for number, corners in numbered if is_outside(corners, size)]


def _has_repeated(values: Values) -> bool:
    """Whether a row has the same box twice, with the same class."""
    _, sides = values[BOXES]
    number = len(sides) // 4
    _, classes = values.get(OBJECT_TEXT, ("bytes", [b""] * number))
    corners = [sides[begin::4] for begin in range(4)]
    return len({*zip(*corners, classes, strict=True)}) < number


def _encode_sides(corners: Floats) -> Values:
    """Returns the features that hold corners [n, 4], given as fractions of the stored image."""
    columns: list[list[float]] = corners.T.tolist()
    return {side: ("float", column) for side, column in zip(SIDES, columns, strict=True)}
