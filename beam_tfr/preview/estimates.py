"""Extrapolates from a sample: means and shares with 95 % intervals, and what a Dataflow job takes."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

Z = 1.96  # of the normal distribution: 95 %
NOISE = 0.25  # of a time, from one run to the next on a machine that does other things too: see docs/converting.md
BUSY = 1.15  # CPU time of the same work while all cores, which often are hyperthreads, are busy, relative to one
OVERHEAD_S = 0.0005  # CPU time of an image outside of its conversion: in the engine, and to write its record
START_S = 0.6  # of a conversion on this machine, until it converts, and at its end
REF_BYTES = 100  # of a reference in the shuffle: see docs/scale.md
VCPUS, MEMORY_GB = 4, 15  # of a worker: Dataflow's n1-standard-4
JOB_START_S = 240  # of a Dataflow job, until its workers convert
FIRST_READS_PER_S, DOUBLED_S = 5000, 1200  # of a bucket that was idle; then it doubles them every 20 minutes


class Estimate(NamedTuple):
    """A value with the interval that holds it in 95 of 100 samples."""

    value: float
    low: float
    high: float

    def times(self, factor: float, plus: float = 0.0) -> Estimate:
        """The estimate of a value that is proportional to this one, plus a constant."""
        return Estimate(*(each * factor + plus for each in self))

    def text(self, how: str) -> str:
        """As text, with numbers formatted by `how`: "39 (1 to 212)"; without the interval if it has no width."""
        value, low, high = (format(each, how) for each in self)
        return value if low == high else f"{value} ({low} to {high})"


def mean(values: Sequence[float], *, of: int, noise: float = 0.0) -> Estimate:
    """The mean of all `of` values, from a sample of them without repeats.

    Uses the standard error of the mean with finite population correction (W. G. Cochran, Sampling Techniques, 2.6). A
    single value of many may be twice the mean.

    Args:
        values: the sample, one or more.
        of: total number of values.
        noise: relative error of the measurement itself.
    """
    middle, width = statistics.fmean(values), 0.0
    if len(values) < of:
        width = middle
        if len(values) > 1:
            width = Z * statistics.stdev(values) * math.sqrt((1 - len(values) / of) / len(values))
    width = math.hypot(width, noise * middle)
    return Estimate(middle, max(0.0, middle - width), middle + width)


def share(number: int, sampled: int, *, of: int) -> Estimate:
    """Estimates a share from `number` of `sampled` (of `of` in total), with Wilson's interval (1927)."""
    if sampled >= of:
        return Estimate(*[number / sampled] * 3)
    found, spread = number / sampled, Z * Z / sampled
    middle = (found + spread / 2) / (1 + spread)
    width = Z * math.sqrt(found * (1 - found) / sampled + spread / sampled / 4) / (1 + spread)
    return Estimate(found, middle - width if number else 0.0, middle + width if number < sampled else 1.0)


def ramped_s(reads: float, per_s: float) -> float:
    """Seconds for so many reads from a bucket, asked for at a rate that it may only reach gradually.

    20 million at 20,000/s take 2,500 s: 6 million in 20 minutes at 5,000/s, 12 in the next at 10,000/s, 2 in 100 s.
    """
    seconds, rate = 0.0, float(FIRST_READS_PER_S)
    while rate < per_s and reads > rate * DOUBLED_S:
        reads -= rate * DOUBLED_S
        seconds, rate = seconds + DOUBLED_S, 2 * rate
    return seconds + reads / min(rate, per_s)


class Job(NamedTuple):
    """What a Dataflow job takes, to be multiplied by prices.

    Attributes:
        workers: number of machines of `VCPUS` and `MEMORY_GB`.
        seconds: time from its start to its end.
        vcpu_hours, memory_gb_hours: use of all workers.
        shuffled_gb: GB that it shuffles.
        reads: number of objects that it reads.
    """

    workers: int
    seconds: Estimate
    vcpu_hours: Estimate
    memory_gb_hours: Estimate
    shuffled_gb: float
    reads: int


def on_dataflow(cpu_s: Estimate, *, images: int, workers: int) -> Job:
    """The Dataflow job, if its vCPUs are as fast as the cores here, and read one bucket.

    Args:
        cpu_s: CPU seconds of all images.
        images: number to read and shuffle.
        workers: number of machines, all busy to the end.
    """
    busy = cpu_s.times(1 / (workers * VCPUS))
    seconds = Estimate(*(JOB_START_S + ramped_s(images, images / each if each else math.inf) for each in busy))
    hours = seconds.times(workers / 3600)
    return Job(workers, seconds, hours.times(VCPUS), hours.times(MEMORY_GB), images * REF_BYTES / 1e9, images)
