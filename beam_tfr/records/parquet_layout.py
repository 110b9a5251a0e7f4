"""Reads how the values of an untrusted Parquet file are stored, before a library decodes them.

A page of 30 bytes can hold 2^31 values, whatever the metadata at the end of the file say; and
pyarrow's own access to damaged metadata ends the process. This reads what
https://parquet.apache.org/docs/file-format/metadata describes.
"""

from typing import Any

# Thrift's compact protocol
_TRUE = 1
_FALSE = 2
_BYTE = 3
_I16 = 4
_I32 = 5
_I64 = 6
_DOUBLE = 7
_BINARY = 8
_LIST = 9
_STRUCT = 12
_DEEPEST = 12
_FOOTER_BYTES = 8


def count_values(data: bytes, columns: int) -> list[int]:
    """How many values the data pages of each column have.

    Raises:
        ValueError: the file is damaged, compressed, or has more columns.
    """
    counts = [0] * columns
    try:
        size = int.from_bytes(data[-_FOOTER_BYTES:-4], "little")
        metadata, _ = _struct(data, len(data) - _FOOTER_BYTES - size)
        for group in metadata[4]:
            for number, column in enumerate(group[1]):
                counts[number] += _count(data, column[3])
    except (IndexError, KeyError, TypeError):
        raise ValueError("its metadata are damaged") from None
    return counts


def _count(data: bytes, column: dict[int, Any]) -> int:
    """The values of a column in a row group."""
    at = min(column[9], column.get(11, column[9]))
    count = 0
    end = at + column[7]
    if not 0 < at <= end <= len(data):
        raise ValueError("a column lies outside of the file")
    if column[4] != 0:
        raise ValueError("it is compressed, which convert never does")
    while at < end:
        header, at = _struct(data, at)
        at += max(0, header[3])
        count += sum(
            max(0, header[kind][1]) for kind in (5, 8) if kind in header
        )  # both versions of data pages
    return count


def _struct(data: bytes, at: int, depth: int = 0) -> tuple[dict[int, Any], int]:
    """The fields of a struct by number, and where it ends."""
    if at < 0 or depth > _DEEPEST:
        raise ValueError("its metadata are damaged")
    found: dict[int, Any] = {}
    number = 0
    while head := data[at]:
        at += 1
        if head >> 4:
            number += head >> 4
        else:
            number, at = _signed(data, at)
        if number in found:
            raise ValueError("its metadata say something twice")
        found[number], at = (
            (None, at) if head & 15 in (_TRUE, _FALSE) else _value(data, at, head & 15, depth)
        )
    return found, at + 1


def _value(data: bytes, at: int, kind: int, depth: int) -> tuple[Any, int]:
    if kind in (_I16, _I32, _I64):
        return _signed(data, at)
    if kind == _STRUCT:
        return _struct(data, at, depth + 1)
    if kind == _BINARY:
        size, at = varint(data, at)
        return None, at + size
    if kind == _LIST:
        size = data[at] >> 4
        kind = data[at] & 15
        size, at = varint(data, at + 1) if size == 15 else (size, at + 1)
        values: list[Any] = []
        while len(values) < size:
            value, at = _value(data, at, kind, depth + 1)
            values.append(value)
        return values, at
    if kind in (_TRUE, _FALSE, _BYTE, _DOUBLE):
        data[at]
        return None, at + (8 if kind == _DOUBLE else 1)
    raise ValueError("its metadata are damaged")


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Reads a number of Thrift or protobuf; returns it and where it ends.

    Raises:
        ValueError, IndexError: there is none.
    """
    value = 0
    for shift in range(0, 70, 7):
        value |= (data[at] & 127) << shift
        at += 1
        if data[at - 1] < 128:
            return value, at
    raise ValueError("its metadata are damaged")


def _signed(data: bytes, at: int) -> tuple[int, int]:
    value, at = varint(data, at)
    return (value >> 1) ^ -(value & 1), at
