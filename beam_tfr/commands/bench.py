"""Measures how fast this machine reads a dataset, and what decoding takes of it, in seconds. For
the speed of a conversion, see beam-tfr plan.
"""

import argparse
import os
import time
from collections.abc import Sequence
from typing import Any

from beam_tfr import storage
from beam_tfr.console.terminal import silent_stderr
from beam_tfr.schema.encodings import IMAGE_ENCODINGS
from beam_tfr.schema.errors import UsageError

HELP = "measure how fast this machine reads a dataset"
SECONDS = 2.0  # that each way is read, after its start
BATCH_SIZE = 64


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the flags."""
    parser.add_argument("folder", metavar="DIR", help="folder of a dataset, on disk or gs://")


def run(parsed: argparse.Namespace, _: Sequence[str]) -> int:
    """Reads the largest split of a dataset in two ways, and prints how fast."""
    from beam_tfr.dataset.manifest import read_manifest

    folder = storage.check_path(parsed.folder)
    dataset = read_manifest(folder)
    if dataset.image_options.encoding not in IMAGE_ENCODINGS:
        raise UsageError(f"{folder} holds no images (`encoding={dataset.image_options.encoding}`)")
    split = max(dataset.splits, key=lambda name: dataset.splits[name].num_examples, default="train")
    plain, cpu = _rate(folder, split, sizes=None if dataset.image_options.stored_size else "ragged")
    encoded, encoded_cpu = _rate(folder, split, output="encoded")
    examples = dataset.splits[split].num_examples
    share = max(0.0, 1 - encoded_cpu / cpu)
    print(f"split {split}: {examples:,} examples, batches of {BATCH_SIZE}")
    print(
        f"{plain:,.0f} images/s, {encoded:,.0f} without decoding, which takes {share:.0%} of the CPU time"
    )
    return 0


def _rate(folder: str, split: str, **options: Any) -> tuple[float, float]:
    """Images per second of endless batches, and CPU seconds per image, after the first batch."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with silent_stderr():
        from beam_tfr.reader import load
    import tensorflow as tf

    iterator = iter(
        load(folder, split=split, batch_size=BATCH_SIZE, shuffle=True, repeat=True, **options)
    )
    next(iterator)
    wall = time.perf_counter()
    cpu = time.process_time()
    images = 0
    while (spent := time.perf_counter() - wall) < SECONDS or not images:
        element = next(iterator)
        images += int(tf.nest.flatten(element, expand_composites=False)[0].shape[0])
    return images / spent, (time.process_time() - cpu) / images
