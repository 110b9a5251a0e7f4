"""Defines the options for images: decoding, resizing, encoding and rejecting."""

import dataclasses
import functools
import math

from beam_tfr.options import kinds
from beam_tfr.options.groups import LIMITS, LOOK
from beam_tfr.options.table import Checked, option
from beam_tfr.schema.encodings import IMAGE_ENCODINGS, OTHER_ENCODINGS

MAX_SIDE = 1 << 13  # pixels of --image_size
WHITE = (255, 255, 255)
DEFAULT_RESIZE = "crop"
_look = functools.partial(option, group=LOOK, images_only=True)
_limit = functools.partial(option, group=LIMITS, images_only=True, low=1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageOptions(Checked):
    """The options that control how images are decoded, resized, encoded and rejected.

    Raises:
        UsageError: a value is not allowed, or an option has no effect with the other options.
    """

    image_size: tuple[int, int] = _look(
        (224, 224),
        help="height x width in pixels, or one number for both",
        brief="height x width in pixels, or one number for both (default: 224x224)",
        kind=kinds.SIZE,
        low=1,
        high=MAX_SIDE,
        show="224x224",
    )
    resize: str = _look(
        "",  # not set: crop, or pad if columns or masks mark parts that crop would cut off
        help="how to resize images with a different aspect ratio. crop: keep the middle; "
        "pad: add margins in the color of --background; stretch: ignore the aspect "
        "ratio; fit: shrink to fit inside the size; shortest: scale the shorter side; "
        "none: keep all pixels (default: crop; pad with boxes, points or masks)",
        brief="how to resize images with a different aspect ratio: crop, pad, stretch, fit (shrink "
        "to fit inside the size), shortest (scale the shorter side) or none (keep all pixels) "
        "(default: crop; pad with boxes, points or masks)",
        choices=("crop", "pad", "stretch", "fit", "shortest", "none"),
    )
    upscale: bool = _look(
        False,
        help="let --resize fit and pad enlarge small images",
        only_with={"resize": ("fit", "pad")},
    )
    background: tuple[int, int, int] = _look(
        WHITE,
        help="color behind transparent pixels and around padded images: #RRGGBB, white, black, "
        "gray",
        kind=kinds.COLOR,
        show="white",
    )
    color: str = _look(
        "rgb",
        help="color of the stored image: rgb (3 channels), gray (1), or keep (1 for gray images, "
        "else 3)",
        choices=("rgb", "gray", "keep"),
    )
    icc: str = _look(
        "convert",
        help="what to do with embedded color profiles: convert to sRGB, or ignore them and assume "
        "sRGB",
        choices=("convert", "ignore"),
    )
    ignore_orientation: bool = _look(
        False,
        help="do not apply the EXIF orientation",
    )
    frames: str = _look(
        "first",
        help="what to do with animations and multi-page files: take the first frame, or reject "
        "them",
        choices=("first", "reject"),
    )
    damaged: str = _look(
        "reject",
        help="what to do with JPEGs that end early or have stray bytes in their header: reject "
        "them, or keep those with at least 95% of their rows",
        choices=("reject", "keep"),
    )
    encoding: str = option(
        "",  # not set: row for tables without --uri_column, else jpeg
        help="how to store images. raw: a serialized uint8 tensor; keep: the file's bytes, "
        "if the image needs no change. For other input, bytes: files of any kind; "
        "array: .npy files; row: table rows without files (default: jpeg, or row for "
        "--table without --uri_column)",
        brief="how to store images: jpeg, png, webp, raw pixels, or keep (the bytes of the file if "
        "it needs no resizing, as with --resize none); or other files: bytes, array (.npy), row "
        "(of a table) (default: jpeg)",
        choices=IMAGE_ENCODINGS + OTHER_ENCODINGS,
        group=LOOK,
    )
    quality: int = _look(
        90,
        help="quality of JPEG and WebP, 1 to 100",
        low=1,
        high=100,
        only_with={"encoding": ("jpeg", "webp", "keep")},
    )
    chroma: str = _look(
        "420",
        help="color resolution of JPEG. 420: half in both directions, for photos; 444: full, "
        "for drawings, text and small colored marks",
        choices=("420", "444"),
        only_with={"encoding": ("jpeg", "keep"), "color": ("rgb", "keep")},
    )
    max_file_bytes: int = option(
        64 << 20,
        help="reject larger files before they are read completely",
        kind=kinds.BYTES,
        low=1,
        high=1 << 31,
        show="64MiB",
        group=LIMITS,
    )
    max_pixels: int = _limit(
        100_000_000,
        help="reject images with more pixels, according to their headers; raise it together "
        "with --max_decode_bytes for scans and maps",
        high=1 << 30,
    )
    max_decode_bytes: int = _limit(
        400_000_000,
        help="reject images that would take more memory to decode, according to their headers; "
        "also the limit for all images that are decoded at the same time",
        kind=kinds.BYTES,
        high=1 << 36,
        show="400MB",
    )
    min_pixels: int = _limit(1, help="reject images with fewer pixels", high=1 << 30)
    max_aspect: float | None = _limit(
        None,
        help="reject images whose longer side is more than this many times the shorter one "
        "(default: no limit)",
        kind=kinds.NUMBER,
        metavar="RATIO",
    )

    def complete_options(self) -> None:
        self.set_option("encoding", self.encoding or "jpeg")
        if self.encoding in IMAGE_ENCODINGS:
            self.set_option("resize", self.resize or DEFAULT_RESIZE)

    def check_combination(self) -> None:
        if self.resize == "shortest" and self.image_size[0] != self.image_size[1]:
            self.refuse(
                "image_size",
                "`resize=shortest` needs a single size for the shorter side, such as 256",
            )
        if self.encoding == "webp" and self.color != "rgb":
            self.refuse("color", "WebP stores only color images; use `encoding=jpeg`, png or raw")
        if self.min_pixels > self.max_pixels:
            self.refuse("min_pixels", f"must be a whole number from 1 to {self.max_pixels}")

    @property
    def stored_size(self) -> tuple[int, int] | None:
        """The height and width of all images in pixels; None if they differ."""
        return None if self.resize in ("fit", "shortest", "none") else self.image_size

    @property
    def most_stored_pixels(self) -> int:
        """The largest number of pixels that a stored image can have."""
        if self.stored_size:
            return math.prod(self.stored_size)
        return max(self.max_pixels, math.prod(self.image_size))

    @property
    def channels(self) -> int:
        """The number of channels of images in readers."""
        return 1 if self.color == "gray" else 3
