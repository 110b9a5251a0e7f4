"""The file of a shard: compresses, hashes and counts what is written, and finds a record in it
again.

`records.tfrecords.frame` frames the records. The gzip container (RFC 1952) is written here, so that
stored blocks (RFC 1951), used for unframe_records that are compressed already, have the same bytes however
the records arrive, and so that any record can be read by itself:

    stored       blocks of 65,535 bytes, so byte u of the records is byte 15 + u // 65,535 * 65,540
    + u % 65,535 compressed   restart points (`Z_FULL_FLUSH` of zlib), after which a decompressor
    needs no earlier bytes
"""

import hashlib
import struct
import zlib
from collections.abc import Callable, Sequence

_GZIP_HEADER = (
    b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"  # deflate, no flags, no time, unknown system
)
_BLOCK_BYTES = 0xFFFF  # the largest stored block
_BLOCK = struct.Struct(
    "<BHH"
)  # in front of it: whether it is the last, its length, and the complement of that
_FULL = _BLOCK.pack(False, _BLOCK_BYTES, 0)
RESTART_BYTES = 256 << 10  # 256 KiB: of records between two restart points, at least
COMPRESSED_ENCODINGS = ("jpeg", "png", "webp", "keep")
DEFAULT_GZIP_LEVEL = (
    3  # raw photos: 0.67 of their size at 56 MB/s; level 6 gets the same at 42 MB/s
)


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

    Attributes:
        num_bytes: bytes of the file so far.
        length: bytes of the records so far.
    """

    def __init__(self, write: Callable[[bytes], object], level: int | None) -> None:
        self._write = write
        self._hash = hashlib.sha256()
        self.num_bytes = 0
        self._level = level
        self._crc = self.length = 0
        self._buffer = bytearray()
        self._deflate = zlib.compressobj(level, zlib.DEFLATED, -zlib.MAX_WBITS) if level else None
        if level is not None:
            self._put(_GZIP_HEADER)
        self._restart = self.num_bytes
        self._restarted = 0

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()

    def write_records(self, frames: bytes, sizes: Sequence[int]) -> list[int | None]:
        """Writes framed records of these sizes.

        Returns where to start inflating to read each, None unless they are compressed.
        """
        if self._deflate is None:
            self.write(frames)
            return [None] * len(sizes)
        restarts = list[int | None]()
        end = 0
        for size in sizes:
            begin = end
            end = end + size
            if self.length - self._restarted >= RESTART_BYTES:
                self._put(self._deflate.flush(zlib.Z_FULL_FLUSH))
                self._restart = self.num_bytes
                self._restarted = self.length
            restarts.append(self._restart)
            self.write(frames[begin:end])
        return restarts

    def write(self, data: bytes) -> None:
        self.length += len(data)
        if self._level is None:
            self._put(data)
            return
        self._crc = zlib.crc32(data, self._crc)
        if self._deflate is not None:
            self._put(self._deflate.compress(data))
            return
        self._buffer += data
        begins = range(0, len(self._buffer), _BLOCK_BYTES)[
            :-1
        ]  # not of the last block, which carries the final bit
        if begins:
            self._put(b"".join([_FULL + self._buffer[at : at + _BLOCK_BYTES] for at in begins]))
            del self._buffer[: begins.stop]

    def close(self) -> None:
        """Writes the rest; the file is then complete, but not yet visible."""
        if self._level is None:
            return
        if self._deflate is not None:
            self._put(self._deflate.flush())
        else:
            self._put(
                _BLOCK.pack(True, len(self._buffer), len(self._buffer) ^ _BLOCK_BYTES)
                + self._buffer
            )
        self._put(struct.pack("<II", self._crc, self.length & 0xFFFFFFFF))

    def _put(self, data: bytes) -> None:
        self._hash.update(data)
        self.num_bytes += len(data)
        self._write(data)


def stored_range(begin: int, end: int) -> tuple[int, int]:
    """Where bytes [begin, end) of the records are in a file of stored blocks, with the headers
    between them."""
    first = begin // _BLOCK_BYTES
    last = (end - 1) // _BLOCK_BYTES
    return _in_blocks(begin, first), _in_blocks(end, last)


def _in_blocks(position: int, block: int) -> int:
    return len(_GZIP_HEADER) + (block + 1) * _BLOCK.size + position


def strip_block_headers(data: bytes | memoryview, begin: int) -> bytes:
    """The bytes of the records from `begin` on, given what the file holds at their
    `stored_range`."""
    first = _BLOCK_BYTES - begin % _BLOCK_BYTES
    view = memoryview(data)
    begins = range(first + _BLOCK.size, len(data), _BLOCK.size + _BLOCK_BYTES)
    return b"".join([view[:first], *(view[at : at + _BLOCK_BYTES] for at in begins)])
