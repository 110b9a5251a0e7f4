"""--encoding keep: whose bytes stay, judged by TensorFlow's own decoders."""

import collections
import contextlib
import dataclasses
import hashlib
import io
import os
import random
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image as PillowImage

from beam_tfr import verify
from beam_tfr.dataset.manifest import KEPT_FORMATS, read_manifest
from beam_tfr.images import convert_image, formats
from beam_tfr.images.formats.jpeg import open_jpeg
from beam_tfr.images.keep import MAX_SAMPLES, READABLE, is_readable
from beam_tfr.images.source import SMALLEST, Source
from beam_tfr.records.examples import parse_example
from beam_tfr.records.tfrecords import RecordFile
from beam_tfr.schema.errors import RejectError
from beam_tfr.schema.items import Image
from beam_tfr.transforms import values
from tests.converted import convert
from tests.fixtures import HEIGHT, WIDTH, all_fixtures, noise, save, smooth
from tests.fixtures import keep as fixtures
from tests.fixtures.icc import PROFILES, SRGB_PROFILES

NOISE = noise()
WIDE, USUAL = PROFILES["Display P3"], next(iter(SRGB_PROFILES.values()))
GRAY = NOISE.convert("L")
RGBA = NOISE.convert("RGBA")
HALF_CLEAR = NOISE.convert("RGBA")
HALF_CLEAR.putalpha(GRAY)
ANIMATED = {"save_all": True, "append_images": [noise(seed=3)]}
JPEG = save(NOISE, "JPEG")
RGB_PNG, GRAY_PNG = save(NOISE, "PNG"), save(GRAY, "PNG")
GIF = fixtures.GIF


def keep(data: bytes, **options: Any) -> Image:
    return convert_image(data, resize="none", encoding="keep", **options)


def shown(data: bytes, **options: Any) -> np.ndarray:
    """The pixels of --encoding png."""
    with PillowImage.open(
        io.BytesIO(convert_image(data, resize="none", encoding="png", **options).encoded)
    ) as image:
        return np.asarray(image)


def by_tensorflow(data: bytes, image_format: str) -> np.ndarray | None:
    """RGB; None where TensorFlow refuses."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    tf = pytest.importorskip(
        "tensorflow", reason="TensorFlow is missing: pip install 'beam_tfr[reader]'"
    )
    decoders = {
        "jpeg": lambda: tf.io.decode_jpeg(data, channels=3, dct_method="INTEGER_ACCURATE"),
        "png": lambda: tf.io.decode_png(data, channels=3),
        "webp": lambda: tf.io.decode_webp(data, channels=3)[0],
    }
    try:
        return decoders[image_format]().numpy()
    except tf.errors.InvalidArgumentError:
        return None


def png_of(bits: int, kind: int, width: int = 21, height: int = 13, *chunks: bytes) -> bytes:
    """With random samples."""
    samples = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[kind]
    rows = np.random.default_rng(bits).integers(
        0, 256, (height, -(-width * bits * samples // 8)), dtype=np.uint8
    )
    header = fixtures.chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, kind, 0, 0, 0))
    pixels = zlib.compress(b"".join(b"\0" + row.tobytes() for row in rows))
    return RGB_PNG[:8] + header + b"".join(chunks) + fixtures.chunk(b"IDAT", pixels) + RGB_PNG[-12:]


def interlaced() -> bytes:
    pixels, rows = np.asarray(NOISE), b""
    for top, left, down, right in (
        *((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4)),
        *((2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1)),
    ):
        rows += b"".join(b"\0" + row.tobytes() for row in pixels[top::down, left::right])
    header = fixtures.chunk(b"IHDR", struct.pack(">IIBBBBB", WIDTH, HEIGHT, 8, 2, 0, 0, 1))
    return RGB_PNG[:8] + header + fixtures.chunk(b"IDAT", zlib.compress(rows)) + RGB_PNG[-12:]


# name -> file; the name begins with the format.
KEPT: dict[str, bytes] = {
    **{
        f"jpeg {chroma}": save(NOISE, "JPEG", subsampling=chroma)
        for chroma in ("4:4:4", "4:2:2", "4:2:0", "4:1:1")
    },
    "jpeg progressive": save(NOISE, "JPEG", progressive=True),
    "jpeg gray": save(GRAY, "JPEG"),
    "jpeg of RGB components": save(NOISE, "JPEG", keep_rgb=True),
    "jpeg with restart markers": save(NOISE, "JPEG", restart_marker_blocks=2),
    "jpeg without JFIF": JPEG[:2] + JPEG[20:],
    "jpeg with sRGB": save(NOISE, "JPEG", icc_profile=USUAL),
    "jpeg and another behind it": JPEG + save(smooth(), "JPEG"),
    "png": RGB_PNG,
    "png gray": GRAY_PNG,
    "png palette": fixtures.PALETTE_PNG,
    "png RGBA, opaque": save(RGBA, "PNG"),
    "png gray and alpha, opaque": save(NOISE.convert("LA"), "PNG"),
    **{f"png gray {bits} bit": png_of(bits, 0) for bits in (1, 2, 4)},
    **{
        f"png palette {bits} bit": save(NOISE.quantize(1 << bits), "PNG", bits=bits)
        for bits in (1, 2, 4)
    },
    "png with a transparent color that it does not use": png_of(
        8, 2, 3, 3, fixtures.chunk(b"tRNS", bytes(6))
    ),
    "png interlaced": interlaced(),
    "png with a gamma that TensorFlow ignores": fixtures.png_with(
        RGB_PNG, fixtures.chunk(b"gAMA", b"\0\0cc")
    ),
    "png in two parts": fixtures.png_with(
        RGB_PNG[:33]
        + b"".join(fixtures.chunk(b"IDAT", part) for part in (b"", fixtures.png_stream(RGB_PNG)))
        + RGB_PNG[-12:]
    ),
    "webp": fixtures.WEBP,
    "webp lossless": save(NOISE, "WEBP", lossless=True),
    "webp RGBA, opaque": save(RGBA, "WEBP", lossless=True),
    "webp extended": fixtures.riff(fixtures.extended(0), fixtures.VP8),
    **{
        f"{fixture.extension.replace('jpg', 'jpeg')} {name}": fixture.data
        for name, fixture in fixtures.PLANTED_FILES.items()
    },
}
ONE_CHANNEL = (
    "jpeg gray",
    "jpeg JPEG with metadata, gray",
    "png gray",
    "png gray and alpha, opaque",
    *(f"png gray {n} bit" for n in (1, 2, 4)),
)


@pytest.mark.parametrize("name", KEPT)
def test_kept_files_are_shown_alike_by_tensorflow(name: str) -> None:
    data, form = KEPT[name], name.split()[0]
    image = keep(data)
    assert image.encoded == data
    assert image.source_sha256 == hashlib.sha256(data).hexdigest()
    assert (image.format, image.source_format, image.adjusted) == (form, form, ())
    pixels = by_tensorflow(data, form)
    assert pixels is not None
    np.testing.assert_array_equal(pixels, shown(data))
    assert (
        (image.height, image.width) == (image.source_height, image.source_width) == pixels.shape[:2]
    )
    gray = name in ONE_CHANNEL
    assert (image.channels, image.colorspace) == ((1, "Gray") if gray else (3, "RGB"))
    assert image.channel_sums == tuple(int(s) for s in pixels.astype(int).sum((0, 1)))


def test_every_format_is_tried() -> None:
    assert {name.split()[0] for name in KEPT} == READABLE.keys()
    assert READABLE.keys() == {*KEPT_FORMATS} < formats.FORMATS.keys()


# TensorFlow reads these; they are not worth a closer look.
HARMLESS = ("APNG of one frame",)


@pytest.mark.parametrize("name", fixtures.UNREADABLE)
def test_what_tensorflow_refuses_or_misreads_is_encoded_again(name: str) -> None:
    data = fixtures.UNREADABLE[name].data
    image = keep(data)
    assert image.format == ("jpeg" if image.source_format == "webp" else "png")
    assert "re-encoded" in image.adjusted
    pixels = by_tensorflow(data, image.source_format)
    assert (pixels is not None and np.array_equal(pixels, shown(data))) == (name in HARMLESS)


@pytest.mark.parametrize("name", fixtures.NOT_KEPT)
def test_other_lossless_formats_become_png_without_metadata(name: str) -> None:
    image = keep(fixtures.NOT_KEPT[name].data)
    assert (image.format, image.adjusted) == ("png", ("re-encoded",))
    assert fixtures.PLANTED not in image.encoded
    np.testing.assert_array_equal(shown(image.encoded), shown(fixtures.NOT_KEPT[name].data))


# name -> (file, format, adjustments)
AGAIN: dict[str, tuple[bytes, str, tuple[str, ...]]] = {
    "jpeg on its side": (
        save(NOISE, "JPEG", exif=fixtures.exif(6)),
        "jpeg",
        ("re-encoded", "rotated"),
    ),
    "png on its head": (
        fixtures.png_with(RGB_PNG, fixtures.chunk(b"eXIf", fixtures.exif(3)[6:])),
        "png",
        ("re-encoded", "rotated"),
    ),
    "jpeg with a wide profile": (
        save(NOISE, "JPEG", icc_profile=WIDE),
        "jpeg",
        ("profile-converted", "re-encoded"),
    ),
    "png with a wide profile": (
        save(NOISE, "PNG", icc_profile=WIDE),
        "png",
        ("profile-converted", "re-encoded"),
    ),
    "CMYK": (save(NOISE.convert("CMYK"), "JPEG"), "jpeg", ("cmyk-converted", "re-encoded")),
    "png 16 bit": (png_of(16, 0), "png", ("depth-scaled", "re-encoded")),
    "png 16 bit RGB": (png_of(16, 2), "png", ("depth-scaled", "re-encoded")),
    "png half clear": (save(HALF_CLEAR, "PNG"), "png", ("alpha-composited", "re-encoded")),
    "webp half clear": (
        save(HALF_CLEAR, "WEBP", lossless=True),
        "jpeg",
        ("alpha-composited", "re-encoded"),
    ),
    "gif half clear": (
        fixtures.gif_with(
            GIF, b"!\xf9\4\1\0\0" + bytes((fixtures.COLORS.getpixel((0, 0)),)) + b"\0"
        ),
        "png",
        ("alpha-composited", "re-encoded"),
    ),
    "apng": (save(NOISE, "PNG", **ANIMATED), "png", ("first-frame", "re-encoded")),
    "animated webp": (save(NOISE, "WEBP", **ANIMATED), "jpeg", ("first-frame", "re-encoded")),
    "animated gif": (
        save(fixtures.COLORS, "GIF", **ANIMATED),
        "png",
        ("first-frame", "re-encoded"),
    ),
    "bmp": (save(NOISE, "BMP"), "png", ("re-encoded",)),
    "gif": (GIF, "png", ("re-encoded",)),
    "tiff": (save(NOISE, "TIFF"), "png", ("re-encoded",)),
    "ppm": (save(NOISE, "PPM"), "png", ("re-encoded",)),
    "avif": (save(NOISE, "AVIF"), "jpeg", ("re-encoded",)),
}


@pytest.mark.parametrize("name", AGAIN)
def test_what_trainers_show_wrongly_is_encoded_again(name: str) -> None:
    data, form, adjusted = AGAIN[name]
    image = keep(data)
    assert (image.format, image.adjusted) == (form, adjusted)
    assert image.encoded == convert_image(data, resize="none", encoding=form).encoded


@pytest.mark.parametrize("name", KEPT)
def test_a_file_that_was_cut_is_not_kept(name: str) -> None:
    data = KEPT[name]
    if "and another behind it" in name or "metadata" in name:
        return
    with pytest.raises(RejectError, match="damaged-image"):
        keep(data[: len(data) // 2])
    for missing in (1, 2, 3, 4, 5, 9, 13, 17, 20, 25):
        with contextlib.suppress(RejectError):  # all pixels may be there
            assert "re-encoded" in keep(data[:-missing]).adjusted


@pytest.mark.parametrize(
    ("resize", "size", "kept"),
    [
        ("stretch", (HEIGHT, WIDTH), True),
        ("stretch", (HEIGHT, WIDTH - 1), False),
        ("crop", (HEIGHT, WIDTH), True),
        ("crop", (HEIGHT, HEIGHT), False),
        ("crop", (WIDTH, WIDTH), False),
        ("fit", (100, 100), True),
        ("fit", (HEIGHT, HEIGHT), False),
        ("pad", (HEIGHT, WIDTH), True),
        ("pad", (100, 100), False),
        ("shortest", (HEIGHT, HEIGHT), True),
        ("shortest", (HEIGHT + 1, HEIGHT + 1), False),
    ],
)
def test_bytes_are_kept_only_where_the_whole_picture_has_the_size(
    resize: str, size: tuple[int, int], kept: bool
) -> None:
    image = convert_image(RGB_PNG, image_size=size, resize=resize, encoding="keep")
    assert (image.encoded == RGB_PNG) == kept
    assert ("re-encoded" in image.adjusted) != kept
    with PillowImage.open(io.BytesIO(image.encoded)) as stored:
        assert stored.size == (image.width, image.height)


def test_options_decide_what_may_be_kept() -> None:
    turned, wide = AGAIN["jpeg on its side"][0], AGAIN["jpeg with a wide profile"][0]
    assert keep(turned, ignore_orientation=True).encoded == turned
    assert keep(wide, icc="ignore").encoded == wide
    for data in (RGB_PNG, JPEG, fixtures.WEBP):
        assert keep(data, color="gray").adjusted == ("re-encoded",)
        assert keep(data, color="gray").channels == 1
        assert keep(data, color="keep").encoded == data
    for data in (GRAY_PNG, save(GRAY, "JPEG")):
        assert keep(data, color="gray").encoded == data


def test_what_is_too_large_for_tensorflow_is_not_readable() -> None:
    def of(height: int, width: int) -> bool:
        source = Source(
            format="jpeg",
            height=height,
            width=width,
            decode=lambda _: pytest.fail("decoded"),
            memory=lambda _: 0,
        )
        return is_readable(JPEG, source)

    assert of(MAX_SAMPLES // 3, 1)
    assert not of(MAX_SAMPLES // 3 + 1, 1)


# Metadata


@pytest.mark.parametrize("name", fixtures.PLANTED_FILES)
def test_metadata_stays(name: str) -> None:
    data = fixtures.PLANTED_FILES[name].data
    assert data.count(fixtures.PLANTED) >= 6
    image = keep(data)
    assert (image.encoded, image.adjusted) == (data, ())


@pytest.mark.slow
def test_damaged_files_are_rejected_or_encoded_again_or_shown_alike() -> None:
    chance = random.Random(4)
    outcomes = {"kept": 0, "again": 0, "rejected": 0}
    for _ in range(3000):
        name = chance.choice([*KEPT])
        data = bytearray(KEPT[name])
        for _ in range(chance.choice((1, 1, 2, 4))):
            at = chance.randrange(chance.choice((64, 256, len(data)))) % len(data)
            if chance.random() < 0.6:
                data[at] = chance.choice((0, 1, 255, data[at] ^ 1 << chance.randrange(8)))
            elif chance.random() < 0.5:
                del data[at : at + chance.choice((1, 4))]
            else:
                data[at:at] = chance.randbytes(chance.choice((1, 4)))
        damaged = bytes(data)
        try:
            image = keep(damaged, max_pixels=1_000_000)
        except RejectError:
            outcomes["rejected"] += 1
            continue
        if "re-encoded" in image.adjusted:
            outcomes["again"] += 1
            continue
        outcomes["kept"] += 1
        assert image.encoded == damaged
        expected = shown(damaged)
        np.testing.assert_array_equal(by_tensorflow(damaged, image.format), expected)
    assert min(outcomes.values()) > 50, outcomes


# Statistics


def verdict(data: bytes, least: tuple[int, int] | None) -> tuple[object, ...]:
    """What becomes of a JPEG: the reject, or channels and adjustments."""
    try:
        source = open_jpeg(data)
        decoded = source.decode(least) if source.height * source.width < 1 << 20 else None
    except RejectError as error:
        return error.reason, error.detail
    return (decoded.pixels.shape[2], decoded.adjusted, decoded.profile) if decoded else ()


def test_an_eighth_of_a_jpeg_shows_the_same_damage() -> None:
    files = [
        data
        for data in (fixture.data for fixture in all_fixtures().values())
        if data[:3] == b"\xff\xd8\xff"
    ]
    for data in files:
        assert verdict(data, SMALLEST) == verdict(data, None)
    files = [data for data in files if len(data) < 30_000] + [
        data for name, data in KEPT.items() if "jpeg" in name
    ]
    chance = random.Random(8)
    verdicts = collections.Counter[bool]()
    for _ in range(2000):
        data = bytearray(chance.choice(files))
        for _ in range(chance.choice((1, 1, 2, 4))):
            at = chance.randrange(len(data))
            if chance.random() < 0.7:
                data[at] = chance.choice((0, 255, data[at] ^ 1 << chance.randrange(8)))
            else:
                del data[at : at + chance.choice((1, 4, 99))]
        expected = verdict(bytes(data), None)
        assert verdict(bytes(data), SMALLEST) == expected
        verdicts[expected[:1] == ("damaged-image",)] += 1
    assert min(verdicts.values()) > 500


@pytest.mark.parametrize("options", [{}, {"color": "gray"}, {"resize": "crop"}])
def test_without_statistics_the_image_is_the_same(options: dict[str, Any]) -> None:
    files = {name: data for name, (data, *_) in AGAIN.items()} | KEPT
    options = {
        "resize": "none",
        "image_size": (HEIGHT, WIDTH),
        "encoding": "keep",
        "damaged": "keep",
        **options,
    }
    for name, data in {**files, "cut": JPEG[:-2], "small": save(noise(5, 7), "JPEG")}.items():
        whole, fast = (
            convert_image(data, statistics=statistics, **options) for statistics in (True, False)
        )
        assert fast.channel_sums == fast.channel_squares == (), name
        statistics = {
            name: getattr(whole, name) for name in ("channel_sums", "channel_squares", "appearance")
        }
        assert dataclasses.replace(fast, **statistics) == whole, name


@pytest.mark.parametrize("split_sample", [6, 2048])
def test_statistics_are_of_evenly_spaced_images_of_a_shard(
    split_sample: int, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(values, "SHARD_SAMPLE", 6)  # as many as are in test; train has 12
    monkeypatch.setattr(values, "SPLIT_SAMPLE", split_sample)
    folder = tmp_path / "d"
    convert(
        f"{photos}/*/*/*.jpg", folder, "--layout {split}/{label}/* --encoding keep --resize none"
    )
    dataset = read_manifest(str(folder))
    pixels, sums, squares = 0, np.zeros(3, int), np.zeros(3, int)
    for split in dataset.splits.values():
        for shard in split.shards:
            for record in [*RecordFile(str(folder / shard.file))][
                :: 1 + (split.num_examples > split_sample)
            ]:
                image = convert_image(parse_example(record)["image/encoded"][0], resize="none")
                pixels += image.height * image.width
                sums, squares = sums + image.channel_sums, squares + image.channel_squares
    mean = sums / pixels
    assert dataset.statistics["pixels"] == pixels
    np.testing.assert_allclose(dataset.statistics["channel_mean"], mean, atol=1e-6)
    np.testing.assert_allclose(
        dataset.statistics["channel_std"], np.sqrt(squares / pixels - mean**2), atol=1e-6
    )
    assert verify(str(folder)).ok
