"""Walkers over containers.

They yield all parts of a sound file, and of any bytes parts within it or one error.
"""

from __future__ import annotations

import functools
import random
import struct
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_tfr.features import png_chunks
from beam_tfr.images import formats
from beam_tfr.images.containers import chunks, gif, jpeg, tiff
from beam_tfr.schema.errors import RejectError
from tests.cpu_limit import bounded_cpu
from tests.fixtures import all_fixtures, chunk
from tests.fixtures.exif import entry, exif, oriented

Spans = Iterator[tuple[int, int]]


def entries(data: bytes) -> Spans:
    """Where the values are that a decoder would read; those behind the end are empty."""
    for directory in tiff.directories(data):
        for one in directory:
            if directory.read_integers(one):
                yield one.start, one.start + one.size


def whole(parts: Iterator[Any], begin: int) -> Spans:
    for part in parts:
        yield begin, begin + len(part.whole)
        begin += len(part.whole)


# format -> the spans of the parts of a file, the bytes that files of it begin with, how many parts
# there may be
WALKERS: dict[str, tuple[Callable[[bytes], Spans], bytes, int]] = {
    "png": (
        lambda data: whole(png_chunks.png_chunks(data), 8),
        png_chunks.PNG_SIGNATURE,
        png_chunks.MAX_CHUNKS,
    ),
    "gif": (lambda data: whole(gif.blocks(data), 0), b"GIF89a\1\0\1\0\0\0\0", gif.MAX_PIECES),
    "webp": (
        lambda data: whole(chunks.webp_chunks(data), 12),
        b"RIFF\xff\xff\0\0WEBP",
        png_chunks.MAX_CHUNKS,
    ),
    "jpeg": (
        lambda data: ((one.begin, one.end) for one in jpeg.segments(data)),
        b"\xff\xd8\xff",
        jpeg.MAX_SEGMENTS,
    ),
    "tiff": (entries, b"II*\0\x08\0\0\0", tiff.MAX_DIRECTORIES * tiff.MAX_ENTRIES),
}


@functools.cache
def files(form: str) -> list[bytes]:
    """Sound ones."""
    found = [
        fixture.data
        for fixture in all_fixtures().values()
        if not fixture.reason and len(fixture.data) < 100_000
    ]
    return [data for data in found if formats.identify(data) == form]


def check(form: str, data: bytes) -> bool:
    """Whether parts were yielded to the end; they must lie in the file, one behind the other."""
    walk, _, most = WALKERS[form]
    last, count = 0, 0
    try:
        for begin, end in walk(data):
            assert 0 <= begin <= end <= len(data)
            assert begin >= last or form == "tiff"  # its values are anywhere
            last, count = end, count + 1
    except RejectError as error:
        reason = error.reason
    else:
        reason = ""
    assert count <= most
    assert reason in ("", "damaged-image")
    return not reason


@pytest.mark.parametrize("form", WALKERS)
def test_sound_files_are_walked_to_their_end(form: str) -> None:
    assert len(files(form)) > 1
    damaged = [data for data in files(form) if not check(form, data)]
    assert len(damaged) <= (4 if form in ("gif", "png") else 0)  # cut behind their pixels


@pytest.mark.parametrize("form", WALKERS)
@given(data=st.data())
def test_any_bytes_are_parts_or_an_error(form: str, data: st.DataObject) -> None:
    check(form, data.draw(st.binary(max_size=200)))
    check(form, WALKERS[form][1] + data.draw(st.binary(max_size=200)))


@pytest.mark.parametrize("form", WALKERS)
def test_cuts_and_flips_of_real_files_are_parts_or_an_error(form: str) -> None:
    dice = random.Random(form)
    for number in range(600):
        data = bytearray(files(form)[number % len(files(form))])
        for _ in range(dice.choice((0, 1, 4))):
            data[dice.randrange(min(len(data), dice.choice((40, 400, len(data)))))] ^= (
                1 << dice.randrange(8)
            )
        del data[dice.choice((len(data), dice.randrange(len(data)))) :]
        check(form, bytes(data))


MOST = 16 << 20  # bytes
LARGE = {
    "png of empty chunks": (
        "png",
        lambda: png_chunks.PNG_SIGNATURE + chunk(b"abCd", b"") * (MOST // 12),
    ),
    "gif of empty blocks": ("gif", lambda: b"GIF89a\1\0\1\0\0\0\0" + b"!\xfe\0" * (MOST // 3)),
    "gif of pieces of one byte": (
        "gif",
        lambda: b"GIF89a\1\0\1\0\0\0\0!\xfe" + b"\1\0" * (MOST // 2),
    ),
    "webp of empty chunks": (
        "webp",
        lambda: b"RIFF" + struct.pack("<I", MOST) + b"WEBP" + b"XXXX\0\0\0\0" * (MOST // 8),
    ),
    "jpeg of empty segments": ("jpeg", lambda: b"\xff\xd8" + b"\xff\xfe\0\2" * (MOST // 4)),
    "jpeg of markers alone": ("jpeg", lambda: b"\xff\xd8" + b"\xff\1" * (MOST // 2)),
    "jpeg of restarts": ("jpeg", lambda: b"\xff\xd8" + b"\xff\xd0" * (MOST // 2)),
    "tiff of a large directory": (
        "tiff",
        lambda: b"MM\0*\0\0\0\x08\xff\xff" + entry(1, 3, 1, 1) * (MOST // 12),
    ),
    "tiff of many directories": (
        "tiff",
        lambda: (
            b"MM\0*\0\0\0\x08"
            + b"".join(b"\0\0" + struct.pack(">I", 14 + 6 * n) for n in range(MOST // 6))
        ),
    ),
    "big tiff of 2^64 entries": (
        "tiff",
        lambda: b"II+\0\x08\0\0\0\x10" + bytes(7) + b"\xff" * 8 + bytes(MOST),
    ),
}


@pytest.mark.parametrize("name", LARGE)
def test_no_file_takes_long(name: str) -> None:
    form, make = LARGE[name]
    data = make()
    with bounded_cpu():
        check(form, data)


def test_directories_that_point_in_a_circle_are_an_error() -> None:
    with pytest.raises(RejectError, match="damaged-image: TIFF: its directories form a loop"):
        list(tiff.directories(exif(follow=8)))


def test_values_are_read_within_the_file_alone() -> None:
    directory = next(
        tiff.directories(exif(entry(1, 4, 2, 0), entry(2, 3, 1, 7), entry(3, 5, 1, 0)))
    )
    assert [directory.read_integers(one) for one in directory] == [(0x4D4D002A, 8), (7,), ()]
    behind = next(tiff.directories(exif(entry(1, 4, 2, 1))))  # at 0x10000
    assert [behind.read_integers(one) for one in behind] == [()]


def test_an_integer_is_replaced_in_place() -> None:
    block = oriented(6)
    directory = next(tiff.directories(block))
    assert directory.with_integer(next(iter(directory)), 1) == oriented(1)
