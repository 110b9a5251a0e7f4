"""Masks against the colors of their images, which are those of the classes."""

from __future__ import annotations

import contextlib
import io
import json
import math
import re
import runpy
import shutil
import subprocess
import sys
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import PIL.Image
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

import beam_tfr
from beam_tfr import Records, cli
from beam_tfr.features import handling, mask_counts
from beam_tfr.features.companions import Companion, PlacedCompanion
from beam_tfr.features.handling import Handling
from beam_tfr.features.mask_colors import describe_all_colors
from beam_tfr.features.mask_counts import describe_masks, mask_statistics
from beam_tfr.features.registry import parse_column
from beam_tfr.images import convert_image
from beam_tfr.images.mapping import RecordPixels
from beam_tfr.inspection import inspect
from beam_tfr.inspection.sheets import contact_sheet
from beam_tfr.reader import load
from beam_tfr.records.examples import parse_example
from beam_tfr.schema.errors import RejectError, UsageError
from beam_tfr.schema.feature_names import FILENAME, HEIGHT, MASK, WIDTH
from beam_tfr.schema.items import Image
from beam_tfr.schema.palettes import Palette, describe_palettes
from beam_tfr.schema.plan import Counts
from beam_tfr.torch import ImageDataset
from tests.conftest import few_at_once
from tests.fake_gcs import FakeGcs
from tests.masks import COLORS, STORED, convert, ids, pixels, place_image, png, write_table

UPRIGHT = {
    2: 0,
    3: 3,
    4: 1,
    5: 5,
    6: 4,
    7: 6,
    8: 2,
}  # EXIF orientation -> the transposition that undoes it (Pillow)


def deep_png(values: np.ndarray) -> bytes:
    """A PNG of 16 bits in each of several channels."""
    return cv2.imencode(".png", values)[1].tobytes()


def agrees(image: np.ndarray, mask: np.ndarray) -> float:
    """The share of the pixels of one pure color that have the class of this color."""
    pure = (np.abs(image[:, :, None].astype(int) - COLORS).max(axis=3) <= 30).argmax(axis=2)
    known = (np.abs(image[:, :, None].astype(int) - COLORS).max(axis=3) <= 30).any(axis=2)
    return float((pure == mask)[known].mean()) if known.any() else 1.0


@settings(max_examples=80, deadline=None)
@given(
    size=st.tuples(st.integers(1, 90), st.integers(1, 90)),
    image_size=st.tuples(st.integers(1, 90), st.integers(1, 90)),
    resize=st.sampled_from(["crop", "pad", "fit", "stretch", "shortest", "none"]),
    orientation=st.integers(1, 8),
    ignored=st.booleans(),
    deep=st.booleans(),
    seed=st.integers(0, 99),
)
def test_each_pixel_has_the_class_under_its_center(
    size: tuple[int, int],
    image_size: tuple[int, int],
    resize: str,
    orientation: int,
    ignored: bool,
    deep: bool,
    seed: int,
) -> None:
    """Masks are compared with nearest neighbors of the same picture by Pillow.

    Places within rounding of an edge are left out.
    """
    height, width = size
    values = ids(height, width, seed) if min(size) > 1 else np.ones(size, np.uint8)
    if resize == "shortest":
        image_size = (image_size[0], image_size[0])
    sized = {} if resize == "none" else {"image_size": image_size}
    options = {**sized, "resize": resize, "encoding": "png", "ignore_orientation": ignored}
    data = png(COLORS[values], orientation=orientation)
    shown = (
        np.asarray(PIL.Image.fromarray(values).transpose(STORED[orientation]))
        if ignored and orientation > 1
        else values
    )
    try:
        image = convert_image(data, **options)
    except RejectError:
        return
    mask = pixels(
        place_image(
            png(shown.astype(np.uint16) * (300 if deep else 1)) if deep else png(shown),
            image,
            outside=9,
        )
    )
    assert mask.shape == (image.height, image.width)
    assert mask.dtype == (np.uint16 if deep else np.uint8)
    left, top, right, bottom = image.geometry.content
    x0, y0, x1, y1 = image.geometry.window
    expected = np.full(mask.shape, 9, mask.dtype)
    for row in range(top, bottom):
        for column in range(left, right):
            y = y0 + (row - top + 0.5) * (y1 - y0) / (bottom - top)
            x = x0 + (column - left + 0.5) * (x1 - x0) / (right - left)
            expected[row, column] = int(shown[math.floor(y + 1e-9), math.floor(x + 1e-9)]) * (
                300 if deep else 1
            )
    np.testing.assert_array_equal(mask, expected)
    if (
        not deep
        and (resize in ("none", "crop", "shortest", "stretch"))
        and min(image_size) > 20 < min(size)
    ):
        assert agrees(pixels(image.encoded), mask) > 0.98


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_mask_of_the_upright_image_follows_its_orientation(orientation: int) -> None:
    values = ids(60, 80, 3)
    image = convert_image(
        png(COLORS[values], orientation=orientation), resize="none", encoding="png"
    )
    assert agrees(pixels(image.encoded), pixels(place_image(png(values), image))) == 1.0
    np.testing.assert_array_equal(pixels(place_image(png(values), image)), values)


def test_palettes_bits_and_values_stay() -> None:
    image = convert_image(png(COLORS[ids(30, 40)]), resize="none", encoding="png")
    values = np.arange(1200).reshape(30, 40)
    for made in (png(values.astype(np.uint8)), png(values.astype(np.uint8), palette=True)):
        np.testing.assert_array_equal(pixels(place_image(made, image)), values.astype(np.uint8))
    np.testing.assert_array_equal(
        pixels(place_image(png((values * 50).astype(np.uint16)), image)),
        values * 50,
    )
    np.testing.assert_array_equal(pixels(place_image(png(values % 2 == 1), image)), values % 2)


@pytest.mark.parametrize(
    ("mask", "detail"),
    [
        (b"", "is not an image; it must be a PNG"),
        (b"numpy", "is not an image; it must be a PNG"),
        (b"GIF89a", "is a GIF; it must be a PNG"),
        (b"\xff\xd8\xff\xe0", "is a JPEG, .* it must be a PNG"),
        (b"BM", "is a BMP; it must be a PNG"),
        (b"MM\0*", "is a TIFF; it must be a PNG"),
        (
            png(np.random.default_rng(0).integers(0, 9, (30, 40), np.uint8))[:-400],
            "truncated|broken|not enough|cannot",
        ),
        (png(np.zeros((40, 30), np.uint8)), r"has \(30, 40\) pixels, but the image has \(40, 30\)"),
        (png(COLORS[ids(30, 40) % 3]), r"has 3 colors .*, #ff0000\).*\[#000000=0,#00ff00=1"),
        (png(np.zeros((30, 40, 4), np.uint8)), "has transparent pixels"),
        (png(np.zeros((30, 40, 2), np.uint8)), "has transparent pixels"),
        (deep_png(np.zeros((30, 40, 3), np.uint16)), "has several channels with 16 bits"),
        (
            png(np.random.default_rng(0).integers(0, 256, (30, 40, 3), np.uint8)),
            "has more than 1,000 colors",
        ),
        (png(np.zeros((15, 20), np.uint8)), "with the same aspect ratio; scale it with .scale."),
    ],
)
def test_other_masks_are_refused(mask: bytes, detail: str) -> None:
    image = convert_image(png(COLORS[ids(30, 40)]), resize="none", encoding="png")
    with pytest.raises(RejectError, match=detail) as caught:
        place_image(mask, image)
    assert caught.value.reason == "bad-value"
    turned = convert_image(png(COLORS[ids(30, 40)], orientation=6), resize="none", encoding="png")
    with pytest.raises(RejectError, match="it ignores EXIF orientation"):
        place_image(png(np.zeros((40, 30), np.uint8)), turned)


@pytest.mark.parametrize("extension", ["tif", "gif", "bmp"])
def test_other_formats_come_with_a_command_that_keeps_their_values(
    extension: str, tmp_path: Path
) -> None:
    """Also those of a palette, which mogrify numbers anew."""
    image = convert_image(png(COLORS[ids(30, 40)]), resize="none", encoding="png")
    values = np.random.default_rng(0).integers(0, 3, (30, 40), np.uint8)
    mask = PIL.Image.fromarray(values)
    mask.putpalette([200, 0, 0, 0, 0, 200, 0, 200, 0])
    path = tmp_path / f"m.{extension}"
    mask.save(path)
    with pytest.raises(RejectError) as error:
        place_image(path.read_bytes(), image)
    command = error.value.detail.partition("a PNG: ")[2].partition(" writes ")[0]
    command = command.replace("python3", sys.executable).replace("FILES", f"*.{extension}")
    subprocess.run(command, shell=True, check=True, cwd=tmp_path)
    made = (tmp_path / "NEW/m.png").read_bytes()
    np.testing.assert_array_equal(pixels(place_image(made, image)), values)


def place(data: bytes, image: Image, declared: str) -> PlacedCompanion:
    """A mask, as a declaration such as `mask[scale]` says."""
    column = parse_column("m", declared)
    assert isinstance(column, Companion)
    assert parse_column("m", column.text) == column
    return column.place_image(data, RecordPixels(image, 1 << 30))


@pytest.mark.parametrize("alpha", [False, True])
@pytest.mark.parametrize("channels", [1, 3])
def test_equal_channels_are_read_as_gray(channels: int, alpha: bool) -> None:
    values = ids(30, 40)
    planes = [values] * channels + [np.full_like(values, 255)] * alpha
    image = convert_image(png(COLORS[values]), resize="none", encoding="png")
    for declared in ("mask", "pair"):
        placed = place(png(np.dstack(planes).squeeze()), image, declared)
        np.testing.assert_array_equal(pixels(placed.encoded), values)
        assert placed.adjusted == ("pair-gray",) * (len(planes) > 1)
    replaced = place(png(np.dstack(planes).squeeze()), image, "mask[2=9]")
    np.testing.assert_array_equal(pixels(replaced.encoded), np.where(values == 2, 9, values))


def test_colors_that_are_ids_of_segments_get_no_values() -> None:
    """As in COCO panoptic, where each image has other colors."""
    start = "its mask has 3 colors (#000000, …); give them values, for this one"
    sets = [[0, number, number + 1] for number in (10, 20, 30)]
    details = [
        f"{start}: [{','.join(f'#{color:06x}={color}' for color in colors)}]" for colors in sets
    ]
    (text,) = describe_all_colors(details)
    assert text.startswith("no color but black is in two masks of mask")
    assert "docs/objects.md#panoptic-masks" in text
    assert "in ADE20K, the class is red // 10 * 256 + green" in text
    (text,) = describe_all_colors([*details, details[0]])
    assert text.startswith("the brackets for mask")


def test_colors_of_all_rejected_masks_get_values() -> None:
    """The brackets of one reject would make the next one a reject, and so on."""
    image = convert_image(png(COLORS[ids(30, 40)]), resize="none", encoding="png")

    def refuse(declared: str, *classes: int) -> str:
        values = np.resize(classes, (30, 40))
        with pytest.raises(RejectError) as caught:
            place(png(COLORS[values]), image, declared)
        return caught.value.detail

    details = [refuse("mask", 0, 1), refuse("mask", 0, 2), refuse("mask", 0, 3), "is a GIF"]
    (text,) = describe_all_colors(details)
    assert text.endswith("[#000000=0,#0000ff=1,#00ff00=2,#ff0000=3]")
    given = "mask[#000000=0,#ff0000=1]"
    details = [refuse(given, 0, 1, 2), refuse(given, 0, 3)]
    assert details[1].endswith(
        "give all colors a value, for this one: [#000000=0,#ff0000=1,#0000ff=2]"
    )
    (text,) = describe_all_colors(details)
    assert text.endswith("[#000000=0,#ff0000=1,#0000ff=2,#00ff00=3]")
    assert [*describe_all_colors(["is a GIF"])] == []
    many = [f"its mask has 1 color, for this one: [#{color:06x}=1]" for color in range(65)]
    (text,) = describe_all_colors(many)
    assert "[" not in text


def test_noise_of_colors_is_no_class() -> None:
    """Programs draw some pixels of many colors along edges; the rest are classes."""
    image = convert_image(png(COLORS[ids(30, 40)]), resize="none", encoding="png")

    def refuse(declared: str, *classes: int, noise: int) -> str:
        mask = COLORS[np.resize(classes, (30, 40))]
        for number in range(noise):
            mask[number, number] = (number, 7, 9)
        with pytest.raises(RejectError) as caught:
            place(png(mask), image, declared)
        return caught.value.detail

    few = refuse("mask", 0, 1, noise=1)
    assert "noise" not in few
    details = [refuse("mask", 0, 1, noise=7), refuse("mask", 0, 2, noise=8)]
    assert "has 9 colors, of which 2 cover 99.41% of its pixels (#000000, #ff0000)" in details[0]
    assert details[0].endswith("for this one: [#000000=0,#ff0000=1]")
    (text,) = describe_all_colors(details)
    assert "[#000000=0,#00ff00=1,#ff0000=2]" in text
    assert "`convert xc:#000000 xc:#00ff00 xc:#ff0000 +append colors.png`" in text
    given = "mask[#000000=0,#00ff00=1,#ff0000=2]"
    unvalued = refuse(given, 0, 1, noise=7)
    assert "`convert xc:#000000 xc:#00ff00 xc:#ff0000 +append colors.png`" in unvalued
    assert refuse(given, 0, 3, noise=7).endswith(
        "for this one: [#000000=0,#00ff00=1,#ff0000=2,#0000ff=3]"
    )


def test_values_and_colors_are_replaced() -> None:
    values = ids(30, 40)
    image = convert_image(png(COLORS[values]), resize="none", encoding="png")
    binary = png((values > 0).astype(np.uint8) * 255)
    np.testing.assert_array_equal(
        pixels(place(binary, image, "mask[255=1]").encoded), (values > 0).astype(np.uint8)
    )
    placed = pixels(place(png(values), image, "mask[1=300,2=1,7=9]").encoded)
    assert placed.dtype == np.uint16
    np.testing.assert_array_equal(placed, np.array([0, 300, 1, 3])[values])
    colored = "mask[#000000=0,#FF0000=1,#00ff00=2,#0000ff=3]"
    for data in (png(COLORS[values]), png(np.dstack([COLORS[values], np.full_like(values, 255)]))):
        np.testing.assert_array_equal(pixels(place(data, image, colored).encoded), values)
    with pytest.raises(RejectError, match="has colors without a value: #0000ff; give all"):
        place(png(COLORS[values]), image, "mask[#000000=0,#ff0000=1,#00ff00=2]")
    with pytest.raises(RejectError, match="has transparent pixels"):
        place(png(np.zeros((30, 40, 4), np.uint8)), image, "mask[#000000=0]")


@pytest.mark.parametrize(
    "declared", ["mask[1=2,1=3]", "mask[1=70000]", "mask[7,8]", "mask[1=2,#000000=3]", "mask[x]"]
)
def test_contradictions_are_refused(declared: str) -> None:
    with pytest.raises(ValueError, match=r"\[…\]|is not a type"):
        parse_column("m", declared)
    with pytest.raises(UsageError):
        beam_tfr.plan(input="x", pair=declared.replace("mask", "mask={stem}.png"))


@settings(max_examples=50, deadline=None)
@given(height=st.integers(2, 40), width=st.integers(2, 40), factor=st.integers(1, 5))
def test_masks_of_the_same_aspect_ratio_are_scaled_to_the_nearest(
    height: int, width: int, factor: int
) -> None:
    values = ids(height, width)
    large = np.kron(values, np.ones((factor, factor), np.uint8))
    image = convert_image(png(COLORS[large]), resize="none", encoding="png")
    placed = place(png(values), image, "mask[scale]")
    np.testing.assert_array_equal(pixels(placed.encoded), large)
    assert placed.adjusted == (("pair-scaled",) if factor > 1 else ())
    image = convert_image(png(COLORS[values]), resize="none", encoding="png")
    np.testing.assert_array_equal(pixels(place(png(large), image, "mask[scale]").encoded), values)


def test_masks_of_another_aspect_ratio_are_not_scaled() -> None:
    image = convert_image(png(COLORS[ids(30, 40)]), resize="none", encoding="png")
    for size in ((40, 30), (30, 38), (15, 22), (30, 1)):
        with pytest.raises(RejectError, match=r"pixels, but the image has \(40, 30\)"):
            place(png(np.zeros(size, np.uint8)), image, "mask[scale]")
    place(png(np.zeros((10, 13), np.uint8)), image, "mask[scale]")  # rounded


def test_margins_of_a_value_that_a_mask_has_are_noted() -> None:
    image = convert_image(png(COLORS[ids(30, 40)]), resize="pad", image_size=40)
    binary = png((ids(30, 40) > 0).astype(np.uint8) * 255)
    assert place(binary, image, "mask[255]").adjusted == ("margins-in-mask",)
    assert place(binary, image, "mask[254]").adjusted == ()
    assert place(binary, image, "mask[255=1,255]").adjusted == ()
    assert place(binary, image, "mask").adjusted == ()
    whole = convert_image(png(COLORS[ids(30, 40)]), resize="none")
    assert place(binary, whole, "mask[255]").adjusted == ()


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_table(tmp_path_factory.mktemp("masks"))


@pytest.fixture(scope="module")
def folder(table: Path) -> Path:
    convert(table, table.parent / "d")
    return table.parent / "d"


def test_a_dataset_and_its_readers(table: Path, folder: Path) -> None:
    assert beam_tfr.verify(str(folder)).ok
    records = Records(folder, split="train", output="dict")
    rows = beam_tfr.contents(folder).to_table(columns=["key", "mask_bytes"]).to_pylist()
    for one, row, raw in zip(
        records, rows, Records(folder, split="train", output="raw_record"), strict=True
    ):
        image, mask = one["image"], one["mask"]
        assert (mask.shape, mask.dtype, MASK in one) == ((64, 64), np.int32, False)
        at, stored = int(row["key"][:2]), parse_example(raw)[MASK][0]
        np.testing.assert_array_equal(pixels(stored), mask)
        assert row["mask_bytes"] == len(stored)
        inside = mask != 7
        assert agrees(image[inside][None], mask[inside][None]) > 0.98
        assert {*np.unique(mask)} == {*np.unique(ids(40 + at, 70 - at, at)), 7}
    elements = [*ImageDataset(folder, split="train", streams=1, batch_size=8, output="dict")]
    assert [one["mask"].shape for one in elements] == [(8, 64, 64)] * 3
    dataset = load(folder, split="train", streams=1, batch_size=8, output="dict")
    assert dataset.element_spec["mask"] == tf.TensorSpec((8, 64, 64), tf.int32)
    for one, other in zip(dataset, elements, strict=True):
        np.testing.assert_array_equal(one["image"], other["image"])
        np.testing.assert_array_equal(one["mask"], other["mask"])
    (first,) = load(folder, split="train", streams=1, output="dict").take(1)
    assert (first["mask"].shape, MASK in first) == ((64, 64), False)
    padded = [
        *load(folder, split="train", streams=1, batch_size=20, output="dict", remainder="pad")
    ]
    assert padded[1]["mask"].shape == (20, 64, 64)
    assert not np.any(padded[1]["mask"][4:])
    assert [image.shape for image, _ in load(folder, split="train", batch_size=24)] == [
        (24, 64, 64, 3)
    ]

    def mirrored(image: np.ndarray, features: dict[str, Any]) -> tuple[np.ndarray, dict[str, Any]]:
        return image[:, ::-1], {**features, "mask": features["mask"][:, ::-1]}

    for dataset in (Records, ImageDataset):
        found = [*dataset(folder, split="train", output="dict", transform=mirrored)]
        plain = [*dataset(folder, split="train", output="dict")]
        np.testing.assert_array_equal(found[3]["mask"], plain[3]["mask"][:, ::-1])


@pytest.mark.parametrize("crop", few_at_once([None, "center", "random"], "random"))
def test_crops_move_masks_with_their_images(folder: Path, crop: str | None) -> None:
    dataset = load(
        folder,
        split="train",
        streams=1,
        batch_size=4,
        output="dict",
        crop=crop,
        image_size=(50, 40),
    )
    for one in dataset:
        for image, mask in zip(one["image"].numpy(), one["mask"].numpy(), strict=True):
            inside = mask != 7
            assert agrees(image[inside][None], mask[inside][None]) > 0.95


@pytest.mark.slow
def test_images_of_different_sizes_and_deep_masks(tmp_path: Path) -> None:
    table = write_table(tmp_path, 6)
    for at in range(6):
        mask = ids(40 + at, 70 - at, at).astype(np.uint16) * 1000
        (tmp_path / "masks" / f"{at:02d}.png").write_bytes(png(mask))
    convert(
        table, tmp_path / "d", resize="none", image_size=(224, 224), feature_columns={"of": "mask"}
    )
    expected = {
        f"{at:02d}.png": ids(40 + at, 70 - at, at).astype(np.int32) * 1000 for at in range(6)
    }
    for one in load(tmp_path / "d", split="train", output="dict"):
        np.testing.assert_array_equal(one["mask"], expected[one[FILENAME].numpy().decode()])
    (batch,) = load(
        tmp_path / "d", split="train", streams=1, batch_size=6, output="dict", sizes="padded"
    )
    assert batch["mask"].shape == (6, 45, 70)


def test_fillers_of_images_of_different_sizes_have_a_mask_of_their_size(tmp_path: Path) -> None:
    def shrink(image: np.ndarray, features: dict[str, Any]) -> tuple[np.ndarray, dict[str, Any]]:
        assert features["mask"].shape == image.shape[:2]
        return image[:1, :1], {**features, "mask": features["mask"][:1, :1]}

    table = write_table(tmp_path, 6)
    convert(table, tmp_path / "d", resize="none", image_size=(224, 224))
    elements = ImageDataset(
        tmp_path / "d",
        split="train",
        batch_size=4,
        remainder="pad",
        output="dict",
        transform=shrink,
    )
    (_, last) = elements
    assert last["image"].shape == (4, 1, 1, 3)
    assert [mask.shape for mask in last["mask"]] == [(1, 1)] * 4
    assert last["weight"].tolist() == [1, 1, 0, 0]


def test_missing_and_wrong_masks_are_rejects(tmp_path: Path) -> None:
    rows = [json.loads(line) for line in write_table(tmp_path, 6).read_text().splitlines()]
    rows[0]["of"], rows[1]["of"] = None, "masks/none.png"
    rows[2]["of"], rows[3]["of"] = "03.png", "masks/02.png"
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    convert(tmp_path / "t.jsonl", tmp_path / "d", max_rejects=4)
    found = [
        json.loads(line) for line in (tmp_path / "d" / "rejects.jsonl").read_text().splitlines()
    ]
    assert [(one["key"], one["reason"]) for one in found] == [
        ("00.png", "bad-value"),
        ("01.png", "not-found"),
        ("02.png", "bad-value"),
        ("03.png", "bad-value"),
    ]
    assert found[1]["detail"].startswith("its mask masks/none.png: No such file")
    assert len(Records(tmp_path / "d", split="train")) == 2


@pytest.mark.parametrize(
    ("source", "masks"),
    [
        ("", "masks/{stem}.png[7]"),  # beside the images, below the folder of both
        pytest.param("photos", "../masks/{path}.png[7]", marks=pytest.mark.slow),
        ("photos", "GS/masks/{path}.png[7]"),
        pytest.param("GS/photos", "../masks/{stem}.png[7]", marks=pytest.mark.slow),
    ],
)
def test_masks_named_by_a_pattern_equal_those_of_a_table(
    source: str, masks: str, fake: FakeGcs, tmp_path: Path
) -> None:
    (tmp_path / "photos").mkdir()
    write_table(tmp_path, 9)
    for path in tmp_path.glob("*.png"):
        path.rename(tmp_path / "photos" / path.name)
    place = str(tmp_path)
    if "GS" in source + masks:
        place = "gs://b/data"
        for path in tmp_path.rglob("*.png"):
            fake.put(f"data/{path.relative_to(tmp_path)}", path.read_bytes())
    masks = masks.replace("GS", place)
    options = {"encoding": "png", "resize": "pad", "image_size": 64, "layout": "*", "name": "d"}
    given = {"input": f"{place}/{source.removeprefix('GS/')}", "pair": [f"mask={masks}"], **options}
    done = beam_tfr.convert(output=f"{place}/out", **given, progress=False)
    assert done.counts["written"] == 9
    assert beam_tfr.verify(f"{place}/out", progress=False).ok
    rows = [{"path": f"photos/{at:02d}.png", "m": f"masks/{at:02d}.png"} for at in range(9)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    del options["layout"]
    columns = {"uri_column": "path", "feature_columns": {"m": "mask[7]"}}
    table = {"table": tmp_path / "rows.jsonl", "image_root": tmp_path, **columns}
    beam_tfr.convert(output=tmp_path / "table", **table, **options, progress=False)
    ours, theirs = (
        {one["image/filename"][-6:]: one for one in Records(of, split="train", output="dict")}
        for of in (f"{place}/out", tmp_path / "table")
    )
    assert len(ours) == 9
    for key, one in ours.items():
        np.testing.assert_array_equal(one["mask"], theirs[key]["mask"])
        assert 7 in one["mask"]


def test_masks_that_a_pattern_does_not_find(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_table(tmp_path, 4)
    (tmp_path / "masks" / "02.png").unlink()
    given: dict[str, Any] = {
        "input": tmp_path,
        "pair": "mask=masks/{stem}.png",
        "layout": "*",
        "image_size": 64,
    }
    plan = beam_tfr.plan(**given, progress=False)
    assert {reason: int(number) for reason, number in plan.rejects.items()} == {"not-found": 1}
    done = beam_tfr.convert(output=tmp_path / "d", **given, max_rejects=1, progress=False)
    assert done.counts["rejected"] == {"not-found": 1}
    assert done.rejects[0].detail.startswith("its mask masks/02.png: No such file")
    (shard,) = (tmp_path / "d").glob("d-train-*.tfrecord.gz")
    before = shard.read_bytes()
    assert beam_tfr.verify(tmp_path / "d", sources=tmp_path, progress=False).ok
    shard.write_bytes(before[:-9])
    (tmp_path / "masks" / "00.png").write_bytes(png(np.ones((40, 70), np.uint8)))
    assert cli.main(["repair", str(tmp_path / "d"), "--input", str(tmp_path), "--quiet"]) == 1
    told = (
        "`beam-tfr verify` with --sources lists which images changed, but compares no masks or "
        "pairs: restore them"
    )
    assert told in capsys.readouterr().err
    (tmp_path / "masks" / "00.png").write_bytes(png(ids(40, 70, 0)))
    assert cli.main(["repair", str(tmp_path / "d"), "--input", str(tmp_path), "--quiet"]) == 0
    assert shard.read_bytes() == before
    (tmp_path / "masks" / "02.png").write_bytes(png(ids(42, 68, 2)))
    done = beam_tfr.update(tmp_path / "d", input=tmp_path, progress=False)
    assert done.counts["written"] == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pair": "mask={stem}.png", "encoding": "bytes"}, "has no effect with `encoding=bytes`"),
        (
            {"pair": "mask={stem}.png", "input": (), "table": "t.jsonl", "uri_column": "path"},
            "specify its columns of such images",
        ),
    ],
)
def test_wrong_patterns(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        beam_tfr.convert(
            **{"input": tmp_path, "output": tmp_path / "d", "progress": False, **options}
        )


def test_updates_read_masks_again_or_copy_them(tmp_path: Path) -> None:
    table = write_table(tmp_path, 8)
    convert(table, tmp_path / "d")
    (tmp_path / "masks" / "03.png").write_bytes(png(np.ones((43, 67), np.uint8)))
    beam_tfr.update(str(tmp_path / "d"), table=str(table))
    convert(table, tmp_path / "fresh" / "d")
    assert beam_tfr.verify(str(tmp_path / "d")).ok
    assert (tmp_path / "d" / "manifest.json").read_text() == (
        tmp_path / "fresh" / "d" / "manifest.json"
    ).read_text()
    convert(table, tmp_path / "e" / "d", num_shards=3)
    beam_tfr.update(str(tmp_path / "d"), num_shards=3)
    assert (tmp_path / "d" / "manifest.json").read_text() == (
        tmp_path / "e" / "d" / "manifest.json"
    ).read_text()


def test_statistics_say_which_values_masks_have(tmp_path: Path) -> None:
    for folder in ("images", "masks"):
        (tmp_path / folder).mkdir()
    large = (np.arange(1200).reshape(30, 40) * 200 // 1199).astype(np.uint8)  # smoothed by somebody
    masks = [png((ids(30, 40, at) > 0).astype(np.uint8) * 255) for at in range(5)] + [png(large)]
    for at, mask in enumerate(masks):
        (tmp_path / "images" / f"{at}.png").write_bytes(png(COLORS[ids(30, 40, at)]))
        (tmp_path / "masks" / f"{at}.png").write_bytes(mask)
    (tmp_path / "masks" / "4.png").unlink()
    given: dict[str, Any] = {
        "input": tmp_path / "images",
        "layout": "*",
        "pair": "mask=../masks/{stem}.png[254,optional]",
        "image_size": 40,
    }
    plan = beam_tfr.plan(**given, progress=False)
    done = beam_tfr.convert(output=tmp_path / "d", **given, num_shards=2, progress=False)
    assert done.counts["written"] == 6
    assert done.counts["adjusted"]["pair-missing"] == 1
    stored = {
        record[FILENAME].decode(): record["mask"]
        for record in Records(tmp_path / "d", split="train", output="dict")
    }
    assert (stored["4.png"] == 254).all()
    masks = done.manifest.statistics["masks"]
    values, numbers = np.unique(np.stack([*stored.values()]), return_counts=True)
    assert {value: one["pixels"] for value, one in masks["values"].items()} == {
        str(value): number for value, number in zip(values.tolist(), numbers.tolist(), strict=True)
    }
    for value in ("0", "100", "254", "255"):
        number = sum(int(value) in mask for mask in stored.values())
        assert masks["values"][value]["images"] == number
    assert masks["per_image"] == {"median": 3, "max": 202, "example": "5.png"}
    assert plan.sample.masks == masks
    for text in ("\n".join(plan.lines()), "\n".join(done.lines())):
        assert "the mask of 5.png has 202 values, but most masks have 3" in text
    assert beam_tfr.verify(tmp_path / "d", progress=False).ok
    again = beam_tfr.update(tmp_path / "d", num_shards=1, progress=False)
    assert again.manifest.statistics["masks"] == masks


@pytest.mark.parametrize("cell", [None, "", "masks/none.png"])
def test_an_image_without_a_mask_may_stay(cell: str | None, tmp_path: Path) -> None:
    table = write_table(tmp_path, 4)
    rows = [json.loads(line) for line in table.read_text().splitlines()]
    rows[2]["of"] = cell
    table.write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = convert(table, tmp_path / "d", feature_columns="of:mask[7,optional],path:bytes")
    assert (done.counts["written"], done.counts["adjusted"]["pair-missing"]) == (4, 1)
    masks = sorted_masks(tmp_path / "d")
    assert [bool((mask == 7).all()) for mask in masks] == [False, False, True, False]
    assert beam_tfr.verify(tmp_path / "d", progress=False).ok


@pytest.mark.parametrize(
    ("brackets", "resize", "notes"),
    [("", None, 2), ("[255]", None, 1), ("", "pad", 1), ("[255]", "pad", 0), ("", "crop", 0)],
)
def test_what_padding_means_is_told(
    brackets: str, resize: str | None, notes: int, tmp_path: Path
) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "masks").mkdir()
    (tmp_path / "images" / "1.png").write_bytes(png(COLORS[ids(30, 40)]))
    (tmp_path / "masks" / "1.png").write_bytes(png(ids(30, 40)))
    pair = f"mask=../masks/{{stem}}.png{brackets}"
    images = tmp_path / "images"
    plan = beam_tfr.plan(input=images, layout="*", pair=pair, resize=resize, progress=False)
    assert len([warning for warning in plan.warnings if "padded" in warning]) == notes


def test_an_image_without_a_mask_on_gs_may_stay(fake: FakeGcs, tmp_path: Path) -> None:
    for at in range(3):
        fake.put(f"data/images/{at}.png", png(COLORS[ids(30, 40, at)]))
        if at:
            fake.put(f"data/masks/{at}.png", png(ids(15, 20, at)))
    done = beam_tfr.convert(
        input="gs://b/data/images",
        pair="mask=../masks/{stem}.png[9,scale,optional]",
        layout="*",
        output=tmp_path / "d",
        progress=False,
    )
    adjusted = done.counts["adjusted"]
    assert (adjusted["pair-missing"], adjusted["pair-scaled"]) == (1, 2)
    assert sorted(bool((mask == 9).all()) for mask in sorted_masks(tmp_path / "d")) == [
        False,
        False,
        True,
    ]


def test_masks_in_tars(tmp_path: Path) -> None:
    """As WebDataset has them: the mask of a.png is a.seg.png."""
    import tarfile

    table = write_table(tmp_path, 4)
    with tarfile.open(tmp_path / "t.tar", "w") as file:
        for at in range(4):
            file.add(tmp_path / f"{at:02d}.png", f"{at:02d}.png")
            file.add(tmp_path / "masks" / f"{at:02d}.png", f"{at:02d}.seg.png")
    beam_tfr.convert(
        table=str(tmp_path / "t.tar"),
        uri_column="png",
        feature_columns={"seg.png": "mask[7]"},
        output=str(tmp_path / "tar"),
    )
    convert(
        table,
        tmp_path / "d",
        encoding="jpeg",
        resize="pad",
        image_size=224,
        label_column="",
        num_shards=None,
    )
    for one, other in zip(*(sorted_masks(tmp_path / name) for name in ("tar", "d")), strict=True):
        np.testing.assert_array_equal(one, other)


def test_masks_in_tfrecords(table: Path, tmp_path: Path) -> None:
    """Those of another dataset, without its photos."""
    sized = {"resize": "none", "image_size": (224, 224)}
    convert(table, tmp_path / "a", compression="none", feature_columns={"of": "mask"}, **sized)
    columns = {"label_column": "image/class/text", "feature_columns": {MASK: "mask"}}
    shutil.copytree(
        tmp_path / "a", tmp_path / "shards", ignore=shutil.ignore_patterns("manifest.json")
    )
    files = str(tmp_path / "shards" / "*.tfrecord")
    options = {
        "table": files,
        "uri_column": "image/encoded",
        "encoding": "png",
        "resize": "none",
        **columns,
    }
    beam_tfr.convert(output=str(tmp_path / "b"), **options)
    found = [
        sorted(
            (one["image"].tobytes(), one["mask"].tobytes())
            for one in Records(of, split="train", output="dict")
        )
        for of in (tmp_path / "a", tmp_path / "b")
    ]
    assert len(found[0]) == 24
    assert found[0] == found[1]


def sorted_masks(folder: Path) -> list[np.ndarray]:
    found = Records(folder, split="train", output="dict")
    return [one["mask"] for one in sorted(found, key=lambda one: one[FILENAME])]


def test_wrong_calls(table: Path, folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="only one column can"):
        convert(table, tmp_path / "d", feature_columns={"of": "mask", "kind": "mask"})
    with pytest.raises(UsageError, match=r"masks\[300\]|is not a type|0 to 255"):
        convert(table, tmp_path / "d", feature_columns={"of": "mask[300]"})
    with pytest.raises(UsageError, match="which need images"):
        beam_tfr.convert(
            table=str(table), output=str(tmp_path / "d"), feature_columns={"of": "mask"}
        )


@pytest.mark.slow
def test_the_example_learns(table: Path, tmp_path: Path) -> None:
    convert(table, tmp_path / "d", resize="stretch")
    train = runpy.run_path(str(Path(__file__).parents[1] / "examples" / "segment_keras.py"))[
        "train"
    ]
    losses = train(str(tmp_path / "d"), 4, epochs=3, steps=10)
    assert losses[2] < 0.5 * losses[0]


def test_contact_sheets_tint_masks(folder: Path) -> None:
    inspected = inspect(str(folder), records=4)
    with_masks = np.asarray(contact_sheet(inspected.records))
    for record in inspected.records:
        record.values.pop(MASK)
    bare = np.asarray(contact_sheet(inspected.records))
    assert with_masks.shape != bare.shape


@pytest.mark.parametrize(
    ("others", "median", "smoothed"),
    [
        (range(6, 255, 6), 12, True),  # between 0 and 255
        (range(1, 254), 20, True),
        (range(1, 14), 12, False),  # small objects of many classes
        (range(6, 255, 6), 2, False),  # rare classes with odd numbers
    ],
)
def test_masks_that_are_all_smoothed_are_told(others: range, median: int, smoothed: bool) -> None:
    pixels = {0: 10**6, 255: 10**5, **dict.fromkeys(others, 50)}
    counts = Counts(
        mask_pixels=pixels,
        mask_images=dict.fromkeys(pixels, 9),
        mask_numbers={median: 9},
        mask_examples={median: "a.png"},
    )
    sentences = "\n".join(describe_masks(mask_statistics(counts)))
    assert ("smoothed" in sentences) == smoothed


BLACK = (0, 0, 0)
RED = (255, 0, 0)
GREEN = (0, 255, 0)
Colors = tuple[tuple[int, ...], ...]


def palette_image(colors: Colors, used: Sequence[int] = ()) -> PIL.Image.Image:
    """A mask of a palette; it uses all indices, or some."""
    mask = PIL.Image.new("P", (9, 9), used[0] if used else 0)
    mask.putpalette([sample for color in colors for sample in color])
    for number, index in enumerate(used or range(len(colors))):
        mask.putpixel((number, 0), index)
    return mask


def conflict_of(*masks: PIL.Image.Image) -> str:
    named = [Palette.of_image(mask)._replace(name=f"{n}.png") for n, mask in enumerate(masks)]
    return describe_palettes(named)


@pytest.mark.parametrize(
    ("masks", "agree"),
    [
        ([((BLACK, RED), ()), ((BLACK, RED, GREEN), ())], True),  # one is the other's beginning
        ([((BLACK, RED, GREEN), ()), ((BLACK, GREEN, RED), ())], False),
        ([((BLACK, RED), ()), ((BLACK, GREEN), ())], False),
        ([((BLACK, RED, BLACK), (0, 1)), ((BLACK, RED, BLACK), (1, 2))], True),  # repeated color
        ([((BLACK, RED, BLACK), (0, 1)), ((BLACK, BLACK, GREEN), (0, 2))], True),  # unused ones
        # The third conflicts with the second only, which uses what the first does not.
        (
            [((BLACK, RED), ()), ((BLACK, RED, GREEN), (0, 2)), ((BLACK, RED, RED), (0, 2))],
            False,
        ),
    ],
)
def test_which_palettes_conflict(masks: list[tuple[Colors, Sequence[int]]], agree: bool) -> None:
    text = conflict_of(*(palette_image(*mask) for mask in masks))
    assert bool(text) != agree
    assert agree or f"{len(masks) - 1}.png" in text


def test_the_palettes_of_all_masks_are_compared(tmp_path: Path) -> None:
    def write_rows(*colors: Colors) -> None:
        rows = []
        for number, palette in enumerate(colors):
            row = {"image": f"{number}.jpg", "of": f"{number}.png"}
            rows.append(row)
            PIL.Image.new("RGB", (9, 9), (number, 0, 9)).save(tmp_path / row["image"])
            palette_image(palette).save(tmp_path / row["of"])
        (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def notes_of(shown: Any) -> list[str]:
        return [note for note in shown if "[#ff0000=1]" in note]

    given: dict[str, Any] = {
        "table": tmp_path / "t.jsonl",
        "uri_column": "image",
        "output": tmp_path / "d",
        "feature_columns": {"of": "mask"},
        "progress": False,
    }
    write_rows(*[(BLACK, RED)] * 4)
    assert not notes_of(beam_tfr.convert(**given, num_shards=2).notes)
    write_rows(*[(BLACK, RED)] * 4, (BLACK, GREEN))
    (note,) = notes_of(beam_tfr.plan(**{**given, "output": tmp_path / "e"}).warnings)
    assert "4.jpg" in note
    # Also in an update, which copies the others.
    assert notes_of(beam_tfr.update(tmp_path / "d", table=given["table"], progress=False).notes)
    given["feature_columns"] = {"of": "mask[#000000=0,#ff0000=1,#00ff00=2]"}
    assert not notes_of(beam_tfr.convert(**{**given, "output": tmp_path / "f"}).notes)


# Large masks, in blocks


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_blocks_of_a_mask_are_read_and_counted_as_the_whole(
    monkeypatch: pytest.MonkeyPatch, dtype: Any
) -> None:
    values = np.random.default_rng(1).integers(0, 300, (13, 7)).astype(dtype)
    buffer = io.BytesIO()
    PIL.Image.fromarray(values).save(buffer, "PNG")
    stored = {MASK: [buffer.getvalue()], HEIGHT: [13], WIDTH: [7], FILENAME: [b"a"]}
    shown: Any = types.SimpleNamespace(
        shown_size=(7, 13), hold_memory=lambda _: contextlib.nullcontext()
    )
    dtypes = {"L": np.uint8, "I;16": np.uint16}
    monkeypatch.setattr(handling, "_BLOCK_PIXELS", 20)
    file = Handling().read_pixels(buffer.getvalue(), shown, dtypes)
    np.testing.assert_array_equal(file.values, values)
    monkeypatch.setattr(mask_counts, "_BLOCK_PIXELS", 5)
    numbers = np.bincount(np.minimum(values.astype(int), mask_counts.ABOVE).ravel())
    expected = {value: int(number) for value, number in enumerate(numbers) if number}
    assert mask_counts.count_masks(stored).mask_pixels == expected
