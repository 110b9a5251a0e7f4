"""What an element holds: outputs, dtypes, labels, and sizes at reading."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from beam_tfr.reader import load
from beam_tfr.records import read_records
from beam_tfr.schema import UsageError
from beam_tfr.schema.features import LABEL, TEXT
from tests.converted import converted
from tests.reader_fixtures import add_lists, encode, photo, write_dataset


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photos 0 to 31, as they are."""
    return write_dataset(
        tmp_path_factory.mktemp("data") / "d", {"train": [20, 12]}, encoding="png", image_size=(30, 40)
    )


def elements_of(folder: Path, **options: Any) -> list[Any]:
    return list(load(folder, **{"split": "train", "batch_size": 16, **options}).as_numpy_iterator())


def test_outputs(dataset: Path) -> None:
    pairs = elements_of(dataset)
    images = elements_of(dataset, output="image")
    encoded = elements_of(dataset, output="encoded")
    dicts = elements_of(dataset, output="dict")
    records = elements_of(dataset, output="raw_record")
    assert {bytes(record) for batch in records for record in batch} == {
        record for shard in dataset.glob("*.tfrecord.gz") for record in read_records(str(shard))
    }
    for (image, label), alone, (data, same), features in zip(pairs, images, encoded, dicts, strict=True):
        np.testing.assert_array_equal(image, alone)
        np.testing.assert_array_equal(image, features["image"])
        np.testing.assert_array_equal(label, same)
        np.testing.assert_array_equal(label, features["image/class/label"])
        assert features["image/filename"].tolist() == [f"{number}.jpg".encode() for number in label]
        assert data.tolist() == [encode(photo(int(number), 30, 40), "png") for number in label]
    names = {"image", "image/format", "image/height", "image/width", "image/channels", "image/colorspace"}
    names |= {"image/filename", "image/key/sha256", "image/source/height", "image/source/width", "image/source/format"}
    assert dicts[0].keys() == names | {"image/class/label", "image/class/text"}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", tf.float32])
def test_dtypes(dataset: Path, dtype: Any) -> None:
    for (image, _), (scaled, _) in zip(elements_of(dataset), elements_of(dataset, dtype=dtype), strict=True):
        assert scaled.dtype == tf.as_dtype(dtype).as_numpy_dtype
        np.testing.assert_array_equal(scaled, (image.astype(np.float32) / np.float32(255)).astype(scaled.dtype))


def test_one_hot(dataset: Path) -> None:
    for (_, label), (_, hot) in zip(elements_of(dataset), elements_of(dataset, one_hot=True), strict=True):
        np.testing.assert_array_equal(hot, np.eye(32, dtype=np.float32)[label])


LISTS = {
    "boxes": lambda number: [number + 0.5] * (number % 4 + 1),
    "ids": lambda number: [*range(number % 3), number],
    "tags": lambda number: [b"%d" % number] * (1 + number % 2),
}


def classes_of(number: int) -> list[int]:
    return [] if number % 5 == 4 else [number % 7, (number + 3) % 20][: 1 + number % 2]


@pytest.fixture(scope="module")
def listed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photos 0 to 19 with lists as features, and several labels each, or none."""
    folder = write_dataset(tmp_path_factory.mktemp("data") / "d", {"train": [13, 7]}, image_size=(4, 4))
    texts = {TEXT: lambda number: [b"class%05d" % label for label in classes_of(number)]}
    add_lists(folder, {**LISTS, LABEL: classes_of, **texts})
    return folder


@pytest.mark.parametrize(
    "options",
    [{}, {"batch_size": None, "remainder": None}, {"on_error": "skip"}, {"start_step": 1}, {"cache": "memory"}],
    ids=str,
)
def test_lists_are_ragged(listed: Path, options: dict[str, Any]) -> None:
    options = {"batch_size": 8, "remainder": "pad", "output": "dict", "shuffle": True, **options}
    seen = set()
    for batch in load(listed, split="train", **options):
        names = tf.reshape(batch["image/filename"], [-1]).numpy()
        for index, name in enumerate(names):
            one = {key: batch[key] if options["batch_size"] is None else batch[key][index] for key in (*LISTS, LABEL)}
            number = int(name.split(b".")[0]) if name else None
            expected = {key: [] if name == b"" else of(number) for key, of in {**LISTS, LABEL: classes_of}.items()}
            assert {key: values.numpy().tolist() for key, values in one.items()} == expected
            seen.add(number)
    assert len(seen - {None}) == (12 if options.get("start_step") else 20)


def test_several_labels(listed: Path) -> None:
    pairs = load(listed, split="train", batch_size=8)
    assert pairs.element_spec[1] == tf.RaggedTensorSpec([None, None], tf.int64, row_splits_dtype=tf.int64)
    rows = [row.tolist() for _, labels in pairs for row in labels.numpy()]
    assert sorted(rows) == sorted(classes_of(number) for number in range(20))
    hot = load(listed, split="train", batch_size=10, multi_hot=True)
    assert hot.element_spec[1] == tf.TensorSpec([10, 20], tf.float32)
    singles = load(listed, split="train", multi_hot=True)
    assert singles.element_spec[1] == tf.TensorSpec([20], tf.float32)
    names = [int(name.numpy().split(b".")[0]) for name in load_names(listed)]
    for found in (np.concatenate([labels for _, labels in hot]), np.stack([labels for _, labels in singles])):
        expected = np.zeros((20, 20), np.float32)
        for row, number in enumerate(names):
            expected[row, classes_of(number)] = 1
        np.testing.assert_array_equal(found, expected)


def load_names(folder: Path) -> list[Any]:
    return [one["image/filename"] for one in load(folder, split="train", output="dict")]


def test_label_outside_the_list_among_several(listed: Path, tmp_path: Path) -> None:
    folder = write_dataset(tmp_path / "d", {"train": [8]}, image_size=(4, 4))
    add_lists(folder, {LABEL: lambda number: [1, 9] if number == 5 else [2], TEXT: lambda number: [b"x"]})
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=r"record 5 .*has label 9, outside the class list \(0 to 7"
    ):
        elements_of(folder, batch_size=8)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"one_hot": True}, "have any number of labels each: give `multi_hot=True` instead"),
        ({"cache": "memory", "cache_decoded": True}, "`cache_decoded=True`: the examples hold lists of any length"),
    ],
    ids=str,
)
def test_wrong_calls_of_lists(listed: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        load(listed, split="train", **options)


def test_image_size(dataset: Path) -> None:
    for (image, _), (small, _) in zip(elements_of(dataset), elements_of(dataset, image_size=(15, 20)), strict=True):
        assert small.shape == (16, 15, 20, 3)
        expected = tf.image.resize(image, (15, 20), antialias=True)
        np.testing.assert_array_equal(small, np.round(expected).astype(np.uint8))


def test_center_crop(dataset: Path) -> None:
    for (image, _), (middle, _) in zip(
        elements_of(dataset), elements_of(dataset, image_size=(30, 30), crop="center"), strict=True
    ):
        np.testing.assert_array_equal(middle, image[:, :, 5:35])


def test_center_crop_of_jpeg_is_fused_and_the_same(tmp_path: Path) -> None:
    folder = write_dataset(tmp_path / "d", {"train": [16]}, image_size=(32, 64))
    elements = load(folder, split="train", image_size=(32, 32), crop="center", batch_size=16)
    for (image, _), (middle, _) in zip(elements_of(folder), elements.as_numpy_iterator(), strict=True):
        # Colors are kept at half the resolution: at the cut they are not mixed with those of the neighbors.
        np.testing.assert_array_equal(middle[:, :, 2:-2], image[:, :, 18:46])
    assert b"DecodeAndCropJpeg" in elements._as_serialized_graph().numpy()


def test_random_crop_is_that_of_seed_epoch_and_example(tmp_path: Path) -> None:
    folder = write_dataset(tmp_path / "d", {"train": [32]}, image_size=(32, 48))

    def crops(**options: Any) -> dict[int, bytes]:
        elements = load(
            folder, **{"split": "train", "image_size": (16, 16), "crop": "random", "batch_size": 16, **options}
        )
        return {
            int(number): image.numpy().tobytes() for batch in elements for image, number in zip(*batch, strict=True)
        }

    first = crops(seed=1)
    assert first == crops(seed=1, shuffle=True, batch_size=32) == crops(seed=1, streams=4)
    later = crops(seed=1, start_step=1)
    assert later.items() <= first.items()
    for other in (crops(seed=2), crops(seed=1, epoch=1)):
        assert sum(other[number] == first[number] for number in first) <= 1


def test_images_of_different_sizes() -> None:
    folder = converted("--encoding keep --resize none")
    single = {int(label): image for image, label in load(folder, split="train").as_numpy_iterator()}
    padded = load(folder, split="train", batch_size=7, sizes="padded")
    assert padded.element_spec[0].shape.as_list() == [7, None, None, 3]
    ragged = load(folder, split="train", batch_size=7, sizes="ragged")
    seen = []
    for (images, labels), (uneven, same) in zip(padded, ragged, strict=True):
        assert labels.numpy().tolist() == same.numpy().tolist()
        for image, row, label in zip(images.numpy(), uneven, labels.numpy(), strict=True):
            expected = single[int(label)]
            height, width, _ = expected.shape
            np.testing.assert_array_equal(image[:height, :width], expected)
            assert not image[height:].any()
            assert not image[:, width:].any()
            np.testing.assert_array_equal(row.to_tensor(), expected)
            seen.append(int(label))
    assert sorted(seen) == sorted(single)
    ((fixed, _), _) = load(folder, split="train", batch_size=7, image_size=(8, 9), crop="random")
    assert fixed.shape == (7, 8, 9, 3)


def test_deterministic_false_lets_batches_overtake(dataset: Path) -> None:
    sloppy = load(dataset, split="train", batch_size=8, deterministic=False)
    assert b"deterministic" in sloppy._as_serialized_graph().numpy()
    assert sorted(int(label) for _, labels in sloppy for label in labels) == list(range(32))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": "float16"}, '`dtype=\'float16\'`: must be "uint8", "float32" or "bfloat16"'),
        (
            {"dtype": "float32", "output": "encoded"},
            '`dtype=float32`: has no effect: `output="encoded"` decodes nothing',
        ),
        ({"image_size": 224}, r"`image_size=224`: must be \(height, width\) in pixels"),
        ({"image_size": (0, 8)}, "`image_size=0`: must be a whole number from 1"),
        ({"image_size": (9000, 8)}, r"`image_size=\(9000, 8\)`: no side may exceed 8192 pixels"),
        ({"crop": "random"}, r"`crop=random`: needs `image_size=\(height, width\)`"),
        ({"crop": "middle"}, '`crop=\'middle\'`: must be None, "random" or "center"'),
        ({"sizes": "padded"}, "`sizes=padded`: has no effect"),
        ({"one_hot": 1}, "`one_hot=1`: must be True or False"),
        ({"one_hot": True, "output": "image"}, '`one_hot=True`: has no effect: `output="image"` has no labels'),
        ({"deterministic": None}, "`deterministic=None`: must be True or False"),
    ],
    ids=str,
)
def test_wrong_calls(dataset: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        load(dataset, split="train", **options)
