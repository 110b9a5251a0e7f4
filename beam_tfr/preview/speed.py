"""Measures how fast this machine converts images."""

from __future__ import annotations

import itertools
import os
import pathlib
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from beam_tfr.console.display import Progress
from beam_tfr.options import ConvertOptions, default_threads

SECONDS = 6.0  # that the longest conversion takes on an idle machine
MAX_CONVERTED = 50_000
MAX_CONVERTED_BYTES = 512 << 20  # 512 MiB of files


class Speed(NamedTuple):
    """The measured speed of real conversions.

    Attributes:
        image_s, image_cpu_s: seconds and CPU seconds per image.
        ends_s: seconds to start and to end.
    """

    image_s: float
    image_cpu_s: float
    ends_s: float


def measure_speed(
    files: Sequence[tuple[str, bytes]],
    options: ConvertOptions,
    *,
    alone_s: float,
    most: int,
    progress: Callable[[Progress], object],
) -> Speed:
    """Converts a few copies of files, then more, then many; the difference in time gives the speed.

    The first turn measures the start; later ones are faster, because modules are loaded.

    Args:
        files: (extension, content) of images that can be converted.
        options: how to convert them.
        alone_s: CPU seconds of one when nothing else runs.
        most: maximum number of images to convert.
        progress: called while they are converted.
    """
    here = default_threads()
    mean_bytes = sum(len(data) for _, data in files) / len(files)
    wanted = min(most, MAX_CONVERTED, MAX_CONVERTED_BYTES / mean_bytes, SECONDS * here / alone_s)
    many = int(max(8 * here, wanted))
    few = here + max(1, many // 10)
    with tempfile.TemporaryDirectory(prefix="beam_tfr-plan-") as folder:

        def run(turn: int, number: int) -> tuple[float, float]:
            def show(done: int) -> None:  # no total where most of the time is still to come
                progress(Progress(f"measuring, turn {turn} of 3", done, number if turn == 3 else 0))

            show(0)
            return _convert(folder, files, number, options, show)

        first_s, _ = run(1, here)
        few_s, few_cpu_s = run(2, few)
        many_s, many_cpu_s = run(3, many)
    # Not faster than without Beam; a short run is full of noise.
    image_s = max((many_s - few_s) / (many - few), alone_s / here)
    image_cpu_s = max((many_cpu_s - few_cpu_s) / (many - few), alone_s)
    return Speed(image_s, image_cpu_s, max(0.0, first_s - here * image_s))


def _convert(
    folder: str,
    files: Sequence[tuple[str, bytes]],
    count: int,
    options: ConvertOptions,
    progress: Callable[[int], object],
) -> tuple[float, float]:
    """Seconds and CPU seconds of a real conversion of `count` files, made of links to the given ones."""
    from beam_tfr import launch  # Beam

    source = pathlib.Path(folder) / f"{count}"
    source.mkdir()
    for number, (extension, data) in zip(range(count), itertools.cycle(files), strict=False):
        path = source / f"{number:06d}{extension}"
        if number < len(files):
            path.write_bytes(data)
        else:
            os.link(source / f"{number % len(files):06d}{extension}", path)
    convert = ConvertOptions(
        input=(f"{source}/*",),
        output=f"{folder}/out-{count}",
        layout="*",
        compression=options.compression,
        **vars(options.image_options()),
    )
    started = time.process_time()
    seconds = launch.convert(convert, progress=lambda at: progress(0 if at.stage == "listing" else at.done)).seconds
    return seconds, time.process_time() - started
