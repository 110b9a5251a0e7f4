"""Masks of boxes against pycocotools, and against their definition.

Also against what is painted where they are.
"""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from pycocotools import mask as coco_masks

import beam_tfr
from beam_tfr import Records, cli
from beam_tfr.features.instance_masks import MAX_MASK_BYTES, InstanceMasks
from beam_tfr.features.pixel_parts import PixelBudget
from beam_tfr.features.registry import parse_column
from beam_tfr.features.run_lengths import decode_run_lengths
from beam_tfr.images import convert_image
from beam_tfr.images.mapping import RecordPixels, map_points, source_size
from beam_tfr.inspection import inspect
from beam_tfr.inspection.sheets import contact_sheet
from beam_tfr.reader import load
from beam_tfr.records.examples import parse_example
from beam_tfr.schema.errors import DataError, RejectError, UsageError
from beam_tfr.schema.feature_names import OBJECT_MASK
from beam_tfr.schema.items import Image
from beam_tfr.torch import ImageDataset
from tests.conftest import few_at_once
from tests.instances import COLUMNS, check_painted, convert, paint, runs_of, write_instances
from tests.masks import STORED, place_image, png
from tests.reader_fixtures import edit_records
from tests.updates import files_of

MEMORY = 1 << 30


def pixels(data: bytes) -> np.ndarray:
    return np.asarray(PIL.Image.open(io.BytesIO(data)))


def place_mask(data: bytes, number: int, image: Image, *, relative: bool, memory: int) -> bytes:
    """The mask of a box as it is stored."""
    masks = InstanceMasks(name="m", text="mask[box]", is_relative=relative)
    values: Any = {OBJECT_MASK: ("bytes", [data] * number)}
    placed = masks.place(values, RecordPixels(image, memory), [number - 1])
    (png,) = placed[OBJECT_MASK][1]
    return png


def draw_runs(runs: dict[str, Any], size: tuple[int, int]) -> np.ndarray:
    """The mask of run lengths on the whole canvas."""
    part = decode_run_lengths(runs["counts"], runs["size"], size, PixelBudget(1 << 20))
    canvas = np.zeros(size, np.uint8)
    part.place_on(canvas)[:] = part.pixels
    return canvas


def blobs(height: int, width: int, seed: int) -> np.ndarray:
    noise = np.random.default_rng(seed).random((height // 5 + 1, width // 5 + 1)) < 0.4
    return np.kron(noise, np.ones((5, 5))).astype(np.uint8)[:height, :width]


def is_inside(x: float, y: float, rings: list[np.ndarray]) -> bool:
    """The even-odd rule, by a ray to the right; in any of several polygons."""
    for ring in rings:
        crossings = 0
        for (x0, y0), (x1, y1) in zip(ring, np.roll(ring, -1, axis=0), strict=True):
            crossings += (y0 <= y) != (y1 <= y) and x < x0 + (y - y0) / (y1 - y0) * (x1 - x0)
        if crossings % 2:
            return True
    return False


SIZES = st.tuples(st.integers(2, 60), st.integers(2, 60))
PLACES = {
    "size": SIZES,
    "image_size": SIZES,
    "resize": st.sampled_from(["crop", "pad", "fit", "stretch", "shortest", "none"]),
    "orientation": st.integers(1, 8),
    "ignored": st.booleans(),
    "seed": st.integers(0, 999),
}


def converted(size: Any, image_size: Any, resize: str, orientation: int, *, ignored: bool) -> Any:
    """A black image of an upright size."""
    image_size = (image_size[0],) * 2 if resize == "shortest" else image_size
    sized = {} if resize == "none" else {"image_size": image_size}
    data = png(np.zeros((*size, 3), np.uint8), orientation=orientation)
    return convert_image(data, resize=resize, encoding="png", ignore_orientation=ignored, **sized)


@settings(max_examples=80, deadline=None)
@given(**PLACES, compressed=st.booleans())
def test_run_lengths_are_placed_as_masks_are(
    size: Any,
    image_size: Any,
    resize: str,
    orientation: int,
    ignored: bool,
    seed: int,
    compressed: bool,
) -> None:
    mask = blobs(*size, seed)
    runs = runs_of(mask, compressed=compressed)
    np.testing.assert_array_equal(draw_runs(runs, size), mask)
    try:
        image = converted(size, image_size, resize, orientation, ignored=ignored)
    except RejectError:
        return  # of one pixel, or none
    stored = mask
    if ignored and orientation > 1:
        stored = np.asarray(PIL.Image.fromarray(mask).transpose(STORED[orientation]))
    placed = place_mask(json.dumps(runs).encode(), 1, image, relative=False, memory=MEMORY)
    np.testing.assert_array_equal(pixels(placed), pixels(place_image(png(stored), image)))


@settings(max_examples=30, deadline=None)
@given(**PLACES, relative=st.booleans())
def test_polygons_cover_the_pixels_whose_centers_are_inside(
    size: Any,
    image_size: Any,
    resize: str,
    orientation: int,
    ignored: bool,
    seed: int,
    relative: bool,
) -> None:
    chance = np.random.default_rng(seed)
    rings = [chance.uniform(-0.1, 1.1, (number, 2)) * size[::-1] for number in (7, 3)]
    try:
        image = converted(size, image_size, resize, orientation, ignored=ignored)
    except RejectError:
        return
    assert source_size(image.geometry)[::-1] == size
    cell = [(ring / (size[::-1] if relative else 1)).reshape(-1).tolist() for ring in rings]
    (data,) = parse_column("c", "mask[box]").parse([cell])
    placed = pixels(place_mask(data, 1, image, relative=relative, memory=MEMORY))
    left, top, right, bottom = image.geometry.content
    mapped = [map_points(ring, image.geometry) for ring in rings]
    expected = np.zeros((image.height, image.width), np.uint8)
    for row in range(top, bottom):
        for column in range(left, right):
            expected[row, column] = is_inside(column + 0.5, row + 0.5, mapped)
    np.testing.assert_array_equal(placed, expected)


def test_pycocotools_draws_the_same_but_for_a_quarter_of_a_pixel() -> None:
    """pycocotools moves corners to fifths of pixels.

    So it may decide otherwise where the center of a pixel is near an edge.
    """
    image = converted((150, 190), (9, 9), "none", 1, ignored=False)
    different = 0
    for seed in range(50):
        ring = np.random.default_rng(seed).uniform(-0.1, 1.1, (12, 2)) * (190, 150)
        (data,) = parse_column("c", "mask[box]").parse([[[*map(float, ring.reshape(-1))]]])
        ours = pixels(place_mask(data, 1, image, relative=False, memory=MEMORY))
        theirs = coco_masks.decode(
            coco_masks.merge(coco_masks.frPyObjects([ring.reshape(-1).tolist()], 150, 190))
        )
        places = np.argwhere(ours != theirs)[:, ::-1] + 0.5
        different += len(places)
        edges = np.roll(ring, -1, axis=0) - ring
        along = ((places[:, None] - ring) * edges).sum(2) / (edges**2).sum(1)
        nearest = ring + along.clip(0, 1)[:, :, None] * edges
        assert np.linalg.norm(places[:, None] - nearest, axis=2).min(axis=1).max(initial=0) < 0.3
    assert different < 0.01 * 50 * ours.size


HOSTILE = [
    ({"size": [4, 5], "counts": [25]}, "run lengths that do not add up to the 20"),
    ({"size": [4, 5], "counts": [19]}, "do not add up to the 20 pixels"),
    ({"size": [4, 5], "counts": [10**30]}, "do not add up to the 20 pixels"),
    ({"size": [4, 5], "counts": [10**400]}, "do not add up to the 20 pixels"),
    ({"size": [4, 5], "counts": [21, -1]}, "not run lengths"),
    ({"size": [4, 5], "counts": [19.5, 0.5]}, "not run lengths"),
    ({"size": [4, 5], "counts": ["20"]}, "not run lengths"),
    ({"size": [4, 5], "counts": [True] * 20}, "not run lengths"),
    ({"size": [4, 5], "counts": None}, "not run lengths"),
    ({"size": [4, 5], "counts": {}}, "not run lengths"),
    ({"size": [4, 5], "counts": ""}, "do not add up to the 20 pixels"),
    ({"size": [4, 5], "counts": "\x00"}, "is invalid at"),
    ({"size": [4, 5], "counts": "ä"}, "is invalid at"),
    ({"size": [4, 5], "counts": "o" * 1_000_000}, "is invalid at"),
    ({"size": [4, 5], "counts": "o"}, "ends within a number"),
    ({"size": [4, 5], "counts": "O"}, "not run lengths"),
    ({"size": [4, 5], "counts": "ooooooooooo1"}, "do not add up|is invalid at"),
    ({"size": [5, 4], "counts": [20]}, "it ignores EXIF orientation"),
    ({"size": [10**9, 10**9], "counts": [10**18]}, "has the size"),
    ({"size": [4], "counts": [20]}, "has the size"),
    ({"size": None, "counts": [20]}, "has the size"),
    ({"size": "4,5", "counts": [20]}, "has the size"),
    ({}, "has the size None"),
]


@pytest.mark.parametrize(("runs", "detail"), HOSTILE)
def test_hostile_run_lengths_are_rejects(runs: dict[str, Any], detail: str) -> None:
    (data,) = parse_column("c", "mask[box]").parse([runs])
    image = converted((4, 5), (9, 9), "none", 1, ignored=False)
    with pytest.raises(RejectError, match=f"the mask of box 3 .*(?:{detail})") as caught:
        place_mask(data, 3, image, relative=False, memory=MEMORY)
    assert caught.value.reason == "bad-value"


@pytest.mark.parametrize(
    ("cell", "detail"),
    [
        ({"size": [4, 5], "counts": "0" * 100_000_000}, "the mask of box 2 takes more than 1 MiB"),
        ({"size": [4, 5], "counts": b"\xff"}, "the mask of box 2: 'utf-8' codec"),
        ({"size": [4, 5], "counts": {1}}, "the mask of box 2: "),
        ([[1, 2, 3]], "is not a list of points with 2 numbers each"),
        ([[1, 2, 3, 4, 5, float("nan")]], "is not a coordinate in an image"),
        ([[1, 2, 3, 4, 5, "x"]], "is not a number"),
        ("masks/1.png", "is not a list of points"),
        (5, "is not a list of points"),
    ],
)
def test_cells_that_are_no_masks(cell: Any, detail: str) -> None:
    with pytest.raises(ValueError, match=detail):
        parse_column("c", "mask[box]").parse([[], cell])


def test_the_largest_mask_is_drawn() -> None:
    """A polygon of as many corners as a cell may have, each edge of which crosses all rows."""
    number = MAX_MASK_BYTES // 17
    zigzag = [number for at in range(number) for number in (at % 97, at % 2 * 500)]
    (data,) = parse_column("c", "mask[box]").parse([[zigzag]])
    image = converted((400, 90), (9, 9), "none", 1, ignored=False)
    assert pixels(place_mask(data, 1, image, relative=False, memory=1)).shape == (400, 90)


def test_texts_of_parquet_are_bytes_and_no_mask_is_empty() -> None:
    mask = blobs(12, 17, 3)
    runs = runs_of(mask, compressed=True)
    one, other, none, missing = parse_column("c", "mask[box]").parse(
        [
            {**runs, "counts": runs["counts"].encode(), "more": 1},
            json.loads(json.dumps(runs)),
            [],
            None,
        ]
    )
    assert one == other
    image = converted((12, 17), (9, 9), "none", 1, ignored=False)
    np.testing.assert_array_equal(
        pixels(place_mask(one, 1, image, relative=False, memory=MEMORY)), mask
    )
    for empty in (none, missing):
        assert not pixels(place_mask(empty, 1, image, relative=False, memory=MEMORY)).any()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_instances(tmp_path_factory.mktemp("instances"))


@pytest.mark.parametrize(
    "resize", few_at_once(["crop", "pad", "stretch", "fit", "none"], "crop", "pad")
)
def test_masks_are_where_their_objects_are(folder: Path, tmp_path: Path, resize: str) -> None:
    (tmp_path / "coco.json").symlink_to(folder.parent / "coco.json")
    convert(tmp_path, resize=resize, image_root=folder.parent / "photos", background="black")
    seen = 0
    for one in Records(tmp_path / "d", split="train", output="dict", boxes="xyxy"):
        seen += check_painted(one["image"], one["masks"], one["classes"])
        for mask, (left, top, right, bottom) in zip(one["masks"], one["boxes"], strict=True):
            rows, columns = np.nonzero(mask)
            if len(rows):
                assert columns.min() >= left - 1 and rows.min() >= top - 1  # noqa: PT018
                assert columns.max() <= right and rows.max() <= bottom  # noqa: PT018
    assert seen > 30


@pytest.mark.slow
def test_readers_return_the_same(folder: Path) -> None:
    options: dict[str, Any] = {"split": "train", "output": "dict", "boxes": "xyxy"}
    records = [*Records(folder, **options)]
    singles = [*load(folder, streams=1, **options).as_numpy_iterator()]
    batches = [*ImageDataset(folder, streams=1, batch_size=5, remainder="pad", **options)]
    theirs = [mask for batch in batches for mask in batch["masks"]]
    for one, single, mask in zip(records, singles, theirs, strict=False):
        assert one.keys() == single.keys()
        np.testing.assert_array_equal(one["masks"], single["masks"])
        np.testing.assert_array_equal(one["masks"], mask)
    assert [mask.shape for mask in theirs[16:]] == [(0, 96, 80)] * 4
    ragged = load(folder, streams=1, batch_size=5, remainder="pad", **options)
    assert ragged.element_spec["masks"] == tf.RaggedTensorSpec([5, None, 96, 80], tf.uint8, 1)
    flat = [mask for batch in ragged for mask in batch["masks"]]
    for one, mask in zip(records, flat, strict=False):
        np.testing.assert_array_equal(one["masks"], mask)
    padded = load(folder, streams=1, batch_size=8, max_boxes=2, **options)
    assert padded.element_spec["masks"] == tf.TensorSpec([8, 2, 96, 80], tf.uint8)
    for one, mask in zip(
        records, (mask for batch in padded for mask in batch["masks"]), strict=True
    ):
        np.testing.assert_array_equal(one["masks"][:2], mask)
    for bare in ({"output": "dict"}, {"output": "pair", "boxes": "xyxy"}):
        (first,) = load(folder, split="train", **bare).take(1)
        assert "masks" not in (first if isinstance(first, dict) else first[1])
    assert len(Records(folder, split="train", output="dict")[0][OBJECT_MASK]) == len(
        records[0]["classes"]
    )


@pytest.mark.parametrize("crop", few_at_once(["center", "random"], "random"))
def test_crops_move_masks_with_their_images(folder: Path, crop: str) -> None:
    options: dict[str, Any] = {
        "crop": crop,
        "image_size": (70, 60),
        "shuffle": True,
        "seed": 3,
        "repeat": 3,
    }
    seen = 0
    for one in load(
        folder, split="train", output="dict", boxes="xyxy", **options
    ).as_numpy_iterator():
        seen += check_painted(one["image"], one["masks"], one["classes"])
    assert seen > 60


@pytest.mark.slow
@pytest.mark.parametrize("sizes", ["padded", "ragged", None])
def test_images_of_different_sizes(folder: Path, tmp_path: Path, sizes: str | None) -> None:
    coco = json.loads((folder.parent / "coco.json").read_text())
    # the others are background
    coco["annotations"] = [one for one in coco["annotations"] if one["image_id"] < 4]
    (tmp_path / "coco.json").write_text(json.dumps(coco))
    convert(tmp_path, image_root=folder.parent / "photos", resize="none")
    options: dict[str, Any] = {"split": "train", "output": "dict", "boxes": "xyxy"}
    records = [*Records(tmp_path / "d", **options)]
    for limited in ({}, {"max_boxes": 2}):
        batched = {"batch_size": 2, "sizes": sizes} if sizes else {}
        found = [*load(tmp_path / "d", streams=1, **batched, **limited, **options)]
        if sizes:
            found = [
                {name: values[at] for name, values in batch.items()}
                for batch in found
                for at in (0, 1)
            ]
        for one, other in zip(records, found, strict=True):
            masks = (
                other["masks"].numpy()
                if not isinstance(other["masks"], tf.RaggedTensor)
                else other["masks"]
            )
            if isinstance(masks, tf.RaggedTensor):
                masks = masks.to_tensor(shape=[None, *one["image"].shape[:2]]).numpy()
            number = limited.get("max_boxes", len(one["masks"]))
            expected = one["masks"][:number]
            height, width = one["image"].shape[:2]
            if len(expected):
                np.testing.assert_array_equal(masks[: len(expected), :height, :width], expected)
            assert int(masks.sum()) == int(expected.sum())
            if sizes == "padded":
                assert masks.shape[1:] == other["image"].shape[:2]
    assert sorted(len(one["masks"]) for one in records)[:12] == [0] * 12


def test_yolo_polygons_are_masks(folder: Path, tmp_path: Path) -> None:
    """Of shares of the image, which is turned; as COCO's of pixels."""
    coco = json.loads((folder.parent / "coco.json").read_text())
    for of in ("images", "labels"):
        (tmp_path / of).mkdir()
    for image in coco["images"]:
        name, size = image["file_name"], (image["width"], image["height"])
        (tmp_path / "images" / name).write_bytes((folder.parent / "photos" / name).read_bytes())
        (one,) = (
            of
            for of in coco["annotations"]
            if (of["image_id"], of["category_id"]) == (image["id"], 1)
        )
        shares = np.reshape(one["segmentation"][0], (-1, 2)) / size
        lines = " ".join(["0", *map(repr, shares.reshape(-1).tolist())]) + "\n0 0.5 0.5 0.2 0.2\n"
        (tmp_path / "labels" / f"{name[:-4]}.txt").write_text(lines)
    (tmp_path / "data.yaml").write_text("names: [a]\ntrain: images\n")
    columns = {"box": "bbox[rel_center_xywh]", "segment": "mask[box]"}
    convert(tmp_path, table="data.yaml", feature_columns=columns, image_root="")
    theirs = {
        of["image/filename"]: of
        for of in Records(folder, split="train", output="dict", boxes="xyxy")
    }
    for one in Records(tmp_path / "d", split="train", output="dict", boxes="xyxy"):
        other = theirs[one["image/filename"].removeprefix(b"images/")]
        if 0 in other["classes"]:
            np.testing.assert_array_equal(
                one["masks"][0], other["masks"][other["classes"].tolist().index(0)]
            )
        assert not one["masks"][-1].any()  # that line has no polygon


def test_rejects_name_the_annotation(tmp_path: Path) -> None:
    coco = paint(tmp_path, 6)
    segments = [one["segmentation"] for one in coco["annotations"]]
    segments[1]["counts"][0] += 1
    segments[4]["size"] = segments[4]["size"][::-1]
    coco["annotations"][6]["segmentation"] = [[1, 2, 3]]
    segments[10]["counts"] = "0" * (MAX_MASK_BYTES + 1)
    (tmp_path / "coco.json").write_text(json.dumps(coco))
    convert(tmp_path, max_rejects=4)
    found = [
        json.loads(line) for line in (tmp_path / "d" / "rejects.jsonl").read_text().splitlines()
    ]
    assert [(one["key"], one["reason"]) for one in found] == [
        (f"{at:02d}.png", "bad-value") for at in (0, 1, 2, 3)
    ]
    for one, detail in zip(
        found,
        ["mask of box 2 has run", "mask of box 2 has the size", "mask of box 1: ", "1 MiB"],
        strict=True,
    ):
        assert detail in one["detail"]
    assert "column 'segment'" in found[2]["detail"]


def test_contents_contact_sheets_and_damage(folder: Path, tmp_path: Path) -> None:
    rows = beam_tfr.contents(folder).to_table(columns=["object_mask_bytes"]).to_pylist()
    for row, raw in zip(rows, Records(folder, split="train", output="raw_record"), strict=True):
        assert row["object_mask_bytes"] == sum(map(len, parse_example(raw)[OBJECT_MASK]))
    records = inspect(str(folder), records=4).records
    with_masks = np.asarray(contact_sheet(records))
    for record in records:
        record.values.pop(OBJECT_MASK)
    bare = np.asarray(contact_sheet(records))
    changed = (with_masks != bare).any(axis=2)
    assert 0.01 < changed.mean() < 0.5
    assert with_masks.shape == bare.shape


def wrong_masks(masks: list[bytes], kind: str) -> list[bytes]:
    return {
        "number": masks[1:],
        "values": [png(pixels(masks[0]) * 255), *masks[1:]],
        "size": [png(np.zeros((5, 5), np.uint8)), *masks[1:]],
        "huge": [masks[0][:16] + b"\x00\x01\x00\x00" * 2 + masks[0][24:], *masks[1:]],
        "none": [b"", *masks[1:]],
    }[kind]


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("number", "its boxes differ in number from labels, masks or points"),
        ("values", "the mask of box 1 has values above 1"),
        ("size", "box 1: not a valid gray PNG"),
        ("huge", "box 1: not a valid gray PNG"),
        ("none", "box 1: not a valid gray PNG"),
    ],
)
def test_wrong_masks_are_found(tmp_path: Path, kind: str, message: str) -> None:
    folder = write_instances(tmp_path, 1)

    def edit(_: int, example: tf.train.Example) -> None:
        masks = example.features.feature[OBJECT_MASK].bytes_list.value
        masks[:] = wrong_masks([*masks], kind)

    (shard,) = folder.glob("*.tfrecord.gz")
    edit_records(shard, edit)
    found = beam_tfr.verify(folder, progress=False)
    assert not found.ok
    assert message in "\n".join(map(str, found.problems))
    if kind != "values":  # which no reader looks at
        with pytest.raises(DataError, match=r"gray PNG|2 values instead of 3"):
            next(iter(ImageDataset(folder, split="train", output="dict", boxes="xyxy")))


@pytest.mark.slow
def test_update_remove_repair_and_diff(folder: Path, tmp_path: Path) -> None:
    coco = paint(tmp_path, 8)
    (tmp_path / "coco.json").write_text(json.dumps(coco))
    convert(tmp_path)
    convert(tmp_path, "old")
    coco["annotations"][0]["segmentation"] = []
    (tmp_path / "coco.json").write_text(json.dumps(coco))
    found = beam_tfr.update(
        tmp_path / "d", table=tmp_path / "coco.json", image_root=tmp_path / "photos", progress=False
    )
    assert found.counts["written"] == 8
    convert(tmp_path, "fresh/d")
    assert files_of(tmp_path / "d") == files_of(tmp_path / "fresh/d")
    difference = beam_tfr.diff(tmp_path / "old", tmp_path / "d")
    assert difference.counts["columns"] == 1
    before = files_of(tmp_path / "d")
    (shard,) = (tmp_path / "d").glob("*.tfrecord.gz")
    shard.write_bytes(shard.read_bytes()[:-9])
    arguments = [
        "--table",
        str(tmp_path / "coco.json"),
        "--image_root",
        str(tmp_path / "photos"),
        "--quiet",
    ]
    assert cli.main(["repair", str(tmp_path / "d"), *arguments]) == 0
    assert files_of(tmp_path / "d") == before
    beam_tfr.update(tmp_path / "d", num_shards=2, progress=False)
    assert beam_tfr.verify(tmp_path / "d", progress=False).ok
    (tmp_path / "keys.txt").write_text("00.png\n")
    assert (
        cli.main(["remove", str(tmp_path / "d"), "--keys", str(tmp_path / "keys.txt"), "--quiet"])
        == 0
    )
    assert len(Records(tmp_path / "d", split="train")) == 7


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"segment": "mask[box]"}, "has values for each box, but no column has boxes"),
        ({**COLUMNS, "other": "mask[box]"}, "hold masks of boxes, but only one column can"),
        (
            {"box": "bbox[xywh]", "masks": "mask[box]", OBJECT_MASK: "bytes[box]"},
            "rename the column",
        ),
    ],
)
def test_wrong_calls(columns: dict[str, str], message: str, tmp_path: Path) -> None:
    row = {
        "path": "1.png",
        "box": [[1, 2, 3, 4]],
        "segment": [[]],
        "other": [[]],
        "masks": [[]],
        OBJECT_MASK: [b"".hex()],
    }
    (tmp_path / "t.jsonl").write_text(json.dumps(row))
    with pytest.raises(UsageError, match=re.escape(message)):
        beam_tfr.convert(
            table=tmp_path / "t.jsonl",
            uri_column="path",
            output=tmp_path / "d",
            feature_columns=columns,
        )
