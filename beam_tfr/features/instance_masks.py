"""Masks of the objects in an image, one for each box."""

import dataclasses
import json
import re
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from beam_tfr.features.base import ColumnKind, PixelMap, Stored, TensorReading, Values
from beam_tfr.features.box_formats import is_relative
from beam_tfr.features.elements import ElementSpec, Request, StoredExample, count_stored
from beam_tfr.features.gray_png import decode_gray, encode_mask, gray_problems
from beam_tfr.features.polygons import fill_polygons, parse_polygons
from beam_tfr.features.run_lengths import decode_run_lengths, encode_run_lengths
from beam_tfr.features.shapes import Shape, Tint, box_classes
from beam_tfr.schema.errors import RejectError
from beam_tfr.schema.feature_names import HEIGHT, OBJECT_MASK, WIDTH, FeatureSpec

MAX_MASK_BYTES = 1 << 20  # 1 MiB, of the mask of a box as JSON
MASKS_KEY = "masks"  # in elements of readers, and in exported records
_BYTES_A_PIXEL = 3  # of the source and of the record, to decode a mask


@dataclasses.dataclass(frozen=True, kw_only=True)
class InstanceMasks(ColumnKind):
    """A mask for each box: `mask[box]`.

    A reference has them as JSON: COCO's run lengths, or the points of polygons. A record has PNGs
    of 0 and 1, of the size of the image, as TensorFlow's object detection API names them. A polygon
    covers the pixels of the record whose centers are in it; nothing is interpolated.

    Attributes:
        is_relative: whether polygons are shares of the sides of the image, as the boxes are.
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
        return None  # a PNG is no cell of such a column

    # Records

    def place(self, values: Values, pixels: PixelMap, kept: Sequence[int]) -> Values:
        masks = values[OBJECT_MASK][1]
        return {
            OBJECT_MASK: (
                "bytes",
                [self.place_mask(masks[number], number + 1, pixels) for number in kept],
            )
        }

    def place_mask(self, data: bytes, number: int, pixels: PixelMap) -> bytes:
        """Places the mask of a box as its image is placed in the record.

        Args:
            data: its JSON in the reference.
            number: of its box, for messages.
            pixels: where the pixels of the source are in the record.

        Returns:
            A PNG of 0 and 1, of the size of the record.

        Raises:
            RejectError: `bad-value`: it is no mask of this image.
        """
        shape = json.loads(data)
        sides = (pixels.source_size, pixels.size)
        num_pixels = sum(width * height for width, height in sides)
        with pixels.hold_memory(_BYTES_A_PIXEL * num_pixels):
            if isinstance(shape, list):
                return encode_mask(self._draw_polygons(shape, pixels))
            return encode_mask(_place_runs(shape, number, pixels))

    def _draw_polygons(self, points: Sequence[Any], pixels: PixelMap) -> NDArray[np.uint8]:
        corners = np.array(points, np.float64).reshape(-1, 2)
        if self.is_relative:
            corners *= pixels.source_size
        width, height = pixels.size
        mask = np.zeros((height, width), np.uint8)
        left, top, right, bottom = pixels.content
        fill_polygons(pixels.map_points(corners) - (left, top), mask[top:bottom, left:right])
        return mask

    def problems(self, stored: Stored, size: tuple[int, int]) -> Iterator[str]:
        for number, mask in enumerate(stored[OBJECT_MASK], 1):
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
        masks = np.zeros((len(pngs), *size), np.uint8)
        for number, png in enumerate(pngs):
            masks[number] = decode_gray(png, size)
        return {MASKS_KEY: masks}

    def collect_tensors(self, features: MutableMapping[str, Any]) -> dict[str, Any]:
        return {MASKS_KEY: features.pop(OBJECT_MASK)}

    def decode_tensors(self, tensors: Mapping[str, Any], reading: TensorReading) -> dict[str, Any]:
        return {MASKS_KEY: reading.decode_box_pixels(tensors[MASKS_KEY])}

    # Pictures and exports

    @classmethod
    def shapes(cls, stored: Stored) -> Iterator[Shape]:
        masks = stored.get(OBJECT_MASK, ())
        for mask, label in zip(masks, box_classes(stored, len(masks)), strict=False):
            size = stored[HEIGHT][0], stored[WIDTH][0]
            yield Tint(decode_gray(mask, size), label)

    def export(self, stored: Stored) -> dict[str, Any]:
        size = stored[HEIGHT][0], stored[WIDTH][0]
        masks = [encode_run_lengths(decode_gray(png, size)) for png in stored[OBJECT_MASK]]
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
    """The JSON of the mask of a box: its run lengths, or the points of its polygons.

    Raises:
        ValueError: it holds none, or a large one.
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


def _place_runs(runs: Mapping[str, Any], number: int, pixels: PixelMap) -> NDArray[np.uint8]:
    """The mask of a box in a record, given its run lengths.

    Raises:
        RejectError: `bad-value`: they are none of this image.
    """
    width, height = pixels.source_size
    try:
        mask = decode_run_lengths(runs["counts"], runs["size"], (height, width))
    except ValueError as error:
        raise RejectError("bad-value", f"the mask of box {number} {error}") from None
    return pixels.map_pixels(pixels.turn_pixels(mask))
