"""Images beside each image, such as masks and depth.

Masks belong to its pixels; others form a pair with it.
"""

import dataclasses
import io
import json
import re
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from beam_tfr.features.base import ColumnKind, PixelMap, Stored, TensorReading, Values
from beam_tfr.features.elements import ANY_SIZE, ElementSpec, Request, StoredExample
from beam_tfr.features.gray_png import decode_gray, encode_gray, gray_problems
from beam_tfr.features.shapes import Shape, Tint
from beam_tfr.schema.encodings import FEATURES
from beam_tfr.schema.errors import RejectError
from beam_tfr.schema.feature_names import (
    BOXES,
    HEIGHT,
    LABEL,
    MASK,
    RAW,
    WIDTH,
    FeatureSpec,
)

MASK_KEY = "mask"  # in elements of readers, in exported records, and as NAME of --pair
_OUTSIDE = r"\[(?P<outside>1?[0-9]{1,2}|2[0-4][0-9]|25[0-5])\]"
_PATTERN = re.compile(rf"(?P<key>\w+)=(?P<path>.*?)(?:{_OUTSIDE})?", re.DOTALL)
_BYTES_A_PIXEL = 8  # at most, to decode it
READER_KEYS = ("image", "weight")  # in elements of readers, besides features
# Names that no image of a pair can have: parts of the names of other features of images.
PAIR_RESERVED = (
    *READER_KEYS,
    *sorted({name.split("/")[1] for name in (*FEATURES, RAW, LABEL, BOXES, MASK)}),
)
# By Pillow's mode.
_DTYPES: dict[str, Any] = {"1": np.uint8, "L": np.uint8, "I": np.uint16, "I;16": np.uint16}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Companion(ColumnKind):
    """An image that is stored beside each image, and follows its pixels.

    A reference has its file, unless `path` names it. A record has a gray PNG of the size of the
    stored image, with 16 bits if the source has so many, else 8. Values stay as they are: each
    pixel takes the one under its center.

    Attributes:
        path: its path, with {stem} or {path}, from the folder that keys are relative to; empty if a
            table names it.
        outside: the value where a padded image has no pixels.
        dtypes: modes of Pillow that its file may have -> dtypes of the pixels.
    """

    path: str = ""
    outside: int = 0
    word: ClassVar[str]
    dtypes: ClassVar[Mapping[str, Any]] = _DTYPES

    needs_images = True
    holds_files = True
    follows_pixels = True

    @classmethod
    def from_match(cls, name: str, match: re.Match[str]) -> Self:
        return cls.from_outside(name, int(match["outside"] or 0))

    @classmethod
    def from_outside(cls, name: str, outside: int, path: str = "") -> Self:
        """A companion, given the value where a padded image has no pixels."""
        return cls(name=name, text=f"{cls.word}[{outside}]", outside=outside, path=path)

    @property
    def key(self) -> str:
        """What readers and messages call it."""
        return self.name

    @property
    def feature(self) -> str:
        """The feature that holds it."""
        return f"image/{self.key}/encoded"

    @property
    def is_reserved(self) -> bool:
        """Whether it has a name that it cannot have."""
        return False

    @property
    def is_called_mask(self) -> bool:
        """Whether it is no mask, but has the name under which readers return masks."""
        return False

    @property
    def glob(self) -> str:
        """The pattern of its files."""
        return self.path.replace("{path}", "**/*").replace("{stem}", "*")

    @property
    def specs(self) -> Mapping[str, FeatureSpec]:
        return {self.feature: FeatureSpec("bytes")}

    @property
    def taken_names(self) -> set[str]:
        return {self.feature, self.key}

    @property
    def content_sizes(self) -> tuple[str, ...]:
        return (self.feature,)

    # Cells of tables

    def parse(self, cell: Any) -> list[Any]:
        if cell.problem:
            raise ValueError(cell.problem)
        return [json.dumps(cell).encode()]

    def encode(self, values: list[Any]) -> Values:
        return {self.feature: ("bytes", values)}

    def as_column(self) -> Self:
        return self.from_outside(self.key, self.outside)

    # Records

    def place_image(self, data: bytes, pixels: PixelMap) -> bytes:
        """Places it as its image is placed in the record.

        Args:
            data: a PNG of 1 to 16 bits of the size of the upright source; or of the source as
                stored, if its orientation is ignored.
            pixels: where the pixels of the source are in the record.

        Raises:
            RejectError: `bad-value`: it is no such PNG, or has another size.
        """
        width, height = pixels.shown_size
        with pixels.hold_memory(_BYTES_A_PIXEL * width * height):
            placed = pixels.map_pixels(self._decode_source(data, pixels), outside=self.outside)
        return encode_gray(placed)

    def _decode_source(self, data: bytes, pixels: PixelMap) -> NDArray[Any]:
        from PIL import Image

        try:
            with Image.open(io.BytesIO(data), formats=("PNG",)) as opened:
                _check_size(opened.size, pixels)
                dtype = self.dtypes.get(opened.mode)
                if dtype is None:
                    raise ValueError(
                        f"has pixels of mode {opened.mode}; it must have one gray channel"
                    )
                return np.asarray(opened).astype(dtype, copy=False)
        except Exception as error:  # Pillow raises many
            problem = str(error).partition(" <")[0]
            raise RejectError("bad-value", f"its {self.key}, a PNG, {problem}") from error

    def problems(self, stored: Stored, size: tuple[int, int]) -> Iterator[str]:
        yield from gray_problems(self.key, stored[self.feature][0], size)

    # Readers

    def is_decoded(self, request: Request) -> bool:
        return request.output == "dict"

    def elements(self, request: Request) -> dict[str, ElementSpec]:
        return {self.key: ElementSpec(np.int32, request.image_size or ANY_SIZE)}

    def decode(
        self, example: StoredExample, size: tuple[int, int], request: Request
    ) -> dict[str, Any]:
        return {self.key: decode_gray(example.value(self.feature, "bytes"), size)}

    def collect_tensors(self, features: MutableMapping[str, Any]) -> dict[str, Any]:
        return {self.key: features.pop(self.feature)}

    def decode_tensors(self, tensors: Mapping[str, Any], reading: TensorReading) -> dict[str, Any]:
        return {self.key: reading.decode_pixels(tensors[self.key])}

    def filler(self, size: tuple[int, int]) -> dict[str, bytes]:
        return {self.feature: encode_gray(np.zeros(size, np.uint8))}


@dataclasses.dataclass(frozen=True, kw_only=True)
class SegmentationMask(Companion):
    """The class of each pixel, also as the indices of a palette: `mask[255]`.

    It has the name that TensorFlow's DeepLab gives it.
    """

    declaration = re.compile(rf"mask(?:{_OUTSIDE})?")
    usage = "mask"
    word = "mask"
    noun = "masks"
    is_unique = True
    marks_places = True
    dtypes: ClassVar[Mapping[str, Any]] = {**_DTYPES, "P": np.uint8}

    @property
    def key(self) -> str:
        return MASK_KEY

    @property
    def feature(self) -> str:
        return MASK

    @classmethod
    def is_drawn(cls, stored: Stored) -> bool:
        return MASK in stored

    @classmethod
    def shapes(cls, stored: Stored) -> Iterator[Shape]:
        for mask in stored.get(MASK, ()):
            size = stored[HEIGHT][0], stored[WIDTH][0]
            yield Tint(decode_gray(mask, size))

    @property
    def exported_files(self) -> tuple[str, ...]:
        return (self.key,)

    def export_files(self, stored: Stored) -> dict[str, bytes]:
        return {self.key: stored[self.feature][0]}


@dataclasses.dataclass(frozen=True, kw_only=True)
class PairedImage(Companion):
    """Another image of a pair, such as depth or infrared: `pair[0]`."""

    declaration = re.compile(rf"pair(?:{_OUTSIDE})?")
    usage = "pair"
    word = "pair"
    noun = "pairs"

    @property
    def is_reserved(self) -> bool:
        return self.name in PAIR_RESERVED

    @property
    def is_called_mask(self) -> bool:
        return self.name == MASK_KEY


def _check_size(size: tuple[int, int], pixels: PixelMap) -> None:
    """Checks that an image has the (width, height) of that beside which it is.

    Raises:
        ValueError: it has not.
    """
    if size != pixels.shown_size:
        cause = ": it ignores EXIF orientation" if size == pixels.stored_size else ""
        raise ValueError(f"has {size} pixels, the image {pixels.shown_size}{cause}")


def find_pair_conflict(companions: Sequence[Companion]) -> str:
    """Why images cannot have all of these images beside them; empty if they can."""
    if any(companion.is_called_mask for companion in companions):
        return f"must not name a pair {MASK_KEY}; a mask is declared by {MASK_KEY}:mask"
    keys = [companion.key for companion in companions]
    reserved = [companion for companion in companions if companion.is_reserved]
    if reserved or len({*keys}) < len(keys):
        return f"must have each name of a pair once, and none of: {', '.join(PAIR_RESERVED)}"
    return ""


def parse_pair(text: str) -> Companion:
    """The companion of `--pair NAME=PATH[OUTSIDE]`.

    Raises:
        ValueError: the text is none.
    """
    match = _PATTERN.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r:.100} is no NAME=PATH")
    kind = SegmentationMask if match["key"] == MASK_KEY else PairedImage
    return kind.from_outside(match["key"], int(match["outside"] or 0), match["path"])
