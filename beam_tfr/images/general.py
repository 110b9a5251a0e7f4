"""The general way: every format that Pillow reads, first frame."""

from __future__ import annotations

import io
import warnings

import numpy as np
from PIL import Image as PillowImage
from PIL import UnidentifiedImageError

from beam_tfr.images.exif import orientation_of
from beam_tfr.images.source import DECODER_ERRORS, Decoded, Pixels, Source, detail
from beam_tfr.schema import RejectError

PillowImage.MAX_IMAGE_PIXELS = None  # --max_pixels holds, before decoding, as a reject
warnings.filterwarnings("ignore", module=r"PIL\..*")  # odd metadata of single files


def open_any(data: bytes, pillow_format: str) -> Source:
    """Reads the header.

    Args:
        data: a whole file.
        pillow_format: the only one of Pillow's plugins that may look at it.

    Raises:
        RejectError: `damaged-image`.
    """
    try:
        image = PillowImage.open(io.BytesIO(data), formats=(pillow_format,))
    except UnidentifiedImageError:
        raise RejectError("damaged-image", f"{pillow_format}: begins with {data[:16]!r}") from None
    except DECODER_ERRORS as error:
        raise RejectError("damaged-image", f"{pillow_format}: {detail(error)}") from error
    try:
        frames = getattr(image, "n_frames", 1)
    except DECODER_ERRORS:
        frames = 1

    def decode(_: tuple[int, int] | None) -> Decoded:
        with image:
            try:
                image.load()
                return _split(image)
            except DECODER_ERRORS as error:
                raise RejectError("damaged-image", f"{pillow_format}: {detail(error)}") from error

    return Source(
        format=pillow_format.lower(),
        height=image.height,
        width=image.width,
        orientation=orientation_of(image),
        frames=frames,
        decode=decode,
    )


def _split(image: PillowImage.Image) -> Decoded:
    """Colours and transparency of a loaded image."""
    profile = image.info.get("icc_profile") or b""
    bits = 8
    if image.mode.startswith(("I", "F")):
        bits = 16
        image = PillowImage.fromarray(_scale_deep(image))
    if image.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in image.info:
        rgba = np.asarray(image.convert("RGBA"))
        alpha = np.ascontiguousarray(rgba[..., 3])
        return Decoded(
            pixels=np.ascontiguousarray(rgba[..., :3]),
            alpha=None if alpha.min(initial=255) == 255 else alpha,
            profile=profile,
            bits=bits,
        )
    if image.mode in ("1", "L"):
        image = image.convert("L")
    elif image.mode != "CMYK":
        image = image.convert("RGB")
    pixels = np.asarray(image)
    return Decoded(pixels=pixels.reshape(*pixels.shape[:2], -1), profile=profile, bits=bits)


def _scale_deep(image: PillowImage.Image) -> Pixels:
    """8 bit of 16 (integers, whatever range of it they use) or of floats (0 to 1, else 255, else 65535); NaN is 0."""
    deep = np.nan_to_num(np.asarray(image, dtype=np.float32))
    top = 65535.0
    if image.mode == "F":
        top = next((top for top in (1.0, 255.0) if deep.max(initial=0) <= top), top)
    scaled: Pixels = np.clip(deep * np.float32(255.0 / top) + np.float32(0.5), 0, 255).astype(np.uint8)
    return scaled
