"""Hostile images, and what decoding them may cost."""

from __future__ import annotations

import io
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from PIL import Image as PillowImage

from beam_tfr import cli
from beam_tfr.images import convert_image, guard, limits
from beam_tfr.options import ImageOptions
from beam_tfr.schema.dataset import ADJUSTMENTS
from beam_tfr.schema.errors import RejectError
from beam_tfr.schema.items import Image
from tests.cpu_limit import SLOWER
from tests.fixtures import Fixture, all_fixtures, hostile

ROOT = Path(__file__).parents[1]
LONGEST_S = 10.0


def in_another_process(call: str, timeout: float) -> subprocess.CompletedProcess[str]:
    """Runs a function of this module."""
    return subprocess.run(
        [sys.executable, "-c", f"from tests import hostile_images; hostile_images.{call}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


LARGEST = 300_000  # bytes of a fixture that is varied


def some_options(dice: random.Random) -> ImageOptions:
    """The defaults, or others; never so many pixels that one variant takes long."""
    max_pixels = 1_000_000
    if dice.random() < 0.4:
        return ImageOptions(max_pixels=max_pixels)
    encoding = dice.choice(("jpeg", "png", "webp", "raw", "keep"))
    resize = dice.choice(("stretch", "fit", "crop", "pad", "shortest", "none"))
    return ImageOptions(
        max_pixels=max_pixels,
        image_size=dice.choice(((32, 32), (224, 224))),
        resize=resize,
        upscale=resize in ("fit", "pad") and dice.random() < 0.5,
        color="rgb" if encoding == "webp" else dice.choice(("rgb", "gray", "keep")),
        icc=dice.choice(("convert", "ignore")),
        frames=dice.choice(("first", "reject")),
        ignore_orientation=dice.random() < 0.3,
        encoding=encoding,
    )


PHOTO = next((Path(cli.__file__).parent / "sample").rglob("*.jpg"))


def measure_all() -> None:
    """Prints name -> [reason, adjustments, seconds, bytes above an ordinary photo].

    Each file has its own process.
    """
    _measured(
        Fixture(PHOTO.read_bytes())
    )  # every process begins with all that is loaded for a photo
    convert_image(PHOTO.read_bytes())
    found = {}
    for name in (*hostile.FILES, *hostile.MANY):
        fixture = hostile.FILES[name] if name in hostile.FILES else hostile.MANY[name]()
        ordinary = _measured(Fixture(PHOTO.read_bytes()))[3]
        *rest, memory = _measured(
            fixture
        )  # of the process that needs more: this one, which is larger, or a guarded one
        found[name] = [*rest, memory - ordinary]
    print(json.dumps(found))


def _measured(fixture: Fixture) -> tuple[str, list[str], float, int]:
    reader, writer = os.pipe()
    process = os.fork()
    if not process:
        signal.alarm(60)
        outcome = _outcome(fixture)
        vars(guard._thread).clear()  # ends the guarded process, whose time and memory count
        os.write(writer, json.dumps(outcome).encode())
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as answer:
        text = answer.read()
    _, status, usage = os.wait4(process, 0)
    reason, adjusted = json.loads(text) if text else (f"ended with status {status}", [])
    seconds = usage.ru_utime + usage.ru_stime  # not by the clock: the machine may have other work
    return reason, adjusted, seconds, usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _outcome(fixture: Fixture) -> tuple[str, list[str]]:
    try:
        image = convert_image(fixture.data, name=f"a.{fixture.extension}")
    except RejectError as error:
        return error.reason, []
    except BaseException as error:
        return repr(error), []
    check(image, ImageOptions())
    return "", sorted({*image.adjusted} - {"aspect-changed", "cropped", "enlarged"})


def variant(data: bytes, dice: random.Random) -> bytes:
    """With bytes flipped, cut out, doubled, swapped, or set to what is often special."""
    broken = bytearray(data)
    for _ in range(dice.choice((1, 1, 2, 4, 16))):
        # most of what matters stands at the beginning
        most = len(broken) if dice.random() < 0.5 else min(len(broken), 600)
        start = dice.randrange(max(1, most))
        length = min(dice.choice((1, 1, 2, 4, 8, 64)), len(broken) - start)
        match dice.randrange(6):
            case 0 if broken:
                broken[start] ^= 1 << dice.randrange(8)
            case 1:
                broken[start : start + length] = (
                    dice.choice((b"\0", b"\xff", b"\x7f", b"\x80")) * length
                )
            case 2:
                del broken[start : start + length]
            case 3:
                broken[start:start] = broken[start : start + length]
            case 4:
                other = dice.randrange(max(1, most))
                one, two = broken[start : start + length], broken[other : other + length]
                if len(one) == len(two):
                    broken[start : start + length], broken[other : other + length] = two, one
            case 5 if dice.random() < 0.3:
                del broken[start:]
    return bytes(broken)


def fuzz(seed: int, variants: int) -> None:
    """Prints each variant before it is converted."""
    limits.MAX_SCAN_PIXELS = 20_000_000
    found = sorted(all_fixtures().items())
    files = {name: fixture.data for name, fixture in found if 0 < len(fixture.data) <= LARGEST}
    for number in range(variants):
        dice = random.Random(f"{seed} {number}")
        name = dice.choice(sorted(files))
        data, options = variant(files[name], dice), some_options(dice)
        print(json.dumps({"seed": seed, "number": number, "name": name}), flush=True)
        started = time.process_time()
        try:
            image = convert_image(data, options)
        except RejectError as error:
            print(json.dumps({"reason": error.reason, "detail": error.detail}))
        else:
            check(image, options)
            print(json.dumps("image"))
        assert time.process_time() - started < SLOWER * LONGEST_S


def check(image: Image, options: ImageOptions) -> None:
    """That a trainer can decode it, to what the record says."""
    colorspace = {"L": ("Gray", 1), "RGB": ("RGB", 3), "CMYK": ("CMYK", 4)}
    pixels = image.height * image.width
    if image.format == "raw":
        assert len(image.encoded) > pixels * image.channels
    else:
        with PillowImage.open(io.BytesIO(image.encoded)) as decoded:
            assert decoded.size == (image.width, image.height)
            if options.encoding != "keep":
                decoded.load()
                if image.format != "webp":  # which knows no gray
                    assert colorspace[decoded.mode] == (image.colorspace, image.channels)
    assert image.adjusted == tuple(sorted({*image.adjusted} & ADJUSTMENTS.keys()))
    assert (
        len(image.channel_sums)
        == len(image.channel_squares)
        == (1 if options.color == "gray" else 3)
    )
    for total, squares in zip(image.channel_sums, image.channel_squares, strict=True):
        assert total * total <= pixels * squares  # Cauchy and Schwarz
        assert 0 <= squares <= 255 * total <= 255 * 255 * pixels
