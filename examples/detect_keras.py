"""Trains a small detector with Keras: the box and the class of the first object in each image.

python examples/detect_keras.py DATASET, which is a folder that `beam-tfr convert` wrote, with
boxes.
"""

from __future__ import annotations

import sys

import keras
import tensorflow as tf

from beam_tfr import reader

SIZE = 96


def with_weights(images, objects):
    """Adds weights: an image without an object has a box of zeros and the class -1, from which
    nothing is learned."""
    there = tf.cast(objects["classes"] >= 0, tf.float32)
    return images, objects, {"boxes": there, "classes": there}


def make_model(num_classes: int) -> keras.Model:
    image = keras.Input((SIZE, SIZE, 3))
    x = keras.layers.Rescaling(1 / 127.5, offset=-1)(image)
    for filters in (16, 32, 64, 64):
        x = keras.layers.Conv2D(filters, 3, strides=2, padding="same", activation="relu")(x)
    x = keras.layers.Dense(128, activation="relu")(keras.layers.Flatten()(x))
    boxes = keras.layers.Dense(4, activation="sigmoid")(x)
    classes = keras.layers.Dense(num_classes)(x)
    return keras.Model(
        image,
        {
            "boxes": keras.layers.Reshape((1, 4), name="boxes")(boxes),
            "classes": keras.layers.Reshape((1, num_classes), name="classes")(classes),
        },
    )


def train(folder: str, *, epochs: int = 8, steps: int = 20) -> list[float]:
    """Trains; returns the mean loss of each epoch."""
    keras.utils.set_random_seed(1)
    examples = reader.load(
        folder,
        split="train",
        batch_size=16,
        shuffle=True,
        repeat=True,
        image_size=SIZE,
        crop="random",  # the boxes follow
        boxes="rel_xyxy",
        max_boxes=1,
    )
    model = make_model(len(examples.class_names))
    losses = {
        "boxes": keras.losses.MeanAbsoluteError(),
        "classes": keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=-1),
    }
    model.compile("adam", losses, loss_weights={"boxes": 5.0, "classes": 1.0}, jit_compile=False)
    return model.fit(
        examples.map(with_weights), steps_per_epoch=steps, epochs=epochs, verbose=2
    ).history["loss"]


if __name__ == "__main__":
    train(sys.argv[1])
