"""Images in the folders of the images of a table that no row lists."""

from __future__ import annotations

import json
from pathlib import Path

import pandas
import pytest

from beam_tfr.tables import unlabelled
from tests.table_files import OPTIONS, open_input, write_csv, write_images

LISTED = ("a.jpg", "b.jpg", "c.jpg")


def left_out_of(*tables: Path, **options: str) -> list[str]:
    paths = ",".join(map(str, tables))
    opened = open_input(table=paths, **{**OPTIONS, **options})
    return [line for line in opened.warnings if "left out" in line]


def write_rows(path: Path, *images: str) -> None:
    rows = pandas.DataFrame({"image": images, "label": "a"})
    if path.suffix == ".parquet":
        rows.to_parquet(path)
    elif path.suffix == ".jsonl":
        rows.to_json(path, orient="records", lines=True)
    else:
        rows.to_csv(path, sep="\t" if path.suffix == ".tsv" else ",", index=False)


@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "metadata.jsonl", "t.parquet", "t.csv.gz"])
def test_images_that_no_row_lists_are_told(tmp_path: Path, name: str) -> None:
    write_images(tmp_path, *(f"img/{image}" for image in (*LISTED, "new.jpg", "old.png")))
    (tmp_path / "img/notes.txt").write_text("no image")
    write_rows(tmp_path / name, *(f"img/{image}" for image in LISTED))
    assert left_out_of(tmp_path / name) == [
        "2 images in the folders of the other images are left out, such as "
        f"{tmp_path}/img/new.jpg: none of the tables lists it"
    ]
    (tmp_path / "img/old.png").unlink()
    (line,) = left_out_of(tmp_path / name)
    assert line.startswith("1 image in the folders of the other images is left out, such as ")
    (tmp_path / "img/new.jpg").unlink()
    assert not left_out_of(tmp_path / name)


def test_a_table_may_list_a_part_of_a_folder(tmp_path: Path) -> None:
    write_images(tmp_path, *LISTED, "d.jpg", "e.jpg", "f.jpg")
    write_csv(tmp_path / "t.csv", *LISTED)
    assert not left_out_of(tmp_path / "t.csv")
    (tmp_path / "f.jpg").unlink()
    assert len(left_out_of(tmp_path / "t.csv")) == 1


def test_other_tables_list_images(tmp_path: Path) -> None:
    write_images(tmp_path, *(f"img/{image}" for image in (*LISTED, "d.jpg")))
    write_csv(tmp_path / "train.csv", *(f"img/{image}" for image in LISTED))
    assert len(left_out_of(tmp_path / "train.csv")) == 1
    (tmp_path / "prices.csv").write_text("item,price\nimg/d.jpg is not a path,1\n")
    assert len(left_out_of(tmp_path / "train.csv")) == 1
    # The other table has another column than the first one, and no labels.
    (tmp_path / "test.csv").write_text("image,weight\nimg/d.jpg,3.5\n")
    assert not left_out_of(tmp_path / "train.csv")
    write_images(tmp_path, "img/e.jpg")
    (line,) = left_out_of(tmp_path / "train.csv")
    assert f"1 image in the folders of the other images is left out, such as {tmp_path}" in line
    assert line.endswith("/img/e.jpg: none of the tables lists it")


def test_files_in_any_column_are_listed(tmp_path: Path) -> None:
    write_images(tmp_path, *LISTED, "left.png", "right.png")
    rows = [
        {"image": "a.jpg", "label": "a", "mask": None, "views": ["left.png", "right.png"]},
        {"image": "b.jpg", "label": "a", "mask": "c.jpg", "views": []},
    ]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    write_images(tmp_path, "own/a.jpg", "own/b.jpg", "own/b_mask.png")
    (tmp_path / "own/t.csv").write_text("image,label,mask\na.jpg,a,\nb.jpg,a,b_mask.png\n")
    for table in (tmp_path / "t.jsonl", tmp_path / "own/t.csv"):
        assert not left_out_of(table)
        assert not left_out_of(table, feature_columns="")


def test_images_in_a_new_folder_are_told(tmp_path: Path) -> None:
    listed = ["cat/1.jpg", "cat/2.jpg", "dog/1.jpg", "dog/2.jpg"]
    write_images(tmp_path, *listed, "test/1.jpg", "dog_masks/1.jpg", ".cache/1.jpg")
    write_csv(tmp_path / "t.csv", *listed)
    assert not left_out_of(tmp_path / "t.csv")
    write_images(tmp_path, "fox/1.jpg", "fox/2.jpg")
    (tmp_path / "notes").mkdir()
    assert left_out_of(tmp_path / "t.csv") == [
        "2 images in or next to the folders of the other images are left out, such as "
        f"{tmp_path}/fox/1.jpg: none of the tables lists it"
    ]
    # A table of one folder, or of few of many folders, lists a part on purpose.
    write_csv(tmp_path / "one.csv", *listed[:2])
    (tmp_path / "t.csv").unlink()
    assert not left_out_of(tmp_path / "one.csv")
    write_images(tmp_path, *(f"more/{number}.jpg" for number in range(9)))
    write_csv(tmp_path / "two.csv", *listed)
    assert not left_out_of(tmp_path / "two.csv")


def test_long_searches_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_images(tmp_path, *LISTED, "new.jpg")
    write_csv(tmp_path / "t.csv", *LISTED)
    for name, enough in (("_MOST_FILES", 5), ("_MOST_FOLDERS", 1)):
        monkeypatch.setattr(unlabelled, name, enough)
        assert len(left_out_of(tmp_path / "t.csv")) == 1
        monkeypatch.setattr(unlabelled, name, enough - 1)
        assert not left_out_of(tmp_path / "t.csv")
        monkeypatch.undo()
