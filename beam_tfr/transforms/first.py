"""TakeFirst: the first references of the order, for a try-out."""

from __future__ import annotations

import apache_beam as beam
from apache_beam.pvalue import AsSingleton, PCollection

from beam_tfr.planning.survey import order_key
from beam_tfr.schema import ImageRef


class TakeFirst(beam.PTransform):
    """The first references of the order, or all if there are fewer; each of the others costs one hash.

    Args:
        limit: how many; a worker holds as many order keys of 16 bytes.
        seed: of the order.

    Output: encoded `ImageRef`.
    """

    def __init__(self, limit: int, *, seed: int) -> None:
        super().__init__()
        self._limit, self._seed = limit, seed

    def expand(self, refs: PCollection[bytes]) -> PCollection[bytes]:
        last = (
            refs
            | "OrderKeys" >> beam.Map(_order, self._seed)
            | beam.combiners.Top.Smallest(self._limit)
            | "Last" >> beam.Map(lambda first: first[-1:])
        )
        return refs | "UpToLast" >> beam.Filter(_is_first, self._seed, AsSingleton(last)).with_output_types(bytes)


def _order(ref: bytes, seed: int) -> bytes:
    return order_key(seed, ImageRef.decode(ref).key)


def _is_first(ref: bytes, seed: int, last: list[bytes]) -> bool:
    return _order(ref, seed) <= last[0]
