"""Compressed texts in PNGs, which decoders would inflate: 8 MB for each 8 kB of the file."""

from __future__ import annotations

import io
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image as PillowImage

from beam_tfr.dataset.elements import decode_image
from beam_tfr.features.gray_png import decode_stored, gray_problems
from beam_tfr.features.png_chunks import (
    MAX_INFLATED_TEXTS,
    PNG_SIGNATURE,
    keep_pixels,
    png_chunks,
    text_problem,
)
from beam_tfr.images import convert_image
from beam_tfr.schema.errors import RejectError
from tests.fixtures import all_fixtures, chunk, noise, save
from tests.fixtures.exif import png_with
from tests.masks import place_image

MIB = 1 << 20
INFLATED = 6_000_000  # bytes of a text
TEXTS = 40
PACKED = zlib.compress(b"x" * INFLATED, 9)
LARGE = {
    "zTXt": chunk(b"zTXt", b"k\0\0" + PACKED),
    "iTXt": chunk(b"iTXt", b"k\0\1\0\0\0" + PACKED),
    "iCCP": chunk(b"iCCP", b"k\0\0" + PACKED),
}
SMALL = {kind: chunk(kind.encode(), b"k\0\0\0\0\0") for kind in ("zTXt", "iTXt")}
PHOTO, GRAY = noise(), noise().convert("L")
MASK = GRAY.point(lambda value: value % 3)


def with_texts(image: PillowImage.Image, kind: str, number: int = TEXTS) -> bytes:
    """Half of the texts are before the pixels, half behind them."""
    half = number // 2
    return png_with(image, LARGE[kind] * half, LARGE[kind] * (number - half))


def few_and_many(kind: str) -> tuple[bytes, bytes]:
    """A PNG with as many texts as are allowed, and another with one more."""
    few = png_with(PHOTO, SMALL[kind] * MAX_INFLATED_TEXTS)
    return few, png_with(PHOTO, SMALL[kind] * MAX_INFLATED_TEXTS, SMALL[kind])


def test_ordinary_pngs_are_not_copied() -> None:
    profile = chunk(b"iCCP", b"k\0\0" + bytes(3_000))
    for image in (PHOTO, GRAY, noise(300, 400)):
        data = png_with(image, profile)
        assert keep_pixels(data) is data


@pytest.mark.parametrize("kind", LARGE)
def test_all_that_is_large_but_the_pixels_is_removed(kind: str) -> None:
    data = with_texts(PHOTO.quantize(), kind)
    kept = keep_pixels(data)
    assert {one.kind for one in png_chunks(kept)} == {b"IHDR", b"PLTE", b"IDAT", b"IEND"}
    with PillowImage.open(io.BytesIO(kept)) as image:
        np.testing.assert_array_equal(np.asarray(image), np.asarray(PHOTO.quantize()))


def test_chunks_that_nothing_walks_are_removed_too() -> None:
    """Those behind a chunk that ends behind the file, or behind the 100,000th chunk."""
    assert len(keep_pixels(PNG_SIGNATURE + b"\xff" * 10_000)) < 30
    assert len(keep_pixels(PNG_SIGNATURE + chunk(b"abCd", b"") * 100_001)) < 30


def test_a_file_that_ends_behind_its_pixels_keeps_them() -> None:
    data = with_texts(PHOTO, "zTXt")[:-20]
    np.testing.assert_array_equal(decode_image(data, "png", 3), np.asarray(PHOTO))


def test_sound_pngs_have_the_same_pixels_without_other_chunks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("beam_tfr.features.png_chunks._FREE_BYTES", -(10**9))
    sound = [
        one.data
        for one in all_fixtures().values()
        if one.data.startswith(PNG_SIGNATURE) and not one.reason and len(one.data) < 100_000
    ]
    assert len(sound) > 20
    for data in sound:
        assert convert_image(keep_pixels(data), ignore_orientation=True, icc="ignore").encoded == (
            convert_image(data, ignore_orientation=True, icc="ignore").encoded
        )


READ = """
import io, resource, sys
import cv2
from pathlib import Path
from beam_tfr.dataset.elements import decode_image
from beam_tfr.features.gray_png import decode_stored
from beam_tfr.images import convert_image
from tests.masks import place_image

photo, gray, mask = (Path(path).read_bytes() for path in sys.argv[1:4])
image = convert_image(photo, resize="none", encoding="png")
begin = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
decode_image(photo, "png", 3)
decode_stored(gray, (image.height, image.width))
place_image(mask, image)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - begin) << 10)
"""


@pytest.mark.parametrize("kind", LARGE)
def test_readers_and_masks_take_no_memory_for_texts(kind: str, tmp_path: Path) -> None:
    """Each reading took 240 MB."""
    paths = list[str]()
    for image in (PHOTO, GRAY, MASK):
        path = tmp_path / f"{len(paths)}.png"
        path.write_bytes(with_texts(image, kind))
        paths.append(str(path))
    run = subprocess.run(
        [sys.executable, "-c", READ, *paths],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(run.stdout) < 60 * MIB


@pytest.mark.parametrize("kind", LARGE)
def test_readers_and_masks_return_the_same_pixels(kind: str) -> None:
    height, width = PHOTO.height, PHOTO.width
    pixels = decode_image(with_texts(PHOTO, kind), "png", 3)
    np.testing.assert_array_equal(pixels, np.asarray(PHOTO))
    stored = decode_stored(with_texts(GRAY, kind), (height, width))
    np.testing.assert_array_equal(stored, np.asarray(GRAY))
    image = convert_image(save(PHOTO, "PNG"), resize="none", encoding="png")
    placed = place_image(with_texts(MASK, kind), image)
    np.testing.assert_array_equal(decode_stored(placed, (height, width)), np.asarray(MASK))


def test_a_mask_that_was_cut_is_refused_with_and_without_texts() -> None:
    image = convert_image(save(PHOTO, "PNG"), resize="none", encoding="png")
    for data in (save(GRAY, "PNG"), png_with(GRAY, LARGE["zTXt"])):
        with pytest.raises(RejectError, match="bad-value"):
            place_image(data[:-400], image)


@pytest.mark.parametrize("kind", SMALL)
def test_a_png_with_many_texts_is_not_kept(kind: str) -> None:
    few, many = few_and_many(kind)
    kept, again = (
        convert_image(data, resize="none", encoding="keep", color="keep") for data in (few, many)
    )
    assert (kept.encoded, kept.adjusted) == (few, ())
    assert (again.format, again.adjusted) == ("png", ("re-encoded",))
    assert text_problem(again.encoded) == ""
    np.testing.assert_array_equal(decode_image(again.encoded, "png", 3), np.asarray(PHOTO))


@pytest.mark.parametrize("kind", SMALL)
def test_load_refuses_a_png_with_many_texts(kind: str) -> None:
    tf = pytest.importorskip("tensorflow")
    from beam_tfr.reader.headers import check_header

    few, many = (data + bytes(128 << 10) for data in few_and_many(kind))  # less is harmless
    message = f"more than 100,000 pixels or {MAX_INFLATED_TEXTS} zTXt or iTXt chunks"
    assert check_header(tf.constant(few), "png", 100_000).numpy() == few
    check_header(tf.constant([few] * 3), "png", 100_000)
    check_header(tf.constant([], tf.string), "png", 100_000)
    for data in (many, [few, many]):
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            check_header(tf.constant(data), "png", 100_000)


@pytest.mark.parametrize("kind", SMALL)
def test_verify_reports_a_mask_with_many_texts(kind: str) -> None:
    size = (GRAY.height, GRAY.width)
    chunks = SMALL[kind] * MAX_INFLATED_TEXTS
    assert [*gray_problems("mask", png_with(GRAY, chunks), size)] == []
    assert [*gray_problems("mask", png_with(GRAY, chunks, SMALL[kind]), size)] == [
        "mask has more than 16 zTXt or iTXt chunks, which inflate when decoded"
    ]
