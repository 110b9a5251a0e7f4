"""Reads and writes numbers of variable length, as used by Thrift and protobuf."""

_MOST_BITS = 70


def read_varint(data: bytes, begin: int) -> tuple[int, int]:
    """Reads a number; also returns where it ends.

    Raises:
        ValueError, IndexError: there is no such number.
    """
    value = 0
    end = begin
    for shift in range(0, _MOST_BITS, 7):
        byte = data[end]
        end += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, end
    raise ValueError("a number has too many bytes")


def write_varint(value: int) -> bytes:
    """Writes a non-negative number."""
    written = bytearray()
    while value > 127:
        written.append(value & 127 | 128)
        value >>= 7
    written.append(value)
    return bytes(written)
