"""Walks through the blocks of a GIF (GIF89a, sections 17 to 27)."""

from collections.abc import Iterator
from typing import NamedTuple

from beam_tfr.schema.errors import RejectError

HEADER = b"GIF"
IMAGE = b","
CONTROL = b"!\xf9"
APPLICATION = b"!\xff"
_EXTENSION = b"!"
_TRAILER = b";"
# Blocks are cut into pieces; 263,172 of the usual 255 bytes fill 64 MiB.
MAX_PIECES = 1 << 20


class Block(NamedTuple):
    """One block.

    Attributes:
        kind: `HEADER` with the global color table, `IMAGE`, or "!" and the label of an extension.
        whole: all bytes of the block.
    """

    kind: bytes
    whole: bytes

    @property
    def content(self) -> bytes:
        """The content of an extension, joined from its pieces."""
        joined = bytearray()
        start = 2  # after the introducer and the label
        for end in _find_piece_ends(self.whole, start):
            joined += self.whole[start + 1 : end]  # without the length of the piece
            start = end
        return bytes(joined)


def blocks(data: bytes) -> Iterator[Block]:
    """Yields the blocks of a GIF up to the trailer.

    Raises:
        RejectError: `damaged-image`: the file ends before the trailer, contains an unknown block,
            or has more than `MAX_PIECES` pieces.
    """
    pieces = 0
    try:
        end = 13 + table_bytes(data[10])
        yield Block(HEADER, data[:end])
        while data[end : end + 1] != _TRAILER:
            begin = end
            first = _find_first_piece(data, begin)
            for piece_end in _find_piece_ends(data, first):
                end = piece_end
                pieces += 1
                if pieces == MAX_PIECES:
                    raise RejectError(
                        "damaged-image", f"GIF: its blocks have more than {MAX_PIECES} pieces"
                    )
            whole = data[begin:end]
            kind = whole[:2] if whole.startswith(_EXTENSION) else IMAGE
            yield Block(kind, whole)
    except IndexError:
        raise RejectError("damaged-image", "GIF: ends before its trailer") from None


def _find_first_piece(data: bytes, begin: int) -> int:
    """Finds where the pieces of a block begin."""
    introducer = data[begin : begin + 1]
    if introducer == IMAGE:
        return begin + 10 + table_bytes(data[begin + 9]) + 1  # 1 for the size of a code
    if introducer == _EXTENSION:
        return begin + 2
    raise RejectError("damaged-image", f"GIF: a block begins with {introducer!r}")


def _find_piece_ends(data: bytes, start: int) -> Iterator[int]:
    """Yields where the pieces of a block end; the last piece is empty."""
    length = data[start]
    while length:
        start += 1 + length
        yield start
        length = data[start]
    yield start + 1


def table_bytes(flags: int) -> int:
    """Computes the size of the color table that flags describe, or 0 if there is no table."""
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0
