"""Tables that hold their images: TFRecords that others wrote, and tars of WebDataset."""

from __future__ import annotations

import gzip
import io
import json
import os
import struct
import tarfile
from pathlib import Path
from typing import Any

import pandas
import PIL.Image
import pytest

import beam_tfr as package
from beam_tfr.dataset.manifest import read_manifest
from beam_tfr.features.cells import BadCell
from beam_tfr.options import ConvertOptions
from beam_tfr.options.implied import may_hold_images
from beam_tfr.options.table import from_values
from beam_tfr.records import examples
from beam_tfr.records.tfrecords import FOOTER, frame, masked_crc
from beam_tfr.schema.errors import BeamTfrError
from beam_tfr.schema.feature_names import BOXES, SIDES
from beam_tfr.schema.spelling import spell_as_flags
from beam_tfr.tables.finding import find_content
from beam_tfr.tables.formats import FORMATS, read_rows
from beam_tfr.tables.opening import open_tables
from beam_tfr.tables.samples import Samples
from tests.archives import tarred
from tests.conftest import few_at_once, files_of
from tests.cpu_limit import bounded_cpu
from tests.fake_gcs import FakeGcs
from tests.image_tables import CLASSES, JPEG, Convert, example, images_of, photos
from tests.table_rows import records_of

LONG = struct.pack("<Q", 1 << 40)
TOO_LONG = LONG + FOOTER.pack(masked_crc(LONG)) + b"no terabyte"
SHARDS = ("photos-00000-of-00002", "photos-00001-of-00002")


def write_tfrecords(folder: Path) -> None:
    for number, shard in enumerate(SHARDS):
        name = shard.replace("photos", "photos.tfrecord")
        (folder / name).write_bytes(
            b"".join(frame(example(*photo)) for photo in photos()[number::2])
        )


def write_tars(folder: Path) -> None:
    for number, shard in enumerate(SHARDS):
        files = {}
        for name, label, data in photos()[number::2]:
            fields = {
                "url": f"https://example.org/{name}",
                "similarity": 0.25,
                "txt": "not this one",
            }
            files |= {f"./{name}.jpg": data, f"./{name}.cls": f"{CLASSES.index(label)}\n".encode()}
            files |= {
                f"./{name}.txt": f"a {label}\n".encode(),
                f"./{name}.json": json.dumps(fields).encode(),
            }
        (folder / f"{shard}.tar").write_bytes(tarred(files))


FORMS = {
    "tfrecord": (
        write_tfrecords,
        "photos.tfrecord-*",
        "image/encoded",
        "image/class/text",
        "photo/id:bytes",
    ),
    "tar": (write_tars, "*.tar", "jpg", "txt", "url:bytes,similarity:float,cls:int64"),
}


def call(form: str, folder: Path | str) -> list[str]:
    _, pattern, image, label, columns = FORMS[form]
    table = ["--table", f"{folder}/{pattern}", "--uri_column", image, "--label_column", label]
    return ["--quiet", *table, "--feature_columns", columns]


@pytest.mark.parametrize("form", few_at_once(FORMS, "tar"))
def test_the_records_are_those_of_the_unpacked_photos(
    form: str, beam_tfr: Convert, tmp_path: Path
) -> None:
    for name, label, data in photos():
        path = tmp_path / "photos" / label / f"{name}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    FORMS[form][0](tmp_path)
    assert (
        beam_tfr("convert", "--input", tmp_path / "photos", "--output", tmp_path / "unpacked").code
        == 0
    )
    run = beam_tfr("convert", *call(form, tmp_path), "--output", tmp_path / "d")
    assert run.code == 0, run.err
    assert images_of(tmp_path / "d") == images_of(tmp_path / "unpacked")
    rows = package.contents(tmp_path / "d", "train").to_table().to_pylist()
    if form == "tar":
        assert {row["key"] for row in rows} == {
            f"{shard}/{name}.jpg" for i, shard in enumerate(SHARDS) for name, *_ in photos()[i::2]
        }
        values = {(row["cls"], row["class"], row["similarity"]) for row in rows}
        assert values == {(0, "a dress", 0.25), (1, "a hat", 0.25)}
        names = {row["key"].partition("/")[2].removesuffix(".jpg") for row in rows}
        assert {row["url"].rpartition("/")[2] for row in rows} == names
    else:
        assert {row["key"] for row in rows} == {
            f"photos/0000{i}-of-00002/0000000{number}" for i in (0, 1) for number in range(5)
        }
        assert {row["photo_id"] for row in rows} == {name for name, *_ in photos()}


@pytest.mark.slow
def test_an_update_takes_new_rows_and_copies_the_others(beam_tfr: Convert, tmp_path: Path) -> None:
    write_tars(tmp_path)
    assert beam_tfr("convert", *call("tar", tmp_path), "--output", tmp_path / "d").code == 0
    extra = {
        "x.jpg": JPEG,
        "x.txt": b"a hat",
        "x.json": b'{"url": "u", "similarity": 1}',
        "x.cls": b"1",
    }
    (tmp_path / "photos-more.tar").write_bytes(tarred(extra))
    run = beam_tfr("update", tmp_path / "d", *call("tar", tmp_path)[1:3], "--quiet")
    assert run.code == 0, run.err
    assert "update:  1 added" in run.out
    assert (
        beam_tfr(
            "convert", *call("tar", tmp_path), "--output", tmp_path / "fresh", "--name", "d"
        ).code
        == 0
    )
    updated = files_of(tmp_path / "d")
    assert updated.pop("history.jsonl")
    assert updated == files_of(tmp_path / "fresh")


@pytest.mark.slow
def test_from_a_bucket(beam_tfr: Convert, tmp_path: Path, fake: FakeGcs) -> None:
    for form, (write, *_) in FORMS.items():
        (tmp_path / form).mkdir()
        write(tmp_path / form)
        fake.put_folder(tmp_path / form, form)
        for place, output in ((tmp_path / form, "disk"), (f"gs://b/{form}", "bucket")):
            run = beam_tfr(
                "convert", *call(form, place), "--output", tmp_path / form / output, "--name", "d"
            )
            assert run.code == 0, run.err
        assert images_of(tmp_path / form / "disk") == images_of(tmp_path / form / "bucket")


def test_the_rows_of_a_table_in_a_bucket_are_fetched_once(tmp_path: Path, fake: FakeGcs) -> None:
    for form, (write, *_) in FORMS.items():
        (tmp_path / form).mkdir()
        write(tmp_path / form)
        fake.put_folder(tmp_path / form, form)
        table = f"gs://b/{form}/{sorted((tmp_path / form).iterdir())[0].name}"
        fake.take_log()
        assert [*read_rows(table, ["cls"])]
        downloads = [request for request in fake.take_log() if request.get("alt") == "media"]
        assert len(downloads) == 1, downloads


LINK = tarfile.TarInfo("2.jpg")
LINK.type, LINK.linkname = tarfile.SYMTYPE, "/etc/passwd"


@pytest.mark.parametrize(
    ("name", "data", "problem"),
    [
        ("t.tar", tarred({"1.jpg": JPEG})[:2000], "row 1: unexpected end of data"),
        ("t.tar", b"no tar", "row 1: truncated header"),
        (
            "t.tar",
            gzip.compress(tarred({"1.jpg": JPEG}), mtime=0),
            "row 1: is compressed as a whole",
        ),
        (
            "t.tar",
            tarred({"1.jpg": JPEG, "1.json": b"{", "1.cls": b"0"}),
            "row 1: 1.json is not valid JSON",
        ),
        (
            "t.tar",
            tarred({"1.jpg": JPEG, "1.json": b'{"a": %b}' % (b"9" * 5000)}),
            "row 1: 1.json is not valid JSON: a whole number has more than 4,300 digits",
        ),
        ("t.tar", tarred({"1.jpg": JPEG, "1.json": b"\xff"}), "row 1: 1.json is not valid JSON"),
        (
            "t.tar",
            tarred({"1.jpg": JPEG, "1.json": b"[" * 100_000}),
            "row 1: 1.json is not valid JSON",
        ),
        ("t.tar", tarred({"1.png": JPEG}), "there is no column 'jpg'; the columns are: png"),
        ("t.tar", tarred({}), "there are no rows"),
        ("t.tar.gz", b"", "decompress it first"),
        ("t.tfrecord", frame(b"no example"), "row 1: "),
        (
            "t.tfrecord",
            frame(examples.serialize({"jpg": ("bytes", [JPEG])}))[:100],
            "t.tfrecord, row 1: the file ends within it",
        ),
        (
            "t.tfrecord",
            TOO_LONG,
            "row 1: its length is 1099511627776 bytes",
        ),
        (
            "t.tfrecord",
            b"no records, but text",
            "is not a TFRecord: it does not begin with a length",
        ),
        ("t.tfrecord", gzip.compress(frame(b""), mtime=0), "row 1: is compressed as a whole"),
    ],
)
def test_a_hostile_file_costs_a_message(
    name: str, data: bytes, problem: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(BeamTfrError) as caught:
        package.plan(table=str(tmp_path / name), uri_column="jpg", output=str(tmp_path / "d"))
    message = spell_as_flags(str(caught.value))
    assert str(tmp_path / name) in message
    assert problem in message
    assert "\n" not in message


@pytest.mark.parametrize("data", [frame(b"record")[:-1], TOO_LONG])
def test_the_error_for_a_damaged_record_names_the_flag_and_a_cure(
    data: bytes, tmp_path: Path
) -> None:
    (tmp_path / "t.tfrecord").write_bytes(data)
    with pytest.raises(BeamTfrError, match=r"`table=.*write it again") as caught:
        package.plan(table=str(tmp_path / "t.tfrecord"), output=str(tmp_path / "d"))
    assert spell_as_flags(str(caught.value)).startswith("--table ")


def test_what_cannot_be_used_is_a_reject_by_itself(beam_tfr: Convert, tmp_path: Path) -> None:
    buffer = io.BytesIO(
        tarred({"1.jpg": JPEG, "3.txt": b"no image", "../4.jpg": JPEG, "5.jpg": b"text"})
    )
    with tarfile.open(fileobj=buffer, mode="a") as archive:
        archive.addfile(LINK)
    (tmp_path / "t.tar").write_bytes(buffer.getvalue())
    flags = ["--uri_column", "jpg", "--max_rejects", "1.0", "--output", tmp_path / "d"]
    run = beam_tfr("convert", "--table", tmp_path / "t.tar", *flags)
    assert run.code == 0, run.err
    assert rejects_of(tmp_path / "d") == {
        "t/../4.jpg": ("unusable-file", "its name leads out of t.tar"),
        "t/2.jpg": ("unusable-file", "is a symbolic link in a tar"),
        "t/5.jpg": ("not-an-image", "text"),
    }
    assert "skipped: 1 " in run.out  # 3.txt


def test_an_image_among_many_texts_takes_linear_time(tmp_path: Path) -> None:
    """Each text was searched for in the whole record: here for minutes."""
    photo = JPEG + bytes(8 << 20)
    values = [photo, *(b"text %06d" % number for number in range(100_000))]
    record = examples.serialize({"image/encoded": ("bytes", values)})
    (tmp_path / "t.tfrecord").write_bytes(frame(record))
    table = str(tmp_path / "t.tfrecord")
    with bounded_cpu():
        ((_, (cell,)),) = read_rows(table, ["image/encoded"], images=["image/encoded"])
    assert cell == BadCell("holds a list of 100001 values, not the bytes of a single image")


def test_many_values_are_a_bad_cell_of_their_column_alone(tmp_path: Path) -> None:
    values = {"many": ("int64", [7] * 2_000_001), "one": ("int64", [1]), "two": ("int64", [1, 2])}
    (tmp_path / "t.tfrecord").write_bytes(frame(examples.serialize(values)))
    table = str(tmp_path / "t.tfrecord")
    assert [*read_rows(table, ["one", "two"])] == [(1, [1, [1, 2]])]
    ((_, cells),) = read_rows(table, ["one", "many"])
    assert cells == [1, BadCell("has 2,000,001 values, more than 2,000,000")]


def test_boxes_without_end_are_a_bad_cell(tmp_path: Path) -> None:
    sides: dict[str, Any] = {name: ("float", [0.5]) for name in SIDES}
    sides[SIDES[0]] = ("float", [0.0] * 1_000_000)
    (tmp_path / "t.tfrecord").write_bytes(frame(examples.serialize(sides)))
    ((_, (cell,)),) = read_rows(str(tmp_path / "t.tfrecord"), [BOXES])
    assert cell == BadCell("has 1,000,000 boxes, more than 100,000")


def rejects_of(folder: Path) -> dict[str, tuple[str, str]]:
    """Key -> reason and detail of each reject of a dataset."""
    rejects = map(json.loads, (folder / "rejects.jsonl").read_text().splitlines())
    return {reject["key"]: (reject["reason"], reject["detail"]) for reject in rejects}


@pytest.mark.parametrize("flags", [(), ("--uri_column", "image/encoded")])
def test_the_bytes_of_images_are_never_a_path(
    flags: tuple[str, ...], beam_tfr: Convert, tmp_path: Path
) -> None:
    (tmp_path / "local.jpg").write_bytes(JPEG)
    page = b"<html>404 Not Found</html>"
    values = [JPEG, page, page, b"/etc/passwd", b"/", b"local.jpg", b"gs://b/1.jpg", b""]
    records = [examples.serialize({"image/encoded": ("bytes", [value])}) for value in values]
    records += [examples.serialize({"image/encoded": ("bytes", [JPEG, JPEG])})]
    records += [
        examples.serialize({"image/encoded": ("int64", [3])}),
        examples.serialize({"more": ("int64", [3])}),
    ]
    (tmp_path / "t.tfrecord").write_bytes(b"".join(map(frame, records)))
    run = beam_tfr(
        "convert",
        "--table",
        tmp_path / "t.tfrecord",
        *flags,
        "--max_rejects",
        11,
        "--output",
        tmp_path / "d",
    )
    assert run.code == 0, run.err
    assert read_manifest(str(tmp_path / "d")).counts["written"] == 1
    column = "column 'image/encoded'"
    assert rejects_of(tmp_path / "d") == {
        **{f"t/0000000{number}": ("not-an-image", "HTML") for number in (1, 2)},
        **{f"t/0000000{number}": ("not-an-image", "text") for number in (3, 4, 5, 6)},
        "t/00000007": ("empty-file", "0 bytes"),
        "t.tfrecord#9": (
            "bad-value",
            f"t.tfrecord, row 9: {column}: holds a list of 2 values, not the bytes of a single "
            "image",
        ),
        "t.tfrecord#10": (
            "bad-value",
            f"t.tfrecord, row 10: {column}: holds 3, not the bytes of a single image",
        ),
        "t.tfrecord#11": ("bad-value", f"t.tfrecord, row 11: {column}: has no value"),
    }


def mask() -> bytes:
    """A mask of the size of the photo."""
    PIL.Image.open(io.BytesIO(JPEG)).convert("L").save(buffer := io.BytesIO(), "png")
    return buffer.getvalue()


def test_masks_in_tfrecords_are_never_a_path(beam_tfr: Convert, tmp_path: Path) -> None:
    (tmp_path / "local.png").write_bytes(mask())
    masks = [mask(), b"local.png"]
    records = [
        examples.serialize({"image/encoded": ("bytes", [JPEG]), "seg": ("bytes", [seg])})
        for seg in masks
    ]
    (tmp_path / "t.tfrecord").write_bytes(b"".join(map(frame, records)))
    flags = [
        "--uri_column",
        "image/encoded",
        "--feature_columns",
        "seg:mask",
        "--max_rejects",
        "1.0",
    ]
    run = beam_tfr(
        "convert", "--table", tmp_path / "t.tfrecord", *flags, "--output", tmp_path / "d"
    )
    assert run.code == 0, run.err
    assert read_manifest(str(tmp_path / "d")).counts["written"] == 1
    assert rejects_of(tmp_path / "d") == {
        "t/00000001": ("bad-value", "its mask is not an image; it must be a PNG")
    }


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        (
            ("bytes", [JPEG, JPEG]),
            "holds a list of 2 values, not the bytes of a single image in all of the first rows",
        ),
        (("int64", [3]), "holds 3, not the bytes of a single image in all of the first rows"),
    ],
)
def test_a_column_without_one_image_a_row_says_why(
    values: examples.Values, problem: str, tmp_path: Path
) -> None:
    (tmp_path / "t.tfrecord").write_bytes(frame(examples.serialize({"image/encoded": values})) * 2)
    with pytest.raises(BeamTfrError) as caught:
        package.plan(table=tmp_path / "t.tfrecord", output=tmp_path / "d")
    assert str(caught.value) == f"`table={tmp_path}/t.tfrecord`: column 'image/encoded' {problem}"


def tarred_all(files: list[tuple[str, bytes]]) -> bytes:
    """A tar of files, of which several may have one name."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, data in files:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def test_a_file_that_a_tar_holds_twice_is_a_reject(beam_tfr: Convert, tmp_path: Path) -> None:
    one, other = (photo[2] for photo in photos()[:2])
    files = [("0.jpg", one), ("0.cls", b"0"), ("1.jpg", one), ("./1.jpg", other), ("1.cls", b"1")]
    files += [
        ("2.jpg", one),
        ("2.cls", b"0"),
        ("2.cls", b"1"),
        ("3.jpg", one),
        ("3.jpg", one),
        ("3.cls", b"1"),
    ]
    (tmp_path / "t.tar").write_bytes(tarred_all(files))
    run = beam_tfr(
        "convert", "--table", tmp_path / "t.tar", "--max_rejects", "1.0", "--output", tmp_path / "d"
    )
    assert run.code == 0, run.err
    assert read_manifest(str(tmp_path / "d")).counts["written"] == 1
    assert rejects_of(tmp_path / "d") == {
        "t/1.jpg": ("unusable-file", "is in t.tar more than once"),
        "t/2.jpg": ("bad-value", "t.tar, row 3: column 'cls': 2.cls: is in t.tar more than once"),
        "t/3.jpg": ("unusable-file", "is in t.tar more than once"),
    }


def test_a_feature_that_a_tar_holds_twice_is_a_reject(beam_tfr: Convert, tmp_path: Path) -> None:
    files = [("0.jpg", JPEG), ("0.txt", b"a"), ("0.txt", b"b"), ("1.jpg", JPEG), ("1.txt", b"c")]
    (tmp_path / "t.tar").write_bytes(tarred_all(files))
    flags = [
        "--uri_column",
        "jpg",
        "--feature_columns",
        "txt",
        "--max_rejects",
        1,
        "--output",
        tmp_path / "d",
    ]
    run = beam_tfr("convert", "--table", tmp_path / "t.tar", *flags)
    assert run.code == 0, run.err
    assert [
        row["txt"] for row in package.contents(tmp_path / "d", "train").to_table().to_pylist()
    ] == ["c"]
    problem = "t.tar, row 1: column 'txt': 0.txt: is in t.tar more than once"
    assert rejects_of(tmp_path / "d") == {"t/0.jpg": ("bad-value", problem)}


@pytest.mark.parametrize("flags", [(), ("--uri_column", "jpg", "--label_column", "cls")])
def test_images_of_several_kinds_in_a_tar(
    flags: tuple[str, ...], beam_tfr: Convert, tmp_path: Path
) -> None:
    files = [
        ("0.webp", b"other"),
        ("0.jpeg", JPEG),
        ("0.cls", b"0"),
        ("1.png", JPEG),
        ("1.cls", b"1"),
    ]
    files += [
        ("2.jpg", JPEG),
        ("2.png", b"other"),
        ("2.cls", b"0"),
        ("3.webp", JPEG),
        ("3.cls", b"1"),
        ("4.cls", b"1"),
    ]
    (tmp_path / "t.tar").write_bytes(tarred_all(files))
    call = ["--table", tmp_path / "t.tar"]
    run = beam_tfr("convert", *call, *flags, "--max_rejects", 1, "--output", tmp_path / "d")
    assert run.code == 0, run.err
    rows = package.contents(tmp_path / "d", "train").to_table().to_pylist()
    found = {(row["key"], row["class"]) for row in rows}
    assert found == {("t/0.jpeg", "0"), ("t/1.png", "1"), ("t/2.jpg", "0"), ("t/3.webp", "1")}
    assert rejects_of(tmp_path / "d") == {
        "t.tar#5": ("bad-value", "t.tar, row 5: column 'jpg': has no value next to 4.cls")
    }
    run = beam_tfr("update", tmp_path / "d", *call, "--max_rejects", 1)
    assert (run.code, "nothing was written" in run.out) == (0, True), run.err


def test_masks_in_a_tar_are_neither_images_nor_paths(beam_tfr: Convert, tmp_path: Path) -> None:
    (tmp_path / "2.png").write_bytes(mask())
    (tmp_path / "secret.png").write_bytes(mask())
    buffer = io.BytesIO(tarred({"0.jpg": JPEG, "0.png": mask(), "1.png": mask(), "2.jpg": JPEG}))
    with tarfile.open(fileobj=buffer, mode="a") as archive:
        link = tarfile.TarInfo("2.png")
        link.type, link.linkname = tarfile.SYMTYPE, "secret.png"
        archive.addfile(link)
    (tmp_path / "t.tar").write_bytes(buffer.getvalue())
    flags = ["--uri_column", "jpg", "--feature_columns", "png:mask", "--max_rejects", "1.0"]
    run = beam_tfr("convert", "--table", tmp_path / "t.tar", *flags, "--output", tmp_path / "d")
    assert run.code == 0, run.err
    assert read_manifest(str(tmp_path / "d")).counts["written"] == 1
    assert rejects_of(tmp_path / "d") == {
        "t.tar#2": ("bad-value", "t.tar, row 2: column 'jpg': has no value next to 1.png"),
        "t/2.jpg": ("bad-value", "t.tar, row 3: column 'png': is a symbolic link in a tar"),
    }


def test_what_leads_out_of_a_tar_is_no_column_of_images(beam_tfr: Convert, tmp_path: Path) -> None:
    files = {"../0.jpg": JPEG, "../0.cls": b"0", "1.jpg": JPEG, "1.cls": b"0"}
    (tmp_path / "t.tar").write_bytes(tarred(files))
    run = beam_tfr(
        "convert", "--table", tmp_path / "t.tar", "--max_rejects", 1, "--output", tmp_path / "d"
    )
    assert run.code == 0, run.err
    assert rejects_of(tmp_path / "d") == {
        "t/../0.jpg": ("unusable-file", "its name leads out of t.tar")
    }
    assert [
        row["key"] for row in package.contents(tmp_path / "d", "train").to_table().to_pylist()
    ] == ["t/1.jpg"]


def test_a_column_that_may_hold_images_is_offered(tmp_path: Path) -> None:
    files = {"1.image_height": b"9", "1.image_raw": JPEG, "1.cls": b"0"}
    (tmp_path / "t.tar").write_bytes(tarred(files))
    with pytest.raises(BeamTfrError, match="such as `uri_column=image_raw`"):
        package.plan(table=str(tmp_path / "t.tar"), output=str(tmp_path / "d"))


def test_a_column_of_images_needs_its_role(tmp_path: Path) -> None:
    (tmp_path / "t.tar").write_bytes(tarred({"1.photo": JPEG, "1.cls": b"0"}))
    with pytest.raises(
        BeamTfrError,
        match=r"no column has a known name for images \(image/encoded, .*\); the columns are: "
        r"photo, cls; name the column of images, such",
    ):
        package.plan(table=str(tmp_path / "t.tar"), output=str(tmp_path / "d"))
    with pytest.raises(
        BeamTfrError,
        match="column 'photo' holds images, or other bytes that are not text; name it as",
    ):
        package.plan(table=str(tmp_path / "t.tar"), encoding="row", output=str(tmp_path / "d"))


def test_tables_without_rows_come_first_too(beam_tfr: Convert, tmp_path: Path) -> None:
    (tmp_path / "a.tfrecord").write_bytes(b"")
    call = ["convert", "--table", tmp_path / "*.tfrecord", "--output", tmp_path / "d"]
    run = beam_tfr(*call)
    assert (run.code, f"--table {tmp_path}/*.tfrecord: there are no rows" in run.err) == (2, True)
    (tmp_path / "b.tfrecord").write_bytes(b"".join(frame(example(*photo)) for photo in photos()))
    (tmp_path / "c.tfrecord").write_bytes(b"")
    assert beam_tfr(*call).code == 0
    assert read_manifest(str(tmp_path / "d")).counts["written"] == len(photos())


@pytest.mark.parametrize("images", [[JPEG], [JPEG, JPEG]])
def test_more_images_in_a_row_need_a_role(images: list[bytes], tmp_path: Path) -> None:
    record = examples.serialize({"image/encoded": ("bytes", [JPEG]), "depth": ("bytes", images)})
    (tmp_path / "t.tfrecord").write_bytes(frame(record))
    for options in (
        {"feature_columns": "depth", "uri_column": "image/encoded"},
        {"label_column": "depth"},
    ):
        with pytest.raises(BeamTfrError) as caught:
            package.plan(table=tmp_path / "t.tfrecord", output=tmp_path / "d", **options)
        message = str(caught.value)
        assert "column 'depth' holds images, or other bytes that are not text" in message
        for cure in (
            "`uri_column=depth`",
            "`feature_columns=depth:mask` for masks, or depth:pair for the other",
            "`feature_columns=depth:bytes`",
        ):
            assert cure in message
        assert ("instead of `label_column=`" in message) == ("label_column" in options)


def test_lists_of_images_are_refused_with_the_line_that_reads_them(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    image = {"bytes": JPEG, "path": "a.jpg"}
    pandas.DataFrame({"images": [[image, image]], "text": ["hat"]}).to_parquet(path)
    for options in ({"feature_columns": "*,images:bytes"}, {"uri_column": "images"}, {}):
        with pytest.raises(BeamTfrError, match=r"\.explode\('images'\)"):
            package.plan(table=path, progress=False, **options)
    pandas.read_parquet(path).explode("images").to_parquet(tmp_path / "table.parquet")
    plan = package.plan(
        table=tmp_path / "table.parquet", uri_column="images", feature_columns="*", progress=False
    )
    assert plan.plan.matched == 2


KNOWN = {"tfrecord": ("image/encoded", "image/class/text"), "tar": ("jpg", "cls")}


@pytest.mark.parametrize("form", few_at_once(FORMS, "tar"))
def test_known_columns_are_implied(form: str, beam_tfr: Convert, tmp_path: Path) -> None:
    write, pattern, *_ = FORMS[form]
    write(tmp_path)
    call = ["convert", "--table", tmp_path / pattern, "--image_size", 24, "--name", "d"]
    image, label = KNOWN[form]
    implied = (
        f"the first rows of {tmp_path / pattern} imply --uri_column {image} and "
        f"--label_column {label}"
    )
    run = beam_tfr(*call, "--output", tmp_path / "implied")
    assert run.code == 0, run.err
    assert implied in run.err
    assert f"warning:   {implied}" in beam_tfr("plan", *call[1:]).out
    named = ["--uri_column", image, "--label_column", label]
    run = beam_tfr(*call, *named, "--output", tmp_path / "named")
    assert run.code == 0
    assert "imply" not in run.err
    assert files_of(tmp_path / "implied") == files_of(tmp_path / "named")
    run = beam_tfr("update", tmp_path / "implied", "--table", tmp_path / pattern)
    assert run.code == 0, run.err
    assert "already holds this complete dataset; nothing was written" in run.out


def test_one_label_that_is_given_is_kept(beam_tfr: Convert, tmp_path: Path) -> None:
    write_tars(tmp_path)
    call = [
        "--table",
        tmp_path / "*.tar",
        "--label_column",
        "txt",
        "--image_size",
        24,
        "--output",
        tmp_path / "d",
    ]
    run = beam_tfr("convert", *call)
    assert run.code == 0, run.err
    assert f"imply --uri_column jpg{os.linesep}" in run.err
    assert read_manifest(str(tmp_path / "d")).class_names == ("a dress", "a hat")


@pytest.mark.parametrize(
    "flags", [["--encoding", "row"], ["--feature_columns", "*"], ["--key_column", "image/id"]]
)
def test_rows_without_images_are_asked_for(
    flags: list[str], beam_tfr: Convert, tmp_path: Path
) -> None:
    values = {"image/class/label": ("int64", [3]), "image/id": ("bytes", [b"x"])}
    (tmp_path / "t.tfrecord").write_bytes(frame(examples.serialize(values)))
    call = ["convert", "--table", tmp_path / "t.tfrecord", "--output", tmp_path / "d"]
    run = beam_tfr(*call)
    assert run.code == 2
    assert "or give --encoding row if rows become the records" in run.err
    run = beam_tfr(*call, *flags)
    assert run.code == 0, run.err
    assert read_manifest(str(tmp_path / "d")).options["encoding"] == "row"
    assert "split='train', output='dict')" in run.out


@pytest.mark.parametrize(
    ("flags", "roles", "told"),
    [
        ({"feature_columns": "txt:bytes"}, ("jpg", "cls"), "imply `uri_column=jpg`"),
        ({"feature_columns": "*"}, ("jpg", "cls"), "imply `uri_column=jpg`"),
        ({"feature_columns": "TXT:bytes", "label_column": "cls"}, ("jpg", "cls"), "imply `uri_"),
        ({"feature_columns": "cls:int64"}, ("jpg", ""), "imply `uri_column=jpg`"),
        ({"feature_columns": "txt:bytes", "uri_column": "jpg"}, ("jpg", ""), "`label_column=cls`"),
        ({"feature_columns": "txt:bytes", "key_column": "txt"}, ("", ""), "`uri_column=jpg`"),
        ({"feature_columns": "txt:bytes", "encoding": "row"}, ("", ""), "`label_column=cls`"),
        ({"feature_columns": "jpg:bytes", "label_column": "cls"}, ("", "cls"), ""),
    ],
)
def test_images_and_classes_are_found_beside_chosen_features(
    flags: dict[str, Any], roles: tuple[str, str], told: str, tmp_path: Path
) -> None:
    files = {f"{number}.jpg": JPEG for number in range(3)}
    files |= {f"{number}.cls": b"%d" % number for number in range(3)}
    files |= {f"{number}.txt": b"text %d" % number for number in range(3)}
    (tmp_path / "t.tar").write_bytes(tarred(dict(sorted(files.items()))))
    values = {"table": (f"{tmp_path}/t.tar",), "output": "/o", **flags}
    content = find_content(from_values(values, ConvertOptions))
    assert (content.options.uri_column, content.options.label_column) == roles
    assert (content.options.encoding == "row") == (not roles[0])
    assert told in " ".join(content.warnings)
    assert bool(content.warnings) == bool(told)


@pytest.mark.parametrize(
    ("features", "label"),
    [("image/object/bbox:bbox[rel_xyxy]", "image/object/class/text"), ("photo/id:bytes", "class")],
)
def test_classes_are_those_of_boxes_only_if_these_are_chosen(
    features: str, label: str, tmp_path: Path
) -> None:
    values = {"image/encoded": ("bytes", [JPEG]), "photo/id": ("bytes", [b"x"])}
    values |= {f"image/object/bbox/{side}": ("float", [0.25]) for side in ("xmin", "ymin")}
    values |= {f"image/object/bbox/{side}": ("float", [0.75]) for side in ("xmax", "ymax")}
    values |= {"image/object/class/text": ("bytes", [b"cat"]), "class": ("bytes", [b"dog"])}
    (tmp_path / "t.tfrecord").write_bytes(frame(examples.serialize(values)))
    table = {"table": (f"{tmp_path}/t.tfrecord",), "output": "/o", "feature_columns": features}
    options = find_content(from_values(table, ConvertOptions)).options
    assert options.label_column == label
    assert [*(options.feature_columns or {})] == [features.partition(":")[0]]


def test_boxes_of_the_object_detection_api(beam_tfr: Convert, tmp_path: Path) -> None:
    boxes = [
        [],
        [(0.25, 0.5, 0.75, 1.0)],
        [(0.0, 0.0, 0.5, 0.5), (0.25, 0.5, 0.75, 1.0)],
        [(0.5, 0.5, 0.25, 1.0)],
    ]
    records = []
    for number, found in enumerate(boxes):
        values = {
            "image/encoded": ("bytes", [JPEG]),
            "image/source_id": ("bytes", [b"%d" % number]),
        }
        for at, side in enumerate(("xmin", "ymin", "xmax", "ymax")):
            values[f"image/object/bbox/{side}"] = ("float", [box[at] for box in found])
        values["image/object/class/text"] = ("bytes", [b"cat", b"dog"][: len(found)])
        records.append(examples.serialize(values))
    records.reverse()  # the first has boxes
    (tmp_path / "coco.record.tfrecord").write_bytes(b"".join(map(frame, records)))
    call = [
        "convert",
        "--table",
        tmp_path / "coco.record.tfrecord",
        "--output",
        tmp_path / "d",
        "--resize",
        "stretch",
    ]
    run = beam_tfr(*call, "--max_rejects", 1)
    assert run.code == 0, run.err
    assert "split='train', boxes='xyxy')" in run.out
    assert (
        "--label_column image/object/class/text and --feature_columns "
        "'image/object/bbox:bbox[rel_xyxy]" in run.err
    )
    rows = package.contents(tmp_path / "d", "train").to_table().to_pylist()
    found = {row["key"][-1]: row for row in rows}
    names = [f"object_bbox_{side}" for side in ("xmin", "ymin", "xmax", "ymax")]
    for number in (0, 1, 2):
        row = found[str(3 - number)]
        assert [*zip(*(row[name] for name in names), strict=True)] == boxes[number]
        assert row["object_class_text"] == ["cat", "dog"][:number]
    (reject,) = (tmp_path / "d/rejects.jsonl").read_text().splitlines()
    assert "is not a box with an area in the format rel_xyxy" in reject


def test_a_record_whose_length_looks_like_gzip_is_none(beam_tfr: Convert, tmp_path: Path) -> None:
    (_, label, data), *_ = photos()
    # three more bytes of lengths, at most
    padding = 35_615 - len(example("a.jpg", label, data)) - 3
    records = [example("a.jpg", label, data + bytes(padding + more)) for more in range(4)]
    (first,) = (record for record in records if len(record) == 35_615)
    path = tmp_path / "a.tfrecord"
    path.write_bytes(frame(first) + frame(example("b.jpg", label, data)))
    assert path.read_bytes().startswith(b"\x1f\x8b")
    run = beam_tfr("convert", "--table", path, "--image_size", 24, "--output", tmp_path / "d")
    assert run.code == 0, run.err
    assert read_manifest(str(tmp_path / "d")).counts["written"] == 2


NAMES = [
    "pet_train.record",
    "train.records",
    "train.tfr",
    "train.tf_record",
    "train.TFRECORD",
    "train.bin",
    "train",
    "train.tfrecord.1",
    "part-r-00000",
    "train-00000-of-01024",
    "coco_train.record-00000-of-00002",
]


def rows_of(table: Path, **options: Any) -> dict[str, tuple[str, ...]]:
    """Key -> labels of each row of a table."""
    call = ConvertOptions(table=(str(table),), output="/nowhere", **options)
    tables = open_tables(find_content(call))
    return {ref.key: ref.labels for path in tables.files for ref in tables.read(path)}


def two_records() -> bytes:
    return b"".join(frame(example(*photo)) for photo in photos()[4:6])


@pytest.mark.parametrize("name", NAMES)
def test_tfrecords_are_known_by_their_content(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(two_records())
    keys = {"0000000" + key[-1]: labels for key, labels in rows_of(tmp_path / name).items()}
    assert keys == {"00000000": ("dress",), "00000001": ("hat",)}
    rows = rows_of(tmp_path / name, encoding="row", feature_columns="image/class/label")
    assert len(rows) == 2


@pytest.mark.parametrize(
    ("names", "pattern", "folders"),
    [
        (
            ["train-00000-of-00002", "train-00001-of-00002"],
            "train-*-of-*",
            {"train-00000-of-00002", "train-00001-of-00002"},
        ),
        (
            ["a.record-00000-of-00002", "a.record-00001-of-00002"],
            "*.record-?????-of-?????",
            {"a/00000-of-00002", "a/00001-of-00002"},
        ),
        (["part-r-00000", "part-r-00001"], "part-r-*", {"part-r-00000", "part-r-00001"}),
        (["t.tfrecord.1", "t.tfrecord.2"], "*", {"t.tfrecord.1", "t.tfrecord.2"}),
    ],
)
def test_patterns_of_names_without_an_extension(
    names: list[str], pattern: str, folders: set[str], tmp_path: Path
) -> None:
    for name in [*names, "_SUCCESS", f"._{names[0]}"]:
        (tmp_path / name).write_bytes(two_records() if name in names else b"")
    rows = rows_of(tmp_path / pattern)
    assert {key.rpartition("/")[0] for key in rows} == folders
    assert len(rows) == 4


def test_a_pattern_that_says_nothing_may_match_any_tables(tmp_path: Path) -> None:
    folders = {
        "csv": ("a.csv", b"name,kind\nx,cat\n"),
        "coco": (
            "a.json",
            b'{"images": [{"id": 1, "file_name": "1.jpg", "width": 9, "height": 9}], '
            b'"annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [1, 1, 2, 2]}], '
            b'"categories": [{"id": 1, "name": "cat"}]}',
        ),
    }
    for folder, (name, data) in folders.items():
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_bytes(data)
    assert rows_of(tmp_path / "csv/*") == {"a#1": ()}
    assert rows_of(tmp_path / "csv/*", label_column="kind") == {"a#1": ("cat",)}
    assert rows_of(tmp_path / "coco/*") == {"1.jpg": ("cat",)}
    with pytest.raises(BeamTfrError, match="`resize=` has no effect with `encoding=row`"):
        rows_of(tmp_path / "csv/*", resize="none")


@pytest.mark.parametrize("name", ["a.record.gz", "a.tfrecord.gz", "a.record", "a.tgz", "a-0-of-1"])
def test_compressed_tfrecords_are_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(gzip.compress(two_records()))
    with pytest.raises(BeamTfrError, match="decompress it first"):
        rows_of(tmp_path / name)


@pytest.mark.parametrize("name", ["not.record", "not", "not.xlsx"])
def test_what_is_no_tfrecord_is_called_so(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"no records\n")
    for options in ({}, {"resize": "none"}):
        with pytest.raises(BeamTfrError, match="is not a TFRecord"):
            rows_of(tmp_path / name, **options)


@pytest.mark.parametrize("pattern", ["train", "train-*", "", "*.record"])
def test_tfrecords_as_input_are_a_table(pattern: str, beam_tfr: Convert, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for name in ("train", "train-00000-of-00001", "pet.record"):
        (tmp_path / "in" / name).write_bytes(two_records())
    run = beam_tfr("convert", "--input", tmp_path / "in" / pattern, "--output", tmp_path / "d")
    assert run.code == 2
    assert "TFRecords" in run.err
    assert "--table" in run.err


def raw_pixels(number: int, **others: Any) -> bytes:
    """A record of 30x40 pixels of one color, which may be text."""
    values: examples.Values = {
        "image_raw": ("bytes", [bytes([number]) * 3600]),
        "height": ("int64", [30]),
        "width": ("int64", [40]),
        "depth": ("int64", [3]),
        **others,
    }
    return examples.serialize(values)


def test_raw_pixels_are_called_so(tmp_path: Path) -> None:
    records = [raw_pixels(10), raw_pixels(200)]
    (tmp_path / "t.tfrecord").write_bytes(b"".join(map(frame, records)))
    with pytest.raises(
        BeamTfrError, match=r"raw pixels, 30x40x3, .*feature_columns=image_raw:bytes"
    ):
        rows_of(tmp_path / "t.tfrecord", uri_column="image_raw")
    sound = raw_pixels(0, image_raw=("bytes", [JPEG]))
    (tmp_path / "t.tfrecord").write_bytes(b"".join(map(frame, [sound, *records])))
    tables = open_tables(
        find_content(
            ConvertOptions(
                table=(str(tmp_path / "t.tfrecord"),), output="/nowhere", uri_column="image_raw"
            )
        )
    )
    first, *others = tables.read(str(tmp_path / "t.tfrecord"))
    assert not first.reason
    assert all("raw pixels, 30x40x3" in ref.detail for ref in others)


def test_raw_pixels_are_stored_as_they_are(beam_tfr: Convert, tmp_path: Path) -> None:
    records = [raw_pixels(10), raw_pixels(200)]  # the first end in line ends
    (tmp_path / "t.tfrecord").write_bytes(b"".join(map(frame, records)))
    call = ["convert", "--table", tmp_path / "t.tfrecord", "--encoding", "row"]
    columns = ["--feature_columns", "image_raw:bytes"]
    run = beam_tfr(*call, *columns, "--output", tmp_path / "d")
    assert run.code == 0, run.err
    stored = {features["image_raw"][0] for features in records_of(tmp_path / "d").values()}
    assert stored == {bytes([10]) * 3600, bytes([200]) * 3600}
    (tmp_path / "t.tfrecord").write_bytes(b"".join(map(frame, reversed(records))))
    run = beam_tfr(*call, "--output", tmp_path / "d")
    assert run.code == 2
    assert "--feature_columns image_raw:bytes stores the bytes" in run.err


@pytest.mark.parametrize("empty", [("bytes", []), None])
@pytest.mark.parametrize("comes_first", [False, True])
def test_an_image_without_boxes_may_lack_their_features(
    empty: tuple[str, list[Any]] | None, comes_first: bool, tmp_path: Path
) -> None:
    image = {"image/encoded": ("bytes", [JPEG])}
    boxes = {f"image/object/bbox/{side}": ("float", [0.25]) for side in ("xmin", "ymin")}
    boxes |= {f"image/object/bbox/{side}": ("float", [0.75]) for side in ("xmax", "ymax")}
    boxes["image/object/class/text"] = ("bytes", [b"cat"])
    without = {} if empty is None else dict.fromkeys(boxes, empty)
    records = [frame(examples.serialize({**image, **more})) for more in (boxes, without)]
    (tmp_path / "t.tfrecord").write_bytes(b"".join(records[::-1] if comes_first else records))
    rows = rows_of(tmp_path / "t.tfrecord")
    assert sorted(rows.values()) == [(), ("cat",)]


@pytest.mark.parametrize("has_label", [True, False])
def test_boxes_without_classes_are_stored_or_told(tmp_path: Path, *, has_label: bool) -> None:
    values = {"image/encoded": ("bytes", [JPEG])}
    values |= {f"image/object/bbox/{side}": ("float", [0.25]) for side in ("xmin", "ymin")}
    values |= {f"image/object/bbox/{side}": ("float", [0.75]) for side in ("xmax", "ymax")}
    if has_label:
        values["image/class/label"] = ("int64", [1])
    (tmp_path / "t.tfrecord").write_bytes(frame(examples.serialize(values)))
    options = ConvertOptions(table=(f"{tmp_path}/t.tfrecord",), output="/o")
    tables = open_tables(find_content(options))
    boxes = [feature.text for feature in tables.features]
    cure = "`feature_columns='image/object/bbox:bbox[rel_xyxy]'`"
    assert boxes == ([] if has_label else ["bbox[rel_xyxy]"])
    assert bool(tables.options.label_column) == has_label
    assert cure in " ".join(tables.warnings)


def varint_field(number: int, value: int) -> bytes:
    return bytes([number << 3, value])


def delimited_field(number: int, data: bytes) -> bytes:
    return bytes([number << 3 | 2, len(data)]) + data


SHORT = delimited_field(1, b"x" * 9)


@pytest.mark.parametrize(
    ("record", "problem"),
    [
        (examples.serialize({"label": ("int64", [1])}) + delimited_field(2, SHORT), "Sequence"),
        (delimited_field(2, SHORT), "SequenceExample"),
        (varint_field(1, 4) + delimited_field(2, SHORT), "not a tf.train.Example"),
        (b"no example", "not a tf.train.Example"),
    ],
)
def test_other_messages_are_called_so(record: bytes, problem: str, tmp_path: Path) -> None:
    (tmp_path / "t.tfrecord").write_bytes(frame(record) * 2)
    with pytest.raises(BeamTfrError, match=problem):
        rows_of(tmp_path / "t.tfrecord")


def test_every_name_of_a_table_says_whether_it_holds_images() -> None:
    for suffix, table_format in FORMATS.items():
        assert may_hold_images(f"a{suffix}") == isinstance(table_format, Samples)


def test_a_folder_of_tfrecords_of_any_name_is_inspected(beam_tfr: Convert, tmp_path: Path) -> None:
    (tmp_path / "train-00000-of-00001").write_bytes(two_records())
    (tmp_path / "README.md").write_text("About them.")
    run = beam_tfr("inspect", tmp_path)
    assert run.code == 0, run.err
    assert "2 records in 1 file" in run.out
