"""Tars of WebDataset as people make them."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

import beam_tfr
from beam_tfr.features.cells import BadCell
from beam_tfr.inputs.patterns import NOTHING
from beam_tfr.inputs.skipped import SkippedFiles
from beam_tfr.inputs.webdataset import check_webdataset
from beam_tfr.options import ConvertOptions
from beam_tfr.records.examples import serialize
from beam_tfr.records.tfrecords import frame
from beam_tfr.schema.errors import BeamTfrError, DataError, UsageError
from beam_tfr.tables.finding import find_content
from beam_tfr.tables.formats import read_rows
from beam_tfr.tables.opening import open_tables
from beam_tfr.tables.tars import MAX_TEXT_BYTES
from tests.archives import tarred
from tests.image_tables import JPEG, Convert

SAMPLES = {
    f"00{i}.{kind}": data for i in range(3) for kind, data in (("jpg", JPEG), ("cls", b"%d" % i))
}
LABELS = {"t/000.jpg": ("0",), "t/001.jpg": ("1",), "t/002.jpg": ("2",)}


def rows_of(path: Path, **options: Any) -> tuple[dict[str, tuple[str, ...]], dict[str, int]]:
    """Key -> labels of each row of a tar, and kind -> number of the files that are skipped."""
    call = ConvertOptions(table=(str(path),), output="/nowhere", **options)
    tables = open_tables(find_content(call))
    skipped = SkippedFiles((), NOTHING)
    rows = {ref.key: ref.labels for ref in tables.read(str(path), skipped)}
    return rows, dict(skipped.kinds)


def problem_of(path: Path, **options: Any) -> str:
    """The message of the error that a tar is."""
    with pytest.raises(BeamTfrError) as caught:
        rows_of(path, **options)
    return str(caught.value)


def write_tar(folder: Path, files: dict[str, bytes]) -> Path:
    path = folder / "t.tar"
    path.write_bytes(tarred(files))
    return path


@pytest.mark.parametrize(
    ("images", "label"),
    [
        (("JPG", "jpg", "Jpeg"), "cls"),
        (("jpg", "jpg", "JPG"), "cls"),
        (("JPEG", "JPEG", "JPEG"), "cls"),
        (("jpg", "jpg", "jpg"), "CLS"),
        (("JPG", "JPG", "JPG"), "CLS"),
        (("jpg", "jpg", "jpg"), "JSON"),
    ],
)
def test_extensions_may_have_any_case(images: tuple[str, ...], label: str, tmp_path: Path) -> None:
    files = {}
    for number, image in enumerate(images):
        text = json.dumps({"label": number}) if label == "JSON" else str(number)
        files |= {f"{number}.{image}": JPEG, f"{number}.{label}": text.encode()}
    rows, skipped = rows_of(write_tar(tmp_path, files))
    assert rows == {f"t/{number}.{image}": (str(number),) for number, image in enumerate(images)}
    assert not skipped


@pytest.mark.parametrize(("image", "label"), [("JPG", "CLS"), ("jpg", "CLS"), ("Jpg", "cls")])
def test_columns_are_named_in_any_case(image: str, label: str, tmp_path: Path) -> None:
    files = {name.replace("cls", "CLS"): data for name, data in SAMPLES.items()}
    path = write_tar(tmp_path, files)
    rows, _ = rows_of(path, uri_column=image, label_column=label, feature_columns={"CLS": ""})
    assert rows == LABELS


def test_fields_of_json_keep_their_case(tmp_path: Path) -> None:
    path = write_tar(tmp_path, {"0.jpg": JPEG, "0.json": b'{"Label": "a", "CLS": "b"}'})
    assert rows_of(path, label_column="Label")[0] == {"t/0.jpg": ("a",)}
    assert rows_of(path, label_column="CLS")[0] == {"t/0.jpg": ("b",)}
    assert "there is no column 'label'" in problem_of(path, label_column="label")


PAIRS = [(f"{i}.jpg", f"{i}.cls") for i in (1, 2, 3)]


@pytest.mark.parametrize(
    "names",
    [
        ["1.jpg", "2.jpg", "1.cls", "2.cls"],
        ["1.cls", "2.cls", "1.jpg", "2.jpg"],
        ["1.jpg", "2.jpg", "2.cls", "1.cls"],
        ["1.jpg", "1.cls", "2.jpg", "2.cls", "1.json"],
        ["1.jpg", "1.cls", "2.jpg", "2.cls", "1.png", "1.CLS"],
        ["a/1.jpg", "b/1.jpg", "b/1.cls", "a/1.cls"],
    ],
)
def test_files_of_a_sample_that_lie_apart_end_the_run(names: list[str], tmp_path: Path) -> None:
    files = {name: b"{}" if name.endswith("json") else JPEG for name in names}
    files |= {name: b"0" for name in names if name.lower().endswith("cls")}
    problem = problem_of(write_tar(tmp_path, files))
    assert "1'" in problem
    assert "tar --sort=name" in problem


def test_one_sample_of_many_that_lies_apart_ends_the_run(tmp_path: Path) -> None:
    files = {"000.jpg": JPEG}
    for number in range(1, 150):
        files |= {f"{number:03d}.jpg": JPEG, f"{number:03d}.cls": b"0"}
    path = write_tar(tmp_path, {**files, "000.cls": b"0"})
    with pytest.raises(DataError, match=r"000.*tar --sort=name"):
        beam_tfr.convert(table=path, max_rejects=1.0, output=tmp_path / "d")
    assert not (tmp_path / "d" / "manifest.json").exists()


@pytest.mark.parametrize("folders", [("images", "labels"), ("labels", "images")])
def test_labels_in_another_folder_end_the_run(folders: tuple[str, str], tmp_path: Path) -> None:
    kinds = {"images": ("jpg", JPEG), "labels": ("cls", b"0")}
    files = {}
    for folder in folders:
        extension, data = kinds[folder]
        files |= {f"{folder}/{number}.{extension}": data for number in (1, 2)}
    path = write_tar(tmp_path, files)
    assert "in another folder" in problem_of(path)
    rows, skipped = rows_of(path, uri_column="jpg")  # without labels
    assert len(rows) == 2
    assert skipped == {".cls": 2}


def test_samples_of_one_name_in_several_folders(tmp_path: Path) -> None:
    files = {f"{folder}/{name}": data for folder in "ab" for name, data in SAMPLES.items()}
    del files["b/000.jpg"]
    rows, _ = rows_of(write_tar(tmp_path, files))
    assert len(rows) == 6


@pytest.mark.parametrize(
    "strays",
    [
        [f"._{name}" for name in SAMPLES],
        [".DS_Store"],
        ["README"],
        ["README.md", "LICENSE"],
        ["Thumbs.db", "desktop.ini"],
        ["__index__.json"],
        [".ipynb_checkpoints/000.jpg"],
        ["__MACOSX/._000.jpg", "__MACOSX/x/._000.cls"],
        ["classes.txt", "sums/md5.md5"],
    ],
)
@pytest.mark.parametrize("comes_first", [False, True])
def test_strays_are_skipped(strays: list[str], comes_first: bool, tmp_path: Path) -> None:
    others = dict.fromkeys(strays, b"{}")
    files = {**others, **SAMPLES} if comes_first else {**SAMPLES, **others}
    rows, skipped = rows_of(write_tar(tmp_path, files))
    assert rows == LABELS
    assert sum(skipped.values()) == len(strays)


def test_the_summary_counts_strays(beam_tfr: Convert, tmp_path: Path) -> None:
    between = {}
    for name, data in SAMPLES.items():
        between |= {f"._{name}": b"\0\5\x16\7", name: data}
    path = write_tar(tmp_path, {"README": b"", **between})
    run = beam_tfr("convert", "--table", path, "--output", tmp_path / "d")
    assert run.code == 0, run.err
    assert "balance: 3 matched = 3 written + 0 rejected" in run.out
    assert "skipped: 7 " in run.out
    assert "6 ._*, 1 other names" in beam_tfr("plan", "--table", path).out


def test_dots_in_names(tmp_path: Path) -> None:
    files = {}
    for number in range(60):
        files |= {f"photo.{number}.png": JPEG, f"photo.{number}.cls": b"0"}
    problem = problem_of(write_tar(tmp_path, files))
    assert "first dot" in problem
    assert "photo.0.png" in problem
    assert "5.png, 5.cls" not in problem
    assert "and 110 more" in problem
    rows, _ = rows_of(write_tar(tmp_path, {"v1.2/1.jpg": JPEG, "v1.2/1.cls": b"0"}))
    assert rows == {"t/v1.2/1.jpg": ("0",)}


def test_a_reject_names_its_files(tmp_path: Path) -> None:
    path = write_tar(tmp_path, {**SAMPLES, "3.x.jpg": JPEG, "3.cls": b"1"})
    tables = open_tables(find_content(ConvertOptions(table=(str(path),), output="/nowhere")))
    *_, last = tables.read(str(path))
    assert last.reason == "bad-value"
    assert "3.x.jpg, 3.cls" in last.detail
    assert "first dot" in last.detail


def test_texts_of_a_sample_are_bounded_together(tmp_path: Path) -> None:
    """13 MB of a tar, with 3,000 links to one text, took 3.3 GB."""
    text = tarfile.TarInfo("000.t")
    text.size = MAX_TEXT_BYTES
    links = [tarfile.TarInfo(f"000.t{number:02}") for number in range(20)]
    for link in links:
        link.type, link.linkname = tarfile.LNKTYPE, text.name
    image, label = (tarfile.TarInfo(f"000.{kind}") for kind in ("jpg", "cls"))
    image.size, label.size = len(JPEG), 1
    with tarfile.open(tmp_path / "t.tar", "w") as archive:
        archive.addfile(image, io.BytesIO(JPEG))
        archive.addfile(label, io.BytesIO(b"0"))
        archive.addfile(text, io.BytesIO(b"x" * text.size))
        for link in links:
            archive.addfile(link)
    columns = ["cls", "t", *(f"t{number:02}" for number in range(20))]
    ((_, cells),) = read_rows(str(tmp_path / "t.tar"), columns)
    bounded = {name for name, cell in zip(columns, cells, strict=True) if isinstance(cell, BadCell)}
    assert bounded == {f"t{number:02}" for number in range(14, 20)}


def test_images_without_a_label_are_told(beam_tfr: Convert, tmp_path: Path) -> None:
    files = {name: data for name, data in SAMPLES.items() if name != "001.cls"}
    path = write_tar(tmp_path, files)
    run = beam_tfr("convert", "--table", path, "--output", tmp_path / "d")
    assert run.code == 0, run.err
    assert "1 image has no class, so the label is -1" in run.out
    run = beam_tfr("convert", "--table", write_tar(tmp_path, SAMPLES), "--output", tmp_path / "e")
    assert "no class" not in run.out


def test_an_export_keeps_labels_and_boxes(tmp_path: Path) -> None:
    def record(*boxes: tuple[float, float, float, float]) -> bytes:
        names = [f"image/object/bbox/{side}" for side in ("xmin", "ymin", "xmax", "ymax")]
        sides = {name: ("float", [box[i] for box in boxes]) for i, name in enumerate(names)}
        labels = {"image/object/class/text": ("bytes", [b"cat", b"dog"][: len(boxes)])}
        image: dict[str, Any] = {"image/encoded": ("bytes", [JPEG])}
        return frame(serialize({**image, **sides, **labels}))

    boxes = [(0.125, 0.25, 0.5, 0.75), (0.5, 0.125, 0.875, 1.0)]
    records = [record(*boxes), record(boxes[1]), record()]
    (tmp_path / "t.record").write_bytes(b"".join(records))
    kept: dict[str, Any] = {"encoding": "keep", "resize": "none"}
    beam_tfr.convert(table=tmp_path / "t.record", output=tmp_path / "d", **kept)
    beam_tfr.export(tmp_path / "d", tmp_path / "tars", format="webdataset")
    beam_tfr.convert(table=f"{tmp_path}/tars/*.tar", output=tmp_path / "again", **kept)
    objects = []
    for folder in ("d", "again"):
        rows = beam_tfr.contents(tmp_path / folder).to_table().to_pylist()
        names = ["class", *(name for name in rows[0] if name.startswith("object_bbox"))]
        objects.append(sorted([row[name] for name in names] for row in rows))
    assert objects[0] == objects[1]
    assert [row[0] for row in objects[1]] == [[], ["cat"], ["cat", "dog"]]


def test_folders_of_a_tar_without_classes_are_told(tmp_path: Path) -> None:
    path = write_tar(tmp_path, {"cat/0.jpg": JPEG, "dog/1.jpg": JPEG})

    def told(**options: Any) -> list[str]:
        warnings = beam_tfr.plan(table=path, output=tmp_path / "d", **options).warnings
        return [text for text in warnings if f"`input={path}`" in text]

    (warning,) = told()
    assert "cat, t/dog" in warning
    path = write_tar(tmp_path, {"cat/0.jpg": JPEG, "cat/0.cls": b"7", "dog/1.jpg": JPEG})
    assert not told()
    path = write_tar(tmp_path, {"0.jpg": JPEG, "1.jpg": JPEG})
    assert not told()


@pytest.mark.parametrize("name", ["t.zip", "1.jpg"])
def test_images_given_as_a_table_are_an_input(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(JPEG)
    with pytest.raises(BeamTfrError, match=f"`input={path}`"):
        beam_tfr.plan(table=path, output=tmp_path / "d")


@pytest.mark.parametrize(
    ("tar", "files", "is_refused"),
    [
        ("a-train-000000.tar", ["1.jpg", "1.cls"], True),
        ("cats.tar", ["x/1.JPG", "x/1.CLS"], True),
        ("00000.tar", ["1.jpg", "1.json", "1.txt"], True),
        ("cats.tar", ["1.jpg", "1.json"], False),
        ("n01440764.tar", ["n01_1.JPEG", "readme.txt"], False),
        ("00000.tar", ["1.jpg", "2.json"], False),
        ("cats.zip", ["1.jpg", "1.cls"], False),
    ],
)
def test_tars_of_webdataset_are_no_input_of_images(
    tmp_path: Path, tar: str, files: list[str], is_refused: bool
) -> None:
    (tmp_path / tar).write_bytes(tarred(dict.fromkeys(files, b"1")))
    pattern = f"{tmp_path}/*.{tar[-3:]}"
    if not is_refused:
        check_webdataset([pattern])
        return
    with pytest.raises(UsageError) as caught:
        beam_tfr.plan(input=pattern)
    assert f"`table='{pattern}'`" in str(caught.value)
    check_webdataset([f"{tmp_path}/none/*.tar"])
    (tmp_path / tar).write_bytes(b"no tar" * 100)
    check_webdataset([pattern])
