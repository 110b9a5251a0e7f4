"""Zip and tar archives as inputs.

What the unpacked folder would give, and what hostile ones give.
"""

from __future__ import annotations

import gzip
import io
import os
import re
import shutil
import struct
import tarfile
import tracemalloc
import warnings
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import beam_tfr
from beam_tfr import launch
from beam_tfr.inputs import archives, zip_names
from beam_tfr.inputs.held_files import HeldFiles
from beam_tfr.inputs.listing import match_files
from beam_tfr.inputs.patterns import compile_exclusion, mark_folders, order_patterns
from beam_tfr.inputs.reading import read_image
from beam_tfr.inputs.skipped import (
    SkippedFiles,
    count_archives,
    count_packed,
    count_raw,
    describe_other_files,
    describe_skipped,
)
from beam_tfr.inputs.zip_directory import ZipDirectory
from beam_tfr.layouts.mask_folders import describe_mask_folders
from beam_tfr.options import ConvertOptions, from_values
from beam_tfr.schema.errors import DataError, RejectError, UsageError
from beam_tfr.sources import open_source
from beam_tfr.storage import Entry
from tests.archives import Files, tarred
from tests.converted import once, write_photos
from tests.fake_gcs import FakeGcs

JPEG = b"\xff\xd8 a photo"
NAMES = (
    "train/cat/1.jpg",
    "train/dog/2.PNG",
    "é/ü.jpg",
    "a\nb.jpg",
    "[1]*.jpg",
    "x" * 120 + "/" + "y" * 90 + ".jpg",
)
OTHERS = ("train/readme.txt", "__MACOSX/train/._1.jpg", ".hidden.jpg", "more.zip", "no extension")


def write_files(folder: Path, files: Files) -> None:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


def zipped(files: Files, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of names that are in it twice
        for name, data in files.items():
            archive.writestr(name.rstrip("+"), data)
    return file.getvalue()


def packed(folder: Path, form: str) -> Path:
    """The archive of a folder, beside it."""
    return Path(shutil.make_archive(str(folder), form, folder))


def listed(pattern: Path | str, *exclude: str) -> tuple[dict[str, bytes | str], dict[str, int]]:
    """(path -> bytes or why there are none, kinds of skipped files) of a pattern."""
    (pattern,) = mark_folders([str(pattern)])
    excluded = compile_exclusion(exclude, "/")
    skipped = SkippedFiles([pattern], excluded)
    found: dict[str, bytes | str] = {}
    for entry in match_files(order_patterns([pattern]), exclude=excluded, skipped=skipped):
        assert entry.path not in found
        try:
            found[entry.path] = entry.problem or read_image(entry, max_bytes=1000)
        except RejectError as error:
            found[entry.path] = str(error)
    return found, dict(skipped.kinds)


MAKERS: dict[str, Callable[[Files], bytes]] = {
    "stored.zip": lambda files: zipped(files, zipfile.ZIP_STORED),
    "deflated.ZIP": zipped,
    "behind-a-program.zip": lambda files: b"#!/bin/sh\n" * 99 + zipped(files),
    "pax.tar": tarred,
    "gnu.tar": lambda files: tarred(files, tarfile.GNU_FORMAT),
    "dot.tar": lambda files: tarred({f"./{name}": data for name, data in files.items()}),
}


@pytest.mark.parametrize("name", MAKERS)
def test_an_archive_has_the_images_of_its_folder(tmp_path: Path, name: str) -> None:
    files = {name: b"%d" % number * 50 for number, name in enumerate([*NAMES, *OTHERS])}
    folder = tmp_path / name.partition(".")[0]
    write_files(folder, files)
    of_folder = listed(folder)
    of_folder[1][".zip in an archive"] = of_folder[1].pop(".zip")
    shutil.rmtree(folder)
    (tmp_path / name).write_bytes(MAKERS[name](files))
    assert listed(tmp_path / name) == of_folder
    assert of_folder[0] == {f"{folder}/{of}": files[of] for of in NAMES}
    found, skipped = listed(tmp_path / name, f"{folder}/train/**", "/**/*.txt")
    assert found
    assert not any("/train/" in path for path in found)
    assert skipped.get(".txt") is None


@pytest.mark.parametrize(
    ("system", "names", "expected", "guessed"),
    [
        (0, ["ü".encode(), "猫".encode()], ["ü", "猫"], 0),
        (3, ["ü".encode(), "猫".encode()], ["ü", "猫"], 0),
        (0, ["ü".encode("cp437")], ["ü"], 1),
        (0, ["猫".encode("gbk"), "狗".encode("gbk"), b"a"], ["├¿", "╣╖", "a"], 2),  # C3 A8 is è
        (3, ["狗".encode("gbk")], ["\udcb9\udcb7"], 0),
    ],
)
def test_names_in_zips_without_a_declared_encoding_are_utf8_if_all_can_be(
    tmp_path: Path, system: int, names: list[bytes], expected: list[str], guessed: int
) -> None:
    stand_ins = [f"{number}{'x' * len(name)}.jpg" for number, name in enumerate(names)]
    data = zipped_as_is(dict.fromkeys(stand_ins, JPEG), system)
    for number, name in enumerate(names):
        data = data.replace(stand_ins[number].encode(), b"%d%b.jpg" % (number, name))
    (tmp_path / "a.zip").write_bytes(data)
    patterns = [f"{tmp_path}/a.zip"]
    skipped = SkippedFiles(patterns, compile_exclusion((), "/"))
    entries = match_files(order_patterns(patterns), skipped=skipped)
    assert sorted(entry.path for entry in entries) == [
        f"{tmp_path}/a/{number}{name}.jpg" for number, name in enumerate(expected)
    ]
    assert skipped.guessed_names.number == guessed
    assert bool(skipped.guessed_names.describe()) == bool(guessed)


@pytest.mark.parametrize("option", ["input", "sources"])
def test_a_broken_archive_has_the_cures_of_its_option(tmp_path: Path, option: str) -> None:
    """`verify` has no `max_rejects`."""
    (tmp_path / "a.zip").write_bytes(b"PK")
    with pytest.raises(DataError, match=r"a\.zip cannot be read as zip.*`exclude=`") as error:
        list(match_files(order_patterns([f"{tmp_path}/a.zip"]), option=option))
    assert ("`max_rejects=1`" in str(error.value)) == (option == "input")


def test_a_zero_in_a_name_in_a_zip_declares_no_encoding() -> None:
    """It ends the name."""
    info = zipfile.ZipInfo("ü.jpg\0x")
    info.create_system = 0
    assert info.filename == "ü.jpg"
    assert zip_names.is_guessed(info, are_utf8=False)
    assert not zip_names.is_utf8(info)


@pytest.mark.parametrize("form", ["zip", "tar"])
def test_labels_of_images_in_archives_are_told(tmp_path: Path, form: str) -> None:
    files = dict.fromkeys(["a/1.jpg", "a/1.CLS", "b/1.seg.png", "b/1.json", "a/._1.txt"], JPEG)
    files |= dict.fromkeys(["b/2.cls", "readme.txt", "labels/1.txt", "train.csv"], b"1")
    files |= dict.fromkeys(["a/1.caption", "a/1.xmp", "a/2.caption"], b"1")
    files["meta/train.txt"] = b"a/1\n"
    make = {"zip": zipped, "tar": tarred}[form]
    (tmp_path / f"a.{form}").write_bytes(make(files))
    patterns = [f"{tmp_path}/a.{form}"]
    skipped = SkippedFiles(patterns, compile_exclusion((), "/"))
    assert len([*match_files(order_patterns(patterns), skipped=skipped)]) == 2
    assert skipped.packed_labels.number == 6
    assert f"{tmp_path}/a/a/1.CLS" in skipped.packed_labels.describe()


def test_masks_of_images_in_archives_are_told_to_be_unpacked(tmp_path: Path) -> None:
    for form, told in (("zip", True), ("png", False)):
        given = {"input": tmp_path / f"a.{form}", "pair": "mask=m/{stem}.png", "output": tmp_path}
        notes = open_source(from_values(given, ConvertOptions)).notes
        assert any("not from archives" in note for note in notes) == told
    text = describe_mask_folders(["images", "masks"], in_archives=True)
    assert text.endswith("once archives are unpacked")


def test_the_unicode_path_beside_a_name_in_a_zip_counts(tmp_path: Path) -> None:
    old_name = "猫.jpg".encode("gbk")
    info = zipfile.ZipInfo("xx.jpg")
    info.create_system = 0
    path = struct.pack("<BI", 1, zlib.crc32(old_name)) + "猫.jpg".encode()
    info.extra = struct.pack("<HH", 0x7075, len(path)) + path
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(info, JPEG)
    (tmp_path / "a.zip").write_bytes(file.getvalue().replace(b"xx.jpg", old_name))
    assert listed(tmp_path / "a.zip") == ({f"{tmp_path}/a/猫.jpg": JPEG}, {})


def zipped_as_is(files: Files, system: int = 0) -> bytes:
    """A zip with the names as they are, which `zipfile` changes where / is not the separator."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of names that are in it twice
        for name, data in files.items():
            info = zipfile.ZipInfo("x")
            info.filename = name
            info.create_system = system
            archive.writestr(info, data)
    return file.getvalue()


@pytest.mark.parametrize("system", [0, 3])
def test_backslashes_in_a_zip_are_slashes(tmp_path: Path, system: int) -> None:
    files = {
        "train\\": b"",
        "train\\cat\\1.jpg": JPEG + b"1",
        "train/dog/2.jpg": JPEG + b"2",
        "é\\3.jpg": JPEG + b"3",
        "both\\4.jpg": JPEG + b"4",
        "both/4.jpg": JPEG + b"5",
        "..\\5.jpg": JPEG + b"6",
        "train\\readme.txt": b"text",
    }
    (tmp_path / "a.zip").write_bytes(zipped_as_is(files, system))
    images, skipped = listed(tmp_path / "a.zip")
    assert images == {
        f"{tmp_path}/a/train/cat/1.jpg": JPEG + b"1",
        f"{tmp_path}/a/train/dog/2.jpg": JPEG + b"2",
        f"{tmp_path}/a/é/3.jpg": JPEG + b"3",
        f"{tmp_path}/a/both/4.jpg": "is in a.zip more than once",
        f"{tmp_path}/a/../5.jpg": "its name leads out of a.zip",
    }
    assert skipped == {".txt": 1}


def test_a_backslash_may_be_half_of_a_character(tmp_path: Path) -> None:
    """表.jpg in the encoding of Japanese Windows, which nobody declares, has one."""
    data = zipped_as_is({"a\\xx12.jpg": JPEG}).replace(b"xx12", "表12".encode("cp932"))
    (tmp_path / "a.zip").write_bytes(data)
    assert [*listed(tmp_path / "a.zip")[0]] == [f"{tmp_path}/a/a/ò\\12.jpg"]


def changed(
    data: bytes, offset: int, form: str, value: int, *, signature: bytes = b"PK\1\2"
) -> bytes:
    """A zip with another value in the directory's first row."""
    wrong = bytearray(data)
    struct.pack_into(form, wrong, data.index(signature) + offset, value)
    return bytes(wrong)


def special(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member


def symlink() -> bytes:
    file, info = io.BytesIO(), zipfile.ZipInfo("1.jpg")
    info.create_system, info.external_attr = 3, 0o120777 << 16
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(info, "/etc/passwd")
    return file.getvalue()


def with_comment(data: bytes) -> bytes:
    file = io.BytesIO(data)
    with zipfile.ZipFile(file, "a") as archive:
        archive.comment = b"a comment " * 9
    return file.getvalue()


def with_numbers_of_64_bits(data: bytes) -> bytes:
    """A zip whose last row, and the end of whose directory, have some."""
    end = data.rindex(b"PK\5\6")
    *_, size, begin, _ = struct.unpack_from("<4s4H2LH", data, end)
    row = bytearray(data[data.rindex(b"PK\1\2") : end])
    stored, whole, name_bytes = struct.unpack_from("<IIH", row, 20)
    (offset,) = struct.unpack_from("<I", row, 42)
    extra = struct.pack("<HHB", 7, 1, 0) + struct.pack("<HH3Q", 1, 24, whole, stored, offset)
    struct.pack_into("<IIHH", row, 20, *[0xFFFFFFFF] * 2, name_bytes, len(extra))
    struct.pack_into("<I", row, 42, 0xFFFFFFFF)
    row[46 + name_bytes : 46 + name_bytes] = extra
    size += len(extra)
    end_64 = struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, 2, 2, size, begin)
    locator = struct.pack("<4sLQL", b"PK\6\7", 0, begin + size, 1)
    rows = data[: data.rindex(b"PK\1\2")] + bytes(row)
    return (
        rows
        + end_64
        + locator
        + struct.pack("<4s4H2LH", b"PK\5\6", *[0xFFFF] * 4, *[0xFFFFFFFF] * 2, 0)
    )


COLUMNS = (
    *("filename", "orig_filename", "create_system", "flag_bits", "compress_type", "CRC"),
    *("compress_size", "file_size", "volume", "external_attr", "header_offset", "extra"),
)
TWO_NAMES = {"é\\1.jpg": JPEG * 9, "a/2\0.jpg": JPEG}


@pytest.mark.parametrize(
    "data",
    [
        zipped({}),
        zipped(TWO_NAMES),
        zipped_as_is(TWO_NAMES),
        b"#!/bin/sh\n" * 99 + zipped(TWO_NAMES),
        with_comment(zipped(TWO_NAMES)),
        with_comment(b"x" + with_numbers_of_64_bits(zipped(TWO_NAMES))),
        with_numbers_of_64_bits(zipped(TWO_NAMES)),
    ],
    ids=["nothing", "plain", "as it is", "behind", "comment", "64 bits behind", "64 bits"],
)
def test_the_directory_of_a_zip_is_read_as_by_zipfile(data: bytes) -> None:
    directory = ZipDirectory(io.BytesIO(data))
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        expected = [[getattr(info, name) for name in COLUMNS] for info in archive.infolist()]
        assert directory.begin == archive.start_dir
    for _ in range(2):
        rows = directory.rows()
        assert [[getattr(info, name) for name in COLUMNS] for info in rows] == expected


def zip_of_many(number: int) -> bytes:
    """A zip whose directory has so many rows, each of a file of its own place."""
    rows = b"".join(
        struct.pack(
            "<4s4B4HL2L5H2L",
            b"PK\1\2",
            *[20, 3, 20, 0, 0, 0, 0, 0, place],
            9,
            9,
            19,
            *[0] * 5,
            place,
        )
        + b"cat/%011d.jpg" % place
        for place in range(number)
    )
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 0, 0, len(rows), number, 0)
    return bytes(number) + rows + end


def tar_of_many(number: int) -> bytes:
    return b"".join(
        tarfile.TarInfo(f"cat/{place:011d}.jpg").tobuf(tarfile.USTAR_FORMAT)
        for place in range(number)
    ) + bytes(1024)


@pytest.mark.parametrize(("form", "most_bytes"), [("zip", 120), ("tar", 240)])
def test_the_files_of_an_archive_take_few_bytes_while_they_are_listed(
    form: str, most_bytes: int, tmp_path: Path
) -> None:
    number = 20_000
    path = tmp_path / f"a.{form}"
    path.write_bytes({"zip": zip_of_many, "tar": tar_of_many}[form](number))
    file = Entry(str(path), path.stat().st_size, 0)
    paths = {entry.path for entry in archives.list_images(file)}  # and imports what it needs
    assert len(paths) == number
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for _ in archives.list_images(file):
        pass
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak - before < most_bytes * number


def test_hidden_files_are_not_kinds_of_their_own_without_end() -> None:
    skipped = SkippedFiles([], compile_exclusion((), "/"))
    for number in range(5_000):
        skipped.add_kind(f"a/.{number}")
        skipped.add_packed_kind(f"a/.{number}")
    skipped.add_kind("a.jpg")
    assert len(skipped.kinds) < 1_100
    assert skipped.kinds.total() == 10_001
    assert skipped.kinds[".jpg"] == 1
    assert len(describe_skipped(skipped.kinds)) < 1_000


def test_held_files_come_as_they_were_added() -> None:
    names = [f"{number % 2_900} \udcff\n\0é" for number in range(3_000)]
    held = HeldFiles()
    for number, name in enumerate(names):
        held.add(name, [number, None, True, "x"])
    assert len(held) == 3_000
    assert [(name, *values) for name, values in held] == [
        (name, number, None, True, "x") for number, name in enumerate(names)
    ]
    assert held.find_repeated() == {*names[:100]}
    held.add("a" * (1 << 20))
    assert [name for name, _ in held][-1] == "a" * (1 << 20)


IMAGES = 18  # of `write_photos`
GOOD, TWO = {"2.jpg": JPEG}, {"1.jpg": JPEG * 9, "2.jpg": JPEG}
DAMAGED = "unusable-file: its bytes in a.{} are incomplete or damaged"
REJECTED: dict[str, tuple[bytes, str]] = {
    "zip, absolute name": (zipped({"/1.jpg": JPEG, **GOOD}), "its name leads out of a.zip"),
    "zip, name above": (zipped({"x/../../1.jpg": JPEG, **GOOD}), "its name leads out of a.zip"),
    "zip, twice": (
        zipped({"1.jpg": JPEG, "1.jpg+": b"other", **GOOD}),
        "is in a.zip more than once",
    ),
    "zip, twice in two spellings": (
        zipped({"1.jpg": JPEG, "./1.jpg": b"", **GOOD}),
        "is in a.zip more than once",
    ),
    "zip, encrypted": (
        changed(zipped(TWO), 8, "<H", 1),
        "is encrypted: unpack the zip with its password",
    ),
    "zip, bzip2": (
        zipped({"1.jpg": JPEG}, zipfile.ZIP_BZIP2),
        "has compression method 12 in a zip: unpack the zip, or create it again with `zip -0`",
    ),
    "zip, unknown method": (
        changed(zipped(TWO), 10, "<H", 77),
        "has compression method 77 in a zip: unpack the zip, or create it again with `zip -0`",
    ),
    "zip, link": (symlink(), "is a symbolic link in a zip"),
    "zip, wrong CRC": (changed(zipped(TWO), 16, "<I", 7), DAMAGED.format("zip")),
    "zip, other bytes": (
        zipped(TWO, zipfile.ZIP_STORED).replace(b"photo", b"phot0", 1),
        DAMAGED.format("zip"),
    ),
    "zip, no DEFLATE": (changed(zipped(TWO, 0), 10, "<H", 8), DAMAGED.format("zip")),
    "zip, bomb": (zipped({"1.jpg": bytes(10**7), **GOOD}), "file-too-large: more than 1000 bytes"),
    "zip, bomb that lies": (
        changed(zipped({"1.jpg": bytes(10**7), **GOOD}), 24, "<I", 99),
        DAMAGED.format("zip"),
    ),
    "zip, larger than it says": (changed(zipped(TWO), 24, "<I", 9), DAMAGED.format("zip")),
    "zip, smaller than it says": (changed(zipped(TWO), 24, "<I", 999), DAMAGED.format("zip")),
    "zip, place of another": (changed(zipped(TWO), 42, "<I", 3), DAMAGED.format("zip")),
    "zip, place behind the end": (changed(zipped(TWO), 42, "<I", 1 << 30), DAMAGED.format("zip")),
    "zip, place behind all": (
        changed(zipped(TWO), 42, "<I", len(zipped(TWO)) - 30),
        DAMAGED.format("zip"),
    ),
    "zip, no header": (
        changed(zipped(TWO), 0, "<I", 0, signature=b"PK\3\4"),
        DAMAGED.format("zip"),
    ),
    "zip, empty": (zipped({"1.jpg": b"", **GOOD}), "empty-file: 0 bytes"),
    "tar, absolute name": (tarred({"/1.jpg": JPEG, **GOOD}), "its name leads out of a.tar"),
    "tar, name above": (tarred({"../1.jpg": JPEG, **GOOD}), "its name leads out of a.tar"),
    "tar, twice": (tarred({"1.jpg": JPEG, "1.jpg+": JPEG, **GOOD}), "is in a.tar more than once"),
    "tar, link": (
        tarred(GOOD, 2, special("1.jpg", tarfile.SYMTYPE, "2.jpg")),
        "is a symbolic link in a tar",
    ),
    "tar, link to nothing": (
        tarred(GOOD, 2, special("1.jpg", tarfile.LNKTYPE, "3")),
        "is a link to '3' in a tar",
    ),
    "tar, device": (
        tarred(GOOD, 2, special("1.jpg", tarfile.CHRTYPE)),
        "is a device or pipe in a tar",
    ),
    "tar, pipe": (
        tarred(GOOD, 2, special("1.jpg", tarfile.FIFOTYPE)),
        "is a device or pipe in a tar",
    ),
    "tar, large": (tarred({"1.jpg": bytes(1001), **GOOD}), "file-too-large: more than 1000 bytes"),
    "tar, empty": (tarred({"1.jpg": b"", **GOOD}), "empty-file: 0 bytes"),
}


def test_archives_in_archives_must_be_unpacked(tmp_path: Path) -> None:
    files = {"1.jpg": JPEG, "more.zip": b"", "more.7z": b"", "more.txt": b""}
    for form, pack in (("zip", zipped), ("tar", tarred)):
        path = tmp_path / f"a.{form}"
        path.write_bytes(pack(files))
        found, kinds = listed(path)
        assert [*found] == [f"{tmp_path}/a/1.jpg"]
        assert kinds == {".zip in an archive": 1, ".7z in an archive": 1, ".txt": 1}
        assert (count_archives(kinds), count_packed(kinds)) == (0, 2)
    write_files(tmp_path, {"b.rar": b"", "c.tar.gz": b"", "1.jpg": JPEG, "1.NEF": b""})
    kinds = listed(tmp_path)[1]
    assert (count_archives(kinds), count_packed(kinds), count_raw(kinds)) == (2, 2, 1)
    told = describe_skipped(kinds)
    assert "archives such as these must be unpacked: 1 .rar, 1 .tar.gz" in told
    assert "raw camera photos (1 .NEF) must be developed" in told


@pytest.mark.parametrize(
    ("kind", "cure"),
    [
        (".dcm", "dcmj2pnm --write-png"),
        (".MP4", "ffmpeg -i"),
        (".npy", "`encoding=array`"),
        (".mat", "Image.fromarray"),
        (".nii", "PNG"),
        (".NEF", "darktable-cli"),
        ("other names", ""),
    ],
)
def test_files_that_hold_pixels_are_told_with_what_makes_images(kind: str, cure: str) -> None:
    texts = [*describe_other_files({kind: 2})]
    assert len(texts) == bool(cure)
    assert all(f"(2 {kind})" in text and cure in text for text in texts)


@pytest.mark.parametrize(
    ("name", "data", "cure"),
    [
        ("a.zip", changed(zipped(TWO), 34, "<H", 1), "`zip -s 0 FILE -O whole.zip` joins"),
        ("a.zip", b"7z\xbc\xaf\x27\x1c", "its content is that of a .7z: unpack it"),
        ("a.zip", b"Rar!\x1a", "its content is that of a .rar: unpack it"),
        ("a.zip", b"\n<!DOCTYPE html>", "a web page: download the archive again"),
        ("a.zip", zipped(TWO)[:-9], "copy or create it again"),
        ("a.tar", zipped(TWO), "its content is that of a .zip: rename it"),
        ("a.tar", gzip.compress(tarred(TWO)), "compressed as a whole: decompress it"),
        ("a.tar", b"\x28\xb5\x2f\xfd" + bytes(999), "compressed as a whole: decompress it"),
        ("a.tar", b"x" * 999, "copy or create it again"),
    ],
)
def test_archives_that_cannot_be_read_are_told_by_their_content(
    name: str, data: bytes, cure: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(DataError, match=re.escape(cure)):
        listed(tmp_path / name)


@pytest.mark.parametrize("what", REJECTED)
def test_an_image_that_cannot_be_read_is_a_reject(tmp_path: Path, what: str) -> None:
    data, expected = REJECTED[what]
    path = tmp_path / f"a.{what[:3]}"
    path.write_bytes(data)
    found = listed(path)[0]
    (bad,) = (path for path in found if path.endswith("1.jpg"))
    assert found.pop(bad) == expected
    assert found == ({f"{tmp_path}/a/2.jpg": JPEG} if "2.jpg" in str(data) else {})


def test_archives_on_gcs_are_read_as_those_on_a_disk(fake: FakeGcs, tmp_path: Path) -> None:
    for what, (data, _) in REJECTED.items():
        name = f"a.{what[:3]}"
        fake.put(name, data)
        (tmp_path / name).write_bytes(data)
        on_disk, skipped = listed(tmp_path / name)
        assert listed(f"gs://b/{name}") == (
            {f"gs://b{path.removeprefix(str(tmp_path))}": of for path, of in on_disk.items()},
            skipped,
        ), what


def header(**fields: int) -> bytes:
    """A tar of one header, with other numbers in it."""
    member = tarfile.TarInfo("1.jpg")
    block = bytearray(member.tobuf(tarfile.GNU_FORMAT))
    block[124:136] = b"\xff" + fields["size"].to_bytes(11, "big", signed=True)
    block[148:156] = b"%06o\0 " % tarfile.calc_chksums(block[:512])[0]
    return bytes(block)


def extended(content: bytes) -> bytes:
    """A pax header with this content."""
    member = tarfile.TarInfo("pax")
    member.type, member.size = tarfile.XHDTYPE, len(content)
    return member.tobuf(tarfile.USTAR_FORMAT) + content + bytes(-len(content) % 512)


WHOLE_TAR, LONG = tarred(TWO), tarred({"1.jpg": bytes(5000), **GOOD})
BROKEN: dict[str, tuple[bytes, str]] = {
    "zip, cut": (zipped(TWO)[:-30], "File is not a zip file"),
    "zip, not at all": (JPEG, "File is not a zip file"),
    "zip, no byte": (b"", "File is not a zip file"),
    "zip, cut directory": (changed(zipped(TWO), 12, "<I", 1 << 30, signature=b"PK\5\6"), ""),
    "zip, bad row": (changed(zipped(TWO), 0, "<I", 0), "Bad magic number for central directory"),
    "zip, no UTF-8": (
        changed(changed(zipped(TWO), 46, "<B", 255), 8, "<H", 0x800),
        "'utf-8' codec can't decode",
    ),
    "tar, no byte": (b"", "empty file"),
    "tar, not at all": (JPEG * 99, ""),
    "tar, compressed": (gzip.compress(WHOLE_TAR, mtime=0), ""),
    "tar, cut in an image": (LONG[:3000], "unexpected end of data"),
    "tar, cut in a header": (
        LONG[: 512 + 5120 + 100],
        "it is cut off, damaged or joined with another tar at byte 5,632",
    ),
    "tar, cut between images": (
        LONG[: 512 + 5120],
        "it is cut off, damaged or joined with another tar at byte 5,632",
    ),
    "tar, damaged header": (
        LONG[:5640] + b"x" + LONG[5641:],
        "it is cut off, damaged or joined with another tar at byte 5,632",
    ),
    "tar, joined": (
        WHOLE_TAR + WHOLE_TAR,
        "it is cut off, damaged or joined with another tar at byte 2,048",
    ),
    "tar, negative size": (header(size=-1024) + WHOLE_TAR, ""),
    "tar, huge size": (header(size=1 << 60) + WHOLE_TAR, ""),
    "tar, many digits": (
        extended(b"1" * 250_000) + WHOLE_TAR,  # 1 MB took hours
        "the pax header at byte 512 has invalid records",
    ),
    "tar, digits in a record": (
        extended(b"250012 path=" + b"1" * 249_999 + b"\n") + WHOLE_TAR,
        "the pax header at byte 512 has invalid records",
    ),
    "tar, keys within keys": (
        extended(b"3 a" * 80_000 + b"=") + WHOLE_TAR,  # took 10 GB
        "the pax header at byte 512 has invalid records",
    ),
    "tar, long header": (
        extended(bytes(300_000)) + WHOLE_TAR,
        "the header at byte 512 states a length of more than 256 KiB",
    ),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_archive_is_an_error_that_names_it(tmp_path: Path, what: str) -> None:
    data, cause = BROKEN[what]
    path = tmp_path / f"a.{what[:3]}"
    path.write_bytes(data)
    with pytest.raises(DataError) as caught:
        listed(path)
    assert str(caught.value).startswith(f"{path} cannot be read as {what[:3]}: {cause}"), (
        caught.value
    )
    cure = "decompress it" if what == "tar, compressed" else "copy or create it again"
    assert cure in str(caught.value)


def test_files_at_the_same_position_of_a_zip_are_rejects(tmp_path: Path) -> None:
    """A zip of 77 kB took a minute of CPU: 200 names for one large image."""
    shared = bytearray(zipped({"0.jpg": JPEG, **TWO}))
    second = shared.rindex(b"PK\1\2")
    first = shared.rindex(b"PK\1\2", 0, second)
    shared[second + 42 : second + 46] = shared[first + 42 : first + 46]
    (tmp_path / "a.zip").write_bytes(shared)
    found, _ = listed(tmp_path / "a.zip")
    problem = "has the same position in the zip as another file: create the zip again"
    assert found == {
        f"{tmp_path}/a/0.jpg": JPEG,
        f"{tmp_path}/a/1.jpg": problem,
        f"{tmp_path}/a/2.jpg": problem,
    }


def test_a_hard_link_in_a_tar_is_its_file(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(tarred(GOOD, 2, special("1.jpg", tarfile.LNKTYPE, "2.jpg")))
    assert listed(tmp_path / "a.tar")[0] == {
        f"{tmp_path}/a/1.jpg": JPEG,
        f"{tmp_path}/a/2.jpg": JPEG,
    }


@pytest.mark.parametrize("form", ["zip", "tar"])
def test_an_archive_that_changes_after_it_was_listed_is_found_out(
    tmp_path: Path, form: str
) -> None:
    path, make = tmp_path / f"a.{form}", {"zip": zipped, "tar": tarred}[form]
    path.write_bytes(make(TWO))
    entries = {entry.path: entry for entry in match_files([(str(path), ())])}
    os.utime(path, ns=(1, 1))
    for entry in entries.values():
        with pytest.raises(
            RejectError, match=rf"changed-while-reading: it was changed .* \(a\.{form}\)"
        ):
            read_image(entry)
    path.write_bytes(make({"0.jpg": b"new", **TWO}))
    again = {entry.path: entry for entry in match_files([(str(path), ())])}
    for entry in entries.values():
        now = again[entry.path]
        assert now.place != entry.place
        assert read_image(now) == TWO[os.path.basename(entry.path)]
        # a zip tells which images are the same
        assert (now.generation == entry.generation) == (form == "zip")


@pytest.mark.parametrize(
    "name", ["a.tar.gz", "a.tgz", "a.tar.zst", "a.tbz2", "a.txz", "a.7z", "a.RAR"]
)
def test_what_cannot_be_read_at_random_says_so(tmp_path: Path, name: str) -> None:
    with pytest.raises(
        UsageError, match="images in it cannot be read one by one: unpack it, or turn it"
    ):
        beam_tfr.convert(input=tmp_path / name, output=tmp_path / "out")


def test_an_archive_holds_no_files_of_other_kinds(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match="stands for images in archives, but `encoding=bytes` reads files"
    ):
        beam_tfr.convert(input=tmp_path / "a.zip", output=tmp_path / "out", encoding="bytes")


def converted(
    source: Path | str | list[str], output: Path | str, **options: object
) -> beam_tfr.Result:
    layout = {"layout": "{split}/{label}/*"} if "layout" not in options else {}
    return beam_tfr.convert(
        input=source, output=output, progress=False, name="d", **layout, **options
    )


def digest_of(result: beam_tfr.Result) -> str:
    return str(result.manifest.fields["dataset_digest"])


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    shutil.copytree(once("photos", write_photos), tmp_path / "photos")
    return tmp_path / "photos"


@pytest.mark.slow
def test_a_zip_gives_the_dataset_of_its_folder_also_after_updates(
    photos: Path, tmp_path: Path
) -> None:
    archive, output = packed(photos, "zip"), tmp_path / "out"
    of_zip, of_folder = converted(archive, output), converted(photos, tmp_path / "of folder")
    assert digest_of(of_zip) == digest_of(of_folder)
    assert of_zip.manifest.fields["input_digest"] == of_folder.manifest.fields["input_digest"]
    assert beam_tfr.verify(output, sources=archive, progress=False).ok
    assert not converted(archive, output).fresh

    first, second, third = sorted(photos.rglob("*.jpg"))[:3]
    shutil.copy(second, first)
    third.rename(third.with_name("0.jpg"))
    report = beam_tfr.verify(output, sources=packed(photos, "zip"), progress=False)
    assert sorted(problem.kind for problem in report.problems) == [
        "source-changed",
        "source-gone",
        "source-new",
    ]
    updated = beam_tfr.update(output, input=archive, progress=False)
    assert updated.changed == {"added": 1, "removed": 1, "changed": 1, "relabelled": 0}
    assert digest_of(updated) == digest_of(converted(photos, tmp_path / "again"))
    assert beam_tfr.verify(output, sources=[photos], progress=False).ok


def test_sources_that_became_bombs_are_not_unpacked(photos: Path, tmp_path: Path) -> None:
    archive = packed(photos, "zip")
    converted(archive, tmp_path / "out", max_file_bytes=1 << 20)
    with zipfile.ZipFile(archive) as opened:
        names = [name for name in opened.namelist() if not name.endswith("/")]
    archive.write_bytes(zipped(dict.fromkeys(names, bytes(5 << 20))))
    report = beam_tfr.verify(tmp_path / "out", sources=archive, progress=False)
    assert {problem.kind for problem in report.problems} == {"source-unreadable"}
    assert "more than 1048576 bytes" in str(report.problems[0])


def test_a_reject_of_an_archive_that_was_mended_is_read_again(photos: Path, tmp_path: Path) -> None:
    archive = packed(photos, "zip")
    whole = archive.read_bytes()
    archive.write_bytes(
        changed(whole, 16, "<I", 7, signature=b"PK\1\2" + bytes([20, 3, 20, 0, 0, 0, 8]))
    )
    made = converted(archive, tmp_path / "out", max_rejects=1)
    assert made.manifest.counts["rejected"] == {"unusable-file": 1}
    archive.write_bytes(b"moved by these bytes" + whole)
    mended = beam_tfr.update(tmp_path / "out", input=archive, progress=False)
    assert mended.manifest.counts["rejected"] == {}
    assert digest_of(mended) == digest_of(converted(photos, tmp_path / "of folder"))


def test_a_tar_for_each_class_gives_their_labels(photos: Path, tmp_path: Path) -> None:
    for folder in (photos / "train").iterdir():
        packed(folder, "tar")
        shutil.rmtree(folder)
    made = converted(f"{photos}/train/*.tar", tmp_path / "out", layout="{label}/*")
    assert made.manifest.class_names == ("hat", "shoes", "t-shirt")
    assert digest_of(made) == digest_of(
        converted(once("photos", write_photos) / "train", tmp_path / "2", layout="{label}/*")
    )
    assert beam_tfr.verify(tmp_path / "out", sources=f"{photos}/train/*.tar", progress=False).ok


def test_two_zips_of_windows_give_the_dataset_of_their_folders(
    photos: Path, tmp_path: Path
) -> None:
    for folder in sorted(photos.iterdir()):
        names = {f"{path.relative_to(folder)}": path for path in folder.rglob("*.jpg")}
        files = {name.replace("/", "\\"): path.read_bytes() for name, path in names.items()}
        (tmp_path / f"{folder.name}.zip").write_bytes(zipped_as_is(files))
    made = converted(f"{tmp_path}/*.zip", tmp_path / "out")
    assert digest_of(made) == digest_of(converted(photos, tmp_path / "of folders"))


@pytest.mark.parametrize("sources", [["a.tar"], ["a.tar", "b.tar"], ["folder"]])
def test_backslashes_elsewhere_are_told(tmp_path: Path, sources: Sequence[str]) -> None:
    files = {"train\\cat\\1.jpg": JPEG, "train\\dog\\2.jpg": JPEG}
    for name in ("a.tar", "b.tar"):
        (tmp_path / name).write_bytes(tarred(files))
    write_files(tmp_path / "folder", files)
    given: list[str | Path] = [tmp_path / name for name in sources]
    for call in (beam_tfr.plan, beam_tfr.convert):
        for layout in ("{label}/*", "{label}/**"):
            with pytest.raises(UsageError, match=r"backslash .*tar --transform"):
                call(input=given, output=tmp_path / "out", layout=layout, progress=False)


def test_archives_in_a_folder_are_told(photos: Path, tmp_path: Path) -> None:
    packed(photos, "zip").rename(photos / "more.zip")
    assert converted(photos, tmp_path / "out").run["archives"] == 1
    (tmp_path / "alone").mkdir()
    (photos / "more.zip").rename(tmp_path / "alone/more.zip")
    with pytest.raises(
        UsageError, match=r"archives \(.*: 1\) are read if they are also given as `input=`"
    ):
        converted(tmp_path / "alone", tmp_path / "out")


def test_an_archive_beside_its_folder_is_not_counted_twice_in_silence(
    photos: Path, tmp_path: Path
) -> None:
    archive = packed(photos, "zip")
    with pytest.raises(
        DataError, match=r"two images have the key t[\w/-]+\.jpg: an archive counts as the folder"
    ):
        converted(
            [str(archive), str(photos)], tmp_path / "out", layout="{label}/*", splits={"train": 1}
        )


@pytest.mark.parametrize("form", ["zip", "tar"])
def test_an_archive_without_images_is_told(tmp_path: Path, form: str) -> None:
    for files in ({}, {"1.txt": b"", "2.zip": b""}):
        (tmp_path / f"a.{form}").write_bytes({"zip": zipped, "tar": tarred}[form](files))
        with pytest.raises(UsageError, match=r"matches no image: .* or archives hold no images"):
            converted(tmp_path / f"a.{form}", tmp_path / "out")


@pytest.mark.slow
def test_archives_on_gcs(fake: FakeGcs, photos: Path, tmp_path: Path) -> None:
    expected = digest_of(converted(photos, tmp_path / "local"))
    for split in ("train", "test"):
        fake.put(f"of splits/{split}.tar", packed(photos / split, "tar").read_bytes())
        (photos / f"{split}.tar").unlink()
    fake.put("photos.zip", packed(photos, "zip").read_bytes())
    for number, (pattern, requests) in enumerate(
        {"gs://b/photos.zip": 3, "gs://b/of splits/*.tar": 2}.items()
    ):
        fake.take_log()
        assert digest_of(converted(pattern, f"gs://b/{number}")) == expected
        log = [
            of
            for of in fake.take_log()
            if of["name"].endswith((".zip", ".tar")) and of.get("alt") == "media"
        ]
        assert all("ifGenerationMatch" in of for of in log)
        # each is read once for the sample and once for its record
        assert len(log) - 2 * IMAGES <= requests
    assert beam_tfr.verify("gs://b/1", sources="gs://b/of splits/*.tar", progress=False).ok
    fake.put("of splits/test.tar", packed(photos / "train", "tar").read_bytes())
    assert not beam_tfr.verify("gs://b/1", sources="gs://b/of splits/*.tar", progress=False).ok


@pytest.mark.slow
def test_a_damaged_archive_is_one_reject_if_rejects_are_allowed(
    photos: Path, tmp_path: Path
) -> None:
    good, bad = packed(photos / "train", "zip"), packed(photos / "test", "tar")
    whole = bad.read_bytes()
    bad.write_bytes(whole[:-20_000])
    with pytest.raises(DataError, match=rf"^{bad} cannot be read as tar: .*`max_rejects=1`"):
        converted([str(good), str(bad)], tmp_path / "out")
    sources = [str(good), str(bad)]
    made = converted(sources, tmp_path / "out", max_rejects=1)
    assert made.manifest.counts["rejected"] == {"unusable-file": 1}
    (reject,) = made.rejects
    assert (reject.key, reject.stage) == ("test.tar", "MatchImages")
    assert reject.detail.startswith("cannot be read as tar: ")
    assert beam_tfr.verify(tmp_path / "out", sources=sources, progress=False).ok
    preview = beam_tfr.plan(
        input=sources,
        output=tmp_path / "other",
        layout="{split}/{label}/*",
        max_rejects=1,
        progress=False,
    )
    assert preview.rejects == {"unusable-file": 1}
    shard = next((tmp_path / "out").glob("*.gz"))
    shard.write_bytes(b"damaged")
    launch.repair(str(tmp_path / "out"), {"input": tuple(sources)})
    assert beam_tfr.verify(tmp_path / "out", sources=sources, progress=False).ok
    bad.write_bytes(whole)
    mended = beam_tfr.update(tmp_path / "out", input=sources, progress=False)
    assert mended.manifest.counts["rejected"] == {}
    assert digest_of(mended) == digest_of(converted(photos, tmp_path / "of folder"))
