"""Compresses, hashes and counts the bytes written to a shard's file, and finds records in it.

`records.tfrecords.frame` frames the records. The gzip container (RFC 1952) is written here. So
stored blocks (RFC 1951), which are used for payloads that are already compressed, are the same
however the records arrive, and any record can be read by itself:

    stored       blocks of 65,535 bytes: byte u of the records is in block u // 65,535, whose header
                 has 5 bytes, after the 10 bytes of the gzip header
    compressed   restart points (`Z_FULL_FLUSH` in zlib), after which a decompressor needs no
                 earlier bytes
"""

import abc
import hashlib
import struct
import zlib
from collections.abc import Callable, Sequence

# Deflate, no flags, no time, unknown system.
_GZIP_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
_BLOCK_BYTES = 0xFFFF  # the largest stored block
# Before each block: whether it is the last, its length, and the complement of the length.
_BLOCK = struct.Struct("<BHH")
_FULL = _BLOCK.pack(False, _BLOCK_BYTES, 0)
_TRAILER = struct.Struct("<II")  # gzip's trailer: the checksum and the length of all records
RESTART_BYTES = 256 << 10  # fewest bytes of records between two restart points: 256 KiB
COMPRESSED_ENCODINGS = ("jpeg", "png", "webp", "keep")
# Shrinks raw photos to 0.67 of their size at 56 MB/s; level 6 does the same at 42 MB/s.
DEFAULT_GZIP_LEVEL = 3


def gzip_level(compression: str, gzip_level: int | str, encoding: str) -> int | None:
    """Returns the gzip level to write with; None for no gzip."""
    if compression == "none":
        return None
    if gzip_level == "auto":
        return 0 if encoding in COMPRESSED_ENCODINGS else DEFAULT_GZIP_LEVEL
    return int(gzip_level)


def open_shard_file(write: Callable[[bytes], object], level: int | None) -> "ShardFile":
    """Opens the file of a shard.

    Args:
        write: function that receives the bytes of the file.
        level: gzip level, 0 (stored) to 9; None for no gzip.
    """
    match level:
        case None:
            return ShardFile(write)
        case 0:
            return _StoredFile(write)
        case _:
            return _DeflatedFile(write, level)


class ShardFile:
    """A file-like object that hashes and counts the bytes written to it.

    Subclasses compress the bytes.

    Attributes:
        num_bytes: bytes in the file so far.
        length: bytes of the records so far, uncompressed.
    """

    def __init__(self, write: Callable[[bytes], object]) -> None:
        self._write = write
        self._hash = hashlib.sha256()
        self.num_bytes = 0
        self.length = 0

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()

    def write_records(self, frames: bytes, sizes: Sequence[int]) -> list[int | None]:
        """Writes framed records of these sizes.

        Returns, for each record, the position at which to start inflating in order to read the
        record; None if the file is not deflated.
        """
        self.write(frames)
        return [None] * len(sizes)

    def write(self, data: bytes) -> None:
        self.length += len(data)
        self._append(data)

    def close(self) -> None:
        """Writes the rest; the file is then complete, but not visible yet."""

    def _append(self, data: bytes) -> None:
        """Appends bytes to the file."""
        self._hash.update(data)
        self.num_bytes += len(data)
        self._write(data)


class _GzipFile(ShardFile, abc.ABC):
    """A gzip file."""

    def __init__(self, write: Callable[[bytes], object]) -> None:
        super().__init__(write)
        self._checksum = 0  # checksum of the records
        self._append(_GZIP_HEADER)

    def write(self, data: bytes) -> None:
        self.length += len(data)
        self._checksum = zlib.crc32(data, self._checksum)
        self._compress(data)

    def close(self) -> None:
        self._end_blocks()
        self._append(_TRAILER.pack(self._checksum, self.length & 0xFFFFFFFF))

    @abc.abstractmethod
    def _compress(self, data: bytes) -> None:
        """Appends the blocks for the next bytes; some bytes may have to wait for later bytes."""

    @abc.abstractmethod
    def _end_blocks(self) -> None:
        """Appends the rest, up to the last block."""


class _StoredFile(_GzipFile):
    """A gzip file with stored blocks."""

    def __init__(self, write: Callable[[bytes], object]) -> None:
        super().__init__(write)
        self._buffer = bytearray()  # content of the next block

    def _compress(self, data: bytes) -> None:
        self._buffer += data
        # The last block has the final bit, and is written at the end.
        begins = range(0, len(self._buffer), _BLOCK_BYTES)[:-1]
        if begins:
            blocks = [_FULL + self._buffer[begin : begin + _BLOCK_BYTES] for begin in begins]
            self._append(b"".join(blocks))
            del self._buffer[: begins.stop]

    def _end_blocks(self) -> None:
        size = len(self._buffer)
        self._append(_BLOCK.pack(True, size, size ^ _BLOCK_BYTES) + self._buffer)


class _DeflatedFile(_GzipFile):
    """A compressed gzip file, with restart points."""

    def __init__(self, write: Callable[[bytes], object], level: int) -> None:
        super().__init__(write)
        self._deflate = zlib.compressobj(level, zlib.DEFLATED, -zlib.MAX_WBITS)
        self._restart = self.num_bytes  # the last restart point in the file
        self._restarted_length = 0  # the last restart point in the records

    def write_records(self, frames: bytes, sizes: Sequence[int]) -> list[int | None]:
        restarts = list[int | None]()
        end = 0
        for size in sizes:
            begin = end
            end += size
            if self.length - self._restarted_length >= RESTART_BYTES:
                self._append(self._deflate.flush(zlib.Z_FULL_FLUSH))
                self._restart = self.num_bytes
                self._restarted_length = self.length
            restarts.append(self._restart)
            self.write(frames[begin:end])
        return restarts

    def _compress(self, data: bytes) -> None:
        self._append(self._deflate.compress(data))

    def _end_blocks(self) -> None:
        self._append(self._deflate.flush())


def stored_range(begin: int, end: int) -> tuple[int, int]:
    """Computes where bytes [begin, end) of the records are in a file of stored blocks.

    The range includes the headers between them.
    """
    first_block = begin // _BLOCK_BYTES
    last_block = (end - 1) // _BLOCK_BYTES
    return _stored_position(begin, first_block), _stored_position(end, last_block)


def _stored_position(position: int, block: int) -> int:
    """Computes where a byte of the records, or the end of the records, is in the file.

    Args:
        position: position of the byte in the records.
        block: number of its block.
    """
    return len(_GZIP_HEADER) + (block + 1) * _BLOCK.size + position


def strip_block_headers(data: bytes | memoryview, begin: int) -> bytes:
    """Returns the bytes of the records from `begin` on, without the headers between them.

    Args:
        data: the bytes of the file in their `stored_range`.
        begin: number of the first byte in the records.
    """
    view = memoryview(data)
    first_size = _BLOCK_BYTES - begin % _BLOCK_BYTES
    pieces = [view[:first_size]]
    for start in range(first_size + _BLOCK.size, len(data), _BLOCK.size + _BLOCK_BYTES):
        pieces.append(view[start : start + _BLOCK_BYTES])
    return b"".join(pieces)
