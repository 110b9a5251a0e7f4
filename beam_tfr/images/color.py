"""Converts images with CMYK, profiles or transparency to sRGB or gray.

LittleCMS applies profiles (ICC.1:2022) with relative colorimetric intent and black point
compensation (ISO 18619), as Photoshop does by default: colors within sRGB's gamut are kept, others
are clipped, white becomes white, and the deepest black becomes black. Results differ from the exact
colors by a CIEDE2000 of at most 1, or 2 for CMYK profiles.
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

from beam_tfr.images.blocks import reuse_memory, row_blocks
from beam_tfr.images.source import Pixels

Color = tuple[int, int, int]  # sRGB

# Larger profiles are ignored; a JPEG can hold no more, and real ones have up to 5 MB.
MAX_PROFILE_BYTES = 1 << 24
TOLERANCE = 2  # levels of 255 by which versions of sRGB differ; LittleCMS itself rounds by one
_MAX_TAGS = 100  # LittleCMS rejects profiles with more
_CACHED = 32  # effects of profiles to keep; the effect of a CMYK profile takes 2 MB
_STRIP = 1 << 16  # pixels to process together: the only copy of a large image is its result
# Color space of a profile (ICC.1:2022, 7.2.6) -> Pillow's mode.
_MODES = {"GRAY": "L", "RGB": "RGB", "CMYK": "CMYK"}
# Classes of profiles (7.2.5) that define what pixel values mean.
_CLASSES = ("mntr", "scnr", "prtr", "spac")
_LEVELS = np.arange(0, 256, 17, dtype=np.uint8)
_LATTICE = np.stack(np.meshgrid(_LEVELS, _LEVELS, _LEVELS), -1).reshape(64, 64, 3)  # all of RGB
_GRAYS = np.arange(256, dtype=np.uint8)[None, :, None]
_INTENT = ImageCms.Intent.RELATIVE_COLORIMETRIC
# Threads share a transform, so it must not cache.
_FLAGS = ImageCms.Flags.BLACKPOINTCOMPENSATION | ImageCms.Flags.NOCACHE
# Slow but exact, for 256 grays.
_GRAY_FLAGS = _FLAGS | ImageCms.Flags.NOOPTIMIZE


class _Effect(NamedTuple):
    """The effect of a profile on pixels.

    Attributes:
        transform: converts pixels with this profile to sRGB.
        changes: number of channels to which the profile applies -> whether the change is visible.
        grays: uint8 [1, 256, 1 or 3]: the 256 grays after conversion, in one channel if all of them
            stay gray; None for CMYK.
    """

    transform: ImageCms.ImageCmsTransform
    changes: dict[int, bool]
    grays: Pixels | None

    def apply(self, pixels: Pixels, *, may_overwrite: bool = False) -> Pixels:
        if self.grays is None or pixels.shape[2] == 3:
            return _transform(pixels, self.transform, may_overwrite=may_overwrite)
        return _look_up(pixels, self.grays, may_overwrite=may_overwrite)


_effects: collections.OrderedDict[bytes, _Effect | None] = collections.OrderedDict()
_lock = threading.Lock()


def composite(pixels: Pixels, alpha: Pixels, background: Color) -> Pixels:
    """Blends pixels with a background.

    The result is exactly round((alpha * pixel + (255 - alpha) * background) / 255).

    Args:
        pixels: gray or sRGB [h, w, 1 or 3].
        alpha: [h, w]; 0 shows the background.
        background: sRGB color.

    Returns:
        Pixels [h, w, 1 or 3]: gray pixels stay gray if the background is gray.
    """
    is_gray = pixels.shape[2] == 1 and len(set(background)) == 1
    if is_gray:
        mode = "L"
        channels = 1
    else:
        mode = "RGB"
        channels = 3
        pixels = to_channels(pixels, "rgb")

    def composite_strip(strip: Pixels, mask: Pixels) -> PillowImage.Image:
        below = PillowImage.new(mode, (len(strip), 1), background[:channels])
        below.paste(_as_image(strip, mode), mask=_as_image(mask, "L"))
        return below

    return _by_strips(pixels, channels, composite_strip, alpha[..., None])


def composite_to_srgb(
    pixels: Pixels, alpha: Pixels, profile: bytes, background: Color, *, convert: bool
) -> tuple[Pixels, tuple[str, ...]]:
    """Converts colors to sRGB, as used by the background, and blends them with the background.

    The result uses the memory of `pixels`, unless it has a different number of channels.

    Args:
        pixels, profile, convert: as in `to_srgb`.
        alpha, background: as in `composite`.

    Returns:
        The same values as `to_srgb`.
    """
    result = pixels
    notes: tuple[str, ...] = ()
    for rows in row_blocks(*pixels.shape[:2]):
        block, notes = to_srgb(pixels[rows], profile, convert=convert)
        block = composite(block, alpha[rows], background)
        if block.shape[2] != result.shape[2]:
            result = np.empty((*alpha.shape, block.shape[2]), np.uint8)
        result[rows] = block
    return result, notes


def to_srgb(
    pixels: Pixels, profile: bytes, *, convert: bool, may_overwrite: bool = False
) -> tuple[Pixels, tuple[str, ...]]:
    """Converts gray, RGB or CMYK [h, w, 1, 3 or 4] to gray or sRGB [h, w, 1 or 3].

    CMYK without a profile becomes round((255 - ink) * (255 - black) / 255), as in CSS Color 5 and
    libjpeg-turbo. PDF's formula, 255 - ink - black, loses dark details.

    Args:
        pixels: the pixels of one image.
        profile: ICC profile, or empty bytes. The profile is ignored if it is broken, larger than
            `MAX_PROFILE_BYTES`, or for other channels; a profile for RGB also applies to gray, as
            RGB with equal values.
        convert: whether to apply the profile; if not, the pixels are treated as sRGB.
        may_overwrite: whether the result may use the memory of the pixels.

    Returns:
        The pixels, and the members of `schema.dataset.ADJUSTMENTS` that apply.
    """
    channels = pixels.shape[2]
    notes: tuple[str, ...] = ()
    is_cmyk = channels == 4
    if is_cmyk:
        notes += ("cmyk-converted",)
    if convert and profile:
        effect = _find_effect(profile)
        if effect is None or channels not in effect.changes:
            notes += ("profile-ignored",)
        elif effect.changes[channels]:
            converted = effect.apply(pixels, may_overwrite=may_overwrite)
            return converted, (*notes, "profile-converted")
    if is_cmyk:
        pixels = _by_strips(pixels, 3, _mix_inks, may_overwrite=may_overwrite)
    return pixels, notes


def _mix_inks(strip: Pixels) -> PillowImage.Image:
    return _as_image(strip, "CMYK").convert("RGB")


def _look_up(pixels: Pixels, grays: Pixels, *, may_overwrite: bool) -> Pixels:
    """Replaces each gray in pixels [h, w, 1] with its color in `_Effect.grays`."""
    channels = grays.shape[2]
    color = "gray" if channels == 1 else "rgb"

    def look_up_strip(strip: Pixels) -> Pixels:
        return np.asarray(cv2.LUT(to_channels(strip[None], color), grays), np.uint8)

    return _by_strips(pixels, channels, look_up_strip, may_overwrite=may_overwrite)


def to_channels(pixels: Pixels, color: str) -> Pixels:
    """Converts gray or sRGB [h, w, 1 or 3] to the channels that --color requests.

    "rgb" gives [h, w, 3], "gray" gives [h, w, 1], and "keep" changes nothing. Gray is 0.299 R +
    0.587 G + 0.114 B (ITU-R BT.601-7, 2.5.1) in steps of 1 / 65536, rounded, like Pillow's "L".
    """
    if color == "rgb" and pixels.shape[2] == 1:
        gray = pixels[..., 0]
        merged = cv2.merge([gray, gray, gray])
        return np.asarray(merged, np.uint8).reshape(*pixels.shape[:2], 3)
    if color == "gray" and pixels.shape[2] == 3:
        return _by_strips(pixels, 1, lambda strip: _as_image(strip, "RGB").convert("L"))
    return pixels


def is_srgb(profile: bytes) -> bool:
    """Whether a profile has no visible effect.

    Such a profile is empty, a version of sRGB, or a gray profile with the curve of sRGB.
    """
    if not profile:
        return True
    effect = _find_effect(profile)
    return effect is not None and not any(effect.changes.values())


def convert_background(background: Color, channels: int) -> tuple[int, ...]:
    """Converts an sRGB color to 1 or 3 channels."""
    if channels == 3:
        return background
    pixel = np.array([[background]], np.uint8)
    gray = to_channels(pixel, "gray")
    return (int(gray.item()),)


def _find_effect(profile: bytes) -> _Effect | None:
    """Returns the effect of a profile, or None if the profile cannot be used.

    The process caches the effects of the profiles that it used most recently.
    """
    if len(profile) > MAX_PROFILE_BYTES:
        return None
    digest = hashlib.sha256(profile).digest()
    with _lock:
        if digest not in _effects:
            _effects[digest] = _measure_effect(profile)
            if len(_effects) > _CACHED:
                _effects.popitem(last=False)
        _effects.move_to_end(digest)
        return _effects[digest]


def _measure_effect(profile: bytes) -> _Effect | None:
    """Converts some colors to see what a profile does; returns None for an unusable profile."""
    try:
        transform = _make_transform(_safe_profile(profile))
    except (OSError, ValueError):  # LittleCMS rejects the profile
        return None
    mode = transform.input_mode
    if mode == "CMYK":
        return _Effect(transform=transform, changes={4: True}, grays=None)
    if mode == "L":
        grays = _transform(_GRAYS, transform)
        changes = {1: _differ(grays, _GRAYS)}
    else:
        grays = _transform(to_channels(_GRAYS, "rgb"), transform)
        lattice = _transform(_LATTICE, transform)
        changes = {1: _differ(grays, _GRAYS), 3: _differ(lattice, _LATTICE)}
    if not _differ(grays, grays[..., 1:2]):
        grays = to_channels(grays, "gray")
    return _Effect(transform=transform, changes=changes, grays=grays)


def _make_transform(profile: bytes) -> ImageCms.ImageCmsTransform:
    """Creates the transform from the colors of a profile to sRGB.

    Raises:
        OSError, ValueError: the profile is broken, or of a kind that is not for images.
    """
    source = ImageCms.ImageCmsProfile(io.BytesIO(profile))
    mode = _MODES.get(source.profile.xcolor_space.strip())
    if mode is None or source.profile.device_class not in _CLASSES:
        raise ValueError("not a profile of images")
    srgb = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB"))
    flags = _GRAY_FLAGS if mode == "L" else _FLAGS
    return ImageCms.ImageCmsTransform(source, srgb, mode, "RGB", _INTENT, flags=flags)


def _differ(pixels: Pixels, others: Pixels) -> bool:
    """Whether pixels differ visibly."""
    differences = np.abs(pixels.astype(int) - others)
    return int(differences.max()) > TOLERANCE


def _safe_profile(profile: bytes) -> bytes:
    """Limits the work that a profile can cause in LittleCMS, according to the size of the profile.

    Hides the optional tables of floats (D2B0 to D2B3): a table of 80 kB can hold ten thousand steps
    for every color, which take 19 s.

    Raises:
        ValueError: a table claims more colors than the profile has bytes. LittleCMS would allocate
            up to 1 GB for them.
    """
    safe = bytearray(profile)
    tags = min(int.from_bytes(profile[128:132], "big"), _MAX_TAGS)
    for tag in range(132, 132 + 12 * tags, 12):
        if safe[tag : tag + 3] == b"D2B":
            safe[tag] = ord("d")
        start = int.from_bytes(profile[tag + 4 : tag + 8], "big")
        if _claimed_bytes(profile, start) > max(0, len(profile) - start):
            raise ValueError(f"a table at {start} that is longer than the profile")
    return bytes(safe)


def _claimed_bytes(profile: bytes, start: int) -> int:
    """Computes how many bytes of colors the table at an offset claims to have.

    See ICC.1:2022, 10.10 to 10.13.
    """
    kind = profile[start : start + 4]
    header = profile[start + 8 : start + 28]
    if len(header) < 20:
        return 0
    match kind:
        case b"mft1":
            return _claimed_colors(header)
        case b"mft2":
            return 2 * _claimed_colors(header)
        case b"mAB " | b"mBA ":
            offset = int.from_bytes(header[16:], "big")
            if offset:
                return _claimed_by_curves(profile, start + offset, header[0], header[1])
    return 0


def _claimed_colors(header: bytes) -> int:
    """Computes how many numbers the table of a lutType claims to have."""
    inputs, outputs, points = header[:3]
    return int(points**inputs) * outputs


def _claimed_by_curves(profile: bytes, start: int, inputs: int, outputs: int) -> int:
    """Computes how many bytes the table of a lutAToBType or lutBToAType claims to have."""
    sides = profile[start : start + inputs]
    bytes_each = profile[start + 16 : start + 17]
    return math.prod(sides) * outputs * sum(bytes_each)


def _transform(
    pixels: Pixels, transform: ImageCms.ImageCmsTransform, *, may_overwrite: bool = False
) -> Pixels:
    """Converts pixels [h, w, 1, 3 or 4] to sRGB [h, w, 3]."""

    def transform_strip(strip: Pixels) -> PillowImage.Image:
        return transform.apply(_as_image(strip, transform.input_mode))

    return _by_strips(pixels, 3, transform_strip, may_overwrite=may_overwrite)


def _as_image(strip: Pixels, mode: str) -> PillowImage.Image:
    """Wraps pixels [n, channels] as an image with one row."""
    contiguous = np.ascontiguousarray(strip)  # mirrored pixels are not contiguous
    return PillowImage.frombuffer(mode, (len(strip), 1), contiguous, "raw", mode, 0, 1)


def _by_strips(
    pixels: Pixels,
    channels: int,
    change: Callable[..., PillowImage.Image | Pixels],
    *others: Pixels,
    may_overwrite: bool = False,
) -> Pixels:
    """Applies a function to pixels, strip by strip.

    Args:
        pixels: [h, w, c].
        channels: number of channels of the result.
        change: function that makes an image of n pixels from n pixels, [n, c], and the same part of
            each of `others`.
        others: further arrays, which are divided into the same strips.
        may_overwrite: whether the result may use the memory of the pixels.

    Returns:
        Pixels [h, w, channels].
    """
    flats = [argument.reshape(-1, argument.shape[2]) for argument in (pixels, *others)]
    shape = (*pixels.shape[:2], channels)
    result = reuse_memory(shape, pixels) if may_overwrite else np.empty(shape, np.uint8)
    flat_result = result.reshape(-1, channels)
    for start in range(0, len(flat_result), _STRIP):
        rows = slice(start, start + _STRIP)
        strips = [flat[rows] for flat in flats]
        flat_result[rows] = np.asarray(change(*strips)).reshape(-1, channels)
    return result
