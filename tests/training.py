"""A training with Keras that can be killed and goes on: `reader.fit`, as a program.

Arguments: dataset, seed, batch after which the process kills itself (0: never), and folders in each
of which it trains: for backups, the losses `l` and, at the end, the weights `l.npz`.
"""

from __future__ import annotations

import json
import os
import signal
import sys

import keras
import numpy as np
import tensorflow as tf

from beam_tfr.reader import fit

EPOCHS, BATCH_SIZE = 3, 8


class Losses(keras.callbacks.Callback):
    """Writes down loss and weights after each batch, and dies when it is told to."""

    def __init__(self, path: str, kill_after: int):
        super().__init__()
        self.path, self.kill_after = path, kill_after

    def on_train_batch_begin(self, batch, logs=None):
        # so that the loss is that of the batch, not the mean since the epoch began
        self.model.reset_metrics()

    def on_train_batch_end(self, batch, logs=None):
        done = int(self.model.optimizer.iterations.numpy())
        with open(self.path, "a") as file:
            weights = sum(float(np.abs(weight).sum()) for weight in self.model.get_weights())
            file.write(
                json.dumps({"step": done, "loss": float(logs["loss"]), "weights": weights}) + "\n"
            )
        if done == self.kill_after:
            os.kill(os.getpid(), signal.SIGKILL)


def train(folder: str, backups: str, seed: int, kill_after: int, losses: str) -> keras.Model:
    keras.utils.set_random_seed(seed)
    tf.config.experimental.enable_op_determinism()
    model = keras.Sequential(
        [
            keras.Input((8, 12, 3), dtype="uint8"),
            keras.layers.Rescaling(1 / 255),
            keras.layers.Conv2D(4, 3, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(41),
        ]
    )
    model.compile(
        "adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False
    )

    fit(
        model,
        folder,
        epochs=EPOCHS,
        backup=backups,
        save_freq=3,
        callbacks=[Losses(losses, kill_after)],
        fit_options={"verbose": 0},
        split="train",
        batch_size=BATCH_SIZE,
        seed=seed,
    )
    return model


if __name__ == "__main__":
    dataset, seed, kill_after, *folders = sys.argv[1:]
    for folder in folders:
        trained = train(dataset, f"{folder}/backup", int(seed), int(kill_after), f"{folder}/l")
        np.savez(
            f"{folder}/l.npz",
            *trained.get_weights(),
            *[v.numpy() for v in trained.optimizer.variables],
        )
