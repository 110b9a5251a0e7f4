"""Trains a small detector with Keras: the box and the class of the largest object in each image.

python examples/detect_keras.py DATASET, which is a folder that `beam-tfr convert` wrote, with boxes.
"""

from __future__ import annotations

import sys

import keras
import tensorflow as tf

from beam_tfr.reader import load

SIZE, MOST = 96, 64  # pixels; boxes of an image
SIDES = [f"image/object/bbox/{side}" for side in ("xmin", "ymin", "xmax", "ymax")]


def largest(record):
    """The image, and its largest box with its class; without objects a box that counts for nothing."""
    boxes = tf.stack([record[side] for side in SIDES], axis=-1).to_tensor(0.0, shape=(None, MOST, 4))
    labels = record["image/object/class/label"].to_tensor(-1, shape=(None, MOST))
    sizes = tf.reduce_prod(boxes[:, :, 2:] - boxes[:, :, :2], axis=-1)
    first = tf.argmax(sizes, axis=1)
    box, label = (tf.gather(of, first, axis=1, batch_dims=1) for of in (boxes, labels))
    there = tf.cast(label >= 0, tf.float32)
    return record["image"], {"box": box, "label": tf.maximum(label, 0)}, {"box": there, "label": there}


def make_model(num_classes: int) -> keras.Model:
    image = keras.Input((SIZE, SIZE, 3))
    x = keras.layers.Rescaling(1 / 127.5, offset=-1)(image)
    for filters in (16, 32, 64, 64):
        x = keras.layers.Conv2D(filters, 3, strides=2, padding="same", activation="relu")(x)
    x = keras.layers.Dense(128, activation="relu")(keras.layers.Flatten()(x))
    box = keras.layers.Dense(4, activation="sigmoid", name="box")(x)
    return keras.Model(image, {"box": box, "label": keras.layers.Dense(num_classes, name="label")(x)})


def train(folder: str, *, epochs: int = 8, steps: int = 20) -> list[float]:
    """Trains; returns the mean loss of each epoch."""
    keras.utils.set_random_seed(1)
    records = load(folder, split="train", batch_size=16, shuffle=True, repeat=True, output="dict", image_size=SIZE)
    model = make_model(len(records.class_names))
    losses = {
        "box": keras.losses.MeanAbsoluteError(),
        "label": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    }
    model.compile("adam", losses, loss_weights={"box": 5.0, "label": 1.0}, jit_compile=False)
    return model.fit(records.map(largest), steps_per_epoch=steps, epochs=epochs, verbose=2).history["loss"]


if __name__ == "__main__":
    train(sys.argv[1])
