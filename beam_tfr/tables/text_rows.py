"""Reads the rows of text files: CSV, TSV and JSON Lines."""

import codecs
import csv
import json
from collections.abc import Iterator
from typing import IO, Any

from beam_tfr.tables.base import (
    ColumnSelection,
    ObjectFormat,
    Row,
    TableFormat,
    check_columns,
    damaged_table,
    number_rows,
    open_table,
)

MAX_LINE_BYTES = 64 << 20  # 64 MiB; an unclosed quote makes one line of the rest of a file


class Delimited(TableFormat):
    """CSV, or with another delimiter: the first line names the columns."""

    has_types = False
    may_be_gzipped = True

    def __init__(self, delimiter: str) -> None:
        self.delimiter = delimiter

    def read_columns(self, path: str, most_rows: int) -> list[str]:
        with open_table(path) as file:
            return self._read_lines(path, file)[0]

    def read_rows(self, path: str, selection: ColumnSelection) -> Iterator[Row]:
        with open_table(path) as file:
            header, lines = self._read_lines(path, file)
            check_columns(path, header, selection.columns, selection.known_columns)
            positions = [header.index(name) for name in selection.columns]
            for number, cells in lines:
                if len(cells) != len(header):
                    raise damaged_table(
                        f"{path}, row {number}",
                        f"has {len(cells)} cells, but the header has {len(header)}; "
                        "is a quote missing?",
                    )
                yield number, [cells[position] for position in positions]

    def _read_lines(
        self, path: str, file: IO[bytes]
    ) -> tuple[list[str], Iterator[tuple[int, list[str]]]]:
        """The header, and the numbered rows that are not empty.

        Raises:
            DataError: a line cannot be read, or the quotes do not match.
        """
        csv.field_size_limit(MAX_LINE_BYTES)
        lines = csv.reader(read_lines(file), delimiter=self.delimiter, strict=True)
        rows = number_rows(path, filter(None, lines), first=0)
        _, header = next(rows, (0, []))
        if not header:
            raise damaged_table(path, "is empty; its first line must name the columns")
        return header, rows


class JsonLines(ObjectFormat):
    """JSON Lines: an object in each line that is not blank."""

    may_be_gzipped = True

    def read_objects(
        self, path: str, file: IO[bytes], selection: ColumnSelection
    ) -> Iterator[dict[str, Any]]:
        for line in read_lines(file):
            if not line.isspace():
                yield _parse_object(line)


def _parse_object(line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"is not valid JSON: {error}") from None
    if not isinstance(row, dict):
        raise ValueError('is not a JSON object, such as {"image": "1.jpg"}')
    return row


def read_lines(file: IO[bytes]) -> Iterator[str]:
    """The lines of a text file, with their ends.

    Raises:
        ValueError: a line is too long, or not UTF-8.
    """
    if file.read(len(codecs.BOM_UTF8)) != codecs.BOM_UTF8:
        file.seek(0)
    while line := file.readline(MAX_LINE_BYTES + 1):
        if len(line) > MAX_LINE_BYTES:
            raise ValueError(f"a line has more than {MAX_LINE_BYTES} bytes")
        try:
            yield line.decode()
        except UnicodeDecodeError as error:
            raise ValueError(
                f"byte 0x{line[error.start]:02x} is not valid UTF-8; save the table as UTF-8"
            ) from None
