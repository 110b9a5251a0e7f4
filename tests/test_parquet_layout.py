"""How the values of a Parquet file are stored: metadata that may be anything."""

from __future__ import annotations

import struct

import pytest

from beam_tfr.records.parquet_layout import count_values

STRUCT = b"\x1c"  # the next field, which is a struct
LIST = b"\x19"  # the next field, or a list of one, which is a list


def file_with(metadata: bytes) -> bytes:
    return metadata + struct.pack("<I", len(metadata)) + b"PAR1"


@pytest.mark.parametrize(
    "metadata",
    [
        STRUCT * 100_000,
        LIST * 100_000,
        b"\x19\xf1" + b"\xff" * 9 + b"\x01",  # 2^63 booleans
        b"\x15" + b"\xff" * 20,  # a number without an end
        b"\x1f",  # of no type
        b"\x49\x15\x02\x00",  # row groups that are numbers
    ],
    ids=["structs", "lists", "many", "number", "type", "groups"],
)
def test_metadata_that_are_something_else_are_errors(metadata: bytes) -> None:
    with pytest.raises(ValueError, match=r"damaged|too many bytes"):
        count_values(file_with(metadata), 1)
