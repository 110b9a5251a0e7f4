"""WriteShards' parts: the gzip container, the counts and the order of one shard."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import io
import itertools
import zlib
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_tfr.output.shards import Sequencer, count_images
from beam_tfr.output.sidecars import encode_sums
from beam_tfr.records import shard_file
from beam_tfr.records.contents import contents_columns, contents_row, contents_schema, join_rows
from beam_tfr.records.examples import build_record
from beam_tfr.records.shard_file import ShardFile, gzip_level, open_shard_file
from beam_tfr.schema.dataset import RecordsDigest
from beam_tfr.schema.encodings import FEATURES, names_of
from beam_tfr.schema.errors import RunError
from beam_tfr.schema.feature_names import HEIGHT, SOURCE_HEIGHT, SOURCE_WIDTH, WIDTH
from beam_tfr.schema.items import Image, ImageRef, Item
from beam_tfr.schema.plan import Counts, Shard

LEVELS = [None, *range(10)]
BLOCK = 0xFFFF


def written(pieces: Sequence[bytes], level: int | None) -> tuple[bytes, ShardFile]:
    sink = io.BytesIO()
    file = open_shard_file(sink.write, level)
    for piece in pieces:
        file.write(piece)
    file.close()
    return sink.getvalue(), file


def chunks(data: bytes, borders: Sequence[int]) -> list[bytes]:
    places = [0, *sorted(border % (len(data) + 1) for border in borders), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(places)]


def some_bytes(size: int, seed: int = 0) -> bytes:
    """Bytes that compress by about half."""
    stream = hashlib.shake_128(b"%d" % seed).digest(size // 2 + 1)
    return bytes(byte & 0x0F for pair in zip(stream, stream, strict=True) for byte in pair)[:size]


# Golden bytes of stored gzip, put together by hand from RFC 1952 and RFC 1951:
#   header 1f8b 08 (deflate) 00 (no flags) 00000000 (no time) 00 (no extra flags) ff (unknown
# system) block 01 (final, stored) LEN NLEN data; trailer CRC-32 and length, little-endian
GOLDEN = {
    b"": "1f8b08000000000000ff" + "010000ffff" + "0000000000000000",
    b"hello": "1f8b08000000000000ff" + "010500faff" + "68656c6c6f" + "86a61036" + "05000000",
}


@pytest.mark.parametrize("data", GOLDEN)
def test_golden_bytes_of_stored_gzip(data: bytes) -> None:
    assert written([data], 0)[0].hex() == GOLDEN[data]


@pytest.mark.parametrize(
    ("size", "blocks"),
    [
        (0, [(1, 0)]),
        (1, [(1, 1)]),
        (BLOCK - 1, [(1, BLOCK - 1)]),
        (BLOCK, [(1, BLOCK)]),
        (BLOCK + 1, [(0, BLOCK), (1, 1)]),
        (2 * BLOCK, [(0, BLOCK), (1, BLOCK)]),
        (2 * BLOCK + 1, [(0, BLOCK), (0, BLOCK), (1, 1)]),
    ],
)
def test_stored_blocks_are_full_and_only_the_last_is_final(
    size: int, blocks: list[tuple[int, int]]
) -> None:
    data = some_bytes(size)
    stored, file = written([data], 0)
    expected = bytes.fromhex("1f8b08000000000000ff")
    rest = data
    for final, length in blocks:
        expected += (
            bytes([final]) + length.to_bytes(2, "little") + (length ^ BLOCK).to_bytes(2, "little")
        )
        expected, rest = expected + rest[:length], rest[length:]
    expected += zlib.crc32(data).to_bytes(4, "little") + size.to_bytes(4, "little")
    assert stored == expected
    assert gzip.decompress(stored) == data
    assert file.num_bytes == len(stored) == size + 18 + 5 * len(blocks)


@settings(max_examples=60, deadline=None)
@given(
    size=st.sampled_from([0, 1, 100, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 200_000])
    | st.integers(0, 300_000),
    level=st.sampled_from(LEVELS),
    borders=st.lists(
        st.integers(0, 400_000) | st.sampled_from([BLOCK, BLOCK + 1, 2 * BLOCK]), max_size=30
    ),
)
def test_bytes_do_not_depend_on_how_they_arrive(
    size: int, level: int | None, borders: list[int]
) -> None:
    data = some_bytes(size)
    whole, file = written([data], level)
    pieces, again = written(chunks(data, borders), level)
    assert pieces == whole
    assert (again.sha256, again.num_bytes) == (file.sha256, file.num_bytes)
    assert (file.sha256, file.num_bytes) == (hashlib.sha256(whole).hexdigest(), len(whole))
    assert (whole if level is None else gzip.decompress(whole)) == data
    if level is not None:
        inflate = zlib.decompressobj(31)
        assert inflate.decompress(whole) + inflate.flush() == data
        assert inflate.eof
        assert inflate.unused_data == b""


def test_bytes_may_arrive_one_by_one() -> None:
    data = some_bytes(BLOCK + 10)
    for level in (0, 1, 6):
        assert (
            written([data[i : i + 1] for i in range(len(data))], level)[0]
            == written([data], level)[0]
        )


def test_each_level_has_an_effect() -> None:
    data = Path(shard_file.__file__).read_bytes() * 3
    sizes = [len(written([data], level)[0]) for level in (None, 0, 1, 6, 9)]
    assert sizes[0] == len(data)
    assert sizes[0] < sizes[1] < sizes[0] + 100
    assert sizes[1] > sizes[2] > sizes[3] >= sizes[4]


def test_a_file_without_gzip_is_its_bytes() -> None:
    assert written([], None)[0] == b""
    assert written([b"a", b"", b"b"], None)[0] == b"ab"


@pytest.mark.parametrize("before", [0xFFFFFFFF, 1 << 32, (5 << 32) - 3])
def test_beyond_4_gib_the_length_field_wraps(before: int) -> None:
    sink = io.BytesIO()
    file = open_shard_file(sink.write, 0)
    file.length = before  # as if so many bytes had been written
    file.write(b"hello")
    file.close()
    assert sink.getvalue()[-4:] == ((before + 5) % (1 << 32)).to_bytes(4, "little")


def test_errors_of_the_sink_are_raised() -> None:
    class Full:
        left = 70_000

        def write(self, data: bytes | memoryview) -> None:
            self.left -= len(data)
            if self.left < 0:
                raise OSError(28, "No space left on device")

    file = open_shard_file(Full().write, 0)
    with pytest.raises(OSError, match="No space left"):
        file.write(bytes(200_000))


def test_the_level_follows_the_payload() -> None:
    assert gzip_level("none", "auto", "jpeg") is None
    assert gzip_level("none", 9, "jpeg") is None
    encodings = ("jpeg", "png", "webp", "keep", "raw")
    assert [gzip_level("gzip", "auto", encoding) for encoding in encodings] == [0, 0, 0, 0, 3]
    assert [gzip_level("gzip", level, "jpeg") for level in (0, 1, "9")] == [0, 1, 9]


@pytest.mark.parametrize("level", LEVELS)
def test_tensorflow_reads_every_level(tmp_path: Path, level: int | None) -> None:
    tf = pytest.importorskip(
        "tensorflow", reason="TensorFlow is missing: pip install 'beam_tfr[reader]'"
    )
    from apache_beam.io.tfrecordio import _TFRecordUtil

    records = [b"", b"a", some_bytes(BLOCK), some_bytes(200_000)]
    path = tmp_path / "shard"
    with path.open("wb") as sink:
        file = open_shard_file(sink.write, level)
        for record in records:
            _TFRecordUtil.write_record(file, record)
        file.close()
    dataset = tf.data.TFRecordDataset(str(path), compression_type="" if level is None else "GZIP")
    assert list(dataset.as_numpy_iterator()) == records
    with path.open("wb") as sink:
        open_shard_file(sink.write, level).close()
    assert (
        list(tf.data.TFRecordDataset(str(path), compression_type="" if level is None else "GZIP"))
        == []
    )


# Counts

REF = ImageRef("a.jpg", 1, 1, "train", ("hat",), (0,))


def counts_of(*images: Image) -> Counts:
    """The counts of records of these images."""
    records = [build_record("png", image, REF) for image in images]
    columns, schema = (
        contents_columns(FEATURES, names_of("png")),
        contents_schema(FEATURES, names_of("png")),
    )
    rows = [{**contents_row(record.values.values, columns), **record.made} for record in records]
    table = join_rows(rows, schema, split="train", shard=1)
    return count_images(table, columns, [encode_sums(record.image) for record in records])


def image(
    height: int = 3,
    width: int = 5,
    source: tuple[int, int] = (7, 9),
    adjusted: tuple[str, ...] = (),
) -> Image:
    pixels = height * width
    return Image(
        b"",
        "png",
        height,
        width,
        3,
        "RGB",
        *source,
        "jpeg",
        "",
        (pixels, 2, 3),
        (4, 5, 1 << 70),
        adjusted,
    )


def test_counts_of_a_shard() -> None:
    rotated = image(source=(1, 1), adjusted=("rotated",))
    counts = counts_of(
        image(), rotated, image(10, source=(256, 300), adjusted=("cmyk-converted", "rotated"))
    )
    assert counts.adjusted == {"rotated": 2, "cmyk-converted": 1}
    assert (counts.pixels, counts.channel_sums, counts.channel_squares) == (
        80,
        [80, 6, 9],
        [12, 15, 3 << 70],
    )
    assert counts.source_sizes == {1: 1, 16: 1, 512: 1}


def test_images_without_sums_have_no_pixels() -> None:
    without = dataclasses.replace(image(), channel_sums=(), channel_squares=())
    counts = counts_of(without, image(), without)
    assert (counts.pixels, counts.channel_sums, counts.source_sizes) == (15, [15, 2, 3], {16: 3})
    assert (counts_of(without).pixels, counts_of(without).channel_sums) == (0, [])
    assert counts_of() == Counts()


def test_the_share_that_crops_cut_off() -> None:
    assert counts_of(image(8, 8, (100, 100)), image(8, 8, (100, 400))).cut_ppm == 750_000


@pytest.mark.parametrize("other", ["height", "width", "source_height", "source_width"])
def test_columns_of_a_table_are_not_taken_for_sizes(other: str) -> None:
    columns = contents_columns(FEATURES | {other: ("int64", ())}, names_of("png"))
    values = {HEIGHT: [3], WIDTH: [5], SOURCE_HEIGHT: [7], SOURCE_WIDTH: [9], other: [1 << 20]}
    schema = contents_schema(FEATURES | {other: ("int64", ())}, names_of("png"))
    table = join_rows([contents_row(values, columns)], schema, split="train", shard=1)
    counts = count_images(table, columns, [b"1 1"])
    assert (counts.pixels, counts.source_sizes) == (15, {16: 1})


def test_records_that_are_no_examples_have_no_sizes() -> None:
    columns, schema = (
        contents_columns(FEATURES, names_of("png")),
        contents_schema(FEATURES, names_of("png")),
    )
    table = join_rows([{}, {}], schema, split="train", shard=1)
    assert count_images(table, columns, [b"", b"1 2 3 4 5 6"]) == Counts()


@pytest.mark.parametrize(
    ("longest", "size"), [(1, 1), (2, 2), (3, 4), (4, 4), (5, 8), (512, 512), (513, 1024)]
)
def test_source_sizes_are_rounded_up_to_a_power_of_two(longest: int, size: int) -> None:
    for source in ((longest, 1), (1, longest)):
        assert counts_of(image(source=source)).source_sizes == {size: 1}


def test_the_records_digest_sees_where_records_end() -> None:
    digests, first = set(), hashlib.sha256(b"\x03" + bytes(7) + b"abc" + bytes(8)).hexdigest()
    for pieces in ([b"abc", b""], [b"ab", b"c"], [b"a", b"bc"], [b"abc"]):
        digest = RecordsDigest()
        for piece in pieces:
            digest.add(piece)
        digests.add(digest.hexdigest())
    assert first in digests
    assert len(digests) == 4


# Order

A, B, EMPTY = (
    Shard("train", 0, 3, 3, "p"),
    Shard("train", 1, 3, 1, "p"),
    Shard("train", 2, 3, 0, "p"),
)


def feed(*places: tuple[Shard, int]) -> tuple[list[bool], Sequencer]:
    """Whether each item is the last of its shard."""
    sequencer = Sequencer()
    lasts = []
    for shard, position in places:
        item = Item(shard, position, "", REF, None)
        sequencer.check_order(item)
        lasts.append(sequencer.advance(item))
    return lasts, sequencer


def test_whole_shards_in_order_are_accepted() -> None:
    lasts, sequencer = feed((A, 0), (A, 1), (A, 2), (EMPTY, 0), (B, 0), (A, 0), (A, 1), (A, 2))
    assert lasts == [False, False, True, True, True, False, False, True]
    sequencer.check_closed()


@pytest.mark.parametrize(
    "places",
    [
        [(A, 1)],
        [(A, 2)],
        [(A, 0), (A, 0)],
        [(A, 0), (A, 2)],
        [(A, 0), (A, 1), (A, 1)],
        [(A, 0), (B, 0)],
        [(A, 0), (EMPTY, 0)],
        [(A, 0), (B, 1)],
        [(A, 0), (A._replace(plan_digest="other"), 1)],
        [(A, 0), (A._replace(total=4), 1)],
        [(B, 0), (B, 1)],
        [(EMPTY, 1)],
        [(A, 0), (A, 1), (A, 2), (A, 3)],
        [(A, -1)],
    ],
)
def test_any_other_order_raises(places: list[tuple[Shard, int]]) -> None:
    with pytest.raises(RunError, match="did not keep the images of a shard together"):
        feed(*places)


@settings(max_examples=80)
@given(st.permutations([(A, 0), (A, 1), (A, 2), (B, 0), (EMPTY, 0)]))
def test_only_orders_that_keep_shards_whole_are_accepted(places: list[tuple[Shard, int]]) -> None:
    names = [shard for shard, _ in places]
    start = names.index(A)
    whole = names[start : start + 3] == [A] * 3 and [p for s, p in places if s == A] == [0, 1, 2]
    try:
        feed(*places)[1].check_closed()
        taken = True
    except RunError:
        taken = False
    assert taken == whole


def test_an_end_within_a_shard_raises() -> None:
    for places in ([(A, 0)], [(A, 0), (A, 1)]):
        _, sequencer = feed(*places)
        with pytest.raises(
            RunError, match=f"shard train-00000-of-00003 ended at {len(places)} of 3 images"
        ):
            sequencer.check_closed()
    Sequencer().check_closed()


def test_a_shard_that_failed_to_begin_may_begin_again() -> None:
    sequencer = Sequencer()
    sequencer.check_order(Item(A, 0, "", REF, None))
    sequencer.check_closed()
    item = Item(B, 0, "", REF, None)
    sequencer.check_order(item)
    assert sequencer.advance(item)
