"""GIF blocks (GIF89a, sections 17 to 27)."""

from collections.abc import Iterator
from typing import NamedTuple

from beam_tfr.schema.errors import RejectError

HEADER = b"GIF"
IMAGE = b","
CONTROL = b"!\xf9"
APPLICATION = b"!\xff"
MAX_PIECES = (
    1 << 20
)  # that blocks are cut into; the usual 255 bytes a piece fill 64 MiB with 263,172


class Block(NamedTuple):
    """One block.

    Attributes:
        kind: `HEADER` with the global color table, `IMAGE`, or "!" and the label of an extension.
        whole: all its bytes.
        content: those of an extension, joined from its pieces.
    """

    kind: bytes
    whole: bytes
    content: bytes = b""


def blocks(data: bytes) -> Iterator[Block]:
    """Yields the blocks of a GIF up to the trailer.

    Raises:
        RejectError: `damaged-image`: the file ends before the trailer, or has more than
            `MAX_PIECES`.
    """
    allowed = MAX_PIECES
    try:
        place = 13 + table_bytes(data[10])
        yield Block(HEADER, data[:place])
        while (kind := data[place : place + 1]) != b";":
            begin = place
            pieces = list[bytes]()
            if kind == IMAGE:
                place += 10 + table_bytes(data[place + 9]) + 1  # the size of a code
            elif kind == b"!":
                kind = data[place : place + 2]
                place = place + 2
            else:
                raise RejectError("damaged-image", f"GIF: a block begins with {kind!r}")
            length = -1
            while length:  # of a piece; one of length 0 is the last
                length = data[place]
                if kind != IMAGE:
                    pieces.append(data[place + 1 : place + 1 + length])
                place += 1 + length
                allowed -= 1
                if not allowed:
                    raise RejectError(
                        "damaged-image", f"GIF: its blocks have more than {MAX_PIECES} pieces"
                    )
            yield Block(kind, data[begin:place], b"".join(pieces))
    except IndexError:
        raise RejectError("damaged-image", "GIF: ends before its trailer") from None


def table_bytes(flags: int) -> int:
    """The size of the color table according to these flags; 0 without one."""
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0
