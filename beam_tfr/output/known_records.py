"""Reads the records that an update copies from a dataset, and the known facts about them."""

import functools
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from beam_tfr import storage
from beam_tfr.dataset.base import BaseDataset, PlannedShard, planned_shards
from beam_tfr.dataset.lookup import RecordLookup
from beam_tfr.dataset.splits import ShardPart
from beam_tfr.output.known import read_sources
from beam_tfr.output.sidecars import read_published_sidecar
from beam_tfr.records import contents
from beam_tfr.records.contents import need_pyarrow
from beam_tfr.records.tfrecords import RecordError, unframe_records
from beam_tfr.schema.encoded_ref import key_of, to_bytes
from beam_tfr.schema.errors import RunError

_MOST_ROWS = 1 << 17  # rows of contents in memory: about 40 MB
_LEAST_SHARD = 512  # records in the smallest shard assumed when computing how many fit in memory
_LEAST_SHARDS = 4  # shards in memory


class KnownRecord(NamedTuple):
    """A record of a finished dataset.

    Attributes:
        serialized: the tf.train.Example.
        row: row of the record in the contents, without the columns that locate records in shards.
        sums: sums of the record, as in `sidecars.Sidecar`.
    """

    serialized: bytes
    row: dict[str, Any]
    sums: bytes


class KnownFrames(NamedTuple):
    """Records of a finished dataset, in their stored form.

    Attributes:
        frames: frames of the records, joined.
        sizes: size of each frame in bytes.
        rows: `pyarrow.Table` with the contents, without the columns that locate records in shards.
        sums: checksums of each record, as in `sidecars.Sidecar`.
    """

    frames: bytes
    sizes: list[int]
    rows: Any
    sums: list[bytes]


class KnownRecords:
    """A reader of the records of a finished dataset.

    Args:
        base: the dataset.
    """

    def __init__(self, base: BaseDataset) -> None:
        dataset = base.read_manifest()
        self._shards = dict[str, PlannedShard]()  # path of the file -> shard
        parts = list[ShardPart]()
        for shard in planned_shards(dataset):
            if shard.entry:
                path = storage.join(dataset.folder, shard.entry.file)
                number = shard.entry.num_examples
                self._shards[path] = shard
                parts.append(ShardPart(path, number, 0, number, shard.entry.num_bytes))
        self._lookup = RecordLookup(dataset, parts)
        longest = max((part.records for part in self._lookup.parts), default=0)
        num_shards = max(_LEAST_SHARDS, _MOST_ROWS // max(_LEAST_SHARD, longest))
        self._details = functools.lru_cache(maxsize=num_shards)(self._read_details)

    def read_records(self, numbers: Sequence[int]) -> list[KnownRecord | None]:
        """Reads the records with these numbers; None stands for a damaged record.

        Raises:
            DataError, OSError: see `RecordLookup.read_frames`; not raised for damaged records.
        """
        try:
            stored = self.read_frames(numbers)
        except RecordError:
            return self._read_one_by_one(numbers)
        serialized = unframe_records(stored.frames, stored.sizes)
        return [*map(KnownRecord, serialized, stored.rows.to_pylist(), stored.sums)]

    def _read_one_by_one(self, numbers: Sequence[int]) -> list[KnownRecord | None]:
        """Reads the records with these numbers, one of which is damaged."""
        if len(numbers) == 1:
            return [None]
        records = list[KnownRecord | None]()
        for number in numbers:
            records += self.read_records([number])
        return records

    def read_frames(self, numbers: Sequence[int]) -> KnownFrames:
        """Reads the records with these numbers in their stored form.

        Raises:
            DataError, OSError: as in `RecordLookup.read_frames`.
        """
        tables = []
        sums = list[bytes]()
        for part, begin, size in self._lookup.stretches(numbers):
            part_rows, part_sums = self._details(part)
            tables.append(part_rows.slice(begin, size))
            sums += part_sums[begin : begin + size]
        frames = self._lookup.read_frames(numbers)
        rows = need_pyarrow().concat_tables(tables)
        return KnownFrames(b"".join(frames), [*map(len, frames)], rows, sums)

    def find_sizes(self, keys: Collection[str]) -> dict[str, int | None]:
        """Finds the sizes of the records with some keys; the size of a reject is None.

        Reads the sidecars of all shards.
        """
        sizes: dict[str, int | None] = {}
        dataset = self._lookup.dataset
        texts = {to_bytes(key): key for key in keys}
        for shard in planned_shards(dataset):
            for source in read_sources(dataset.folder, shard) or ():
                key = texts.get(key_of(source.ref))
                if key:
                    sizes[key] = None if source.reject else self._find_size(source.number)
        return sizes

    def _find_size(self, number: int) -> int:
        part, row = self._lookup.locate(number)
        return int(self._lookup.open_shard(part)["length"][row].as_py())

    def _read_details(self, part: ShardPart) -> tuple[Any, list[bytes]]:
        """Reads the contents of a shard, and the sums of its records.

        The contents lack the columns that locate records in the shard.
        """
        table = self._lookup.open_shard(part)
        sidecar = read_published_sidecar(self._lookup.dataset.folder, self._shards[part.file])
        if sidecar is None:
            raise RunError(
                f"the sidecar of {part.file} was removed while it was read; "
                "run the same command again"
            )
        place_columns = contents.PLACE.keys() - {"key"}
        columns = [name for name in table.column_names if name not in place_columns]
        return table.select(columns), sidecar.sums
