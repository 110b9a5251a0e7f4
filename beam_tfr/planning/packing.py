"""Packs many references into one element, because elements cost an engine more than references."""

import itertools
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence

from beam_tfr.schema.items import group_values

PACK_REFS = 1000
PACK_BYTES = 256 << 10  # 256 KiB
# Limit for unpacking values from elsewhere: a fixed part, and a multiple of the packed bytes.
_FREE_BYTES = 16 << 20  # 16 MiB
_MOST_RATIO = 100


def pack_values(values: Sequence[bytes]) -> bytes:
    """Joins values, preceded by their number and lengths, and compresses them.

    The numbers are uint32, little-endian. The result is at most a third as large as the values.
    """
    numbers = [len(values), *map(len, values)]
    header = struct.pack(f"<{len(numbers)}I", *numbers)
    return zlib.compress(header + b"".join(values), 1)


def unpack_values(packed: bytes) -> list[bytes]:
    """Returns the values that `pack_values` packed."""
    joined = zlib.decompress(packed)
    (number,) = struct.unpack_from("<I", joined)
    lengths = struct.unpack_from(f"<{number}I", joined, 4)
    ends = itertools.accumulate(lengths, initial=4 + 4 * number)
    return [joined[begin:end] for begin, end in itertools.pairwise(ends)]


def unpack_untrusted(packed: bytes) -> list[bytes]:
    """Returns the values that `pack_values` packed, after checks.

    Raises:
        ValueError: the data is not packed values, or would unpack to far more bytes than it has.
    """
    most_bytes = _FREE_BYTES + _MOST_RATIO * len(packed)
    inflater = zlib.decompressobj()
    try:
        joined = inflater.decompress(packed, most_bytes)
        (number,) = struct.unpack_from("<I", joined)
        lengths = struct.unpack_from(f"<{number}I", joined, 4)
    except (zlib.error, struct.error) as error:
        raise ValueError(f"not packed values: {error}") from None
    if not inflater.eof or 4 + 4 * number + sum(lengths) != len(joined):
        raise ValueError("not packed values, or too many")
    ends = itertools.accumulate(lengths, initial=4 + 4 * number)
    return [joined[begin:end] for begin, end in itertools.pairwise(ends)]


def pack_batches(refs: Iterable[bytes]) -> Iterator[bytes]:
    """Packs encoded references in batches of up to `PACK_REFS` references or `PACK_BYTES` bytes."""
    return map(pack_values, group_values(refs, len, PACK_REFS, PACK_BYTES))
