"""Reads the directory of a zip row by row.

`zipfile` holds half a kilobyte for each file until it has read the last one. Format: sections
4.3.12 to 4.3.16 and 4.5.3 of PKWARE's APPNOTE.TXT.
"""

import os
import struct
from collections.abc import Iterator
from typing import IO, NamedTuple
from zipfile import BadZipFile, ZipInfo

MOST_BYTES = 1 << 30  # 1 GiB, the directory of ten million images
UTF8 = 0x800  # flag of a file: its name is UTF-8
_ROW = struct.Struct("<4sxB2x2H4x3L4H2x2L")
_ROW_SIGNATURE = b"PK\1\2"
_END = struct.Struct("<4s4H2LH")  # the record between the directory and the comment
_END_SIGNATURE = b"PK\5\6"
_MOST_COMMENT_BYTES = 0xFFFF
# In a zip with 64-bit numbers, before `_END`: the 64-bit version of that record, and its place.
_END_64 = struct.Struct("<4sQ2H2L4Q")
_END_64_SIGNATURE = b"PK\6\6"
_LOCATOR_64 = struct.Struct("<4sLQL")
_LOCATOR_64_SIGNATURE = b"PK\6\7"
_FIELD = struct.Struct("<HH")  # in a row: the kind of a field, and its size in bytes
_NUMBERS_64 = 1  # kind of the field with numbers that need 64 bits
_NUMBER_64 = struct.Struct("<Q")
_IN_FIELD = 0xFFFF_FFFF  # stands for a number that is stored in the extra field


class _Place(NamedTuple):
    """The position of a directory in the file.

    Attributes:
        begin: its first byte.
        num_bytes: its length.
        stated_begin: its first byte, as stated in the zip: less if other bytes precede the zip.
    """

    begin: int
    num_bytes: int
    stated_begin: int


class ZipDirectory:
    """The directory of a zip.

    Args:
        opened: the zip.

    Attributes:
        begin: first byte of the directory.

    Raises:
        BadZipFile: the file has no directory.
    """

    def __init__(self, opened: IO[bytes]) -> None:
        place = _find_directory(opened)
        if place.begin < 0:
            raise BadZipFile("Bad offset for central directory")
        if place.num_bytes > MOST_BYTES:
            raise BadZipFile(f"Central directory of more than {MOST_BYTES >> 20} MiB")
        self.begin = place.begin
        self._opened = opened
        self._num_bytes = place.num_bytes
        self._shift = place.begin - place.stated_begin

    def rows(self) -> Iterator[ZipInfo]:
        """Reads the directory, and yields a file for each row.

        Raises:
            BadZipFile, ValueError: the directory is damaged.
        """
        self._opened.seek(self.begin)
        left = self._num_bytes
        while left > 0:
            row = self._opened.read(_ROW.size)
            if len(row) < _ROW.size:
                raise BadZipFile("Truncated central directory")
            info, num_bytes = self._read_row(row)
            left -= num_bytes
            if left < 0:
                raise BadZipFile("Truncated central directory")
            info.header_offset += self._shift
            yield info

    def _read_row(self, row: bytes) -> tuple[ZipInfo, int]:
        """Returns the file in a row and the length of the row, from the bytes before its name."""
        (
            signature,
            system,
            flags,
            method,
            checksum,
            stored_bytes,
            whole_bytes,
            name_bytes,
            extra_bytes,
            comment_bytes,
            volume,
            attributes,
            header_offset,
        ) = _ROW.unpack(row)
        if signature != _ROW_SIGNATURE:
            raise BadZipFile("Bad magic number for central directory")
        encoding = "utf-8" if flags & UTF8 else "cp437"
        info = ZipInfo(self._opened.read(name_bytes).decode(encoding))
        info.create_system = system
        info.flag_bits = flags
        info.compress_type = method
        info.CRC = checksum
        info.compress_size = stored_bytes
        info.file_size = whole_bytes
        info.volume = volume
        info.external_attr = attributes
        info.header_offset = header_offset
        if extra_bytes:
            info.extra = self._opened.read(extra_bytes)
            for kind, content in read_fields(info.extra):
                if kind == _NUMBERS_64:
                    _take_numbers_64(info, content)
        if comment_bytes:
            self._opened.read(comment_bytes)
        return info, _ROW.size + name_bytes + extra_bytes + comment_bytes


def _find_directory(opened: IO[bytes]) -> _Place:
    size = opened.seek(0, os.SEEK_END)
    tail_begin = max(0, size - _END.size - _MOST_COMMENT_BYTES)
    tail = _read_at(opened, tail_begin, size - tail_begin)
    end = len(tail) - _END.size
    has_no_comment = tail[-_END.size :].startswith(_END_SIGNATURE) and tail.endswith(b"\0\0")
    if not has_no_comment:
        end = tail.rfind(_END_SIGNATURE)
    if end < 0 or end + _END.size > len(tail):
        raise BadZipFile("File is not a zip file")
    *_, num_bytes, stated_begin, _ = _END.unpack_from(tail, end)
    place = _Place(tail_begin + end - num_bytes, num_bytes, stated_begin)
    return _find_directory_64(opened, tail_begin + end) or place


def _find_directory_64(opened: IO[bytes], end: int) -> _Place | None:
    """Returns the place of the directory in a zip with 64-bit numbers; None for other zips.

    Args:
        end: where the record that ends the directory of every zip begins.
    """
    begin = end - _LOCATOR_64.size - _END_64.size
    if begin < 0:
        return None
    both = _read_at(opened, begin, end - begin)
    signature, disk, _, num_disks = _LOCATOR_64.unpack_from(both, _END_64.size)
    if signature != _LOCATOR_64_SIGNATURE:
        return None
    if disk != 0 or num_disks > 1:
        raise BadZipFile("zipfiles that span multiple disks are not supported")
    signature, *_, num_bytes, stated_begin = _END_64.unpack_from(both)
    if signature != _END_64_SIGNATURE:
        return None
    return _Place(begin - num_bytes, num_bytes, stated_begin)


def _read_at(opened: IO[bytes], begin: int, num_bytes: int) -> bytes:
    opened.seek(begin)
    data = opened.read(num_bytes)
    if len(data) < num_bytes:
        raise BadZipFile("File is not a zip file")
    return data


def read_fields(extra: bytes) -> Iterator[tuple[int, bytes]]:
    """Yields the kind and the content of each extra field of a file.

    Raises:
        BadZipFile: a field is longer than the remaining bytes.
    """
    begin = 0
    while begin + _FIELD.size <= len(extra):
        kind, num_bytes = _FIELD.unpack_from(extra, begin)
        begin += _FIELD.size
        if begin + num_bytes > len(extra):
            raise BadZipFile(f"Corrupt extra field {kind:04x} (size={num_bytes})")
        yield kind, extra[begin : begin + num_bytes]
        begin += num_bytes


def _take_numbers_64(info: ZipInfo, field: bytes) -> None:
    """Replaces the numbers of a file that need 64 bits with the numbers in its extra field.

    Raises:
        BadZipFile: the field lacks a number.
    """
    for name in ("file_size", "compress_size", "header_offset"):
        if getattr(info, name) != _IN_FIELD:
            continue
        if len(field) < _NUMBER_64.size:
            raise BadZipFile(f"Corrupt zip64 extra field. {name} not found.")
        setattr(info, name, _NUMBER_64.unpack_from(field)[0])
        field = field[_NUMBER_64.size :]
