"""Extrapolates from a sample: means and shares with 95 % intervals."""

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
