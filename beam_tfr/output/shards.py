"""The content of a shard's file: compresses, hashes and counts, and checks the order of items.

`records.tfrecords.frame` frames the records; `transforms.writing` opens and commits the file. The gzip container (RFC
1952) is written here, so that stored blocks (RFC 1951), used for payloads that are compressed already, have the same
bytes however the records arrive.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Callable, Iterable
from typing import TypeVar

from beam_tfr.schema import Item, Record, RecordsDigest, Reject, RunError, Shard, ShardInfo, add_each, size_bucket

_Key = TypeVar("_Key", int, str)
_GZIP_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"  # deflate, no flags, no time, unknown system
_BLOCK_BYTES = 0xFFFF  # the largest stored block
COMPRESSED_ENCODINGS = ("jpeg", "png", "webp", "keep")
DEFAULT_GZIP_LEVEL = 3  # raw photos: 0.67 of their size at 56 MB/s; level 6 gets the same at 42 MB/s


def gzip_level(compression: str, gzip_level: int | str, encoding: str) -> int | None:
    """The gzip level to write with; None for no gzip."""
    if compression == "none":
        return None
    if gzip_level == "auto":
        return 0 if encoding in COMPRESSED_ENCODINGS else DEFAULT_GZIP_LEVEL
    return int(gzip_level)


class ShardFile:
    """A file-like object that compresses, hashes and counts the bytes written to it.

    Args:
        write: function that receives the bytes of the file.
        level: gzip level, 0 (stored) to 9; None for no gzip.
    """

    def __init__(self, write: Callable[[bytes], object], level: int | None) -> None:
        self._write = write
        self._hash = hashlib.sha256()
        self.num_bytes = 0
        self._level = level
        self._crc = self._length = 0
        self._buffer = bytearray()
        self._deflate = zlib.compressobj(level, zlib.DEFLATED, -zlib.MAX_WBITS) if level else None
        if level is not None:
            self._put(_GZIP_HEADER)

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()

    def write(self, data: bytes) -> None:
        if self._level is None:
            self._put(data)
            return
        self._crc = zlib.crc32(data, self._crc)
        self._length += len(data)
        if self._deflate is not None:
            self._put(self._deflate.compress(data))
            return
        self._buffer += data
        while len(self._buffer) > _BLOCK_BYTES:  # never the last block, which carries the final bit
            self._put_block(_BLOCK_BYTES, final=False)

    def close(self) -> None:
        """Writes the rest; the file is then complete, but not yet visible."""
        if self._level is None:
            return
        if self._deflate is not None:
            self._put(self._deflate.flush())
        else:
            self._put_block(len(self._buffer), final=True)
        self._put(struct.pack("<II", self._crc, self._length & 0xFFFFFFFF))

    def _put_block(self, size: int, *, final: bool) -> None:
        self._put(struct.pack("<BHH", final, size, size ^ 0xFFFF) + self._buffer[:size])
        del self._buffer[:size]

    def _put(self, data: bytes) -> None:
        self._hash.update(data)
        self.num_bytes += len(data)
        self._write(data)


class ShardCounter:
    """Counts the records and rejects of a shard; `close` gives its `ShardInfo`."""

    def __init__(self, shard: Shard) -> None:
        self._info = ShardInfo(shard=shard)
        self._records = RecordsDigest()
        self.reject_lines: list[str] = []

    def count_record(self, record: Record, label_ids: Iterable[int]) -> None:
        self._records.add(record.serialized)
        info = self._info  # without a `Counts` for each record, which takes longer than to count
        info.num_examples += 1
        for label_id in label_ids:
            if label_id >= 0:
                _count(info.class_counts, label_id)
        if image := record.image:
            for kind in image.adjusted:
                _count(info.adjusted, kind)
            info.pixels += image.height * image.width if image.channel_sums else 0
            info.channel_sums = add_each(info.channel_sums, image.channel_sums)
            info.channel_squares = add_each(info.channel_squares, image.channel_squares)
            info.cut_ppm += image.cut_ppm
            _count(info.source_sizes, size_bucket(image.source_height, image.source_width))

    def count_reject(self, reject: Reject) -> None:
        _count(self._info.rejected, reject.reason)
        self.reject_lines.append(reject.to_json())

    def close(self, file_name: str, file: ShardFile | None) -> ShardInfo:
        if file is not None:
            self._info.file = file_name
            self._info.num_bytes = file.num_bytes
            self._info.sha256 = file.sha256
            self._info.records_sha256 = self._records.hexdigest()
        return self._info


def _count(counts: dict[_Key, int], key: _Key) -> None:
    counts[key] = counts.get(key, 0) + 1


class Sequencer:
    """Checks that all items of a shard arrive in order before the next one begins.

    A runner that puts a shuffle or a bundle boundary between the stages breaks this, and must fail loudly rather than
    write a short shard.
    """

    def __init__(self) -> None:
        self.shard: Shard | None = None
        self._next = 0

    def take(self, item: Item, begin: Callable[[Shard], None]) -> bool:
        """Takes the next item of a shard; returns whether it was the last.

        Args:
            item: the item.
            begin: called before the first item of a shard.

        Raises:
            RunError: another item was expected.
        """
        expected = self.shard or item.shard
        if (item.shard, item.position) != (expected, self._next):
            raise RunError(
                f"{_BROKEN}: got {item.shard.name} position {item.position}, expected {expected.name} position "
                f"{self._next}"
            )
        if self.shard is None:
            begin(item.shard)
        self.shard, self._next = item.shard, self._next + 1
        if self._next < item.shard.total:
            return False
        self.shard, self._next = None, 0
        return True

    def give_up(self, shard: Shard) -> None:
        """Abandons a shard, whether it is open or not.

        Raises:
            RunError: another shard is open.
        """
        if self.shard == shard:
            self.shard, self._next = None, 0
        self.check_closed()

    def check_closed(self) -> None:
        """Checks that no shard is open.

        Raises:
            RunError: a shard lacks its last item.
        """
        if self.shard is not None:
            raise RunError(f"{_BROKEN}: shard {self.shard.name} ended at {self._next} of {self.shard.total} images")


_BROKEN = (
    "this runner did not keep the images of a shard together (a stage between ReadImages and WriteShards was not fused)"
)
