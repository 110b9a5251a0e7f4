"""Reads the lines of text tables, and limits the size of each row."""

import codecs
from collections.abc import Iterable, Iterator
from typing import IO

from beam_tfr.features.cells import MAX_VALUES, check_number
from beam_tfr.schema.bad_bytes import describe_bad_byte

MAX_ROW_BYTES = 16 << 20  # 16 MiB; an unclosed quote turns the rest of a file into one row
_BLOCK_BYTES = 1 << 20  # 1 MiB


class RowBound:
    """A limit on the size of each row, including its lines and any blank lines before it.

    Args:
        delimiter: the delimiter between the cells of a line; an empty string if lines have no
            cells.

    Attributes:
        num_lines: the number of lines since the last row, including blank lines.
        problem: what is wrong with the text of the last row; may be empty.
    """

    def __init__(self, delimiter: str = "") -> None:
        self._delimiter = delimiter.encode()
        self._room = MAX_ROW_BYTES
        self.num_lines = 0
        self.problem = ""

    def refill(self) -> None:
        """Records that a row is complete."""
        self._room = MAX_ROW_BYTES

    def pop_problem(self) -> str:
        """Returns the problem of the last row, and clears it for the next row."""
        problem = self.problem
        self.problem = ""
        return problem

    def check_text(self) -> None:
        """Checks the text of the last row.

        Raises:
            ValueError: something is wrong with the text.
        """
        if self.problem:
            raise ValueError(self.pop_problem())

    def take(self, line: bytes) -> None:
        """Records that a row has one more line.

        Raises:
            ValueError: the row is too long, or the line has too many cells.
        """
        num_bytes = len(line)
        self.num_lines += 1
        self._room -= num_bytes
        if self._room < 0:
            problem = f"has more than {MAX_ROW_BYTES:,} bytes"
            cure = "; is a quote not closed?" if self._delimiter else ""
            raise ValueError(problem + cure)
        if num_bytes > MAX_VALUES and self._delimiter:
            check_number(line.count(self._delimiter))

    def refill_after_each(self, rows: Iterable[list[str]]) -> Iterator[list[str]]:
        """Yields the rows that are not empty, and records that each is complete."""
        for cells in rows:
            self.num_lines = 0
            if cells:
                self.refill()
                yield cells


def read_lines(file: IO[bytes], bound: RowBound, line_end: bytes = b"\n") -> Iterator[str]:
    """Yields the lines of a text file, including line ends.

    If a line is not UTF-8, the problem is stored in `bound`.

    Raises:
        ValueError: a row is too long.
    """
    if file.read(len(codecs.BOM_UTF8)) != codecs.BOM_UTF8:
        file.seek(0)
    lines = _split_file(file, line_end) if line_end != b"\n" else _read_by_line(file)
    for line in lines:
        bound.take(line)
        try:
            text = line.decode()
        except UnicodeDecodeError as error:
            bound.problem = describe_bad_byte(line, error.start)
            text = line.decode(errors="replace")
        yield text


def _read_by_line(file: IO[bytes]) -> Iterator[bytes]:
    while line := file.readline(MAX_ROW_BYTES + 1):
        yield line


def _split_file(file: IO[bytes], line_end: bytes) -> Iterator[bytes]:
    r"""Yields the lines, including line ends, of a file whose line ends are not b"\n"."""
    rest = b""
    while block := file.read(_BLOCK_BYTES):
        *lines, rest = (rest + block).split(line_end)
        for line in lines:
            yield line + line_end
        if len(rest) > MAX_ROW_BYTES:
            break
    if rest:
        yield rest
