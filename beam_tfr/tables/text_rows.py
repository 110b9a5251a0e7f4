"""Reads the rows of text files: CSV, TSV and JSON Lines."""

import codecs
import csv
import json
from collections.abc import Iterator, Sequence
from typing import IO, Any

from beam_tfr.tables.checks import Row, check_columns, damaged_table, number_rows

MAX_LINE_BYTES = 64 << 20  # 64 MiB; an unclosed quote makes one line of the rest of a file


def open_delimited(
    path: str, file: IO[bytes], delimiter: str
) -> tuple[list[str], Iterator[tuple[int, list[str]]]]:
    """The header of a CSV file, and its numbered rows that are not empty.

    Raises:
        DataError: a line cannot be read, or the quotes do not match.
    """
    csv.field_size_limit(MAX_LINE_BYTES)
    lines = csv.reader(_read_lines(file), delimiter=delimiter, strict=True)
    rows = number_rows(path, filter(None, lines), first=0)
    _, header = next(rows, (0, []))
    if not header:
        raise damaged_table(path, "is empty; its first line must name the columns")
    return header, rows


def read_delimited(
    path: str, file: IO[bytes], delimiter: str, columns: Sequence[str], known: Sequence[str]
) -> Iterator[Row]:
    """Yields the rows of a CSV file; see `formats.read_rows`."""
    header, rows = open_delimited(path, file, delimiter)
    check_columns(path, header, columns, known)
    positions = [header.index(name) for name in columns]
    for number, cells in rows:
        if len(cells) != len(header):
            raise damaged_table(
                f"{path}, row {number}",
                f"has {len(cells)} cells, but the header has {len(header)}; is a quote missing?",
            )
        yield number, [cells[position] for position in positions]


def read_json_lines(file: IO[bytes]) -> Iterator[dict[str, Any]]:
    """Yields the JSON objects of the lines that are not blank.

    Raises:
        ValueError: a line cannot be read, or is not a JSON object.
    """
    for line in _read_lines(file):
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


def _read_lines(file: IO[bytes]) -> Iterator[str]:
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
