"""Classes that get other ids than the numbers beside them are told."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from beam_tfr.options import ConvertOptions
from beam_tfr.records import examples
from beam_tfr.records.tfrecords import frame
from beam_tfr.tables.finding import find_content
from beam_tfr.tables.opening import open_tables
from tests.image_tables import JPEG


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
        ({"tench": 1, "fish": 2}, "class fish is 2 there, and gets the id 0"),
        ({"fish": 0, "tench": 2}, "class tench is 2 there, and gets the id 1"),
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


def test_numbers_beside_the_classes_of_boxes(tmp_path: Path) -> None:
    path = tmp_path / "t.tfrecord"
    sides = {f"image/object/bbox/{side}": 0.1 for side in ("xmin", "ymin")}
    sides |= {f"image/object/bbox/{side}": 0.9 for side in ("xmax", "ymax")}
    values = {
        "image/encoded": ("bytes", [JPEG]),
        "image/object/class/text": ("bytes", [b"dog", b"cat"]),
        "image/object/class/label": ("int64", [2, 1]),
        **{name: ("float", [side] * 2) for name, side in sides.items()},
    }
    path.write_bytes(frame(examples.serialize(values)))
    (line,) = lines_of_ids(str(path))
    assert "class cat is 1 there, and gets the id 0" in line


def test_classes_of_which_the_first_rows_show_few(tmp_path: Path) -> None:
    number_of = {f"{number:04}.": number for number in reversed(range(1_100))}
    assert not lines_of_ids(write_records(tmp_path, number_of, image=b"x"))
