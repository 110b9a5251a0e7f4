"""Defines companions: images that are stored with each image, such as masks and depth.

Masks belong to the pixels of their image; other companions form a pair with it.
"""

import dataclasses
import json
import re
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from beam_tfr.features.base import ColumnKind, PixelMap, Stored, TensorReading, Values
from beam_tfr.features.elements import ANY_SIZE, ElementSpec, Request, StoredExample
from beam_tfr.features.gray_png import (
    decode_gray,
    decode_stored,
    encode_gray,
    gray_problems,
)
from beam_tfr.features.handling import Handling, NotGrayError, scale_nearest
from beam_tfr.features.mask_counts import count_masks, mask_statistics
from beam_tfr.features.shapes import Shape, Tint, shown_size
from beam_tfr.schema.beside import HANDLING
from beam_tfr.schema.encodings import FEATURES
from beam_tfr.schema.errors import RejectError
from beam_tfr.schema.feature_names import (
    BOXES,
    LABEL,
    MASK,
    RAW,
    FeatureSpec,
)
from beam_tfr.schema.pair_paths import check_fields, to_glob
from beam_tfr.schema.palettes import Palette
from beam_tfr.schema.plan import Counts

MASK_KEY = "mask"  # in elements of readers, in exported records, and as NAME of --pair
_HANDLING = rf"(?P<handling>{HANDLING})?"
_PATTERN = re.compile(rf"(?P<key>\w+)=(?P<path>.*?){_HANDLING}", re.DOTALL)
NOTHING = b""  # replaces an optional file that is missing
# Members of `schema.dataset.ADJUSTMENTS`.
_SCALED = "pair-scaled"
_MISSING = "pair-missing"
_MERGED = "pair-gray"
_MARGINS_IN_MASK = "margins-in-mask"
READER_KEYS = ("image", "weight")  # in elements of readers, in addition to features
# Names that no image of a pair can have: parts of the names of other image features.
PAIR_RESERVED = (
    *READER_KEYS,
    *sorted({name.split("/")[1] for name in (*FEATURES, RAW, LABEL, BOXES, MASK)}),
)
# Pillow mode -> dtype.
_DTYPES: dict[str, Any] = {"1": np.uint8, "L": np.uint8, "I": np.uint16, "I;16": np.uint16}


class PlacedCompanion(NamedTuple):
    """A companion as stored in its record.

    Attributes:
        encoded: the PNG.
        adjusted: members of `schema.dataset.ADJUSTMENTS` that apply.
        palette: the unnamed palette that the pixels are indices into; None if there is none.
    """

    encoded: bytes
    adjusted: tuple[str, ...] = ()
    palette: Palette | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Companion(ColumnKind):
    """An image that is stored with each image, and follows its pixels.

    A reference holds the path of its file, unless `path` determines it. A record holds a gray PNG
    with the size of the stored image, and with 16 bits if the file has 16 bits, otherwise with 8.
    Values are not interpolated: each pixel gets the value under its center.

    Attributes:
        path: the pattern of its paths, as for `pair_paths`, from the folder that keys are relative
            to; empty if the paths are in a table.
        handling: how to handle its values, its size, and images without this companion.
        dtypes: Pillow modes that its file may have -> dtypes of the pixels.
        note_for_photos: how a message about a file that is not a gray PNG begins.
    """

    path: str = ""
    handling: Handling = Handling()
    word: ClassVar[str]
    note_for_photos: ClassVar[str] = ""
    dtypes: ClassVar[Mapping[str, Any]] = _DTYPES

    needs_images = True
    holds_files = True
    follows_pixels = True

    @classmethod
    def from_match(cls, name: str, match: re.Match[str]) -> Self:
        return cls.from_handling(name, Handling.parse(match["handling"] or ""))

    @classmethod
    def from_handling(cls, name: str, handling: Handling, path: str = "") -> Self:
        """Makes a companion, given how to handle its files."""
        return cls(name=name, text=f"{cls.word}[{handling}]", handling=handling, path=path)

    @property
    def key(self) -> str:
        """The name that readers and messages use for the companion."""
        return self.name

    @property
    def feature(self) -> str:
        """The feature that holds the companion."""
        return f"image/{self.key}/encoded"

    @property
    def is_optional(self) -> bool:
        return self.handling.is_optional

    @property
    def is_reserved(self) -> bool:
        """Whether the companion has a reserved name."""
        return False

    @property
    def is_called_mask(self) -> bool:
        """Whether the companion is not a mask, but has the name that readers use for masks."""
        return False

    @property
    def glob(self) -> str:
        """The pattern that matches its files."""
        return to_glob(self.path)

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
        return self.from_handling(self.key, Handling(outside=self.handling.outside))

    # Records

    def place_image(self, data: bytes, pixels: PixelMap) -> PlacedCompanion:
        """Resizes and crops the companion like its image.

        Args:
            data: `NOTHING`, or a PNG with 1 to 16 bits and the size of the upright source (of the
                source as stored if its orientation is ignored).
            pixels: the mapping from the source to the record.

        Raises:
            RejectError: `bad-value`: the data are not such a PNG, or the PNG has the wrong size.
        """
        outside = self.handling.outside
        width, height = pixels.size
        if data == NOTHING and self.handling.is_optional:
            empty = np.full((height, width), outside, np.uint8)
            return PlacedCompanion(encode_gray(empty), (_MISSING,))
        try:
            file = self.handling.read_pixels(data, pixels, self.dtypes)
        except Exception as error:  # Pillow raises many kinds of errors
            problem = str(error).partition(" <")[0]
            if isinstance(error, NotGrayError):
                problem = self.note_for_photos + problem
            raise RejectError("bad-value", f"its {self.key} {problem}") from error
        values = file.values
        if file.needs_scaling:
            values = scale_nearest(values, pixels.shown_size)
        placed = pixels.map_pixels(values, outside=outside)
        notes = [*self._note_values(placed, pixels)]
        if file.needs_scaling:
            notes.append(_SCALED)
        if file.is_merged:
            notes.append(_MERGED)
        return PlacedCompanion(encode_gray(placed), tuple(notes), file.palette)

    def _note_values(self, placed: NDArray[Any], pixels: PixelMap) -> tuple[str, ...]:
        """Lists the members of `schema.dataset.ADJUSTMENTS` that apply to its values."""
        return ()

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
    """The class of each pixel, or the indices into a palette: `mask[255]`.

    The feature has the name that TensorFlow's DeepLab uses.
    """

    declaration = re.compile(rf"mask{_HANDLING}")
    usage = "mask"
    word = "mask"
    noun = "masks"
    is_unique = True
    marks_places = True
    is_counted = True
    dtypes: ClassVar[Mapping[str, Any]] = {**_DTYPES, "P": np.uint8}

    @property
    def key(self) -> str:
        return MASK_KEY

    @property
    def feature(self) -> str:
        return MASK

    def _note_values(self, placed: NDArray[Any], pixels: PixelMap) -> tuple[str, ...]:
        """Notes whether the mask has the value of the margins, except 0, the usual background."""
        left, top, right, bottom = pixels.content
        outside = self.handling.outside
        if not outside or (right - left, bottom - top) == pixels.size:
            return ()
        if not (placed[top:bottom, left:right] == outside).any():
            return ()
        return (_MARGINS_IN_MASK,)

    def count(self, stored: Stored, source: Stored | None) -> Counts:
        return count_masks(stored)

    def statistics(self, counts: Counts) -> dict[str, Any]:
        return {"masks": mask_statistics(counts)}

    @classmethod
    def is_drawn(cls, stored: Stored) -> bool:
        return MASK in stored

    @classmethod
    def shapes(cls, stored: Stored) -> Iterator[Shape]:
        for mask in stored.get(MASK, ()):
            yield Tint(decode_stored(mask, shown_size(stored)))

    @property
    def exported_files(self) -> tuple[str, ...]:
        return (self.key,)

    def export_files(self, stored: Stored) -> dict[str, bytes]:
        return {self.key: stored[self.feature][0]}


@dataclasses.dataclass(frozen=True, kw_only=True)
class PairedImage(Companion):
    """Another image of a pair, such as a depth map or an infrared image: `pair[0]`."""

    declaration = re.compile(rf"pair{_HANDLING}")
    usage = "pair"
    word = "pair"
    noun = "pairs"
    note_for_photos = (
        "needs a dataset of its own, made with equal options, if it is a color photo; it "
    )

    @property
    def is_reserved(self) -> bool:
        return self.name in PAIR_RESERVED

    @property
    def is_called_mask(self) -> bool:
        return self.name == MASK_KEY


def find_pair_conflict(companions: Sequence[Companion]) -> str:
    """Returns why images cannot have all of these companions, or an empty string if they can."""
    if any(companion.is_called_mask for companion in companions):
        return f"must not name a pair {MASK_KEY}; declare a mask with {MASK_KEY}:mask"
    keys = [companion.key for companion in companions]
    reserved = [companion for companion in companions if companion.is_reserved]
    if reserved or len({*keys}) < len(keys):
        return f"must use each pair name only once, and none of: {', '.join(PAIR_RESERVED)}"
    return ""


def parse_pair(text: str) -> Companion:
    """Parses the companion that `--pair NAME=PATH[255,scale,9=1]` declares.

    Raises:
        ValueError: the string declares no companion.
    """
    match = _PATTERN.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r:.100} is not NAME=PATH")
    check_fields(match["path"])
    kind = SegmentationMask if match["key"] == MASK_KEY else PairedImage
    return kind.from_handling(match["key"], Handling.parse(match["handling"] or ""), match["path"])
