"""`beam-tfr bench`: measures how fast a dataset is read, with and without caches, and what decoding takes of it."""

from __future__ import annotations

import math
import os
import time
from typing import Any

from beam_tfr.console.terminal import silent_stderr
from beam_tfr.dataset import manifest
from beam_tfr.options.image import VARIABLE_SIZES
from beam_tfr.schema import DataError, UsageError
from beam_tfr.schema.features import IMAGE_ENCODINGS

SECONDS = 2.0  # that each way is read, after its start
BATCH_SIZE = 64
MAX_DECODED_BYTES = 512 << 20  # 512 MiB: what is cached decoded for the measurement
PLAIN, ALONE = "load", "without decoding"


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
    try:
        with silent_stderr():
            from beam_tfr.reader import load
    except ImportError as error:
        raise UsageError(str(error)) from None
    variable = dataset.image_options.resize in VARIABLE_SIZES
    examples = dataset.splits[split].num_examples
    ways: dict[str, tuple[float, float]] = {}  # (images/s, CPU seconds for an image)

    def read(name: str, part: str = split, *, skip: int = 1, **options: Any) -> None:
        sizes = "ragged" if variable and options.get("output") != "encoded" else None
        batches = load(folder, split=part, batch_size=BATCH_SIZE, shuffle=True, repeat=True, sizes=sizes, **options)
        ways[name] = _rate(batches, skip=skip)

    read(PLAIN)
    read(ALONE, output="encoded")
    # Caches are filled by a whole epoch, so they get a part that is read in a few seconds.
    decoded = 3 * math.prod(dataset.image_options.image_size)
    cached = int(min(examples, max(BATCH_SIZE, ways[PLAIN][0] * SECONDS), max(1, MAX_DECODED_BYTES // decoded)))
    part, epoch = f"{split}[:{cached}]", -(-cached // BATCH_SIZE)
    read('cache="memory"', part, skip=epoch, cache="memory")
    if not variable:
        read('cache="memory", cache_decoded=True', part, skip=epoch, cache="memory", cache_decoded=True)
    return {
        "folder": folder,
        "split": split,
        "examples": examples,
        "batch_size": BATCH_SIZE,
        "images_per_s": {name: rate for name, (rate, _) in ways.items()},
        "decoder_share": max(0.0, 1 - ways[ALONE][1] / ways[PLAIN][1]),
    }


def _rate(batches: Any, *, skip: int) -> tuple[float, float]:
    """Images per second of endless batches, and CPU seconds per image, after the first `skip` batches."""
    import tensorflow as tf

    iterator = iter(batches)
    for _ in range(skip):
        next(iterator)
    wall, cpu, images = time.perf_counter(), time.process_time(), 0
    while (spent := time.perf_counter() - wall) < SECONDS or not images:
        element = next(iterator)
        images += int(tf.nest.flatten(element, expand_composites=False)[0].shape[0])
    return images / spent, (time.process_time() - cpu) / images


def describe(found: dict[str, Any]) -> str:
    """The result of `measure` as text."""
    first = found["images_per_s"][PLAIN]
    lines = [
        f"split {found['split']}: {found['examples']:,} examples, batches of {found['batch_size']}",
        "",
        f"{'':<36}{'images/s':>10}{'load = 1':>10}",
        *(f"{name:<36}{rate:>10,.0f}{rate / first:>10.2f}" for name, rate in found["images_per_s"].items()),
        "",
        f"decoder: {found['decoder_share']:.0%} of the CPU time",
    ]
    return "\n".join(lines)
