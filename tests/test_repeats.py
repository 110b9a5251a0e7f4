"""Several rows of one image: equal ones, those that contradict each other, and a class in each."""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas
import pytest
from PIL import Image

from beam_tfr.options import ConvertOptions
from beam_tfr.records.examples import parse_example
from beam_tfr.schema.errors import DataError
from beam_tfr.schema.items import ImageRef
from beam_tfr.tables import repeats
from beam_tfr.tables.finding import find_content
from beam_tfr.tables.opening import open_tables
from beam_tfr.tables.repeats import RowKeys, merge_repeated
from beam_tfr.tables.rows import Tables
from tests.conftest import Run, files_of
from tests.table_rows import as_csv, records_of

Command = Callable[..., Run]
ROLES: dict[str, Any] = {"uri_column": "path", "label_column": "class"}
FLAGS = ("--uri_column", "path", "--label_column", "class", "--max_rejects", "3")


def write_images(folder: Path, *names: str) -> None:
    for number, name in enumerate(names):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), (40 * number % 256, 9, 9)).save(path)


def rows_of(*classes: str) -> list[dict[str, Any]]:
    return [{"path": f"{name[0]}.png", "class": name[1:]} for name in classes]


def opened(*paths: Path, **options: Any) -> Tables:
    table = tuple(map(str, paths))
    return open_tables(find_content(ConvertOptions(table=table, output="/o", **options)))


def merged(tables: Tables, *, shuffled: random.Random | None = None) -> dict[str, ImageRef]:
    keys = RowKeys()
    refs = [ref for path in tables.files for ref in keys.note_rows(tables.read(path))]
    if shuffled:
        shuffled.shuffle(refs)
    listed = [*merge_repeated(tables, refs, keys.find_repeated())]
    by_key = {ref.key: ref for ref in listed}
    assert len(by_key) == len(listed)
    return by_key


def test_equal_rows_are_one_and_others_one_reject(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(as_csv(rows_of("ax", "bx", "ax", "cx", "cy", "cx", "ax")))
    tables = opened(tmp_path / "t.csv", **ROLES)
    refs = merged(tables)
    assert {key: ref.labels for key, ref in refs.items() if not ref.reason} == {
        "a.png": ("x",),
        "b.png": ("x",),
    }
    assert refs["c.png"].reason == "bad-value"
    assert "the classes x and y" in refs["c.png"].detail
    assert "row 4 after the header and t.csv, row 5" in refs["c.png"].detail
    for seed in range(5):
        assert merged(tables, shuffled=random.Random(seed)) == refs


@pytest.mark.parametrize(
    ("first", "second", "named"),
    [
        ({"split": "train"}, {"split": "test"}, "splits test and train"),
        ({"age": 1}, {"age": 2}, "age is 1 and 2"),
        ({"age": 1}, {"age": "old"}, "is not a whole number"),
    ],
)
def test_a_reject_says_what_contradicts(
    tmp_path: Path, first: Mapping[str, Any], second: Mapping[str, Any], named: str
) -> None:
    row = {"path": "a.png", "class": "x", "split": "train", "age": 1}
    (tmp_path / "1.csv").write_bytes(as_csv([{**row, **first}]))
    (tmp_path / "2.csv").write_bytes(as_csv([{**row, **second}]))
    tables = opened(
        tmp_path / "1.csv",
        tmp_path / "2.csv",
        **ROLES,
        split_column="split",
        feature_columns={"age": "int64"},
    )
    (ref,) = merged(tables).values()
    assert ref.reason == "bad-value"
    assert named in ref.detail


def test_columns_of_which_nothing_is_read_contradict_nothing(tmp_path: Path) -> None:
    rows = [{"path": "a.png", "class": "x", "n": number} for number in range(3)]
    (tmp_path / "t.csv").write_bytes(as_csv(rows))
    (ref,) = merged(opened(tmp_path / "t.csv", **ROLES)).values()
    assert not ref.reason


def test_plan_convert_and_update_agree_about_repeated_rows(
    beam_tfr: Command, tmp_path: Path
) -> None:
    write_images(tmp_path, "a.png", "b.png", "c.png")
    table = tmp_path / "t.csv"
    table.write_bytes(as_csv(rows_of("ax", "bx", "ax", "cx", "cy")))
    call = ["--table", table, *FLAGS, "--output", tmp_path / "o"]
    plan = beam_tfr("plan", *call)
    assert "keys that several rows have: 2;" in plan.out + plan.err
    run = beam_tfr("convert", *call, "--json")
    assert (run.code, run.json["matched"], run.json["written"]) == (0, 3, 2)
    assert run.json["rejected"] == {"bad-value": 1}
    assert run.json["repeated_rows"] == 2
    assert "already holds this dataset" in beam_tfr("plan", *call).out
    table.write_bytes(as_csv(rows_of("ax", "bx", "cx", "cx")))
    update = beam_tfr("update", tmp_path / "o", "--table", table, "--max_rejects", "3", "--json")
    assert update.json["written"] == 3
    assert {key: record["image/class/text"] for key, record in records_of(tmp_path / "o").items()}


@pytest.mark.slow
def test_repeated_rows_give_the_same_bytes_on_another_engine(
    beam_tfr: Command, tmp_path: Path, portable: list[str]
) -> None:
    write_images(tmp_path, "a.png", "b.png", "c.png")
    for name, rows in (("1.csv", ("ax", "bx", "cx")), ("2.csv", ("ax", "cy"))):
        (tmp_path / name).write_bytes(as_csv(rows_of(*rows)))
    call = ["convert", "--table", tmp_path / "?.csv", *FLAGS, "--name", "photos"]
    assert beam_tfr(*call, "--output", tmp_path / "here").code == 0
    assert beam_tfr(*call, "--output", tmp_path / "there", *portable).code == 0
    assert files_of(tmp_path / "there") == files_of(tmp_path / "here")


def test_an_image_of_two_files_of_coco_is_one_reject(beam_tfr: Command, tmp_path: Path) -> None:
    write_images(tmp_path, *(f"{number}.png" for number in range(3)))
    for split, numbers in (("train", [0, 1]), ("val", [1, 2])):
        content = {
            "images": [{"id": number, "file_name": f"{number}.png"} for number in numbers],
            "annotations": [
                {"id": number, "image_id": number, "category_id": 1, "bbox": [1, 1, 5, 5]}
                for number in numbers
            ],
            "categories": [{"id": 1, "name": "cat"}],
        }
        (tmp_path / f"{split}.json").write_text(json.dumps(content))
    call = ["--table", tmp_path / "*.json", "--max_rejects", "1", "--output", tmp_path / "o"]
    run = beam_tfr("convert", *call, "--json")
    assert (run.json["matched"], run.json["written"]) == (3, 2)
    assert "the splits train and val" in (tmp_path / "o" / "rejects.jsonl").read_text()


def test_too_many_repeated_rows_end_the_run_with_what_joins_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repeats, "MOST_REPEATED", 1)
    table = tmp_path / "t.csv"
    table.write_bytes(as_csv(rows_of("ax", "bx", "ay", "by")))
    tables = opened(table, **ROLES)
    keys = RowKeys()
    assert len([*keys.note_rows(tables.read(str(table)))]) == 4
    repeated = keys.find_repeated()
    with pytest.raises(DataError, match=r"2 files have several rows.*`label_separator='|'`"):
        repeats.check_repeats(tables, repeated)
    monkeypatch.setattr(repeats, "MOST_REPEATED", 2)
    repeats.check_repeats(tables, repeated)


def test_rows_that_are_records_are_one_or_a_reject_by_their_keys(
    beam_tfr: Command, tmp_path: Path
) -> None:
    rows = [{"id": "a", "n": 1}, {"id": "b", "n": 1}, {"id": "a", "n": 1}, {"id": "b", "n": 2}]
    (tmp_path / "t.csv").write_bytes(as_csv(rows))
    call = ["--table", tmp_path / "t.csv", "--key_column", "id", "--max_rejects", "1"]
    run = beam_tfr("convert", *call, "--output", tmp_path / "o", "--json")
    assert (run.json["matched"], run.json["written"]) == (2, 1)
    assert "n is 1 and 2" in (tmp_path / "o" / "rejects.jsonl").read_text()


CLASSES = [("a", "cat", 1), ("b", "cat", 1), ("a", "dog", 1), ("a", "cat", 1), ("b", "hat", 0)]


def as_rows(classes: Sequence[tuple[str, str, int]]) -> list[dict[str, Any]]:
    return [
        {"path": f"{name}.png", "class": label, "Confidence": confidence}
        for name, label, confidence in classes
    ]


def test_rows_of_an_image_with_a_class_each_are_joined(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_bytes(as_csv([*as_rows(CLASSES), *as_rows([("c", "hat", 0), ("d", "", 1)])]))
    tables = opened(table, **ROLES, label_separator="|")
    assert {key: ref.labels for key, ref in merged(tables).items()} == {
        "a.png": ("cat", "dog"),
        "b.png": ("cat",),
        "c.png": (),
        "d.png": (),
    }
    (line,) = [line for line in tables.warnings if "are joined" in line]
    assert "'class', unless its Confidence is 0" in line
    table.write_bytes(as_csv(as_rows(CLASSES[1:3] + CLASSES[4:])))
    lone = merged(opened(table, **ROLES, label_separator="|"))
    assert {key: ref.labels for key, ref in lone.items()} == {"a.png": ("dog",), "b.png": ("cat",)}


def test_rows_with_a_class_each_are_told_with_the_option_that_joins_them(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_bytes(as_csv(as_rows(CLASSES)))
    tables = opened(table, **ROLES)
    lines = " ".join(tables.warnings)
    assert "2 of the first 2 images" in lines
    assert "`label_separator='|'`" in lines
    assert "'Confidence' is 0" in lines
    refs = merged(tables)
    assert all("`label_separator='|'`" in ref.detail for ref in refs.values())
    table.write_bytes(as_csv(as_rows(CLASSES[:2])))
    assert "rows" not in " ".join(opened(table, **ROLES).warnings[:-1])


@pytest.mark.parametrize("declared", ["bytes", "bytes[]"])
def test_rows_with_several_captions_have_a_cure_that_works(declared: str, tmp_path: Path) -> None:
    """As of Flickr8k: five rows of each image."""
    write_images(tmp_path, "a.png", "b.png")
    texts = {"a.png": ["a cat", "a black cat, asleep"], "b.png": ["a dog", "a dog"]}
    rows = [f'{name},"{text}"' for name, members in texts.items() for text in members]
    (tmp_path / "t.csv").write_text("\n".join(["path,caption", *rows]))

    def refs_of(name: str, declared: str) -> list[ImageRef]:
        options = ConvertOptions(
            table=(str(tmp_path / name),),
            output="/o",
            uri_column="path",
            feature_columns={"caption": declared},
        )
        tables = open_tables(find_content(options))
        keys = RowKeys()
        refs = [*keys.note_rows(tables.read(tables.files[0]))]
        return [*merge_repeated(tables, refs, keys.find_repeated())]

    (bad,) = [ref for ref in refs_of("t.csv", declared) if ref.reason]
    line = bad.detail.partition("with pandas: ")[2].partition(", and give ")[0]
    assert "`feature_columns='caption:bytes[]'`" in bad.detail
    table = pandas.read_csv(tmp_path / "t.csv")
    with contextlib.chdir(tmp_path):
        eval(line, {"table": table})
    refs = refs_of("lists.jsonl", "bytes[]")
    captions = {ref.key: parse_example(ref.columns or b"")["caption"] for ref in refs}
    expected = {name: [text.encode() for text in members] for name, members in texts.items()}
    assert captions == expected
