"""`beam-tfr bench`: measures how fast a dataset is read, and finds the bottleneck."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from typing import Any

from beam_tfr import storage
from beam_tfr.console.terminal import silent_stderr
from beam_tfr.dataset import manifest
from beam_tfr.dataset.manifest import ShardEntry
from beam_tfr.options.image import VARIABLE_SIZES
from beam_tfr.schema import DataError, UsageError
from beam_tfr.schema.features import IMAGE_ENCODINGS

SECONDS = 2.0  # that each way is read, after its start
BATCH_SIZE = 64
MAX_DISK_BYTES = 256 << 20  # 256 MiB
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

    def read(**options: Any) -> tuple[float, float]:
        return _rate(load(folder, split=split, batch_size=BATCH_SIZE, shuffle=True, repeat=True, **options))

    plain, plain_cpu = read(sizes="ragged" if variable else None)
    alone, alone_cpu = read(output="encoded")
    disk = _disk_rate(folder, dataset.splits[split].shards)
    return {
        "folder": folder,
        "split": split,
        "examples": dataset.splits[split].num_examples,
        "batch_size": BATCH_SIZE,
        "images_per_s": {PLAIN: plain, ALONE: alone},
        "disk_images_per_s": disk,
        "decoder_share": max(0.0, 1 - alone_cpu / plain_cpu),
        "disk_share": min(1.0, plain / disk),
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


def _disk_rate(folder: str, shards: Sequence[ShardEntry]) -> float:
    """Images per second whose bytes come from the disk, or from gs://, and not from memory."""
    read_bytes, images, spent = 0, 0.0, 0.0
    for shard in shards:
        path = storage.join(folder, shard.file)
        forget(path)
        started = time.perf_counter()
        with storage.open_binary(path) as file:
            size = len(file.read(MAX_DISK_BYTES))
        spent += time.perf_counter() - started
        read_bytes += size
        images += shard.num_examples * size / shard.num_bytes
        if spent > SECONDS or read_bytes >= MAX_DISK_BYTES:
            break
    return images / spent


def describe(found: dict[str, Any]) -> str:
    """The result of `measure` as text."""
    first = found["images_per_s"][PLAIN]
    lines = [
        f"split {found['split']}: {found['examples']:,} examples, batches of {found['batch_size']}",
        "",
        f"{'':<36}{'images/s':>10}{'load = 1':>10}",
        *(f"{name:<36}{rate:>10,.0f}{rate / first:>10.2f}" for name, rate in found["images_per_s"].items()),
        f"{'disk alone':<36}{found['disk_images_per_s']:>10,.0f}{found['disk_images_per_s'] / first:>10.2f}",
        "",
        f"decoder: {found['decoder_share']:.0%} of the CPU time",
        f"disk:    {found['disk_share']:.0%} of the time",
    ]
    return "\n".join(lines)


def forget(path: str) -> None:
    """Asks the system to drop a local file from memory, so that the next read comes from the disk."""
    if not storage.is_gcs(path) and hasattr(os, "posix_fadvise"):
        with contextlib.suppress(OSError), open(path, "rb", opener=_without_waiting) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # a pipe would wait for whoever writes into it
