"""The ids in exported files of COCO: those of the source, or numbers from 1."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import beam_tfr
from beam_tfr.exports.coco_ids import choose_category_ids, choose_image_ids
from tests.voc_files import voc, write_picture


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(-2, 9))))
def test_categories_have_different_ids_above_0(known: list[tuple[int, int]]) -> None:
    ids = choose_category_ids(known, 5)
    assert len({*ids}) == 5
    assert min(ids) > 0
    assert ids == [1, 2, 3, 4, 5] or all(ids[label] == of_source for label, of_source in known)


def test_categories_have_the_ids_of_their_source() -> None:
    assert choose_category_ids([(0, 1), (2, 3), (0, 1)], 3) == [1, 2, 3]
    assert choose_category_ids([(0, 90), (1, 2)], 4) == [90, 2, 1, 3]


@pytest.mark.parametrize("known", [[], [(0, -1), (1, -1)], [(0, 0), (1, 1)], [(0, 7), (0, 8)]])
def test_categories_count_from_1_if_their_source_has_no_such_ids(known: Any) -> None:
    assert choose_category_ids(known, 2) == [1, 2]


@pytest.mark.parametrize(
    ("texts", "ids"),
    [
        (["139", "0", "7"], [139, 0, 7]),
        (["139", "139"], [1, 2]),
        (["139", None], [1, 2]),
        (["139", "a.png"], [1, 2]),
        (["01", "2"], [1, 2]),
        (["9" * 40, "2"], [1, 2]),
        ([], []),
    ],
)
def test_images_have_the_ids_of_their_source(texts: list[str | None], ids: list[int]) -> None:
    assert choose_image_ids(texts) == ids


def coco(first: int) -> dict[str, Any]:
    """Two images of the ids 7 and 9, and the categories `first` and 3."""
    return {
        "images": [{"id": 7, "file_name": "1.png"}, {"id": 9, "file_name": "2.png"}],
        "annotations": [
            {"image_id": 7, "category_id": 3, "bbox": [5, 6, 20, 15]},
            {"image_id": 9, "category_id": first, "bbox": [5, 6, 20, 15]},
        ],
        "categories": [{"id": first, "name": "dog"}, {"id": 3, "name": "cat"}],
    }


def exported(folder: Path, table: str) -> dict[str, Any]:
    """What an export says of a table, beside which are 1.png and 2.png."""
    for number in (1, 2):
        write_picture(folder / f"{number}.png", number)
    options: dict[str, Any] = {"resize": "none", "progress": False}
    beam_tfr.convert(table=folder / table, image_root=folder, output=folder / "d", **options)
    beam_tfr.export(folder / "d", folder / "out", format="folder", progress=False)
    content: dict[str, Any] = json.loads((folder / "out/instances_train.json").read_text())
    return content


def test_an_export_has_the_ids_of_its_source(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(json.dumps(coco(1)))
    found = exported(tmp_path, "t.json")
    assert found["categories"] == [{"id": 3, "name": "cat"}, {"id": 1, "name": "dog"}]
    images = {image["id"]: image["file_name"] for image in found["images"]}
    assert {number: name[0] for number, name in images.items()} == {7: "1", 9: "2"}
    pairs = {(one["image_id"], one["category_id"]) for one in found["annotations"]}
    assert pairs == {(7, 3), (9, 1)}
    assert sorted(one["id"] for one in found["annotations"]) == [1, 2]


def test_an_export_has_no_category_0(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(json.dumps(coco(0)))
    found = exported(tmp_path, "t.json")
    assert found["categories"] == [{"id": 1, "name": "cat"}, {"id": 2, "name": "dog"}]
    pairs = {(one["image_id"], one["category_id"]) for one in found["annotations"]}
    assert pairs == {(7, 1), (9, 2)}


def test_an_export_of_voc_counts_from_1(tmp_path: Path) -> None:
    for number in (1, 2):
        (tmp_path / f"{number}.xml").write_text(voc(f"{number}.png"))
    found = exported(tmp_path, "*.xml")
    assert found["categories"] == [{"id": 1, "name": "cat"}]
    assert sorted(image["id"] for image in found["images"]) == [1, 2]
