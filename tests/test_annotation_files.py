"""Annotations in a folder that is converted for its images are told."""

from __future__ import annotations

import io
import json
import shlex
import zipfile
from pathlib import Path

import pandas
import PIL.Image
import pytest

import beam_tfr
from beam_tfr.first_look import early_warnings
from beam_tfr.inputs.annotation_content import describe_tables
from beam_tfr.inputs.annotation_texts import describe_text
from beam_tfr.inputs.beside_files import list_beside
from beam_tfr.inputs.first_names import FirstNames
from beam_tfr.inputs.image_mentions import ImageMentions
from beam_tfr.options import ConvertOptions, from_values
from beam_tfr.schema.errors import BeamTfrError, UsageError
from beam_tfr.sources import open_source
from beam_tfr.tables.annotations import read_annotations
from beam_tfr.tables.finding import find_content
from tests.fake_gcs import FakeGcs

FILES = {
    "Annotations/a.xml": ("<annotation><filename>a.jpg</filename></annotation>", "*.xml"),
    "anno/a.XML": ('<?xml version="1.0"?>\n<annotation verified="no">\n</annotation>', "*.XML"),
    "Annotation/n02/a": ("<annotation><folder>02</folder></annotation>", "*"),
    "LICENSE": ("You may look at them.", ""),
    "bounding_boxes.txt": ("1 60.0 27.0 325.0 304.0\n2 139.0 30.0 153.0 264.0\n", "bounding_boxes"),
    "gt/gt.txt": ("1,1,912,484,97,109,0,7,1\n2,1,912,484,97,109,0,7,1\n", "gt.txt"),
    "labels/readme.txt": ("Labels come\nfrom experts.\n", ""),
    "label_notes.txt": ("done\n", ""),
    "images.txt": ("1 x/a.jpg\n2 x/b.jpg\n", "images.txt"),
    "variants.txt": ("cju0 707-320\ncju1 727\n", "variants.txt"),
    "instances.json": ('{"info": {}, "images": [], "annotations": []}', "instances.json"),
    "ml.json": ('[{"image": "a", "annotations": [{"coordinates": {}}]}]', "ml.json"),
    "a.json": (
        '{"version": "5", "flags": {}, "shapes": [], "imagePath": "a.jpg"}',
        "*.json are LabelMe files",
    ),
    "data.yaml": ("train: images\nnames: [cat]\n", "data.yaml"),
    "metadata.csv": ("file_name,label\na.jpg,cat\nb.jpg,dog\n", "metadata.csv"),
    "metadata.jsonl": ('{"file_name": "a.jpg"}\n{"file_name": "b.jpg"}\n', "metadata.jsonl"),
    "labels/a.txt": ("0 0.5 0.5 0.2 0.2\n1 .1 .2 .3 4e-1 .9\n", "*.txt"),
    "labels.txt": ("a.jpg cat\nb.jpg dog\n", "labels.txt lists images with values"),
    "attributes.txt": ("2\nmale old\na.jpg  1 -1\nb.jpg -1  1\n", "attributes.txt has columns"),
    "bbox.txt": ("2\nid x y w h\na.jpg 1 2 3 4\nb.jpg 1 2 3 4\n", "bbox.txt has columns"),
    "split/wider_gt.txt": (
        "x/b.jpg\n0\n0 0 0 0 0 0\nx/a.jpg\n1\n5 6 7 8 0 0 \n",
        "wider_gt.txt has boxes in lines",
    ),
    "split/datumaro_gt.txt": (
        "x/b.jpg\n1\n5.0 6.0 40.0 30.0 - - - False - - big_cat\nx/a.jpg\n1\n5.0 6.0 7.0 8.0 ant\n",
        "datumaro_gt.txt has boxes in lines",
    ),
    "yolo.txt": ("a.jpg 5,6,7,8,0 5,6,7,8,1\nb.jpg 5,6,7,8,0\n", "yolo.txt has boxes after"),
    "Label.txt": ('a.jpg\t[{"transcription": "hi", "points": [[1, 2]]}]\n', "Label.txt has texts"),
    "rec_gt_train.txt": ("a.jpg\tHELLO 1\nb.jpg\tBYE 2\n", "rec_gt_train.txt lists images, with"),
    "captions.txt": ("image,caption\na.jpg,Two. Dogs\na.jpg,Dogs\n", "captions.txt has a row for"),
    "Flickr8k.token.txt": ("a.jpg#0\tDogs\na.jpg#1\tTwo\n", "Flickr8k.token.txt has several"),
    "data.txt": ('{"file_name": "a.jpg", "annotations": []}\n', "data.txt is JSON Lines"),
    "names.txt": ("a.jpg\nb.jpg\n", ""),
    "notes.txt": ("0 0.5 0.5 0.2 0.2\nhello\n", ""),
    "wilds/metadata.csv": (",patient,node,tumor\n0,004,0,0\n1,005,1,0\n", "metadata.csv, may"),
    "wilds/metadatabase.csv": (",patient,node,tumor\n0,004,0,0\n1,005,1,0\n", ""),
    "labels.csv": ("id,Label\n0,cat\n1,dog\n", "labels.csv"),
    "imagelabels.csv": ("label\n77\n3\n", "imagelabels.csv has a column of classes, but none"),
    "cvat.xml": ('<annotations><image id="0" name="a.jpg"/></annotations>', "cvat.xml"),
    "vott.json": ('{"asset": {"name": "a.jpg"}, "regions": []}', "vott.json"),
    "export.ndjson": ('{"data_row": {"external_id": "a.jpg"}}', "export.ndjson"),
    "fiftyone.json": (
        '{"classes": ["cat"], "labels": {"a": 0}}',
        "fiftyone.json, or explains how to convert it",
    ),
    "datumaro.json": (
        '{"info": {}, "categories": {}, "items": [{"id": "a", "annotations": []}]}',
        "datumaro.json, or explains how to convert it",
    ),
    "v2_mscoco_train2014_annotations.json": (
        '{"info": {}, "data_subtype": "train2014", "annotations": [{"image_id": 9}]}',
        "v2_mscoco_train2014_annotations.json, or explains how to convert it",
    ),
    "samples.json": ('{"samples": [{"filepath": "data/a.jpg"}]}', "samples.json"),
    "labels/bdd.json": ('[{"name": "a.jpg", "labels": []}]', "bdd.json"),
    "kvasir.json": ('{"cju0": {"bbox": [{"label": "polyp"}]}}', "kvasir.json"),
    "train.odgt": ('{"ID": "2732,cju0", "gtboxes": []}\n', "train.odgt"),
    "anno.odgt": ('{"ID": "27,a0", "gtboxes": []}\n{"ID": "27,a1"}\n', "anno.odgt"),
    "anno.jsonl": ('{"ID": "27,a0", "gtboxes": []}\n{"ID": "27,a1"}\n', "anno.jsonl"),
    "info.labels": ('{"version": 1, "files": [{"path": "a.jpg"}]}', "info.labels"),
    "output.manifest": ('{"source-ref": "s3://b/a.jpg"}', "output.manifest"),
    "train.lst": ("0\t1.0\ta.jpg\n", "train.lst"),
    "imagelabels.mat": ("MATLAB", "imagelabels.mat"),
    "deep/digitStruct.mat": ("MATLAB", "digitStruct.mat"),
    "model.npz": ("PK", ""),
    "settings.json": ('{"classes": 2}', ""),
    "prices.csv": ("item,price\nhat,7\n", ""),
    "pom.xml": ("<project></project>", ""),
    "package.json": ('{"images": 7}', ""),
    "config.yml": ("lr: 0.1\n", ""),
}


@pytest.mark.parametrize("name", [*FILES])
def test_annotations_among_skipped_files_are_told(name: str, tmp_path: Path) -> None:
    content, table = FILES[name]
    images = tmp_path / "in" / "JPEGImages"
    images.mkdir(parents=True)
    for image in ("a.jpg", "cju0.jpg", "27,a0.jpg"):
        PIL.Image.new("RGB", (9, 9)).save(images / image)
    path = tmp_path / "in" / name
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text(content)
    given = {"input": str(tmp_path / "in")}
    plan = beam_tfr.plan(**given, progress=False)
    options = from_values({**given, "output": tmp_path / "d"}, ConvertOptions)
    notes = [*early_warnings(open_source(options))]
    for told in (notes, plan.warnings):
        tables = [note for note in told if "`table=" in note]
        assert len(tables) == bool(table)
        assert all(f"{path.parent}/{table}" in note for note in tables)


KITTI = "Car 0.00 0 -1.58 587.01 173.33 614.12 200.12 1.65 1.67 3.64 -0.65 1.71 46.70 -1.59\n"
YOLO = "0 0.5 0.5 0.2 0.2\n"
COCO = '{"images": [{"file_name": "a.jpg"}], "annotations": []}'
# (folder of images, file with labels, its content, what the message names)
BESIDE = {
    "YOLO": ("images/train", "labels/train/a.txt", YOLO, "{0}/labels/train/*.txt belong to"),
    "YOLO, flat": ("images", "labels/a.txt", YOLO, "{0}/labels/*.txt belong to a data.yaml"),
    "KITTI": ("image_2", "label_2/a.txt", KITTI, "{0}/label_2/*.txt is a KITTI file"),
    "VOC": ("JPEGImages", "Annotations/a.xml", "<annotation>", "{0}/Annotations/*.xml can be read"),
    "VOC, without extension": (
        "Images",
        "Annotation/a",
        "<annotation>",
        "{0}/Annotation/* are VOC files",
    ),
    "COCO": (
        "train2017",
        "annotations/x.json",
        COCO,
        "`table=` reads {0}/annotations/x.json, or explains how to convert it",
    ),
    "CSV": (
        "train",
        "train.csv",
        "file,label\na.jpg,cat\n",
        "{0}/train.csv can be read with `table=`",
    ),
    "CSV of ids": (
        "train",
        "y.csv",
        "id,breed\nbeagle_1,cat\n",
        "{0}/y.csv can be read with `table=`",
    ),
    "text": ("images", "list.txt", "a.jpg 1\nb.jpg 2\n", "{0}/list.txt lists images"),
    "captions": ("train", "train_captions/a.txt", "A cat.\n", "such as {0}/train_captions/a.txt"),
    "Supervisely": ("img", "ann/a.jpg.json", "{}", "such as {0}/ann/a.jpg.json"),
    "CVAT": ("images", "annotations.xml", '<image name="a.jpg"/>', "such as {0}/annotations.xml"),
    "ICDAR": ("ch4_test_images", "ch4_test_texts_gt/gt_a.txt", "1,2,3,4", "ts_gt/gt_a.txt"),
    "Total-Text": ("Images", "gt/a_GT.txt", "1,2,3,4", "such as {0}/gt/a_GT.txt"),
    "Matlab": ("train", "labels/a.mat", "MATLAB", "such as {0}/labels/a.mat"),
    "Matlab, of all": ("jpg", "imagelabels.mat", "MATLAB", "such as {0}/imagelabels.mat"),
    "a long word": ("train", "x.json", '{"imageData": "' + "1.jp" * 16_000 + '"}', ""),
    "others": ("train", "test.csv", "file,label\nb.jpg,cat\n", ""),
    "of another folder": ("cats", "dogs_labels/a.txt", YOLO, ""),
    "a note": ("train", "labels/readme.txt", "hello", ""),
}


@pytest.mark.parametrize("kind", [*BESIDE])
def test_labels_beside_the_folder_of_images_are_told(kind: str, tmp_path: Path) -> None:
    folder, name, content, message = BESIDE[kind]
    images = tmp_path / "in" / folder
    images.mkdir(parents=True)
    for image in ("a", "beagle_1"):
        PIL.Image.new("RGB", (9, 9)).save(images / f"{image}.jpg")
    path = tmp_path / "in" / name
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text(content)
    given = {"input": str(images), "layout": "*"}
    plan = beam_tfr.plan(**given, progress=False)
    options = from_values({**given, "output": tmp_path / "d"}, ConvertOptions)
    notes = [*early_warnings(open_source(options))]
    for told in (notes, plan.warnings):
        about = [note for note in told if "`table=" in note]
        assert len(about) == bool(message)
        assert all(message.format(tmp_path / "in") in note for note in about)


@pytest.mark.parametrize("extension", ["caption", "lab", "tags", "csv", "yaml", "pkl", "ANN", "md"])
@pytest.mark.parametrize("pattern", ["", "/*/*.jpg"])
def test_files_with_the_stem_of_each_image_are_told(
    extension: str, pattern: str, tmp_path: Path
) -> None:
    (tmp_path / "in" / "x").mkdir(parents=True)
    for stem in ("a", "b", "c"):
        PIL.Image.new("RGB", (9, 9)).save(tmp_path / "in" / "x" / f"{stem}.jpg")
        (tmp_path / "in" / "x" / f"{stem}.{extension}").write_text("a dog\n")
    options = ConvertOptions(input=(f"{tmp_path}/in{pattern}",), output=str(tmp_path / "d"))
    warnings = [*early_warnings(open_source(options))]
    assert any(f"{tmp_path}/in/x/a.{extension}, are named like" in line for line in warnings)


def test_all_tables_that_name_images_are_told(tmp_path: Path) -> None:
    """As of HAM10000: the table of pixels comes first, and names no image."""
    names = [f"ISIC_{number}" for number in range(3)]
    for name in names:
        (tmp_path / "part_1").mkdir(exist_ok=True)
        PIL.Image.new("RGB", (9, 9)).save(tmp_path / "part_1" / f"{name}.jpg")
    pixels = "".join(f"pixel{number}," for number in range(64))
    (tmp_path / "a_pixels.csv").write_text(f"{pixels}label\n" + "7," * 64 + "2\n")
    (tmp_path / "metadata.csv").write_text(
        "lesion_id,image_id,dx\n" + "".join(f"L{name},{name},nv\n" for name in names)
    )
    notes = [*early_warnings(open_source(ConvertOptions(input=(str(tmp_path),), output="/o")))]
    assert any(
        "a_pixels.csv" in note and "/metadata.csv also names images" in note for note in notes
    )


@pytest.mark.parametrize("more", [0, 1, 3])
def test_all_lines_of_json_that_name_images_are_told(more: int, tmp_path: Path) -> None:
    """As of Hateful Memes."""
    names = ["dev", "test", "train", "a", "b", "c"][: 3 + more]
    (tmp_path / "img").mkdir()
    for number, name in enumerate(names):
        PIL.Image.new("RGB", (9, 9)).save(tmp_path / "img" / f"0{number}.png")
        label = {} if name == "test" else {"label": number % 2}
        lines = [json.dumps({"id": number, "img": f"img/0{number}.png", **label})] * 2
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))
    notes = [*early_warnings(open_source(ConvertOptions(input=(str(tmp_path),), output="/o")))]
    (note,) = [note for note in notes if ".jsonl can be read with `table=`" in note]
    pattern = f"{tmp_path}/*.jsonl"
    if more == 0:
        assert note.endswith(
            f": {tmp_path}/train.jsonl can be read with `table=`; {tmp_path}/dev.jsonl, {tmp_path}"
            f"/test.jsonl also name images: `table={shlex.quote(pattern)}` reads them all"
        )
        options = {"table": pattern, "uri_column": "img", "label_column": "label"}
        plan = beam_tfr.plan(**options, progress=False)
        matched = {name: split.matched for name, split in plan.plan.splits.items()}
        assert matched == {"dev": 1, "test": 1, "train": 1}
    else:
        assert (pattern in note) == (more == 1)


def test_tables_with_other_columns_have_no_common_pattern(tmp_path: Path) -> None:
    PIL.Image.new("RGB", (9, 9)).save(tmp_path / "a.jpg")
    for name, header in (("train", "file,label"), ("test", "file,size"), ("val", "file,label")):
        (tmp_path / f"{name}.csv").write_text(f"{header}\na.jpg,1\n")
    notes = [*early_warnings(open_source(ConvertOptions(input=(str(tmp_path),), output="/o")))]
    cure = "val.csv also name images: `table=` reads such a file, or explains how to convert it"
    assert any(note.endswith(cure) for note in notes)
    (tmp_path / "test.csv").write_text("file,label\na.jpg,1\n")
    notes = [*early_warnings(open_source(ConvertOptions(input=(str(tmp_path),), output="/o")))]
    assert any(note.endswith("*.csv'` reads them all") for note in notes)


@pytest.mark.parametrize("folder", ["", "images"])
def test_lines_about_groups_of_images_are_told(folder: str, tmp_path: Path) -> None:
    """As of NLVR2, whose lines are about pairs of images."""
    (tmp_path / "images").mkdir()
    for pair in ("dev-0-0", "dev-1-0"):
        for side in (0, 1):
            name = f"{pair}-img{side}.png"
            PIL.Image.new("RGB", (9, 9)).save(tmp_path / "images" / name)
    lines = [{"identifier": f"dev-{number}-0-2", "label": "True"} for number in (0, 1)]
    (tmp_path / "dev.json").write_text("\n".join(map(json.dumps, lines)))
    (tmp_path / "one.json").write_text(json.dumps(lines))  # not JSON Lines
    options = ConvertOptions(input=(str(tmp_path / folder),), layout="*", output="/o")
    notes = [*early_warnings(open_source(options))]
    about = f"such as {tmp_path}/dev.json, have lines about groups of images, such as those"
    assert [about in note for note in notes if ".json" in note] == [True]


def test_paths_without_extensions_and_rows_about_folders_are_told(tmp_path: Path) -> None:
    """As of VGGFace2."""
    for name in ("n000001", "n000002"):
        (tmp_path / "train" / name).mkdir(parents=True)
        PIL.Image.new("RGB", (9, 9)).save(tmp_path / "train" / name / "0001_01.jpg")
    boxes = tmp_path / "bb_landmark" / "loose_bb_train.csv"
    boxes.parent.mkdir()
    boxes.write_text('NAME_ID,X,Y,W,H\n"n000001/0001_01",1,2,3,4\n"n000002/0001_01",0,0,2,2\n')
    (tmp_path / "identity_meta.csv").write_text(
        'Class_ID, Name, Sample_Num, Flag\nn000001, "14th_Dalai_Lama", 424, 0\nn000009, "A", 1, 0\n'
    )
    notes = [*early_warnings(open_source(ConvertOptions(input=(str(tmp_path),), output="/o")))]
    assert (
        f"skipped files, such as {boxes}, mention images, but are not read: `table={boxes}` reads "
        f"this file, or explains how to convert it; {tmp_path}/identity_meta.csv has rows about "
        "folders of images, such as n000001: to store its values, write them into columns of a "
        "`table=` with a row for each image"
    ) in notes


def test_files_that_only_belong_to_images_are_not_told(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    for stem in ("a", "b"):
        PIL.Image.new("RGB", (9, 9)).save(tmp_path / "x" / f"{stem}.jpg")
        for extension in ("xmp", "AAE", "tfw", "mov", "NEF", "svg", "zip", "sha256", "dvc"):
            (tmp_path / "x" / f"{stem}.{extension}").touch()
    (tmp_path / "x" / "a.notes").touch()  # for one image only
    options = ConvertOptions(input=(str(tmp_path),), output=str(tmp_path / "d"))
    assert not any("named like" in line for line in early_warnings(open_source(options)))


def test_a_legend_of_masks_is_told_as_one(tmp_path: Path) -> None:
    """Roboflow's `_classes.csv` beside masks."""
    path = tmp_path / "_classes.csv"
    path.write_text("Pixel Value, Class\n0, background\n1, road\n")
    (text,) = describe_tables({".csv": [str(path)]})
    assert "names the values in masks" in text
    assert "`table=`" not in text


def test_names_with_spaces_are_found_in_json(tmp_path: Path) -> None:
    """As in a project of VIA for `Dent 1.jpg`."""
    path = tmp_path / "via.json"
    path.write_text('{"x": {"filename": "Dent 1.jpg", "regions": []}}')
    assert ImageMentions(["/i/Dent 1.jpg"]).describe([str(path)], "files")
    assert not ImageMentions(["/i/Dent 2.jpg"]).describe([str(path)], "files")


@pytest.mark.parametrize(
    ("begin", "is_told"),
    [
        ("id, hemorrhage\n0,1\n1,1\n2,0\n", True),
        ("name;tumor\n000;1\n001;1\n002;0\n", True),
        ('"photo","size"\n"3","1"\n"2","0"\n"1","0"\n', True),
        ("epoch,loss\n1,0.5\n", False),
        ("loss,step\n0.5,1\n0.4,2\n", False),
        ("1\n2\n3\n", False),
    ],
)
def test_numbers_that_name_most_images_are_names(begin: str, is_told: bool, tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text(begin)
    images = [f"/i/{number:03}.png" for number in range(4 if "3" in begin else 3)]
    assert bool(ImageMentions(images).describe([str(path)], "files")) == is_told


@pytest.mark.parametrize(
    ("name", "content", "is_told"),
    [
        ("one_train.txt", "1.jpg 2\n2.jpg 1\n", True),
        ("my labels.csv", "a,b\n1.jpg,2\n", True),
        ("notes.txt", "made by hand\n", False),
        ("run.py", "open('1.jpg')\n", False),
    ],
)
def test_lists_beside_an_archive_are_told(
    name: str, content: str, is_told: bool, tmp_path: Path
) -> None:
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.writestr("all/cat/1.jpg", b"")
    (tmp_path / name).write_text(content)
    options = ConvertOptions(input=(f"{tmp_path}/all.zip",), output=str(tmp_path / "d"))
    lines = [text for text in early_warnings(open_source(options)) if "next to archives" in text]
    assert bool(lines) == is_told
    if is_told:
        assert f"`table={shlex.quote(f'{tmp_path}/{name}')}`" in lines[0]


def test_lists_beside_an_archive_on_gs_are_told(fake: FakeGcs) -> None:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("cat/1.jpg", b"")
    fake.put("in/all.zip", data.getvalue())
    fake.put("in/train.txt", b"cat/1.jpg\n")
    options = ConvertOptions(input=("gs://b/in/all.zip",), output="gs://b/d")
    lines = [text for text in early_warnings(open_source(options)) if "next to archives" in text]
    assert ["`table=gs://b/in/train.txt`" in line for line in lines] == [True]


def test_labels_and_masks_are_told_where_folders_of_splits_stop_the_run(tmp_path: Path) -> None:
    """Following its layout, people would lose them."""
    for name in ("train/1.jpg", "val/2.jpg", "val/2_mask.png"):
        path = tmp_path / "in" / name
        path.parent.mkdir(exist_ok=True, parents=True)
        PIL.Image.new("RGB", (9, 9)).save(path)
    (tmp_path / "in/val/2.json").write_text(COCO)
    given = {"input": str(tmp_path / "in")}
    options = from_values({**given, "output": tmp_path / "d"}, ConvertOptions)
    with pytest.raises(UsageError) as early:
        [*early_warnings(open_source(options))]
    with pytest.raises(UsageError) as planned:
        beam_tfr.plan(**given, progress=False)
    for caught in (early, planned):
        message = str(caught.value)
        assert "layout='{split}/*'" in message
        assert "val/2.json, or explains how to convert it" in message
        assert "pair=mask='{path}_mask.png'" in message


def test_labels_beside_a_folder_on_gs_are_told(fake: FakeGcs, tmp_path: Path) -> None:
    PIL.Image.new("RGB", (9, 9)).save(tmp_path / "a.jpg")
    fake.put("in/images/train/a.jpg", (tmp_path / "a.jpg").read_bytes())
    fake.put("in/labels/train/a.txt", YOLO.encode())
    given = {"input": "gs://b/in/images/train", "layout": "*"}
    options = from_values({**given, "output": tmp_path / "d"}, ConvertOptions)
    notes = [*early_warnings(open_source(options))]
    for told in (notes, beam_tfr.plan(**given, progress=False).warnings):
        assert any("gs://b/in/labels/train/*.txt belong to" in note for note in told)


def test_no_listing_on_gs_is_made_twice(fake: FakeGcs, tmp_path: Path) -> None:
    PIL.Image.new("RGB", (9, 9)).save(tmp_path / "a.jpg")
    fake.put("in/images/a.jpg", (tmp_path / "a.jpg").read_bytes())
    fake.put("in/train.txt", b"a\n")
    options = from_values(
        {"input": "gs://b/in/images", "layout": "*", "output": tmp_path / "d"}, ConvertOptions
    )
    source = open_source(options)
    fake.take_log()
    notes = [*early_warnings(source)]
    assert any("gs://b/in/train.txt" in note for note in notes)
    listed = [
        (request["prefix"], request.get("delimiter", ""))
        for request in fake.take_log()
        if "prefix" in request
    ]
    assert listed
    assert len(listed) == len({*listed})


@pytest.mark.parametrize(
    ("folder", "is_of_labels"),
    [
        ("labels", True),
        ("labelsTr", True),
        ("annotations_v1", True),
        ("xmls2", True),
        ("labelstudio", False),
        ("annotator", False),
    ],
)
def test_files_of_other_sets_beside_a_folder_are_not_its_labels(
    tmp_path: Path, folder: str, *, is_of_labels: bool
) -> None:
    (tmp_path / "photos").mkdir()
    path = tmp_path / folder / "local.csv"
    path.parent.mkdir()
    path.write_text("image,label\nimages/a.jpg,cat\n")
    assert (str(path) in list_beside(f"{tmp_path}/photos", FirstNames())) == is_of_labels


@pytest.mark.parametrize("image", ["", "labels/1.png", "labels/images/train/1.jpg"])
def test_a_folder_of_labels_with_images_is_a_set_of_its_own(image: str, tmp_path: Path) -> None:
    files = ["photos/1.jpg", "labels/train/1.txt", *filter(None, [image])]
    for name in files:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    listed = [*list_beside(f"{tmp_path}/photos", FirstNames())]
    assert (f"{tmp_path}/labels/train/1.txt" in listed) == ("images" not in image)


def test_an_example_of_what_to_submit_is_named_last(tmp_path: Path) -> None:
    for name in ("Sample_Submission.csv", "train.csv"):
        (tmp_path / name).write_text("id,label\n1,cat\n")
    paths = sorted(map(str, tmp_path.iterdir()))
    assert f"{tmp_path}/train.csv" in describe_tables({".csv": paths})[0]
    assert "Submission" in describe_tables({".csv": paths[:1]})[0]


def test_of_tables_for_splits_that_of_train_is_named_first(tmp_path: Path) -> None:
    for name in ("test.csv", "train.csv", "eval/a.csv", "val.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("id,label\n1,cat\n")
    paths = sorted(map(str, tmp_path.rglob("*.csv")))
    assert f"{tmp_path}/train.csv" in describe_tables({".csv": paths})[0]


@pytest.mark.parametrize(
    ("separator", "values", "label"),
    [
        (", ", ["0", "7"], "value1"),
        (" ", ["cat"], "class"),
        (",", ["cat"], "class"),
        (";", ["cat", "1", "2"], "value1"),
        ("\t", ["big cat", "1"], "value1"),
        ("  ", ["NA", "1", "2", "3"], "value1"),
    ],
)
def test_the_line_of_pandas_for_values_writes_a_table(
    separator: str, values: list[str], label: str, tmp_path: Path
) -> None:
    path = tmp_path / "train.txt"
    names = ["x/a.jpg", "x/b.jpg"]
    path.write_text("".join(f"{separator.join([name, *values])}\n" for name in names))
    text = describe_text(path.read_bytes())
    command = text[text.index("read_csv(") : text.index(" writes a")]
    exec(f"import pandas; pandas.{command}", {"FILE": str(path)})
    frame = pandas.read_csv(tmp_path / "train.csv", dtype=str, na_filter=False)
    assert frame.to_numpy().tolist() == [[name, *values] for name in names]
    assert frame.columns[:2].tolist() == ["path", label]
    assert f"`label_column={label}`" in text


@pytest.mark.parametrize(
    ("row", "names"),
    [
        ("a.jpg,1,2,30,25,cat", "path,xmin,ymin,xmax,ymax,class"),
        ("a.jpg cat 1 2.5 30 25", "path,class,xmin,ymin,xmax,ymax"),
        ("a.jpg;1;2;30;25", "path,xmin,ymin,xmax,ymax"),
        ("a.jpg,50,60,30,25,0", "path,x,y,w,h,class"),
        ("a.jpg,1,0,0,1", "path,value1,value2,value3,value4"),
        ("a.jpg,0.1,0.2,0.3,0.4,cat", "path,value1,value2,value3,value4,value5"),
        ("a.jpg,1,2,3,4,5,6,cat", "path,value1,value2,value3,value4,value5,value6,value7"),
    ],
)
def test_the_line_of_pandas_for_boxes_names_their_sides(
    row: str, names: str, tmp_path: Path
) -> None:
    path = tmp_path / "train.txt"
    path.write_text(f"{row}\n{row.replace('a.jpg', 'b.jpg')}\n")
    text = describe_text(path.read_bytes())
    command = text[text.index("read_csv(") : text.index(" writes a")]
    exec(f"import pandas; pandas.{command}", {"FILE": str(path)})
    assert (tmp_path / "train.csv").read_text().splitlines()[0] == names
    options = ConvertOptions(table=(str(tmp_path / "train.csv"),), output="/o")
    is_box = "value" not in names
    assert bool(find_content(options).options.uri_column) == is_box
    assert ("label_column=" in text) != is_box


@pytest.mark.parametrize(
    ("row", "names", "features"),
    [
        ("{}.jpg m/{}.png", "path,mask", "mask:mask"),
        ("{}.jpg\tm/{}.PNG", "path,mask", "mask:mask"),
        ("a/{}.png,b/{}.png,m/{}.png", "path,image2,mask", "image2:pair,mask:mask"),
        ("{}.jpg m/{}.png cat", "path,mask,value3", "mask:mask"),
    ],
)
def test_a_list_of_images_and_masks_becomes_a_table_with_both(
    row: str, names: str, features: str, tmp_path: Path
) -> None:
    path = tmp_path / "train.txt"
    path.write_text("".join(f"{row.replace('{}', name)}\n" for name in ("1", "2")))
    text = describe_text(path.read_bytes())
    command = text[text.index("read_csv(") : text.index(" writes a")]
    exec(f"import pandas; pandas.{command}", {"FILE": str(path)})
    assert (tmp_path / "train.csv").read_text().splitlines()[0] == names
    assert f"`feature_columns={features}`" in text
    assert ("`label_column=value3`" in text) == ("value3" in names)


@pytest.mark.parametrize("row", ["{}.jpg a/{}.xml", "{}.jpg\ta/{}.txt", "{}.jpg,a/{}.json"])
def test_paths_of_label_files_and_photos_in_lists_are_no_classes(row: str) -> None:
    lines = "".join(f"{row.replace('{}', name)}\n" for name in ("1", "2"))
    text = describe_text(lines.encode())
    assert "annotation files" in text
    assert "label_column" not in text
    assert "PNGs" in describe_text(b"1.jpg a/1.jpg\n2.jpg a/2.jpg\n")


def test_values_in_lines_of_several_lengths_have_no_line_of_pandas() -> None:
    text = describe_text(b"a.jpg 1\nb.jpg 1 2\nc.jpg 3\n")
    assert "read_csv" not in text
    assert "write a CSV for `table=`, with a row per image" in text


TEXTS_AS_TABLES = [
    "attributes.txt",
    "split/wider_gt.txt",
    "yolo.txt",
    "labels.txt",
    "Label.txt",
    "rec_gt_train.txt",
    "captions.txt",
    "Flickr8k.token.txt",
]


@pytest.mark.parametrize("name", TEXTS_AS_TABLES)
def test_a_text_as_table_is_told_as_what_it_is(name: str, tmp_path: Path) -> None:
    content, told = FILES[name]
    path = tmp_path / Path(name).name
    path.write_text(content)
    with pytest.raises(UsageError, match=told.partition(" ")[2]):
        beam_tfr.plan(table=str(path), progress=False)


def test_the_line_of_pandas_for_counted_columns_writes_a_table(tmp_path: Path) -> None:
    for name in ("attributes.txt", "bbox.txt"):
        path = tmp_path / name
        path.write_text(FILES[name][0])
        frame = pandas.read_csv(path, sep=r"\s+", skiprows=1, index_col=0).rename_axis("path")
        assert "read_csv(FILE, sep=r'\\s+', skiprows=1, index_col=0)" in describe_text(
            path.read_bytes()
        )
        assert [*frame.index] == ["a.jpg", "b.jpg"]


LINES = "1 0.5 0.5 0.2 0.4\n"
NAMES = 'names: ["dog", "cat"]'
# Files beside images -> lines of the data.yaml that is offered.
SETUPS = {
    "LabelImg": ({"1.txt": LINES, "classes.txt": "dog\ncat\n"}, "1.jpg", ["train: ."]),
    "Label Studio": (
        {"labels/1.txt": LINES, "notes.json": '{"categories": [{"id": 1, "name": "cat"}, '
         '{"id": 0, "name": "dog"}], "info": {"year": 2024}}'},
        "images/1.jpg",
        ["train: ."],
    ),
    "CVAT": (
        {
            "obj_train_data/1.txt": LINES,
            "obj.names": "dog\ncat\n",
            "obj.data": "train = data/train.txt\nnames = data/obj.names\n",
            "train.txt": "data/obj_train_data/1.jpg\n",
        },
        "obj_train_data/1.jpg",
        ["train: train.txt"],
    ),
    "splits": (
        {"labels/train/1.txt": LINES, "labels/classes.txt": "dog\r\ncat"},
        "images/train/1.jpg",
        ["train: images/train"],
    ),
    "outer splits": (
        {"valid/labels/1.txt": LINES, "classes.txt": "dog\ncat"},
        "valid/images/1.jpg",
        ["val: valid"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("program", [*SETUPS])
def test_label_files_without_a_data_yaml_are_told_with_the_lines_that_read_them(
    program: str, tmp_path: Path
) -> None:
    texts, image, lines = SETUPS[program]
    for name, text in texts.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / image).parent.mkdir(parents=True, exist_ok=True)
    PIL.Image.new("RGB", (9, 9)).save(tmp_path / image)
    plan = beam_tfr.plan(input=str(tmp_path), layout="**", progress=False)
    told = [next(note for note in plan.warnings if "data.yaml" in note)]
    assert "notes.json is" not in told[0]
    for name in texts.keys() - {"train.txt", "obj.data"}:
        with pytest.raises(BeamTfrError) as caught:
            beam_tfr.plan(table=str(tmp_path / name), progress=False)
        told.append(str(caught.value))
    for message in told:
        assert f"write {tmp_path}/data.yaml" in message
        assert all(f"`{line}`" in message for line in [*lines, NAMES])
    setup = tmp_path / "data.yaml"
    setup.write_text("\n".join([*lines, NAMES]))
    with setup.open("rb") as file:
        [row] = read_annotations(str(setup), file, print)
    assert (row["file"], row["class"]) == (str(tmp_path / image), ["cat"])
    plan = beam_tfr.plan(input=str(tmp_path), layout="**", progress=False)
    assert any(f"belong to {setup}, which" in note for note in plan.warnings)
    assert not any(f"{setup} is a" in note for note in plan.warnings)  # says it twice


def test_labels_beside_images_are_named_where_no_file_fits_the_layout(tmp_path: Path) -> None:
    for number in range(3):
        PIL.Image.new("RGB", (9, 9)).save(tmp_path / f"{number}.jpg")
        (tmp_path / f"{number}.txt").write_text("0 0.5 0.5 0.2 0.2\n")
    (tmp_path / "classes.txt").write_text("cat\n")
    with pytest.raises(UsageError) as caught:
        beam_tfr.plan(input=str(tmp_path), progress=False)
    assert "no file fits" in str(caught.value)
    assert f'write {tmp_path}/data.yaml with the lines `train: .`, `names: ["cat"]`' in str(
        caught.value
    )
