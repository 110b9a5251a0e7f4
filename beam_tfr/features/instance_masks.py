"""Defines masks of the objects in an image, one for each box."""

import dataclasses
import json
import re
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import Any, Self

import numpy as np

from beam_tfr.features.base import ColumnKind, PixelMap, Stored, TensorReading, Values
from beam_tfr.features.box_formats import is_relative
from beam_tfr.features.box_masks import BoxMasks, read_masks
from beam_tfr.features.elements import ElementSpec, Request, StoredExample, count_stored
from beam_tfr.features.gray_png import decode_mask, encode_mask, gray_problems
from beam_tfr.features.pixel_parts import PixelBudget, PixelPart
from beam_tfr.features.polygons import draw_polygons, parse_polygons
from beam_tfr.features.run_lengths import MOST_RUNS, decode_run_lengths, encode_run_lengths
from beam_tfr.features.shapes import Shape, Tint, box_classes, shown_size
from beam_tfr.schema.errors import RejectError
from beam_tfr.schema.feature_names import HEIGHT, OBJECT_MASK, WIDTH, FeatureSpec

MAX_MASK_BYTES = 1 << 20  # 1 MiB for the mask of a box as JSON
MOST_PIXELS = 1 << 33  # 8,590 million: for all masks of an image in its record, and to draw them
MOST_PNG_BYTES = 64 << 20  # 64 MiB for all masks of an image
MASKS_KEY = "masks"  # in elements of readers, and in exported records
_MOST_DRAWN = 1 << 30  # pixels of the masks in a picture


@dataclasses.dataclass(frozen=True, kw_only=True)
class InstanceMasks(ColumnKind):
    """A mask for each box: `mask[box]`.

    A reference holds the masks as JSON: COCO's run lengths, or the points of polygons. A record
    holds PNGs of 0 and 1 with the size of the image, under the name that TensorFlow's object
    detection API uses. A polygon covers the pixels of the record whose centers are in it; nothing
    is interpolated.

    Attributes:
        is_relative: whether polygons, like the boxes, are given in fractions of the sides of the
            image.
    """

    is_relative: bool = False

    declaration = re.compile(r"mask\[box\]")
    usage = "mask[box]"
    noun = "masks of boxes"
    needs_images = True
    is_unique = True
    follows_pixels = True
    marks_places = True
    export_order = 1

    @classmethod
    def from_match(cls, name: str, match: re.Match[str]) -> Self:
        return cls(name=name, text=match.string)

    @property
    def per_box(self) -> bool:
        return True

    @property
    def specs(self) -> Mapping[str, FeatureSpec]:
        return {OBJECT_MASK: FeatureSpec("bytes", (-1,))}

    @property
    def taken_names(self) -> set[str]:
        return {OBJECT_MASK, MASKS_KEY}

    @property
    def content_sizes(self) -> tuple[str, ...]:
        return (OBJECT_MASK,)

    def beside_boxes(self, form: str) -> Self:
        return dataclasses.replace(self, is_relative=is_relative(form))

    # Cells of tables

    def parse(self, cell: Any) -> list[Any]:
        return [_parse_mask(part, number) for number, part in enumerate(self.split(cell), 1)]

    def encode(self, values: list[Any]) -> Values:
        return {OBJECT_MASK: ("bytes", values)}

    def as_column(self) -> None:
        return None  # a PNG is not a cell of such a column

    # Records

    def place(self, values: Values, pixels: PixelMap, kept: Sequence[int]) -> Values:
        """Resizes and crops the masks of boxes like their image.

        Raises:
            RejectError: `bad-value`: a mask does not belong to this image. `masks-too-large`:
                together, the masks need too many pixels or too many bytes.
        """
        if not kept:
            return {OBJECT_MASK: ("bytes", [])}
        masks = values[OBJECT_MASK][1]
        width, height = pixels.size
        source_width, source_height = pixels.source_size
        budget = PixelBudget(MOST_PIXELS)
        budget.spend(len(kept) * width * height)
        # Two parts of the source, one of the record, and the canvas.
        with pixels.hold_memory(2 * source_width * source_height + 2 * width * height):
            canvas = _Canvas(pixels.size)
            pngs = [
                canvas.encode(self._place_mask(masks[number], number + 1, pixels, budget))
                for number in kept
            ]
        return {OBJECT_MASK: ("bytes", pngs)}

    def _place_mask(
        self, data: bytes, number: int, pixels: PixelMap, budget: PixelBudget
    ) -> PixelPart:
        """Returns the part of a record that the mask of a box covers.

        Args:
            data: the mask as JSON, from the reference.
            number: number of the box, for messages.
            pixels: the mapping from the source to the record.
            budget: the number of pixels that may still be drawn.

        Raises:
            RejectError: see `place`.
        """
        shape = json.loads(data)
        if isinstance(shape, list):
            return self._place_polygons(shape, pixels, budget)
        return _place_runs(shape, number, pixels, budget)

    def _place_polygons(
        self, points: Sequence[Any], pixels: PixelMap, budget: PixelBudget
    ) -> PixelPart:
        corners = np.array(points, np.float64).reshape(-1, 2)
        if self.is_relative:
            corners *= pixels.source_size
        left, top, right, bottom = pixels.content
        shown = pixels.map_points(corners) - (left, top)
        part = draw_polygons(shown, (right - left, bottom - top), budget)
        return PixelPart(left + part.left, top + part.top, part.pixels)

    def problems(self, stored: Stored, size: tuple[int, int]) -> Iterator[str]:
        masks = stored[OBJECT_MASK]
        height, width = size
        pixels = len(masks) * height * width
        if pixels > MOST_PIXELS:
            yield f"the masks of its boxes have {pixels:,} pixels, more than {MOST_PIXELS:,}"
            return
        for number, mask in enumerate(masks, 1):
            yield from gray_problems(f"the mask of box {number}", mask, size, highest=1)

    # Readers

    def is_decoded(self, request: Request) -> bool:
        return request.has_objects

    def elements(self, request: Request) -> dict[str, ElementSpec]:
        return {MASKS_KEY: ElementSpec(np.uint8, [-1, *(request.image_size or (1, 1))])}

    def decode(
        self, example: StoredExample, size: tuple[int, int], request: Request
    ) -> dict[str, Any]:
        pngs = example.values(OBJECT_MASK, "bytes", count_stored(example))
        return {MASKS_KEY: read_masks(pngs, size)}

    def collect_tensors(self, features: MutableMapping[str, Any]) -> dict[str, Any]:
        return {MASKS_KEY: features.pop(OBJECT_MASK)}

    def decode_tensors(self, tensors: Mapping[str, Any], reading: TensorReading) -> dict[str, Any]:
        return {MASKS_KEY: reading.decode_box_pixels(tensors[MASKS_KEY])}

    # Pictures and exports

    @classmethod
    def shapes(cls, stored: Stored) -> Iterator[Shape]:
        masks = stored.get(OBJECT_MASK, ())
        if not masks:
            return
        height, width = shown_size(stored)
        most = _MOST_DRAWN // max(1, height * width)
        labels = box_classes(stored, len(masks))
        for mask, label in zip(masks[:most], labels, strict=False):
            yield Tint(decode_mask(mask, (height, width)), label)

    def export(self, stored: Stored) -> dict[str, Any]:
        masks = []
        left = MOST_RUNS
        for mask in BoxMasks(stored[OBJECT_MASK], (stored[HEIGHT][0], stored[WIDTH][0])):
            masks.append(encode_run_lengths(mask, left))
            left -= len(masks[-1]["counts"])
        return {MASKS_KEY: masks}

    def arrow_types(self) -> dict[str, Any]:
        import pyarrow as pa

        numbers = pa.list_(pa.int64())
        return {MASKS_KEY: pa.list_(pa.struct([("size", numbers), ("counts", numbers)]))}

    def annotations(
        self, stored: Stored, about: Mapping[str, Any], size: tuple[int, int]
    ) -> Sequence[dict[str, Any]]:
        return [
            {"segmentation": mask, "area": sum(mask["counts"][1::2])} for mask in about[MASKS_KEY]
        ]


def _parse_mask(part: Any, number: int) -> bytes:
    """Converts the mask of a box to JSON: its run lengths, or the points of its polygons.

    Raises:
        ValueError: the value is not a mask, or is too large.
    """
    try:
        if isinstance(part, dict):
            shape: Any = {"size": part.get("size"), "counts": part.get("counts")}
        else:
            shape = parse_polygons(part)
        text = json.dumps(shape, default=bytes.decode)  # Parquet has bytes
    except (ValueError, TypeError) as error:
        raise ValueError(f"the mask of box {number}: {error}") from None
    if len(text) > MAX_MASK_BYTES:
        raise ValueError(f"the mask of box {number} takes more than {MAX_MASK_BYTES >> 20} MiB")
    return text.encode()


def _place_runs(
    runs: Mapping[str, Any], number: int, pixels: PixelMap, budget: PixelBudget
) -> PixelPart:
    """Returns the part of a record that a mask covers, given its run lengths.

    Raises:
        RejectError: `bad-value`: `counts` are not run lengths of a mask of the image's size;
            `masks-too-large`.
    """
    width, height = pixels.source_size
    try:
        part = decode_run_lengths(runs["counts"], runs["size"], (height, width), budget)
    except ValueError as error:
        raise RejectError("bad-value", f"the mask of box {number} {error}") from None
    return pixels.map_part(part)


class _Canvas:
    """Encodes the masks of an image, one after another.

    Args:
        size: (width, height) of the record.
    """

    def __init__(self, size: tuple[int, int]) -> None:
        width, height = size
        self._pixels = np.zeros((height, width), np.uint8)
        self._num_bytes = 0

    def encode(self, part: PixelPart) -> bytes:
        """Encodes a mask as a PNG with the size of the record.

        Raises:
            RejectError: `masks-too-large`: together, the masks need too many bytes.
        """
        place = part.place_on(self._pixels)
        place[:] = part.pixels
        png = encode_mask(self._pixels)
        place[:] = 0
        self._num_bytes += len(png)
        if self._num_bytes > MOST_PNG_BYTES:
            raise RejectError(
                "masks-too-large",
                f"the masks of its boxes take more than {MOST_PNG_BYTES >> 20} MiB as PNGs; use a "
                "smaller `image_size=`",
            )
        return png
