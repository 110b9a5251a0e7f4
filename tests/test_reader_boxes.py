"""Boxes that the readers return, against markers painted where the boxes are."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from typing import Any

import keras
import numpy as np
import PIL.Image
import pytest
import tensorflow as tf
from PIL import ImageColor

import beam_tfr
from beam_tfr import Records
from beam_tfr.features.box_formats import BOX_FORMATS
from beam_tfr.features.objects import MIN_VISIBLE, crop_boxes
from beam_tfr.inspection import inspect
from beam_tfr.inspection.pictures import BOX_COLORS
from beam_tfr.inspection.sheets import contact_sheet
from beam_tfr.reader import load
from beam_tfr.records.examples import serialize
from beam_tfr.records.tfrecords import frame
from beam_tfr.schema.errors import DataError, UsageError
from beam_tfr.schema.feature_names import OBJECT_LABEL, OBJECT_TEXT, SIDES
from beam_tfr.torch import ImageDataset
from tests.box_fixtures import NAMES, Images, some_images, write_boxes
from tests.reader_fixtures import edit_records, write_dataset


@pytest.fixture(scope="module")
def images() -> Images:
    return some_images()


@pytest.fixture(scope="module")
def folder(images: Images, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_boxes(tmp_path_factory.mktemp("boxes"), images)


def painted(image: np.ndarray, label: int) -> np.ndarray:
    """Left, top, right, bottom of what is at least half as bright as the paint, in pixels."""
    rows, columns = np.nonzero(image[:, :, label] >= 128)
    return np.array([columns.min(), rows.min(), columns.max() + 1, rows.max() + 1])


@pytest.mark.parametrize("form", BOX_FORMATS)
def test_formats_are_those_of_keras(images: Images, folder: Path, form: str) -> None:
    options: dict[str, Any] = {"split": "train", "output": "dict", "boxes": form}
    for found, other in zip(
        ImageDataset(folder, streams=1, **options), Records(folder, **options), strict=True
    ):
        (height, width), placed = images[found["image/source_id"].decode()]
        corners = np.reshape([*placed.values()], (-1, 4)).astype(np.float32)
        expected = keras.utils.bounding_boxes.convert_format(corners, "xyxy", form, height, width)
        assert (found["boxes"].dtype, found["boxes"].shape) == (np.float32, (len(placed), 4))
        np.testing.assert_allclose(found["boxes"], expected, rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(found["boxes"], other["boxes"])
        assert (found["classes"].dtype, found["classes"].tolist()) == (np.int64, [*placed])
        assert not found.keys() & {*SIDES, OBJECT_LABEL}
        assert found["image/object/is_crowd"].tolist() == [label % 2 for label in placed]


def test_both_readers_give_the_same(folder: Path) -> None:
    options: dict[str, Any] = {
        "split": "train",
        "output": "dict",
        "boxes": "center_xywh",
        "shuffle": True,
        "seed": 3,
    }
    for found, other in zip(
        load(folder, **options).as_numpy_iterator(), ImageDataset(folder, **options), strict=True
    ):
        assert found.keys() == other.keys()
        for name, value in found.items():
            np.testing.assert_array_equal(value, other[name])


@pytest.mark.slow
def test_boxes_follow_the_pixels_of_random_crops(images: Images, folder: Path) -> None:
    """What is painted in a crop lies in the box.

    A box is dropped only if little of it is visible.
    """
    options: dict[str, Any] = {
        "split": "train",
        "crop": "random",
        "image_size": (96, 80),
        "repeat": 25,
        "seed": 3,
    }
    kept = dropped = 0
    for example in load(
        folder, boxes="xyxy", output="dict", shuffle=True, **options
    ).as_numpy_iterator():
        labels = example["classes"].tolist()
        for label, (left, top, right, bottom) in zip(labels, example["boxes"], strict=True):
            assert 0 <= left < right <= 80
            assert 0 <= top < bottom <= 96
            if min(right - left, bottom - top) >= 4:  # else it may be paler than half of the paint
                edges = np.abs(painted(example["image"], label) - [left, top, right, bottom])
                assert edges.max() <= 1.01
                kept += 1
        assert example[OBJECT_TEXT].tolist() == [NAMES[label].encode() for label in labels]
        assert example["image/object/is_crowd"].tolist() == [label % 2 for label in labels]
        _, placed = images[example["image/source_id"].decode()]
        assert labels == [label for label in placed if label in labels]
        dropped += len(placed) - len(labels)
    assert kept > 400
    assert dropped > 100


@pytest.mark.parametrize(
    ("view", "expected"),
    [
        ((0.0, 0.0, 1.0, 1.0), [0.2, 0.4, 0.6, 0.8]),
        ((1.0, 0.0, 0.0, 1.0), [0.4, 0.4, 0.8, 0.8]),
        ((0.0, 0.5, 0.5, 1.0), [0.4, 0.0, 1.0, 0.6]),
        ((0.5, 0.5, 0.0, 1.0), [0.0, 0.0, 0.6, 0.6]),
        ((0.55, 0.75, 1.0, 1.0), None),  # a hundredth is visible
        ((0.0, 0.0, 0.3, 0.3), None),
    ],
)
def test_a_box_in_a_crop(view: tuple[float, ...], expected: list[float] | None) -> None:
    ((found,), (visible,)) = crop_boxes(tf.constant([[0.2, 0.4, 0.6, 0.8]]), tf.constant([view]))
    assert bool(visible) == (expected is not None)
    if expected:
        np.testing.assert_allclose(found, expected, atol=1e-6)


def test_what_is_dropped_is_hardly_visible() -> None:
    random = np.random.default_rng(1)
    # left, top, right, bottom
    corners = np.sort(random.random((2000, 2, 2)), axis=1).reshape(-1, 4).astype(np.float32)
    begin = random.random((2000, 2)) * 0.7
    end = begin + random.uniform(0.1, 1 - begin)
    views = np.concatenate([begin, end], 1)
    views[::2] = views[::2, [2, 1, 0, 3]]  # mirrored
    _, kept = crop_boxes(tf.constant(corners), tf.constant(views, tf.float32))
    overlap = np.minimum(corners[:, 2:], end) - np.maximum(corners[:, :2], begin)
    share = overlap.clip(0).prod(1) / (corners[:, 2:] - corners[:, :2]).prod(1)
    clear = np.abs(share - MIN_VISIBLE) > 1e-4
    np.testing.assert_array_equal(kept.numpy()[clear], (share >= MIN_VISIBLE)[clear])
    assert 200 < kept.numpy().sum() < 1800


@pytest.mark.slow
def test_the_first_are_kept(images: Images, folder: Path) -> None:
    options: dict[str, Any] = {
        "split": "train",
        "batch_size": 7,
        "image_size": 64,
        "remainder": "pad",
        "streams": 1,
    }
    dataset = load(folder, boxes="xyxy", max_boxes=2, **options)
    image, objects, _ = dataset.element_spec
    assert image.shape == (7, 64, 64, 3)
    assert (objects["boxes"].shape, objects["classes"].shape) == ((7, 2, 4), (7, 2))
    names = [
        name
        for batch in load(folder, output="dict", **options)
        for name in batch["image/source_id"].numpy()
    ]
    rows = [
        row
        for _, found, _ in dataset
        for row in zip(found["boxes"].numpy(), found["classes"].numpy(), strict=True)
    ]
    assert len(names) == len(rows) == 28
    for name, (found, classes) in zip(names, rows, strict=True):
        (height, width), placed = images[name.decode()] if name else ((1, 1), {})
        kept = [*placed][:2]
        assert classes.tolist() == [*kept, -1, -1][:2]
        expected = [np.array(placed[label]) * 64 / ((width, height) * 2) for label in kept]
        np.testing.assert_allclose(
            found, np.reshape([*expected, [0] * 4, [0] * 4][:2], (2, 4)), atol=1e-4
        )
    (single, *_) = load(folder, split="train", boxes="xyxy", max_boxes=2, output="dict")
    assert (single["boxes"].shape, single["image/object/is_crowd"].shape) == ((2, 4), (2,))


@pytest.mark.slow
def test_padding_has_no_boxes(folder: Path) -> None:
    options: dict[str, Any] = {
        "batch_size": 20,
        "remainder": "pad",
        "image_size": 32,
        "crop": "random",
    }
    for form in ("xyxy", "rel_xyxy"):
        *_, (_, found, weights) = load(folder, split="train", boxes=form, **options)
        assert weights.numpy().tolist() == [1] * 4 + [0] * 16
        assert found["boxes"].row_lengths().numpy()[4:].tolist() == [0] * 16


@pytest.mark.slow
def test_images_of_different_sizes_in_a_batch(images: Images, folder: Path) -> None:
    options: dict[str, Any] = {"split": "train", "batch_size": 8, "output": "dict"}
    for sizes in ("padded", "ragged"):
        both = (load(folder, boxes=form, sizes=sizes, **options) for form in ("xyxy", "rel_xyxy"))
        for pixels, shares in zip(*both, strict=True):
            for index, name in enumerate(pixels["image/source_id"].numpy()):
                (height, width), placed = images[name.decode()]
                expected = np.reshape([*placed.values()], (-1, 4))
                np.testing.assert_allclose(pixels["boxes"][index], expected, atol=1e-4)
                if sizes == "padded":  # shares of the image that is returned
                    height, width = pixels["image"].shape[1:3]
                np.testing.assert_allclose(
                    shares["boxes"][index], expected / ((width, height) * 2), atol=1e-5
                )


def test_encoded_images(images: Images, folder: Path) -> None:
    dense = load(folder, split="train", boxes="xyxy", output="encoded", streams=1)
    for (data, found), (other, same) in zip(
        dense.as_numpy_iterator(),
        ImageDataset(folder, split="train", boxes="xyxy", output="encoded", streams=1),
        strict=True,
    ):
        assert data == other
        np.testing.assert_array_equal(found["boxes"], same["boxes"])
        pixels = np.asarray(PIL.Image.open(io.BytesIO(data)))
        for label, box in zip(found["classes"], found["boxes"], strict=True):
            np.testing.assert_allclose(painted(pixels, label), box, atol=1e-4)


def test_batches_for_pytorch_are_lists(folder: Path) -> None:
    singles = [*ImageDataset(folder, split="train", boxes="xywh", streams=1)]
    batches = [
        *ImageDataset(
            folder, split="train", boxes="xywh", streams=1, batch_size=10, remainder="pad"
        )
    ]
    assert [(len(pixels), len(objects), weights.sum()) for pixels, objects, weights in batches] == [
        (10, 10, 10),
        (10, 10, 10),
        (10, 10, 4),
    ]
    found = [pair for pixels, objects, _ in batches for pair in zip(pixels, objects, strict=True)]
    for (image, target), (same, other) in zip(singles, found, strict=False):
        np.testing.assert_array_equal(image, same)
        assert target.keys() == other.keys() == {"boxes", "classes"}
        np.testing.assert_array_equal(target["boxes"], other["boxes"])
    assert found[-1][1]["boxes"].shape == (0, 4)
    (batch, *_) = ImageDataset(folder, split="train", boxes="xywh", batch_size=10, output="dict")
    assert {name: type(batch[name]) for name in ("image", "boxes", "classes")} == dict.fromkeys(
        ("image", "boxes", "classes"), list
    )


def test_a_transform_gets_image_and_objects(folder: Path) -> None:
    def cut(image: np.ndarray, objects: dict[str, Any]) -> tuple[np.ndarray, dict[str, Any]]:
        return image[:, ::-1], {"boxes": objects["boxes"] + 1, "labels": objects["classes"] + 1}

    for dataset in (
        ImageDataset(folder, split="train", boxes="xyxy", transform=cut, streams=1),
        Records(folder, split="train", boxes="xyxy", transform=cut),
    ):
        for (image, objects), (same, other) in zip(
            dataset, Records(folder, split="train", boxes="xyxy"), strict=True
        ):
            np.testing.assert_array_equal(image[:, ::-1], same)
            np.testing.assert_array_equal(objects["boxes"], other["boxes"] + 1)
            np.testing.assert_array_equal(objects["labels"], other["classes"] + 1)


def test_a_transform_that_forgets_the_objects(folder: Path) -> None:
    for read in (ImageDataset, Records):
        with pytest.raises(
            UsageError, match=r"^`transform=ndarray`: must return an image and a dict"
        ):
            [*read(folder, split="train", boxes="xyxy", transform=lambda image, objects: image)]


WRONG = [
    (
        {"boxes": "coco"},
        '`boxes=\'coco\'`: must be None, "xyxy", "yxyx", "xywh", "center_xywh", "rel_xyxy", ',
    ),
    ({"boxes": "xyxy", "output": "image"}, '`boxes=xyxy`: has no effect with `output="image"`'),
    (
        {"boxes": "xyxy", "one_hot": True},
        "`boxes=xyxy`: returns boxes and classes in place of labels: leave out",
    ),
]


@pytest.mark.parametrize("read", [load, ImageDataset, Records])
@pytest.mark.parametrize(("options", "message"), WRONG, ids=str)
def test_wrong_calls(folder: Path, read: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as error:
        read(folder, split="train", **options)
    assert str(error.value).startswith(message)


def test_wrong_numbers_of_boxes(folder: Path) -> None:
    for value, message in ((3, "has no effect without `boxes=`, such as"), (0, "must be a whole")):
        with pytest.raises(UsageError, match=rf"^`max_boxes={value}`: {message}"):
            load(folder, split="train", max_boxes=value)


@pytest.mark.parametrize("read", [load, ImageDataset, Records])
def test_a_dataset_without_boxes(tmp_path: Path, read: Any) -> None:
    plain = write_dataset(tmp_path / "d", {"train": [2]}, image_size=(2, 2))
    message = rf"^`boxes=xyxy`: {plain} has no boxes: convert its images with a column of boxes"
    with pytest.raises(UsageError, match=message):
        read(plain, split="train", boxes="xyxy")


def test_columns_named_like_boxes_are_only_columns(tmp_path: Path) -> None:
    """Ids of one's own, which need not be classes of the dataset."""
    PIL.Image.new("RGB", (9, 9)).save(tmp_path / "a.png")
    row = {"file": "a.png", OBJECT_LABEL: [17, 90], SIDES[0]: [0.5, 0.25]}
    (tmp_path / "t.jsonl").write_text(json.dumps(row) + "\n")
    columns = {OBJECT_LABEL: "int64[]", SIDES[0]: "float[]"}
    table = str(tmp_path / "t.jsonl")
    beam_tfr.convert(
        table=table,
        output=str(tmp_path / "d"),
        uri_column="file",
        feature_columns=columns,
        resize="none",
    )
    (element,) = load(tmp_path / "d", split="train", output="dict")
    assert element[OBJECT_LABEL].numpy().tolist() == [17, 90]
    with pytest.raises(
        UsageError,
        match=r"boxes=xyxy.*: .* has no boxes: convert its images with a column of boxes",
    ):
        load(tmp_path / "d", split="train", boxes="xyxy")


@pytest.mark.parametrize(
    ("feature", "values", "message"),
    [
        (SIDES[2], [0.5], "feature image/object/bbox/xmax has 1 values instead of 2"),
        (OBJECT_LABEL, [0, 3], "image/object/class/label is 3, but there are 3 classes"),
    ],
)
def test_damaged_objects_are_named(
    folder: Path, tmp_path: Path, feature: str, values: list[Any], message: str
) -> None:
    broken = shutil.copytree(folder, tmp_path / "d")
    edited = list[int]()

    def edit(number: int, example: tf.train.Example) -> None:
        stored = example.features.feature
        if not edited and len(stored[SIDES[0]].float_list.value) == 2:
            edited.append(number)
            kind = stored[feature].float_list if feature in SIDES else stored[feature].int64_list
            kind.value[:] = values

    edit_records(sorted(broken.glob("*.tfrecord.gz"))[0], edit)
    (number,) = edited
    options: dict[str, Any] = {"split": "train", "boxes": "xyxy"}
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match=rf"record {number} \(counted from 0\) cannot be decoded",
    ):
        [*load(broken, batch_size=8, sizes="padded", **options)]
    with pytest.raises(DataError, match=rf"record {number}: {message}"):
        [*ImageDataset(broken, **options)]


def test_objects_are_drawn_with_their_classes(images: Images, folder: Path) -> None:
    found = inspect(folder, records=24)
    assert found.contact_sheet().width == 8 * (224 + 8) + 8
    (record,) = inspect(folder, where={"source_id": "03.png"}).records
    sheet = np.asarray(contact_sheet([record])).astype(int)
    (height, width), placed = images["03.png"]
    scale = 224 / max(height, width)
    begin = 8 + (224 - np.array([width, height]) * scale) / 2
    for label, box in placed.items():
        left, top, right, bottom = (
            np.rint(np.reshape(box, (2, 2)) * scale + begin).astype(int).ravel()
        )
        inside = sheet[top : bottom + 1, left : right + 1]
        drawn = (inside == ImageColor.getrgb(BOX_COLORS[label])).all(axis=2)
        assert drawn.sum() >= 2 * (right - left + bottom - top) - 8
        beside = np.concatenate([sheet[max(top - 12, 0) : top], sheet[bottom + 1 : bottom + 13]])
        named = (beside[:, left + 2 : left + 18] == ImageColor.getrgb(BOX_COLORS[label])).all(
            axis=2
        )
        assert (named.mean(axis=1) > 0.3).sum() >= 5  # its name lies on its color above or below


def test_strange_objects_are_drawn_or_left_out(tmp_path: Path) -> None:
    png = io.BytesIO()
    PIL.Image.new("RGB", (20, 10)).save(png, "PNG")
    strange = [
        (
            [0.0, float("nan"), -1e30, float("inf")],
            [5, -1, 1 << 62, 3],
            [b"a\x1b[0m\n", b"\xff" * 99999, b"", b"c"],
        ),
        ([0.5] * 100_000, [1] * 100_000, [b"many"] * 100_000),
        ([0.5, 0.5], [1], [b"a", b"b"]),
        ([], [], []),
    ]
    records = []
    for sides, labels, texts in strange:
        example: dict[str, Any] = dict.fromkeys(SIDES, ("float", sides))
        example |= {OBJECT_LABEL: ("int64", labels), OBJECT_TEXT: ("bytes", texts)}
        records.append(frame(serialize({**example, "image/encoded": ("bytes", [png.getvalue()])})))
    (tmp_path / "x.tfrecord").write_bytes(b"".join(records))
    assert inspect(tmp_path / "x.tfrecord").contact_sheet().width == 4 * (224 + 8) + 8
