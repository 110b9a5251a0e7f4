"""What becomes of each image: the arguments of `images.convert_image`, and flags of `convert`."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from numbers import Integral
from typing import Any, NoReturn

from beam_tfr.options import table
from beam_tfr.options.table import LIMITS, LOOK, MIB, check_kinds, check_range, is_int, option, refuse
from beam_tfr.schema import IMAGE_ENCODINGS, OTHER_ENCODINGS, UsageError

MAX_SIDE = 1 << 13  # pixels of --image_size
WHITE = (255, 255, 255)
OF_ALL_FILES = ("encoding", "max_file_bytes")  # the others are for images alone
VARIABLE_SIZES = ("fit", "shortest", "none")  # values of --resize that leave images of different sizes


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageOptions:
    """How an image is decoded, coloured, resized and encoded, and what is too much; checked.

    Raises:
        UsageError: a value that is not allowed, or two options of which one has no effect.
    """

    image_size: tuple[int, int] = option(
        (224, 224),
        help="height x width in pixels, or one number for both",
        metavar="HxW",
        parse=table.image_size,
        group=LOOK,
        show="224x224",
    )
    resize: str = option(
        "stretch",
        help="how an image of another shape comes to this size. stretch: changes its shape; fit: shrinks it into the "
        "size; crop: covers the size, the middle is kept; pad: fit, then --background around it; shortest: the "
        "shorter side gets the size (of a square), the other side follows; none: all pixels as they are",
        choices=("stretch", "fit", "crop", "pad", "shortest", "none"),
        group=LOOK,
    )
    upscale: bool = option(False, help="fit and pad also enlarge", parse=table.boolean, group=LOOK)
    background: tuple[int, int, int] = option(
        WHITE,
        help="behind transparent pixels, and around padded images: #RRGGBB, white, black, gray",
        metavar="COLOR",
        parse=table.colour,
        group=LOOK,
        show="white",
    )
    color: str = option(
        "rgb",
        help="of the stored image: 3 channels, 1 channel, or 1 for what has no colour and 3 for the rest",
        choices=("rgb", "gray", "keep"),
        group=LOOK,
    )
    icc: str = option(
        "convert",
        help="embedded colour profiles: converted to sRGB, or ignored (numbers are taken for sRGB)",
        choices=("convert", "ignore"),
        group=LOOK,
    )
    ignore_orientation: bool = option(
        False,
        help="leave images as they are stored, whatever EXIF says of their orientation",
        parse=table.boolean,
        group=LOOK,
    )
    frames: str = option(
        "first", help="of animations and files of several pages", choices=("first", "reject"), group=LOOK
    )
    encoding: str = option(
        "",  # not given, which --table without --uri_column must know
        help="of the stored image. raw: a serialized uint8 tensor; keep: the bytes of the file itself where the size "
        "is right and a trainer can decode them, else encoded again; bytes: any files, as they are; array: .npy files "
        "as serialized tensors; row: what --table without --uri_column does (default: jpeg, there row)",
        choices=IMAGE_ENCODINGS + OTHER_ENCODINGS,
        group=LOOK,
    )
    quality: int = option(90, help="of JPEG and WebP, 1 to 100", metavar="N", parse=table.integer, group=LOOK)
    chroma: str = option("420", help="colour resolution of JPEG: halved, or full", choices=("420", "444"), group=LOOK)
    keep_all: bool = option(
        False,
        help="with --encoding keep --resize none: keep every sound JPEG, also those that are turned, CMYK, or of "
        "another colour space, which trainers show wrongly",
        parse=table.boolean,
        group=LOOK,
    )
    strip_metadata: bool = option(
        False,
        help="with --encoding keep: without EXIF (position, camera, thumbnail), XMP and comments; pixels unchanged",
        parse=table.boolean,
        group=LOOK,
    )
    max_file_bytes: int = option(
        64 * MIB,
        help="larger files are rejects",
        metavar="BYTES",
        parse=table.number_of_bytes,
        group=LIMITS,
        show="64MiB",
    )
    max_pixels: int = option(
        100_000_000, help="larger images are rejects, by their headers", metavar="N", parse=table.integer, group=LIMITS
    )
    max_scan_pixels: int = option(
        1_000_000_000,
        help="progressive JPEGs whose scans x pixels are more are rejects: each scan costs time, and a small file can "
        "hold thousands",
        metavar="N",
        parse=table.integer,
        group=LIMITS,
    )
    min_pixels: int = option(1, help="smaller images are rejects", metavar="N", parse=table.integer, group=LIMITS)
    max_aspect: float | None = option(
        None,
        help="images whose longer side is more than so many times the shorter are rejects (default: no limit)",
        metavar="RATIO",
        parse=table.number,
        group=LIMITS,
    )
    max_decode_s: float | None = option(
        None,
        help="images that take longer are rejects, each in a guarded process; what is rejected then depends on the "
        "load of the machine (default: no limit)",
        metavar="SECONDS",
        parse=table.number,
        group=LIMITS,
    )

    def __post_init__(self) -> None:
        self._normalize("encoding", self.encoding or "jpeg")
        check_kinds(self)
        self._normalize("image_size", _tuple("image_size", self.image_size, table.image_size))
        self._normalize("background", _tuple("background", self.background, table.colour))
        if len(self.image_size) != 2 or not all(is_int(side) and 1 <= side <= MAX_SIDE for side in self.image_size):
            shown = "x".join(map(str, self.image_size))
            refuse("image_size", shown, f"must be height x width, each from 1 to {MAX_SIDE} pixels, such as 224x224")
        if len(self.background) != 3 or not all(is_int(part) and 0 <= part <= 255 for part in self.background):
            refuse("background", self.background, "must be red, green and blue, each from 0 to 255")
        check_range("quality", self.quality, 1, 100)
        for name, most in (("max_file_bytes", 1 << 31), ("max_pixels", 1 << 30), ("max_scan_pixels", 1 << 50)):
            check_range(name, getattr(self, name), 1, most)
        check_range("min_pixels", self.min_pixels, 1, self.max_pixels)
        for name, least in (("max_aspect", 1.0), ("max_decode_s", 0.001)):
            self._check_number(name, least)
        self._check_effects()

    def _check_number(self, name: str, least: float) -> None:
        value = getattr(self, name)
        if value is None:
            return
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value < math.inf:
            refuse(name, value, f"must be a number, {least:g} or more")
        self._normalize(name, float(value))

    def _check_effects(self) -> None:
        """
        Raises:
            UsageError: an option is given that changes nothing beside the others.
        """
        if self.encoding in OTHER_ENCODINGS:
            for field in dataclasses.fields(ImageOptions):
                if field.name not in OF_ALL_FILES and getattr(self, field.name) != field.default:
                    self._no_effect(field.name, "encoding", "it is for images")
            return
        if self.resize == "shortest" and self.image_size[0] != self.image_size[1]:
            shown = "x".join(map(str, self.image_size))
            refuse("image_size", shown, "`resize=shortest` takes one size for the shorter side, such as 256")
        if self.upscale and self.resize not in ("fit", "pad"):
            self._no_effect("upscale", "resize", "fit and pad are what it is for")
        if self.quality != 90 and self.encoding not in ("jpeg", "webp", "keep"):
            self._no_effect("quality", "encoding", "it is for jpeg, webp and keep")
        if self.chroma != "420" and self.encoding not in ("jpeg", "keep"):
            self._no_effect("chroma", "encoding", "it is for jpeg and keep")
        if self.chroma != "420" and self.color == "gray":
            self._no_effect("chroma", "color", "gray images have no chroma")
        if self.encoding == "webp" and self.color != "rgb":
            refuse("color", self.color, "WebP holds colour images only; use `encoding=jpeg`, png or raw")
        for name in ("keep_all", "strip_metadata"):
            if getattr(self, name) and self.encoding != "keep":
                self._no_effect(name, "encoding", "use `encoding=keep`")
        if self.keep_all and self.resize != "none":
            self._no_effect("keep_all", "resize", "use `resize=none`")

    def _no_effect(self, flag: str, beside: str, cure: str) -> NoReturn:
        raise UsageError(f"`{flag}=` has no effect with `{beside}={getattr(self, beside)}`: {cure}")

    def _normalize(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def image_options(self) -> ImageOptions:
        """These options alone, of an object that may have more."""
        return ImageOptions(**{field.name: getattr(self, field.name) for field in dataclasses.fields(ImageOptions)})


def _tuple(flag: str, value: Any, parse: Callable[[str, str], tuple[int, ...]]) -> tuple[Any, ...]:
    """Also of a text as on the command line, a list, and NumPy's whole numbers."""
    if isinstance(value, str):
        return parse(flag, value)
    if not isinstance(value, (tuple, list)):
        refuse(flag, value, "must be a tuple of whole numbers, or a text as on the command line")
    return tuple(int(part) if isinstance(part, Integral) and not isinstance(part, bool) else part for part in value)
