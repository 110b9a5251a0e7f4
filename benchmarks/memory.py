"""How much memory it takes to decode large images.

    python benchmarks/memory.py [--side 10000] [--threads 4]

Makes a square image of each kind and converts it to 224x224 in several threads at once, in a process of its own, whose
largest resident size is printed. Needs tifffile.
"""

from __future__ import annotations

import argparse
import io
import pathlib
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from convert import measure
from PIL import Image

from beam_tfr.images import convert_image


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


def convert(path: str, threads: int) -> None:
    data = pathlib.Path(path).read_bytes()
    with ThreadPoolExecutor(threads) as pool:
        for image in pool.map(lambda _: convert_image(data), range(threads)):
            assert (image.height, image.width) == (224, 224)


def main() -> None:
    parser = argparse.ArgumentParser(description="What decoding large images takes.", allow_abbrev=False)
    parser.add_argument("--side", type=int, default=10_000, help="pixels (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=4, help="that convert at once (default: %(default)s)")
    parser.add_argument("--make", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--convert", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.make:
        kind, path = arguments.make
        pathlib.Path(path).write_bytes(KINDS[kind](arguments.side))
        return
    if arguments.convert:
        convert(arguments.convert, arguments.threads)
        return
    program = [sys.executable, __file__, "--side", str(arguments.side), "--threads", str(arguments.threads)]
    print(f"{arguments.side} x {arguments.side} pixels, {arguments.threads} threads\n\n| image | MB |\n| --- | ---: |")
    with tempfile.TemporaryDirectory() as folder:
        for kind in KINDS:
            # In another process: the peak of a child of this one is never less than that of this one.
            measure([*program, "--make", kind, f"{folder}/image"])
            print(
                f"| {kind} | {measure([*program, '--convert', f'{folder}/image']).peak_bytes / 1e6:,.0f} |", flush=True
            )


if __name__ == "__main__":
    main()
