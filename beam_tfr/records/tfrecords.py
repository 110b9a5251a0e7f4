"""Reads TFRecord files in plain Python, without Beam and TensorFlow.

Verifies every checksum, in bounded memory.

A record is its length (uint64, little-endian), the masked CRC-32C of those 8 bytes, the data, and
the masked CRC-32C of the data. A file is a sequence of records, optionally in gzip.
"""

import contextlib
import dataclasses
import itertools
import struct
from collections.abc import Callable, Iterable, Iterator
from typing import IO

import google_crc32c

from beam_tfr import storage
from beam_tfr.records.gzip_stream import CHUNK_BYTES, MAGIC, InflateError, inflate
from beam_tfr.schema.errors import DataError

MAX_RECORD_BYTES = 128 << 20  # 128 MiB, twice the default of --max_file_bytes
_SHRINKS = 16  # the factor by which gzip may shrink a file with longer records
_HEADER = struct.Struct("<QI")
FOOTER = struct.Struct("<I")
_LENGTH_BYTES = 8
HEADER_BYTES = _HEADER.size  # bytes of a record before its data
FRAME_BYTES = HEADER_BYTES + FOOTER.size


class RecordError(DataError):
    """Damage in a TFRecord file.

    Attributes:
        file: path of the file.
        record: number of the record, from 0.
        offset: where the record begins, or where the stream ends too early, in bytes of the
            uncompressed stream.
        problem: what is wrong there.
    """

    def __init__(self, file: str, record: int, offset: int, problem: str) -> None:
        super().__init__(f"{file}: record {record} at byte {offset}: {problem}")
        self.file = file
        self.record = record
        self.offset = offset
        self.problem = problem

    def __reduce__(self) -> "tuple[type[RecordError], tuple[str, int, int, str]]":
        # Lets pickle pass errors between processes.
        return RecordError, (self.file, self.record, self.offset, self.problem)


@dataclasses.dataclass(eq=False)
class RecordFile:
    """An iterable over the records of one TFRecord file, for one iteration.

    Uses three times the memory of the longest record, and about a megabyte.

    Attributes:
        path: local or gs://.
        record: number of the record that was read last, from 0; after the end, the number of
            records.
        offset: where this record begins in the uncompressed stream, in bytes.

    Args:
        path: local or gs://.
        compression: "gzip" or "none"; None detects it from the first bytes.
        opened: the file, open at its start; None opens the path.
        max_record_bytes: a longer record is an error.
        skip: number of initial records to skip, without checking their data.
        on_bytes: called with the bytes of the file in order, as they are read.
        on_damage: called with the error for a record whose data does not match its checksum; the
            record is then skipped. Without `on_damage`, the error is raised.

    Iterating raises:
        RecordError: the file is damaged.
        OSError: the file cannot be read.
    """

    path: str
    _: dataclasses.KW_ONLY
    compression: str | None = None
    opened: IO[bytes] | None = None
    max_record_bytes: int = MAX_RECORD_BYTES
    skip: int = 0
    on_bytes: Callable[[bytes], object] | None = None
    on_damage: Callable[[RecordError], object] | None = None

    def __post_init__(self) -> None:
        if self.compression not in (None, "gzip", "none"):
            raise ValueError(
                f'compression must be "gzip", "none" or None, got {self.compression!r}'
            )
        self.record = 0
        self.offset = 0

    def __iter__(self) -> Iterator[bytes]:
        stream = self._stream()
        buffer = b""
        end = 0  # end of the last record in the buffer
        while True:
            begin = end
            if len(buffer) < begin + FRAME_BYTES:
                buffer = self._fill(stream, buffer[begin:], FRAME_BYTES)
                begin = 0
                if not buffer:
                    return
            size = self._frame_size(buffer, begin)
            if len(buffer) < begin + size:
                buffer = self._fill(stream, buffer[begin:], size)
                begin = 0
            end = begin + size
            if self.record >= self.skip:
                data = buffer[begin + HEADER_BYTES : end - FOOTER.size]
                (checksum,) = FOOTER.unpack_from(buffer, end - FOOTER.size)
                if size > CHUNK_BYTES:
                    # Keeps no second copy of a long record while the caller works on it.
                    buffer = buffer[end:]
                    end = 0
                if masked_crc(data) == checksum:
                    yield data
                else:
                    self._report_damage()
            self.record += 1
            self.offset += size

    def _frame_size(self, buffer: bytes, begin: int) -> int:
        """Returns the size of the frame that begins at a position."""
        length, checksum = _HEADER.unpack_from(buffer, begin)
        if masked_crc(buffer[begin : begin + _LENGTH_BYTES]) != checksum:
            raise self._error("its length does not match the checksum of the length")
        if length > self.max_record_bytes:
            raise self._error(
                f"its length is {length} bytes, but at most {self.max_record_bytes} are allowed"
            )
        return FRAME_BYTES + int(length)

    def _report_damage(self) -> None:
        damage = self._error("its data does not match the checksum of the data")
        if self.on_damage is None:
            raise damage
        self.on_damage(damage)

    def _error(self, problem: str, *, behind: int = 0) -> RecordError:
        return RecordError(self.path, self.record, self.offset + behind, problem)

    def _fill(self, stream: Iterator[bytes], begun: bytes, needed: int) -> bytes:
        """Appends pieces of the stream to the start of a record until the result is long enough.

        At the end of the stream, returns no bytes.
        """
        pieces = [begun]
        size = len(begun)
        try:
            while size < needed:
                piece = next(stream, b"")
                if not piece:
                    break
                pieces.append(piece)
                size += len(piece)
        except InflateError as error:
            raise self._error(str(error), behind=size) from error.__cause__
        if 0 < size < needed:
            raise self._error(
                f"the file ends within it; at least {needed - size} bytes are missing", behind=size
            )
        return b"".join(pieces)

    def _stream(self) -> Iterator[bytes]:
        """Yields the uncompressed stream in pieces, none of which is empty."""
        with contextlib.ExitStack() as stack:
            file = self.opened or stack.enter_context(storage.open_binary(self.path))
            chunks = self._read_chunks(file)
            first = next(chunks, b"")
            if first:
                chunks = itertools.chain([first], chunks)
            compression = self.compression
            if compression is None:
                compression = "gzip" if is_gzip(first) else "none"
            yield from inflate(chunks) if compression == "gzip" else chunks

    def _read_chunks(self, file: IO[bytes]) -> Iterator[bytes]:
        while chunk := file.read(CHUNK_BYTES):
            if self.on_bytes:
                self.on_bytes(chunk)
            yield chunk


def max_record_bytes_in(file_bytes: int) -> int:
    """Returns the longest record to accept in a file of this size.

    The limit keeps a small file from filling the memory.
    """
    return max(MAX_RECORD_BYTES, _SHRINKS * file_bytes)


def frame(data: bytes) -> bytes:
    """Frames a record as in a file: its length and its bytes, each followed by a checksum."""
    return b"".join((_frame_header(len(data)), data, FOOTER.pack(masked_crc(data))))


def _frame_header(num_bytes: int) -> bytes:
    """Returns the beginning of a frame: the length of its record, and the length's checksum."""
    length = struct.pack("<Q", num_bytes)
    return length + FOOTER.pack(masked_crc(length))


def unframe_records(frames: bytes, sizes: Iterable[int]) -> Iterator[bytes]:
    """Yields the records in frames of these sizes, one after another."""
    for begin, end in itertools.pairwise(itertools.accumulate(sizes, initial=0)):
        yield frames[begin + HEADER_BYTES : end - FOOTER.size]


def describe_damage(framed: bytes, size: int) -> str:
    """Returns what is wrong with a frame that should have this size, or an empty string."""
    if len(framed) != size:
        return f"the file ends within it; {size - len(framed)} bytes are missing"
    if not framed.startswith(_frame_header(size - FRAME_BYTES)):
        return "it does not begin where the contents state, or its length differs"
    (checksum,) = FOOTER.unpack_from(framed, size - FOOTER.size)
    if masked_crc(framed[HEADER_BYTES : -FOOTER.size]) != checksum:
        return "its data does not match the checksum of the data"
    return ""


def masked_crc(data: bytes) -> int:
    """Computes the checksum of the TFRecord format: CRC-32C, rotated and offset.

    The mask keeps the CRC strong if the data contains CRCs.
    """
    crc: int = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def is_gzip(first: bytes) -> bool:
    """Whether a file is compressed with gzip, given its first `HEADER_BYTES` or more.

    An uncompressed record of 35,615 bytes also begins with gzip's magic number, but its length
    matches the checksum.
    """
    return first.startswith(MAGIC) and not begins_record(first)


def begins_record(first: bytes) -> bool:
    """Whether a file begins with a record, given its first `HEADER_BYTES` or more.

    The checksum of the record's length decides.
    """
    if len(first) < HEADER_BYTES:
        return False
    _, checksum = _HEADER.unpack_from(first)
    return bool(masked_crc(first[:_LENGTH_BYTES]) == checksum)
