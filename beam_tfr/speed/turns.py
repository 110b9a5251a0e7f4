"""Measures methods of reading in turns, so that other activity on the machine affects them all."""

import contextlib
import os
import re
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from beam_tfr.schema.errors import DataError
from beam_tfr.speed.ways import Way

TURNS = 3
SECONDS = 1.5  # measured in each turn
SETTLING_S = 0.3  # warm-up in each turn: images read ahead at the start do not count
BUSY_ELSEWHERE = 0.3  # cores; if other programs use more, a note says so
_STAT_FILE = "/proc/stat"  # on Linux
_NODE = re.compile(r"\{\{[^{}]*\}\} ?")  # a node of TensorFlow's graph, in its messages


class Speed(NamedTuple):
    """The speed of reading images.

    Attributes:
        images_per_s: images per second of real time.
        cpu_s: CPU seconds per image, of all threads.
        other_cores: how many cores other programs kept busy during the measurement, on average; 0
            if unknown.
    """

    images_per_s: float
    cpu_s: float
    other_cores: float = 0.0

    @property
    def busy_cores(self) -> float:
        """The average number of cores that are busy reading."""
        return self.images_per_s * self.cpu_s


class Unmeasured(NamedTuple):
    """A method that could not be measured, and why."""

    reason: str


@contextlib.contextmanager
def named_errors() -> Iterator[None]:
    """Turns TensorFlow's errors into ours.

    Raises:
        DataError: TensorFlow cannot read a file.
    """
    try:
        yield
    except tf.errors.OpError as error:
        first_line = _NODE.sub("", str(error.message)).partition("\n")[0]
        raise DataError(f"TensorFlow cannot read this: {first_line}") from error


def describe_limit(speed: Speed, cores: int) -> str:
    """Says what keeps a method from being faster."""
    busy = speed.busy_cores
    others = speed.other_cores
    if busy >= 0.85 * cores:
        return "all cores are busy"
    if others >= BUSY_ELSEWHERE and busy + others >= 0.85 * cores:
        return f"other programs take {others:.1f} of {cores} cores"
    if busy < 0.7:
        return "waits for files or other programs"
    if busy < 1.2:
        return "one core is busy"
    return f"{busy:.1f} of {cores} cores are busy"


def measure_in_turns(
    ways: Sequence[Way], report: Callable[[int, int], None]
) -> dict[str, Speed | Unmeasured]:
    """Reads by each method `TURNS` times; returns name -> median speed of each method.

    Only one method runs at a time: the buffers of all methods would take gigabytes.

    Args:
        ways: the methods to measure.
        report: called with the number of finished turns and the total number of turns.
    """
    problems = {way.name: way.problem for way in ways if way.problem}
    speeds: dict[str, list[Speed]] = {way.name: [] for way in ways}
    number = len(ways) * TURNS
    for turn in range(TURNS):
        for index, way in enumerate(ways):
            report(turn * len(ways) + index, number)
            if way.name in problems:
                continue
            try:
                speeds[way.name].append(_measure_turn(way))
            except DataError as error:
                problems[way.name] = str(error)
    report(number, number)
    results = dict[str, Speed | Unmeasured]()
    for name, turns in speeds.items():
        results[name] = Unmeasured(problems[name]) if name in problems else _median(turns)
    return results


def _measure_turn(way: Way) -> Speed:
    """Starts a method, and measures its speed.

    Raises:
        DataError: a file cannot be read.
    """
    with named_errors():
        batches = way.start()
        read_images(batches, way.warm_up)
        return measure(batches)


def _median(speeds: Sequence[Speed]) -> Speed:
    images_per_s, cpu_s, other_cores = map(statistics.median, zip(*speeds, strict=True))
    return Speed(images_per_s, cpu_s, other_cores)


def measure(batches: Iterator[Any]) -> Speed:
    """Measures reading for `SECONDS`, after a warm-up that does not count."""
    read_for(batches, SETTLING_S)
    machine_began = _machine_cpu_s()
    cpu_began = time.process_time()
    began = time.perf_counter()
    images = read_for(batches, SECONDS)
    elapsed_s = time.perf_counter() - began
    cpu_s = time.process_time() - cpu_began
    others_s = max(_machine_cpu_s() - machine_began - cpu_s, 0.0)
    return Speed(images / elapsed_s, cpu_s / images, others_s / elapsed_s)


def _machine_cpu_s() -> float:
    """Returns the CPU time that all programs on this machine have taken; 0 if unknown.

    The time is unknown if this process has only some of the cores, as in a container. Source:
    https://man7.org/linux/man-pages/man5/proc_stat.5.html
    """
    if not os.path.exists(_STAT_FILE) or len(os.sched_getaffinity(0)) != os.cpu_count():
        return 0.0
    with open(_STAT_FILE, encoding="ascii") as file:
        ticks = [int(text) for text in file.readline().split()[1:]]
    user, nice, system, _idle, _waiting, interrupts, soft_interrupts, stolen = ticks[:8]
    busy = user + nice + system + interrupts + soft_interrupts + stolen
    return busy / os.sysconf("SC_CLK_TCK")


def read_for(batches: Iterator[Any], seconds: float) -> int:
    """Reads at least one batch; returns the number of images."""
    end = time.perf_counter() + seconds
    images = _count_images(next(batches))
    while time.perf_counter() < end:
        images += _count_images(next(batches))
    return images


def read_images(batches: Iterator[Any], number: int) -> None:
    """Reads at least the specified number of images."""
    images = 0
    while images < number:
        images += _count_images(next(batches))


def _count_images(batch: Any) -> int:
    first = tf.nest.flatten(batch, expand_composites=False)[0]
    return int(first.shape[0])
