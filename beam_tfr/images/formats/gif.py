"""Opens GIF (89a): Pillow decodes the first frame.

The first frame is cut out of the file, so Pillow sees neither comments nor other frames.
"""

import contextlib
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from PIL import Image as PillowImage

from beam_tfr.images.containers import gif
from beam_tfr.images.formats import by_pillow
from beam_tfr.images.formats.depth import is_opaque
from beam_tfr.images.source import Decoded, Size, Source, reject_damage
from beam_tfr.schema.errors import RejectError

_PROFILE = b"\x0bICCRGBG1012"  # begins an application extension (ICC.1, annex B.7)
_FILLS = (91, 164, 0)
_PIXEL_BYTES = 8  # indices (twice if the end is uncertain), colors, transparency
_HAS_CLEAR = 1  # flag of a control extension
_NO_COLOR = 256  # an index that no pixel has


class _Box(NamedTuple):
    """The part of the canvas that a frame fills."""

    left: int
    top: int
    right: int
    bottom: int

    @property
    def rows_and_columns(self) -> tuple[slice, slice]:
        return slice(self.top, self.bottom), slice(self.left, self.right)


class _Frame(NamedTuple):
    """The first frame.

    Attributes:
        picture: the block of its picture.
        control: content of the control extension before the picture, or empty bytes.
        profile: ICC profile, or empty bytes.
    """

    picture: bytes
    control: bytes
    profile: bytes

    def box_in(self, height: int, width: int) -> _Box:
        """Returns the part of a canvas of this size that the frame fills."""
        left, top, columns, rows = struct.unpack_from("<4H", self.picture, 1)
        return _Box(left, top, min(left + columns, width), min(top + rows, height))

    @property
    def clear_index(self) -> int:
        """The index of the transparent color; `_NO_COLOR` if there is none."""
        if len(self.control) > 3 and self.control[0] & _HAS_CLEAR:
            return self.control[3]
        return _NO_COLOR


def open_gif(data: bytes) -> Source:
    """Opens the first frame of a GIF.

    Raises:
        RejectError: `damaged-image`.
    """
    blocks = gif.blocks(data)
    head = next(blocks).whole
    frame = _read_frame(blocks)
    # Without its control extension: the transparency is added here, so that missing pixels are
    # noticed.
    file = head + frame.picture + b";"
    image = by_pillow.open_image(file, "GIF")
    height = image.height
    width = image.width

    def decode(_: Size | None) -> Decoded:
        box = frame.box_in(height, width)
        with reject_damage("GIF"):
            loaded = _load_whole(file, box)
            mode = "L" if loaded.mode == "L" else "RGB"
            pixels = by_pillow.convert_samples(loaded, mode)
        alpha = np.zeros((height, width), np.uint8)  # parts outside the frame are transparent
        inside = box.rows_and_columns
        indices = np.asarray(loaded)[inside]
        np.not_equal(indices, frame.clear_index, out=alpha[inside].view(bool))
        alpha *= 255
        return Decoded(
            pixels=pixels,
            alpha=None if is_opaque(alpha) else alpha,
            profile=frame.profile,
        )

    return Source(
        format="gif",
        height=height,
        width=width,
        frames=2 if _has_picture(blocks) else 1,
        decode=decode,
        memory=lambda _: _PIXEL_BYTES * height * width,
    )


def _read_frame(blocks: Iterator[gif.Block]) -> _Frame:
    """Reads the blocks up to the first picture."""
    control = b""
    profile = b""
    for block in blocks:
        match block.kind:
            case gif.IMAGE:
                return _Frame(block.whole, control, profile)
            case gif.CONTROL:
                control = block.content
            case gif.APPLICATION if block.whole.startswith(_PROFILE, 2):
                profile = block.content[len(_PROFILE) - 1 :]
    raise RejectError("damaged-image", "GIF: has no picture")


def _has_picture(blocks: Iterator[gif.Block]) -> bool:
    """Whether blocks contain a picture; the file may be truncated after the first picture."""
    with contextlib.suppress(RejectError):
        return any(block.kind == gif.IMAGE for block in blocks)
    return False


def _load_whole(data: bytes, box: _Box) -> Any:
    """Loads an image and checks that all pixels of a box are in the file.

    Pillow does not report missing pixels, so the memory is filled beforehand. If the last pixel of
    a row still has the fill value, loading again with another fill value shows whether the pixel
    was written.

    Args:
        box: the part of the canvas that the file must fill.
    Raises:
        RejectError: `damaged-image`.
    """
    # The last pixel of the file is in the last row, or the last odd row if rows are interlaced.
    last_rows = range(max(box.top, box.bottom - 2), box.bottom)
    for fill in _FILLS:
        image: Any = by_pillow.open_image(data, "GIF")
        image.im = PillowImage.new(image.mode, image.size, fill).im
        image.load()
        last = [image.getpixel((box.right - 1, row)) for row in last_rows]
        if fill not in last:
            return image
    raise RejectError("damaged-image", "GIF: the pixels end before the last row")
