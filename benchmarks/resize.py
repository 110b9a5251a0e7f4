"""How near `images.resample` comes to LANCZOS, and what it costs, beside OpenCV's AREA and Pillow.

    python benchmarks/resize.py PHOTOS [--size 224x224] [--factors 1.05 1.5 2 4 8 16 1.79x2.38] [--every 1]

Two tables in Markdown. Photos are decoded in full and brought to the size by each kernel, in turns, in one thread.
Zone plates hold every frequency in every direction, in the middle and in a corner; each is reduced to the size by a
factor, or by one for height and another for width.
"""

from __future__ import annotations

import argparse
import pathlib
import time
from collections.abc import Callable

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from beam_tfr.images import resample

Pixels = NDArray[np.uint8]
Size = tuple[int, int]  # height, width
SUFFIX = "**/*.jpg"
FACTORS = (
    "1.05",
    "1.2",
    "1.5",
    "1.79",
    "2",
    "2.5",
    "3",
    "4",
    "4.5",
    "6",
    "9",
    "12",
    "16",
    "1.79x2.38",
    "1.2x6",
    "16x3",
)


def pillow(pixels: Pixels, size: Size, kernel: Image.Resampling) -> Pixels:
    """uint8 [h, w] or [h, w, 3] to a size."""
    return np.asarray(Image.fromarray(pixels).resize(size[::-1], kernel))


def area(pixels: Pixels, size: Size) -> Pixels:
    """As OpenCV does it by default."""
    return np.asarray(cv2.resize(pixels, size[::-1], interpolation=cv2.INTER_AREA), np.uint8)


KERNELS: dict[str, Callable[[Pixels, Size], Pixels]] = {
    "beam_tfr": resample.stretch,
    "OpenCV AREA": area,
    "Pillow BILINEAR": lambda pixels, size: pillow(pixels, size, Image.Resampling.BILINEAR),
    "Pillow BICUBIC": lambda pixels, size: pillow(pixels, size, Image.Resampling.BICUBIC),
}


def parse_size(text: str) -> Size:
    """HEIGHTxWIDTH, or one number for both."""
    height, _, width = text.partition("x")
    return int(height), int(width or height)


def psnr(one: Pixels, other: Pixels) -> float:
    """In dB; at most 99, of equal pixels."""
    squares = float(((one.astype(np.float64) - other) ** 2).mean())
    return float(10 * np.log10(255**2 / squares)) if squares else 99.0


def zone_plate(height: int, width: int, *, corner: bool) -> Pixels:
    """uint8 [height, width, 3]: rings from flat, in the middle or in a corner, to the finest at the (other) edges."""
    y, x = (np.arange(side) - (0 if corner else (side - 1) / 2) for side in (height, width))
    fastest = np.pi / 2 if corner else np.pi
    waves = np.cos(fastest * (y[:, None] ** 2 / height + x**2 / width))
    return np.repeat(np.rint(127.5 + 127.5 * waves).astype(np.uint8)[..., None], 3, 2)


def measure_photos(paths: list[pathlib.Path], size: Size) -> dict[str, list[tuple[float, float, str]]]:
    """Kernel -> (dB against LANCZOS, ms, name) of each photo."""
    found: dict[str, list[tuple[float, float, str]]] = {name: [] for name in KERNELS}
    turns = list(KERNELS)
    for path in paths:
        with Image.open(path) as photo:
            pixels = np.asarray(photo.convert("RGB"))
        ideal = pillow(pixels, size, Image.Resampling.LANCZOS)
        turns.append(turns.pop(0))  # who comes first finds the pixels cold
        for name in turns:
            started = time.perf_counter()
            result = KERNELS[name](pixels, size)
            spent_ms = (time.perf_counter() - started) * 1e3
            found[name].append((psnr(result, ideal), spent_ms, path.name))
    return found


def report_photos(paths: list[pathlib.Path], size: Size) -> str:
    found = measure_photos(paths, size)
    cost = {name: float(np.median([ms for _, ms, _ in rows])) for name, rows in found.items()}
    lines = [
        f"{len(paths):,} photos to {size[0]}x{size[1]}, in dB against LANCZOS",
        "",
        "| | mean dB | worst dB | of | median ms | time, beam_tfr = 1 |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name, rows in found.items():
        worst, _, photo = min(rows)
        mean = float(np.mean([near for near, _, _ in rows]))
        lines.append(
            f"| {name} | {mean:.1f} | {worst:.1f} | {photo} | {cost[name]:.2f} | {cost[name] / cost['beam_tfr']:.2f} |"
        )
    return "\n".join(lines)


def report_plates(factors: list[str], size: Size) -> str:
    lines = [
        f"Zone plates to {size[0]}x{size[1]}: the lower dB of middle and corner",
        "",
        f"| factor | {' | '.join(KERNELS)} | |",
        "| --- |" + " --- |" * (len(KERNELS) + 1),
    ]
    for factor in factors:
        down, _, right = factor.partition("x")
        height, width = round(size[0] * float(down)), round(size[1] * float(right or down))
        plates = [zone_plate(height, width, corner=corner) for corner in (False, True)]
        ideal = [pillow(plate, size, Image.Resampling.LANCZOS) for plate in plates]
        near = {
            name: min(psnr(kernel(plate, size), best) for plate, best in zip(plates, ideal, strict=True))
            for name, kernel in KERNELS.items()
        }
        below = "" if near["beam_tfr"] >= near["Pillow BILINEAR"] else "below BILINEAR"
        lines.append(f"| {factor} | {' | '.join(f'{value:.1f}' for value in near.values())} | {below} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="How near to LANCZOS images are resized.", allow_abbrev=False)
    parser.add_argument("photos", type=pathlib.Path, help="folder of JPEGs, in any folders below it")
    parser.add_argument("--size", type=parse_size, default=(224, 224), help="HxW, or one number (default: 224x224)")
    parser.add_argument("--every", type=int, default=1, help="take every so many-th photo (default: 1)")
    parser.add_argument(
        "--factors", nargs="+", default=FACTORS, metavar="F", help="F or FxF, of the zone plates' height and width"
    )
    arguments = parser.parse_args()
    paths = sorted(arguments.photos.glob(SUFFIX))[:: arguments.every]
    if not paths:
        raise SystemExit(f"{arguments.photos}: there is no {SUFFIX} in it")
    print(report_photos(paths, arguments.size), report_plates(arguments.factors, arguments.size), sep="\n\n")


if __name__ == "__main__":
    main()
