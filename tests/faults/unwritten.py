"""Damaged images whose pixels depend on memory that nobody wrote.

Decoded twice, with different fillings by malloc.
"""

from __future__ import annotations

import collections
import hashlib
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from PIL import Image as PillowImage
from PIL import ImageDraw

from beam_tfr.images import convert_image, formats, limits
from beam_tfr.options import ImageOptions
from beam_tfr.schema.errors import RejectError
from tests.faults.outcome import Outcome
from tests.fixtures import all_fixtures, save

VARIANTS = 500  # a trial
FILLINGS = ("85", "170")  # of memory, by glibc
FAXES = ("group4", "group3", "tiff_ccitt")
LARGEST = 100_000  # bytes of a file
OPTIONS = ImageOptions(resize="none", encoding="png", color="keep", max_pixels=1_000_000)


def sound() -> dict[str, list[bytes]]:
    """Format -> files that become images."""
    found = collections.defaultdict(list)
    for name, fixture in sorted(all_fixtures().items()):
        if fixture.reason or len(fixture.data) > LARGEST or name.startswith("hostile"):
            continue
        found[formats.identify(fixture.data)].append(fixture.data)
    drawing = PillowImage.new("RGB", (256, 256), "white")
    ImageDraw.Draw(drawing).ellipse((20, 30, 200, 240), outline=0, width=9)
    for form in (*FAXES, "tiff_lzw", "tiff_adobe_deflate", "packbits", "lzma", "zstd", "jpeg"):
        found[f"tiff {form}"].append(
            save(drawing.convert("1" if form in FAXES else "RGB"), "TIFF", compression=form)
        )
    return found


def damaged(data: bytes, chance: random.Random) -> bytes:
    """A file with some bytes flipped, zeroed or cut out.

    Mostly they are in its second half, which has the pixels.
    """
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 8))):
        start = chance.randrange(len(data) // chance.choice((2, 8, 1000)), len(data))
        length = min(chance.choice((1, 1, 4, 64)), len(changed) - start)
        match chance.randrange(8):
            case 0:
                del changed[start : start + length]
            case 1:
                changed[start : start + length] = bytes(max(0, length))
            case _ if start < len(changed):
                changed[start] ^= 1 << chance.randrange(8)
    return bytes(changed)


def outcomes(seed: int) -> None:
    """Prints format and outcome of each variant, in a process of its own."""
    limits.MAX_SCAN_PIXELS = 20_000_000
    files = sound()
    for number in range(VARIANTS):
        chance = random.Random(f"unwritten {seed} {number}")
        name = chance.choice(sorted(files))
        data = damaged(chance.choice(files[name]), chance)
        try:
            found = hashlib.sha256(convert_image(data, OPTIONS).encoded).hexdigest()
        except RejectError as error:
            found = error.reason
        print(json.dumps([name, found]))


def trials(_: Path) -> Callable[[int], Outcome]:
    """A function that runs a trial by its seed."""

    def trial(seed: int) -> Outcome:
        started = time.monotonic()
        command = [
            sys.executable,
            "-c",
            f"from tests.faults import unwritten; unwritten.outcomes({seed})",
        ]
        runs = [
            subprocess.run(
                command,
                env={**os.environ, "MALLOC_PERTURB_": filling},
                capture_output=True,
                text=True,
                check=True,
            )
            for filling in FILLINGS
        ]
        lines = [run.stdout.splitlines() for run in runs]
        outcome = Outcome(faults=len(lines[0]))
        for number, (one, other) in enumerate(zip(*lines, strict=True)):
            outcome.kinds[json.loads(one)[0]] += 1
            if one != other:
                outcome.problem(f"variant {number}: {one} {other}")
        outcome.longest_s = time.monotonic() - started
        if "tempfile.tif" in runs[0].stderr or "Decode: " in runs[0].stderr:
            outcome.problem(f"libtiff printed: {runs[0].stderr[:500]}")
        return outcome

    return trial
