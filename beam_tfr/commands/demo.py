"""The command `demo`: converts, verifies, reads and trains on the bundled photos, offline and in under a minute."""

from __future__ import annotations

import argparse
import functools
import importlib.util
import json
import os
import pathlib
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from beam_tfr.console.terminal import silent_stderr
from beam_tfr.options import ConvertOptions
from beam_tfr.schema import DataError, UsageError

if TYPE_CHECKING:
    from beam_tfr.dataset.manifest import Manifest

SAMPLE = pathlib.Path(__file__).parents[1] / "sample"
LAYOUT = "{split}/{label}/*"
BATCH_SIZE = 8
EPOCHS = 2
SEED = 7
_say = functools.partial(print, flush=True)


def demo(output: str) -> None:
    """Converts the bundled sample to `output`, trains a small model on it and prints what it did.

    Writes nowhere else. If the folder already holds this dataset, it is used as it is.

    Raises:
        UsageError: TensorFlow is not installed, or `output` holds another dataset.
        DataError: the dataset does not verify.
    """
    if importlib.util.find_spec("tensorflow") is None:
        raise UsageError("the demo trains a model, which needs TensorFlow: pip install 'beam_tfr[convert,reader]'")
    dataset = _convert(output)
    _verify(dataset)
    with tempfile.TemporaryDirectory(prefix="beam_tfr-") as home:
        os.environ["KERAS_HOME"] = home  # Keras writes a file there on import
        os.environ["KERAS_BACKEND"] = "tensorflow"
        _train(dataset)
    _say_what_next(dataset)


def _convert(output: str) -> Manifest:
    from beam_tfr import launch  # Beam

    folder = re.sub(r"[*?\[{]", r"[\g<0>]", str(SAMPLE))  # escape wildcards in the folder's own name
    result = launch.convert(ConvertOptions(input=(f"{folder}/*/*/*.jpg",), output=output, layout=LAYOUT))
    dataset = result.manifest
    splits = ", ".join(f"{split.num_examples} {name}" for name, split in dataset.splits.items())
    photos = f"{dataset.counts['matched']} photos of {len(dataset.class_names)} classes of clothes"
    took = f", {result.seconds:.1f} s" if result.fresh else "; already converted"
    _say(f"converted   {photos}: {splits}{took}")
    return dataset


def _verify(dataset: Manifest) -> None:
    from beam_tfr.verification import verify

    report = verify(dataset.folder)
    if not report.ok:
        raise DataError(f"{report.problems[0]}; beam-tfr verify {shlex.quote(dataset.folder)} lists all problems")
    read, shards = report.counts["records_read"], report.counts["shards"]
    _say(f"verified    {read} records in {shards} files: checksums, images, labels, counts")


def _train(dataset: Manifest) -> None:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with silent_stderr():
        import keras

        from beam_tfr.reader import load

    train = load(dataset.folder, split="train", batch_size=BATCH_SIZE, shuffle=True, seed=SEED)
    validation = load(dataset.folder, split="validation", batch_size=BATCH_SIZE)
    images, labels = next(iter(train))
    _say(f"read back   batches of {images.dtype.name} {[*images.shape]} and {labels.dtype.name} {[*labels.shape]}")

    keras.utils.set_random_seed(SEED)
    model = _make_model(images.shape[1:], len(dataset.class_names))
    # shuffle is Keras's own, for arrays; left on, it warns that it does nothing here.
    history = model.fit(train, validation_data=validation, epochs=EPOCHS, shuffle=False, verbose=0).history
    for epoch in range(EPOCHS):
        loss, accuracy, validated = (history[name][epoch] for name in ("loss", "accuracy", "val_accuracy"))
        _say(f"trained     epoch {epoch + 1}: loss {loss:.2f}, accuracy {accuracy:.2f}, on validation {validated:.2f}")


def _make_model(image_shape: Any, num_classes: int) -> Any:
    """A network small enough to train on a hundred photos in seconds."""
    import keras
    from keras import layers

    model = keras.Sequential(
        [
            keras.Input(image_shape, dtype="uint8"),
            layers.Rescaling(1 / 127.5, offset=-1),
            layers.Resizing(32, 32),
            layers.Conv2D(16, 3, strides=2, activation="relu"),
            layers.Conv2D(32, 3, strides=2, activation="relu"),
            layers.Flatten(),
            layers.Dense(num_classes),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.003), loss, metrics=["accuracy"])
    return model


def _say_what_next(dataset: Manifest) -> None:
    folder = dataset.folder
    program = f'from beam_tfr.reader import load; print(load({json.dumps(folder)}, split="train", batch_size=32))'
    _say(f"\nThe dataset (shards, labels.txt, manifest.json) is in {folder}. A hundred photos teach a model little.")
    _say("Next steps; the first needs a folder of your own with a folder of photos for each class:\n")
    beam_tfr, python = _command("beam-tfr"), _command("python")
    _say(f"  {beam_tfr} convert --input 'photos/**/*.jpg' --output photos_dataset")
    _say(f"  {beam_tfr} verify {shlex.quote(folder)}")
    _say(f"  {python} -c {shlex.quote(program)}")


def _command(name: str) -> str:
    """A program of this environment as typed here: with its folder, unless it is on the PATH."""
    path = os.path.join(os.path.dirname(sys.executable), name)
    if not os.path.exists(path) or shutil.which(name) == path:
        return name
    return shlex.quote(os.path.relpath(path))


def add(add_parser: Callable[..., argparse.ArgumentParser]) -> None:
    """Adds the command."""
    parser = add_parser(
        "demo",
        help="convert, verify, read and train on the bundled sample photos",
        description="Converts, verifies and reads the bundled sample photos of clothes, and trains a small model on "
        "them. Needs no network.",
    )
    parser.add_argument(
        "--output", metavar="DIR", default="beam_tfr_demo", help="folder of the dataset (default: %(default)s)"
    )
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace, _: Sequence[str]) -> int:
    """Runs the demo."""
    demo(parsed.output)
    return 0
