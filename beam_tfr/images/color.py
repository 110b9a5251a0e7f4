"""Colours: CMYK, profiles and transparency become sRGB or grey."""

from __future__ import annotations

import numpy as np
from PIL import Image as PillowImage

from beam_tfr.images.source import Pixels


def composite(pixels: Pixels, alpha: Pixels, background: tuple[int, int, int]) -> Pixels:
    """RGB [h, w, 3] over a colour, by alpha [h, w]."""
    rgba = PillowImage.fromarray(np.dstack([pixels, alpha]))
    below = PillowImage.new("RGBA", rgba.size, (*background, 255))
    return np.asarray(PillowImage.alpha_composite(below, rgba).convert("RGB"))


def to_srgb(pixels: Pixels, profile: bytes, *, convert: bool) -> tuple[Pixels, tuple[str, ...]]:
    """Grey, RGB or CMYK [h, w, 1, 3 or 4] to grey or sRGB [h, w, 1 or 3].

    Args:
        pixels: of one image.
        profile: ICC, or empty.
        convert: False takes the numbers for sRGB.

    Returns:
        The pixels, and which of `schema.ADJUSTMENTS` were made.
    """
    if pixels.shape[2] == 4:
        rgb = np.asarray(PillowImage.fromarray(pixels, "CMYK").convert("RGB"))
        return rgb, ("cmyk-converted",)
    return pixels, ()


def to_channels(pixels: Pixels, color: str) -> Pixels:
    """Grey or sRGB [h, w, 1 or 3] to what --color says: "rgb" [h, w, 3], "gray" [h, w, 1], "keep" as they are."""
    if color == "rgb" and pixels.shape[2] == 1:
        return np.repeat(pixels, 3, axis=2)
    if color == "gray" and pixels.shape[2] == 3:
        return np.asarray(PillowImage.fromarray(pixels).convert("L"))[..., None]
    return pixels


def is_srgb(profile: bytes) -> bool:
    """Whether a profile changes nothing visible: none, or sRGB in one of its many versions."""
    return not profile


def background_in(background: tuple[int, int, int], channels: int) -> tuple[int, ...]:
    """A colour of sRGB in the channels of an image."""
    if channels == 3:
        return background
    return (int(to_channels(np.array([[background]], np.uint8), "gray")[0, 0, 0]),)
