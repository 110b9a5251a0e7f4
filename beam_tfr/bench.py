"""`beam-tfr bench`: measures how fast a dataset is read, and what decoding takes of it."""

import os
import time
from typing import Any

from beam_tfr.console.terminal import silent_stderr
from beam_tfr.dataset import manifest
from beam_tfr.options.image import VARIABLE_SIZES
from beam_tfr.schema.errors import DataError, UsageError
from beam_tfr.schema.features import IMAGE_ENCODINGS

SECONDS = 2.0  # that each way is read, after its start
BATCH_SIZE = 64


def measure(folder: str) -> dict[str, Any]:
    """Reads the largest split of a dataset in several ways; returns JSON values for `describe`.

    Args:
        folder: folder of the dataset, local or gs://.

    Raises:
        UsageError: TensorFlow is missing, or the dataset has no images.
        DataError: the folder holds no complete dataset, or an empty one.
    """
    dataset = manifest.read(folder)
    if dataset.image_options.encoding not in IMAGE_ENCODINGS:
        raise UsageError(f"{folder} holds no images (`encoding={dataset.image_options.encoding}`)")
    split = max(dataset.splits, key=lambda name: dataset.splits[name].num_examples, default="")
    if not split or not dataset.splits[split].num_examples:
        raise DataError(f"{folder} holds no examples")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with silent_stderr():
        from beam_tfr.reader import load
    variable = dataset.image_options.resize in VARIABLE_SIZES

    def read(**options: Any) -> tuple[float, float]:
        return _rate(load(folder, split=split, batch_size=BATCH_SIZE, shuffle=True, repeat=True, **options))

    plain, plain_cpu = read(sizes="ragged" if variable else None)
    alone, alone_cpu = read(output="encoded")
    return {
        "folder": folder,
        "split": split,
        "examples": dataset.splits[split].num_examples,
        "batch_size": BATCH_SIZE,
        "images_per_s": plain,
        "images_per_s_without_decoding": alone,
        "decoder_share": max(0.0, 1 - alone_cpu / plain_cpu),
    }


def _rate(batches: Any) -> tuple[float, float]:
    """Images per second of endless batches, and CPU seconds per image, after the first batch."""
    import tensorflow as tf

    iterator = iter(batches)
    next(iterator)
    wall, cpu, images = time.perf_counter(), time.process_time(), 0
    while (spent := time.perf_counter() - wall) < SECONDS or not images:
        element = next(iterator)
        images += int(tf.nest.flatten(element, expand_composites=False)[0].shape[0])
    return images / spent, (time.process_time() - cpu) / images


def describe(found: dict[str, Any]) -> str:
    """The result of `measure` as text."""
    return (
        f"split {found['split']}: {found['examples']:,} examples, batches of {found['batch_size']}\n"
        f"{found['images_per_s']:,.0f} images/s, {found['images_per_s_without_decoding']:,.0f} without decoding, which "
        f"takes {found['decoder_share']:.0%} of the CPU time"
    )
