"""How near resizing comes to LANCZOS, and what it costs, beside OpenCV's AREA and Pillow.

Photos are decoded in full and brought to the size by each kernel, in turns, in one thread. Zone
plates hold every frequency in every direction, in the middle and in a corner; each is reduced to
the size by a factor, or by one for height and another for width.
"""

from __future__ import annotations

import argparse
import pathlib
import time
from collections.abc import Callable, Iterator

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from beam_tfr.images import resample
from benchmarks.measuring import Table
from benchmarks.turns import add_photos, parse_size, photos

Pixels = NDArray[np.uint8]
Size = tuple[int, int]  # height, width
FACTORS = [
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
]


def pillow(pixels: Pixels, size: Size, kernel: Image.Resampling) -> Pixels:
    """uint8 [h, w] or [h, w, 3] to a size."""
    return np.asarray(Image.fromarray(pixels).resize(size[::-1], kernel))


def area(pixels: Pixels, size: Size) -> Pixels:
    """As OpenCV does it by default."""
    return np.asarray(cv2.resize(pixels, size[::-1], interpolation=cv2.INTER_AREA), np.uint8)


KERNELS: dict[str, Callable[[Pixels, Size], Pixels]] = {
    "beam_tfr": resample.resize_window,
    "OpenCV AREA": area,
    "Pillow BILINEAR": lambda pixels, size: pillow(pixels, size, Image.Resampling.BILINEAR),
    "Pillow BICUBIC": lambda pixels, size: pillow(pixels, size, Image.Resampling.BICUBIC),
}


def psnr(one: Pixels, other: Pixels) -> float:
    """In dB; at most 99, of equal pixels."""
    squares = float(((one.astype(np.float64) - other) ** 2).mean())
    return float(10 * np.log10(255**2 / squares)) if squares else 99.0


def zone_plate(height: int, width: int, *, corner: bool) -> Pixels:
    """A picture of rings: uint8 [height, width, 3].

    They go from flat, in the middle or in a corner, to the finest at the (other) edges.
    """
    y, x = (np.arange(side) - (0 if corner else (side - 1) / 2) for side in (height, width))
    fastest = np.pi / 2 if corner else np.pi
    waves = np.cos(fastest * (y[:, None] ** 2 / height + x**2 / width))
    return np.repeat(np.rint(127.5 + 127.5 * waves).astype(np.uint8)[..., None], 3, 2)


def measure_photos(
    paths: list[pathlib.Path], size: Size
) -> dict[str, list[tuple[float, float, str]]]:
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


def rate_photos(paths: list[pathlib.Path], size: Size) -> Table:
    found = measure_photos(paths, size)
    cost = {name: float(np.median([ms for _, ms, _ in rows])) for name, rows in found.items()}
    columns = {
        "": "",
        "mean dB": ".1f",
        "worst dB": ".1f",
        "of": "",
        "median ms": ".2f",
        "time, beam_tfr = 1": ".2f",
    }
    rows = []
    for name, each in found.items():
        worst, _, photo = min(each)
        mean = float(np.mean([near for near, _, _ in each]))
        rows.append([name, mean, worst, photo, cost[name], cost[name] / cost["beam_tfr"]])
    return Table(
        f"resize: {len(paths):,} photos to {size[0]}x{size[1]}, against LANCZOS", columns, rows
    )


def rate_plates(factors: list[str], size: Size) -> Table:
    rows = []
    for factor in factors:
        down, _, right = factor.partition("x")
        height = round(size[0] * float(down))
        width = round(size[1] * float(right or down))
        plates = [zone_plate(height, width, corner=corner) for corner in (False, True)]
        ideal = [pillow(plate, size, Image.Resampling.LANCZOS) for plate in plates]
        near = {
            name: min(
                psnr(kernel(plate, size), best) for plate, best in zip(plates, ideal, strict=True)
            )
            for name, kernel in KERNELS.items()
        }
        rows.append(
            [
                factor,
                *near.values(),
                "" if near["beam_tfr"] >= near["Pillow BILINEAR"] else "below BILINEAR",
            ]
        )
    columns = {"factor": "", **dict.fromkeys(KERNELS, ".1f"), "": ""}
    return Table(
        f"zone plates to {size[0]}x{size[1]}: the lower dB of middle and corner", columns, rows
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_photos(parser)
    parser.add_argument(
        "--size", type=parse_size, default=(224, 224), help="HxW, or one number (default: 224x224)"
    )
    parser.add_argument(
        "--every", type=int, default=1, help="take every so many-th photo (default: 1)"
    )
    parser.add_argument(
        "--factors",
        nargs="+",
        default=FACTORS,
        metavar="F",
        help="F or FxF, of the zone plates' height and width",
    )


def run(arguments: argparse.Namespace) -> Iterator[Table]:
    with photos(arguments) as paths:
        yield rate_photos(paths[:: arguments.every], arguments.size)
    yield rate_plates(
        arguments.factors[-2:] if arguments.quick else arguments.factors, arguments.size
    )
