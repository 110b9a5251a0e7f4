"""Converts CMYK, profiles and transparency to sRGB or gray.

LittleCMS applies profiles (ICC.1:2022), relative colorimetric with black point compensation (ISO
18619), as Photoshop does by default: colors in sRGB's gamut are kept, others are clipped, white
becomes white and the deepest black becomes black. Results are within a CIEDE2000 of 1 of the exact
colors, for CMYK profiles within 2.
"""

import collections
import hashlib
import io
import math
import threading
from collections.abc import Callable
from typing import NamedTuple

import cv2
import numpy as np
from PIL import Image as PillowImage
from PIL import ImageCms

from beam_tfr.images.source import Pixels

MAX_PROFILE_BYTES = (
    1 << 24
)  # larger ones are ignored; a JPEG can hold no more, and real ones have up to 5 MB
TOLERANCE = 2  # levels of 255 by which versions of sRGB differ; LittleCMS itself rounds by one
_MAX_TAGS = 100  # LittleCMS refuses more
_CACHED = 32  # effects of profiles; that of a CMYK profile takes 2 MB
_STRIP = 1 << 16  # pixels processed at once, so that a large image needs no copy but its result
_MODES = {
    "GRAY": "L",
    "RGB": "RGB",
    "CMYK": "CMYK",
}  # color space of a profile (ICC.1:2022, 7.2.6) -> Pillow's mode
_CLASSES = (
    "mntr",
    "scnr",
    "prtr",
    "spac",
)  # classes of profiles (7.2.5) that define what pixel values mean
_LATTICE = np.stack(np.meshgrid(*[np.arange(0, 256, 17, dtype=np.uint8)] * 3), -1).reshape(
    64, 64, 3
)  # evenly in RGB
_INTENT = ImageCms.Intent.RELATIVE_COLORIMETRIC
_FLAGS = (
    ImageCms.Flags.BLACKPOINTCOMPENSATION | ImageCms.Flags.NOCACHE
)  # threads share a transform: no cache in it


class _Effect(NamedTuple):
    """What a profile does to pixels.

    Attributes:
        transform: from its pixels to sRGB.
        changes: number of channels that it applies to -> whether the change is visible.
        grays: uint8 [1, 256, 1 or 3]: the 256 grays, converted; of 1 channel if all stay gray. None
            for CMYK.
    """

    transform: ImageCms.ImageCmsTransform
    changes: dict[int, bool]
    grays: Pixels | None

    def apply(self, pixels: Pixels) -> Pixels:
        if self.grays is None or pixels.shape[2] == 3:
            return _shown(self.transform, pixels)
        if self.grays.shape[2] == 3:
            pixels = to_channels(pixels, "rgb")
        return np.asarray(cv2.LUT(pixels, self.grays), np.uint8).reshape(pixels.shape)


_effects: collections.OrderedDict[bytes, _Effect | None] = collections.OrderedDict()
_lock = threading.Lock()


def composite(pixels: Pixels, alpha: Pixels, background: tuple[int, int, int]) -> Pixels:
    """Lays pixels over a background: exactly round((alpha * pixel + (255 - alpha) * background) /
    255).

    Args:
        pixels: gray or sRGB [h, w, 1 or 3].
        alpha: [h, w], 0 shows the background.
        background: sRGB color.

    Returns:
        [h, w, 1 or 3]: gray stays gray if the background is gray.
    """
    channels = 1 if pixels.shape[2] == 1 and len(set(background)) == 1 else 3
    pixels = pixels if pixels.shape[2] == channels else to_channels(pixels, "rgb")
    mode = "L" if channels == 1 else "RGB"

    def laid(strip: Pixels, above: Pixels) -> PillowImage.Image:
        below = PillowImage.new(mode, (len(strip), 1), background[:channels])
        below.paste(_as_image(strip, mode), mask=_as_image(above, "L"))
        return below

    return _by_strips(pixels, channels, laid, alpha[..., None])


def to_srgb(pixels: Pixels, profile: bytes, *, convert: bool) -> tuple[Pixels, tuple[str, ...]]:
    """Converts gray, RGB or CMYK [h, w, 1, 3 or 4] to gray or sRGB [h, w, 1 or 3].

    CMYK without a profile becomes round((255 - ink) * (255 - black) / 255), as in CSS Color 5 and
    libjpeg-turbo. The sum that PDF defines, 255 - ink - black, loses dark details.

    Args:
        pixels: of one image.
        profile: ICC, or empty. Ignored if it is broken, larger than `MAX_PROFILE_BYTES`, or for
            other channels; a profile for RGB also applies to gray, as RGB of equal values.
        convert: False takes the pixels to be sRGB already.

    Returns:
        The pixels, and the members of `schema.dataset.ADJUSTMENTS` that apply.
    """
    channels = pixels.shape[2]
    notes: tuple[str, ...] = ("cmyk-converted",) if channels == 4 else ()
    if convert and profile:
        effect = _effect_of(profile)
        if effect is None or channels not in effect.changes:
            notes += ("profile-ignored",)
        elif effect.changes[channels]:
            return effect.apply(pixels), (*notes, "profile-converted")
    if channels == 4:
        pixels = _by_strips(pixels, 3, lambda strip: _as_image(strip, "CMYK").convert("RGB"))
    return pixels, notes


def to_channels(pixels: Pixels, color: str) -> Pixels:
    """Converts gray or sRGB [h, w, 1 or 3] as --color says: "rgb" [h, w, 3], "gray" [h, w, 1],
    "keep" unchanged.

    Gray is 0.299 R + 0.587 G + 0.114 B (ITU-R BT.601-7, 2.5.1) in steps of 1 / 65536, rounded:
    Pillow's "L".
    """
    if color == "rgb" and pixels.shape[2] == 1:
        return cv2.merge([pixels[..., 0]] * 3).reshape(*pixels.shape[:2], 3)  # type: ignore[return-value]
    if color == "gray" and pixels.shape[2] == 3:
        return _by_strips(pixels, 1, lambda strip: _as_image(strip, "RGB").convert("L"))
    return pixels


def is_srgb(profile: bytes) -> bool:
    """True if a profile changes nothing visible: none, a version of sRGB, or gray with the curve of
    sRGB."""
    if not profile:
        return True
    effect = _effect_of(profile)
    return effect is not None and not any(effect.changes.values())


def convert_background(background: tuple[int, int, int], channels: int) -> tuple[int, ...]:
    """Converts a color of sRGB to 1 or 3 channels."""
    if channels == 3:
        return background
    return (int(to_channels(np.array([[background]], np.uint8), "gray")[0, 0, 0]),)


def _effect_of(profile: bytes) -> _Effect | None:
    """The effect of a profile, None if it cannot be used; cached for the latest profiles of the
    process."""
    if len(profile) > MAX_PROFILE_BYTES:
        return None
    digest = hashlib.sha256(profile).digest()
    with _lock:
        if digest not in _effects:
            _effects[digest] = _look_at(profile)
            if len(_effects) > _CACHED:
                _effects.popitem(last=False)
        _effects.move_to_end(digest)
        return _effects[digest]


def _look_at(profile: bytes) -> _Effect | None:
    try:
        source = ImageCms.ImageCmsProfile(io.BytesIO(_safe_profile(profile)))
        mode = _MODES.get(source.profile.xcolor_space.strip())
        if mode is None or source.profile.device_class not in _CLASSES:
            return None
        srgb = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB"))
        flags = (
            _FLAGS | ImageCms.Flags.NOOPTIMIZE if mode == "L" else _FLAGS
        )  # slow but exact, for 256 grays
        transform = ImageCms.ImageCmsTransform(source, srgb, mode, "RGB", _INTENT, flags=flags)
    except (OSError, ValueError):  # what LittleCMS refuses
        return None
    if mode == "CMYK":
        return _Effect(transform=transform, changes={4: True}, grays=None)
    ramp = np.arange(256, dtype=np.uint8)[None, :, None]
    grays = _shown(transform, ramp if mode == "L" else to_channels(ramp, "rgb"))
    changes = {1: _differ(grays, ramp)}
    if mode == "RGB":
        changes[3] = _differ(_shown(transform, _LATTICE), _LATTICE)
    if not _differ(grays, grays[..., 1:2]):
        grays = to_channels(grays, "gray")
    return _Effect(transform=transform, changes=changes, grays=grays)


def _differ(pixels: Pixels, others: Pixels) -> bool:
    return int(np.abs(pixels.astype(int) - others).max()) > TOLERANCE


def _safe_profile(profile: bytes) -> bytes:
    """Bounds the work that a profile can cause LittleCMS, by its size.

    The optional tables of floats (D2B0 to D2B3) are hidden: one of 80 kB can hold ten thousand
    steps for every color, which take 19 s.

    Raises:
        ValueError: a table claims more colors than the profile has bytes; up to 1 GB would be
            allocated for them.
    """
    safe = bytearray(profile)
    tags = min(int.from_bytes(profile[128:132], "big"), _MAX_TAGS)
    for place in range(132, 132 + 12 * tags, 12):
        if safe[place : place + 3] == b"D2B":
            safe[place] = ord("d")
        start = int.from_bytes(profile[place + 4 : place + 8], "big")
        if _claimed(profile, start) > max(0, len(profile) - start):
            raise ValueError(f"a table at {start} that is longer than the profile")
    return bytes(safe)


def _claimed(profile: bytes, start: int) -> int:
    """The size in bytes that a color table claims, for the element at an offset (ICC.1:2022, 10.10
    to 10.13)."""
    kind = profile[start : start + 4]
    head = profile[start + 8 : start + 28]
    if kind in (b"mft1", b"mft2") and len(head) == 20:
        inputs, outputs, points = head[:3]
        return int(points**inputs) * outputs * (1 if kind == b"mft1" else 2)
    if kind in (b"mAB ", b"mBA ") and len(head) == 20:
        table = start + int.from_bytes(head[16:], "big")
        sides = profile[table : table + head[0]]
        width = profile[table + 16 : table + 17]
        return math.prod(sides) * head[1] * sum(width) if table > start else 0
    return 0


def _shown(transform: ImageCms.ImageCmsTransform, pixels: Pixels) -> Pixels:
    """Converts [h, w, 1, 3 or 4] to sRGB [h, w, 3]."""
    return _by_strips(
        pixels, 3, lambda strip: transform.apply(_as_image(strip, transform.input_mode))
    )


def _as_image(strip: Pixels, mode: str) -> PillowImage.Image:
    """Wraps [n, channels] as an image of one row."""
    contiguous = np.ascontiguousarray(strip)  # mirrored pixels are not
    return PillowImage.frombuffer(mode, (len(strip), 1), contiguous, "raw", mode, 0, 1)


def _by_strips(
    pixels: Pixels, channels: int, change: Callable[..., PillowImage.Image], *others: Pixels
) -> Pixels:
    """Applies `change`, from [n, c] of each to an image of n pixels, to [h, w, c]; returns [h, w,
    channels]."""
    flats = [part.reshape(-1, part.shape[2]) for part in (pixels, *others)]
    out = np.empty((len(flats[0]), channels), np.uint8)
    for start in range(0, len(out), _STRIP):
        strip = slice(start, start + _STRIP)
        out[strip] = np.asarray(change(*(flat[strip] for flat in flats))).reshape(-1, channels)
    return out.reshape(*pixels.shape[:2], channels)
