"""Reads how an untrusted Parquet file stores its values, before a library decodes them.

A page of 30 bytes can hold 2^31 values, whatever the metadata at the end of the file say, and
pyarrow's own access to damaged metadata can crash the process. This module reads the metadata (see
https://parquet.apache.org/docs/file-format/metadata) and the headers of the pages; only the headers
of the pages are reliable.

A guarded process with limited memory, such as that for tables (`inputs.parquet_file`), could handle
the same files, but would cost each reading process 0.25 s and 77 MiB more, and the limit works only
on Linux; this module takes 0.3 ms per file. Tables need the guarded process: other programs write
them compressed, so nothing bounds how many values they hold.
"""

from typing import Any

from beam_tfr.records.varints import read_varint

_FOOTER_BYTES = 8  # the size of the metadata, and "PAR1"
# The most bytes of metadata, for a column and for the file: pyarrow writes statistics of at most
# 4 KiB, each four times. Reading metadata takes up to 200 times their size in memory.
_MOST_METADATA_BYTES = 32 << 10
_DEEPEST = 12  # nested structs and lists
_DAMAGED = "its metadata are damaged"
# Numbers of fields in parquet.thrift, named after their struct.
_FILE_ROW_GROUPS = 4
_GROUP_COLUMNS = 1
_CHUNK_METADATA = 3
_COLUMN_CODEC = 4
_COLUMN_COMPRESSED_SIZE = 7
_COLUMN_FIRST_DATA_PAGE = 9
_COLUMN_DICTIONARY_PAGE = 11
_PAGE_COMPRESSED_SIZE = 3
_PAGE_DATA_HEADERS = (5, 8)  # in both versions
_DATA_NUM_VALUES = 1
_UNCOMPRESSED = 0
# Types of values in Thrift's compact protocol: booleans, which are part of a field's type; bytes,
# floats, integers with 16, 32 and 64 bits, strings, lists and structs.
_BOOLEANS = (1, 2)
_SIZES = {1: 1, 2: 1, 3: 1, 7: 8}  # sizes in bytes of types of fixed size
_INTEGERS = (4, 5, 6)
_BINARY = 8
_LIST = 9
_STRUCT = 12


def check_metadata_bytes(data: bytes, columns: int) -> None:
    """Checks that the metadata of a file are not too long for this many columns.

    Raises:
        ValueError: the metadata are too long.
    """
    if _metadata_bytes(data) > (columns + 1) * _MOST_METADATA_BYTES:
        raise ValueError(f"its metadata are too long for {columns} columns")


def _metadata_bytes(data: bytes) -> int:
    return int.from_bytes(data[-_FOOTER_BYTES:-4], "little")


def count_values(data: bytes, columns: int) -> list[int]:
    """Counts the values in the data pages of each column.

    Raises:
        ValueError: the file is damaged or compressed, or has more columns than expected.
    """
    counts = [0] * columns
    try:
        size = _metadata_bytes(data)
        metadata = _ThriftReader(data, len(data) - _FOOTER_BYTES - size).read_struct()
        for group in metadata[_FILE_ROW_GROUPS]:
            for number, chunk in enumerate(group[_GROUP_COLUMNS]):
                counts[number] += _count_in_pages(data, chunk[_CHUNK_METADATA])
    except (LookupError, TypeError, AttributeError):
        raise ValueError(_DAMAGED) from None
    return counts


def _count_in_pages(data: bytes, column: dict[int, Any]) -> int:
    """Counts the values in a column's data pages in a row group, given the column's metadata."""
    first_data_page = column[_COLUMN_FIRST_DATA_PAGE]
    begin = min(first_data_page, column.get(_COLUMN_DICTIONARY_PAGE, first_data_page))
    end = begin + column[_COLUMN_COMPRESSED_SIZE]
    if not 0 < begin <= end <= len(data):
        raise ValueError("a column is outside the file")
    if column[_COLUMN_CODEC] != _UNCOMPRESSED:
        raise ValueError("it is compressed, unlike the contents that convert writes")
    count = 0
    reader = _ThriftReader(data, begin)
    while reader.position < end:
        header = reader.read_struct()
        reader.position += max(0, header[_PAGE_COMPRESSED_SIZE])
        for field in _PAGE_DATA_HEADERS:
            if field in header:
                count += max(0, header[field][_DATA_NUM_VALUES])
    return count


class _ThriftReader:
    """Reads values in Thrift's compact protocol, starting at a position.

    Methods raise ValueError or IndexError if the bytes do not encode such values.
    """

    def __init__(self, data: bytes, position: int) -> None:
        if position < 0:
            raise ValueError(_DAMAGED)
        self.data = data
        self.position = position

    def read_struct(self, depth: int = 0) -> dict[int, Any]:
        """Reads the fields of a struct, by number; booleans, floats and strings are None."""
        fields: dict[int, Any] = {}
        number = 0
        head = self._read_byte()
        while head:
            step, kind = divmod(head, 16)
            number = number + step if step else self._read_signed()
            if number in fields:
                raise ValueError("its metadata repeat a field")
            fields[number] = None if kind in _BOOLEANS else self._read_value(kind, depth)
            head = self._read_byte()
        return fields

    def _read_value(self, kind: int, depth: int) -> Any:
        if kind in _INTEGERS:
            return self._read_signed()
        if depth > _DEEPEST:
            raise ValueError(_DAMAGED)
        if kind == _STRUCT:
            return self.read_struct(depth + 1)
        if kind == _LIST:
            return self._read_list(depth + 1)
        if kind == _BINARY:
            size = self._read_unsigned()
        elif kind in _SIZES:
            size = _SIZES[kind]
        else:
            raise ValueError(_DAMAGED)
        self.position += size
        return None

    def _read_list(self, depth: int) -> list[Any]:
        size, kind = divmod(self._read_byte(), 16)
        if size == 15:
            size = self._read_unsigned()
        if size > len(self.data):  # each member takes at least a byte
            raise ValueError(_DAMAGED)
        return [self._read_value(kind, depth) for _ in range(size)]

    def _read_byte(self) -> int:
        self.position += 1
        return self.data[self.position - 1]

    def _read_unsigned(self) -> int:
        value, self.position = read_varint(self.data, self.position)
        return value

    def _read_signed(self) -> int:
        value = self._read_unsigned()
        return (value >> 1) ^ -(value & 1)
