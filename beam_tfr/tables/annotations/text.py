"""Small text files of annotations, which say nothing true of their encoding."""

import math
from collections.abc import Sequence
from typing import IO

MAX_TEXT_BYTES = 1 << 20  # 1 MiB, of an XML, YAML or label file; so much YAML takes half a minute


def read_text(file: IO[bytes]) -> str:
    """Reads a small file, which is UTF-8 whatever it declares.

    Raises:
        ValueError: it is too long, or not UTF-8.
    """
    return decode_text(file.read(MAX_TEXT_BYTES + 1))


def decode_text(data: bytes) -> str:
    """The text of a small file, of which a byte more than the most was read.

    See `read_text`.
    """
    if len(data) > MAX_TEXT_BYTES:
        raise ValueError(f"has more than {MAX_TEXT_BYTES >> 20} MiB")
    return data.decode("utf-8-sig")


def parse_numbers(texts: Sequence[str]) -> list[float]:
    """The numbers of texts; all NaN, which are no box, if one text is no number."""
    try:
        return [float(text) for text in texts]
    except ValueError:
        return [math.nan] * len(texts)
