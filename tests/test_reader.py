from __future__ import annotations

import collections
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import simplejpeg
import tensorflow as tf

from beam_tfr import manifest, reader
from beam_tfr.manifest import manifest_digest, to_bytes
from beam_tfr.reader import load
from beam_tfr.schema import MANIFEST_FILE, DataError, UsageError
from tests.converted import CONVERSIONS, SOURCES, converted
from tests.reader_fixtures import encode, photo, pixels_of, records_of, write_dataset


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """train: photos 0 to 36 in 3 shards, one of them empty; test: photos 37 to 40."""
    return write_dataset(tmp_path_factory.mktemp("data") / "d", {"train": [20, 0, 17], "test": [4]})


def labels(elements: Any) -> list[int]:
    return [int(label) for _, batch in elements for label in np.ravel(batch)]


@pytest.mark.parametrize(
    "counts", [[1], [7], [8], [9], [1, 1, 1], [0, 5, 0], [0, 0, 13, 1, 30], [3] * 40, [100, 1], [521, 2, 600]], ids=str
)
def test_every_example_exactly_once_per_epoch(tmp_path: Path, counts: list[int]) -> None:
    folder = write_dataset(tmp_path / "d", {"train": counts}, image_size=(2, 2))
    for options in ({"shuffle": True}, {"batch_size": 3, "streams": 3}, {"batch_size": 8, "shuffle": True}):
        assert sorted(labels(load(folder, split="train", output="encoded", **options))) == list(range(sum(counts)))


def test_elements(dataset: Path) -> None:
    seen = 0
    for images, batch in load(dataset, split="train", batch_size=16, shuffle=True):
        assert (images.dtype, batch.dtype) == (tf.uint8, tf.int64)
        for image, label in zip(images.numpy(), batch.numpy(), strict=True):
            expected = simplejpeg.decode_jpeg(encode(photo(int(label)), "jpeg"), colorspace="RGB")
            np.testing.assert_array_equal(image, expected)
            seen += 1
    assert seen == 37


def test_single_examples_have_no_batch_dimension(dataset: Path) -> None:
    elements = load(str(dataset), split="test")
    assert elements.element_spec == (tf.TensorSpec([8, 12, 3], tf.uint8), tf.TensorSpec([], tf.int64))
    assert [image.shape for image, _ in elements] == [(8, 12, 3)] * 4
    assert sorted(labels(elements)) == [37, 38, 39, 40]


def test_pixels_of_a_real_photo(tmp_path: Path, photo_bytes: bytes) -> None:
    height, width = simplejpeg.decode_jpeg_header(photo_bytes)[:2]
    folder = write_dataset(tmp_path / "d", {"train": [1]}, image_size=(height, width), photos=[photo_bytes])
    ((image, _),) = load(folder, split="train")
    np.testing.assert_array_equal(image, simplejpeg.decode_jpeg(photo_bytes, colorspace="RGB"))


@pytest.fixture
def photo_bytes() -> bytes:
    """A picture with edges and gradients, on which TensorFlow's default decoding differs."""
    y, x = np.mgrid[:97, :131]
    pixels = np.stack([x * 2 % 256, (x + y) * 5 % 256, ((x // 16 + y // 16) % 2) * 255], axis=-1).astype(np.uint8)
    data = encode(pixels, "jpeg")
    assert not np.array_equal(tf.io.decode_jpeg(data), simplejpeg.decode_jpeg(data))
    return data


@pytest.mark.parametrize(
    ("batch_size", "remainder", "batch_dim", "batches"),
    [(8, "keep", None, 5), (8, "drop", 8, 4), (8, "pad", 8, 5), (37, "keep", 37, 1), (37, "drop", 37, 1)],
)
def test_remainder(dataset: Path, batch_size: int, remainder: str, batch_dim: int | None, batches: int) -> None:
    streams = 8 if batch_size == 8 else 1
    elements = load(dataset, split="train", batch_size=batch_size, remainder=remainder, streams=streams)
    assert elements.element_spec[0].shape.as_list() == [batch_dim, 8, 12, 3]
    assert elements.element_spec[1].shape.as_list() == [batch_dim]
    sizes = [len(element[1]) for element in elements]
    assert elements.cardinality() == len(sizes) == batches
    assert sum(sizes) == (37 if remainder == "keep" else batches * batch_size)


def test_padding_is_black_and_weighs_nothing(dataset: Path) -> None:
    elements = load(dataset, split="train", batch_size=16, remainder="pad", shuffle=True)
    seen = []
    for images, labels, weights in elements:
        assert images.shape[0] == labels.shape[0] == weights.shape[0] == 16
        seen += labels[weights == 1].numpy().tolist()
        assert not images[weights == 0].numpy().any()
        assert not labels[weights == 0].numpy().any()
    assert sorted(seen) == list(range(37))
    dicts = load(dataset, split="train", batch_size=16, remainder="pad", output="dict")
    assert sum(float(tf.reduce_sum(batch["weight"])) for batch in dicts) == 37


@pytest.mark.parametrize("shuffle", [False, True])
def test_cardinality_of_repeats(dataset: Path, shuffle: bool) -> None:
    def cardinality(**options: Any) -> int:
        return int(load(dataset, split="train", shuffle=shuffle, **options).cardinality())

    assert cardinality() == 37
    assert cardinality(repeat=1) == 37
    assert cardinality(repeat=3) == 111
    assert cardinality(repeat=3, batch_size=16) == 9
    assert cardinality(repeat=True, batch_size=16) == tf.data.INFINITE_CARDINALITY


def test_order_is_that_of_seed_and_epoch(dataset: Path) -> None:
    def order(**options: Any) -> tuple[int, ...]:
        return tuple(labels(load(dataset, split="train", shuffle=True, output="encoded", **options)))

    keys = [{"seed": 0}, {"seed": 0, "epoch": 1}, {"seed": 7}, {"seed": (1 << 63) - 1, "epoch": 1}]
    orders = [order(**key) for key in keys]
    assert len(set(orders)) == len(keys)
    assert order(seed=7, batch_size=8) == order(seed=7, batch_size=24) == orders[2]


def test_order_stays_the_same_over_versions(dataset: Path) -> None:
    # A training run that is resumed after an update of TensorFlow or of this package must go on in the same order.
    assert labels(load(dataset, split="train", shuffle=True, seed=7, epoch=3)) == GOLDEN_ORDER
    assert labels(load(dataset, split="test")) == [37, 38, 39, 40]


GOLDEN_ORDER = [
    0,
    7,
    10,
    14,
    18,
    23,
    29,
    36,
    1,
    4,
    12,
    15,
    21,
    25,
    31,
    32,
    2,
    8,
    9,
    13,
    19,
    24,
    28,
    34,
    3,
    5,
    11,
    16,
    22,
    26,
    27,
    33,
    6,
    17,
    20,
    30,
    35,
]


def test_shuffle_moves_shards_and_mixes_streams(tmp_path: Path) -> None:
    folder = write_dataset(tmp_path / "d", {"train": [100] * 10}, image_size=(2, 2))
    orders = [labels(load(folder, split="train", shuffle=True, epoch=epoch)) for epoch in range(6)]
    for order in orders:
        assert abs(np.corrcoef(order, range(1000))[0, 1]) < 0.3
        assert len({label // 100 for label in order[:64]}) >= 6  # shards in the first batch
    first_shards = collections.Counter(order[0] // 100 for order in orders)
    assert len(first_shards) > 2


def test_global_seed_changes_nothing(dataset: Path) -> None:
    def three_iterations() -> list[list[int]]:
        elements = load(dataset, split="train", shuffle=True, seed=1)
        return [labels(elements) for _ in range(3)]

    tf.random.set_seed(1)
    first = three_iterations()
    tf.random.set_seed(2)
    tf.random.uniform([])
    assert three_iterations() == first


def test_each_iteration_takes_another_order(dataset: Path) -> None:
    elements = load(dataset, split="train", shuffle=True, seed=1, epoch=4)
    for epoch in (4, 5, 6):
        assert labels(elements) == labels(load(dataset, split="train", shuffle=True, seed=1, epoch=epoch))
    fixed = load(dataset, split="train")
    assert labels(fixed) == labels(fixed)


def test_repeat_is_one_epoch_after_the_other(dataset: Path) -> None:
    def batches(**options: Any) -> list[list[int]]:
        elements = load(dataset, split="train", batch_size=16, shuffle=True, seed=1, **options)
        return [batch.tolist() for _, batch in elements.as_numpy_iterator()]

    expected = [batch for epoch in (2, 3, 4) for batch in batches(epoch=epoch)]
    thrice = load(dataset, split="train", batch_size=16, shuffle=True, seed=1, epoch=2, repeat=3)
    endless = load(dataset, split="train", batch_size=16, shuffle=True, seed=1, epoch=2, repeat=True)
    for elements in (thrice, thrice, endless.take(9), endless.take(9)):
        assert [batch.tolist() for _, batch in elements.as_numpy_iterator()] == expected
    assert batches(epoch=2, repeat=1) == expected[:3]


def test_unlabelled(tmp_path: Path) -> None:
    folder = write_dataset(tmp_path / "d", {"train": [5]}, labelled=False)
    elements = load(folder, split="train", batch_size=5, streams=5)
    assert elements.element_spec == tf.TensorSpec([5, 8, 12, 3], tf.uint8)
    (images,) = elements
    found = {image.tobytes() for image in images.numpy()}
    assert found == {simplejpeg.decode_jpeg(encode(photo(number), "jpeg")).tobytes() for number in range(5)}


@pytest.mark.parametrize("compression", ["gzip", "none"])
def test_png_is_read_exactly(tmp_path: Path, compression: str) -> None:
    folder = write_dataset(tmp_path / "d", {"train": [5, 4]}, encoding="png", compression=compression)
    for images, batch in load(folder, split="train", batch_size=4, streams=2):
        for image, label in zip(images.numpy(), batch.numpy(), strict=True):
            np.testing.assert_array_equal(image, photo(int(label)))


@pytest.mark.parametrize("flags", CONVERSIONS)
def test_pixels_of_every_encoding_are_those_of_other_decoders(flags: str) -> None:
    folder = converted(flags)
    dataset = manifest.read(str(folder))
    channels = 1 if dataset.options["color"] == "gray" else 3
    fixed = dataset.options["resize"] in ("stretch", "crop", "pad")
    size = dataset.options["image_size"] if fixed else [None, None]
    elements = load(folder, split="train")
    assert elements.element_spec == (tf.TensorSpec([*size, channels], tf.uint8), tf.TensorSpec([], tf.int64))
    images = {dataset.class_names[label]: image for image, label in elements.as_numpy_iterator()}
    records = records_of(folder)
    assert images.keys() == records.keys() == SOURCES.keys()
    for name, record in records.items():
        assert images[name].shape == (record["image/height"], record["image/width"], channels)
        if record["image/channels"] != 4:  # CMYK, which --keep_all keeps: trainers show it in colours of their own
            np.testing.assert_array_equal(images[name], pixels_of(record, channels), err_msg=name)
    if fixed:
        ((batch, labels),) = load(folder, split="train", batch_size=len(images), streams=7)
        for image, label in zip(batch.numpy(), labels.numpy(), strict=True):
            np.testing.assert_array_equal(image, images[dataset.class_names[label]])


def test_kept_files_are_read_in_their_own_formats() -> None:
    formats = {
        name: record["image/format"] for name, record in records_of(converted("--encoding keep --resize none")).items()
    }
    kept = {"photo.jpg": b"jpeg", "photo.png": b"png", "photo.webp": b"webp", "gray.bmp": b"bmp", "palette.gif": b"gif"}
    assert formats.items() >= kept.items()


@pytest.mark.parametrize("resize", ["fit", "shortest", "none"])
def test_no_batches_of_images_of_different_sizes(tmp_path: Path, resize: str) -> None:
    folder = write_dataset(tmp_path / "d", {"train": [4]}, image_size=(8, 8))
    edit_manifest(folder, resize=resize)
    with pytest.raises(UsageError) as error:
        load(folder, split="train", batch_size=2, streams=2)
    assert str(error.value) == (
        f"batch_size 2: the images of {folder} have different sizes (--resize {resize}), and a batch takes equal ones. "
        'Give image_size=(height, width), or sizes="padded" or "ragged"; leave batch_size out; or convert with '
        "--resize stretch, crop or pad"
    )
    elements = load(folder, split="train")
    assert elements.element_spec[0] == tf.TensorSpec([None, None, 3], tf.uint8)
    batches = elements.map(lambda image, label: (tf.image.resize_with_pad(image, 16, 16), label)).batch(2)
    assert [images.shape for images, _ in batches] == [(2, 16, 16, 3)] * 2


def edit_manifest(folder: Path, **options: Any) -> None:
    fields = json.loads((folder / MANIFEST_FILE).read_text())
    fields["options"].update(options)
    fields["manifest_digest"] = manifest_digest(fields)
    (folder / MANIFEST_FILE).write_bytes(to_bytes(fields))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"split": "trian"}, r"split 'trian' is not in .*; there are: test, train$"),
        ({"split": "none"}, r"there are: test, train$"),
        ({"split": None}, r"split None is not in"),
        ({"batch_size": 0}, "batch_size must be a whole number from 1 to 2147483647, not 0"),
        ({"batch_size": 2.0}, r"batch_size must be a whole number from 1 to 2147483647, not 2\.0"),
        ({"batch_size": True}, "batch_size must be a whole number from 1 to 2147483647, not True"),
        (
            {"batch_size": 40, "remainder": "drop"},
            'batch_size 40 leaves no batch of the 37 examples: give at most 32, or remainder="keep" or "pad"',
        ),
        ({"batch_size": 8, "remainder": "fill"}, 'remainder must be None, "keep", "drop" or "pad", not \'fill\''),
        ({"remainder": "drop"}, "no effect without batch_size"),
        ({"shuffle": 1024}, "shuffle must be True or False, not 1024"),
        ({"seed": -1}, "seed must be a whole number from 0 to 9223372036854775807, not -1"),
        ({"seed": 1 << 63}, "seed must be a whole number from 0 to 9223372036854775807, not 9223372036854775808"),
        ({"epoch": "1"}, "epoch must be a whole number from 0 to 2147483647, not '1'"),
        ({"repeat": 0}, "repeat must be a whole number from 1 to 2147483647, not 0"),
    ],
    ids=str,
)
def test_wrong_calls_say_what_is_allowed(dataset: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        load(dataset, **{"split": "train", **options})


def test_numpy_integers_are_taken(dataset: Path) -> None:
    assert load(dataset, split="test", batch_size=np.int64(2), streams=2, seed=np.uint8(3)).cardinality() == 2


def test_path_of_another_scheme() -> None:
    with pytest.raises(UsageError, match="`path=s3://bucket/d`: only local paths and gs:// are supported"):
        load("s3://bucket/d", split="train")


def test_incomplete_folder(tmp_path: Path) -> None:
    folder = write_dataset(tmp_path / "d", {"train": [3]})
    (folder / MANIFEST_FILE).unlink()
    with pytest.raises(DataError, match=r"is not a complete dataset: .*manifest\.json is missing"):
        load(folder, split="train")


def test_shard_missing_or_resized(tmp_path: Path) -> None:
    folder = write_dataset(tmp_path / "d", {"train": [3, 3], "test": [1]})
    shard = folder / "d-train-00001-of-00002.tfrecord.gz"
    data = shard.read_bytes()
    shard.write_bytes(data[:-1])
    with pytest.raises(DataError, match=rf"{shard} has {len(data) - 1} bytes instead of {len(data)}: copy the dataset"):
        load(folder, split="train")
    shard.unlink()
    with pytest.raises(DataError, match=rf"{shard} is missing: copy the dataset"):
        load(folder, split="train")
    assert labels(load(folder, split="test")) == [6]  # its own shards are all there


@pytest.mark.parametrize("shuffle", [False, True])
def test_shard_that_reads_short_is_named(tmp_path: Path, shuffle: bool) -> None:
    folder = write_dataset(tmp_path / "d", {"train": [10, 10]}, compression="none")
    elements = load(folder, split="train", batch_size=8, shuffle=shuffle)
    shard = folder / "d-train-00001-of-00002.tfrecord"
    data = shard.read_bytes()
    shard.write_bytes(data[: int.from_bytes(data[:8], "little") + 16])  # the first record and its frame
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=rf"damaged shard {shard}: it cannot be read from record 1 on"
    ):
        labels(elements)
    shard.unlink()
    with pytest.raises(tf.errors.NotFoundError, match=shard.name):
        labels(elements)


def test_no_truncation_of_gzip_passes(tmp_path: Path) -> None:
    folder = write_dataset(tmp_path / "d", {"train": [2]}, image_size=(2, 2))
    elements = load(folder, split="train", batch_size=2, streams=2)
    shard = folder / "d-train-00000-of-00001.tfrecord.gz"
    data = shard.read_bytes()
    # The last 8 bytes are GZIP's trailer: without them every record is still there.
    for length in range(0, len(data) - 8, 37):
        shard.write_bytes(data[:length])
        with pytest.raises((tf.errors.InvalidArgumentError, tf.errors.DataLossError)):
            labels(elements)


@pytest.mark.parametrize("options", [{}, {"repeat": True}], ids=["finite", "repeated"])
def test_keras_fit(dataset: Path, options: dict[str, Any]) -> None:
    import keras

    model = keras.Sequential([keras.layers.Rescaling(1 / 255), keras.layers.Flatten(), keras.layers.Dense(41)])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    elements = load(dataset, split="train", batch_size=16, shuffle=True, **options)
    steps = {"steps_per_epoch": 3} if options else {}
    history = model.fit(
        elements, epochs=3, validation_data=load(dataset, split="test", batch_size=3, streams=3), verbose=0, **steps
    )
    assert len(history.history["loss"]) == len(history.history["val_loss"]) == 3
    assert int(model.optimizer.iterations) == 9


def test_distributed(dataset: Path) -> None:
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    with strategy.scope():
        elements = load(dataset, split="train", batch_size=16, shuffle=True)
    distributed = strategy.experimental_distribute_dataset(elements)
    for _ in range(2):
        assert sorted(labels(distributed)) == list(range(37))


def test_built_of_graph_ops_alone(dataset: Path) -> None:
    graph = load(dataset, split="train", batch_size=8, shuffle=True, repeat=2)._as_serialized_graph()
    text = graph.numpy()
    assert b"TFRecordDataset" in text
    for op in (b"PyFunc", b"ShuffleDataset", b"RandomDataset"):
        assert op not in text


def test_imports_no_beam() -> None:
    code = (
        "import sys; from beam_tfr.reader import load; "
        "sys.exit('apache_beam' in sys.modules or 'tensorflow' not in sys.modules)"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(reader.__file__).parents[1])}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
