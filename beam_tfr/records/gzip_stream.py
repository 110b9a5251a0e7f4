"""Inflates gzip files in bounded memory; inflates a damaged file up to the damage."""

import zlib
from collections.abc import Iterable, Iterator

CHUNK_BYTES = 1 << 18  # reads and inflates 256 KiB per step, to stay in the processor's cache
MAGIC = b"\x1f\x8b"  # the first bytes of a gzip file
_WBITS = 31  # zlib expects the header and trailer of gzip


class InflateError(Exception):
    """A gzip stream is damaged after the last piece that was yielded."""


def inflate(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yields the content of a gzip file in pieces, none of which is empty.

    Raises:
        InflateError: the file is damaged; all bytes before the damage were yielded.
    """
    stream = _GzipStream()
    for chunk in chunks:
        yield from stream.inflate(chunk)
    stream.check_end()


class _GzipStream:
    """A gzip file that is read in chunks; it consists of members with a header and a trailer."""

    def __init__(self) -> None:
        self._inflater = zlib.decompressobj(_WBITS)
        self._has_begun = False  # whether the member has begun
        self._members = 0  # number of members that have ended

    def inflate(self, chunk: bytes) -> Iterator[bytes]:
        """Yields the content of the next chunk."""
        pending = [chunk]  # in reverse order
        while pending:
            chunk = pending.pop()
            if chunk and not self._has_begun:
                self._begin_member(chunk)
            before = self._inflater.copy()
            try:
                piece = self._inflater.decompress(chunk, CHUNK_BYTES)
            except zlib.error as error:
                if len(chunk) < 2:
                    raise InflateError(f"the gzip stream is damaged ({error})") from error
                # zlib does not return data before the damage: halve the chunk to approach it.
                self._inflater = before
                half = len(chunk) // 2
                pending += [chunk[half:], chunk[:half]]
                continue
            if piece:
                yield piece
            if self._inflater.eof:
                pending.append(self._inflater.unused_data)
                self._end_member()
            elif self._inflater.unconsumed_tail or len(piece) == CHUNK_BYTES:
                # After a full piece, zlib may hold back further data.
                pending.append(self._inflater.unconsumed_tail)

    def _begin_member(self, chunk: bytes) -> None:
        self._has_begun = True
        if self._members and not MAGIC.startswith(chunk[: len(MAGIC)]):
            raise InflateError("the gzip stream is followed by something else")

    def _end_member(self) -> None:
        self._inflater = zlib.decompressobj(_WBITS)
        self._has_begun = False
        self._members += 1

    def check_end(self) -> None:
        """Raises an InflateError if the file ends within a member, or has no members."""
        if self._has_begun:
            raise InflateError("the gzip stream is truncated")
        if not self._members:
            raise InflateError("the file is empty, which is not gzip")
