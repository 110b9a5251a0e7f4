"""Small text files of annotations."""

import math
from collections.abc import Sequence
from typing import IO

MAX_TEXT_BYTES = 1 << 20  # 1 MiB, of an XML, YAML or label file; so much YAML takes 2 s


def read_text(file: IO[bytes]) -> str:
    """Reads a small file, which is UTF-8 whatever it declares.

    Raises:
        ValueError: it is too long, or not UTF-8.
    """
    return decode_text(read_at_most(file))


def read_at_most(file: IO[bytes]) -> bytes:
    """The bytes of a small file; of one that is too long, a byte more than the most."""
    return file.read(MAX_TEXT_BYTES + 1)


def check_length(data: bytes) -> None:
    """Checks the length of a small file, of which `read_at_most` gave the bytes.

    Raises:
        ValueError: it is too long.
    """
    if len(data) > MAX_TEXT_BYTES:
        raise ValueError(f"has more than {MAX_TEXT_BYTES >> 20} MiB")


def decode_text(data: bytes) -> str:
    """The text of a small file, of which `read_at_most` gave the bytes.

    Raises as `read_text`.
    """
    check_length(data)
    return data.decode("utf-8-sig")


def parse_numbers(texts: Sequence[str]) -> list[float]:
    """The numbers of texts; all NaN, which are no box, if one text is no number."""
    try:
        return [float(text) for text in texts]
    except ValueError:
        return [math.nan] * len(texts)
