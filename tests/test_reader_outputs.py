"""What an element holds: outputs, dtypes, labels, and sizes at reading."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import simplejpeg
import tensorflow as tf

from beam_tfr import Records
from beam_tfr.dataset.manifest import read_manifest
from beam_tfr.features.elements import Request, StoredExample
from beam_tfr.features.labels import ClassLabel
from beam_tfr.reader import load
from beam_tfr.reader.images import ImageDecoder, fold
from beam_tfr.records.tfrecords import RecordFile
from beam_tfr.schema.errors import UsageError
from beam_tfr.schema.feature_names import LABEL, TEXT
from tests.converted import converted, converted_photos
from tests.expected_order import expected_steps
from tests.reader_fixtures import add_lists, encode, photo, pixels_of, records_of, write_dataset


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photos 0 to 31, as they are."""
    return write_dataset(
        tmp_path_factory.mktemp("data") / "d",
        {"train": [20, 12]},
        encoding="png",
        image_size=(30, 40),
    )


def elements_of(folder: Path, **options: Any) -> list[Any]:
    return list(load(folder, **{"split": "train", "batch_size": 16, **options}).as_numpy_iterator())


def decoder_of(folder: Path, **options: Any) -> ImageDecoder:
    return ImageDecoder(options=read_manifest(str(folder)).image_options, **options)


def test_outputs(dataset: Path) -> None:
    records = elements_of(dataset, output="raw_record")
    assert {bytes(record) for batch in records for record in batch} == {
        record for shard in dataset.glob("*.tfrecord.gz") for record in RecordFile(str(shard))
    }
    names = {
        "image",
        "image/format",
        "image/height",
        "image/width",
        "image/channels",
        "image/colorspace",
    }
    names |= {
        "image/filename",
        "image/key/sha256",
        "image/source/height",
        "image/source/width",
        "image/source/format",
    }
    numbers = expected_steps(dataset, batch_size=16)
    images_alone = load(dataset, split="train", batch_size=16, output="image")
    assert images_alone.element_spec == tf.TensorSpec([16, 30, 40, 3], tf.uint8)
    for number, (data, labels), features in zip(
        numbers,
        elements_of(dataset, output="encoded"),
        elements_of(dataset, output="dict"),
        strict=True,
    ):
        assert labels.tolist() == number
        assert data.tolist() == [encode(photo(one, 30, 40), "png") for one in number]
        assert features.keys() == names | {"image/class/label", "image/class/text"}
        np.testing.assert_array_equal(features["image"], [photo(one, 30, 40) for one in number])
        assert features["image/class/label"].tolist() == number
        assert features["image/filename"].tolist() == [b"%d.jpg" % one for one in number]


def test_size_of_a_batch(dataset: Path) -> None:
    decode = decoder_of(dataset, image_size=(15, 15), crop="center")
    elements = elements_of(dataset, image_size=(15, 15), crop="center")
    for number, (images, labels) in zip(
        expected_steps(dataset, batch_size=16), elements, strict=True
    ):
        pixels = np.stack(
            [decode(encode(photo(one, 30, 40), "png"), None, (0, one)) for one in number]
        )
        np.testing.assert_array_equal(images, pixels)
        assert labels.tolist() == number


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
    folder = write_dataset(
        tmp_path_factory.mktemp("data") / "d", {"train": [13, 7]}, image_size=(4, 4)
    )
    texts = {TEXT: lambda number: [b"class%05d" % label for label in classes_of(number)]}
    add_lists(folder, {**LISTS, LABEL: classes_of, **texts})
    return folder


@pytest.mark.parametrize(
    "options",
    [{"batch_size": None, "remainder": None}, {}],
    ids=str,
)
def test_lists_are_ragged(listed: Path, options: dict[str, Any]) -> None:
    options = {"batch_size": 8, "remainder": "pad", "output": "dict", "shuffle": True, **options}
    seen = set()
    for batch in load(listed, split="train", **options):
        names = tf.reshape(batch["image/filename"], [-1]).numpy()
        single = options["batch_size"] is None
        lists = {
            key: [[*batch[key].numpy()]] if single else batch[key].to_list()
            for key in (*LISTS, LABEL)
        }
        for index, name in enumerate(names):
            number = int(name.split(b".")[0]) if name else None
            expected = {
                key: [] if name == b"" else of(number)
                for key, of in {**LISTS, LABEL: classes_of}.items()
            }
            assert {key: rows[index] for key, rows in lists.items()} == expected
            seen.add(number)
    assert len(seen - {None}) == 20


@pytest.mark.slow
def test_several_labels(listed: Path) -> None:
    pairs = load(listed, split="train", batch_size=8)
    assert pairs.element_spec[1] == tf.RaggedTensorSpec(
        [None, None], tf.int64, row_splits_dtype=tf.int64
    )
    numbers = [number for (number,) in expected_steps(listed, batch_size=1)]
    hot = load(listed, split="train", batch_size=10, one_hot=True)
    assert hot.element_spec[1] == tf.TensorSpec([10, 20], tf.float32)
    expected = np.zeros((20, 20), np.float32)
    for row, number in enumerate(numbers):
        expected[row, classes_of(number)] = 1
    np.testing.assert_array_equal(np.concatenate([labels for _, labels in hot]), expected)
    singles = load(listed, split="train", one_hot=True)
    assert singles.element_spec[1] == tf.TensorSpec([20], tf.float32)


@pytest.mark.slow
def test_one_label_as_a_row_of_classes(dataset: Path) -> None:
    (_, labels), *_ = elements_of(dataset)
    (_, rows), *_ = elements_of(dataset, one_hot=True)
    assert rows.dtype == np.float32
    num_classes = len(read_manifest(str(dataset)).class_names)
    np.testing.assert_array_equal(rows, np.eye(num_classes)[labels])
    labels = [label for _, label in Records(converted_photos(), split="train")]
    rows = [row for _, row in Records(converted_photos(), split="train", one_hot=True)]
    assert rows[0].dtype == np.float32
    np.testing.assert_array_equal(rows, np.eye(3)[labels])


def test_a_missing_label_is_a_row_of_zeros() -> None:
    kind = ClassLabel(name=LABEL, text_name=TEXT, may_lack=True, class_names=("a", "b"))
    request = Request("pair", one_hot=True)
    feature = tf.train.Feature(int64_list=tf.train.Int64List(value=[-1]))
    stored = StoredExample(tf.train.Features(feature={LABEL: feature}).feature)
    np.testing.assert_array_equal(kind.decode(stored, (1, 1), request)[LABEL], [0, 0])


def test_label_outside_the_list_among_several(listed: Path, tmp_path: Path) -> None:
    folder = write_dataset(tmp_path / "d", {"train": [8]}, image_size=(4, 4))
    add_lists(
        folder, {LABEL: lambda number: [1, 9] if number == 5 else [2], TEXT: lambda number: [b"x"]}
    )
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match=r"record 5 .*cannot be decoded.*outside the class list",
    ):
        elements_of(folder, batch_size=8)


def test_image_size(dataset: Path) -> None:
    decode = decoder_of(dataset, image_size=(15, 20))
    pixels = photo(3, 30, 40)
    expected = np.round(tf.image.resize(pixels, (15, 20), antialias=True)).astype(np.uint8)
    np.testing.assert_array_equal(decode(encode(pixels, "png"), None, (0, 3)), expected)


def test_center_crop(dataset: Path) -> None:
    decode = decoder_of(dataset, image_size=(30, 30), crop="center")
    pixels = photo(3, 30, 40)
    np.testing.assert_array_equal(decode(encode(pixels, "png"), None, (0, 3)), pixels[:, 5:35])


def test_center_crop_of_jpeg_is_fused_and_the_same(tmp_path: Path) -> None:
    folder = write_dataset(tmp_path / "d", {"train": [1]}, image_size=(32, 64))
    decode = decoder_of(folder, image_size=(32, 32), crop="center")
    middle = tf.function(lambda data: decode(data, None, (0, 0)), autograph=False)
    for number in range(4):
        data = tf.constant(encode(photo(number, 32, 64), "jpeg"))
        # Colors are kept at half the resolution: at the cut they are not mixed with those of the
        # neighbors.
        np.testing.assert_array_equal(
            middle(data)[:, 2:-2], simplejpeg.decode_jpeg(data.numpy())[:, 18:46]
        )
    operations = {
        operation.type for operation in middle.get_concrete_function(data).graph.get_operations()
    }
    assert "DecodeAndCropJpeg" in operations
    assert "DecodeJpeg" not in operations


def test_random_crop_is_that_of_seed_epoch_and_example(tmp_path: Path) -> None:
    folder = write_dataset(tmp_path / "d", {"train": [32]}, image_size=(32, 48))
    options: dict[str, Any] = {"image_size": (16, 16), "crop": "random"}

    def crops(*, seed: int, epoch: int) -> dict[int, bytes]:
        decode = tf.function(decoder_of(folder, seed=seed, **options), autograph=False)
        photos = [
            tf.constant(encode(photo(number, 32, 48), "jpeg")) for number in range(32)
        ]  # else each is traced
        places = [tf.constant([epoch, number], tf.int64) for number in range(32)]
        return {
            number: decode(data, None, place).numpy().tobytes()
            for number, (data, place) in enumerate(zip(photos, places, strict=True))
        }

    first = crops(seed=1, epoch=3)
    elements = load(
        folder,
        split="train",
        batch_size=16,
        shuffle=True,
        seed=1,
        epoch=3,
        start_step=1,
        streams=3,
        **options,
    )
    ((images, labels),) = elements.as_numpy_iterator()
    assert {
        label: image.tobytes() for label, image in zip(labels.tolist(), images, strict=True)
    }.items() <= first.items()
    for other in (crops(seed=2, epoch=3), crops(seed=1, epoch=4)):
        assert sum(other[number] == first[number] for number in first) <= 1


@pytest.mark.parametrize("number", [0, 1, tf.constant(7, tf.int64), tf.constant(1 << 40, tf.int64)])
def test_keys_are_folded_as_by_tensorflow(number: Any) -> None:
    key = tf.constant([-(1 << 60), 1], tf.int64)
    for _ in range(3):
        folded = fold(key, number)
        expected = tf.random.fold_in(key, number, alg="philox")
        assert folded.dtype == expected.dtype
        assert folded.numpy().tolist() == expected.numpy().tolist()
        key = folded


@pytest.mark.slow
def test_images_of_different_sizes() -> None:
    folder = converted("--encoding keep --resize none")
    records = records_of(folder)
    names = read_manifest(str(folder)).class_names
    padded = load(folder, split="train", batch_size=7, sizes="padded")
    assert padded.element_spec[0].shape.as_list() == [7, None, None, 3]
    ragged = load(folder, split="train", batch_size=7, sizes="ragged")
    seen = []
    for (images, labels), (uneven, same) in zip(padded, ragged, strict=True):
        assert labels.numpy().tolist() == same.numpy().tolist()
        for image, row, label in zip(images.numpy(), uneven, labels.numpy(), strict=True):
            expected = pixels_of(records[names[label]], 3)
            height, width, _ = expected.shape
            np.testing.assert_array_equal(image[:height, :width], expected)
            assert not image[height:].any()
            assert not image[:, width:].any()
            np.testing.assert_array_equal(row.to_tensor(), expected)
            seen.append(names[label])
    assert sorted(seen) == sorted(records)
    decode = decoder_of(folder, image_size=(8, 9), crop="random")
    for number, record in enumerate(records.values()):
        assert decode(record["image/encoded"], record["image/format"], (0, number)).shape == (
            8,
            9,
            3,
        )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"image_size": (8, 8), "output": "encoded"},
            r'`image_size=\(8, 8\)`: has no effect: `output="encoded"` decodes nothing',
        ),
        (
            {"image_size": (0, 8)},
            r"`image_size=\(0, 8\)`: must be height x width, each from 1 to 8192 pixels",
        ),
        (
            {"image_size": (9000, 8)},
            r"`image_size=\(9000, 8\)`: must be height x width, each from 1",
        ),
        (
            {"image_size": (8, 8.5)},
            r"`image_size=\(8, 8\.5\)`: must be height x width, each from 1",
        ),
        ({"crop": "random"}, r"`crop=random`: needs `image_size=\(height, width\)`"),
        ({"crop": "middle"}, '`crop=\'middle\'`: must be None, "random" or "center"'),
        ({"sizes": "padded"}, "`sizes=padded`: has no effect"),
        ({"one_hot": 1}, "`one_hot=1`: must be True or False"),
        (
            {"one_hot": True, "output": "image"},
            '`one_hot=True`: has no effect with `output="image"`',
        ),
    ],
    ids=str,
)
def test_wrong_calls(dataset: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        load(dataset, split="train", **options)
