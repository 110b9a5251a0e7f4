"""The options that say how an image is decoded, resized and encoded, and which images are rejected."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from numbers import Integral
from typing import Any, NoReturn

from beam_tfr.options import parsers
from beam_tfr.options.table import LIMITS, LOOK, MIB, Checked, check_range, is_int, is_number, option, options_of
from beam_tfr.schema import UsageError
from beam_tfr.schema.features import IMAGE_ENCODINGS, OTHER_ENCODINGS

MAX_SIDE = 1 << 13  # pixels of --image_size
WHITE = (255, 255, 255)
OF_ALL_FILES = ("encoding", "max_file_bytes")  # the others apply to images only
VARIABLE_SIZES = ("fit", "shortest", "none")  # values of --resize that produce images of different sizes
_look = functools.partial(option, group=LOOK)
_limit = functools.partial(option, group=LIMITS)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageOptions(Checked):
    """How images are decoded, resized and encoded, and which are rejected.

    Raises:
        UsageError: a value is not allowed, or an option has no effect beside the others.
    """

    image_size: tuple[int, int] = _look(
        (224, 224),
        help="height x width in pixels, or one number for both",
        metavar="HxW",
        parse=parsers.image_size,
        show="224x224",
        example="299",
    )
    resize: str = _look(
        "crop",
        help="how to resize images whose aspect ratio differs. crop: fill the size and keep the middle; pad: fit, then "
        "pad with --background; stretch: ignore the aspect ratio; fit: shrink to fit inside the size; shortest: scale "
        "the shorter side to the size, which must be square; none: keep all pixels",
        choices=("crop", "pad", "stretch", "fit", "shortest", "none"),
        example="pad",
    )
    upscale: bool = _look(False, help="let --resize fit and pad enlarge small images")
    background: tuple[int, int, int] = _look(
        WHITE,
        help="color behind transparent pixels and around padded images: #RRGGBB, white, black, gray",
        metavar="COLOR",
        parse=parsers.color,
        show="white",
    )
    color: str = _look(
        "rgb",
        help="color of the stored image: rgb (3 channels), gray (1), or keep (1 for gray images, else 3)",
        choices=("rgb", "gray", "keep"),
    )
    icc: str = _look(
        "convert",
        help="what to do with embedded color profiles: convert to sRGB, or ignore them and assume sRGB",
        choices=("convert", "ignore"),
    )
    ignore_orientation: bool = _look(False, help="do not apply the EXIF orientation")
    frames: str = _look(
        "first",
        help="what to do with animations and multi-page files: take the first frame, or reject them",
        choices=("first", "reject"),
    )
    damaged: str = _look(
        "reject",
        help="what to do with JPEGs that end early or have stray bytes in their header: reject them, or keep those "
        "with at least --damaged_share of their rows",
        choices=("reject", "keep"),
    )
    damaged_share: float = _look(
        0.95, help="with --damaged keep: share of the rows that must be present", metavar="SHARE", parse=parsers.number
    )
    encoding: str = _look(
        "",  # not given: row for tables without --uri_column, else jpeg
        help="how to store images. raw: a serialized uint8 tensor; keep: the bytes of the file if its size is right "
        "and TensorFlow can decode it, else re-encoded; bytes: files of any kind, unchanged; array: .npy files as "
        "serialized tensors; row: table rows without files (default: jpeg, or row for --table without --uri_column)",
        choices=IMAGE_ENCODINGS + OTHER_ENCODINGS,
        example="png",
    )
    quality: int = _look(90, help="quality of JPEG and WebP, 1 to 100", metavar="N", parse=parsers.integer)
    chroma: str = _look(
        "420", help="chroma of JPEG: halved in both directions (4:2:0), or full (4:4:4)", choices=("420", "444")
    )
    keep_all: bool = _look(
        False,
        help="with --encoding keep --resize none: keep every valid JPEG, even if TensorFlow would misread it (rotated "
        "by EXIF, CMYK, or in another color space)",
    )
    strip_metadata: bool = _look(
        False,
        help="with --encoding keep: remove EXIF (location, camera, thumbnail), XMP and comments; pixels are unchanged",
    )
    max_file_bytes: int = _limit(
        64 * MIB, help="reject larger files", metavar="BYTES", parse=parsers.number_of_bytes, show="64MiB"
    )
    max_pixels: int = _limit(
        100_000_000,
        help="reject images with more pixels, according to their headers",
        metavar="N",
        parse=parsers.integer,
    )
    max_decode_bytes: int = _limit(
        400_000_000,
        help="reject images that take more memory to decode, according to their headers",
        metavar="BYTES",
        parse=parsers.number_of_bytes,
        show="400MB",
    )
    max_scan_pixels: int = _limit(
        1_000_000_000,
        help="reject progressive JPEGs with more scans x pixels: each scan takes time, and a small file can have "
        "thousands",
        metavar="N",
        parse=parsers.integer,
    )
    min_pixels: int = _limit(1, help="reject images with fewer pixels", metavar="N", parse=parsers.integer)
    max_aspect: float | None = _limit(
        None,
        help="reject images whose longer side exceeds the shorter by more than this factor (default: no limit)",
        metavar="RATIO",
        parse=parsers.number,
    )
    max_decode_s: float | None = _limit(
        None,
        help="reject images that take longer to decode; decodes each in a guarded process, and makes the rejects "
        "depend on how busy the machine is (default: no limit)",
        metavar="SECONDS",
        parse=parsers.number,
    )

    def __post_init__(self) -> None:
        self.normalize("encoding", self.encoding or "jpeg")
        self.check_kinds()
        size: Any = self.image_size
        size = (size, size) if isinstance(size, Integral) else size
        self.normalize("image_size", _tuple("image_size", size, parsers.image_size))
        self.normalize("background", _tuple("background", self.background, parsers.color))
        if len(self.image_size) != 2 or not all(is_int(side) and 1 <= side <= MAX_SIDE for side in self.image_size):
            allowed = f"must be height x width, each from 1 to {MAX_SIDE} pixels, such as 224x224"
            raise UsageError(allowed, option="image_size", value=self._size())
        if len(self.background) != 3 or not all(is_int(part) and 0 <= part <= 255 for part in self.background):
            self.refuse("background", "must be red, green and blue, each from 0 to 255")
        check_range("quality", self.quality, 1, 100)
        for name, most in (
            ("max_file_bytes", 1 << 31),
            ("max_pixels", 1 << 30),
            ("max_decode_bytes", 1 << 36),
            ("max_scan_pixels", 1 << 50),
        ):
            check_range(name, getattr(self, name), 1, most)
        check_range("min_pixels", self.min_pixels, 1, self.max_pixels)
        if not is_number(self.damaged_share) or not 0 < self.damaged_share <= 1:
            self.refuse("damaged_share", "must be a number above 0 and at most 1")
        self.normalize("damaged_share", float(self.damaged_share))
        for name, least in (("max_aspect", 1.0), ("max_decode_s", 0.001)):
            if (value := getattr(self, name)) is not None:
                if not is_number(value) or not least <= value < math.inf:
                    self.refuse(name, f"must be a number, {least:g} or more")
                self.normalize(name, float(value))
        self._check_effects()

    def _check_effects(self) -> None:
        """Checks that every given option has an effect.

        Raises:
            UsageError: one has no effect beside the others.
        """
        if self.encoding in OTHER_ENCODINGS:
            for name in options_of(ImageOptions):
                if name not in OF_ALL_FILES and getattr(self, name) != getattr(ImageOptions, name):
                    self._no_effect(name, "encoding", "it applies to images only")
            return
        if self.resize == "shortest" and self.image_size[0] != self.image_size[1]:
            cure = "`resize=shortest` takes one size for the shorter side, such as 256"
            raise UsageError(cure, option="image_size", value=self._size())
        for name, beside, values, cure in _EFFECTS:
            if getattr(self, name) != getattr(ImageOptions, name) and getattr(self, beside) not in values:
                self._no_effect(name, beside, cure)
        if self.encoding == "webp" and self.color != "rgb":
            self.refuse("color", "WebP holds color images only; use `encoding=jpeg`, png or raw")

    def _size(self) -> str:
        """The size as on the command line, where one number stands for two equal ones."""
        first = self.image_size[:1]
        return "x".join(map(str, first if self.image_size == first * 2 else self.image_size))

    def _no_effect(self, name: str, beside: str, cure: str) -> NoReturn:
        raise UsageError(f"`{name}=` has no effect with `{beside}={getattr(self, beside)}`: {cure}")

    def image_options(self) -> ImageOptions:
        """The image options of an object that may have more."""
        return ImageOptions(**{name: getattr(self, name) for name in options_of(ImageOptions)})


# Option; another one, and its values beside which the first has an effect; what to say beside others.
_EFFECTS = (
    ("upscale", "resize", ("fit", "pad"), "it applies to fit and pad"),
    ("damaged_share", "damaged", ("keep",), "use `damaged=keep`"),
    ("quality", "encoding", ("jpeg", "webp", "keep"), "it applies to jpeg, webp and keep"),
    ("chroma", "encoding", ("jpeg", "keep"), "it applies to jpeg and keep"),
    ("chroma", "color", ("rgb", "keep"), "gray images have no chroma"),
    ("keep_all", "encoding", ("keep",), "use `encoding=keep`"),
    ("strip_metadata", "encoding", ("keep",), "use `encoding=keep`"),
    ("keep_all", "resize", ("none",), "use `resize=none`"),
)


def _tuple(name: str, value: Any, parse: Callable[[str], tuple[int, ...]]) -> tuple[Any, ...]:
    """A tuple of Python integers from command-line text, a list or tuple, also of NumPy integers."""
    if isinstance(value, str):
        try:
            return parse(value)
        except ValueError as error:
            raise UsageError(str(error), option=name, value=value) from None
    if not isinstance(value, (tuple, list)):
        raise UsageError("must be a tuple of whole numbers, or text as on the command line", option=name, value=value)
    return tuple(int(part) if isinstance(part, Integral) and not isinstance(part, bool) else part for part in value)
