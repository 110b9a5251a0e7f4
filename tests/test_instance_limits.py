"""Masks of boxes are worked on within their boxes, and what they take is bounded."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

import beam_tfr
from beam_tfr import Records
from beam_tfr.features import box_masks, instance_masks
from beam_tfr.features.box_masks import BoxMasks
from beam_tfr.features.companions import SegmentationMask
from beam_tfr.features.gray_png import decode_stored, encode_mask
from beam_tfr.features.instance_masks import InstanceMasks
from beam_tfr.features.pixel_parts import PixelBudget, PixelPart, find_part
from beam_tfr.features.polygons import draw_polygons
from beam_tfr.features.run_lengths import (
    TooManyRunsError,
    decode_run_lengths,
    encode_run_lengths,
)
from beam_tfr.images.geometry import compute_layout
from beam_tfr.images.mapping import RecordPixels
from beam_tfr.options import ImageOptions
from beam_tfr.reader import decode, load
from beam_tfr.schema.errors import DataError, RejectError
from beam_tfr.schema.feature_names import HEIGHT, MASK, OBJECT_MASK, WIDTH
from beam_tfr.schema.items import ImageRef
from beam_tfr.tables import roles
from beam_tfr.tables.image_names import ImageFinder
from beam_tfr.tables.names import NameColumn
from beam_tfr.tables.roles import LabelRole, TableRow
from beam_tfr.torch import ImageDataset
from tests.instances import paint, runs_of, write_instances
from tests.reader_fixtures import edit_records

ENOUGH = PixelBudget(1 << 40)
READING: dict[str, Any] = {"split": "train", "output": "dict", "boxes": "xyxy"}
SIDES = st.integers(1, 40)


def pixels_of(size: Any, image_size: Any, resize: str, orientation: int, *, ignored: bool) -> Any:
    """Where the pixels of an upright source are in its record."""
    height, width = size[::-1] if orientation >= 5 else size
    if resize == "shortest":
        image_size = (image_size[0],) * 2
    options = ImageOptions(
        image_size=image_size, resize=resize, ignore_orientation=ignored, encoding="png"
    )
    layout = compute_layout(height, width, orientation, options)
    record_height, record_width = layout.shown.canvas
    image: Any = types.SimpleNamespace(
        geometry=layout.geometry, height=record_height, width=record_width
    )
    return RecordPixels(image, 1 << 30)


def on_canvas(part: PixelPart, size: tuple[int, int]) -> np.ndarray:
    """A part on a black canvas of this (height, width)."""
    canvas = np.zeros(size, np.uint8)
    part.place_on(canvas)[:] = part.pixels
    return canvas


# The laws: within its box, a mask is what it is on the whole canvas


@settings(max_examples=120, deadline=None)
@given(
    size=st.tuples(SIDES, SIDES),
    image_size=st.tuples(st.integers(2, 40), st.integers(2, 40)),
    resize=st.sampled_from(["crop", "pad", "fit", "stretch", "shortest", "none"]),
    orientation=st.integers(1, 8),
    ignored=st.booleans(),
    data=st.data(),
)
def test_a_part_is_mapped_as_its_canvas_is(
    size: Any, image_size: Any, resize: str, orientation: int, ignored: bool, data: Any
) -> None:
    pixels = pixels_of(size, image_size, resize, orientation, ignored=ignored)
    height, width = size
    top = data.draw(st.integers(0, height - 1))
    bottom = data.draw(st.integers(top, height))
    left = data.draw(st.integers(0, width - 1))
    right = data.draw(st.integers(left, width))
    seed = data.draw(st.integers(0, 99))
    noise = np.random.default_rng(seed).integers(0, 2, (bottom - top, right - left), np.uint8)
    part = PixelPart(left, top, noise)
    whole = pixels.map_pixels(pixels.turn_pixels(on_canvas(part, size)))
    mapped = pixels.map_part(part)
    np.testing.assert_array_equal(on_canvas(mapped, pixels.size[::-1]), whole)


@settings(max_examples=80, deadline=None)
@given(st.tuples(SIDES, SIDES), st.integers(0, 999), st.sampled_from([0.0, 0.02, 0.5, 0.98, 1.0]))
def test_run_lengths_are_those_of_the_canvas(size: Any, seed: int, share: float) -> None:
    mask = (np.random.default_rng(seed).random(size) < share).astype(np.uint8)
    runs = encode_run_lengths(mask)
    assert runs == runs_of(mask, compressed=False)
    part = decode_run_lengths(runs["counts"], runs["size"], size, ENOUGH)
    smallest = find_part(mask)
    np.testing.assert_array_equal(on_canvas(part, size), mask)
    assert part.pixels.shape[1] == smallest.pixels.shape[1]  # rows may be more: see `_draw_runs`


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.floats(-9, 49), st.floats(-9, 39)), min_size=3, max_size=9))
def test_polygons_are_drawn_within_their_box_alone(corners: list[tuple[float, float]]) -> None:
    polygon = np.array(corners)
    part = draw_polygons(polygon, (40, 30), ENOUGH)
    larger = draw_polygons(polygon, (80, 70), ENOUGH)
    shown = on_canvas(larger, (70, 80))[:30, :40]
    np.testing.assert_array_equal(on_canvas(part, (30, 40)), shown)
    corner = np.floor(polygon.min(axis=0)).clip(0)
    assert part.pixels.size == 0 or (part.left, part.top) == tuple(corner)


# What drawing may take


def place(shapes: list[Any], size: tuple[int, int], **options: Any) -> list[bytes]:
    """The masks of an image of this (height, width), as stored."""
    masks = InstanceMasks(name="m", text="mask[box]")
    values: Any = {OBJECT_MASK: ("bytes", [json.dumps(shape).encode() for shape in shapes])}
    given: dict[str, Any] = {"image_size": (9, 9), "resize": "none", **options}
    pixels = pixels_of(size, given["image_size"], given["resize"], 1, ignored=False)
    return [*masks.place(values, pixels, range(len(shapes)))[OBJECT_MASK][1]]


DOT = {"size": [100, 100], "counts": [5000, 1, 4999]}
ALL = {"size": [100, 100], "counts": [0, 10_000]}
TALL = [(0.0, 0.0), (100.0, 0.0), (100.0, 100.0)]
OVERLAPPING = [*TALL, (float("nan"), float("nan"))] * 20
ZIGZAG = [(float(at), 100.0 * (at % 2)) for at in range(100)]


@pytest.mark.parametrize(
    ("shapes", "options", "cost"),
    [
        ([DOT] * 3, {}, 3 * 10_000 + 3),  # the canvas, and the pixels that are drawn
        ([ALL], {"image_size": (10, 10), "resize": "stretch"}, 10_100),
        ([TALL], {}, 10_000 * 2 + 16 * 200),
        ([OVERLAPPING], {}, 10_000 * 21 + 16 * 200 * 20),
        ([ZIGZAG], {}, 10_000 + 9900 + 16 * 100 * 100),
    ],
)
def test_drawing_is_counted_in_pixels(
    monkeypatch: pytest.MonkeyPatch, shapes: list[Any], options: Any, cost: int
) -> None:
    monkeypatch.setattr(instance_masks, "MOST_PIXELS", cost + 200)
    place(shapes, (100, 100), **options)
    monkeypatch.setattr(instance_masks, "MOST_PIXELS", cost - 200)
    with pytest.raises(
        RejectError, match=r"more than .* pixels to process; use a smaller `image_size="
    ) as caught:
        place(shapes, (100, 100), **options)
    assert caught.value.reason == "masks-too-large"


def test_the_bytes_of_all_masks_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = [len(png) for png in place([DOT, ALL], (100, 100))]
    monkeypatch.setattr(instance_masks, "MOST_PNG_BYTES", sum(sizes) - 1)
    with pytest.raises(RejectError, match="as PNGs") as caught:
        place([DOT, ALL], (100, 100))
    assert caught.value.reason == "masks-too-large"


def test_the_values_of_all_boxes_are_bounded() -> None:
    row = TableRow("t.jsonl", "t.jsonl", 1, {}, "", ImageFinder(), room=7)
    row.add_box_values({"a": ("float", [1.0] * 4)})
    with pytest.raises(ValueError, match=r"more than 1,000,000 values"):
        row.add_box_values({"b": ("float", [1.0] * 2), "c": ("int64", [1, 2])})
    assert row.values.keys() == {"a"}


def test_the_names_of_all_classes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each box repeats the name of its class: a COCO file of 789 kB took all memory."""
    names = NameColumn()
    role = LabelRole(
        column="class", separator="", is_list=True, of_boxes=True, names=names, classes=None
    )
    ref = ImageRef("a.jpg", 1, 0, "train")
    row = TableRow("t.jsonl", "t.jsonl", 1, {"class": ["ab"] * 4}, "", ImageFinder())
    monkeypatch.setattr(roles, "MOST_LABEL_LETTERS", 8)
    assert role.apply(ref, row).labels == ("ab",) * 4
    row.cells["class"].append("a")
    with pytest.raises(ValueError, match="more than 8 characters in total"):
        role.apply(ref, row)
    row.cells["class"] = ["a" * 1001]
    with pytest.raises(ValueError, match="cannot be a class"):
        role.apply(ref, row)


def test_masks_that_take_too_much_are_one_reject(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instance_masks, "MOST_PIXELS", 30 * 96 * 80)
    content = paint(tmp_path, 4)
    content["annotations"] += content["annotations"][:3] * 10  # of the first image
    (tmp_path / "coco.json").write_text(json.dumps(content))
    result = beam_tfr.convert(
        table=tmp_path / "coco.json",
        image_root=tmp_path / "photos",
        output=tmp_path / "d",
        feature_columns={"box": "bbox[xywh]", "segment": "mask[box]"},
        image_size=(96, 80),
        max_rejects=1,
        progress=False,
    )
    assert result.counts["written"] == 3
    (reject,) = map(json.loads, (tmp_path / "d" / "rejects.jsonl").read_text().splitlines())
    assert (reject["key"], reject["reason"]) == ("00.png", "masks-too-large")


DRAW = """
import json, resource, time, types
from beam_tfr.features.instance_masks import InstanceMasks
from beam_tfr.features.box_masks import read_masks
from beam_tfr.images.geometry import compute_layout
from beam_tfr.images.mapping import RecordPixels
from beam_tfr.options import ImageOptions
from beam_tfr.schema.feature_names import OBJECT_MASK

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10

kind = InstanceMasks(name="m", text="mask[box]")
counts = [80_100, 300] + [7700, 300] * 249 + [61_927_600]
runs = json.dumps({"size": [8000, 8000], "counts": counts})
values = {OBJECT_MASK: ("bytes", [runs.encode()] * 30)}
layout = compute_layout(8000, 8000, 1, ImageOptions(resize="none", encoding="png"))
image = types.SimpleNamespace(geometry=layout.geometry, height=8000, width=8000)
begin = peak()
placed = kind.place(values, RecordPixels(image, 1 << 30), range(30))[OBJECT_MASK][1]
drawn = peak()
for mask in read_masks(placed, (8000, 8000)):
    assert mask[150, 100] == 1 and mask[:, 9:].sum() == 300 * 250
stored = {OBJECT_MASK: placed, "image/height": [8000], "image/width": [8000]}
exported = kind.export(stored)
print(drawn - begin, peak() - begin, time.process_time())
"""


@pytest.mark.slow
def test_thirty_masks_of_a_large_image_take_little() -> None:
    """They would have 1,920 million pixels: 17 s of CPU, and 2.5 GB to read them at once."""
    run = subprocess.run(
        [sys.executable, "-c", DRAW], capture_output=True, text=True, timeout=200, check=False
    )
    assert run.returncode == 0, run.stderr
    drawn, read, seconds = map(float, run.stdout.split())
    assert drawn < 150  # MB
    assert read < 450
    assert seconds < 60


# Readers


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_instances(tmp_path_factory.mktemp("limits"), 4)


def test_readers_decode_one_by_one_what_is_too_much_at_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = [*Records(folder, **READING)]
    most = max(len(one["masks"]) for one in whole) * 96 * 80
    monkeypatch.setattr(box_masks, "MOST_WHOLE_PIXELS", most - 1)
    singly = [*Records(folder, **READING)]
    trained = [*ImageDataset(folder, streams=1, **READING)]
    seen = 0
    for one, other, third in zip(whole, singly, trained, strict=True):
        is_too_much = one["masks"].size == most
        assert isinstance(other["masks"], BoxMasks) == is_too_much
        assert isinstance(third["masks"], BoxMasks) == is_too_much
        seen += is_too_much
        assert other["masks"].shape == one["masks"].shape
        assert len(other["masks"]) == len(one["masks"])
        np.testing.assert_array_equal([*other["masks"]], one["masks"])
        np.testing.assert_array_equal(other["masks"][-1], one["masks"][-1])
        np.testing.assert_array_equal([*third["masks"][1:]], one["masks"][1:])
        sent = pickle.loads(pickle.dumps(other["masks"]))  # as by the workers of a DataLoader
        np.testing.assert_array_equal([*sent], one["masks"])
    assert seen


@pytest.mark.slow
def test_load_refuses_what_is_too_much_at_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decode, "MOST_WHOLE_PIXELS", 3 * 96 * 80 - 1)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"record \d.* specify `image_size=`"):
        [*load(folder, **READING)]
    smaller = [*load(folder, image_size=(90, 80), **READING)]
    assert len(smaller) == 4


# Exports and checks


def test_exports_list_a_bounded_number_of_run_lengths(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stripes = np.zeros((10, 4), np.uint8)
    stripes[::2] = 1
    encode_run_lengths(stripes, 40)
    with pytest.raises(TooManyRunsError):
        encode_run_lengths(stripes, 39)
    monkeypatch.setattr(instance_masks, "MOST_RUNS", 9)
    with pytest.raises(DataError, match=r"the masks of .*\.png have more .*`format=tfds`"):
        beam_tfr.export(folder, output=tmp_path / "e", format="folder", progress=False)
    beam_tfr.export(folder, output=tmp_path / "t", format="tfds", progress=False)


def test_exports_without_masks_decode_none(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(box_masks, "decode_mask", None)
    for form in ("yolo", "voc"):
        beam_tfr.export(folder, output=tmp_path / form, format=form, split="train", progress=False)


def test_checks_decode_no_more_than_a_record_may_have(monkeypatch: pytest.MonkeyPatch) -> None:
    masks = InstanceMasks(name="m", text="mask[box]")
    png = encode_mask(np.zeros((30, 40), np.uint8))
    stored = {OBJECT_MASK: [png] * 3}
    assert not [*masks.problems(stored, (30, 40))]
    monkeypatch.setattr(instance_masks, "MOST_PIXELS", 3 * 30 * 40 - 1)
    (problem,) = masks.problems(stored, (30, 40))
    assert "3,600 pixels" in problem


def test_pictures_decode_few_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    png = encode_mask(np.zeros((30, 40), np.uint8))
    stored = {OBJECT_MASK: [png] * 3, HEIGHT: [30], WIDTH: [40]}
    assert len([*InstanceMasks.shapes(stored)]) == 3
    monkeypatch.setattr(instance_masks, "_MOST_DRAWN", 2 * 30 * 40)
    assert len([*InstanceMasks.shapes(stored)]) == 2
    for kind, feature in ((InstanceMasks, OBJECT_MASK), (SegmentationMask, MASK)):
        huge = {feature: [png], HEIGHT: [1 << 14], WIDTH: [1 << 14]}
        with pytest.raises(ValueError, match="are too many to show"):
            next(kind.shapes(huge))


@pytest.mark.parametrize("size", [(1 << 21, 1), (1 << 16, 1 << 16), (-1, 5), (0, 0), (2.5, 1)])
def test_headers_that_no_decoder_takes_are_refused(size: Any) -> None:
    png = encode_mask(np.zeros((1, 1), np.uint8))
    stated = b"".join(int(side).to_bytes(4, "big", signed=side < 0) for side in size[::-1])
    with pytest.raises(ValueError, match="not a valid gray PNG"):
        decode_stored(png[:16] + stated + png[24:], size)


def test_verify_decodes_nothing_of_a_size_that_no_image_has(tmp_path: Path) -> None:
    folder = write_instances(tmp_path, 1)

    def edit(_: int, example: tf.train.Example) -> None:
        example.features.feature[HEIGHT].int64_list.value[:] = [1 << 15]
        example.features.feature[WIDTH].int64_list.value[:] = [1 << 15]

    (shard,) = folder.glob("*.tfrecord.gz")
    edit_records(shard, edit)
    found = beam_tfr.verify(folder, progress=False)
    problems = "\n".join(map(str, found.problems))
    assert "image/height is 32768, expected 96 according to the image" in problems
    assert "mask" not in problems
