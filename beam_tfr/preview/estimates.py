"""Extrapolates from a sample: shares with 95 % intervals, and what times are made of."""

from __future__ import annotations

import math
from typing import NamedTuple

Z = 1.96  # of the normal distribution: 95 %
BUSY = 1.15  # CPU time of the same work while all cores, which often are hyperthreads, are busy, relative to one
OVERHEAD_S = 0.0005  # CPU time of an image outside of its conversion: in the engine, and to write its record
START_S = 0.6  # of a conversion on this machine, until it converts, and at its end


class Estimate(NamedTuple):
    """A value with the interval that holds it in 95 of 100 samples."""

    value: float
    low: float
    high: float

    def times(self, factor: float) -> Estimate:
        """The estimate of a value that is proportional to this one."""
        return Estimate(*(each * factor for each in self))

    def text(self, how: str) -> str:
        """As text, with numbers formatted by `how`: "39 (1 to 212)"; without the interval if it has no width."""
        value, low, high = (format(each, how) for each in self)
        return value if low == high else f"{value} ({low} to {high})"


def share(number: int, sampled: int, *, of: int) -> Estimate:
    """Estimates a share from `number` of `sampled` (of `of` in total), with Wilson's interval (1927)."""
    if sampled >= of:
        return Estimate(*[number / sampled] * 3)
    found, spread = number / sampled, Z * Z / sampled
    middle = (found + spread / 2) / (1 + spread)
    width = Z * math.sqrt(found * (1 - found) / sampled + spread / sampled / 4) / (1 + spread)
    return Estimate(found, middle - width if number else 0.0, middle + width if number < sampled else 1.0)
