"""Hostile files, and broken ones by the thousand: what becomes of them, in what time and memory."""

from __future__ import annotations

import io
import json
import zlib
from typing import Any

import pytest
from PIL import Image as PillowImage

from beam_tfr.images import convert_image
from beam_tfr.images.formats import png
from beam_tfr.schema.dataset import REJECT_REASONS
from beam_tfr.schema.errors import RejectError
from tests.cpu_limit import SLOWER
from tests.fixtures import all_fixtures, chunk, hostile, save, smooth
from tests.hostile_images import LONGEST_S, in_another_process

MOST_MEMORY = 200_000_000  # bytes above that of an ordinary photo
ALLOWED = (
    450_000_000  # of what takes the memory that --max_decode_bytes allows, and some for resizing
)
LEGITIMATE = {"png-10000x10000", "png-16-bit-8000x8000"}


@pytest.fixture(scope="module")
def measured() -> dict[str, list[Any]]:
    run = in_another_process("measure_all()", timeout=250)
    assert run.returncode == 0, run.stderr
    found: dict[str, list[Any]] = json.loads(run.stdout)
    return found


@pytest.mark.slow  # a process for each file; test_every_image converts most of them too
def test_every_hostile_file_comes_out_as_expected(measured: dict[str, list[Any]]) -> None:
    found = {name: (reason, tuple(adjusted)) for name, (reason, adjusted, _, _) in measured.items()}
    expected = {name: fixture[1:3] for name, fixture in hostile.FILES.items()}
    assert found == expected | {name: make()[1:3] for name, make in hostile.MANY.items()}


@pytest.mark.slow
def test_no_hostile_file_takes_long_or_much_memory(measured: dict[str, list[Any]]) -> None:
    times = {name: seconds for name, (_, _, seconds, _) in measured.items()}
    assert not {name for name in times if times[name] > SLOWER * LONGEST_S}, times
    above = {name: memory for name, (_, _, _, memory) in measured.items() if memory > MOST_MEMORY}
    assert above.keys() == LEGITIMATE, above  # it shows, too, that memory is measured
    assert max(above.values()) < ALLOWED


def test_hostile_files_are_small() -> None:
    assert sum(len(fixture.data) for fixture in hostile.FILES.values()) < 20_000_000


def test_the_bombs_are_real() -> None:
    """Decoders that know no limits inflate them."""
    assert hostile.zeros(3_000_001) != hostile.zeros(3_000_000)
    for count in (0, 1, 1 << 20, 3_000_001):
        assert zlib.decompress(hostile.zeros(count)) == bytes(count)
    with PillowImage.open(io.BytesIO(hostile.flat_png(3000, 1000))) as image:
        assert image.size == (3000, 1000)
        assert image.getextrema() == ((0, 0),) * 3


# Broken files by the thousand


SEED = 20
VARIANTS = 4000


@pytest.mark.slow
def test_fuzz() -> None:
    run = in_another_process(f"fuzz({SEED}, {VARIANTS})", timeout=200)
    lines = run.stdout.splitlines()
    assert run.returncode == 0, (
        f"ended with status {run.returncode} at {lines[-1:]}: {run.stderr[-3000:]}"
    )
    said = [json.loads(line) for line in lines]
    assert sum("number" in line for line in said) == VARIANTS
    assert {line["name"].partition("/")[0] for line in said if "name" in line} >= {"hostile"}
    rejects = [line for line in said if "reason" in line]
    assert {line["reason"] for line in rejects} <= REJECT_REASONS.keys()
    # reports can be compared
    assert all(line["detail"] and " at 0x" not in line["detail"] for line in rejects)
    images = said.count("image")
    assert images + len(rejects) == VARIANTS
    assert VARIANTS // 20 < images < VARIANTS * 19 // 20  # neither all broken nor all whole


def test_a_png_that_goes_on_behind_its_pixels_is_not_inflated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """62 MB of compressed zeros behind 8x8 pixels took libpng more than a minute."""
    monkeypatch.setattr(png, "_FREE_STREAM_BYTES", 1 << 16)
    data = hostile.png(8, 8, hostile.zeros(1 << 28))
    with pytest.raises(
        RejectError, match="damaged-image: PNG: has more pixels than its header states"
    ):
        convert_image(data)


def test_of_many_compressed_texts_only_the_first_is_inflated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """56,000 of them in 60 MB took two minutes of CPU."""
    inflate, inflated = png._inflate, []

    def count(packed: bytes, max_bytes: int) -> bytes:
        inflated.append(len(packed))
        return inflate(packed, max_bytes)

    monkeypatch.setattr(png, "_inflate", count)
    packed = zlib.compress(bytes(1 << 20), 9)
    text = chunk(b"zTXt", b"XML:com.adobe.xmp\0\0" + packed)
    data = save(smooth(8, 8), "PNG")
    assert convert_image(data[:33] + text * 5 + data[33:])
    assert inflated.count(len(packed)) == 1


class CheckedError(Exception):
    """A PNG is sound so far: nothing is decoded then, which takes seconds for the largest."""


@pytest.mark.slow
def test_sound_pngs_do_not_go_on_behind_their_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    every = {name: one for name, one in all_fixtures().items() if "png" in name.lower()}
    del every["hostile/png-pixels-of-2-GiB"]
    damaged = [one.data for one in every.values() if one.reason]
    expected = [outcome(data) for data in damaged]
    sound = [one.data for one in every.values() if not one.reason]
    sound += [save(smooth(height, width), "PNG") for height, width in ((1, 1), (1, 300), (300, 1))]
    assert len(sound) > 20
    monkeypatch.setattr(png, "_FREE_STREAM_BYTES", -1)
    assert [outcome(data) for data in damaged] == expected
    check_length = png._check_length

    def check(*arguments: Any) -> None:
        check_length(*arguments)
        raise CheckedError

    monkeypatch.setattr(png, "_check_length", check)
    for data in sound:
        with pytest.raises(CheckedError):
            convert_image(data, image_size=(20, 20))


def outcome(data: bytes) -> bytes | str:
    """The converted image, or the reason of its reject."""
    try:
        return convert_image(data, image_size=(20, 20)).encoded
    except RejectError as error:
        return error.reason
