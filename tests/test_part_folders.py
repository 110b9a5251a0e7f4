"""Tables of bare names whose images lie in several part folders, and tables in parts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from beam_tfr import convert, plan, storage
from beam_tfr.schema.errors import DataError, UsageError
from beam_tfr.tables.rows import Tables
from tests.fake_gcs import FakeGcs
from tests.table_files import OPTIONS, keys_of, open_input, references, write_csv, write_images
from tests.table_rows import records_of


def opened(table: Path | str, **options: Any) -> Tables:
    return open_input(**{"table": str(table), **OPTIONS, **options})


def test_each_name_is_found_in_its_part(tmp_path: Path) -> None:
    """As of ChestX-ray14; no name of the table is in the last part, as if it came later."""
    names = ("images_001/images/1.png", "images_002/images/2.png", "images_012/images/3.png")
    write_images(tmp_path, *names)
    write_csv(tmp_path / "t.csv", "2.png", "1.png")
    tables = opened(tmp_path / "t.csv")
    assert keys_of(tables) == [names[1], names[0]]
    assert not tables.missing
    (line,) = [line for line in tables.warnings if "over several folders" in line]
    assert str(tmp_path / "images_012" / "images") in line


def test_parts_that_only_later_rows_name(tmp_path: Path) -> None:
    """The first rows are all in one part."""
    write_images(tmp_path, "part_1/1.jpg", "part_2/2.jpg", "masks/1.png")
    write_csv(tmp_path / "t.csv", "1.jpg")
    tables = opened(tmp_path / "t.csv")
    assert tables.parts is not None
    assert tables.parts.folders == (f"{tmp_path}/part_1/", f"{tmp_path}/part_2/")
    assert keys_of(tables) == ["part_1/1.jpg"]


def test_names_without_extensions(tmp_path: Path) -> None:
    """As of HAM10000."""
    write_images(tmp_path, "part_1/a.jpg", "part_2/b.jpg", "part_2/b.png", "part_2/c.jpg")
    write_csv(tmp_path / "t.csv", "a", "c", "d")
    tables = opened(tmp_path / "t.csv")
    assert keys_of(tables) == ["part_1/a.jpg", "part_2/c.jpg", "d"]


def test_masks_of_the_same_names_are_no_parts(tmp_path: Path) -> None:
    write_images(tmp_path, "part_1/a.jpg", "part_2/b.jpg", "masks/a.png", "masks/b.png")
    write_csv(tmp_path / "t.csv", "a", "b")
    assert keys_of(opened(tmp_path / "t.csv")) == ["part_1/a.jpg", "part_2/b.jpg"]


def test_a_name_in_two_parts_is_a_reject(tmp_path: Path) -> None:
    write_images(tmp_path, "part_1/1.jpg", "part_2/2.jpg", "part_2/4.jpg")
    write_images(tmp_path, "part_1/3.jpg", "part_2/3.jpg")
    write_csv(tmp_path / "t.csv", "1.jpg", "2.jpg", "3.jpg", "4.jpg")
    *_, third, fourth = references(opened(tmp_path / "t.csv"))
    assert third.reason == "bad-value"
    detail = f"'3.jpg' may be any of {tmp_path}/part_1/3.jpg, {tmp_path}/part_2/3.jpg"
    assert detail in third.detail
    assert fourth.key == "part_2/4.jpg"


@pytest.mark.parametrize(
    ("images", "names"),
    [
        (["a/1.jpg", "a/2.jpg", "b/1.jpg"], ["1.jpg", "2.jpg"]),  # a has all
        (["a/1.jpg", "a/2.jpg"], ["1.jpg", "2.jpg"]),
        (["a/1.jpg", "b/1.jpg", "a/2.jpg", "b/2.jpg"], ["1.jpg", "2.jpg"]),
        (["a/x/1.jpg", "b/x/2.jpg"], ["x/1.jpg", "x/2.jpg"]),  # which are paths
    ],
)
def test_no_parts(tmp_path: Path, images: list[str], names: list[str]) -> None:
    write_images(tmp_path, *images)
    write_csv(tmp_path / "t.csv", *names)
    tables = opened(tmp_path / "t.csv")
    assert tables.parts is None
    assert tables.missing


@pytest.mark.parametrize("options", [{}, {"image_root": "set"}])
def test_parts_around_the_table(tmp_path: Path, options: Mapping[str, str]) -> None:
    write_images(tmp_path, "set/part_1/1.jpg", "set/part_2/2.jpg")
    write_csv(tmp_path / "set" / "tables" / "t.csv", "1.jpg", "2.jpg")
    given = {name: str(tmp_path / folder) for name, folder in options.items()}
    tables = opened(tmp_path / "set" / "tables" / "t.csv", **given)
    assert keys_of(tables) == ["part_1/1.jpg", "part_2/2.jpg"]
    assert not tables.missing


def test_images_of_other_sets_beside_the_table_are_not_taken(tmp_path: Path) -> None:
    """Its own images are not there; the only cure is one that the user chooses."""
    write_images(tmp_path, "B/0.jpg", "B/x.jpg", "C/1.jpg", "C/2.jpg")
    write_csv(tmp_path / "A" / "t.csv", "0.jpg", "1.jpg", "2.jpg")
    tables = opened(tmp_path / "A" / "t.csv")
    assert tables.parts is None
    assert "other data sets" in tables.missing
    assert f"`image_root={tmp_path}`" in tables.missing
    tables = opened(tmp_path / "A" / "t.csv", image_root=str(tmp_path))
    assert keys_of(tables) == ["B/0.jpg", "C/1.jpg", "C/2.jpg"]


def test_parts_beside_the_table_among_other_sets(tmp_path: Path) -> None:
    write_images(tmp_path, "images_1/1.jpg", "images_2/2.jpg", "B/1.jpg", "B/2.jpg")
    write_csv(tmp_path / "A" / "t.csv", "1.jpg", "2.jpg")
    tables = opened(tmp_path / "A" / "t.csv")
    assert keys_of(tables) == ["images_1/1.jpg", "images_2/2.jpg"]


def test_parts_by_split_around_the_folder_of_annotations(tmp_path: Path) -> None:
    """As of DIOR; the folder of lists has no images."""
    write_images(tmp_path, "JPEGImages-trainval/1.jpg", "JPEGImages-test/2.jpg")
    write_csv(tmp_path / "Annotations" / "boxes" / "t.csv", "1.jpg", "2.jpg")
    write_csv(tmp_path / "ImageSets" / "test.txt", "2")
    tables = opened(tmp_path / "Annotations" / "boxes" / "t.csv")
    assert keys_of(tables) == ["JPEGImages-trainval/1.jpg", "JPEGImages-test/2.jpg"]
    (line,) = [line for line in tables.warnings if "over several folders" in line]
    assert "ImageSets" not in line
    tables = opened(tmp_path / "Annotations" / "boxes" / "t.csv", image_root=str(tmp_path))
    (line,) = [line for line in tables.warnings if "over several folders" in line]
    assert "ImageSets" not in line
    assert "Annotations" not in line


def test_a_folder_of_any_name_around_that_of_annotations_is_told(tmp_path: Path) -> None:
    write_images(tmp_path, "scenes/1.jpg", "scenes/2.jpg")
    write_csv(tmp_path / "Annotations" / "boxes" / "t.csv", "1.jpg", "2.jpg")
    missing = opened(tmp_path / "Annotations" / "boxes" / "t.csv").missing
    assert f"`image_root={tmp_path}/scenes`, if" in missing


@pytest.mark.parametrize("images", ["Images/trainval", "images/trainval", "Images", "JPEGImages"])
def test_images_in_the_usual_folders_around_that_of_annotations(
    tmp_path: Path, images: str
) -> None:
    write_images(tmp_path, f"{images}/1.jpg")
    write_csv(tmp_path / "Annotations" / "trainval" / "t.csv", "1.jpg")
    tables = opened(tmp_path / "Annotations" / "trainval" / "t.csv")
    assert keys_of(tables) == ["1.jpg"]
    assert any(f"{tmp_path}/{images}" in line for line in tables.warnings)


def test_a_folder_beside_the_table_is_a_cure_on_a_condition(tmp_path: Path) -> None:
    write_images(tmp_path, "B/1.jpg", "B/2.jpg")
    write_csv(tmp_path / "A" / "t.csv", "1.jpg", "2.jpg")
    missing = opened(tmp_path / "A" / "t.csv").missing
    assert f"`image_root={tmp_path}/B`, if" in missing


def test_parts_on_gs(fake: FakeGcs, tmp_path: Path) -> None:
    for name in ("in/part_1/1.jpg", "in/part_2/2.jpg", "in/part_3/3.jpg"):
        fake.put(name, b"x")
    fake.put("in/t.csv", b"image,label\n1.jpg,a\n2.jpg,a\n3.jpg,a\n4.jpg,a\n")
    tables = opened("gs://b/in/t.csv")
    assert keys_of(tables) == ["part_1/1.jpg", "part_2/2.jpg", "part_3/3.jpg", "4.jpg"]


def test_splits_named_by_folders_are_told(tmp_path: Path) -> None:
    write_images(tmp_path, "train/1.jpg", "val/2.jpg")
    write_csv(tmp_path / "t.csv", "1.jpg", "2.jpg")
    assert any("`split_column=`" in line for line in opened(tmp_path / "t.csv").warnings)


def test_parts_are_converted(tmp_path: Path) -> None:
    write_images(tmp_path, "part_1/1.jpg", "part_2/2.jpg", "part_1/3.jpg", "part_2/3.jpg")
    write_csv(tmp_path / "t.csv", "1.jpg", "2.jpg", "3.jpg", "4.jpg")
    result = convert(
        table=tmp_path / "t.csv", output=tmp_path / "d", max_rejects=2, progress=False, **OPTIONS
    )
    assert sorted(records_of(tmp_path / "d")) == ["part_1/1.jpg", "part_2/2.jpg"]
    assert result.counts["rejected"] == {"bad-value": 1, "not-found": 1}


def test_a_column_of_names_in_parts_is_told(tmp_path: Path) -> None:
    write_images(tmp_path, "part_1/a.jpg", "part_2/images/b.jpg")
    (tmp_path / "t.csv").write_text("image_id,dx\na,nv\nb,mel\n")
    tables = opened(tmp_path / "t.csv", uri_column="", label_column="")
    assert any("`uri_column=image_id` reads the images" in line for line in tables.warnings)


def test_paths_of_buckets_elsewhere_have_a_cure_that_works(tmp_path: Path) -> None:
    write_images(tmp_path, "photos/a/1.jpg", "photos/b/2.jpg")
    write_csv(tmp_path / "t.csv", "s3://bucket/set/a/1.jpg", "s3://bucket/set/b/2.jpg")
    missing = opened(tmp_path / "t.csv").missing
    assert f"`image_root={tmp_path}/photos`" in missing
    with pytest.raises(UsageError, match="image_root"):
        plan(table=tmp_path / "t.csv", progress=False, **OPTIONS)
    tables = opened(tmp_path / "t.csv", image_root=f"{tmp_path}/photos")
    assert keys_of(tables) == ["a/1.jpg", "b/2.jpg"]


@pytest.mark.parametrize(
    ("image", "is_told"), [("s3://b/1.jpg", True), ("https://example.org/1.jpg", False)]
)
def test_a_column_of_addresses_in_buckets_is_told(
    tmp_path: Path, image: str, *, is_told: bool
) -> None:
    (tmp_path / "t.csv").write_text(f"source,dx\n{image},nv\n")
    tables = opened(tmp_path / "t.csv", uri_column="", label_column="")
    assert any("`uri_column=source`" in line for line in tables.warnings) == is_told


def test_folders_are_listed(fake: FakeGcs, tmp_path: Path) -> None:
    for name in ("in/b/1.jpg", "in/a/x/2.jpg", "in/3.jpg", "other/4.jpg"):
        fake.put(name, b"x")
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    for root in ("gs://b/in", "gs://b/in/", str(tmp_path / "in")):
        assert storage.list_folders(root) == ["a", "b"]


def test_parts_of_spark_without_rows(tmp_path: Path) -> None:
    write_images(tmp_path, "1.jpg")
    for name in ("part-0.csv", "part-2.csv"):
        (tmp_path / name).touch()
    with pytest.raises(UsageError, match="is empty"):
        opened(tmp_path / "*.csv")
    write_csv(tmp_path / "part-1.csv", "1.jpg")
    tables = opened(tmp_path / "*.csv")
    assert keys_of(tables) == ["1.jpg"]
    (line,) = [line for line in tables.warnings if "0 bytes" in line]
    assert str(tmp_path / "part-2.csv") in line
    with pytest.raises(DataError, match="is empty"):  # one that is named is meant
        opened(tmp_path / "part-0.csv")


def test_parquet_parts_without_rows_have_no_types(tmp_path: Path) -> None:
    write_images(tmp_path, "1.jpg")
    empty = pyarrow.table({"image": pyarrow.nulls(0), "label": pyarrow.nulls(0)})
    parquet.write_table(empty, tmp_path / "part-0.parquet")
    rows = pyarrow.table({"image": ["1.jpg"], "label": ["a"]})
    parquet.write_table(rows, tmp_path / "part-1.parquet")
    assert keys_of(opened(tmp_path / "*.parquet")) == ["1.jpg"]


def test_rows_without_any_value_are_skipped(tmp_path: Path) -> None:
    """As spreadsheets write them below the last row."""
    write_images(tmp_path, "1.jpg", "2.jpg")
    (tmp_path / "t.csv").write_text("image;label\n1.jpg;a\n;\n2.jpg;b\n;c\n;\n;\n")
    tables = opened(tmp_path / "t.csv")
    first, second, other = references(tables)
    assert [first.key, second.key] == ["1.jpg", "2.jpg"]
    assert other.reason == "bad-value"  # it has a label
    assert "#4" in other.key
    assert any("rows without any value" in line for line in tables.warnings)
