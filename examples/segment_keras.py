"""Trains a small segmentation network with Keras.

python examples/segment_keras.py DATASET CLASSES, where DATASET is a folder that `beam-tfr convert`
wrote, with masks of the ids 0 to CLASSES - 1; 255 is ignored.
"""

from __future__ import annotations

import sys

import keras

from beam_tfr import reader

SIZE = 64


def make_model(num_classes: int) -> keras.Model:
    image = keras.Input((SIZE, SIZE, 3))
    x = keras.layers.Rescaling(1 / 127.5, offset=-1)(image)
    fine = keras.layers.Conv2D(16, 3, padding="same", activation="relu")(x)
    coarse = keras.layers.Conv2D(32, 3, strides=4, padding="same", activation="relu")(fine)
    coarse = keras.layers.Conv2D(32, 3, padding="same", activation="relu")(coarse)
    both = keras.layers.Concatenate()([fine, keras.layers.UpSampling2D(4)(coarse)])
    return keras.Model(image, keras.layers.Conv2D(num_classes, 1)(both))


def train(folder: str, num_classes: int, *, epochs: int = 8, steps: int = 20) -> list[float]:
    """Trains; returns the mean loss of each epoch."""
    keras.utils.set_random_seed(1)
    examples = reader.load(
        folder,
        split="train",
        batch_size=16,
        shuffle=True,
        repeat=True,
        image_size=SIZE,
        crop="random",  # the masks follow
        output="dict",
    )
    examples = examples.map(lambda example: (example["image"], example["mask"]))
    model = make_model(num_classes)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=255)
    model.compile(keras.optimizers.Adam(0.01), loss, jit_compile=False)
    return model.fit(examples, steps_per_epoch=steps, epochs=epochs, verbose=2).history["loss"]


if __name__ == "__main__":
    train(sys.argv[1], int(sys.argv[2]))
