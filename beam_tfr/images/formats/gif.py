"""GIF (89a): Pillow decodes the first frame, cut out so that it sees neither comments nor later
frames."""

import contextlib
import struct
from typing import Any

import numpy as np
from PIL import Image as PillowImage

from beam_tfr.images.containers import gif
from beam_tfr.images.formats import general
from beam_tfr.images.formats.depth import drop_if_opaque
from beam_tfr.images.source import Decoded, Source, reject_damage
from beam_tfr.schema.errors import RejectError

_PROFILE = b"\x0bICCRGBG1012"  # of an application extension (ICC.1, annex B.7)
_FILLS = (91, 164, 0)
_PIXEL_BYTES = 8  # indices (twice, when the end is not sure), colors, transparency


def open_gif(data: bytes) -> Source:
    """Opens the first frame of a GIF.

    Raises:
        RejectError: `damaged-image`.
    """
    blocks = gif.blocks(data)
    head = next(blocks).whole
    control = b""
    profile = b""
    for block in blocks:
        if block.kind == gif.IMAGE:
            break
        if block.kind == gif.CONTROL:
            control = block.content
        elif block.kind == gif.APPLICATION and block.whole.startswith(_PROFILE, 2):
            profile = block.content[len(_PROFILE) - 1 :]
    else:
        raise RejectError("damaged-image", "GIF: without a picture")
    left, top, width, height = struct.unpack_from("<4H", block.whole, 1)
    # Without its control extension: transparency is ours, so that pixels which are missing are seen
    # to be.
    frame = head + block.whole + b";"
    source = general.source_of(general.open_image(frame, "GIF"))
    source.memory = lambda _: _PIXEL_BYTES * source.height * source.width
    clear = control[3] if len(control) > 3 and control[0] & 1 else -1

    def decode(_: tuple[int, int] | None) -> Decoded:
        box = (left, top, min(left + width, source.width), min(top + height, source.height))
        with reject_damage("GIF"):
            image = _load_whole(frame, *box[1:])
            pixels = general.converted(image, "L" if image.mode == "L" else "RGB")
        inside = np.s_[box[1] : box[3], box[0] : box[2]]
        alpha = np.zeros(
            (source.height, source.width), np.uint8
        )  # what a frame does not cover is transparent
        np.not_equal(np.asarray(image)[inside], clear, out=alpha[inside].view(bool))
        alpha *= 255
        return Decoded(pixels=pixels, alpha=drop_if_opaque(alpha), profile=profile)

    source.decode = decode
    with contextlib.suppress(RejectError):  # the file may be cut after the first frame
        source.frames += any(block.kind == gif.IMAGE for block in blocks)
    return source


def _load_whole(data: bytes, top: int, right: int, bottom: int) -> Any:
    """Loads an image and checks that all pixels are in the file, since Pillow does not report
    missing ones.

    The memory is filled before. Where a last pixel is as before, another filling shows whether it
    was written.

    Args:
        data: a whole file.
        top, right, bottom: of what the file must fill.

    Raises:
        RejectError: `damaged-image`.
    """
    for fill in _FILLS:
        image: Any = general.open_image(data, "GIF")
        image.im = PillowImage.new(image.mode, image.size, fill).im
        image.load()
        # The last pixel to come is in the last row, or if rows are interlaced in the last odd one.
        last = [image.getpixel((right - 1, row)) for row in (bottom - 1, bottom - 2) if row >= top]
        if fill not in last:
            return image
    raise RejectError("damaged-image", "GIF: the pixels end before the last row")
