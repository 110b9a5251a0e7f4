"""Boxes in shares of their images are told from those in pixels by their numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from beam_tfr.schema.errors import UsageError
from beam_tfr.tables.box_shares import guess_form, join_sides
from tests.table_files import open_input, references, write_images

CENTERS = [[0.5, 0.5, 0.9, 0.9], [0.5, 0.5, 0.2, 0.2], [0.9, 0.9, 0.2, 0.2]]
CORNERS = [[0.5, 0.5, 0.4, 0.5], [0, 0, 1, 1], [0.25, 0.5, 0.2, 0.2]]


@pytest.mark.parametrize(
    ("form", "boxes", "guess"),
    [
        ("xywh", CENTERS, "rel_center_xywh"),
        ("xywh", CORNERS, "rel_xywh"),
        ("xyxy", [[0.1, 0.2, 0.9, 1]], "rel_xyxy"),
        ("xywh", [[0.5, 0.5, 0.9, 2]], "xywh"),
        ("xywh", [], "xywh"),
    ],
)
def test_numbers_show_the_form(form: str, boxes: list[Any], guess: str) -> None:
    assert guess_form(form, boxes) == guess


def test_sides_are_joined_if_all_are_numbers() -> None:
    columns = [["1", "2"], [3, [4]], ["5", 6.5], [7, 8]]
    assert join_sides(columns) == [[1, 3, 5, 7], [2, 4, 6.5, 8]]
    assert not join_sides([["1"], ["x"], ["2"], ["3"]])


def write_boxes(folder: Path, boxes: list[Any], names: str = "x,y,width,height") -> Path:
    write_images(folder, "0.jpg")
    rows = [f"0.jpg,cat,{','.join(map(str, box))}\n" for box in boxes]
    path = folder / "boxes.csv"
    path.write_text("".join([f"filename,class,{names}\n", *rows]))
    return path


COLUMNS = {"uri_column": "filename", "label_column": "class"}


@pytest.mark.parametrize(("boxes", "form"), [(CENTERS, "rel_center_xywh"), (CORNERS, "rel_xywh")])
@pytest.mark.parametrize("policy", ["reject", "drop"])
def test_shares_that_are_declared_as_pixels_are_refused_with_their_form(
    tmp_path: Path, boxes: list[Any], form: str, policy: str
) -> None:
    path = write_boxes(tmp_path, boxes)
    columns = "x+y+width+height"
    given = {"table": str(path), **COLUMNS, "bad_boxes": policy}
    with pytest.raises(UsageError) as error:
        open_input(**given, feature_columns=f"box:bbox[xywh]={columns}")
    cure = f"box:bbox[{form}]={columns}"
    assert cure in str(error.value)
    assert [ref.reason for ref in references(open_input(**given, feature_columns=cure))] == [""]


def test_the_form_that_is_offered_is_that_of_the_numbers(tmp_path: Path) -> None:
    path = write_boxes(tmp_path, CENTERS)
    for given in ({}, COLUMNS):
        tables = open_input(table=str(path), **given)
        assert any("box:bbox[rel_center_xywh]=x+y+width+height" in line for line in tables.warnings)
    assert "rel_center_xywh" in open_input(table=str(path), **COLUMNS).box_cure


def test_boxes_that_lie_inside_as_centers_alone_are_told(tmp_path: Path) -> None:
    for boxes, is_told in ((CENTERS, True), (CORNERS, False)):
        path = write_boxes(tmp_path, boxes)
        box = "box:bbox[rel_xywh]=x+y+width+height"
        warnings = open_input(table=str(path), **COLUMNS, feature_columns=box).warnings
        assert any("are centers" in line for line in warnings) == is_told


def test_implied_boxes_are_centers_if_only_these_lie_inside(tmp_path: Path) -> None:
    for boxes, form in ((CENTERS, "rel_center_xywh"), (CORNERS, "rel_xywh")):
        path = write_boxes(tmp_path, boxes, "bbox_x,bbox_y,bbox_width,bbox_height")
        (box,) = open_input(table=str(path)).features
        assert f"[{form}]" in box.text
