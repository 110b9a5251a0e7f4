"""Finds where a shard's file holds each record, based on the contents of the shard.

A plain shard holds one frame after another. A stored shard is GZIP with uncompressed blocks, whose
headers interrupt the bytes of the frames. A compressed shard is inflated from the restart point
before a record. `records.shard_file` writes all three kinds.
"""

import abc
import dataclasses
import itertools
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from beam_tfr.dataset.manifest import REPAIR_OR_COPY
from beam_tfr.records.shard_file import RESTART_BYTES, stored_range, strip_block_headers
from beam_tfr.records.tfrecords import (
    FOOTER,
    FRAME_BYTES,
    RecordError,
    describe_damage,
    max_record_bytes_in,
)

INDEX_COLUMNS = ("offset", "length", "restart")  # of the contents
_TRAILER_BYTES = 8  # of gzip
Int64 = NDArray[np.int64]


class ByteRange(NamedTuple):
    """Bytes [begin, end) of a file, which hold the record with the number `row`.

    `slot` is the record's place among the requested records.
    """

    begin: int
    end: int
    row: int
    slot: int

    def cut_from(self, data: memoryview, origin: int) -> memoryview:
        """Returns these bytes from data that begins at `origin` in the file."""
        return data[self.begin - origin : self.end - origin]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShardIndex(abc.ABC):
    """The positions of the records in a shard.

    Attributes:
        path: path of the shard's file.
        generation: generation of the file when it was checked against the manifest.
        num_bytes: size of the file.
        ends: the end of each frame in the uncompressed data: int64 [records].
    """

    path: str
    generation: int
    num_bytes: int
    ends: Int64

    def begin(self, row: int) -> int:
        """Returns where the frame of a record begins in the uncompressed data."""
        return int(self.ends[row - 1]) if row else 0

    def end(self, row: int) -> int:
        """Returns where the frame of a record ends in the uncompressed data."""
        return int(self.ends[row])

    def cut_frames(self, ranges: Sequence[ByteRange], data: bytes) -> Iterator[bytes]:
        """Yields the frames of some records.

        Args:
            ranges: the ranges of the records, ascending.
            data: the bytes of the file from the first range to the last.

        Raises:
            RecordError: a record is damaged.
        """
        frames = self._cut_ranges(ranges, memoryview(data))
        for (_, _, row, _), frame in zip(ranges, frames, strict=True):
            begin = self.begin(row)
            damage = describe_damage(frame, self.end(row) - begin)
            if damage:
                raise RecordError(self.path, row, begin, f"{damage}; {REPAIR_OR_COPY}")
            yield frame

    @abc.abstractmethod
    def check_layout(self) -> None:
        """Checks that the positions of the records match the file.

        Raises:
            ValueError: the positions do not match.
        """

    @abc.abstractmethod
    def locate(self, row: int) -> tuple[int, int]:
        """Returns the bytes [begin, end) of the file to read for a record."""

    @abc.abstractmethod
    def _cut_ranges(self, ranges: Sequence[ByteRange], data: memoryview) -> Iterator[bytes]:
        """Yields the frames of some records without checking them."""


class PlainShard(ShardIndex):
    """A shard without GZIP."""

    def check_layout(self) -> None:
        if len(self.ends) and self._file_bytes() != self.num_bytes:
            raise ValueError("does not match its shard: the file has a different size")

    def locate(self, row: int) -> tuple[int, int]:
        return self.begin(row), self.end(row)

    def _cut_ranges(self, ranges: Sequence[ByteRange], data: memoryview) -> Iterator[bytes]:
        origin = ranges[0].begin
        for span in ranges:
            yield bytes(span.cut_from(data, origin))

    def _file_bytes(self) -> int:
        """Returns the file size that follows from the positions of the records."""
        return int(self.ends[-1])


class StoredShard(PlainShard):
    """A shard of GZIP blocks that are not compressed."""

    def locate(self, row: int) -> tuple[int, int]:
        return stored_range(self.begin(row), self.end(row))

    def _cut_ranges(self, ranges: Sequence[ByteRange], data: memoryview) -> Iterator[bytes]:
        origin = ranges[0].begin
        for span in ranges:
            blocks = span.cut_from(data, origin)
            yield strip_block_headers(blocks, self.begin(span.row))

    def _file_bytes(self) -> int:
        _, end = stored_range(0, int(self.ends[-1]))
        return end + _TRAILER_BYTES


@dataclasses.dataclass(frozen=True, kw_only=True)
class CompressedShard(ShardIndex):
    """A shard of compressed GZIP.

    Attributes:
        restarts: for each record, the place in the file where inflating starts: int64 [records].
    """

    restarts: Int64

    def check_layout(self) -> None:
        steps = np.diff(self.restarts, prepend=0, append=self.num_bytes)
        if self.restarts.dtype != np.int64 or (steps < 0).any():
            raise ValueError(
                "does not match its shard: restart points are out of order, or outside the file"
            )

    def locate(self, row: int) -> tuple[int, int]:
        restart = int(self.restarts[row])
        following = int(self.restarts.searchsorted(restart, "right"))
        if following == len(self.restarts):
            return restart, self.num_bytes - _TRAILER_BYTES
        return restart, int(self.restarts[following])

    def _cut_ranges(self, ranges: Sequence[ByteRange], data: memoryview) -> Iterator[bytes]:
        origin = ranges[0].begin
        for _, group in itertools.groupby(ranges, lambda span: span.begin):
            spans = [*group]
            first, inflated = self._inflate(spans[0], spans[0].cut_from(data, origin))
            for span in spans:
                begin = self.begin(span.row)
                end = self.end(span.row)
                yield inflated[begin - first : end - first]

    def _inflate(self, span: ByteRange, data: memoryview) -> tuple[int, bytes]:
        """Inflates the records after a restart point.

        Returns:
            The position of these records in the uncompressed data, and their bytes.

        Raises:
            RecordError: the records are damaged.
        """
        first = int(self.restarts.searchsorted(span.begin, "left"))
        last = int(self.restarts.searchsorted(span.begin, "right")) - 1
        begin = self.begin(first)
        size = self.end(last) - begin
        try:
            if size > RESTART_BYTES + max_record_bytes_in(self.num_bytes) + FRAME_BYTES:
                raise zlib.error("two restart points are too far apart")
            inflater = zlib.decompressobj(-zlib.MAX_WBITS)
            return begin, inflater.decompress(data, size)
        except zlib.error as error:
            problem = f"it is damaged ({error}); {REPAIR_OR_COPY}"
            place = self.begin(span.row)
            raise RecordError(self.path, span.row, place, problem) from None


def index_shard(
    table: Any, *, path: str, generation: int, num_bytes: int, gzip_level: int | None
) -> ShardIndex:
    """Creates the index of a shard from its contents, which are untrusted.

    Args:
        table: the `INDEX_COLUMNS` of the contents.
        path, generation, num_bytes: path, generation and size of the shard's file.
        gzip_level: compression level of the dataset's shards.

    Raises:
        ValueError: the contents contradict each other, or do not match the file.
    """
    offsets, lengths, restarts = (table.column(name).to_numpy() for name in INDEX_COLUMNS)
    ends = _frame_ends(offsets, lengths, max_record_bytes_in(num_bytes))
    index: ShardIndex
    match gzip_level:
        case None:
            index = PlainShard(path=path, generation=generation, num_bytes=num_bytes, ends=ends)
        case 0:
            index = StoredShard(path=path, generation=generation, num_bytes=num_bytes, ends=ends)
        case _:
            index = CompressedShard(
                path=path, generation=generation, num_bytes=num_bytes, ends=ends, restarts=restarts
            )
    index.check_layout()
    return index


def _frame_ends(offsets: Any, lengths: Any, longest: int) -> Int64:
    """Returns the end of each frame in the uncompressed data.

    Raises:
        ValueError: the columns contradict each other, or a length is impossible.
    """
    if lengths.dtype != np.int64 or offsets.dtype != np.int64:  # there are nulls
        raise ValueError("does not match its shard: a length is impossible")
    if (lengths < 0).any() or (lengths > longest).any():
        raise ValueError("does not match its shard: a length is impossible")
    ends: Int64 = np.cumsum(lengths + FRAME_BYTES)
    if (offsets + lengths + FOOTER.size != ends).any():
        raise ValueError("does not match its shard: an offset does not follow the record before it")
    return ends
