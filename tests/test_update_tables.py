"""`beam-tfr update` of datasets from tables.

Labels, splits and columns change, and no image is decoded again.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import PIL.Image
import pytest

from beam_tfr.dataset.manifest import read_manifest
from beam_tfr.launch import repair
from beam_tfr.schema.errors import UsageError
from tests.conftest import Run
from tests.converted import once
from tests.living_photos import files_of
from tests.update_rows import OPTIONS, Rows, rows_of, write_table
from tests.updates import convert, count_decoding, fresh, paint, spoil, update

COLUMNS = ("file", "class", "part", "age", "score", "note", "marks")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with photos, their table t.csv, and the dataset `d` of it."""

    def make(folder: Path) -> None:
        folder.mkdir()
        for i in range(24):  # some for later
            paint(folder / f"{i}.jpg", i)
        convert(folder / "d", table=write_table(folder / "t.csv", rows_of()), **OPTIONS)

    return Path(shutil.copytree(once("update_tables", make), tmp_path / "place"))


def relabel(rows: Rows) -> dict[str, Any]:
    rows[3]["class"], rows[4]["class"] = "owl", "dog"
    return {}


def move(rows: Rows) -> dict[str, Any]:
    rows[1]["part"], rows[2]["part"], rows[5]["part"] = "test", "val", "train"
    return {}


def change_values(rows: Rows) -> dict[str, Any]:
    rows[7] |= {"age": "70", "score": "-1.5", "note": "ä, b", "marks": "[]"}
    return {}


def add_column(rows: Rows) -> dict[str, Any]:
    for i, row in enumerate(rows):
        row["extra"] = str(i * i)
    return {"feature_columns": f"{OPTIONS['feature_columns']},extra:int64"}


def drop_columns(rows: Rows) -> dict[str, Any]:
    return {"feature_columns": "age:int64"}


def change_type(rows: Rows) -> dict[str, Any]:
    return {"feature_columns": "age:float,score:bytes"}


def drop_rows(rows: Rows) -> dict[str, Any]:
    del rows[2], rows[9]
    return {}


def empty_label(rows: Rows) -> dict[str, Any]:
    rows[3]["class"] = ""
    return {}


def several_labels(rows: Rows) -> dict[str, Any]:
    rows[0]["class"], rows[1]["class"] = "cat|dog", ""
    return {"label_separator": "|"}


def reorder(rows: Rows) -> dict[str, Any]:
    rows.reverse()
    return {}


def bad_value(rows: Rows) -> dict[str, Any]:
    rows[6]["age"] = "old"
    return {"max_rejects": 3}


def everything(rows: Rows) -> dict[str, Any]:
    return (
        relabel(rows)
        | move(rows)
        | change_values(rows)
        | bad_value(rows)
        | drop_rows(rows)
        | add_column(rows)
    )


CHANGES = {
    relabel: {"relabelled": 2},
    move: {},
    change_values: {"relabelled": 1},
    add_column: {"relabelled": 20},
    drop_columns: {"relabelled": 20},
    change_type: {"relabelled": 20},
    drop_rows: {"removed": 2},
    empty_label: {"relabelled": 1},
    several_labels: {"relabelled": 2},
    reorder: {},
    bad_value: {"removed": 1},
    everything: {"relabelled": 17, "removed": 3},
}
NONE = dict.fromkeys(("added", "removed", "changed", "relabelled"), 0)


@pytest.mark.parametrize(
    ("change", "compare"),
    [
        *(pytest.param(change, "auto", marks=pytest.mark.slow) for change in CHANGES),
        pytest.param(several_labels, "names", marks=pytest.mark.slow),
        (everything, "names"),
    ],
)
def test_a_corrected_table_decodes_nothing(
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Rows], dict[str, Any]],
    compare: str,
) -> None:
    rows = rows_of()
    given = change(rows)
    table = write_table(place / "t.csv", rows)
    expected = fresh(place / "fresh", table=table, **{**OPTIONS, **given})
    if compare == "names":
        spoil_photos(place)
    decoded = count_decoding(monkeypatch)
    done = update(
        place / "d", table=table, compare=compare, allow_empty=OPTIONS["allow_empty"], **given
    )
    assert files_of(place / "d") == expected
    assert done.changed == (
        {} if not CHANGES[change] and change is reorder else NONE | CHANGES[change]
    )
    assert decoded == []


def spoil_photos(place: Path) -> None:
    photos = place / "spoiled"
    photos.mkdir()
    for path in place.glob("*.jpg"):
        path.rename(photos / path.name)
    spoil(photos)
    for path in photos.iterdir():
        path.rename(place / path.name)


def test_new_and_changed_images_of_a_table_are_decoded_and_no_others(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = write_table(place / "t.csv", rows_of(22))
    paint(place / "4.jpg", 99)
    expected = fresh(place / "fresh", table=table, **OPTIONS)
    decoded = count_decoding(monkeypatch)
    done = update(place / "d", table=table)
    assert files_of(place / "d") == expected
    assert sorted(decoded) == ["20.jpg", "21.jpg", "4.jpg"]
    assert done.changed == NONE | {"added": 2, "changed": 1}


def test_a_split_that_is_gone_is_told(place: Path) -> None:
    table = write_table(place / "t.csv", [row for row in rows_of() if row["part"] == "train"])
    done = update(place / "d", table=table, allow_empty=OPTIONS["allow_empty"])
    assert "test (4)" in done.lost_splits
    assert f"note:    {done.lost_splits}" in [*done.lines()]
    done = update(place / "d", table=write_table(place / "t.csv", rows_of()))
    assert (done.changed["added"], done.lost_splits) == (4, "")


def test_a_table_that_did_not_change_leaves_the_dataset_and_its_history(place: Path) -> None:
    before = files_of(place / "d")
    done = update(place / "d", table=str(place / "t.csv"))
    assert (files_of(place / "d"), done.changed, done.fresh) == (before, {}, False)
    assert not (place / "d" / "history.jsonl").exists()


def test_a_dataset_of_a_table_wants_the_table(place: Path) -> None:
    with pytest.raises(UsageError, match=r"/d was made from a table: specify it with `table=`$"):
        update(place / "d", input=f"{place}/*.jpg")
    with pytest.raises(UsageError, match=r"/d was made from a table: specify it with `table=`$"):
        repair(str(place / "d"), {})


@pytest.mark.slow
def test_classes_shards_and_seed_of_a_table(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "classes.txt").write_text("dog\ncat\n")
    given = {"classes": str(place / "classes.txt"), "num_shards": 3, "seed": 5}
    expected = fresh(place / "fresh", table=str(place / "t.csv"), **OPTIONS, **given)
    next_one = fresh(
        place / "fresh", table=str(place / "t.csv"), **OPTIONS, **{**given, "num_shards": 2}
    )
    decoded = count_decoding(monkeypatch)
    update(place / "d", table=str(place / "t.csv"), **given)
    assert files_of(place / "d") == expected
    update(place / "d", num_shards=2)
    assert files_of(place / "d") == next_one
    assert decoded == []


@pytest.mark.slow
def test_the_rows_of_a_table_are_converted_again(place: Path) -> None:
    rows = rows_of()
    table = write_table(place / "t.csv", rows)
    options = {"encoding": "row", "label_column": "class", "key_column": "file"}
    convert(place / "rows", table=table, **options)
    rows[3]["note"] = "another"
    del rows[4]
    write_table(place / "t.csv", rows)
    done = update(place / "rows", table=table)
    assert files_of(place / "rows") == {
        name.replace("fresh", "rows"): of
        for name, of in fresh(place / "fresh", table=table, **options).items()
    }
    assert done.changed == {}  # not known


def write_rows(path: Path, header: str, *rows: str) -> Path:
    path.write_text("\n".join([header, *rows, ""]))
    return path


def test_splits_of_an_update_come_from_where_it_says(
    beam_tfr: Callable[..., Run], tmp_path: Path
) -> None:
    for number in range(4):
        PIL.Image.new("RGB", (8, 8), (60 * number, 0, 0)).save(tmp_path / f"{number}.png")
    plain = write_rows(tmp_path / "all.csv", "path,label", *(f"{n}.png,a" for n in range(4)))
    rows = [f"{number}.png,a,{('train', 'val')[number % 2]}" for number in range(4)]
    with_splits = write_rows(tmp_path / "new.csv", "path,label,split", *rows)
    out = tmp_path / "out"
    roles = ("--uri_column", "path", "--label_column", "label")
    shares = ("--splits", "a=0.5,b=0.5")
    run = beam_tfr("convert", "--table", plain, *roles, *shares, "--output", out)
    assert run.code == 0
    moved = ("--allow_empty", "a", "b")
    run = beam_tfr("update", out, "--table", with_splits, "--split_column", "split", *moved)
    assert run.code == 0, run.err
    assert {*read_manifest(str(out)).splits} == {"train", "val"}
    run = beam_tfr("update", out, "--table", plain)
    assert run.code == 2
    assert "there is no column 'split'" in run.err
    assert "--overwrite" in run.err
    run = beam_tfr("update", out, "--table", plain, *shares, "--allow_empty", "train", "val")
    assert run.code == 0, run.err
    assert {*read_manifest(str(out)).splits} <= {"a", "b"}
