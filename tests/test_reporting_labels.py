"""What the page finds of wrong labels, of equal rows and of odd values."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pyarrow as pa
import pytest

from beam_tfr.dataset.manifest import read_manifest
from beam_tfr.reporting import report
from beam_tfr.reporting.equal_rows import RowComparison
from beam_tfr.reporting.neighbors import find_contradicted
from beam_tfr.reporting.unlike_looks import find_unlike_looks
from tests.cpu_limit import bounded_cpu
from tests.report_pages import list_evidence

Planted = tuple[np.ndarray, np.ndarray]


def draw_clouds(distance: float, columns: int = 2) -> Planted:
    """Values and labels of two clouds of 100 points each."""
    generator = np.random.default_rng(0)
    values = generator.normal(0, 1, (200, columns))
    values[100:] += distance
    return values, np.repeat([3, 8], 100)


@pytest.mark.parametrize("columns", [1, 2, 6])
def test_labels_in_the_other_cloud_are_found(columns: int) -> None:
    values, labels = draw_clouds(8, columns)
    assert not len(find_contradicted(values, labels).rows)
    swapped = [4, 60, 150]
    labels[swapped] = 11 - labels[swapped]
    rows, expected = find_contradicted(values, labels)
    assert sorted(rows) == swapped
    assert (expected == 11 - labels[rows]).all()


def test_clouds_that_overlap_tell_nothing() -> None:
    values, labels = draw_clouds(1)
    assert not len(find_contradicted(values, labels).rows)


@pytest.mark.parametrize("number", [0, 1, 49])
def test_few_rows_tell_nothing(number: int) -> None:
    values, labels = draw_clouds(8)
    assert not len(find_contradicted(values[:number], labels[:number]).rows)


def test_missing_and_huge_values_are_no_error() -> None:
    values, labels = draw_clouds(8)
    values[::7, 0] = np.nan
    values[1] = 1e300
    values[:, 1] = 5
    assert len(find_contradicted(values, labels).rows) <= 10


def test_images_with_a_wrong_label_look_least_like_it(tmp_path: Path, beam_tfr: Any) -> None:
    generator = np.random.default_rng(0)
    wrong = {3, 17}
    for number in range(60):
        is_bar = number % 2 == 0
        pixels = generator.integers(0, 90, (48, 48, 3), np.uint8)
        y, x = generator.integers(4, 12, 2).tolist()
        height, width = (30, 8) if is_bar else (8, 30)
        pixels[y : y + height, x : x + width] = generator.integers(150, 256, 3)
        label = "bar" if is_bar != (number in wrong) else "beam"
        path = tmp_path / "photos" / label / f"{number:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        PIL.Image.fromarray(pixels).save(path)
    output = tmp_path / "out"
    run = beam_tfr("convert", "--input", tmp_path / "photos", "--output", output)
    assert run.code == 0, run.err
    dataset = read_manifest(str(output))
    records = {0: [*range(32)], 1: [*range(32, 60)]}
    assert dataset.class_totals == {"bar": 32, "beam": 28}
    page = report(output).html
    unlike = page.partition("Least like bar")[2].partition("<h3")[0]
    first = re.findall(r'class="key"[^>]*>([^<]*)<', unlike)[:2]
    assert sorted(first) == ["bar/03.png", "bar/17.png"]
    few = {label: some[:19] for label, some in records.items()}
    assert not find_unlike_looks(dataset, few)  # they tell nothing


def compare_rows(rows: list[tuple[Any, ...]]) -> Any:
    """Compares rows, of which the last values are class and split."""
    *columns, labels, splits = zip(*rows, strict=True)
    comparison = RowComparison()
    names = [f"column {place}" for place in range(len(columns))]
    values = [pa.chunked_array([pa.array(column)]) for column in columns]
    comparison.add(
        dict(zip(names, values, strict=True)), np.array(labels), np.array(splits, np.str_)
    )
    return comparison.find()


def test_equal_rows_are_found_across_splits_and_classes() -> None:
    equal = compare_rows(
        [
            (1, 0.5, "a", 0, "train"),
            (2, 0.5, "b", 0, "train"),
            (3, 0.5, "a", 0, "test"),  # of the first: the first column only numbers the rows
            (4, None, "c", 0, "train"),
            (5, None, "c", 1, "train"),
            (6, -0.0, None, 1, "train"),
            (7, 0.25, None, 1, "train"),
            (8, 1.5, "a", 1, "train"),
            (9, 2.5, "a", 1, "train"),
        ]
    )
    assert equal.number == 4
    assert (equal.across_splits, equal.split_pairs) == (1, [(0, 2)])
    assert (equal.across_classes, equal.class_pairs) == (1, [(3, 4)])


def test_few_different_rows_are_no_copies() -> None:
    equal = compare_rows([(number % 3, "a", 0, "train") for number in range(30)])
    assert equal.number == 0


def test_what_was_planted_in_a_table_is_found(tmp_path: Path, beam_tfr: Any) -> None:
    generator = np.random.default_rng(0)
    rows = []
    for number in range(200):
        label = "ab"[number % 2]
        size, mass = generator.normal([30, 5] if label == "a" else [60, 9], [3, 0.5]).tolist()
        split = "test" if number % 10 == 0 else "train"  # none of b
        rows.append({"size": size, "mass": mass, "label": label, "split": split})
    copies = [{**row, "split": "test"} for row in rows[2:42:4]]
    rows[51]["label"] = "a"
    rows[61]["size"] = 9_999
    for row in rows[70:90]:
        row["mass"] = float("nan")
    table = tmp_path / "rows.jsonl"
    table.write_text("\n".join(map(json.dumps, rows + copies)))
    output = tmp_path / "out"
    run = beam_tfr(
        "convert", "--table", table, "--encoding", "row", "--label_column", "label",
        "--split_column", "split", "--feature_columns", "size:float,mass:float=nan",
        "--output", output,
    )  # fmt: skip
    assert run.code == 0, run.err
    page = report(output)
    text = "\n".join(page.findings)
    assert "class b has no row in test" in text
    assert "8 rows are in several splits" in text  # of ten, two were in test before
    assert "column mass: 20 of 210 have no value" in text
    assert "column size: 1 value is far from all others: 9,999" in text
    assert "a instead of b, judging by" in page.html
    shown = list_evidence(page.html, "in several splits")
    assert len(shown) == 8
    assert all(len(keys) == 2 for keys in shown)
    assert "and 2 more" not in page.html
    size = page.html.partition("Column size")[2].partition("</svg>")[0]
    assert "9,999" not in size  # of a bar, or of an edge
    assert "1 value far outside is not in the chart: 9,999" in page.html
    assert "a different class than nearly all rows with similar numbers" in text
    assert list_evidence(page.html, "a different class than nearly all rows") == [["rows#52"]]
    assert "; a, mass " in page.html  # its class and values


def test_boxes_of_the_size_of_another_class_are_found(tmp_path: Path, beam_tfr: Any) -> None:
    generator = np.random.default_rng(0)
    rows = []
    for number in range(40):
        PIL.Image.new("RGB", (80, 80), (number * 6, 99, 99)).save(tmp_path / f"{number}.png")
        small, large = generator.uniform([6, 40], [9, 60], (2, 2)).T
        boxes = [[1, 1, *(1 + small)], [5, 5, *(5 + large)]]
        labels = ["ball", "goal"]
        if number == 7:
            labels.reverse()
        if number == 9:
            boxes[0] = [200, 200, 220, 220]
        rows.append({"path": f"{number}.png", "boxes": boxes, "labels": labels})
    table = tmp_path / "images.jsonl"
    table.write_text("\n".join(map(json.dumps, rows)))
    output = tmp_path / "out"
    run = beam_tfr(
        "convert", "--table", table, "--uri_column", "path", "--label_column", "labels",
        "--feature_columns", "boxes:bbox[xyxy]", "--bad_boxes", "drop", "--image_size", "80x80",
        "--output", output,
    )  # fmt: skip
    assert run.code == 0, run.err
    text = "\n".join(report(output).findings)
    assert "1 box labelled ball with a width and height typical of goal" in text
    assert "1 box labelled goal with a width and height typical of ball" in text
    assert "1 image has boxes outside the image" in text


def test_any_number_of_rows_takes_bounded_time() -> None:
    """Contents of others may list more boxes than their manifest says."""
    number = 100_001
    values = np.random.default_rng(0).normal(size=(number, 2))
    labels = np.arange(number) % 2
    values[:, 0] += 100 * labels
    wrong = 13 * 1_000  # one in 13 is compared
    labels[wrong] = 1 - labels[wrong]
    with bounded_cpu():
        rows, expected = find_contradicted(values, labels)
    assert (rows.tolist(), expected.tolist()) == ([wrong], [1 - labels[wrong]])
