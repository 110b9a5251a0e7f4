"""How much memory it takes to decode large images.

There is a square one of each format, in several threads at once.

Needs tifffile.
"""

from __future__ import annotations

import argparse
import io
import pathlib
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

from PIL import Image

from beam_tfr.images import convert_image
from benchmarks.measuring import Table, measure, python


def gradient(side: int) -> Image.Image:
    return Image.linear_gradient("L").resize((side, side)).convert("RGB")


def saved(form: str, **options: object) -> Callable[[int], bytes]:
    def make(side: int) -> bytes:
        file = io.BytesIO()
        gradient(side).save(file, form, **options)
        return file.getvalue()

    return make


def deep_png(side: int) -> bytes:
    import cv2
    import numpy as np

    return cv2.imencode(".png", np.zeros((side, side, 3), np.uint16))[1].tobytes()


def float_tiff(side: int) -> bytes:
    import numpy as np
    import tifffile

    file = io.BytesIO()
    tifffile.imwrite(file, np.zeros((side, side)), compression="zlib")
    return file.getvalue()


KINDS: dict[str, Callable[[int], bytes]] = {
    "JPEG": saved("JPEG"),
    "progressive JPEG": saved("JPEG", progressive=True),
    "PNG": saved("PNG", compress_level=1),
    "GIF": saved("GIF"),
    "TIFF": saved("TIFF", compression="tiff_adobe_deflate"),
    "WebP": saved("WEBP", method=0),
    "PNG, 16 bits": deep_png,
    "TIFF, 64-bit floats": float_tiff,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--side", type=int, default=10_000, help="pixels (default: %(default)s)")
    parser.add_argument(
        "--threads", type=int, default=4, help="that convert at once (default: %(default)s)"
    )


def run(arguments: argparse.Namespace) -> Iterator[Table]:
    side = arguments.side
    threads = arguments.threads
    kinds = [*KINDS]
    if arguments.quick:
        side = 300
        threads = 2
        kinds = kinds[-3:]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for kind in kinds:
            # In another process: the peak of a child of this one is never less than that of this
            # one.
            program = python("-m", "benchmarks.memory", f"{folder}/image")
            measure([*program, kind, str(side)])
            rows.append([kind, measure([*program, "", str(threads)]).peak_bytes / 1e6])
    yield Table(
        f"memory: {side} x {side} pixels, {threads} threads", {"image": "", "peak MB": ",.0f"}, rows
    )


def main(file: str, kind: str, number: int) -> None:
    """Makes an image of a kind, or converts it.

    It has a side of `number` pixels. Without a kind, it is converted in so many threads.
    """
    path = pathlib.Path(file)
    if kind:
        path.write_bytes(KINDS[kind](number))
        return
    data = path.read_bytes()
    with ThreadPoolExecutor(number) as pool:
        for image in pool.map(lambda _: convert_image(data), range(number)):
            assert (image.height, image.width) == (224, 224)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
