"""Classes that get other ids than the numbers beside them are told."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from beam_tfr.dataset.class_numbers import describe_class_numbers
from beam_tfr.options import ConvertOptions
from beam_tfr.records import examples
from beam_tfr.records.tfrecords import frame
from beam_tfr.tables.finding import find_content
from beam_tfr.tables.opening import open_tables
from tests.archives import tarred
from tests.conftest import Run
from tests.image_tables import JPEG

Command = Callable[..., Run]


def write_records(folder: Path, number_of: Mapping[str, int], image: bytes = JPEG) -> str:
    """Writes TFRecords of an image of each class, with its number."""
    path = folder / "t.tfrecord"
    records = list[bytes]()
    for name, number in number_of.items():
        values = {
            "image/encoded": ("bytes", [image]),
            "image/class/text": ("bytes", [name.encode()]),
            "image/class/label": ("int64", [number]),
        }
        records.append(frame(examples.serialize(values)))
    path.write_bytes(b"".join(records))
    return str(path)


def lines_of_ids(table: str, **options: Any) -> list[str]:
    content = find_content(ConvertOptions(table=(table,), output="/o", **options))
    warnings = open_tables(content).warnings
    return [line for line in warnings if "gets the id" in line]


@pytest.mark.parametrize(
    ("number_of", "expected"),
    [
        ({"tench": 1, "fish": 2}, "class fish is 2 there, but gets the id 0"),
        ({"fish": 0, "tench": 2}, "class tench is 2 there, but gets the id 1"),
        ({"tench": 1, "fish": 0}, ""),
    ],
)
def test_numbers_that_are_not_the_ids_of_classes(
    tmp_path: Path, number_of: Mapping[str, int], expected: str
) -> None:
    table = write_records(tmp_path, number_of)
    lines = lines_of_ids(table)
    assert len(lines) == bool(expected)
    assert all(expected in line and "`classes=`" in line for line in lines)
    assert not lines_of_ids(table, label_column="image/class/text", classes="names.txt")


@pytest.mark.parametrize("background", [0, 40])
def test_numbers_beside_the_classes_of_boxes(background: int, tmp_path: Path) -> None:
    path = tmp_path / "t.tfrecord"
    sides = {f"image/object/bbox/{side}": 0.1 for side in ("xmin", "ymin")}
    sides |= {f"image/object/bbox/{side}": 0.9 for side in ("xmax", "ymax")}
    values: dict[str, tuple[str, list[Any]]] = {
        "image/encoded": ("bytes", [JPEG]),
        "image/object/class/text": ("bytes", [b"dog", b"cat"]),
        "image/object/class/label": ("int64", [2, 1]),
        **{name: ("float", [side] * 2) for name, side in sides.items()},
    }
    records = [{"image/encoded": values["image/encoded"]}] * background + [values]
    path.write_bytes(b"".join(frame(examples.serialize(record)) for record in records))
    (line,) = lines_of_ids(str(path))
    assert "class cat is 1 there, but gets the id 0" in line


def test_classes_of_which_the_first_rows_show_few(tmp_path: Path) -> None:
    number_of = {f"{number:04}.": number for number in reversed(range(1_100))}
    assert not lines_of_ids(write_records(tmp_path, number_of, image=b"x"))


@pytest.mark.parametrize(
    ("classes", "told"),
    [
        (
            ["0", "1", "2", "10"],
            "class 10 has the id 3. To keep the numbers as ids, list all numbers",
        ),
        (["1", "2", "10"], "class 1 has the id 0"),
        (["001", "002"], "all numbers from 000 to 002"),
        (["-1", "1"], "class -1 has the id 0"),
        (["0", "1", "10", "2"], "10 comes before 2"),
        (["0.0", "1.0", "10.0", "2.0"], "10.0 comes before 2.0"),
        (["0", "1", "2"], ""),
        (["00", "01"], ""),
        (["1", "10", "2", "cat"], ""),
        ([], ""),
    ],
)
def test_classes_that_are_numbers_but_not_their_ids(classes: Sequence[str], told: str) -> None:
    text = describe_class_numbers(classes)
    assert told in text
    assert bool(text) == bool(told)
    assert not describe_class_numbers(classes, are_given=True)


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "tar", "tfrecord"])
def test_plan_tells_labels_from_1_and_the_cure_works(
    tmp_path: Path, suffix: str, beam_tfr: Command
) -> None:
    table = tmp_path / f"t.{suffix}"
    numbers = (1, 2, 10)
    cells = [json.dumps({"path": f"{number}.jpg", "label": number}) for number in numbers]
    for number in numbers:
        (tmp_path / f"{number}.jpg").write_bytes(JPEG)
    options = ["--uri_column", "path", "--label_column", "label"]
    if suffix == "csv":
        table.write_text("path,label\n" + "".join(f"{n}.jpg,{n}\n" for n in numbers))
    elif suffix == "jsonl":
        table.write_text("\n".join(cells))
    elif suffix == "tar":
        options = []
        files = [(f"{n}.jpg", JPEG) for n in numbers] + [(f"{n}.cls", b"%d" % n) for n in numbers]
        table.write_bytes(tarred(dict(sorted(files))))
    else:
        options = []
        records = []
        for number in numbers:
            values = {"image/encoded": ("bytes", [JPEG]), "image/class/label": ("int64", [number])}
            records.append(frame(examples.serialize(values)))
        table.write_bytes(b"".join(records))
    planned = beam_tfr("plan", "--table", table, *options, "--output", tmp_path / "o")
    assert planned.out.count("class 1 has the id 0") == 1, planned.err
    names = tmp_path / "names.txt"
    names.write_text("\n".join(map(str, range(11))))
    planned = beam_tfr(
        "plan", "--table", table, *options, "--output", tmp_path / "o", "--classes", names
    )
    assert planned.code == 0, planned.err
    assert "has the id" not in planned.out
