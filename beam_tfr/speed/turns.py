"""Measures ways to read in turns, so that what else the machine does concerns all of them."""

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from beam_tfr.schema.errors import DataError
from beam_tfr.speed.ways import Way

TURNS = 3
SECONDS = 1.5  # of a turn that are measured
SETTLING_S = 0.3  # of a turn before them: what was read ahead in the pause does not count


class Speed(NamedTuple):
    """How fast images are read.

    Attributes:
        images_per_s: by the clock.
        cpu_s: CPU time for an image, of all threads.
    """

    images_per_s: float
    cpu_s: float

    @property
    def busy_cores(self) -> float:
        """How many cores are busy meanwhile, on average."""
        return self.images_per_s * self.cpu_s


@contextlib.contextmanager
def named_errors() -> Iterator[None]:
    """Turns TensorFlow's errors into ours.

    Raises:
        DataError: TensorFlow cannot read a file.
    """
    try:
        yield
    except tf.errors.OpError as error:
        first_line = str(error.message).partition("\n")[0]
        raise DataError(f"TensorFlow cannot read this: {first_line}") from error


def describe_limit(speed: Speed, cores: int) -> str:
    """What keeps a way from being faster."""
    busy = speed.busy_cores
    if busy >= 0.85 * cores:
        return "all cores are busy"
    if busy < 0.7:
        return "waits, for files or other programs"
    if busy < 1.2:
        return "one core is busy"
    return f"{busy:.1f} of {cores} cores are busy"


def measure_in_turns(
    ways: Sequence[Way], report: Callable[[int, int], None]
) -> Iterator[tuple[str, Speed]]:
    """Reads in each way, `TURNS` times; yields the name of each way and its median speed.

    Args:
        ways: what to measure.
        report: called with the number of turns of all ways that are done, and of all.
    """
    running = [way.start() for way in ways]
    speeds: list[list[Speed]] = [[] for _ in ways]
    number = len(ways) * TURNS
    for turn in range(TURNS):
        for index, way in enumerate(ways):
            report(turn * len(ways) + index, number)
            if turn == 0:
                _read_images(running[index], way.warm_up)
            speeds[index].append(measure(running[index]))
    report(number, number)
    for way, turns in zip(ways, speeds, strict=True):
        images_per_s = statistics.median(speed.images_per_s for speed in turns)
        cpu_s = statistics.median(speed.cpu_s for speed in turns)
        yield way.name, Speed(images_per_s, cpu_s)


def measure(batches: Iterator[Any]) -> Speed:
    """Reads for `SECONDS`, after some time that does not count."""
    read_for(batches, SETTLING_S)
    cpu_began = time.process_time()
    began = time.perf_counter()
    images = read_for(batches, SECONDS)
    elapsed_s = time.perf_counter() - began
    return Speed(images / elapsed_s, (time.process_time() - cpu_began) / images)


def read_for(batches: Iterator[Any], seconds: float) -> int:
    """Reads at least one batch; returns the number of images."""
    end = time.perf_counter() + seconds
    images = _count_images(next(batches))
    while time.perf_counter() < end:
        images += _count_images(next(batches))
    return images


def _read_images(batches: Iterator[Any], number: int) -> None:
    images = 0
    while images < number:
        images += _count_images(next(batches))


def _count_images(batch: Any) -> int:
    first = tf.nest.flatten(batch, expand_composites=False)[0]
    return int(first.shape[0])
