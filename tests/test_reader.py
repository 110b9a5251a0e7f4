from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import simplejpeg
import tensorflow as tf

from beam_tfr.dataset.manifest import manifest_bytes, manifest_digest, read_manifest
from beam_tfr.reader import load
from beam_tfr.reader.images import DECODERS, ImageDecoder
from beam_tfr.schema.dataset import MANIFEST_FILE
from beam_tfr.schema.errors import UsageError
from tests.conftest import few_at_once
from tests.converted import CONVERSIONS, FAST, SOURCES, converted
from tests.expected_order import expected_steps
from tests.reader_fixtures import encode, photo, pixels_of, records_of, write_dataset


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """train: photos 0 to 36 in 3 shards, one of them empty; test: photos 37 to 40."""
    return write_dataset(tmp_path_factory.mktemp("data") / "d", {"train": [20, 0, 17], "test": [4]})


def labels(elements: Any) -> list[int]:
    return [int(label) for _, batch in elements for label in np.ravel(batch)]


def test_single_examples_have_no_batch_dimension(dataset: Path) -> None:
    elements = load(str(dataset), split="test")
    assert elements.element_spec == (
        tf.TensorSpec([8, 12, 3], tf.uint8),
        tf.TensorSpec([], tf.int64),
    )
    found = list(elements.as_numpy_iterator())
    assert [image.shape for image, _ in found] == [(8, 12, 3)] * 4
    assert sorted(labels(found)) == [37, 38, 39, 40]


def test_jpegs_are_decoded_accurately() -> None:
    # A picture with edges and gradients, on which TensorFlow's default decoding differs.
    y, x = np.mgrid[:97, :131]
    pixels = np.stack(
        [x * 2 % 256, (x + y) * 5 % 256, ((x // 16 + y // 16) % 2) * 255], axis=-1
    ).astype(np.uint8)
    data = encode(pixels, "jpeg")
    expected = simplejpeg.decode_jpeg(data, colorspace="RGB")
    assert not np.array_equal(tf.io.decode_jpeg(data), expected)
    np.testing.assert_array_equal(DECODERS["jpeg"](data, 3), expected)


def test_remainder(dataset: Path) -> None:
    for batch_size, remainder, batch_dim, batches in (
        (8, "keep", None, 5),
        (10, "drop", 10, 3),
        (37, "keep", 37, 1),
    ):
        elements = load(
            dataset, split="train", batch_size=batch_size, remainder=remainder, output="raw_record"
        )
        assert elements.element_spec.shape.as_list() == [batch_dim]
        assert elements.cardinality() == batches


def test_pixels_labels_and_fillers(dataset: Path) -> None:
    elements = load(dataset, split="train", batch_size=16, remainder="pad", shuffle=True)
    assert elements.element_spec[0] == tf.TensorSpec([16, 8, 12, 3], tf.uint8)
    seen = []
    for images, batch, weights in elements:
        assert (images.dtype, batch.dtype, weights.dtype) == (tf.uint8, tf.int64, tf.float32)
        for image, label, weight in zip(
            images.numpy(), batch.numpy(), weights.numpy(), strict=True
        ):
            if weight:
                expected = simplejpeg.decode_jpeg(
                    encode(photo(int(label)), "jpeg"), colorspace="RGB"
                )
                np.testing.assert_array_equal(image, expected)
                seen.append(int(label))
            else:
                assert not image.any()
                assert (label, weight) == (0, 0)
    assert (len(elements), sorted(seen)) == (3, list(range(37)))
    graph = elements._as_serialized_graph().numpy()
    assert b"TFRecordDataset" in graph
    for op in (b"PyFunc", b"ShuffleDataset", b"RandomDataset"):
        assert op not in graph


def test_each_iteration_takes_the_next_epoch_whatever_the_global_seed(dataset: Path) -> None:
    elements = load(dataset, split="train", shuffle=True, seed=1, epoch=4, output="encoded")
    for epoch in (4, 5):
        tf.random.set_seed(epoch)
        assert labels(elements) == list(
            itertools.chain(*expected_steps(dataset, shuffle=True, seed=1, epoch=epoch))
        )


def test_each_iteration_of_repeated_epochs_is_the_same(dataset: Path) -> None:
    expected = expected_steps(dataset, batch_size=16, shuffle=True, seed=1, epoch=2, epochs=3)
    elements = load(
        dataset,
        split="train",
        batch_size=16,
        shuffle=True,
        seed=1,
        epoch=2,
        repeat=True,
        output="encoded",
    )
    assert elements.cardinality() == tf.data.INFINITE_CARDINALITY
    for _ in range(2):
        assert [batch.tolist() for _, batch in elements.take(9).as_numpy_iterator()] == expected


def test_unlabelled(tmp_path: Path) -> None:
    folder = write_dataset(tmp_path / "d", {"train": [5]}, labelled=False)
    elements = load(folder, split="train", batch_size=5)
    assert elements.element_spec == tf.TensorSpec([5, 8, 12, 3], tf.uint8)
    (images,) = elements
    pixels = [simplejpeg.decode_jpeg(encode(photo(number), "jpeg")) for number in range(5)]
    assert {image.tobytes() for image in images.numpy()} == {image.tobytes() for image in pixels}


@pytest.mark.parametrize("flags", few_at_once(CONVERSIONS, *FAST))
def test_pixels_of_every_encoding_are_those_of_other_decoders(flags: str) -> None:
    folder = converted(flags)
    dataset = read_manifest(str(folder))
    decode = ImageDecoder(options=dataset.image_options)
    channels = 1 if dataset.options["color"] == "gray" else 3
    fixed = dataset.options["resize"] in ("stretch", "crop", "pad")
    assert decode.shape == (*(dataset.options["image_size"] if fixed else (None, None)), channels)
    records = records_of(folder)
    assert records.keys() == SOURCES.keys()
    for name, record in records.items():
        kept = record["image/format"] if dataset.options["encoding"] == "keep" else None
        image = decode(record.get("image/encoded") or record["image/raw"], kept, (0, 0))
        assert image.shape == (record["image/height"], record["image/width"], channels)
        if record["image/channels"] != 4:  # CMYK, which trainers show in colors of their own
            np.testing.assert_array_equal(image, pixels_of(record, channels), err_msg=name)


def test_pixels_of_a_whole_conversion_of_different_sizes() -> None:
    folder = converted("--encoding keep --resize none")
    names = read_manifest(str(folder)).class_names
    elements = load(folder, split="train")
    assert elements.element_spec[0] == tf.TensorSpec([None, None, 3], tf.uint8)
    images = {names[label]: image for image, label in elements.as_numpy_iterator()}
    for name, record in records_of(folder).items():
        np.testing.assert_array_equal(images.pop(name), pixels_of(record, 3), err_msg=name)
    assert not images


def test_kept_files_are_read_in_their_own_formats() -> None:
    formats = {
        name: record["image/format"]
        for name, record in records_of(converted("--encoding keep --resize none")).items()
    }
    kept = {
        "photo.jpg": b"jpeg",
        "photo.png": b"png",
        "photo.webp": b"webp",
        "gray.bmp": b"png",
        "palette.gif": b"png",
    }
    assert formats.items() >= kept.items()


def test_no_batches_of_images_of_different_sizes(tmp_path: Path) -> None:
    folder = write_dataset(tmp_path / "d", {"train": [4]}, image_size=(8, 8))
    edit_manifest(folder, resize="fit")
    with pytest.raises(UsageError) as error:
        load(folder, split="train", batch_size=2)
    assert str(error.value) == (
        f"`batch_size=2`: the images of {folder} have different sizes (`resize=fit`), but a "
        "batch needs images of equal size. "
        'Pass `image_size=(height, width)` to load, or `sizes="padded"` or "ragged" along with '
        "`batch_size=`; or read single images; or convert with `resize=crop`, pad or stretch"
    )
    assert next(iter(load(folder, split="train", image_size=8).batch(4)))[0].shape == (4, 8, 8, 3)


def edit_manifest(folder: Path, **options: Any) -> None:
    fields = json.loads((folder / MANIFEST_FILE).read_text())
    fields["options"].update(options)
    fields["manifest_digest"] = manifest_digest(fields)
    (folder / MANIFEST_FILE).write_bytes(manifest_bytes(fields))


def test_distributed(dataset: Path) -> None:
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    with strategy.scope():
        elements = load(dataset, split="train", batch_size=16, shuffle=True)
    distributed = strategy.experimental_distribute_dataset(elements)
    assert sorted(labels(distributed)) == list(range(37))
