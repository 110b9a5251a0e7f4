"""Adds up what steps count, in any order and on any number of workers."""

from collections.abc import Callable, Iterable
from typing import Any

import apache_beam as beam

from beam_tfr.planning import packing


class MergeTotals(beam.CombineFn):
    """Merges the totals of bundles.

    Args:
        make: makes an empty total, which has a method `merge`.
    """

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make

    def create_accumulator(self) -> Any:
        return self._make()

    def add_input(self, total: Any, element: Any) -> Any:
        total.merge(element)
        return total

    def merge_accumulators(self, parts: Iterable[Any]) -> Any:
        total = self._make()
        for part in parts:
            total.merge(part)
        return total

    def extract_output(self, total: Any) -> Any:
        return total


class CountRefs(MergeTotals):
    """Counts packed references in a total that has a method `add` for encoded references."""

    def add_input(self, total: Any, element: bytes) -> Any:
        total.add(packing.unpack_values(element))
        return total
