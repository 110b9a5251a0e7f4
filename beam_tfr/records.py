"""TFRecord files read in plain Python: no Beam, no TensorFlow, every checksum checked, memory flat.

A record is its length (uint64, little-endian), the masked CRC-32C of those 8 bytes, the data, and the masked CRC-32C of
the data. A file is records one after the other, bare or in gzip.
"""

from __future__ import annotations

import itertools
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import IO

import google_crc32c

from beam_tfr import storage
from beam_tfr.schema import DataError

MAX_RECORD_BYTES = 1 << 30  # 1 GiB
_CHUNK_BYTES = 1 << 18  # 256 KiB, read and inflated at a time: stays in the processor's cache
_HEADER = struct.Struct("<QI")
_FOOTER = struct.Struct("<I")
_FRAME_BYTES = _HEADER.size + _FOOTER.size
_GZIP_MAGIC = b"\x1f\x8b"
_GZIP = 31  # zlib's wbits: gzip header and trailer


class RecordError(DataError):
    """A TFRecord file is damaged.

    Attributes:
        file: its path.
        record: number of the record, 0-based.
        offset: in bytes of the uncompressed stream: where the record begins, or where the stream ends too early.
        problem: what was found there.
    """

    def __init__(self, file: str, record: int, offset: int, problem: str) -> None:
        super().__init__(f"{file}: record {record} at byte {offset}: {problem}")
        self.file, self.record, self.offset, self.problem = file, record, offset, problem

    def __reduce__(self) -> tuple[type[RecordError], tuple[str, int, int, str]]:
        return RecordError, (self.file, self.record, self.offset, self.problem)  # on its way between processes


class RecordFile:
    """One TFRecord file, to be iterated over once: yields the data of each record.

    Costs memory for the longest record (three times its length) and about a megabyte.

    Attributes:
        path: local or gs://.
        record: number of the record that was yielded last, 0-based; after the end, the number of records.
        offset: where it begins in the uncompressed stream, in bytes.

    Args:
        path: local or gs://.
        compression: "gzip" or "none"; None finds it out from the first bytes.
        max_record_bytes: a longer record is an error.
        skip: so many records at the beginning are passed by, their data neither checked nor yielded.
        on_bytes: gets the bytes of the file as they are read, in order; all of them when the iteration ends by itself.
        on_damage: gets the error for a record whose data does not fit its checksum, and iteration goes on behind it;
            without it the error is raised.

    Iterating raises:
        RecordError: damage after which nothing more can be read.
        OSError: the file is not there or cannot be read.
    """

    def __init__(
        self,
        path: str,
        *,
        compression: str | None = None,
        max_record_bytes: int = MAX_RECORD_BYTES,
        skip: int = 0,
        on_bytes: Callable[[bytes], object] | None = None,
        on_damage: Callable[[RecordError], object] | None = None,
    ) -> None:
        if compression not in (None, "gzip", "none"):
            raise ValueError(f'compression must be "gzip", "none" or None, got {compression!r}')
        self.path = path
        self.record = 0
        self.offset = 0
        self._compression = compression
        self._max_record_bytes = max_record_bytes
        self._skip = skip
        self._on_bytes = on_bytes
        self._on_damage = on_damage

    def __iter__(self) -> Iterator[bytes]:
        stream = self._stream()
        buffer, at = b"", 0  # the current record begins at buffer[at]
        while True:
            if len(buffer) < at + _FRAME_BYTES:
                buffer, at = self._fill(stream, buffer[at:], _FRAME_BYTES), 0
                if not buffer:
                    return
            length, length_crc = _HEADER.unpack_from(buffer, at)
            if masked_crc(buffer[at : at + 8]) != length_crc:
                raise self._error("its length does not fit the checksum of the length")
            if length > self._max_record_bytes:
                raise self._error(f"its length is {length} bytes, allowed are {self._max_record_bytes}")
            end = at + _FRAME_BYTES + length
            if len(buffer) < end:
                buffer, at, end = self._fill(stream, buffer[at:], end - at), 0, end - at
            size = end - at
            if self.record < self._skip:
                at = end
            else:
                data = buffer[at + _HEADER.size : end - _FOOTER.size]
                (data_crc,) = _FOOTER.unpack_from(buffer, end - _FOOTER.size)
                at = end
                if size > _CHUNK_BYTES:
                    buffer, at = buffer[at:], 0  # a long record is not kept twice while the caller works on it
                if masked_crc(data) == data_crc:
                    yield data
                else:
                    damage = self._error("its data does not fit the checksum of the data")
                    if self._on_damage is None:
                        raise damage
                    self._on_damage(damage)
            self.record += 1
            self.offset += size

    def _error(self, problem: str, *, behind: int = 0) -> RecordError:
        return RecordError(self.path, self.record, self.offset + behind, problem)

    def _fill(self, stream: Iterator[bytes], begun: bytes, needed: int) -> bytes:
        """The begun record with as many pieces of the stream behind it as it needs; empty at the end of the file."""
        pieces, have = [begun], len(begun)
        try:
            while have < needed:
                piece = next(stream, b"")
                if not piece:
                    break
                pieces.append(piece)
                have += len(piece)
        except _GzipError as error:
            raise self._error(str(error), behind=have) from error.__cause__
        if 0 < have < needed:
            raise self._error(f"the file ends within it, {needed - have} bytes or more are missing", behind=have)
        return b"".join(pieces)

    def _stream(self) -> Iterator[bytes]:
        """The uncompressed stream in pieces, none of them empty."""
        with storage.open_binary(self.path) as file:
            chunks = self._chunks(file)
            first = next(chunks, b"")
            chunks = itertools.chain([first] if first else [], chunks)
            gzip = self._compression == "gzip" or (self._compression is None and _looks_like_gzip(first))
            yield from _inflate(chunks) if gzip else chunks

    def _chunks(self, file: IO[bytes]) -> Iterator[bytes]:
        while chunk := file.read(_CHUNK_BYTES):
            if self._on_bytes:
                self._on_bytes(chunk)
            yield chunk


def read_records(
    path: str, *, compression: str | None = None, max_record_bytes: int = MAX_RECORD_BYTES
) -> Iterator[bytes]:
    """The records of a TFRecord file, checked; arguments and errors as for `RecordFile`."""
    return iter(RecordFile(path, compression=compression, max_record_bytes=max_record_bytes))


def masked_crc(data: bytes) -> int:
    """The checksum of the TFRecord format: CRC-32C, rotated and shifted, so that a CRC of CRCs stays sound."""
    crc: int = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


class _GzipError(Exception):
    """The gzip stream is damaged behind the last piece that was yielded."""


def _looks_like_gzip(first: bytes) -> bool:
    # A bare record of 35,615 bytes begins with gzip's magic number too, but then the checksum of its length fits.
    if len(first) >= _HEADER.size and masked_crc(first[:8]) == _HEADER.unpack_from(first)[1]:
        return False
    return first.startswith(_GZIP_MAGIC)


def _inflate(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """What is in the members of a gzip file, in pieces; on damage every byte before it, then `_GzipError`."""
    inflater = zlib.decompressobj(_GZIP)
    begun, members = False, 0
    for chunk in chunks:
        left = [chunk]  # the next one last
        while left:
            chunk = left.pop()
            if chunk and not begun:
                begun = True
                if members and not _GZIP_MAGIC.startswith(chunk[:2]):
                    raise _GzipError("something that is not gzip follows the end of the gzip stream")
            before = inflater.copy()
            try:
                piece = inflater.decompress(chunk, _CHUNK_BYTES)
            except zlib.error as error:
                if len(chunk) < 2:
                    raise _GzipError(f"the gzip stream is damaged ({error})") from error
                # zlib keeps to itself what it had inflated before the damage: go up to it in halves.
                inflater, half = before, len(chunk) // 2
                left += [chunk[half:], chunk[:half]]
                continue
            if piece:
                yield piece
            if inflater.eof:
                left.append(inflater.unused_data)
                inflater, begun, members = zlib.decompressobj(_GZIP), False, members + 1
            elif inflater.unconsumed_tail or len(piece) == _CHUNK_BYTES:  # zlib may hold back more behind a full piece
                left.append(inflater.unconsumed_tail)
    if begun or not members:
        raise _GzipError("the gzip stream is cut off" if begun else "an empty file is not gzip")
