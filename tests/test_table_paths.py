"""Paths in tables and lists that are spelled as elsewhere, and rows whose files are not there."""

from __future__ import annotations

import base64
import errno
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas
import pytest
from hypothesis import given
from hypothesis import strategies as st

import beam_tfr
from beam_tfr import storage
from beam_tfr.inputs.input_lists import read_input_list
from beam_tfr.inputs.patterns import mark_folders
from beam_tfr.inputs.reading import read_image
from beam_tfr.inputs.spellings import list_spellings
from beam_tfr.options import ConvertOptions
from beam_tfr.schema.errors import DataError, InputNotFoundError, RejectError, RunError, UsageError
from beam_tfr.schema.items import ImageRef
from beam_tfr.tables.finding import find_content, find_tables
from beam_tfr.tables.opening import open_tables
from beam_tfr.tables.rows import Tables
from tests.conftest import Run
from tests.fake_gcs import FakeGcs
from tests.image_tables import JPEG

Command = Callable[..., Run]


def opened(path: Path | str, **options: Any) -> Tables:
    checked = ConvertOptions(table=(path,), output="/o", uri_column="path", **options)
    return open_tables(find_content(checked))


def write_table(path: Path, *cells: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"path": cell}) + "\n" for cell in cells))
    return path


def read(folder: Path, *cells: str, **options: Any) -> list[ImageRef]:
    tables = opened(write_table(folder / "t.jsonl", *cells), **options)
    return [*tables.read(tables.files[0])]


COMPOSED = "gr\u00fcn.jpg"
DECOMPOSED = "gru\u0308n.jpg"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in (
        "images/1.jpg",
        "images/a b.jpg",
        "2.jpg",
        "really\\3.jpg",
        "really/3.jpg",
        DECOMPOSED,
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(JPEG)
    return tmp_path


@pytest.mark.parametrize(
    ("cell", "key"),
    [
        ("images/1.jpg", "images/1.jpg"),
        ("images\\1.jpg", "images/1.jpg"),
        (".\\images\\1.jpg", "images/1.jpg"),
        ("really\\3.jpg", "really\\3.jpg"),
        ("images/a%20b.jpg", "images/a b.jpg"),
        ("images\\a%20b.jpg ", "images/a b.jpg"),
        (" 2.jpg\n", "2.jpg"),
        ("other\\..\\2.jpg", "2.jpg"),
        ("images\\9.jpg", "images\\9.jpg"),
        ("$HOME/1.jpg", "$HOME/1.jpg"),
        (COMPOSED, DECOMPOSED),
        (DECOMPOSED, DECOMPOSED),
    ],
)
def test_the_file_is_found_that_a_path_means(folder: Path, cell: str, key: str) -> None:
    (ref, plain) = read(folder, cell, "other.jpg")
    assert (ref.key, ref.reason, plain.key) == (key, "", "other.jpg")


def test_another_file_than_the_one_that_is_written_is_told(folder: Path) -> None:
    tables = opened(write_table(folder / "t.jsonl", "2.jpg", "images\\1.jpg"))
    (warning,) = tables.warnings
    assert "images/1.jpg for images\\1.jpg" in warning
    tables = opened(write_table(folder / "t.jsonl", "2.jpg", "really\\3.jpg"))
    assert not any(" for really" in line for line in tables.warnings)


def test_a_path_that_leads_up_starts_from_the_table_too(folder: Path) -> None:
    for cell in ("..\\images\\1.jpg", "../images/1.jpg"):
        (ref,) = read(folder / "tables", cell, image_root=str(folder))
        assert ref.key == "images/1.jpg"


@pytest.mark.parametrize("start", ["file://", "file://localhost", "file:", "FILE://", " file://"])
def test_addresses_of_files(folder: Path, start: str) -> None:
    cells = (f"{start}{folder}/images/a%20b.jpg", f"{folder}/2.jpg")
    assert [ref.key for ref in read(folder, *cells)] == ["images/a b.jpg", "2.jpg"]


def test_the_home_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(folder))
    assert [ref.key for ref in read(folder, "~/2.jpg", "~/images/1.jpg")] == [
        "2.jpg",
        "images/1.jpg",
    ]
    (_, ref) = read(folder, "~/2.jpg", "~/9.jpg")
    assert ref.reason == "bad-value"
    assert f"'~/9.jpg' means {folder}/9.jpg here" in ref.detail


@pytest.mark.parametrize(
    ("cell", "problem"),
    [
        ("http://example.org/9.jpg", "'http://example.org/9.jpg': only local paths and gs://"),
        ("s3://bucket/9.jpg", "only local paths and gs://"),
        ("file://server/1.jpg", "'file://server/1.jpg': only local paths"),
        ("data:image/jpeg;base64,/9j/4AAQ", "is an image itself"),
        ("/elsewhere/1.jpg", "/elsewhere/1.jpg is not in "),
        ("../1.jpg", "/1.jpg is not in "),
        ("gs://b/1.jpg", "gs://b/1.jpg is not in "),
    ],
)
def test_a_path_that_cannot_be_used_costs_its_row(folder: Path, cell: str, problem: str) -> None:
    (ref, other) = read(folder, cell, "2.jpg")
    assert (ref.reason, other.reason) == ("bad-value", "")
    assert problem in ref.detail
    table = write_table(folder / "t.jsonl", cell)
    if cell.startswith(("http", "data")):
        with pytest.raises(UsageError, match=r"none of the 1 rows .* t\.jsonl#1: .*only "):
            beam_tfr.convert(table=table, uri_column="path", output=folder / "out", progress=False)


FOREIGN = (
    *("/home/bob/data", "C:\\data", "data/old", "\\\\server\\share"),
    *("file:///home/bob/data", "file:/C:/data", "/data/local-files/?d=data"),
    "s3://bucket/data",
)


@pytest.mark.parametrize("start", FOREIGN)
@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet"])
def test_paths_of_another_machine_are_found_by_their_ends(
    tmp_path: Path, start: str, suffix: str
) -> None:
    separator = "\\" if "\\" in start else "/"
    names = ("img/a.jpg", "img/b/c.jpg", "d.jpg")
    cells = [separator.join([start, *name.split("/")]) for name in names]
    for name in names[:2]:
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_bytes(b"x")
    frame = pandas.DataFrame({"path": cells})
    table = tmp_path / f"t.{suffix}"
    if suffix == "csv":
        frame.to_csv(table, index=False)
    elif suffix == "parquet":
        frame.to_parquet(table)
    else:
        frame.to_json(table, orient="records", lines=True)
    tables = opened(table)
    assert [ref.key for ref in tables.read(str(table))] == [*names]
    (line,) = [line for line in tables.warnings if "without the prefix" in line]
    assert str(tmp_path) in line
    below = opened(write_table(tmp_path / "tables/t.jsonl", *cells), image_root=str(tmp_path))
    assert [ref.key for ref in below.read(below.files[0])] == [*names]


def test_paths_of_another_machine_start_from_the_folder_of_the_table(tmp_path: Path) -> None:
    (tmp_path / "data/img").mkdir(parents=True)
    (tmp_path / "data/img/a.jpg").write_bytes(b"x")
    tables = opened(write_table(tmp_path / "data/t.jsonl", "/home/bob/data/img/a.jpg"))
    assert [ref.key for ref in tables.read(tables.files[0])] == ["img/a.jpg"]


def test_copies_of_images_on_gcs(
    tmp_path: Path, fake: FakeGcs, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "img").mkdir()
    (tmp_path / "img/a.jpg").write_bytes(b"x")
    cell = "gs://b/data/img/a.jpg"
    table = write_table(tmp_path / "t.jsonl", cell)
    tables = opened(table)
    assert [tables.root + ref.key for ref in tables.read(str(table))] == [f"{tmp_path}/img/a.jpg"]
    assert "without the prefix gs://b/data/" in tables.warnings[0]
    fake.put("data/img/a.jpg", b"y")
    tables = opened(table)
    assert [tables.root + ref.key for ref in tables.read(str(table))] == [cell]
    assert not tables.warnings

    def refuse(path: str) -> storage.Entry | None:
        if storage.is_gcs(path):
            raise PermissionError(errno.EACCES, "no access")
        return find(path)

    find = storage.find
    monkeypatch.setattr(storage, "find", refuse)
    (line,) = opened(table).warnings
    assert "(no access); without the prefix gs://b/data/" in line
    assert not opened(table).prefix


def test_paths_of_another_machine_must_be_certain(tmp_path: Path) -> None:
    for name in ("a.jpg", "img/a.jpg", "x.jpg"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    for cells in (["/bob/img/a.jpg"], ["/bob/a.jpg", str(tmp_path / "x.jpg")], ["/bob/9.jpg"]):
        tables = opened(write_table(tmp_path / "t.jsonl", *cells))
        assert not tables.prefix
        assert [tables.root + ref.key for ref in tables.read(tables.files[0])] == cells


def test_a_name_that_differs_by_case_alone_is_found_and_told(tmp_path: Path) -> None:
    for name in ("im9.jpg", "Sub/b.JPG", "two.jpg", "TWO.jpg"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    cells = ("IM9.JPG", "sub/B.jpg", "two.jpg", "Two.jpg", "none.jpg")
    tables = opened(write_table(tmp_path / "t.jsonl", *cells))
    refs = [*tables.read(tables.files[0])]
    assert [ref.key for ref in refs[:3]] == ["im9.jpg", "Sub/b.JPG", "two.jpg"]
    assert "may be any of TWO.jpg; two.jpg" in refs[3].detail
    assert refs[4].key == "none.jpg"
    (line,) = [line for line in tables.warnings if "only in case" in line]
    assert "im9.jpg for IM9.JPG" in line
    assert not opened(write_table(tmp_path / "t.jsonl", "im9.jpg", "none.jpg")).warnings


def test_a_reject_names_the_file_that_is_nearly_meant(tmp_path: Path) -> None:
    for name in ("im9.jpg", "7.png"):
        (tmp_path / name).write_bytes(b"x")
    for name, near in {"IM9.JPG": "im9.jpg", "7.jpg": "7.png"}.items():
        file = storage.Entry(str(tmp_path / name), 0, 0)
        with pytest.raises(RejectError, match=f"there is {near}"):
            read_image(file, root=f"{tmp_path}/")


def test_no_image_at_its_place_is_told_with_the_cure(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "images/a.jpg").write_bytes(b"x")
    table = write_table(tmp_path / "t.jsonl", "photos/b.jpg", "photos/c.jpg")
    with pytest.raises(DataError, match=r"`image_root=` if paths are relative to another folder"):
        beam_tfr.convert(
            table=table, uri_column="path", output=tmp_path / "d", max_rejects=1, progress=False
        )
    line = opened(table).missing
    assert "photos/b.jpg" in line
    assert "`image_root=`" in line
    assert not opened(write_table(tmp_path / "t.jsonl", "photos/b.jpg", "images/a.jpg")).missing


@pytest.mark.parametrize(
    ("cell", "content"),
    [
        (base64.b64encode(JPEG).decode(), "base64"),
        (base64.b64encode(JPEG * 200).decode(), "base64"),
        (" ".join(["70", "80", "255"] * 768), "pixel values"),
        (str([[0, 1, 2, 3] * 8] * 8), "pixel values"),
        (str(JPEG), "bytes"),
        ("data:image/jpeg;base64," + base64.b64encode(JPEG).decode(), "image itself"),
        ("https://x.org/1.jpg", "gs://"),
    ],
)
def test_a_cell_that_holds_an_image_or_an_address_is_told_as_such(
    tmp_path: Path, cell: str, content: str
) -> None:
    """It costs its row, and no message shows all of it or names a folder as the cure."""
    tables = opened(write_table(tmp_path / "t.jsonl", cell, cell))
    (ref, _) = tables.read(tables.files[0])
    assert ref.reason == "bad-value"
    for message in (tables.missing, ref.detail, *tables.warnings):
        assert len(message) < 300
        assert "image_root" not in message
    assert content in tables.missing
    assert content in ref.detail


@pytest.mark.parametrize("folder_of_file", ["", "a/", "host/b/a/"])
def test_addresses_of_the_web_are_read_from_downloads(tmp_path: Path, folder_of_file: str) -> None:
    """Their folders are left out at the beginning, as those of buckets are."""
    folder = tmp_path / folder_of_file
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "1.jpg").write_bytes(JPEG)
    tables = opened(write_table(tmp_path / "t.jsonl", "https://host/b/a/1.jpg"))
    (ref,) = tables.read(tables.files[0])
    assert f"{tables.root}{ref.key}" == f"{folder}/1.jpg"


@pytest.mark.parametrize("inner", ["", "img/"])
def test_addresses_of_the_web_have_a_cure_that_finds_downloads(tmp_path: Path, inner: str) -> None:
    """The names that are left by the line of pandas are files."""
    cells = ["https://host/a/1.jpg?sig=x/y", "https://host/b/2.jpg?sig=z"]
    for name in ("1.jpg", "2.jpg"):
        (tmp_path / inner).mkdir(exist_ok=True)
        (tmp_path / inner / name).write_bytes(JPEG)
    missing = opened(write_table(tmp_path / "t.jsonl", *cells)).missing
    line = ".str.split('?').str[0].str.rsplit('/', n=1).str[1]"
    assert f"table[NAME] = table[NAME]{line}" in missing
    names = pandas.Series(cells).str.split("?").str[0].str.rsplit("/", n=1).str[1]
    root = str(tmp_path / inner).rstrip("/")
    assert (f"`image_root={root}`" in missing) == bool(inner)
    assert [ref.reason for ref in read(tmp_path, *names, image_root=root)] == ["", ""]


@pytest.mark.parametrize("inner", ["", "img/"])
def test_codes_of_label_studio_have_a_cure_that_finds_originals(tmp_path: Path, inner: str) -> None:
    cells = ["/data/upload/1/0a1b2c3d-cat.jpg", "/data/upload/1/ffffffff-a-b.jpg"]
    (tmp_path / inner).mkdir(exist_ok=True)
    for name in ("cat.jpg", "a-b.jpg"):
        (tmp_path / inner / name).write_bytes(JPEG)
    missing = opened(write_table(tmp_path / "t.jsonl", *cells)).missing
    line = ".str.replace('^.*/[0-9a-f]{8}-', '', regex=True)"
    assert f"table[NAME] = table[NAME]{line}" in missing
    names = pandas.Series(cells).str.replace("^.*/[0-9a-f]{8}-", "", regex=True)
    root = str(tmp_path / inner).rstrip("/")
    assert (f"`image_root={root}`" in missing) == bool(inner)
    assert [ref.reason for ref in read(tmp_path, *names, image_root=root)] == ["", ""]


def test_a_plan_names_the_cure_if_no_file_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "cat.jpg").write_bytes(JPEG)
    table = write_table(tmp_path / "t.jsonl", "/data/upload/1/0a1b2c3d-cat.jpg")
    with pytest.raises(RunError, match=r"can be read.*Label Studio put a code before"):
        beam_tfr.plan(table=str(table), output=str(tmp_path / "out"), uri_column="path")


@pytest.mark.parametrize("folders", [("",), ("VG_100K/",), ("VG_100K/", "VG_100K_2/")])
@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_a_whole_number_is_a_name_without_extension(
    tmp_path: Path, folders: Sequence[str], suffix: str
) -> None:
    """As `image_id` in Visual Genome, whose images are in two folders."""
    keys = [f"{folders[number % len(folders)]}{number}.jpg" for number in range(4)]
    for key in keys:
        (tmp_path / key).parent.mkdir(exist_ok=True)
        (tmp_path / key).write_bytes(JPEG)
    table = pandas.DataFrame({"path": range(4)})
    path = tmp_path / f"t.{suffix}"
    if suffix == "jsonl":
        table.to_json(path, orient="records", lines=True)
    else:
        table.to_parquet(path)
    root = "" if len(folders) > 1 else str(tmp_path / folders[0])
    tables = opened(path, image_root=root)
    refs = [*tables.read(str(path))]
    assert [f"{tables.root}{ref.key}" for ref in refs] == [f"{tmp_path}/{key}" for key in keys]
    assert not any(ref.reason for ref in refs)


def test_the_folder_of_most_paths_is_the_root(folder: Path) -> None:
    cells = (f"{folder}/images/1.jpg", "gs://b/1.jpg", f"{folder}/2.jpg")
    assert [ref.reason for ref in read(folder, *cells)] == ["", "bad-value", ""]


def test_paths_on_gs(gcs: str) -> None:
    for name in ("images/1.jpg", "images/a b.jpg", "images/real%20.jpg"):
        storage.write_bytes(f"{gcs}/{name}", JPEG, scratch="")
    cells = ("images\\1.jpg", f"{gcs}/images/a%20b.jpg", "images/real%20.jpg", "images/no%20.jpg")
    rows = "".join(json.dumps({"path": cell}) + "\n" for cell in cells)
    storage.write_bytes(f"{gcs}/t.jsonl", rows.encode(), scratch="")
    keys = [ref.key for ref in opened(f"{gcs}/t.jsonl").read(f"{gcs}/t.jsonl")]
    assert keys == ["images/1.jpg", "images/a b.jpg", "images/real%20.jpg", "images/no%20.jpg"]


def test_paths_of_another_machine_are_found_on_gs(gcs: str) -> None:
    storage.write_bytes(f"{gcs}/data/img/1.jpg", JPEG, scratch="")
    row = json.dumps({"path": "C:\\bob\\data\\img\\1.jpg"})
    storage.write_bytes(f"{gcs}/data/t.jsonl", row.encode(), scratch="")
    (ref,) = opened(f"{gcs}/data/t.jsonl").read(f"{gcs}/data/t.jsonl")
    assert (ref.key, ref.reason) == ("img/1.jpg", "")


def test_lines_of_a_list(folder: Path) -> None:
    lines = (
        f"{folder}\\images\\1.jpg",
        f"{folder}/really\\3.jpg",
        f"file://{folder}/images/a%20b.jpg",
        f"{folder}\\images\\*.jpg",
        f"{folder}/2.jpg ",
        f"{folder}\\9.jpg",
    )
    (folder / "list.txt").write_text("\n".join(lines))
    names = [path.removeprefix(f"{folder}/") for path in read_input_list(f"{folder}/list.txt")]
    assert names[:5] == ["images/1.jpg", "really\\3.jpg", "images/a b.jpg", "images/*.jpg", "2.jpg"]
    with pytest.raises(UsageError, match="a backslash separates folders on Windows only"):
        beam_tfr.plan(input=names[5:], output=folder / "out")


def test_a_missing_line_of_a_list_is_a_reject(tmp_path: Path, photos: Path) -> None:
    images = sorted(map(str, photos.rglob("*.jpg")))[:12]
    label = Path(images[0]).parent.name
    missing = [f"{Path(images[0]).parent}/none.jpg", f"{photos}/nowhere/{label}/none.jpg"]
    lines = tmp_path / "list.txt"
    lines.write_text("\n".join([*images, *missing]))
    call = {"input_list": lines, "layout": "{label}/*", "progress": False}
    done = beam_tfr.convert(**call, output=tmp_path / "d", max_rejects=2)
    assert done.counts["rejected"] == {"not-found": 2}
    assert done.counts["written"] == len(images)
    rejects = (tmp_path / "d/rejects.jsonl").read_text()
    assert all(path.removeprefix(f"{photos}/") in rejects for path in missing)
    assert beam_tfr.plan(**call).plan.matched == len(images) + 2
    lines.write_text("\n".join([*images, f"{photos}/nowhere/*.jpg"]))
    with pytest.raises(UsageError, match="matches no file"):
        beam_tfr.plan(**call)


@given(st.text("a/.", min_size=1))
def test_a_plain_path_has_one_spelling(path: str) -> None:
    assert list_spellings(path, remote=False) == []


def test_files_that_are_not_there_are_rejects_with_what_is_odd(
    beam_tfr: Command, folder: Path
) -> None:
    cells = {
        "C:\\data\\1.jpg": "a backslash separates folders on Windows only",
        "$HOME/1.jpg": "variables such as $HOME are not replaced",
        "nowhere/1.jpg": f"there is no folder {folder}/nowhere",
        "2.jpg/1.jpg": f"there is no folder {folder}/2.jpg",
        "images/9": "its name has no extension",
        "images/ 9.jpg": "it begins or ends with a space",
        "images/%41%42.jpg": "it has percent escapes",
    }
    table = write_table(folder / "t.jsonl", "2.jpg", *cells)
    call = ("convert", "--table", table, "--uri_column", "path", "--output", folder / "out")
    run = beam_tfr(*call, "--max_rejects", len(cells), "--json")
    assert run.json["rejected"] == {"not-found": len(cells)}
    lines = (folder / "out/rejects.jsonl").read_text().splitlines()
    rejects = {reject["key"]: reject["detail"] for reject in map(json.loads, lines)}
    assert rejects.keys() == cells.keys()
    for key, detail in cells.items():
        assert detail in rejects[key]


def test_many_files_that_do_not_exist_are_no_source_that_is_gone(folder: Path) -> None:
    cells = [f"images/{number}" for number in range(10, 130)]
    table = write_table(folder / "t.jsonl", *cells)
    with pytest.raises(RunError, match=r"100 files in a row do not exist.*extension") as caught:
        beam_tfr.convert(
            table=table,
            uri_column="path",
            output=folder / "out",
            num_shards=1,
            max_rejects=1.0,
            progress=False,
        )
    assert "seems to be gone" not in str(caught.value)


def test_a_path_that_exists_is_that_file(tmp_path: Path) -> None:
    """Brackets and braces in the names of folders and files are those of a name there."""
    table = tmp_path / "data [v1]" / "{a,b}.csv"
    table.parent.mkdir()
    table.write_text("a,b\n1,2\n")
    assert find_tables([str(table)]).files == (str(table),)
    assert mark_folders([str(table)]) == (f"{tmp_path}/data [[]v1]/[{{]a,b}}.csv",)


def test_folders_with_brackets_before_a_pattern_are_told(tmp_path: Path) -> None:
    (tmp_path / "photos [2021]" / "a").mkdir(parents=True)
    with pytest.raises(InputNotFoundError) as error:
        find_tables([f"{tmp_path}/photos [2021]/*/*.csv"])
    assert f"'{tmp_path}/photos [[]2021]/*/*.csv'" in str(error.value)
