"""Reads TFRecord files in plain Python, without Beam and TensorFlow, with every checksum and in
bounded memory.

A record is its length (uint64, little-endian), the masked CRC-32C of those 8 bytes, the data, and
the masked CRC-32C of the data. A file is a sequence of records, optionally in gzip.
"""

import dataclasses
import itertools
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import IO

import google_crc32c

from beam_tfr import storage
from beam_tfr.schema.errors import DataError

MAX_RECORD_BYTES = 128 << 20  # 128 MiB, twice the default of --max_file_bytes
_SHRINKS = 16  # the factor by which gzip may shrink a file of longer records
_CHUNK_BYTES = 1 << 18  # 256 KiB read and inflated at a time, to stay in the processor's cache
_HEADER = struct.Struct("<QI")
FOOTER = struct.Struct("<I")
HEADER_BYTES = _HEADER.size  # of a record, in front of its data
FRAME_BYTES = _HEADER.size + FOOTER.size
_MAGIC = b"\x1f\x8b"  # of gzip
_WBITS = 31  # zlib expects the header and trailer of gzip


class RecordError(DataError):
    """A TFRecord file is damaged.

    Attributes:
        file: its path.
        record: number of the record, from 0.
        offset: where the record begins or the stream ends too early, in bytes of the uncompressed
            stream.
        problem: what is wrong there.
    """

    def __init__(self, file: str, record: int, offset: int, problem: str) -> None:
        super().__init__(f"{file}: record {record} at byte {offset}: {problem}")
        self.file = file
        self.record = record
        self.offset = offset
        self.problem = problem

    def __reduce__(self) -> "tuple[type[RecordError], tuple[str, int, int, str]]":
        return RecordError, (
            self.file,
            self.record,
            self.offset,
            self.problem,
        )  # for pickle, between processes


@dataclasses.dataclass(eq=False)
class RecordFile:
    """An iterable over the records of one TFRecord file, for one iteration.

    Takes three times the length of the longest record in memory, and about a megabyte.

    Attributes:
        path: local or gs://.
        record: number of the last record, from 0; after the end, the number of records.
        offset: where that record begins in the uncompressed stream, in bytes.

    Args:
        path: local or gs://.
        compression: "gzip" or "none"; None detects it from the first bytes.
        max_record_bytes: a longer record is an error.
        skip: number of initial records to skip, without checking their data.
        on_bytes: called with the bytes of the file in order, as they are read.
        on_damage: called with the error for a record whose data does not match its checksum, which
            is then skipped; without it the error is raised.

    Iterating raises:
        RecordError: the file is damaged.
        OSError: the file cannot be read.
    """

    path: str
    _: dataclasses.KW_ONLY
    compression: str | None = None
    max_record_bytes: int = MAX_RECORD_BYTES
    skip: int = 0
    on_bytes: Callable[[bytes], object] | None = None
    on_damage: Callable[[RecordError], object] | None = None

    def __post_init__(self) -> None:
        if self.compression not in (None, "gzip", "none"):
            raise ValueError(
                f'compression must be "gzip", "none" or None, got {self.compression!r}'
            )
        self.record = self.offset = 0

    def __iter__(self) -> Iterator[bytes]:
        stream = self._stream()
        buffer = b""
        at = 0  # the current record begins at buffer[at]
        while True:
            if len(buffer) < at + FRAME_BYTES:
                buffer = self._fill(stream, buffer[at:], FRAME_BYTES)
                at = 0
                if not buffer:
                    return
            length, length_crc = _HEADER.unpack_from(buffer, at)
            if masked_crc(buffer[at : at + 8]) != length_crc:
                raise self._error("its length does not match the checksum of the length")
            if length > self.max_record_bytes:
                raise self._error(
                    f"its length is {length} bytes, allowed are {self.max_record_bytes}"
                )
            end = at + FRAME_BYTES + length
            if len(buffer) < end:
                buffer, at, end = self._fill(stream, buffer[at:], end - at), 0, end - at
            size = end - at
            if self.record < self.skip:
                at = end
            else:
                data = buffer[at + _HEADER.size : end - FOOTER.size]
                (data_crc,) = FOOTER.unpack_from(buffer, end - FOOTER.size)
                at = end
                if (
                    size > _CHUNK_BYTES
                ):  # do not keep a second copy of a long record while the caller works on it
                    buffer = buffer[at:]
                    at = 0
                if masked_crc(data) == data_crc:
                    yield data
                else:
                    damage = self._error("its data does not match the checksum of the data")
                    if self.on_damage is None:
                        raise damage
                    self.on_damage(damage)
            self.record += 1
            self.offset += size

    def _error(self, problem: str, *, behind: int = 0) -> RecordError:
        return RecordError(self.path, self.record, self.offset + behind, problem)

    def _fill(self, stream: Iterator[bytes], begun: bytes, needed: int) -> bytes:
        """Adds pieces of the stream to the start of a record until it is long enough; empty at the
        end."""
        pieces = [begun]
        have = len(begun)
        try:
            while have < needed:
                piece = next(stream, b"")
                if not piece:
                    break
                pieces.append(piece)
                have += len(piece)
        except _InflateError as error:
            raise self._error(str(error), behind=have) from error.__cause__
        if 0 < have < needed:
            raise self._error(
                f"the file ends within it; at least {needed - have} bytes are missing", behind=have
            )
        return b"".join(pieces)

    def _stream(self) -> Iterator[bytes]:
        """Yields the uncompressed stream in pieces that are not empty."""
        with storage.open_binary(self.path) as file:
            chunks = self._chunks(file)
            first = next(chunks, b"")
            chunks = itertools.chain([first] if first else [], chunks)
            inflates = is_gzip(first) if self.compression is None else self.compression == "gzip"
            yield from _inflate(chunks) if inflates else chunks

    def _chunks(self, file: IO[bytes]) -> Iterator[bytes]:
        while chunk := file.read(_CHUNK_BYTES):
            if self.on_bytes:
                self.on_bytes(chunk)
            yield chunk


def max_record_bytes_in(file_bytes: int) -> int:
    """The longest record to accept from a file of this size, so that a small file cannot fill the
    memory."""
    return max(MAX_RECORD_BYTES, _SHRINKS * file_bytes)


def frame(data: bytes) -> bytes:
    """A record as in a file: its length and its bytes, each with a checksum."""
    return b"".join((header(len(data)), data, FOOTER.pack(masked_crc(data))))


def header(num_bytes: int) -> bytes:
    """What a frame begins with: the length of its record, and the checksum of that."""
    length = struct.pack("<Q", num_bytes)
    return length + FOOTER.pack(masked_crc(length))


def unframe_records(frames: bytes, sizes: Iterable[int]) -> Iterator[bytes]:
    """The records in frames of these sizes, one after the other."""
    for begin, end in itertools.pairwise(itertools.accumulate(sizes, initial=0)):
        yield frames[begin + HEADER_BYTES : end - FOOTER.size]


def describe_damage(framed: bytes, size: int) -> str:
    """What is wrong with a frame that should have this size; empty if nothing is."""
    if len(framed) != size:
        return f"the file ends within it; {size - len(framed)} bytes are missing"
    if not framed.startswith(header(size - FRAME_BYTES)):
        return "it does not begin where the contents say, or its length is another"
    if FOOTER.unpack_from(framed, size - FOOTER.size)[0] != masked_crc(
        framed[HEADER_BYTES : -FOOTER.size]
    ):
        return "its data does not match the checksum of the data"
    return ""


def masked_crc(data: bytes) -> int:
    """The checksum of the TFRecord format: CRC-32C, rotated and offset so that a CRC of data with
    CRCs stays strong."""
    crc: int = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


class _InflateError(Exception):
    """The gzip stream is damaged after the last piece that was yielded."""


def is_gzip(first: bytes) -> bool:
    """Whether a file is compressed with gzip, given its first `HEADER_BYTES` or more.

    A bare record of 35,615 bytes also begins with gzip's magic number, but its length matches the
    checksum.
    """
    is_bare = len(first) >= _HEADER.size and masked_crc(first[:8]) == _HEADER.unpack_from(first)[1]
    return first.startswith(_MAGIC) and not is_bare


def _inflate(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yields the content of a gzip file in pieces; raises `_InflateError` after every byte before
    the damage."""
    inflater = zlib.decompressobj(_WBITS)
    begun = False
    members = 0
    for chunk in chunks:
        pending = [chunk]  # the next one last
        while pending:
            chunk = pending.pop()
            if chunk and not begun:
                begun = True
                if members and not _MAGIC.startswith(chunk[:2]):
                    raise _InflateError("the gzip stream is followed by something else")
            before = inflater.copy()
            try:
                piece = inflater.decompress(chunk, _CHUNK_BYTES)
            except zlib.error as error:
                if len(chunk) < 2:
                    raise _InflateError(f"the gzip stream is damaged ({error})") from error
                # zlib does not return what it inflated before the damage: approach it by halves.
                inflater = before
                half = len(chunk) // 2
                pending += [chunk[half:], chunk[:half]]
                continue
            if piece:
                yield piece
            if inflater.eof:
                pending.append(inflater.unused_data)
                inflater = zlib.decompressobj(_WBITS)
                begun = False
                members = members + 1
            elif (
                inflater.unconsumed_tail or len(piece) == _CHUNK_BYTES
            ):  # zlib may hold back more after a full piece
                pending.append(inflater.unconsumed_tail)
    if begun or not members:
        raise _InflateError(
            "the gzip stream is truncated" if begun else "the file is empty, which is not gzip"
        )
