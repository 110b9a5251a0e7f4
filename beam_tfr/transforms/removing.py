"""LeaveOut: leaves out what was taken down from a dataset."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import apache_beam as beam
from apache_beam.pvalue import PCollection
from apache_beam.typehints import with_input_types, with_output_types

from beam_tfr.output.removed import Removed
from beam_tfr.planning import packing
from beam_tfr.schema import ImageRef, Record
from beam_tfr.schema.features import names_of
from beam_tfr.transforms.counting import FunctionDoFn, count
from beam_tfr.transforms.values import MapImages


@with_input_types(bytes)
@with_output_types(bytes)
@dataclasses.dataclass(eq=False, repr=False)
class LeaveOut(beam.PTransform):
    """Leaves out references by their keys.

    Attributes:
        removed: what was taken down.

    Output: as its input, encoded `ImageRef`s as `packing.pack_some` packs them.
    """

    removed: Removed

    def expand(self, refs: PCollection[bytes]) -> PCollection[bytes]:
        return refs | "LeaveOut" >> beam.ParDo(FunctionDoFn(self._others))

    def _others(self, packed: bytes) -> Iterator[bytes]:
        refs = [*packing.unpack(packed)]
        others = [ref for ref in refs if not self.removed.has_key(ref.partition(b"\0")[0])]
        count("left-out", len(refs) - len(others))
        yield from packing.pack_some(others)


class RejectRemoved(MapImages):
    """Rejects records whose sources were taken down under another name.

    Args:
        removed: what was taken down.
        encoding: of the dataset.
    """

    def __init__(self, removed: Removed, encoding: str) -> None:
        name = names_of(encoding).sha256

        def check(record: Record, ref: ImageRef) -> Record:
            for sha256 in (record.values or {}).get(name, ()):
                removed.check_source(sha256.decode())
            return record

        super().__init__(check, stage="RejectRemoved")
