"""Measures how fast this machine converts images, by conversions of copies of a sample."""

from __future__ import annotations

import os
import pathlib
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from beam_tfr.console.display import Progress
from beam_tfr.launch import convert
from beam_tfr.options import ConvertOptions, default_threads

SECONDS = 6.0  # that the longest conversion takes on an idle machine
MAX_CONVERTED = 50_000
MAX_CONVERTED_BYTES = 512 << 20  # 512 MiB of files


class Speed(NamedTuple):
    """The speed of conversions.

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
    """Converts a few copies, which shows the time to start, then some, then many: the last two show the speed.

    Args:
        files: (extension, content) of images that can be converted.
        options: how to convert them.
        alone_s: CPU seconds of one when nothing else runs.
        most: maximum number of images to convert.
        progress: called while they are converted.
    """
    here = default_threads()
    mean_bytes = sum(len(data) for _, data in files) / len(files)
    many = int(max(8 * here, min(most, MAX_CONVERTED, MAX_CONVERTED_BYTES / mean_bytes, SECONDS * here / alone_s)))
    some = here + max(1, many // 10)
    with tempfile.TemporaryDirectory(prefix="beam_tfr-plan-") as name:
        folder, turns = pathlib.Path(name), []
        given = vars(options.image_options()) | {"compression": options.compression}
        for count in (here, some, many):
            progress(Progress("measuring", 0))
            (folder / f"{count}").mkdir()
            for number in range(count):
                extension, data = files[number % len(files)]
                path = folder / f"{count}/{number:06d}{extension}"
                if number < len(files):
                    path.write_bytes(data)
                else:
                    os.link(path.with_name(f"{number % len(files):06d}{extension}"), path)
            copies = ConvertOptions(input=(f"{name}/{count}/*",), output=f"{name}/to-{count}", layout="*", **given)
            cpu_s = time.process_time()
            seconds = convert(copies).seconds
            turns.append((seconds, time.process_time() - cpu_s))
    (first_s, _), (some_s, some_cpu_s), (many_s, many_cpu_s) = turns
    # Not faster than without Beam; a short run is full of noise.
    image_s = max((many_s - some_s) / (many - some), alone_s / here)
    image_cpu_s = max((many_cpu_s - some_cpu_s) / (many - some), alone_s)
    return Speed(image_s, image_cpu_s, max(0.0, first_s - here * image_s))
