"""TakeFirst: the first references of the order, for a try-out."""

from __future__ import annotations

from collections.abc import Iterator

import apache_beam as beam
from apache_beam.pvalue import AsSingleton, PCollection

from beam_tfr.planning import packing
from beam_tfr.planning.survey import order_key
from beam_tfr.schema import ImageRef


class TakeFirst(beam.PTransform):
    """The first references of the order, or all if there are fewer; each of the others costs one hash.

    Args:
        limit: how many; a worker holds as many order keys of 16 bytes.
        seed: of the order.

    Output: as its input, encoded `ImageRef`s as `packing.pack_some` packs them.
    """

    def __init__(self, limit: int, *, seed: int) -> None:
        super().__init__()
        self._limit, self._seed = limit, seed

    def expand(self, refs: PCollection[bytes]) -> PCollection[bytes]:
        last = (
            refs
            | "OrderKeys" >> beam.FlatMap(_orders, self._seed)
            | beam.combiners.Top.Smallest(self._limit)
            | "Last" >> beam.Map(lambda first: first[-1:])
        )
        return refs | "UpToLast" >> beam.FlatMap(_up_to, self._seed, AsSingleton(last)).with_output_types(bytes)


def _orders(packed: bytes, seed: int) -> list[bytes]:
    return [order_key(seed, ImageRef.decode(ref).key) for ref in packing.unpack(packed)]


def _up_to(packed: bytes, seed: int, last: list[bytes]) -> Iterator[bytes]:
    refs = zip(packing.unpack(packed), _orders(packed, seed), strict=True)
    return packing.pack_some(ref for ref, order in refs if order <= last[0])
