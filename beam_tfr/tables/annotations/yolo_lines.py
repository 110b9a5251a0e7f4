"""Reads lines of YOLO's label files: the number of a class, from 0, and the shape of an object.

The numbers of a shape are fractions of the sides of the image:

    center x, y, width, height      a box
    x, y, x, y, x, y, …             the corners of a polygon, at least three
    a box, and keypoints            if `data.yaml` has a `kpt_shape`

Programs that predict objects append a confidence, and perhaps the id of a track. See
https://docs.ultralytics.com/datasets/detect and `save_txt` in ultralytics.engine.results.
"""

import contextlib
import functools
import math
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Literal, NamedTuple

from beam_tfr.features.cells import BadCell
from beam_tfr.schema.spelling import spell_option

_BOX = 4  # numbers in a box
_LEAST_CORNERS = 6  # numbers in a triangle
_TELLING_LINES = 10  # lines of six numbers; this many are hardly all triangles that look like boxes
_FAR = 0.1  # fraction of a side of the image by which corners may be outside
_FAR_CENTER = 2.0  # a center this far off means a box in pixels
_LONGEST_NUMBER = 20  # digits in the number of a class
_CONFIDENCE = "confidence"
_AS_SHARES = "YOLO uses fractions of the image, from 0 to 1"
KeypointShape = tuple[str, Literal["2", "3"]]


class ClassNames(dict[int, str]):
    """A mapping from the number of a class to its name."""

    @functools.cached_property
    def texts(self) -> frozenset[str]:
        """The set of all names."""
        return frozenset(self.values())

    def in_order(self) -> list[str]:
        """Lists each name once, in the order of the numbers."""
        return [*dict.fromkeys(self[number] for number in sorted(self))]


class LineForm(NamedTuple):
    """The numbers that follow boxes and polygons in the lines of a set.

    A single line does not show which numbers follow: six numbers may be a triangle, or a box with a
    confidence and a track id.

    Attributes:
        fifth: the meaning of a number after a box, for messages; an empty string if unknown.
        has_tracks: whether two numbers after a shape are a confidence and the id of a track.
        has_scores: whether a number after a polygon is a confidence.
        are_six_unclear: whether six numbers may be a box and two more numbers, or a triangle.
    """

    fifth: str = ""
    has_tracks: bool = False
    has_scores: bool = False
    are_six_unclear: bool = False

    def describe(self) -> str:
        """Says how the lines are read; returns an empty string if lines have only shapes."""
        if self.has_tracks:
            return "a confidence and a track id after each shape, which are ignored"
        if self.has_scores:
            return "a confidence after each polygon, which is ignored"
        if not self.fifth:
            return ""
        return (
            f"a number after boxes, which is ignored: a {self.fifth}, or an angle, which does not "
            "rotate the boxes"
        )

    @property
    def cure(self) -> str:
        """How to store confidences, for messages; an empty string if lines have no confidences."""
        if self.has_tracks or self.has_scores or self.fifth == _CONFIDENCE:
            columns = "box:bbox[rel_center_xywh],confidence:float[box]"
            return f"; {spell_option('feature_columns', columns)} stores confidences"
        return ""


class ObjectShape(NamedTuple):
    """The shape of an object, relative to the image.

    Attributes:
        box: center x, y, width and height.
        keypoints: the keypoints of the object.
        polygon: the corners of the polygon.
        confidence: the confidence of a prediction; NaN if there is none.
    """

    box: list[float] | BadCell
    keypoints: list[Any] | BadCell = []  # noqa: RUF012  # never changed
    polygon: list[float] = []  # noqa: RUF012
    confidence: float = math.nan


def read_class(field: str, names: ClassNames) -> str | BadCell:
    """Returns the name of the class at the beginning of a line."""
    if field.isdecimal() and len(field) <= _LONGEST_NUMBER and int(field) in names:
        return names[int(field)]
    try:
        number = _to_float(field)
    except ValueError as error:
        problem = str(error)
        if field.startswith("#"):
            problem = "a comment (#), which label files do not have"
        elif field in names.texts:
            problem = f"{field!a:.60} is the name of a class, not its number"
        return BadCell(problem)
    if not number.is_integer():
        return BadCell(f"{field:.60} is not the number of a class, which must be whole")
    name = names.get(int(number))
    return BadCell(f"{int(number)} is not in `names`") if name is None else name


def read_numbers(fields: Sequence[str]) -> list[float] | BadCell:
    """Returns the numbers after the class in a line."""
    if "_" in "".join(fields):  # `float` accepts underscores
        return _find_problem(fields)
    try:
        return [float(field) for field in fields]
    except ValueError:
        return _find_problem(fields)


def _find_problem(fields: Sequence[str]) -> BadCell:
    """Says what is wrong with fields of which at least one is not a number."""
    for field in fields:
        try:
            _to_float(field)
        except ValueError as error:
            return BadCell(str(error))
    return BadCell("has no numbers")


def _to_float(field: str) -> float:
    """Parses a number in a line.

    Raises:
        ValueError: the field is not a number.
    """
    if "," in field:
        raise ValueError(
            f"{field!a:.60} has a comma: write numbers with a point, and spaces between them"
        )
    with contextlib.suppress(ValueError):
        if "_" not in field:
            return float(field)
    raise ValueError(f"{field!a:.60} is not a number")


def choose_form(lines: Collection[Sequence[float]]) -> LineForm:
    """Determines which numbers follow shapes, from the numbers in the first lines of a set."""
    pairs = [*filter(_is_even, lines)]
    has_odd = any(map(_is_odd, lines))
    fives = [line for line in lines if len(line) == _BOX + 1]
    if _have_tracks(pairs):
        return LineForm(fifth=_name_fifth(fives), has_tracks=True, has_scores=has_odd)
    has_polygons = has_odd or bool(pairs)
    has_boxes = any(len(line) == _BOX for line in lines)
    is_telling = has_boxes or len(pairs) >= _TELLING_LINES
    return LineForm(
        fifth="" if has_polygons else _name_fifth(fives),
        has_scores=has_odd and not pairs,
        are_six_unclear=is_telling and _are_boxes_of_six(pairs),
    )


def seem_corners(lines: Iterable[Sequence[float]]) -> bool:
    """Whether all boxes are inside their images if read as corners, but not if read as written.

    Args:
        lines: the numbers in the first lines, with shapes of any kind.
    """
    boxes = [line for line in lines if len(line) == _BOX]
    for left, top, right, bottom in boxes:
        if not 0 <= left < right <= 1 + _FAR or not 0 <= top < bottom <= 1 + _FAR:
            return False
    return not all(map(_is_box_inside, boxes))


def _is_even(line: Sequence[float]) -> bool:
    return len(line) >= _LEAST_CORNERS and len(line) % 2 == 0


def _is_odd(line: Sequence[float]) -> bool:
    return len(line) > _LEAST_CORNERS and len(line) % 2 == 1


def _have_tracks(lines: Sequence[Sequence[float]]) -> bool:
    """Whether lines end in a confidence and the id of a track, from all lines of even length.

    All lines must end like this. Also, at least one id must be greater than 1, which no corner is,
    or all shapes must be boxes.
    """
    if not all(map(_ends_in_track, lines)):
        return False
    has_high_id = any(line[-1] > 1 for line in lines)
    return has_high_id or _are_boxes_of_six(lines)


def _are_boxes_of_six(lines: Sequence[Sequence[float]]) -> bool:
    """Whether all lines may be boxes followed by two numbers; False if there are no lines."""
    may_be = [len(line) == _BOX + 2 and _is_box_inside(line) for line in lines]
    return bool(may_be) and all(may_be)


def _ends_in_track(line: Sequence[float]) -> bool:
    confidence = line[-2]
    track = line[-1]
    return 0 <= confidence <= 1 and _is_count(track)


def _is_count(number: float) -> bool:
    return number >= 0 and number.is_integer()


def _is_box_inside(line: Sequence[float]) -> bool:
    """Whether the first numbers in a line are a box that is inside the image, or nearly so."""
    x, y, width, height = line[:_BOX]
    if width <= 0 or height <= 0:
        return False
    farthest = max(abs(x - 0.5) + width / 2, abs(y - 0.5) + height / 2)
    return farthest <= 0.5 + _FAR


def _name_fifth(lines: Collection[Sequence[float]]) -> str:
    """Says what a fifth number means, from lines of five numbers, or returns an empty string.

    The meaning is unknown unless the first four numbers of all lines are boxes inside the image.
    """
    if not lines or not all(map(_is_box_inside, lines)):
        return ""
    numbers = [line[_BOX] for line in lines]
    if all(0 <= number <= 1 for number in numbers):
        return _CONFIDENCE
    return "track id" if all(map(_is_count, numbers)) else ""


def read_shape(
    fields: Sequence[str], form: LineForm, kpt_shape: KeypointShape | None
) -> ObjectShape:
    """Returns the shape in a line, without its class.

    If the shape is bad, the box is a `BadCell` that says why.
    """
    numbers = read_numbers(fields)
    if isinstance(numbers, BadCell):
        return ObjectShape(numbers)
    if kpt_shape:
        keypoints = _read_keypoints(numbers[_BOX:], *kpt_shape)
        return ObjectShape(_check_box(numbers[:_BOX]), keypoints=keypoints)
    if _is_even(numbers):
        return _read_even(numbers, form)
    if len(numbers) > _LEAST_CORNERS:
        return _read_odd(numbers, form)
    if len(numbers) == _BOX + 1:
        return _read_fifth(numbers, form)
    return ObjectShape(_check_box(numbers))


def _read_even(numbers: list[float], form: LineForm) -> ObjectShape:
    """Returns the shape in an even number of numbers, six or more."""
    if form.are_six_unclear and len(numbers) == _BOX + 2:
        problem = (
            "six numbers may be a triangle, or a box and two more numbers, such as a confidence: "
            "in all such lines of the dataset, the first four are a box"
        )
        return ObjectShape(BadCell(problem))
    if not form.has_tracks:
        return _read_polygon(numbers)
    if not _ends_in_track(numbers):
        problem = (
            f"{numbers[-2]:g} and {numbers[-1]:g} are not a confidence and a track id, which other "
            "lines have after their shapes"
        )
        return ObjectShape(BadCell(problem))
    *numbers, confidence, _ = numbers
    if len(numbers) == _BOX:
        return ObjectShape(_check_box(numbers), confidence=confidence)
    return _read_polygon(numbers, confidence)


def _read_odd(numbers: list[float], form: LineForm) -> ObjectShape:
    """Returns the shape in an odd number of numbers, seven or more."""
    *corners, confidence = numbers
    if form.has_scores and 0 <= confidence <= 1:
        return _read_polygon(corners, confidence)
    return ObjectShape(
        BadCell(
            f"{len(numbers)} numbers are not corners with x and y; is {confidence:g} a confidence?"
        )
    )


def _read_fifth(numbers: list[float], form: LineForm) -> ObjectShape:
    """Returns the box in five numbers."""
    *box, fifth = numbers
    if form.fifth == _CONFIDENCE and 0 <= fifth <= 1:
        return ObjectShape(_check_box(box), confidence=fifth)
    if form.fifth == "track id" and _is_count(fifth):
        return ObjectShape(_check_box(box))
    return ObjectShape(
        BadCell(
            f"{fifth:g} follows a box, but the set does not show whether such numbers are "
            "confidences (0 to 1) or track ids (whole numbers); angles are not read: write rotated "
            "boxes as polygons, with x and y of four corners"
        )
    )


def _read_polygon(corners: list[float], confidence: float = math.nan) -> ObjectShape:
    """Returns a polygon, and the box around it."""
    across = corners[::2]
    down = corners[1::2]
    left = min(across)
    right = max(across)
    top = min(down)
    bottom = max(down)
    if min(left, top) < -_FAR or max(right, bottom) > 1 + _FAR:
        return ObjectShape(_describe_far_corner(corners))
    box = [(left + right) / 2, (top + bottom) / 2, right - left, bottom - top]
    return ObjectShape(box, polygon=corners, confidence=confidence)


def _describe_far_corner(corners: Sequence[float]) -> BadCell:
    outside = [number for number in corners if not -_FAR <= number <= 1 + _FAR]
    return BadCell(
        f"{outside[-1]:g} is not the position of a corner: {_AS_SHARES}; is it the id of a track "
        "after a box and its confidence?"
    )


def _check_box(numbers: list[float]) -> list[float] | BadCell:
    """Returns a box, or a `BadCell` if its center is so far off that it may be in pixels."""
    center = numbers[:2] if len(numbers) == _BOX else []
    for number in center:
        if _FAR_CENTER <= number < math.inf:
            return BadCell(f"{number:g} is not a fraction: {_AS_SHARES}, not pixels")
    return numbers


def _read_keypoints(numbers: list[float], count: str, size: str) -> list[Any] | BadCell:
    """Reads keypoints as x, y and visibility.

    Args:
        numbers: the numbers of the keypoints.
        count: the number of keypoints.
        size: the number of numbers per keypoint.
    """
    num_more = len(numbers) - int(count) * int(size)
    if num_more:
        problem = (
            f"{len(numbers)} keypoint numbers, but `kpt_shape` says {count} keypoints of {size} "
            "numbers each"
        )
        hint = "; are they followed by a confidence?" if num_more in (1, 2) else ""
        return BadCell(problem + hint)
    if size == "3":
        return numbers
    points = zip(numbers[::2], numbers[1::2], strict=True)
    return [[x, y, 0 if min(x, y) < 0 else 2] for x, y in points]
