"""Counts the images that an update would drop, before any image is converted."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import PCollection
from numpy.typing import NDArray

from beam_tfr.planning import packing
from beam_tfr.planning.survey import order_keys
from beam_tfr.schema.encoded_ref import key_of

_PARTS = 16  # parts into which keys are divided, so that no worker holds all of them
_HASH_BYTES = 8  # per key


@dataclasses.dataclass(eq=False, repr=False)
class CountDropped(beam.PTransform):
    """Counts the records of a dataset whose images are not among the references.

    Only hashes of keys are shuffled, many per element.

    Attributes:
        records: packed (empty, key, split) of the dataset's records.

    Output: numbers to be added up.
    """

    records: PCollection[bytes]

    def expand(self, refs: PCollection[bytes]) -> PCollection[int]:
        before = self.records | "HashRecords" >> beam.FlatMap(_hash_records)
        now = refs | "HashRefs" >> beam.FlatMap(_hash_refs)
        joined = {"before": before, "now": now} | "JoinHashes" >> beam.CoGroupByKey()
        return joined | "CountDropped" >> beam.MapTuple(_count_dropped).with_output_types(int)


def _hash_records(packed: bytes) -> Iterator[tuple[int, bytes]]:
    return _hash_keys([value.split(b"\0")[1] for value in packing.unpack_values(packed)])


def _hash_refs(packed: bytes) -> Iterator[tuple[int, bytes]]:
    return _hash_keys([key_of(ref) for ref in packing.unpack_values(packed)])


def _hash_keys(keys: Sequence[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yields (number of a part, joined hashes of the keys in it)."""
    parts: dict[int, list[bytes]] = {}
    for order in order_keys(0, keys):
        hashes = parts.setdefault(order[0] % _PARTS, [])
        hashes.append(order[:_HASH_BYTES])
    for part, hashes in parts.items():
        yield part, b"".join(hashes)


def _count_dropped(_: int, hashes: Mapping[str, Iterable[bytes]]) -> int:
    before = _join_hashes(hashes["before"])
    now = _join_hashes(hashes["now"])
    return int(np.isin(before, now, invert=True).sum())


def _join_hashes(batches: Iterable[bytes]) -> NDArray[np.uint64]:
    return np.unique(np.frombuffer(b"".join(batches), np.uint64))
