"""Images that are not where tables say: where they are, and the cure that works."""

from __future__ import annotations

import contextlib
import glob
import json
import os
import subprocess
from pathlib import Path

import pandas
import pytest

import beam_tfr as package
from beam_tfr.schema.errors import BeamTfrError, DataError, UsageError
from beam_tfr.schema.spelling import spell_as_flags
from beam_tfr.tables.lost_images import clear_files, describe_lost
from beam_tfr.tables.paths import folder_around
from tests.fake_gcs import FakeGcs
from tests.table_files import OPTIONS, keys_of, open_input, write_csv, write_images
from tests.voc_files import voc


def test_one_folder_is_the_root(tmp_path: Path) -> None:
    write_images(tmp_path, "data/photos/a/1.jpg", "data/photos/b/2.png", "other/3.jpg")
    folder = f"{tmp_path}/"
    for paths in (["a/1.jpg", "b/2.png"], ["./a\\1.jpg"], ["a/1", "b/2"], ["/a/1.jpg"]):
        assert f"`image_root={tmp_path}/data/photos`" in describe_lost(paths, folder)
    assert f"`image_root={tmp_path}/other`" in describe_lost(["3.jpg"], folder)
    assert not describe_lost(["4.jpg"], folder)
    assert not describe_lost(["data/photos/a/1"], folder)  # where it is looked for
    assert not describe_lost(["c/1.jpg"], folder)


@pytest.mark.parametrize(
    "start", ["data/Photos/{}.JPG", "Photos\\{}.JPG", "data/my%20photos/{}", " data/{}.jpg "]
)
def test_paths_that_need_two_repairs_are_written_as_names(tmp_path: Path, start: str) -> None:
    write_images(tmp_path, "set/photos/1.jpg", "set/photos/2.jpg")
    names = [start.format(number) for number in (1, 2)]
    table_file = tmp_path / "set" / "t.csv"
    write_csv(table_file, *names)
    missing = open_input(table=str(table_file), **OPTIONS).missing
    assert f"give `image_root={tmp_path}/set/photos`, and write names" in missing
    command = missing[missing.index("table[NAME] =") :]
    table = pandas.DataFrame({"path": names})
    exec(command, {"table": table, "NAME": "path"})
    write_csv(table_file, *table["path"])
    tables = open_input(table=str(table_file), image_root=f"{tmp_path}/set/photos", **OPTIONS)
    assert keys_of(tables) == ["1.jpg", "2.jpg"]


def test_paths_of_coco_that_need_two_repairs_are_written_as_names(tmp_path: Path) -> None:
    write_images(tmp_path, "my photos/1.jpg", "my photos/2.jpg")
    images = [{"id": 1, "file_name": "a\\b/Photos/1.JPG"}, {"id": 2, "file_name": "a/Photos/2.JPG"}]
    content = {"images": images, "annotations": [], "categories": []}
    (tmp_path / "boxes").mkdir()
    (tmp_path / "boxes" / "a.json").write_text(json.dumps(content))
    missing = open_input(table=str(tmp_path / "boxes" / "a.json")).missing
    root = f"{tmp_path}/my photos"
    assert f"give `image_root='{root}'`, and write names" in missing
    command = missing[missing.index("jq ") :]
    subprocess.run(command, shell=True, check=True, cwd=tmp_path / "boxes")
    tables = open_input(table=str(tmp_path / "boxes" / "b.json"), image_root=root)
    assert keys_of(tables) == ["1.jpg", "2.jpg"]


@pytest.mark.parametrize("end", ["/", ""])
def test_folders_instead_of_images_are_replaced_by_their_images(tmp_path: Path, end: str) -> None:
    studies = ["p1/study1_positive", "p2/study1_negative"]  # as of MURA
    write_images(tmp_path, *(f"{study}/{number}.jpg" for study in studies for number in (1, 2)))
    names = [f"{study}{end}" for study in studies]
    table_file = tmp_path / "t.csv"
    write_csv(table_file, *names)
    missing = open_input(table=str(table_file), **OPTIONS).missing
    command = missing[missing.index("table[NAME] =") :]
    table = pandas.DataFrame({"path": names})
    with contextlib.chdir(tmp_path):
        scope = {"table": table, "NAME": "path", "glob": glob, "os": os}
        exec(command, scope)
    write_csv(table_file, *scope["table"]["path"])
    keys = keys_of(open_input(table=str(table_file), **OPTIONS))
    assert keys == [f"{study}/{number}.jpg" for study in studies for number in (1, 2)]


def test_rows_that_name_folders_are_told(tmp_path: Path) -> None:
    write_images(tmp_path, "a/1.jpg")
    (tmp_path / "t.csv").write_text("study,label\na/,1\n")
    warnings = open_input(table=str(tmp_path / "t.csv")).warnings
    assert any("column 'study' names folders, such as a/" in text for text in warnings)


def test_names_that_folders_tell_apart_stay_with_these(tmp_path: Path) -> None:
    write_images(tmp_path, "photos/1.jpg")
    write_csv(tmp_path / "t.csv", "a/Photos/1.JPG", "b/Photos/1.JPG")
    assert "write names" not in open_input(table=str(tmp_path / "t.csv"), **OPTIONS).missing


def test_several_folders_are_named(tmp_path: Path) -> None:
    write_images(tmp_path, "part_1/1.jpg", "part_2/2.jpg")
    text = describe_lost(["1.jpg", "2.jpg"], f"{tmp_path}/")
    assert f"{tmp_path}/part_1/, {tmp_path}/part_2/" in text
    assert "image_root" not in text
    write_images(tmp_path, "part_2/1.jpg")  # so each may be meant
    clear_files()
    text = describe_lost(["1.jpg", "2.jpg"], f"{tmp_path}/")
    assert "in several folders" in text
    assert f"`image_root={tmp_path}/part_2`" in text  # which has all of them


def test_the_file_that_is_shown_is_there(tmp_path: Path) -> None:
    write_images(tmp_path, "a/1.png", "b/1.jpg")
    assert f"there is {tmp_path}/a/1.png," in describe_lost(["1"], f"{tmp_path}/")


def test_folders_of_images_mirror_those_of_annotations(tmp_path: Path) -> None:
    """As of ImageNet: a class has a folder of XML files, and one of images."""
    for name in ("train/n01/n01_1", "train/n02/n02_1", "val/v_1"):
        write_images(tmp_path, f"sets/Data/CLS/{name}.JPEG")
        table = tmp_path / "sets" / "Annotations" / "CLS" / f"{name}.xml"
        table.parent.mkdir(parents=True, exist_ok=True)
        table.write_text(voc(name.rpartition("/")[2]))
    table_glob = f"{tmp_path}/sets/Annotations/CLS/**/*.xml"
    root = f"{tmp_path}/sets/Data/CLS"
    assert open_input(table=table_glob).missing.endswith(f"`image_root={root}`")
    tables = open_input(table=table_glob, image_root=root)
    assert not tables.missing
    assert keys_of(tables) == ["train/n01/n01_1.JPEG", "train/n02/n02_1.JPEG", "val/v_1.JPEG"]


@pytest.mark.parametrize(
    ("root", "words"),
    [
        ("photos", "there is no such folder"),
        ("all.zip", "unpack it"),
        ("all.tar.gz", "unpack it"),
        ("t.csv", "this is a file"),
    ],
)
def test_an_image_root_that_is_no_folder_is_refused(tmp_path: Path, root: str, words: str) -> None:
    write_images(tmp_path, "photo/1.jpg")
    write_csv(tmp_path / "t.csv", "1.jpg")
    for name in ("all.zip", "all.tar.gz"):
        (tmp_path / name).touch()
    with pytest.raises(UsageError) as caught:
        open_input(table=str(tmp_path / "t.csv"), image_root=str(tmp_path / root), **OPTIONS)
    assert words in str(caught.value)
    assert f"`image_root={tmp_path}/photo`" in str(caught.value)


def test_an_image_root_without_an_object_is_refused(fake: FakeGcs, tmp_path: Path) -> None:
    fake.put("photos/2.jpg", b"x")
    write_csv(tmp_path / "t.csv", "1.jpg")
    table = str(tmp_path / "t.csv")
    with pytest.raises(UsageError, match="there is no such folder"):
        open_input(table=table, image_root="gs://b/photo", **OPTIONS)
    assert open_input(table=table, image_root="gs://b/photos", **OPTIONS).missing


def test_the_cure_is_told_and_works(tmp_path: Path) -> None:
    write_images(tmp_path, "raw/photos/1.jpg", "raw/photos/2.jpg")
    write_csv(tmp_path / "lists" / "all.csv", "1.jpg", "2.jpg")
    given = {"table": str(tmp_path / "lists" / "all.csv"), **OPTIONS}
    cure = f"give --image_root {tmp_path}/raw/photos"
    assert cure in spell_as_flags(open_input(**given).missing)
    with pytest.raises(DataError) as caught:  # by plan too
        package.plan(output=tmp_path / "out", progress=False, **given)
    assert cure in spell_as_flags(str(caught.value))
    tables = open_input(image_root=f"{tmp_path}/raw/photos", **given)
    assert not tables.missing


def test_one_of_several_tables_is_named(tmp_path: Path) -> None:
    write_images(tmp_path, "train/1.jpg", "extra/2.jpg")
    write_csv(tmp_path / "train.csv", "1.jpg")
    write_csv(tmp_path / "test.csv", "2.jpg")
    tables = open_input(table=[f"{tmp_path}/train.csv", f"{tmp_path}/test.csv"], **OPTIONS)
    assert not tables.missing
    (text,) = (text for text in tables.warnings if text.startswith(f"{tmp_path}/test.csv: "))
    assert f"{tmp_path}/extra/2.jpg" in text


def test_names_without_extensions_in_folders_like_tables(tmp_path: Path) -> None:
    write_images(tmp_path, "train/1.jpg", "val/2.JPG")
    write_csv(tmp_path / "train.csv", "1")
    write_csv(tmp_path / "val.csv", "2")
    tables = open_input(table=[f"{tmp_path}/train.csv", f"{tmp_path}/val.csv"], **OPTIONS)
    assert keys_of(tables) == ["train/1.jpg", "val/2.JPG"]


def test_images_beside_the_folder_around_the_tables(tmp_path: Path) -> None:
    """As of Oxford's pets: annotations/xmls/1.xml and images/1.jpg."""
    write_images(tmp_path, "images/1.jpg")
    image = {"id": 1, "file_name": "1.jpg"}
    document = {"images": [image], "annotations": [], "categories": []}
    table = tmp_path / "annotations" / "json" / "all.json"
    table.parent.mkdir(parents=True)
    table.write_text(json.dumps(document))
    assert open_input(table=str(table)).root == f"{tmp_path}/images/"


def test_names_that_repeat_in_folders_of_classes_are_not_taken_from_one(tmp_path: Path) -> None:
    """As of MIT's indoor scenes: bakery has an image of each name, those of bar among them."""
    write_images(tmp_path, "Images/bar/1.jpg", "Images/bakery/1.jpg", "Images/bakery/2.jpg")
    for folder in ("bar", "bakery"):
        table = tmp_path / "Annotations" / folder / "1.xml"
        table.parent.mkdir(parents=True)
        table.write_text(voc("1.jpg"))
    missing = open_input(table=f"{tmp_path}/Annotations/*/*.xml").missing
    assert missing.endswith(f"`image_root={tmp_path}/Images`")
    (tmp_path / "Images/bar/1.jpg").rename(tmp_path / "Images/bar/3.jpg")
    (tmp_path / "Images/bakery/1.jpg").rename(tmp_path / "Images/4.jpg")
    write_images(tmp_path, "a/1.jpg", "b/1.jpg")
    missing = open_input(table=f"{tmp_path}/Annotations/*/*.xml").missing
    assert "add the folder of each image" in missing


@pytest.mark.parametrize(
    ("folder", "around"), [("/a/b/", "/a/"), ("/a/", "/"), ("/", "/"), ("gs://b/a/", "gs://b/")]
)
def test_the_folder_around_another(folder: str, around: str) -> None:
    assert folder_around(folder) == around


@pytest.mark.parametrize(
    "names",
    [["C:/a/1.jpg", "D:/b/2.jpg"], ["/x/1.jpg", "s3://b/2.jpg"], ["\ud800.jpg", "\ud800b.jpg"]],
)
def test_images_that_are_nowhere_are_told_whatever_their_paths(
    names: list[str], tmp_path: Path
) -> None:
    table = tmp_path / "t.jsonl"
    table.write_text("".join(f"{json.dumps({'image': name, 'label': 'a'})}\n" for name in names))
    with pytest.raises(BeamTfrError):
        package.plan(table=table, **OPTIONS, progress=False)


@pytest.mark.parametrize(("number", "is_told"), [("1", True), ("7", True), ("3", False)])
def test_numbers_that_lost_their_zeros_are_told(tmp_path: Path, number: str, is_told: bool) -> None:
    write_images(tmp_path, "00001.jpg", "00007.jpg", "x.jpg")
    table = tmp_path / "t.csv"
    table.write_text(f"id,label\n{number},cat\n{number}5,dog\n")
    missing = open_input(table=str(table), uri_column="id", label_column="label").missing
    assert ("str.zfill(5) + '.jpg'" in missing) == is_told
    assert missing.startswith("none of the first 2 images exists")


@pytest.mark.parametrize("folder", ["", "scans/"])
@pytest.mark.parametrize("extension", ["", ".jpg"])
def test_the_line_of_pandas_brings_lost_zeros_back(
    folder: str, extension: str, tmp_path: Path
) -> None:
    numbers = [9, 10, 100]  # the last one has lost none
    write_images(tmp_path, *(f"{folder}{number:03}.jpg" for number in numbers))
    table = tmp_path / "t.csv"
    write_csv(table, *(f"{number}{extension}" for number in numbers))
    options = {"table": str(table), "image_root": str(tmp_path / folder), **OPTIONS}
    (text,) = (text for text in open_input(**options).warnings if "some of the first" in text)
    frame = pandas.read_csv(table)
    command = text[text.index("table[NAME]") :]
    frame["image"] = eval(command, {"table": frame, "NAME": "image"})
    frame.to_csv(table, index=False)
    assert keys_of(open_input(**options)) == ["009.jpg", "010.jpg", "100.jpg"]


def test_a_folder_of_images_whose_numbers_lost_zeros_is_told(tmp_path: Path) -> None:
    write_images(tmp_path, "scans/08.jpg", "scans/09.jpg")
    table = tmp_path / "t.csv"
    table.write_text("key,tumor\n8,1\n9,0\n")
    warnings = open_input(table=str(table)).warnings
    root = f"`image_root={tmp_path}/scans`"
    assert any("names images, such as 8" in text and root in text for text in warnings)
    missing = open_input(table=str(table), uri_column="key").missing
    assert "str.zfill(2) + '.jpg'" in missing
    assert root in missing


def test_images_of_which_some_are_in_an_inner_folder_are_told(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    write_images(tmp_path, "1.jpg", "images/2.jpg", "masks/3.jpg")
    for names, is_told in ((["1.jpg", "2.jpg"], True), (["1.jpg", "3.jpg"], False)):
        write_csv(table, *names)
        warnings = open_input(table=str(table), **OPTIONS).warnings
        about = [text for text in warnings if f"there is {tmp_path}/images/2.jpg" in text]
        assert len(about) == is_told
    (tmp_path / "images/2.jpg").rename(tmp_path / "2.jpg")  # as the message says
    write_csv(table, "1.jpg", "2.jpg")
    assert not open_input(table=str(table), **OPTIONS).warnings


def test_a_table_that_is_mistyped_is_told_with_the_one_that_is_there(tmp_path: Path) -> None:
    for name in ("labels.csv", "other.csv", "a.json"):
        (tmp_path / name).write_text("path,label\n")
    with pytest.raises(UsageError, match=r"no file with this name, but there is labels\.csv$"):
        open_input(table=f"{tmp_path}/lables.csv")
    with pytest.raises(UsageError, match=r"no file with this name$"):
        open_input(table=f"{tmp_path}/x.parquet")
