"""Hostile files, and broken ones by the thousand: what becomes of them, in what time and memory."""

from __future__ import annotations

import io
import json
import os
import random
import signal
import subprocess
import sys
import time
import zlib
from pathlib import Path
from typing import Any

import pytest
from PIL import Image as PillowImage

from beam_tfr import cli
from beam_tfr.images import convert_image, guard, limits
from beam_tfr.options import ImageOptions
from beam_tfr.schema.dataset import ADJUSTMENTS, REJECT_REASONS
from beam_tfr.schema.errors import RejectError
from beam_tfr.schema.items import Image
from tests.fixtures import Fixture, all_fixtures, hostile

ROOT = Path(__file__).parents[1]
PHOTO = next((Path(cli.__file__).parent / "sample").rglob("*.jpg"))
LONGEST_S = 10.0
MOST_MEMORY = 200_000_000  # bytes above that of an ordinary photo
ALLOWED = (
    450_000_000  # of what takes the memory that --max_decode_bytes allows, and some for resizing
)
LEGITIMATE = {"png-10000x10000", "png-16-bit-8000x8000"}


def in_another_process(call: str, timeout: float) -> subprocess.CompletedProcess[str]:
    """Runs a function of this module."""
    return subprocess.run(
        [sys.executable, "-c", f"from tests import test_images_hostile as this; this.{call}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


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


@pytest.fixture(scope="module")
def measured() -> dict[str, list[Any]]:
    run = in_another_process("measure_all()", timeout=250)
    assert run.returncode == 0, run.stderr
    found: dict[str, list[Any]] = json.loads(run.stdout)
    return found


@pytest.mark.slow  # a process for each file; test_every_image converts most of them too
def test_every_hostile_file_comes_out_as_expected(measured: dict[str, list[Any]]) -> None:
    found = {name: (reason, tuple(adjusted)) for name, (reason, adjusted, _, _) in measured.items()}
    expected = {name: fixture[1:3] for name, fixture in hostile.FILES.items()}
    assert found == expected | {name: make()[1:3] for name, make in hostile.MANY.items()}


@pytest.mark.slow
def test_no_hostile_file_takes_long_or_much_memory(measured: dict[str, list[Any]]) -> None:
    assert not {
        name: seconds for name, (_, _, seconds, _) in measured.items() if seconds > LONGEST_S
    }
    above = {name: memory for name, (_, _, _, memory) in measured.items() if memory > MOST_MEMORY}
    assert above.keys() == LEGITIMATE, above  # it shows, too, that memory is measured
    assert max(above.values()) < ALLOWED


def test_hostile_files_are_small() -> None:
    assert sum(len(fixture.data) for fixture in hostile.FILES.values()) < 20_000_000


def test_the_bombs_are_real() -> None:
    """Decoders that know no limits inflate them."""
    assert hostile.zeros(3_000_001) != hostile.zeros(3_000_000)
    for count in (0, 1, 1 << 20, 3_000_001):
        assert zlib.decompress(hostile.zeros(count)) == bytes(count)
    with PillowImage.open(io.BytesIO(hostile.flat_png(3000, 1000))) as image:
        assert image.size == (3000, 1000)
        assert image.getextrema() == ((0, 0),) * 3


# Broken files by the thousand


SEED = 20
VARIANTS = 4000
LARGEST = 300_000  # bytes of a fixture that is varied


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
        assert time.process_time() - started < LONGEST_S


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


@pytest.mark.slow
def test_fuzz() -> None:
    run = in_another_process(f"fuzz({SEED}, {VARIANTS})", timeout=200)
    lines = run.stdout.splitlines()
    assert run.returncode == 0, (
        f"ended with status {run.returncode} at {lines[-1:]}: {run.stderr[-3000:]}"
    )
    said = [json.loads(line) for line in lines]
    assert sum("number" in line for line in said) == VARIANTS
    assert {line["name"].partition("/")[0] for line in said if "name" in line} >= {"hostile"}
    rejects = [line for line in said if "reason" in line]
    assert {line["reason"] for line in rejects} <= REJECT_REASONS.keys()
    assert all(
        line["detail"] and " at 0x" not in line["detail"] for line in rejects
    )  # reports can be compared
    images = said.count("image")
    assert images + len(rejects) == VARIANTS
    assert VARIANTS // 20 < images < VARIANTS * 19 // 20  # neither all broken nor all whole
