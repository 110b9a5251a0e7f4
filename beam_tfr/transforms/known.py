"""ReadKnown and ReadDataset: what an update knows of the images of a finished dataset, and their references."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

import apache_beam as beam
from apache_beam.pvalue import PBegin, PCollection
from apache_beam.typehints import with_output_types

from beam_tfr import storage
from beam_tfr.dataset.base import Base, PlannedShard, shards_of
from beam_tfr.engine import interrupt
from beam_tfr.output import known
from beam_tfr.output.known import Source
from beam_tfr.planning import packing
from beam_tfr.schema import ImageRef
from beam_tfr.transforms.counting import FunctionDoFn, count

_AT_ONCE = 8  # shards in an element


@with_output_types(bytes)
@dataclasses.dataclass(eq=False, repr=False)
class ReadKnown(beam.PTransform):
    """Reads what a dataset knows of its images.

    Attributes:
        base: the dataset.
        splits_stay: whether an image that is still there is in the same split.

    Output: packed (split or nothing, NUL, `known.encode` of an image).
    """

    base: Base
    _: dataclasses.KW_ONLY
    splits_stay: bool

    def expand(self, begin: PBegin) -> PCollection[bytes]:
        reading = FunctionDoFn(self._read)
        return _shards(begin, self.base, "Known") | "ReadKnown" >> beam.ParDo(reading).with_output_types(bytes)

    def _read(self, numbers: list[int]) -> Iterator[bytes]:
        for shard in _some_of(self.base, numbers):
            sources = known.sources_of(self.base.folder, shard) or []
            name = shard.split if self.splits_stay else ""
            usable = (source for source in sources or () if not source.reject or self._stays(source))
            yield from packing.pack_some(f"{name}\0".encode() + known.encode(source) for source in usable)

    def _stays(self, source: Source) -> bool:
        """Whether a reject was not rejected for its name, of which the listing decides."""
        return self.base.with_rejects and not ImageRef.decode(source.ref).reason


@dataclasses.dataclass(eq=False, repr=False)
class ReadDataset(beam.PTransform):
    """Reads the references of a dataset's images, as if their sources were listed.

    Attributes:
        base: the dataset.
        root: folder that keys are relative to, with a trailing slash, if what was rejected is looked at again.

    Output: as that of `MatchImages`.
    """

    base: Base
    _: dataclasses.KW_ONLY
    root: str

    def expand(self, begin: PBegin) -> tuple[PCollection[bytes], PCollection[Mapping[str, Mapping[str, int]]]]:
        reading = FunctionDoFn(self._read)
        refs = _shards(begin, self.base, "Dataset") | "ReadDataset" >> beam.ParDo(reading).with_output_types(bytes)
        return refs, begin | "NoNotes" >> beam.Create([{}])

    def _read(self, numbers: list[int]) -> Iterator[bytes]:
        for shard in _some_of(self.base, numbers):
            sources = known.need_sources(self.base.folder, shard)
            count("listed", len(sources))
            yield from packing.pack_some(map(self._look_again, sources))

    def _look_again(self, source: Source) -> bytes:
        """The reference of an image: as it is now, if it is to be read again."""
        if self.base.with_rejects or not source.reject:
            return source.ref
        ref = ImageRef.decode(source.ref)
        if ref.reason or not ref.generation or (file := storage.find(self.root + ref.key)) is None:
            return source.ref
        now = {"size_bytes": file.size_bytes, "generation": file.generation, "crc32c": file.crc32c}
        return ref._replace(**now).encode()  # type: ignore[arg-type]


def _shards(begin: PBegin, base: Base, name: str) -> PCollection[list[int]]:
    """The numbers of the shards of a dataset, some in an element."""
    number = len(shards_of(base.read()))
    parts = [[*range(first, min(first + _AT_ONCE, number))] for first in range(0, number, _AT_ONCE)]
    return begin | f"{name}Shards" >> beam.Create(parts) | f"Spread{name}Shards" >> beam.Reshuffle()


def _some_of(base: Base, numbers: list[int]) -> Iterator[PlannedShard]:
    shards = shards_of(base.read())
    for number in numbers:
        interrupt.check()
        yield shards[number]
