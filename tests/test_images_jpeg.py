"""JPEGs of every kind, damage of every kind, and EXIF orientation in every format."""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import simplejpeg
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image as PillowImage
from PIL import ImageOps

from beam_tfr.images import convert_image
from beam_tfr.images.containers.jpeg import MAX_SEGMENTS
from beam_tfr.images.formats.jpeg import MAX_STRAY, open_jpeg
from beam_tfr.images.formats.jpeg_header import count_scans, join_profile, read_header
from beam_tfr.images.orientation import TAG, find_orientation, turn_upright
from beam_tfr.images.source import Decoded
from beam_tfr.schema.errors import RejectError
from tests.cpu_limit import bounded_cpu
from tests.fixtures import HEIGHT, WIDTH, mean_error, noise, save, smooth
from tests.fixtures import exif as exif_files
from tests.fixtures import jpeg as jpeg_files
from tests.fixtures.exif import app1, entry, exif, oriented, stored, turned
from tests.fixtures.jpeg import BASELINE, FOUR, PROGRESSIVE, RESTARTS, SRGB, THREE, many_scans
from tests.fixtures.jpeg_writer import adobe, before_eoi, behind_soi, flat, icc, lossless

FILES = {**jpeg_files.FILES, **exif_files.FILES}
SOUND = [name for name, fixture in jpeg_files.FILES.items() if not fixture.reason]
NOISE = np.asarray(noise())


def decode(data: bytes, least: tuple[int, int] | None = None) -> Decoded:
    return open_jpeg(data).decode(least)


def by_pillow(data: bytes) -> np.ndarray:
    pixels = np.asarray(PillowImage.open(io.BytesIO(data), formats=("JPEG",)))
    return pixels.reshape(*pixels.shape[:2], -1)


def reason_of(convert: Callable[[bytes], object], data: bytes) -> str:
    """Of the reject; empty for an image."""
    try:
        convert(data)
    except RejectError as error:
        return error.reason
    return ""


def spread(levels: np.ndarray, size: int = 8) -> np.ndarray:
    """The pixels of flat blocks."""
    return levels.repeat(size, 0).repeat(size, 1)


@pytest.mark.parametrize("name", FILES)
def test_every_file_becomes_what_is_expected_of_it(name: str) -> None:
    data, reason, adjusted, _ = FILES[name]
    if reason:
        with pytest.raises(RejectError) as error:
            convert_image(data)
        assert error.value.reason == reason
        assert error.value.detail
    else:
        assert convert_image(data, image_size=(HEIGHT, WIDTH), resize="fit").adjusted == adjusted


def test_a_sampling_without_a_decoder_is_named_with_the_cure() -> None:
    with pytest.raises(RejectError) as error:
        convert_image(flat(THREE, HEIGHT, WIDTH, sampling=jpeg_files.ODD_SAMPLINGS["4:1:0"]))
    assert str(error.value) == (
        "unsupported-image: JPEG of 64 x 48 pixels with sampling factors 4x2, 1x1, 1x1, "
        "which libjpeg-turbo does not decode; convert it first, for example to PNG"
    )


@pytest.mark.parametrize("name", SOUND)
def test_pixels_are_those_of_pillow(name: str) -> None:
    data = jpeg_files.FILES[name].data
    pixels, expected = decode(data).pixels, by_pillow(data)
    if pixels.shape[2] == 4 and b"Adobe" not in data:
        expected = 255 - expected  # Pillow takes any CMYK for Adobe's
    assert mean_error(pixels, expected) < 0.05


def test_blocks_of_a_level_come_out_exactly() -> None:
    four = np.dstack([spread(levels) for levels in FOUR])
    three = np.dstack([spread(levels) for levels in THREE])
    assert (decode(flat(THREE, HEIGHT, WIDTH, ids=b"RGB")).pixels == three).all()
    assert (decode(flat(THREE[:1], HEIGHT, WIDTH)).pixels == three[..., :1]).all()
    assert (decode(flat(FOUR, HEIGHT, WIDTH)).pixels == four).all()  # 255 is full ink
    assert (
        decode(behind_soi(flat(FOUR, HEIGHT, WIDTH), adobe(0))).pixels == 255 - four
    ).all()  # Adobe's: no ink
    assert (decode(lossless(NOISE.transpose(2, 0, 1), ids=b"RGB")).pixels == NOISE).all()
    huffman = flat(jpeg_files.ARITHMETIC_LEVELS, 16, 16)
    assert (decode(jpeg_files.ARITHMETIC).pixels == decode(huffman).pixels).all()


def test_cmyk_photos_show_the_photo() -> None:
    cmyk = np.asarray(smooth().convert("CMYK"))
    for name in ("CMYK with Adobe marker", "YCCK"):
        assert mean_error(decode(jpeg_files.FILES[name].data).pixels, cmyk) < 3


def test_an_mpo_is_its_first_picture() -> None:
    data = jpeg_files.FILES["more pictures behind (MPO)"].data
    source = open_jpeg(data)
    assert (source.format, source.frames, source.scans) == ("jpeg", 1, 1)
    assert mean_error(source.decode(None).pixels, np.asarray(smooth())) < 3


# Damage


@pytest.mark.parametrize(
    "data",
    [
        BASELINE,
        PROGRESSIVE,
        RESTARTS,
        jpeg_files.ARITHMETIC,
        lossless(NOISE[:8, :8].transpose(2, 0, 1), ids=b"RGB"),
        save(smooth(24, 24).convert("CMYK"), "JPEG"),
        flat(THREE, HEIGHT, WIDTH, interleaved=False),
    ],
    ids=["baseline", "progressive", "restarts", "arithmetic", "lossless", "CMYK", "three scans"],
)
def test_an_image_cut_anywhere_is_damaged(data: bytes) -> None:
    cuts = range(3, len(data))
    assert {reason_of(decode, data[:length]) for length in cuts} == {"damaged-image"}
    assert reason_of(decode, data) == ""


@pytest.mark.parametrize("restart_rows", [0, 1])
def test_flips_in_the_data_are_found_wherever_pillow_finds_them_and_more(restart_rows: int) -> None:
    data = save(smooth(64, 64), "JPEG", quality=90, restart_marker_rows=restart_rows)
    start, found, found_by_pillow = data.index(b"\xff\xda") + 14, 0, 0
    for at in range(start, len(data) - 2):
        for bit in range(8):
            flipped = data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]
            try:
                by_pillow(flipped)
                seen = False
            except OSError:
                seen = True
            ours = reason_of(decode, flipped) == "damaged-image"
            assert ours or not seen
            found, found_by_pillow = found + ours, found_by_pillow + seen
    flips = 8 * (len(data) - 2 - start)
    assert found > 0.05 * flips > 5 * found_by_pillow


@given(length=st.integers(0, 40), stray=st.sampled_from([b"\0", b"\xff\0", b"\0\xff\0"]))
@settings(max_examples=80, deadline=None)
def test_padding_before_the_end_is_left_out_if_it_is_short(length: int, stray: bytes) -> None:
    data = before_eoi(BASELINE, (stray * length)[:length])
    if reason_of(decode, data):
        assert length > MAX_STRAY  # the first of them may count as the end of the data
    else:
        assert length < MAX_STRAY + 16
        decoded = decode(data)
        assert (decoded.pixels == decode(BASELINE).pixels).all()
        assert set(decoded.adjusted) <= {"padding-ignored"}
    if 8 <= length <= MAX_STRAY and stray == b"\0":
        assert decode(data).adjusted == ("padding-ignored",)


@given(tail=st.binary(min_size=8, max_size=40).filter(lambda tail: not set(tail) & {0, 255}))
@settings(max_examples=40, deadline=None)
def test_other_bytes_before_the_end_are_damage(tail: bytes) -> None:
    assert reason_of(decode, before_eoi(BASELINE, tail)) == "damaged-image"


def test_a_harmless_warning_does_not_hide_damage() -> None:
    for name in (
        "unknown Adobe transform",
        "unknown JFIF version",
        "parameters of a sequential scan that mean nothing",
    ):
        data = jpeg_files.FILES[name].data
        start = data.index(b"\xff\xda") + 14
        assert reason_of(decode, data) == ""
        assert (
            reason_of(decode, data[:start] + b"\xfe" * 20 + data[start + 20 :]) == "damaged-image"
        )
    padded = before_eoi(jpeg_files.FILES["code that is none"].data, bytes(12))
    assert reason_of(decode, padded) == "damaged-image"


def variants(data: bytes, count: int, chance: random.Random) -> Iterator[bytes]:
    """The file with bytes changed, cut out, doubled, or its end cut off."""
    for number in range(count):
        changed = bytearray(data)
        at = (
            chance.randrange(2, min(len(data), 700))
            if number % 2
            else chance.randrange(2, len(data))
        )
        match number % 5:
            case 0 | 1:
                changed[at] = chance.choice((0, 1, 0x7F, 0xFF, 0xD9, 0xDA, chance.randrange(256)))
            case 2:
                del changed[at : at + chance.choice((1, 2, 50))]
            case 3:
                changed[at:at] = changed[at : at + chance.choice((1, 2, 50))]
            case 4:
                del changed[at:]
        yield bytes(changed)


def test_no_bytes_end_in_anything_but_an_image_or_a_reject() -> None:
    chance, reasons = random.Random(4), set()
    files = [fixture.data for fixture in FILES.values() if len(fixture.data) < 20_000]
    for data in files:
        for variant in variants(data, 60, chance):
            if variant.startswith(b"\xff\xd8\xff"):
                reason = reason_of(lambda data: convert_image(data, image_size=(8, 8)), variant)
                reasons.add(reason)
                try:
                    height, width, *_ = simplejpeg.decode_jpeg_header(variant)
                except (ValueError, KeyError):
                    continue
                if not reason:  # both read the same frame header: limits hold for what is decoded
                    source = open_jpeg(variant)
                    assert (source.height, source.width) == (height, width)
    sure = {"", "damaged-image", "unsupported-image", "too-many-scans"}
    assert sure <= reasons <= sure | {"too-many-pixels", "extreme-aspect"}


# Scans


def test_scans_are_counted_from_the_markers_of_the_image_alone() -> None:
    def scans(data: bytes) -> int:
        return open_jpeg(data).scans

    assert scans(BASELINE) == 1
    assert scans(PROGRESSIVE) == 10  # libjpeg's script for three components
    assert scans(save(smooth().convert("L"), "JPEG", progressive=True)) == 6  # and for one
    assert scans(flat(THREE, HEIGHT, WIDTH, interleaved=False)) == 3
    assert scans(many_scans(500, 64)) == 500
    assert scans(jpeg_files.FILES["with a thumbnail of many scans"].data) == 1
    assert scans(behind_soi(PROGRESSIVE, app1(exif() + many_scans(9, 64)))) == 10
    assert scans(PROGRESSIVE + many_scans(9, 64)) == 10


@pytest.mark.parametrize(
    "name",
    [name for name, fixture in jpeg_files.FILES.items() if fixture.reason == "too-many-scans"],
)
def test_too_many_scans_are_found_at_once(name: str) -> None:
    with bounded_cpu():
        assert reason_of(convert_image, jpeg_files.FILES[name].data) == "too-many-scans"


def test_a_flood_of_scans_is_not_walked_to_its_end() -> None:
    data = many_scans(800, 8)
    header = read_header(data)
    end = data.index(b"\xff\xda", header.first_scan + 2)
    flood = data[:end] + data[end : end + 10] * 3_000_000
    with bounded_cpu(), pytest.raises(RejectError, match=f"more than {MAX_SEGMENTS} segments"):
        count_scans(flood, read_header(flood))


@pytest.mark.parametrize(
    "segment",
    [b"\xff\xfe\0\2", b"\xff\xe1\0\x08Exif\0\0", b"\xff\xe2\0\x10ICC_PROFILE\0\1\1"],
    ids=["empty", "EXIF", "ICC"],
)
def test_a_flood_of_segments_is_not_walked_to_its_end(segment: bytes) -> None:
    flood = segment * 2_000_000
    scans = flat(THREE, HEIGHT, WIDTH, interleaved=False)
    end = scans.rindex(b"\xff\xda")
    for data in (behind_soi(BASELINE, flood), scans[:end] + flood + scans[end:]):
        with bounded_cpu():
            assert reason_of(decode, data) == "damaged-image"


@pytest.mark.parametrize("end", [b"", b"\0"])
def test_a_flood_of_fill_bytes_takes_no_time(end: bytes) -> None:
    flood = b"\xff" * 5_000_000 + end
    scans = flat(THREE, HEIGHT, WIDTH, interleaved=False)
    at = scans.rindex(b"\xff\xda")
    with bounded_cpu():
        assert reason_of(decode, behind_soi(BASELINE, flood)) == ("damaged-image" if end else "")
        assert (
            reason_of(decode, scans[:at] + flood + scans[at:]) == ""
        )  # in the data of a scan it is one byte 0xFF


# Sizes


@given(
    height=st.integers(1, 40),
    width=st.integers(1, 40),
    least=st.tuples(st.integers(1, 20), st.integers(1, 20)),
)
@settings(max_examples=120, deadline=None)
def test_a_decoder_that_scales_says_by_how_much(
    height: int, width: int, least: tuple[int, int]
) -> None:
    levels = (
        np.random.default_rng(height * width).permutation(256)[:25].reshape(5, 5).astype(np.uint8)
    )
    decoded = decode(flat([levels], height, width), least)
    shape = decoded.pixels.shape[:2]
    assert shape == (-(-height * decoded.eighths // 8), -(-width * decoded.eighths // 8))
    assert shape[0] >= min(height, least[0])
    assert shape[1] >= min(width, least[1])
    assert decoded.eighths in (1, 2, 3, 4, 8)
    # A block of 8 x 8 pixels becomes one of n x n: only the right n shows the right levels.
    assert (decoded.pixels[..., 0] == spread(levels, decoded.eighths)[: shape[0], : shape[1]]).all()


def test_a_lossless_jpeg_is_not_scaled() -> None:
    assert (decode(lossless(NOISE.transpose(2, 0, 1), ids=b"RGB"), (4, 4)).pixels == NOISE).all()


# Profiles


@given(parts=st.integers(1, 40), data=st.data())
@settings(max_examples=40, deadline=None)
def test_a_profile_in_parts_is_joined_in_their_order(parts: int, data: st.DataObject) -> None:
    segments = data.draw(st.permutations(icc(SRGB, parts)))
    decoded = decode(behind_soi(BASELINE, *segments))
    assert (decoded.profile, decoded.adjusted) == (SRGB, ())
    lost = data.draw(st.sampled_from(segments))
    for broken in ([one for one in segments if one is not lost], [*segments, lost]):
        decoded = decode(behind_soi(BASELINE, *broken))
        assert (decoded.profile, decoded.adjusted) == (b"", ("profile-ignored",) if broken else ())


def test_no_profile_is_no_broken_profile() -> None:
    assert join_profile([]) == b""
    assert join_profile([b"\1\1"]) is None


# Orientation


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_every_orientation_comes_out_upright(orientation: int, form: str) -> None:
    photo = smooth()
    options = {"quality": 95} if form in ("JPEG", "WEBP") else {}
    data = turned(photo, orientation, form, **options)
    image = convert_image(data, resize="none", encoding="png")
    shown = np.asarray(PillowImage.open(io.BytesIO(image.encoded)))
    assert shown.shape == (HEIGHT, WIDTH, 3)
    assert (image.source_height, image.source_width) == (HEIGHT, WIDTH)
    assert mean_error(shown, np.asarray(photo)) < (2.5 if options else 0.001)
    left = convert_image(data, resize="none", encoding="png", ignore_orientation=True)
    expected = np.asarray(stored(photo, orientation))
    assert mean_error(np.asarray(PillowImage.open(io.BytesIO(left.encoded))), expected) < (
        2.5 if options else 0.001
    )
    assert left.adjusted == ()


@pytest.mark.parametrize("orientation", range(1, 9))
def test_turning_is_that_of_pillow(orientation: int) -> None:
    image = PillowImage.fromarray(NOISE)
    image.getexif()[TAG] = orientation
    assert (turn_upright(NOISE, orientation) == np.asarray(ImageOps.exif_transpose(image))).all()


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("kind", [1, 3, 4])
def test_an_orientation_is_read_in_both_byte_orders_and_any_whole_number(
    order: str, kind: int
) -> None:
    sign, size = ("II", "little") if order == "<" else ("MM", "big")
    width = {1: 1, 3: 2, 4: 4}[kind]
    parts = [(0x010F, 2, 2, 4, 2), (TAG, kind, 6, width, 1)]
    block = (
        sign.encode()
        + (42).to_bytes(2, size)
        + (8).to_bytes(4, size)
        + len(parts).to_bytes(2, size)
    )
    for tag, one, value, bytes_of, count in parts:
        block += tag.to_bytes(2, size) + one.to_bytes(2, size) + count.to_bytes(4, size)
        block += value.to_bytes(bytes_of, size).ljust(4, b"\0")
    assert find_orientation(block) == find_orientation(b"Exif\0\0" + block) == 6


@given(
    block=st.one_of(
        st.binary(max_size=60),
        st.binary(max_size=60).map(lambda tail: b"MM\0*\0\0\0\x08\0\3" + tail),
    )
)
def test_no_exif_block_is_an_error(block: bytes) -> None:
    assert 1 <= find_orientation(block) <= 8


@pytest.mark.parametrize(
    "block",
    [
        exif(count=65535),
        exif(entry(0x0112, 3, 2**32 - 1, 6)),
        exif(entry(0x0112, 5, 1, 8)),
        oriented(0),
        oriented(9),
        b"",
        b"MM\0*",
    ],
)
def test_exif_without_a_valid_orientation_says_upright(block: bytes) -> None:
    assert find_orientation(block) == 1


def test_a_directory_of_many_entries_takes_no_time() -> None:
    with bounded_cpu():
        assert find_orientation(exif(*[entry(1, 3, 1, 1)] * 65535)) == 1


@pytest.mark.parametrize("name", [name for name in exif_files.FILES if "turned by" in name])
def test_every_way_to_say_an_orientation_turns_the_picture(name: str) -> None:
    image = convert_image(exif_files.FILES[name].data, resize="none", encoding="png")
    assert (
        mean_error(np.asarray(PillowImage.open(io.BytesIO(image.encoded))), np.asarray(smooth()))
        < 2.5
    )


@pytest.mark.parametrize(
    ("packet", "orientation"),
    [
        (b'tiff:Orientation="8"', 8),
        (b"tiff:Orientation='3'", 3),
        (b'tiff:Orientation = "2"', 2),
        (b"<tiff:Orientation>6</tiff:Orientation>", 6),
        (b"<tiff:Orientation>\n 6 \n</tiff:Orientation>", 6),
        (b'tiff:Orientation="0"', 1),
        (b'tiff:Orientation="66"', 1),
        (b'exif:Orientation="6"', 1),
        (b'tiff:Orientation="&six;"', 1),
        (b"", 1),
    ],
)
def test_an_orientation_in_xmp(packet: bytes, orientation: int) -> None:
    assert find_orientation(b"", packet) == orientation
    assert find_orientation(oriented(5), packet) == 5
    assert find_orientation(oriented(1), packet) == 1
    assert find_orientation(oriented(0), packet) == orientation


@given(packet=st.binary(max_size=60).map(lambda tail: b"tiff:Orientation" + tail))
def test_no_xmp_packet_is_an_error(packet: bytes) -> None:
    assert 1 <= find_orientation(b"", packet) <= 8


@pytest.mark.parametrize(
    "part", [b"tiff:Orientation=", b"tiff:Orientation" + b" " * 9, b" ", b"<!ENTITY a '&b;&b;'>"]
)
def test_a_packet_of_many_megabytes_takes_no_time(part: bytes) -> None:
    with bounded_cpu():
        assert find_orientation(b"", part * ((16 << 20) // len(part))) == 1
