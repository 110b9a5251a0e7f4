"""Tables and archives: sound ones with seeded changes, and some that are made to hurt.

Each is read in a child process (`reading`). It has to end, within its limits, with rows and rejects
or with an error that names the file.
"""

from __future__ import annotations

import gzip
import io
import json
import random
import struct
import tarfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from beam_tfr.records.examples import serialize
from beam_tfr.records.tfrecords import frame
from tests.archives import Files, tarred
from tests.faults.mutations import container, mutated
from tests.faults.outcome import Outcome
from tests.faults.reading import Reader
from tests.voc_files import voc

MOST_PEAK_BYTES = 440_000_000  # as docs/images.md promises for an image
LONGEST_S = 10.0
BLOCK = 512  # of a tar
PHOTOS = [f"{folder}/{number}.jpg" for folder in ("cat", "dog") for number in range(3)]
# What a mutation writes into a text.
TOKENS = (
    b"[" * 2_000,
    b"{" * 2_000,
    b'{"a":' * 500,
    b"9" * 5_000,
    b"1e999",
    b"-1e400",
    b"NaN",
    b"Infinity",
    b"null",
    b"\0",
    b"\xff\xfe",
    b"\xed\xa0\x80",
    b'"\\ud800"',
    b'"',
    b"\r",
    b"\n",
    b"\n\n\n",
    b",,,,",
    b"|" * 1_000,
    b"&a [*a, *a]",
    b"<!DOCTYPE a>",
    b"<a>" * 2_000,
    b"../../..",
    b"/",
    b"18446744073709551616",
    b"-9223372036854775809",
    b"0x10",
    b"1_000",
    b"\xd9\xa3",  # a digit in Arabic
)
NUMBERS = (0, 1, 0x7F, 0xFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF)


def photo() -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (40, 30), "gray").save(file, "JPEG")
    return file.getvalue()


def zipped(files: Files, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return file.getvalue()


def coco() -> bytes:
    content = {
        "images": [
            {"id": number, "file_name": name, "width": 40, "height": 30}
            for number, name in enumerate(PHOTOS)
        ],
        "categories": [{"id": 1, "name": "cat"}, {"id": 2, "name": "dog"}],
        "annotations": [
            {
                "id": number,
                "image_id": number % len(PHOTOS),
                "category_id": number % 2 + 1,
                "bbox": [1, 2, 20, 20.5],
                "area": 410.0,
                "iscrowd": 0,
                "segmentation": [[1, 2, 21, 2, 21, 22]],
                "keypoints": [3, 4, 2],
            }
            for number in range(9)
        ],
    }
    return json.dumps(content, indent=1).encode()


def create_ml() -> bytes:
    box = {"x": 10, "y": 10.5, "width": 8, "height": 8}
    content = [
        {"image": name, "annotations": [{"label": "cat", "coordinates": box}]} for name in PHOTOS
    ]
    return json.dumps(content, indent=1).encode()


def json_lines() -> bytes:
    rows = [
        {"path": name, "class": name[:3], "box": [[1, 2, 20, 20]], "text": "é", "number": 1.5}
        for name in PHOTOS
    ]
    return "".join(f"{json.dumps(row)}\n" for row in rows).encode()


def csv_text() -> bytes:
    lines = ["path,class,box,number"]
    lines += [f'{name},{name[:3]},"[[1, 2, 20, 20]]",{1.5}' for name in PHOTOS]
    return "\n".join(lines).encode()


def flat_text() -> bytes:
    lines = ["name,number,list"]
    lines += [f'{name},{1.5},"[1, 2.5, {number}]"' for number, name in enumerate(PHOTOS)]
    return "\n".join(lines).encode()


def flat_lines() -> bytes:
    rows = [{"name": name, "text": "é", "list": [1, 2.5], "number": 7} for name in PHOTOS]
    return "".join(f"{json.dumps(row)}\n" for row in rows).encode()


def box_rows() -> bytes:
    lines = ["path;class;xmin;ymin;xmax;ymax"]
    lines += [f"{name};{name[:3]};1;2;20;2{number},5" for name in PHOTOS for number in range(2)]
    return "\r\n".join(lines).encode()


def parquet() -> bytes:
    file = io.BytesIO()
    rows = [json.loads(line) for line in flat_lines().splitlines()]
    pq.write_table(pa.Table.from_pylist(rows), file)
    return file.getvalue()


def records() -> list[bytes]:
    return [
        serialize(
            {
                "image/encoded": ("bytes", [photo()]),
                "image/class/text": ("bytes", [name[:3].encode()]),
                "image/object/bbox/xmin": ("float", [0.25, 0.5]),
                "image/object/bbox/xmax": ("float", [0.5, 0.75]),
                "image/object/bbox/ymin": ("float", [0.25, 0.5]),
                "image/object/bbox/ymax": ("float", [0.5, 0.75]),
                "image/object/class/text": ("bytes", [b"cat", b"dog"]),
                "number": ("int64", [7]),
            }
        )
        for name in PHOTOS
    ]


def changed_records(data: bytes, chance: random.Random) -> bytes:
    """A TFRecord of which a record was changed, with the checksum for it."""
    changed = records()
    number = chance.randrange(len(changed))
    begin = changed[number][:200]  # what precedes the image, or not
    changed[number] = mutated(begin, chance) + changed[number][200:]
    return container(changed, None) if chance.random() < 0.9 else mutated(data, chance)


def samples() -> bytes:
    files = {}
    for name in PHOTOS:
        stem = name.removesuffix(".jpg").replace("/", "-")
        files[f"{stem}.cls"] = b"1"
        files[f"{stem}.jpg"] = photo()
        files[f"{stem}.json"] = b'{"text": "a", "boxes": [1, 2]}'
    return tarred(files)


def pictures() -> Files:
    return {name: photo() for name in PHOTOS} | {"notes.txt": b"text"}


# Name of a file, with the options in it that `reading` gives -> its sound content.
SOUND_TABLES: dict[str, Callable[[], bytes]] = {
    "a.images.csv": csv_text,
    "a.rows.csv": flat_text,
    "a.boxes.csv": csv_text,
    "a.images.csv.gz": lambda: gzip.compress(csv_text(), mtime=0),
    "b.images.csv": box_rows,
    "a.images.jsonl": json_lines,
    "a.boxes.jsonl": json_lines,
    "a.rows.jsonl.gz": lambda: gzip.compress(flat_lines(), mtime=0),
    "coco.json": coco,
    "create_ml.json": create_ml,
    "voc.xml": lambda: voc("cat/0.jpg", (6, 7, 25, 21), (0, 1, 2, 3)).encode(),
    "a.rows.parquet": parquet,
    "a.samples.tar": samples,
    "a.tfrecord": lambda: container(records(), None),
    "yolo/data.yaml": lambda: b"names: {0: cat, 1: dog}\nnc: 2\ntrain: images\nkpt_shape: [1, 2]\n",
    "yolo/labels/0.txt": lambda: b"0 0.5 0.5 0.25 0.25 0.5 0.5\n1 .5 .5 .1 .1 .5 .5\n" * 3,
}
SOUND_ARCHIVES: dict[str, Callable[[], bytes]] = {
    "stored.zip": lambda: zipped(pictures(), zipfile.ZIP_STORED),
    "deflated.zip": lambda: zipped(pictures()),
    "pax.tar": lambda: tarred({"é" * 90 + name: data for name, data in pictures().items()}),
    "gnu.tar": lambda: tarred(
        {"long" * 40 + name: data for name, data in pictures().items()}, tarfile.GNU_FORMAT
    ),
}


def inflated(data: bytes) -> tuple[bytes, bool]:
    """The content of a file, and whether it is compressed."""
    is_gzip = data.startswith(b"\x1f\x8b")
    return (gzip.decompress(data), True) if is_gzip else (data, False)


def changed_text(data: bytes, chance: random.Random) -> bytes:
    """A text with hostile tokens in it."""
    for _ in range(chance.randint(1, 3)):
        start = chance.randrange(len(data) + 1)
        length = chance.choice((0, 0, 1, 3, 20))
        data = data[:start] + chance.choice(TOKENS) + data[start + length :]
    return data


def changed_table(name: str, data: bytes, chance: random.Random) -> bytes:
    if name.endswith(".tfrecord"):
        return changed_records(data, chance)
    if name.endswith(".tar") and chance.random() < 0.5:
        return changed_tar(data, chance)
    if chance.random() < 0.3:
        return mutated(data, chance)
    text, is_gzip = inflated(data)
    text = mutated(text, chance) if chance.random() < 0.3 else changed_text(text, chance)
    return gzip.compress(text, 1, mtime=0) if is_gzip else text


def changed_zip(data: bytes, chance: random.Random) -> bytes:
    """A zip with other numbers in its headers."""
    wrong = bytearray(data)
    signature = chance.choice((b"PK\1\2", b"PK\1\2", b"PK\3\4", b"PK\5\6"))
    places = [at for at in range(len(data) - 4) if data[at : at + 4] == signature]
    for _ in range(chance.randint(1, 3)):
        form = chance.choice(("<H", "<I"))
        at = chance.choice(places) + chance.randrange(4, 46)
        at = min(at, len(data) - 4)
        number = chance.choice(NUMBERS)
        struct.pack_into(form, wrong, at, number & (0xFFFF if form == "<H" else 0xFFFFFFFF))
    return bytes(wrong)


def with_checksum(block: bytes) -> bytes:
    """A header of a tar with the checksum that it should have."""
    blank = block[:148] + b" " * 8 + block[156:]
    return block[:148] + b"%06o\0 " % sum(blank) + block[156:]


def size_field(size: int) -> bytes:
    """The 12 bytes of a size in a tar, in octal or, as GNU has it, binary."""
    if 0 <= size < 8**11:
        return b"%011o\0" % size
    mark = b"\xff" if size < 0 else b"\x80"
    return mark + size.to_bytes(11, "big", signed=True)


def changed_tar(data: bytes, chance: random.Random) -> bytes:
    """A tar of which a header says something else, and has the checksum for it."""
    blocks = [data[at : at + BLOCK] for at in range(0, len(data), BLOCK)]
    headers = [number for number, block in enumerate(blocks) if block[257:262] == b"ustar"]
    for _ in range(chance.randint(1, 3)):
        number = chance.choice(headers)
        block = bytearray(blocks[number])
        match chance.randrange(5):
            case 0:
                size = chance.choice((-1, -512, 0, 511, 1 << 20, 1 << 33, 1 << 40, (1 << 63) - 1))
                block[124:136] = size_field(size)
            case 1:
                block[156] = chance.choice(b"0123456789LKxgXSDVM\0")
            case 2:
                block[: chance.randrange(100)] = b""
                block = block.ljust(BLOCK, b"\0")
            case 3:
                block[chance.randrange(BLOCK)] = chance.randrange(256)
            case 4:
                return changed_pax(b"".join(blocks), chance)
        blocks[number] = with_checksum(bytes(block))
    return b"".join(blocks)


def changed_pax(data: bytes, chance: random.Random) -> bytes:
    """A tar that begins with a pax header of hostile values."""
    values = {
        "size": chance.choice(("-1", "9" * 30, "1" * 5_000, "1e9", "")),
        "path": chance.choice(("a" * 70_000, "../" * 100, "\0", "/")),
        "GNU.sparse.map": "0,1," * 1_000,
        "GNU.sparse.major": "1",
        "GNU.sparse.minor": "0",
        "GNU.sparse.size": "9" * 30,
        "GNU.sparse.realsize": "-5",
        "mtime": "nan",
        "hdrcharset": "BINARY",
    }
    chosen = {key: values[key] for key in chance.sample([*values], chance.randint(1, 4))}
    return pax_header(chosen, chance.choice(b"xg")) + data


def pax_header(values: dict[str, str], kind: int = ord("x"), size: int | None = None) -> bytes:
    """A pax header, which may state another size than it has."""
    content = b""
    for key, value in values.items():
        record = f" {key}={value}\n".encode()
        length = len(record)
        while length != len(record) + len(str(length)):
            length = len(record) + len(str(length))
        content += str(length).encode() + record
    info = tarfile.TarInfo("././@PaxHeader")
    info.type = bytes([kind])
    block = bytearray(info.tobuf(tarfile.USTAR_FORMAT))
    block[124:136] = size_field(len(content) if size is None else size)
    return with_checksum(bytes(block)) + content.ljust(-(-len(content) // BLOCK) * BLOCK, b"\0")


def changed_archive(name: str, data: bytes, chance: random.Random) -> bytes:
    if chance.random() < 0.3:
        return mutated(data, chance)
    return changed_zip(data, chance) if name.endswith("zip") else changed_tar(data, chance)


def repeated_gzip(begin: bytes, part: bytes, number: int, end: bytes) -> bytes:
    """A text that is compressed as it is made."""
    file = io.BytesIO()
    with gzip.GzipFile(fileobj=file, mode="wb", mtime=0) as compressed:
        compressed.write(begin)
        at_a_time = max(1, (1 << 20) // len(part))
        for first in range(0, number, at_a_time):
            compressed.write(part * min(at_a_time, number - first))
        compressed.write(end)
    return file.getvalue()


MIB = 1 << 20
LONG_ROWS = 45  # of 10 MiB: together more than `MOST_PEAK_BYTES`
QUOTED = b'"' + b"a" * (50 * MIB) + b'"'


# Name -> content; each expands to far more than its bytes.
def long_parquet(rows: int) -> bytes:
    """A row with a list of so many numbers."""
    values = pa.repeat(pa.scalar(0, pa.int64()), rows)
    column = pa.ListArray.from_arrays(pa.array([0, rows], pa.int32()), values)
    file = io.BytesIO()
    pq.write_table(pa.table({"a": column}), file, compression="zstd", data_page_size=1 << 30)
    return file.getvalue()


def example_record(**values: tuple[str, list[object]]) -> bytes:
    return frame(serialize(values))


HURTING_TABLES: dict[str, Callable[[], bytes]] = {
    "list.rows.parquet": lambda: long_parquet(10_000_000),
    "values.rows.tfrecord": lambda: example_record(a=("int64", [300] * 9_000_000)) * 3,
    "fields.rows.tfrecord": lambda: frame(b"\x0a\x00" * 10_000_000),
    "lists.rows.jsonl.gz": lambda: repeated_gzip(b'{"a": [', b"[],", 20_000_000, b"[]]}\n"),
    "objects.rows.jsonl.gz": lambda: repeated_gzip(b'{"a": [', b'{"b":1},', 5_000_000, b"1]}\n"),
    "numbers.rows.jsonl.gz": lambda: repeated_gzip(b'{"a": [', b"1.5,", 9_000_000, b"1]}\n"),
    "blank.rows.jsonl.gz": lambda: repeated_gzip(b"", b"\n", 60_000_000, b"1]}\n"),
    "rows.rows.jsonl.gz": lambda: repeated_gzip(
        b"", b'{"a": "' + b"a" * 10 * MIB + b'"}\n', LONG_ROWS, b""
    ),
    "columns.rows.jsonl.gz": lambda: gzip.compress(
        b"".join(
            b"{%s}\n" % b",".join(b'"%d":1' % number for number in range(first, first + 200_000))
            for first in range(0, 4_000_000, 200_000)
        )
    ),
    "quoted.rows.csv.gz": lambda: gzip.compress(b"a\n" + b",".join([QUOTED] * 3)),
    "quoted-lines.rows.csv.gz": lambda: repeated_gzip(b'a\n"', b"a" * 99 + b"\n", 5_000_000, b'"'),
    "cells.rows.csv.gz": lambda: repeated_gzip(b"a\n", b"ab,", 20_000_000, b"\n"),
    "header.rows.csv.gz": lambda: repeated_gzip(b"", b"ab,", 5_000_000, b"\n1\n"),
    "names.rows.csv": lambda: (
        b",".join(b"c%d" % number for number in range(90_000)) + b"\n" + b"1," * 89_999 + b"1\n"
    ),
    "cell-of-lists.rows.csv.gz": lambda: repeated_gzip(b'a\n"[', b"[],", 5_000_000, b'[]]"\n'),
    "cell-of-bars.rows.csv.gz": lambda: repeated_gzip(b"a\n1|2\n", b"ab|", 5_000_000, b"\n"),
    "rows.rows.csv.gz": lambda: repeated_gzip(
        b"a,b\n", b"1," + b"a" * 10 * MIB + b"\n", LONG_ROWS, b""
    ),
    "one-image.images.csv.gz": lambda: repeated_gzip(
        b"path,class,xmin,ymin,xmax,ymax\n",
        b"a.jpg," + b"c" * 100_000 + b",1,2,3,4\n",
        5_000,
        b"",
    ),
    "lists.json": lambda: b'{"images": [], "annotations": [' + b"[]," * 20_000_000 + b"[]]}",
    "objects.json": lambda: b"[" + b"{}," * 20_000_000 + b"{}]",
    "ones.json": lambda: b"[" + b"1," * 20_000_000 + b"1]",
    "ids.json": lambda: (
        b'{"images": [{"id": 1, "file_name": "a.jpg"}], "categories": [], "annotations": '
        b'[{"image_id": 1, "category_id": 1, "id": [' + b"[]," * 10_000_000 + b"[]]}]}"
    ),
    "keys.json": lambda: b"{" + b",".join(b'"%d":1' % number for number in range(4_000_000)) + b"}",
    "nan.json": lambda: b'[{"image": NaN, "b": "' + b"\\a" * 20_000_000 + b'"}]',
    "nans.json": lambda: b"[" + b"NaN," * 10_000_000 + b"1]",
    "deep.json": lambda: b"[" * 5_000_000,
    "flows/data.yaml": lambda: b"names: [" + b"[]," * 340_000 + b"]",
    "names/data.yaml": lambda: b"names: [" + b"a," * 500_000 + b"]",
    "deep/data.yaml": lambda: b"names: " + b"[" * 1_000_000,
    "keys/data.yaml": lambda: b"".join(b"%d:\n" % number for number in range(130_000)),
    "anchors/data.yaml": lambda: (
        b"a: &a [x,x,x,x,x,x,x,x]\n"
        + b"".join(
            b"%c: &%c [%s]\n" % (c, c, b",".join([b"*%c" % (c - 1)] * 8)) for c in range(98, 123)
        )
        + b"names: *z\n"
    ),
    "folders.json": lambda: (
        b'{"images": [{"id": 1, "file_name": "'
        + b"a/" * 500_000
        + b'"}], "annotations": [], "categories": []}'
    ),
    "many-folders.json": lambda: json.dumps(
        {
            "images": [
                {"id": number, "file_name": f"{number}" + "/a" * 2_000 + ".jpg"}
                for number in range(2_000)
            ],
            "annotations": [],
            "categories": [],
        }
    ).encode(),
    "folders.xml": lambda: voc("a/" * 250_000).encode(),
    "folders.images.csv": lambda: b"path,class\n" + b"a/" * 500_000 + b"b.jpg,cat\n",
    "chain/data.yaml": lambda: (
        b"a0: &a0 [x]\n"
        + b"".join(b"a%d: &a%d [*a%d]\n" % (n, n, n - 1) for n in range(1, 40_000))
        + b"names: *a39999\n"
    ),
    "elements.xml": lambda: b"<annotation>" + b"<a/>" * 260_000 + b"</annotation>",
    "objects.xml": lambda: b"<annotation>" + b"<object/>" * 116_000 + b"</annotation>",
    "deep.xml": lambda: b"<a>" * 170_000 + b"</a>" * 130_000,
}


def long_name(size: int, kind: bytes = tarfile.GNUTYPE_LONGNAME) -> bytes:
    info = tarfile.TarInfo("././@LongLink")
    info.type = kind
    block = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    block[124:136] = size_field(size)
    return with_checksum(bytes(block))


def sparse(blocks: int) -> bytes:
    """A sparse file whose map goes on for so many blocks."""
    info = tarfile.TarInfo("1.jpg")
    info.type = tarfile.GNUTYPE_SPARSE
    block = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    block[482] = 1  # the map goes on
    more = (b"%011o\0%011o\0" % (7, 7) * 21 + b"\1").ljust(BLOCK, b"\0")
    return with_checksum(bytes(block)) + more * blocks


def wide_zip(**fields: int) -> bytes:
    """A zip with fields of 64 bits in its directory."""
    data = zipped({"1.jpg": photo(), "2.jpg": photo()}, zipfile.ZIP_STORED)
    directory = data.index(b"PK\1\2")
    end = data.index(b"PK\5\6")
    row = bytearray(data[directory : directory + 46])
    struct.pack_into("<II", row, 20, 0xFFFFFFFF, 0xFFFFFFFF)
    struct.pack_into("<I", row, 42, 0xFFFFFFFF)
    values = {"size": len(photo()), "stored": len(photo()), "offset": 0} | fields
    extra = struct.pack("<HH3Q", 1, 24, values["size"], values["stored"], values["offset"])
    struct.pack_into("<H", row, 30, len(extra))
    name = data[directory + 46 : directory + 51]
    rest = data[directory + 51 : end]
    changed_end = bytearray(data[end:])
    struct.pack_into("<I", changed_end, 12, len(row) + len(name) + len(extra) + len(rest))
    return data[:directory] + bytes(row) + name + extra + rest + bytes(changed_end)


def many_entries(number: int) -> bytes:
    """A zip whose directory has so many rows, all of one file."""
    data = zipped({"1.jpg": photo()}, zipfile.ZIP_STORED)
    directory = data.index(b"PK\1\2")
    end = data.index(b"PK\5\6")
    row = bytearray(data[directory : directory + 46])
    struct.pack_into("<H", row, 28, 12)
    rows = b"".join(bytes(row) + b"%08d.jpg" % each for each in range(number))
    changed_end = bytearray(data[end:])
    struct.pack_into("<II", changed_end, 12, len(rows), directory)
    return data[:directory] + rows + bytes(changed_end)


def global_values(files: int) -> bytes:
    """A tar whose first header says many things of all of its files."""
    values = {f"a{number}": "" for number in range(60_000)}
    empty = tarfile.TarInfo("1.txt").tobuf()
    return pax_header(values, ord("g")) + empty * files + bytes(2 * BLOCK)


BEHIND = tarred({"1.jpg": photo()})
HURTING_ARCHIVES: dict[str, Callable[[], bytes]] = {
    "pax.tar": lambda: pax_header({"path": "1.jpg"}, size=1 << 40) + BEHIND,
    "pax-of-gigabytes.tar": lambda: pax_header({"path": "1.jpg"}, size=1 << 33) + BEHIND,
    "global.tar": lambda: pax_header({"path": "1.jpg"}, ord("g"), size=1 << 40) + BEHIND,
    "long-name.tar": lambda: long_name(1 << 40) + BEHIND,
    "long-link.tar": lambda: long_name(1 << 40, tarfile.GNUTYPE_LONGLINK) + BEHIND,
    "long-names.tar": lambda: long_name(0) * 100_000 + BEHIND,
    "long.samples.tar": lambda: long_name(1 << 40) + BEHIND,
    "sparse.tar": lambda: sparse(200_000) + BEHIND,
    "global-values.tar": lambda: global_values(50_000),
    "size.zip": lambda: wide_zip(size=(1 << 64) - 1),
    "stored.zip": lambda: wide_zip(stored=(1 << 64) - 1),
    "offset.zip": lambda: wide_zip(offset=(1 << 64) - 1),
    "offset-of-exabytes.zip": lambda: wide_zip(offset=(1 << 63) - 1),
    "entries.zip": lambda: many_entries(300_000),
    "bomb.zip": lambda: zipped({"1.jpg": bytes(300 << 20)}),
}


def write_yolo(folder: Path) -> None:
    """Images for a `data.yaml` in a folder."""
    for number in range(3):
        path = folder / "images" / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(photo())


def _read(reader: Reader, path: Path, data: bytes, outcome: Outcome, kind: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    table = path.parents[1] / "data.yaml" if path.parent.name == "labels" else path
    reading = reader.read(table)
    ends = "error" if reading.said else "rows"
    outcome.kinds[f"{kind}: {ends}"] += 1
    if reading.problem:
        outcome.problem(f"{kind} of {path.name} ({len(data):,} bytes): {reading.problem}")
        path.rename(path.with_name(f"bad-{random.randrange(10**6)}-{path.name}"))


def trials_of(
    sound: dict[str, Callable[[], bytes]],
    change: Callable[[str, bytes, random.Random], bytes],
) -> Callable[[Path], Callable[[int], Outcome]]:
    """What makes the trials of a kind, each of which changes a sound file."""

    def trials(folder: Path) -> Callable[[int], Outcome]:
        reader = Reader()
        contents = {name: make() for name, make in sound.items()}
        write_yolo(folder / "yolo")
        for name, data in contents.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)

        def trial(seed: int) -> Outcome:
            started = time.monotonic()
            outcome = Outcome(faults=1)
            chance = random.Random(f"outside {seed}")
            name = chance.choice([*contents])
            data = change(name, contents[name], chance)
            _read(reader, folder / name, data, outcome, "changed")
            (folder / name).write_bytes(contents[name])
            outcome.longest_s = time.monotonic() - started
            return outcome

        return trial

    return trials


def hurting_trials(
    hurting: dict[str, Callable[[], bytes]],
) -> Callable[[Path], Callable[[int], Outcome]]:
    """What makes the trials of a kind, each of which reads all files that are made to hurt."""

    def trials(folder: Path) -> Callable[[int], Outcome]:
        def trial(_: int) -> Outcome:
            outcome = Outcome(faults=len(hurting))
            with Reader() as reader:
                for name, make in hurting.items():
                    path = folder / name
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(make())
                    reading = reader.read(path)
                    print(
                        f"{reading.peak_bytes / 1e6:6.0f} MB {reading.seconds:6.2f} s  {name} "
                        f"({path.stat().st_size:,} bytes): {reading.rows:,} rows, "
                        f"{reading.rejects:,} rejects {reading.said[:200]}",
                        flush=True,
                    )
                    path.unlink()
                    problem = reading.problem
                    if reading.peak_bytes > MOST_PEAK_BYTES:
                        problem += f" takes {reading.peak_bytes:,} bytes"
                    if reading.seconds > LONGEST_S:
                        problem += f" takes {reading.seconds:.1f} s"
                    if problem:
                        outcome.problem(f"{name}: {problem}")
            return outcome

        return trial

    return trials


changed_tables = trials_of(SOUND_TABLES, changed_table)
changed_archives = trials_of(SOUND_ARCHIVES, changed_archive)
hurting_tables = hurting_trials(HURTING_TABLES)
hurting_archives = hurting_trials(HURTING_ARCHIVES)
