"""What a finished dataset knows about its images, and its records: an update copies them instead of
converting again.

The sidecars that stay beside a dataset hold the references of its images and the sums of their
pixels, the contents hold the rest that is not in a record. So a copied record gives the same shard,
contents and statistics as one that is made again.
"""

import dataclasses
import functools
import json
import struct
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from beam_tfr import storage
from beam_tfr.dataset.base import BaseDataset, PlannedShard, planned_shards
from beam_tfr.dataset.lookup import RecordLookup
from beam_tfr.dataset.splits import ShardPart
from beam_tfr.inputs.parquet import is_in_parquet
from beam_tfr.output import sidecars
from beam_tfr.records import contents
from beam_tfr.records.contents import need_pyarrow
from beam_tfr.records.tfrecords import RecordError, unframe_records
from beam_tfr.schema.encoded_ref import EncodedRef, key_of, to_bytes
from beam_tfr.schema.errors import DataError, RunError
from beam_tfr.schema.items import ImageRef, Known, KnownState, Reject
from beam_tfr.schema.plan import Shard, ShardInfo

_PLACE = struct.Struct("<qQQI8s")  # number, size, generation, CRC-32C, fingerprint of the reference
_MOST_ROWS = 1 << 17  # of contents in memory: about 40 MB
_PASSING = (
    "not-found",
    "unreadable",
    "changed-while-reading",
    "decode-timeout",
)  # reasons that may not last


class Source(NamedTuple):
    """An image of a finished dataset: its encoded reference, and the number of its record, or its
    reject."""

    ref: bytes
    number: int
    reject: Reject | None


def read_sources(folder: str, shard: PlannedShard) -> list[Source] | None:
    """The images of a shard, in order; None if its sidecar is missing."""
    sidecar = sidecars.read_published_sidecar(folder, shard)
    if sidecar is None or len(sidecar.refs) != shard.images:
        return None
    rejected = [Reject(**json.loads(line)) for line in sidecar.reject_lines]
    rejects = {to_bytes(reject.key): reject for reject in rejected}
    found = list[Source]()
    number = shard.first
    for ref in sidecar.refs:
        reject = rejects.get(key_of(ref))
        found.append(Source(ref, -1 if reject else number, reject))
        number += reject is None
    return found


def require_sources(folder: str, shard: PlannedShard) -> list[Source]:
    """The images of a shard, in order.

    Raises:
        DataError: its sidecar is missing.
    """
    if (sources := read_sources(folder, shard)) is None:
        problem = (
            f"{folder}: .sources, which says what the shards were made from, lacks {shard.name}"
        )
        raise DataError(f"{problem}; `beam-tfr update DIR --input …` makes it again")
    return sources


@functools.lru_cache(maxsize=2)
def _by_name(base: BaseDataset) -> dict[str, PlannedShard]:
    return {shard.name: shard for shard in planned_shards(base.read_manifest())}


def find_equal_shard(base: BaseDataset, info: ShardInfo) -> ShardInfo | None:
    """The shard of the dataset, if it has the bytes of one that was just written, so it stays; else
    None."""
    shard = _by_name(base).get(info.shard.name)
    if (
        shard is None
        or shard.entry is None
        or (shard.entry.file, shard.entry.sha256) != (info.file, info.sha256)
    ):
        return None
    sidecar = sidecars.read_published_sidecar(base.folder, shard)
    return _in_place(base, sidecar.info) if sidecar else None


def _in_place(base: BaseDataset, info: ShardInfo) -> ShardInfo | None:
    """A shard of the dataset, if its files are as they were written; on gs:// their moves changed
    the generations."""
    contents = info.contents and info.contents._replace(built="")
    info = dataclasses.replace(info, built="", contents=contents)
    return sidecars.find_files(base.folder, info, moved=storage.is_gcs(base.folder))


def reuse_shard(base: BaseDataset, shard: Shard, refs: Sequence[bytes]) -> ShardInfo | None:
    """The shard of the dataset, if it has the same references and recipe, so it stays; else
    None."""
    planned = _by_name(base).get(shard.name)
    if planned is None or base.compare == "checksum":
        return None
    sidecar = sidecars.read_published_sidecar(base.folder, planned)
    if not sidecar or (sidecar.info.shard.recipe, sidecar.refs) != (shard.recipe, refs):
        return None
    if base.compare == "auto" and any(
        EncodedRef.parse(ref).generation == b"0" for ref in refs
    ):  # rows of a table
        return None
    if sidecar.reject_lines and not base.with_rejects:
        return None
    if base.compare != "names" and sidecar.info.rejected.keys() & {*_PASSING}:
        return None
    if (info := _in_place(base, sidecar.info)) is None:
        return None
    info = dataclasses.replace(info, shard=shard, before={"kept": info.num_examples})
    lines = [line.decode().rstrip("\n") for line in sidecar.reject_lines]
    return sidecars.write_sidecar(base.folder, info, lines, refs=refs, sums=sidecar.sums)


def encode_source(source: Source) -> bytes:
    """What `match_image` needs of an image, short, for the shuffle."""
    ref = EncodedRef.parse(source.ref)
    place = (
        source.number,
        int(ref.size_bytes),
        int(ref.generation),
        int(ref.crc32c or 0),
        sidecars.fingerprint_ref(source.ref),
    )
    reject = (source.reject.to_json() if source.reject else "").encode()
    return ref.key + b"\0" + _PLACE.pack(*place) + reject


def match_image(ref: bytes, encoded: bytes, compare: str) -> Known | None:
    """Compares a reference with what is known about its image; None if that does not help, as with
    a new reject.

    Args:
        ref: an encoded reference.
        encoded: the result of `encode_source` for the same key.
        compare: `Base.compare`.
    """
    start = len(key_of(encoded)) + 1
    number, size, generation, crc32c, fingerprint = _PLACE.unpack_from(encoded, start)
    state = _compare(ref, size, generation, crc32c, fingerprint, compare)
    if number >= 0 and state is KnownState.SAME:  # most, and these have no reason
        return Known(number, state)
    if EncodedRef.parse(ref).reason:
        return None
    if number >= 0:
        return Known(number, state)
    reject = Reject(**json.loads(encoded[start + _PLACE.size :]))
    may_pass = compare != "names" and reject.reason in _PASSING
    return Known(number, state, reject) if state.same_source and not may_pass else None


def _compare(
    ref: bytes, size: int, generation: int, crc32c: int, fingerprint: bytes, compare: str
) -> KnownState:
    """The `Known.state` of an image, given the fields of its earlier reference."""
    trusted = compare == "names" or (generation and compare != "checksum")
    same_ref = fingerprint == sidecars.fingerprint_ref(ref)
    if trusted and same_ref:
        return KnownState.SAME
    now = ImageRef.decode(ref)
    if compare == "names":
        return KnownState.UNCHANGED
    if now.size_bytes != size and not is_in_parquet(now.place):  # where the size is an estimate
        return KnownState.CHANGED
    if trusted and now.generation == generation:
        return KnownState.UNCHANGED
    if crc32c and now.crc32c:
        return KnownState.UNCHANGED if now.crc32c == crc32c else KnownState.CHANGED
    return KnownState.REREAD if same_ref else KnownState.UNSURE


class KnownRecord(NamedTuple):
    """A record of a finished dataset.

    Attributes:
        serialized: the tf.train.Example.
        row: its row of the contents, without the columns that say where it is stored.
        sums: as in `Sidecar`.
    """

    serialized: bytes
    row: dict[str, Any]
    sums: bytes


class KnownRecords:
    """Reads records of a finished dataset, with all that is known about them.

    Args:
        base: the dataset.
    """

    def __init__(self, base: BaseDataset) -> None:
        dataset = base.read_manifest()
        above = storage.join(dataset.folder, "")
        self._shards = {
            above + shard.entry.file: shard for shard in planned_shards(dataset) if shard.entry
        }
        entries = [(path, shard.entry) for path, shard in self._shards.items() if shard.entry]
        parts = [
            ShardPart(path, entry.num_examples, 0, entry.num_examples, entry.num_bytes)
            for path, entry in entries
        ]
        self._lookup = RecordLookup(dataset, parts)
        longest = max([512, *(part.records for part in self._lookup.parts)])
        self._about = functools.lru_cache(maxsize=max(4, _MOST_ROWS // longest))(self._read_about)

    def read_records(self, numbers: Sequence[int]) -> list[KnownRecord | None]:
        """The records of these numbers; None for one that is damaged.

        Raises:
            DataError, OSError: as `RecordLookup.read_frames`, for all else.
        """
        try:
            frames, sizes, rows, texts = self.read_frames(numbers)
        except RecordError:
            if len(numbers) == 1:
                return [None]
            return [copy for number in numbers for copy in self.read_records([number])]
        return [*map(KnownRecord, unframe_records(frames, sizes), rows.to_pylist(), texts)]

    def read_frames(self, numbers: Sequence[int]) -> tuple[bytes, list[int], Any, list[bytes]]:
        """The frames of these records, the size of each, their `pyarrow.Table` of contents, and
        their sums.

        Raises:
            DataError, OSError: as `RecordLookup.read_frames`.
        """
        tables = []
        texts = list[bytes]()
        for part, begin, size in self._lookup.stretches(numbers):
            table, sums = self._about(part)
            tables.append(table.slice(begin, size))
            texts += sums[begin : begin + size]
        frames = self._lookup.read_frames(numbers)
        return b"".join(frames), [*map(len, frames)], need_pyarrow().concat_tables(tables), texts

    def find_sizes(self, keys: Collection[str]) -> dict[str, int | None]:
        """The sizes of the records of some keys, None for rejects; reads the sidecars of all
        shards."""
        found: dict[str, int | None] = {}
        wanted = {to_bytes(key): key for key in keys}
        for shard in planned_shards(self._lookup.dataset):
            for source in read_sources(self._lookup.dataset.folder, shard) or ():
                key = wanted.get(key_of(source.ref))
                if key:
                    found[key] = None if source.reject else self._length(source.number)
        return found

    def _length(self, number: int) -> int:
        part, row = self._lookup.locate(number)
        return int(self._lookup.open_shard(part)["length"][row].as_py())

    def _read_about(self, part: ShardPart) -> tuple[Any, list[bytes]]:
        table = self._lookup.open_shard(part)
        sidecar = sidecars.read_published_sidecar(
            self._lookup.dataset.folder, self._shards[part.file]
        )
        if sidecar is None:
            raise RunError(
                f"the sidecar of {part.file} was removed while it was read; run the same command again"
            )
        columns = [
            name for name in table.column_names if name == "key" or name not in contents.PLACE
        ]
        return table.select(columns), sidecar.sums
