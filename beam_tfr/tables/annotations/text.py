"""Reads small text files of annotations."""

import math
from collections.abc import Sequence
from typing import IO

MAX_TEXT_BYTES = 1 << 20  # 1 MiB of an XML, YAML or label file; parsing 1 MiB of YAML takes 2 s


def read_text(file: IO[bytes]) -> str:
    """Reads a small file as UTF-8, whatever encoding the file declares.

    Raises:
        ValueError: the file is too long, or not UTF-8.
    """
    return decode_text(read_at_most(file))


def read_at_most(file: IO[bytes]) -> bytes:
    """Returns the bytes of a small file; for a longer file, one byte more than the limit."""
    return file.read(MAX_TEXT_BYTES + 1)


def check_length(data: bytes) -> None:
    """Checks the length of a small file, from its bytes as `read_at_most` returns them.

    Raises:
        ValueError: the file is too long.
    """
    if len(data) > MAX_TEXT_BYTES:
        raise ValueError(f"has more than {MAX_TEXT_BYTES >> 20} MiB")


def decode_text(data: bytes) -> str:
    """Decodes the text of a small file, from its bytes as `read_at_most` returns them.

    Raises the same errors as `read_text`.
    """
    check_length(data)
    return data.decode("utf-8-sig")


def parse_numbers(texts: Sequence[str]) -> list[float]:
    """Parses strings as numbers; if any is not a number, all become NaN, an invalid box."""
    try:
        return [float(text) for text in texts]
    except ValueError:
        return [math.nan] * len(texts)
