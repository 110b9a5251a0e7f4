"""--damaged keep: which damaged JPEGs are stored, and that all others stay rejects.

And damage that libraries hide.
"""

from __future__ import annotations

import dataclasses
import io
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image as PillowImage
from PIL import ImageDraw

from beam_tfr.dataset.manifest import read_manifest
from beam_tfr.images import convert_image
from beam_tfr.images.formats import jpeg
from beam_tfr.options import ImageOptions
from beam_tfr.records.examples import parse_example
from beam_tfr.records.tfrecords import RecordFile
from beam_tfr.schema.errors import RejectError
from beam_tfr.schema.items import Image
from tests.conftest import Run
from tests.fixtures import noise, psnr, save, smooth
from tests.fixtures.exif import app1, exif
from tests.fixtures.jpeg import ARITHMETIC, BASELINE, FILES, PROGRESSIVE, RESTARTS, SRGB
from tests.fixtures.jpeg_writer import behind_soi, icc, lossless, segment

PHOTO = noise(96, 8)
KEEP = ImageOptions(damaged="keep", resize="none", encoding="png")


@pytest.fixture(autouse=True)
def share(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer rows of a damaged image need be there than usual."""
    monkeypatch.setattr(jpeg, "DAMAGED_SHARE", 0.75)


def outcome(data: bytes, options: ImageOptions = KEEP) -> Image | str:
    try:
        return convert_image(data, options)
    except RejectError as error:
        return f"{error.reason}: {error.detail}"


def pixels_of(image: Image | str) -> np.ndarray:
    assert isinstance(image, Image)
    return np.asarray(PillowImage.open(io.BytesIO(image.encoded)))


@pytest.mark.parametrize("form", [{}, {"progressive": True}], ids=["baseline", "progressive"])
def test_a_jpeg_cut_at_any_byte_is_kept_if_so_many_of_its_rows_are_there(
    form: dict[str, bool],
) -> None:
    """Restart markers tell which rows are there; of a progressive JPEG those of its last scan."""
    data = save(PHOTO, "JPEG", quality=90, subsampling=0, restart_marker_rows=1, **form)
    whole = pixels_of(outcome(data))
    starts = [found.end() for found in re.finditer(rb"\xff\xda", data)]
    ends = [
        found.start()
        for found in re.finditer(rb"\xff[\xd0-\xd7\xd9]", data)
        if found.start() > starts[-1]
    ]
    assert len(ends) == 12  # of 8 rows each
    for size in range(4, len(data)):
        found = outcome(data[:size])
        assert isinstance(found, Image) == (size >= ends[8]), size
        if isinstance(found, Image):
            assert found == outcome(data[:size])
            assert found.adjusted == ("damage-kept",)
            rows = 8 * sum(size >= end for end in ends)
            assert np.array_equal(pixels_of(found)[:rows], whole[:rows])


@pytest.mark.parametrize(
    "data",
    [
        save(smooth(40, 56), "JPEG", quality=90),
        save(smooth(40, 56), "JPEG", quality=90, progressive=True),
        save(smooth(40, 56).convert("L"), "JPEG"),
        save(smooth(24, 24).convert("CMYK"), "JPEG"),
        behind_soi(save(smooth(16, 16), "JPEG"), app1(exif())),
        ARITHMETIC,
        lossless(np.asarray(noise(8, 8)).transpose(2, 0, 1), ids=b"RGB"),
    ],
    ids=["baseline", "progressive", "gray", "CMYK", "EXIF", "arithmetic", "lossless"],
)
def test_a_jpeg_cut_at_any_byte_is_an_image_or_a_reject(
    data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jpeg, "DAMAGED_SHARE", 0.5)
    outcomes = [outcome(data[:size]) for size in range(4, len(data) + 1)]
    assert {text.partition(":")[0] for text in outcomes if isinstance(text, str)} <= {
        "damaged-image"
    }
    found = [isinstance(one, Image) for one in outcomes]
    assert found == sorted(found)  # more bytes never make it worse
    assert found[-1]
    assert not any(found[: len(found) // 3])


LARGE = PillowImage.fromarray(
    np.random.default_rng(5).normal(128, 40, (160, 200, 3)).clip(0, 255).astype(np.uint8)
)
FORMS: dict[str, dict[str, Any]] = {
    "baseline": {},
    "progressive": {"progressive": True},
    "restarts": {"restart_marker_rows": 2},
}
NOISE = np.random.default_rng(3).integers(0, 256, 20_000, np.uint8).tobytes()
THUMBNAIL = save(noise(16, 16), "JPEG")
MARK = b"\0\0\x01\x0a\x0eMotionPhoto_Data"
# What cameras, disks and downloads leave behind the data of a JPEG without an end marker.
OTHERS = {
    "zeros": bytes(3000),
    "text": b"MotionPhoto" * 2000,
    "text after a printable byte": b"Lorem ipsum, " * 900,
    "noise": NOISE,
    "trailer": MARK + NOISE,
    "thumbnail": THUMBNAIL,
    "trailer and thumbnail": MARK + THUMBNAIL + NOISE,
    "zeros and a second picture": bytes(500) + save(LARGE, "JPEG"),
    "video": bytes(3) + b"\x18ftypmp42" + bytes(64) + NOISE,
    "markers": b"\xff\xe1\0\x08Exif\0\0\xff\xfe\0\4ab\xff\xc4\0\2" + NOISE,
    "frame": b"\xff\xc0\0\x0b\x08\0\x10\0\x10\1\1\x11\0" + NOISE,
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("others", OTHERS)
def test_whole_rows_are_kept_whatever_follows_and_half_of_them_never(
    others: str, form: str
) -> None:
    data = save(LARGE, "JPEG", quality=90, **FORMS[form])
    kept = outcome(data[:-2] + OTHERS[others])
    assert isinstance(kept, Image), kept
    assert kept.adjusted == ("damage-kept",)
    assert np.array_equal(pixels_of(kept), pixels_of(outcome(data)))
    half = outcome(data[: len(data) // 2] + OTHERS[others])
    assert isinstance(half, str)


@pytest.mark.parametrize("others", OTHERS)
def test_a_reject_tells_of_bytes_where_the_end_should_be(others: str) -> None:
    data = save(LARGE, "JPEG", quality=90)
    reject = outcome(data[:-2] + OTHERS[others], ImageOptions())
    assert re.search(
        r"damaged-image: .*\(no end marker before \d+ other bytes; --damaged keep", str(reject)
    )
    assert "end marker before" not in str(outcome(data[:-2], ImageOptions()))


@pytest.mark.parametrize("form", ["baseline", "restarts"])
def test_half_a_picture_and_data_of_another_are_no_picture(form: str) -> None:
    """As on disks of which the clusters belong to several files."""
    data = save(LARGE, "JPEG", quality=90, **FORMS[form])
    other = save(LARGE.rotate(180), "JPEG", quality=90, **FORMS[form])
    half = len(data) // 2
    for end in (b"", THUMBNAIL):
        joined = data[:half] + other[half:-2] * 3 + end
        assert "fewer than" in str(outcome(joined))
    periodic = [bytes(1_000_000), b" " * 1_000_000, b"\xaa" * 90_000, bytes(range(250)) * 400]
    for filler in periodic:
        assert isinstance(outcome(data[:half] + filler + NOISE), str)


def test_scans_of_another_picture_do_not_complete_one() -> None:
    """Cut in its first scans, a progressive JPEG before the last scans of another."""
    data = save(LARGE, "JPEG", quality=90, progressive=True)
    other = save(LARGE.rotate(180), "JPEG", quality=90, progressive=True)
    for share in (0.2, 0.4, 0.6):
        cut = int(len(data) * share)
        assert isinstance(outcome(data[:cut] + other[cut:-2]), str)
    last = [found.start() for found in re.finditer(rb"\xff\xda", other)][-1]
    kept = outcome(data[:-2] + other[last:-2])
    assert isinstance(kept, str) or np.array_equal(pixels_of(kept), pixels_of(outcome(data)))


def test_what_is_kept_says_so_and_is_upright_and_in_color(monkeypatch: pytest.MonkeyPatch) -> None:
    data = behind_soi(
        save(smooth(), "JPEG", exif=PillowImage.Exif(), icc_profile=SRGB), segment(0xFE, b"note")
    )
    sound, cut = convert_image(data, KEEP), convert_image(data[:-2], KEEP)
    assert (sound.damaged, sound.adjusted, cut.damaged, cut.adjusted) == (
        False,
        (),
        True,
        ("damage-kept",),
    )
    assert psnr(pixels_of(sound), pixels_of(cut)) > 60
    again = convert_image(
        data[:-2], damaged="keep", resize="none", encoding="keep"
    )  # a trainer may refuse the file
    assert (again.format, again.adjusted) == ("jpeg", ("damage-kept", "re-encoded"))
    assert again.encoded.endswith(b"\xff\xd9")
    assert convert_image(data).damaged is None
    monkeypatch.setattr(jpeg, "DAMAGED_SHARE", 0.5)
    zeros = convert_image(data[:-20] + bytes(5000), KEEP)  # as downloads leave
    assert np.array_equal(pixels_of(zeros), pixels_of(outcome(data[:-20])))


@pytest.mark.parametrize(
    "stray", [b"x" * 100, b"Exif\0\0" + bytes(range(200)) * 9], ids=["text", "the rest of EXIF"]
)
def test_stray_bytes_between_segments_are_left_out(stray: bytes) -> None:
    """As in a file whose EXIF is longer than its segment says."""
    data = behind_soi(BASELINE, segment(0xE1, b"Exif\0\0MM\0*") + stray, *icc(SRGB, 3))
    assert outcome(data, dataclasses.replace(KEEP, damaged="reject")) == (
        f"damaged-image: JPEG: {len(stray)} stray bytes in its header"
    )
    found = outcome(data)
    assert isinstance(found, Image)
    assert found.adjusted == ("damage-kept",)
    assert np.array_equal(pixels_of(found), pixels_of(outcome(BASELINE)))


@pytest.mark.parametrize(
    "name",
    [
        name
        for name, file in FILES.items()
        if file.reason == "damaged-image"
        and not name.startswith(("without its end", "cut in", "CMYK cut"))
    ],
)
def test_other_damage_stays_a_reject(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what is behind a wrong code nobody knows what it was."""
    monkeypatch.setattr(jpeg, "DAMAGED_SHARE", 0.01)
    with pytest.raises(RejectError) as error:
        convert_image(FILES[name].data, damaged="keep")
    assert error.value.reason == "damaged-image"


def test_a_dataset_tells_which_of_its_images_are_damaged(
    beam_tfr: Callable[..., Run], tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    for name, data in {
        "a": BASELINE,
        "b": BASELINE[:-2],
        "c": RESTARTS[:-100],
        "d": PROGRESSIVE[:-2],
    }.items():
        (tmp_path / "in" / f"{name}.jpg").write_bytes(data)
    command = [
        "convert",
        "--input",
        f"{tmp_path}/in/*.jpg",
        "--output",
        tmp_path / "o",
        "--max_rejects=1",
    ]
    assert beam_tfr(*command, "--layout=*", "--damaged=keep", "--num_shards=1").code == 0
    dataset = read_manifest(str(tmp_path / "o"))
    assert dataset.counts["adjusted"]["damage-kept"] == 2
    assert dataset.counts["rejected"] == {"damaged-image": 1}
    assert dataset.features["image/source/damaged"] == {"dtype": "int64", "shape": []}
    (shard,) = dataset.splits["train"].shards
    records = [parse_example(record) for record in RecordFile(str(tmp_path / "o" / shard.file))]
    found = {record["image/filename"][0]: record["image/source/damaged"] for record in records}
    assert found == {b"a.jpg": [0], b"b.jpg": [1], b"d.jpg": [1]}
    assert beam_tfr("verify", tmp_path / "o").code == 0


# Other formats, whose damage a library does not report


@pytest.mark.parametrize("form", ["group4", "group3", "tiff_ccitt"])
def test_a_damaged_fax_is_a_reject_and_never_memory_that_nobody_wrote(
    form: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """libtiff only warns of most damage, and leaves what it does not decode as it was."""
    drawing = PillowImage.new("1", (256, 256), 1)
    ImageDraw.Draw(drawing).ellipse((20, 30, 200, 240), outline=0, width=9)
    data = save(drawing, "TIFF", compression=form)
    options = ImageOptions(resize="none", encoding="png", color="keep")
    whole = outcome(data, options)
    assert np.array_equal(pixels_of(whole), np.asarray(drawing.convert("L")))
    begin = tiff_offset(data)
    flipped = [
        data[:place] + bytes([data[place] ^ 0x40]) + data[place + 1 :]
        for place in range(begin, begin + 80)
    ]
    found = [outcome(one, options) for one in flipped]
    assert [outcome(one, options) for one in flipped] == found
    rejects = [one for one in found if isinstance(one, str)]
    assert all(re.match(r"damaged-image: TIFF: Fax\w+: ", one) for one in rejects)
    assert len(rejects) >= 64  # other damage leaves valid data
    assert capfd.readouterr().err == ""


def tiff_offset(data: bytes) -> int:
    with PillowImage.open(io.BytesIO(data)) as image:
        return int(image.tag_v2[273][0])  # type: ignore[attr-defined]


@pytest.mark.parametrize("form", ["tiff_lzw", "tiff_adobe_deflate", "lzma", "zstd", "jpeg"])
def test_errors_of_libtiff_are_rejects_and_are_not_printed(
    form: str, capfd: pytest.CaptureFixture[str]
) -> None:
    data = save(noise(64, 64), "TIFF", compression=form)
    begin = tiff_offset(data)
    found = [
        outcome(data[:place] + b"\xff" * 40 + data[place + 40 :])
        for place in range(begin, begin + 600, 100)
    ]
    assert {one.partition(":")[0] for one in found if isinstance(one, str)} == {"damaged-image"}
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("mode", ["L", "F"])
def test_an_uncompressed_tiff_of_more_rows_than_it_has_strips_for_is_damaged(mode: str) -> None:
    """No decoder reports it: Pillow and libtiff leave those rows as they were in memory."""
    data = save(smooth().convert(mode), "TIFF")
    rows = struct.pack("<HHII", 257, 4, 1, 48)
    assert convert_image(data)
    longer = data.replace(rows, struct.pack("<HHII", 257, 4, 1, 480))
    assert longer != data
    with pytest.raises(
        RejectError, match=r"damaged-image: TIFF: \d+ bytes cannot hold 64 x 480 pixels"
    ):
        convert_image(longer)
