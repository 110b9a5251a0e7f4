"""`examples/export.py`: every record, with the bytes of its image, in each format; resumed, refused, on gs://."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import beam_tfr as package
from beam_tfr import Records
from beam_tfr.dataset import manifest
from beam_tfr.records.examples import parse_example
from beam_tfr.schema.errors import DataError
from beam_tfr.schema.features import FILENAME, MASK, SIDES
from examples import export
from tests import test_instances, test_points
from tests.box_fixtures import some_images, write_boxes
from tests.conftest import files_of
from tests.converted import converted_sample, spoiled_photos
from tests.fake_gcs import FakeGcs
from tests.gcs_fixtures import fake, fake_server
from tests.test_masks import write_masks

__all__ = ["fake", "fake_server"]

FORMATS = ("folder", "parquet", "webdataset")


def read_folder(folder: Path) -> dict[str, tuple[bytes, dict[str, Any]]]:
    lines = map(json.loads, (folder / "metadata.jsonl").read_text().splitlines())
    return {line["file_name"]: ((folder / line["file_name"]).read_bytes(), line) for line in lines}


def read_tars(folder: Path) -> dict[str, tuple[bytes, dict[str, Any]]]:
    found = {}
    for path in sorted(folder.glob("*.tar")):
        with tarfile.open(path) as tar:
            files = {info.name: tar.extractfile(info).read() for info in tar}  # type: ignore[union-attr]
        for name in [name for name in files if name.endswith(".json")]:
            about = json.loads(files[name])
            stem = name.removesuffix(".json")
            about |= {"cls": files.get(f"{stem}.cls"), "mask": files.get(f"{stem}.mask.png")}
            found[about["key"]] = (files.get(f"{stem}.jpg") or files[f"{stem}.png"], about)
    return found


def read_parquet(folder: Path) -> dict[str, tuple[bytes, dict[str, Any]]]:
    rows = [row for path in sorted(folder.glob("data/*.parquet")) for row in pq.read_table(path).to_pylist()]
    return {row["key"]: (row["image"]["bytes"], row) for row in rows}


READ: dict[str, Callable[[Path], dict[str, tuple[bytes, dict[str, Any]]]]] = {
    "folder": read_folder,
    "webdataset": read_tars,
    "parquet": read_parquet,
}


@pytest.fixture(scope="module")
def boxes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_boxes(tmp_path_factory.mktemp("boxes"), some_images())


@pytest.mark.parametrize("form", FORMATS)
def test_every_record_with_its_boxes(form: str, boxes: Path, tmp_path: Path) -> None:
    assert export.export(boxes, tmp_path / "out", form) == 24
    found = READ[form](tmp_path / "out")
    expected = {one[FILENAME].decode(): one for one in Records(boxes, split="train", output="dict")}
    encoded = [data for data, _ in Records(boxes, split="train", output="encoded")]
    assert found.keys() == expected.keys()
    assert [found[key][0] for key in expected] == encoded
    for key, one in expected.items():
        about = found[key][1]
        assert about["class"] == [of.decode() for of in one["image/class/text"]]
        assert about["boxes"] == [list(box) for box in zip(*(one[side].tolist() for side in SIDES), strict=True)]
        assert about["image/object/is_crowd"] == one["image/object/is_crowd"].tolist()
        assert about["image/source_id"] == key
        assert about["split"] == "train"
    mark = json.loads((tmp_path / "out" / "export.json").read_text())
    assert (mark["format"], mark["splits"], mark["complete"]) == (form, ["train"], True)
    assert not (tmp_path / "out" / ".beam_tfr").exists()


def test_a_folder_is_a_table_that_gives_the_same_records(boxes: Path, tmp_path: Path) -> None:
    export.export(boxes, tmp_path / "out", "folder")
    again = package.convert(
        table=str(tmp_path / "out" / "metadata.jsonl"),
        uri_column="file_name",
        label_column="class",
        split_column="split",
        feature_columns={"boxes": "bbox[rel_xyxy]", "image/object/is_crowd": "int64[box]", "image/source_id": "bytes"},
        output=str(tmp_path / "again"),
        encoding="keep",
        resize="none",
        classes=str(boxes),
        progress=False,
    )
    pairs = [{one[FILENAME]: one for one in Records(of, split="train", output="dict")} for of in (boxes, again.folder)]
    assert pairs[0].keys() == pairs[1].keys()
    for key, one in pairs[0].items():
        other = pairs[1][key]
        assert (one["image"] == other["image"]).all()
        assert one["image/class/label"].tolist() == other["image/class/label"].tolist()
        assert all(abs(one[side] - other[side]).max(initial=0) < 1e-6 for side in SIDES)


@pytest.mark.parametrize("form", FORMATS)
def test_masks_go_along(form: str, tmp_path: Path) -> None:
    folder = write_masks(tmp_path / "masks")
    export.export(folder, tmp_path / "out", form)
    found = READ[form](tmp_path / "out")
    for record in Records(folder, split="train", output="raw_record"):
        one = {name: values[0] for name, values in parse_example(record).items()}
        about = found[one[FILENAME].decode()][1]
        mask = about["mask"]
        if form == "folder":
            mask = (tmp_path / "out" / mask).read_bytes()
        elif form == "parquet":
            mask = mask["bytes"]
        assert mask == one[MASK]
        assert about["class"] == one["image/class/text"].decode()


def test_points_go_along(tmp_path: Path) -> None:
    (tmp_path / "coco.json").write_text(json.dumps(test_points.write_photos(tmp_path, 8)))
    test_points.convert(tmp_path, resize="pad")
    found = {}
    for form in FORMATS:
        export.export(tmp_path / "d", tmp_path / form, form)
        rows = READ[form](tmp_path / form)
        found[form] = {key: (about["keypoint"], about["polygon"]) for key, (_, about) in rows.items()}
        assert not [name for _, about in rows.values() for name in about if "/num" in name]
    assert found["folder"] == found["webdataset"] == found["parquet"]
    keypoints, polygons = found["folder"]["0.png"]
    assert [len(of) for of in keypoints] == [9, 6, 0]
    assert [[len(ring) for ring in of] for of in polygons] == [[6], [6, 6], []]
    again = package.convert(
        table=str(tmp_path / "folder" / "metadata.jsonl"),
        uri_column="file_name",
        feature_columns={"boxes": "bbox[rel_xyxy]", "keypoint": "points[rel_xyv]", "polygon": "points[rel_xy]"},
        output=str(tmp_path / "again"),
        encoding="keep",
        resize="none",
        progress=False,
    )
    options: dict[str, Any] = {"split": "train", "output": "dict", "boxes": "xyxy"}
    for one, other in zip(Records(tmp_path / "d", **options), Records(again.folder, **options), strict=True):
        for name in ("keypoint", "polygon"):
            for here, there in zip(one[name], other[name], strict=True):
                np.testing.assert_allclose(here, there, atol=1e-3)


def test_masks_of_boxes_go_along_as_run_lengths(tmp_path: Path) -> None:
    folder = test_instances.write_instances(tmp_path, 8)
    found = {}
    for form in FORMATS:
        export.export(folder, tmp_path / form, form)
        found[form] = {key: about["masks"] for key, (_, about) in READ[form](tmp_path / form).items()}
    assert found["folder"] == found["webdataset"] == found["parquet"]
    again = package.convert(
        table=str(tmp_path / "folder" / "metadata.jsonl"),
        uri_column="file_name",
        feature_columns={"boxes": "bbox[rel_xyxy]", "masks": "mask[box]"},
        output=str(tmp_path / "again"),
        encoding="keep",
        resize="none",
        min_visible=0.01,
        progress=False,
    )
    options: dict[str, Any] = {"split": "train", "output": "dict", "boxes": "xyxy"}
    for one, other in zip(Records(folder, **options), Records(again.folder, **options), strict=True):
        np.testing.assert_array_equal(one["masks"], other["masks"])


def test_splits_labels_and_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = converted_sample()
    call = ["--format", "webdataset", "--split", "test+validation"]
    assert export.main([str(folder), str(tmp_path / "out"), *call]) == 0
    assert capsys.readouterr().out.endswith(f"exported: 40 images to {tmp_path / 'out'}\n")
    files = files_of(tmp_path / "out")
    assert sorted(files) == ["export.json", "test-00000-of-00001.tar", "validation-00000-of-00001.tar"]
    with tarfile.open(fileobj=io.BytesIO(files["test-00000-of-00001.tar"])) as tar:
        infos = tar.getmembers()
    assert [info.name for info in infos[:3]] == ["00000000.jpg", "00000000.json", "00000000.cls"]
    assert {(info.mtime, info.uid, info.gid, info.uname, info.mode) for info in infos} == {(0, 0, 0, "", 0o644)}
    found = read_tars(tmp_path / "out")
    labels = [label for name in ("test", "validation") for _, label in Records(folder, split=name, output="encoded")]
    assert [int(about["cls"]) for _, about in found.values()] == labels
    assert export.main([str(folder), str(tmp_path / "again"), *call]) == 0
    assert files == files_of(tmp_path / "again")


def test_names_get_the_extension_of_their_format(tmp_path: Path) -> None:
    """Photos in many formats, of which a conversion makes JPEGs."""
    package.convert(
        input=str(spoiled_photos()), output=str(tmp_path / "d"), layout="{label}/*", max_rejects=1.0, progress=False
    )
    export.export(tmp_path / "d", tmp_path / "out", "folder")
    expected = dict(package.contents(tmp_path / "d").to_table(columns=["key", "bytes"]).to_pydict())
    found = read_folder(tmp_path / "out")
    names = [key if key.endswith((".jpg", ".jpeg")) else f"{key}.jpg" for key in expected["key"]]
    assert sorted(found) == sorted(names)
    assert sorted(len(data) for data, _ in found.values()) == sorted(expected["bytes"])


@pytest.mark.parametrize("form", FORMATS)
def test_a_run_that_failed_resumes_from_the_finished_shards(
    form: str, boxes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples, read = export.samples, list[str]()

    def failing(dataset: Any, split: str, entry: Any) -> Any:
        read.append(entry.file)
        for number, sample in enumerate(samples(dataset, split, entry)):
            if "00001-of" in entry.file and number == 5 and len(read) < 4:
                raise OSError("the disk is gone")
            yield sample

    monkeypatch.setattr(export, "samples", failing)
    flags = ["--direct_running_mode=in_memory", "--direct_num_workers=1"]
    with pytest.raises(package.RunError, match="the disk is gone"):
        export.export(boxes, tmp_path / "out", form, beam_flags=flags)
    assert not json.loads((tmp_path / "out" / "export.json").read_text())["complete"]
    before = len(read)
    (tmp_path / "out" / ".beam_tfr" / "of a killed run").write_text("cut")
    monkeypatch.setattr(export, "samples", samples)
    export.export(boxes, tmp_path / "out", form)
    export.export(boxes, tmp_path / "whole", form)
    assert files_of(tmp_path / "out") == files_of(tmp_path / "whole")
    assert before


def test_a_damaged_shard_is_no_export(boxes: Path, tmp_path: Path) -> None:
    folder = tmp_path / "d"
    folder.mkdir()
    for name, data in files_of(boxes).items():
        (folder / name).parent.mkdir(exist_ok=True, parents=True)
        (folder / name).write_bytes(data)
    shard = sorted(folder.glob("*.tfrecord.gz"))[0]
    shard.write_bytes(shard.read_bytes()[:-1] + b"x")
    for form in FORMATS:
        with pytest.raises((DataError, package.RunError), match=r"00000-of-00002\.tfrecord\.gz"):
            export.export(folder, tmp_path / form, form)
        assert not (tmp_path / form / "metadata.jsonl").exists()
        assert len([*(tmp_path / form).rglob("train-00000-of-*")]) == 0


def test_a_key_that_leads_out_is_refused(boxes: Path) -> None:
    values = parse_example(Records(boxes, split="train", output="raw_record")[0])
    for key in (b"../../x.png", b"/x.png", b"a/../../x"):
        with pytest.raises(ValueError, match="leads out"):
            export._sample(manifest.read(str(boxes)), "train", values | {FILENAME: [key]})


def test_wrong_calls(boxes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "a.txt").write_text("a")
    export.export(boxes, tmp_path / "done", "webdataset")
    rows = tmp_path / "t.csv"
    rows.write_text("a,b\n1,2\n")
    package.convert(table=str(rows), output=str(tmp_path / "rows"))
    for code, message, folder, output, *more in (
        (2, "holds other files; give an empty folder", boxes, tmp_path / "full"),
        (2, "must not be in the dataset", boxes, boxes / "out"),
        (2, "must not be in the dataset", boxes, boxes),
        (2, "must be folder, webdataset, parquet", boxes, tmp_path / "x", "--format", "zip"),
        (2, "there are: train", boxes, tmp_path / "x", "--split", "tset"),
        (2, "must name whole splits", boxes, tmp_path / "x", "--split", "train[:5]"),
        (2, "only local paths and gs://", boxes, "s3://a/b"),
        (2, "holds an export of another", boxes, tmp_path / "done"),
        (2, "runer", boxes, tmp_path / "x", "--runer", "a"),
        (1, "none", tmp_path / "none", tmp_path / "x"),
        (2, "has no encoded images", tmp_path / "rows", tmp_path / "x"),
    ):
        assert export.main([str(folder), str(output), "--format", "folder", *more]) == code, message
        assert message in capsys.readouterr().err
    assert export.main([str(boxes), str(tmp_path / "done"), "--format", "webdataset"]) == 0


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMATS)
def test_from_and_to_gs(form: str, boxes: Path, fake: FakeGcs, tmp_path: Path) -> None:
    fake.put_folder(boxes, "d")
    export.export("gs://b/d", "gs://b/out", form)
    export.export(boxes, tmp_path / "out", form)
    there = {name.removeprefix("out/"): fake.get(name) for name in fake.names() if name.startswith("out/")}
    assert there == files_of(tmp_path / "out")
