"""What users already have works with the datasets.

TensorFlow's parsers, Keras on TensorFlow and JAX, strategies.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import simplejpeg
import tensorflow as tf

from beam_tfr.dataset.manifest import read_manifest
from beam_tfr.reader import feature_spec, load
from tests.reader_fixtures import encode, photo, write_dataset


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """train: photos 0 to 39 in two shards; test: photos 40 to 47."""
    return write_dataset(tmp_path_factory.mktemp("data") / "d", {"train": [25, 15], "test": [8]})


def test_make_batched_features_dataset(folder: Path) -> None:
    batches = tf.data.experimental.make_batched_features_dataset(
        f"{folder}/d-train-*",
        batch_size=16,
        features=feature_spec(folder),
        reader=lambda files: tf.data.TFRecordDataset(files, "GZIP"),
        label_key="image/class/label",
        num_epochs=1,
        shuffle=False,
    )
    seen = {}
    for features, numbers in batches:
        for data, key, number in zip(
            features["image/encoded"].numpy(),
            features["image/filename"].numpy(),
            numbers.numpy(),
            strict=True,
        ):
            assert key.decode() == f"{number}.jpg"
            seen[int(number)] = data
    assert seen == {number: encode(photo(number), "jpeg") for number in range(40)}


def test_parse_single_example(folder: Path) -> None:
    spec = feature_spec(folder)
    files = [f"{folder}/{shard.file}" for shard in read_manifest(str(folder)).splits["test"].shards]
    records = tf.data.TFRecordDataset(files, "GZIP").map(
        lambda record: tf.io.parse_single_example(record, spec)
    )
    for number, features in zip(range(40, 48), records.as_numpy_iterator(), strict=True):
        assert features["image/class/label"] == number
        assert features["image/class/text"] == f"class{number:05d}".encode()
        assert (features["image/height"], features["image/width"], features["image/channels"]) == (
            8,
            12,
            3,
        )
        assert features["image/encoded"] == encode(photo(number), "jpeg")


def test_numpy(folder: Path) -> None:
    for images, numbers in load(folder, split="test", batch_size=8).as_numpy_iterator():
        assert (type(images), images.dtype, numbers.dtype) == (np.ndarray, np.uint8, np.int64)
        for image, number in zip(images, numbers, strict=True):
            np.testing.assert_array_equal(
                image, simplejpeg.decode_jpeg(encode(photo(int(number)), "jpeg"))
            )


TRAIN = """
import keras
import numpy as np
from beam_tfr.reader import load

def make():
    layers = keras.layers
    photo = keras.Input((8, 12, 3), dtype="uint8")
    steps = [photo, layers.Rescaling(1 / 255), layers.Flatten(), layers.Dense(48)]
    model = keras.Sequential(steps)
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                  weighted_metrics=["accuracy"], jit_compile=keras.backend.backend() == "jax")
    return model

keras.utils.set_random_seed(0)
"""
# Keras counts what it evaluates: all 40 examples, though batches have 16, since fillers weigh
# nothing.
FIT = """
train = load(folder, split="train", batch_size=16, remainder="drop", shuffle=True)
weighted = load(folder, split="train", batch_size=16, remainder="pad")
history = model.fit(train, epochs=2, class_weight=dict.fromkeys(range(48), 1.0),
                    validation_data=weighted, shuffle=False, verbose=0).history
assert history["loss"][-1] < history["loss"][0], history["loss"]
accuracy = history["val_accuracy"][-1] * 40
assert abs(accuracy - round(accuracy)) < 1e-4, accuracy
"""


def run(program: str, folder: Path, **variables: str) -> str:
    environment = os.environ | {
        "PYTHONPATH": str(Path(__file__).parents[1]),
        "TF_CPP_MIN_LOG_LEVEL": "3",
        **variables,
    }
    done = subprocess.run(
        [sys.executable, "-c", f"folder = {str(folder)!r}\n{program}"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=250,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_keras(folder: Path) -> None:
    names = {"folder": str(folder)}
    exec(f"{TRAIN}\nassert keras.backend.backend() == 'tensorflow'\nmodel = make()\n{FIT}", names)


@pytest.mark.slow
def test_keras_on_jax(folder: Path) -> None:
    pytest.importorskip("jax", reason="needs JAX: pip install -e '.[dev]'")
    program = f"{TRAIN}\nassert keras.backend.backend() == 'jax'\nmodel = make()\n{FIT}"
    # The recipe of docs/reader.md: hosts are JAX processes.
    program += """
import jax
share = load(folder, split="train", batch_size=16, num_hosts=jax.process_count(),
             host_index=jax.process_index())
images, labels = next(share.as_numpy_iterator())
assert jax.numpy.asarray(images).shape == (16, 8, 12, 3)
"""
    run(program, folder, KERAS_BACKEND="jax")


@pytest.mark.slow
def test_mirrored_strategy_on_two_devices(folder: Path) -> None:
    program = f"""
import tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
{TRAIN}
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
assert strategy.num_replicas_in_sync == 2
with strategy.scope():
    model = make()
train = load(folder, split="train", batch_size=16, remainder="drop", shuffle=True)
losses = model.fit(train, epochs=2, shuffle=False, verbose=0).history["loss"]
assert losses[-1] < losses[0], losses

# Each batch is split among the replicas: every example comes to one of them.
padded = load(folder, split="train", batch_size=16, remainder="pad")
batches = strategy.experimental_distribute_dataset(padded)
seen = []
for images, labels, weights in batches:
    for labels, weights in zip(*map(strategy.experimental_local_results, (labels, weights))):
        seen += labels.numpy()[weights.numpy() == 1].tolist()
assert sorted(seen) == list(range(40)), seen
"""
    run(program, folder, KERAS_BACKEND="tensorflow")
