"""Large sound images, and what converting them takes: memory and time over an ordinary conversion.

python -m tests.large_images [NUMBER]   measures the grid, or so many cases of it, and prints each
"""

from __future__ import annotations

import dataclasses
import io
import json
import os
import random
import struct
import sys
import tempfile
import traceback
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image as PillowImage

from beam_tfr.images import convert_image, guard
from beam_tfr.schema.errors import RejectError
from tests.cpu_limit import SLOWER
from tests.fixtures import chunk
from tests.fixtures.hostile import LONG, SHORT, png, tiff, zeros

# What docs/reliability.md says: bytes over an ordinary conversion, and besides for each byte of the
# encoded image; seconds of the processor.
MOST_MEMORY = 750_000_000
ENCODED_COPIES = 3
LONGEST_S = 10.0
ORDINARY = (400, 533)  # height and width of the image that a conversion is compared with
Maker = Callable[[int, int, int], bytes]  # height, width, orientation -> a file


class Kind(NamedTuple):
    """A kind of files.

    Attributes:
        make: makes one.
        most_pixels: that the limits allow by default.
        most_side: that the format allows.
    """

    make: Maker
    most_pixels: int = 100_000_000
    most_side: int = 1_000_000


def exif(orientation: int) -> bytes:
    """A block that says the orientation, and nothing else."""
    return tiff((0x0112, SHORT, 1, orientation))


def make_png(color: int, bits: int = 8) -> Maker:
    """Black, and with alpha transparent."""
    samples = {0: 1, 2: 3, 4: 2, 6: 4}[color]

    def make(height: int, width: int, orientation: int) -> bytes:
        row_bytes = 1 + -(-width * samples * bits // 8)
        turned = chunk(b"eXIf", exif(orientation))
        return png(width, height, zeros(height * row_bytes), turned, bits=bits, color=color)

    return make


def noise(height: int, width: int, channels: int) -> np.ndarray:
    """Tiles of noise: uint8 [h, w, c]."""
    tile = np.random.default_rng(1).integers(0, 256, (64, 64, channels), dtype=np.uint8)
    return np.tile(tile, (-(-height // 64), -(-width // 64), 1))[:height, :width]


def make_pillow(form: str, mode: str = "RGB", **options: Any) -> Maker:
    """Noise, as Pillow saves it."""

    def make(height: int, width: int, orientation: int) -> bytes:
        channels = len(PillowImage.new(mode, (1, 1)).getbands())
        # WebP takes half a minute for noise
        pixels = np.zeros((height, width, channels), np.uint8)
        if form != "WEBP":
            pixels = noise(height, width, channels)
        about = PillowImage.Exif()
        about[0x0112] = orientation
        turned = {} if form == "GIF" else {"exif": about}
        file = io.BytesIO()
        shape = pixels.shape if mode in ("RGB", "RGBA", "CMYK") else pixels.shape[:2]
        PillowImage.fromarray(pixels.reshape(shape), mode).save(file, form, **turned, **options)
        return file.getvalue()

    return make


def make_tiff(samples: int, bits: int, photometric: int) -> Maker:
    """Black: all strips are the same compressed one."""

    def make(height: int, width: int, orientation: int) -> bytes:
        rows = max(1, 4_000_000 // (width * samples * bits // 8))
        rows = max(divisor for divisor in range(1, rows + 1) if height % divisor == 0)
        strip = zlib.compress(bytes(rows * -(-width * samples * bits // 8)), 9)
        count = height // rows
        entries = [
            (256, LONG, 1, width),
            (257, LONG, 1, height),
            (258, SHORT, samples, bits),
            (259, SHORT, 1, 8),
            (262, SHORT, 1, photometric),
            (273, LONG, count, 0),
            (274, SHORT, 1, orientation),
            (277, SHORT, 1, samples),
            (278, LONG, 1, rows),
            (279, LONG, count, len(strip)),
        ]
        end = 14 + 12 * len(entries)
        behind = struct.pack(f"<{samples}H", *[bits] * samples)
        if samples > 2:
            entries[2] = (258, SHORT, samples, end)
        strip_at = end + len(behind)
        behind += strip
        if count == 1:
            entries[5] = (273, LONG, 1, strip_at)
        else:
            entries[5] = (273, LONG, count, end + len(behind))
            entries[9] = (279, LONG, count, end + len(behind) + 4 * count)
            behind += struct.pack("<I", strip_at) * count + struct.pack("<I", len(strip)) * count
        return tiff(*entries, behind=behind)

    return make


def make_run_lengths(height: int, width: int, _: int) -> bytes:
    """A run-length BMP of one color."""
    full, rest = divmod(width, 255)
    row = b"\xff\x01" * full + bytes((rest, 1)) * (rest > 0) + b"\0\0"
    pixels = row * height + b"\0\1"
    palette = bytes(range(256)) * 4
    about = struct.pack("<IiiHHIIiiII", 40, width, height, 1, 8, 1, len(pixels), 0, 0, 256, 0)
    start = 14 + 40 + len(palette)
    return b"BM" + struct.pack("<IHHI", start + len(pixels), 0, 0, start) + about + palette + pixels


KINDS = {
    "png": Kind(make_png(2)),
    "png gray": Kind(make_png(0)),
    "png gray alpha": Kind(make_png(4), 66_000_000),
    "png alpha": Kind(make_png(6), 80_000_000),
    "png 16 bit": Kind(make_png(2, 16), 66_000_000),
    "jpeg": Kind(make_pillow("JPEG", quality=30), most_side=65_500),
    "jpeg gray": Kind(make_pillow("JPEG", "L", quality=30), most_side=65_500),
    "jpeg cmyk": Kind(make_pillow("JPEG", "CMYK", quality=10), most_side=65_500),
    "tiff": Kind(make_tiff(3, 8, 2)),
    "tiff cmyk": Kind(make_tiff(4, 8, 5)),
    "tiff 16 bit": Kind(make_tiff(3, 16, 2), 66_000_000),
    "tiff 1 bit": Kind(make_tiff(1, 1, 1), 50_000_000),
    "bmp": Kind(make_run_lengths),
    "gif": Kind(make_pillow("GIF", "P"), 50_000_000, 65_535),
    "webp": Kind(make_pillow("WEBP", lossless=True, method=0), 57_000_000, 16_383),
    "webp lossy": Kind(make_pillow("WEBP", method=0), 100_000_000, 16_383),
}
ASPECTS = (1.0, 1.48, 1 / 1.48, 43.3, 1 / 43.3, 408.0, 1 / 408, 10_000.0)  # width / height
RESIZES: tuple[dict[str, Any], ...] = (
    {"resize": "crop", "image_size": 224},
    {"resize": "crop", "image_size": 1024},
    {"resize": "crop", "image_size": 8000},
    {"resize": "shortest", "image_size": 224},
    {"resize": "shortest", "image_size": 2000},
    {"resize": "fit", "image_size": 1024},
    {"resize": "pad", "image_size": 8192},
    {"resize": "pad", "image_size": 8192, "upscale": True},
    {"resize": "stretch", "image_size": (512, 2048)},
    {"resize": "stretch", "image_size": 8192},
    {"resize": "stretch", "image_size": (8192, 3000)},
    {"resize": "none"},
)
ENCODINGS: tuple[dict[str, Any], ...] = (
    {"encoding": "jpeg"},
    {"encoding": "jpeg", "color": "gray"},
    {"encoding": "png", "color": "keep"},
    {"encoding": "raw"},
    {"encoding": "keep"},
)
SHARES = (1.0, 0.999, 0.5, 0.1)  # of the pixels that the limits allow


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """An image, and how it is converted."""

    kind: str
    height: int
    width: int
    orientation: int = 1
    options: dict[str, Any]

    def __str__(self) -> str:
        said = " ".join(f"{name}={value}" for name, value in self.options.items())
        return f"{self.kind} {self.width}x{self.height} orientation={self.orientation} {said}"


class Cost(NamedTuple):
    """What a conversion took over an ordinary one of the same kind.

    Attributes:
        reason: of the reject; empty if it was converted.
        seconds: of the processor.
        memory: bytes, of this process and its guarded one.
        encoded: bytes of the result.
    """

    reason: str
    seconds: float
    memory: int
    encoded: int

    @property
    def is_bounded(self) -> bool:
        """Whether it keeps what docs/reliability.md says.

        A slow machine, or one with other work, may take longer.
        """
        most_memory = MOST_MEMORY + ENCODED_COPIES * self.encoded
        return self.memory <= most_memory and self.seconds <= SLOWER * LONGEST_S

    def __str__(self) -> str:
        spent = f"{self.memory / 1e6:6.0f} MB {self.seconds:6.2f} s"
        return f"{spent} {self.reason or f'{self.encoded / 1e6:.0f} MB encoded'}"


def _case(kind: str, width: int, height: int, orientation: int = 1, **options: Any) -> Case:
    return Case(kind=kind, height=height, width=width, orientation=orientation, options=options)


# The most expensive ones that were found, and those that made copies of all that was decoded.
WORST = (
    _case("png", 65_000, 1500, resize="crop", image_size=224),
    _case("png", 200_000, 490, resize="shortest", image_size=224),
    _case("png", 12_000, 8100, resize="fit", image_size=1024),
    _case("png", 1_000_000, 100, resize="shortest", image_size=99, encoding="png"),
    _case("png", 100, 1_000_000, resize="shortest", image_size=99, encoding="png"),
    _case("png gray", 10_000, 10_000, resize="none", encoding="png"),
    _case("png alpha", 8900, 8900, 6, resize="none", encoding="png"),
    _case("png alpha", 8000, 8000, resize="pad", image_size=8192, upscale=True),
    _case("jpeg", 10_000, 10_000, resize="stretch", image_size=8192),
    _case("jpeg", 10_000, 10_000, 6, resize="none", encoding="raw"),
    _case("jpeg", 8000, 8000, 6, resize="stretch", image_size=8192),
    _case("jpeg", 2100, 30_000, resize="stretch", image_size=8192),
    _case("jpeg", 30_000, 2100, resize="stretch", image_size=8192),
    _case("jpeg cmyk", 9000, 9000, resize="none", encoding="png"),
    _case("tiff", 10_000, 10_000, 6, resize="none", encoding="png"),
    _case("tiff 16 bit", 8000, 8000, 6, resize="none", encoding="raw"),
    _case("gif", 7000, 7000, resize="stretch", image_size=8192),
    _case("bmp", 10_000, 10_000, resize="pad", image_size=8192, encoding="png"),
)


def draw_case(dice: random.Random) -> Case:
    """A case of the grid."""
    name = dice.choice(sorted(KINDS))
    kind = KINDS[name]
    aspect = dice.choice(ASPECTS)
    pixels = int(kind.most_pixels * dice.choice(SHARES))
    height = max(1, min(kind.most_side, int((pixels / aspect) ** 0.5)))
    width = max(1, min(kind.most_side, pixels // height))
    options = {**dice.choice(RESIZES), **dice.choice(ENCODINGS)}
    orientation = dice.choice((1, 1, 3, 6))
    return Case(kind=name, height=height, width=width, orientation=orientation, options=options)


def draw_grid(number: int, seed: int = 1) -> Iterator[Case]:
    dice = random.Random(seed)
    for _ in range(number):
        yield draw_case(dice)


def measure_cost(case: Case) -> Cost:
    """Converts an image of a case in a process of its own, and an ordinary one before."""
    kind = KINDS[case.kind]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "large")
        _in_child(lambda: path.write_bytes(kind.make(case.height, case.width, case.orientation)))
        ordinary = kind.make(*ORDINARY, 1)
        return Cost(*json.loads(_in_child(lambda: _convert_both(ordinary, path, case.options))))


def _convert_both(ordinary: bytes, path: Path, options: dict[str, Any]) -> str:
    convert_image(ordinary)
    before = _peak_bytes()
    started = _cpu_s()
    reason = ""
    encoded = 0
    try:
        encoded = len(convert_image(path.read_bytes(), **options).encoded)
    except RejectError as error:
        reason = error.reason
    cost = Cost(reason, _cpu_s() - started, _peak_bytes() - before, encoded)
    vars(guard._thread).clear()
    return json.dumps(cost)


def _in_child(function: Callable[[], Any]) -> str:
    """What a function returns in a process of its own, as text."""
    reader, writer = os.pipe()
    process = os.fork()
    if not process:
        try:
            os.write(writer, str(function()).encode())
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, encoding="utf-8") as answer:
        text = answer.read()
    os.waitpid(process, 0)
    return text


def _processes() -> list[int]:
    """This process, and its guarded one."""
    guarded = getattr(guard._thread, "process", None)
    return [os.getpid()] + ([guarded.process.pid] if guarded else [])


def _peak_bytes() -> int:
    """The most memory that these processes have had, together."""
    statuses = [Path(f"/proc/{process}/status").read_text() for process in _processes()]
    peaks = [status.partition("VmHWM:")[2].split()[0] for status in statuses]
    return 1024 * sum(map(int, peaks))


def _cpu_s() -> float:
    stats = [Path(f"/proc/{process}/stat").read_text() for process in _processes()]
    ticks = [sum(map(int, stat.rpartition(")")[2].split()[11:13])) for stat in stats]
    return sum(ticks) / os.sysconf("SC_CLK_TCK")


def measure_all(number: int, seed: int) -> Iterator[tuple[Case, Cost]]:
    """Measures the worst cases, and so many of the grid."""
    for case in (*WORST, *draw_grid(number, seed)):
        yield case, measure_cost(case)


def main(number: int, seed: int = 1) -> int:
    """Prints what each case takes; returns whether one takes too much."""
    has_failed = False
    for case, cost in measure_all(number, seed):
        mark = "" if cost.is_bounded else "  TOO MUCH"
        has_failed |= not cost.is_bounded
        print(f"{cost}  {case}{mark}", flush=True)
    return int(has_failed)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
