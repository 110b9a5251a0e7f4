"""Measures how fast this machine reads a dataset.

The time that decoding takes of it is in seconds. For the speed of a conversion, see beam-tfr plan.
"""

import argparse
import os
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from beam_tfr import storage
from beam_tfr.console.terminal import silent_stderr
from beam_tfr.schema.encodings import IMAGE_ENCODINGS
from beam_tfr.schema.errors import UsageError

HELP = "measure how fast this machine reads a dataset"
SECONDS = 2.0  # that each way is read, after its start
BATCH_SIZE = 64


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR", help="folder of a dataset, on disk or gs://")


def run(parsed: argparse.Namespace, _: Sequence[str]) -> int:
    """Reads the largest split of a dataset in two ways, and prints how fast."""
    from beam_tfr.dataset.manifest import read_manifest

    folder = storage.check_path(parsed.folder)
    manifest = read_manifest(folder)
    options = manifest.image_options
    if options.encoding not in IMAGE_ENCODINGS:
        raise UsageError(f"{folder} holds no images (`encoding={options.encoding}`)")
    examples = {name: split.num_examples for name, split in manifest.splits.items()}
    largest = max(examples, key=lambda name: examples[name], default="train")
    sizes = None if options.stored_size else "ragged"
    decoding = _measure_reading(folder, largest, sizes=sizes)
    reading = _measure_reading(folder, largest, output="encoded")
    share = max(0.0, 1 - reading.cpu_s / decoding.cpu_s)
    print(f"split {largest}: {examples[largest]:,} examples, batches of {BATCH_SIZE}")
    print(
        f"{decoding.images_per_s:,.0f} images/s, {reading.images_per_s:,.0f} without decoding, "
        f"which takes {share:.0%} of the CPU time"
    )
    return 0


class _Speed(NamedTuple):
    """How fast images are read.

    Attributes:
        images_per_s: by the clock.
        cpu_s: CPU time for an image, of all threads.
    """

    images_per_s: float
    cpu_s: float


def _measure_reading(folder: str, split: str, **options: Any) -> _Speed:
    """Reads endless batches for `SECONDS` after the first one."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with silent_stderr():
        from beam_tfr.reader import load
    import tensorflow as tf

    batches = iter(
        load(folder, split=split, batch_size=BATCH_SIZE, shuffle=True, repeat=True, **options)
    )
    next(batches)
    began = time.perf_counter()
    cpu_began = time.process_time()
    images = 0
    elapsed_s = 0.0
    while elapsed_s < SECONDS:
        tensors = tf.nest.flatten(next(batches), expand_composites=False)
        images += int(tensors[0].shape[0])
        elapsed_s = time.perf_counter() - began
    return _Speed(images / elapsed_s, (time.process_time() - cpu_began) / images)
