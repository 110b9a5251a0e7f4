"""`beam-tfr bench`: measures how fast a dataset is read, finds the bottleneck, and suggests a cache."""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import random
import tempfile
import time
from collections.abc import Sequence
from typing import Any

from beam_tfr import storage
from beam_tfr.console.terminal import silent_stderr
from beam_tfr.dataset import manifest
from beam_tfr.dataset.manifest import Manifest, ShardEntry
from beam_tfr.inputs.listing import list_all
from beam_tfr.inputs.patterns import name_folders, order_patterns
from beam_tfr.options.image import VARIABLE_SIZES
from beam_tfr.schema import DataError, UsageError
from beam_tfr.schema.features import IMAGE_ENCODINGS

SECONDS = 2.0  # that each way is read, after its start
BATCH_SIZE = 64
MAX_DECODED_BYTES = 512 << 20  # 512 MiB: what is cached decoded for the measurement
MAX_DISK_BYTES = 256 << 20  # 256 MiB
MAX_LISTED, MAX_FILES = 10_000, 2000  # files to compare with: listed, and drawn from them
TRACED_STEPS = 20
WORTHWHILE = 1.15  # times as fast
SHORT_S = 1.0  # an epoch that needs no cache
PLAIN, ALONE, FILES = "load", "without decoding", "the files one by one"


def measure(folder: str, patterns: Sequence[str] = (), *, tensorboard: str = "") -> dict[str, Any]:
    """Reads the largest split of a dataset in several ways; returns JSON values for `describe`.

    Args:
        folder: folder of the dataset, local or gs://.
        patterns: local patterns of the files that it was made from.
        tensorboard: folder for a trace, which TensorBoard's profiler shows.

    Raises:
        UsageError: TensorFlow is missing, an argument is wrong, or the dataset has no images.
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
    if tensorboard:
        _make_folder(tensorboard)
    files = _files(patterns, dataset) if patterns else None
    variable = dataset.image_options.resize in VARIABLE_SIZES
    examples = dataset.splits[split].num_examples
    ways: dict[str, tuple[float, float]] = {}  # (images/s, CPU seconds for an image)

    def read(name: str, part: str = split, **options: Any) -> float:
        sizes = "ragged" if variable and options.get("output") != "encoded" else None
        batches = load(folder, split=part, batch_size=BATCH_SIZE, shuffle=True, repeat=True, sizes=sizes, **options)
        ways[name] = _rate(batches, skip=epoch if "cache" in options else 1)
        return ways[name][0]

    rate = read(PLAIN)
    read(ALONE, output="encoded")
    # Caches are filled by a whole epoch, so they get a part that is read in a few seconds.
    decoded = 3 * math.prod(dataset.image_options.image_size)
    cached = int(min(examples, max(BATCH_SIZE, rate * SECONDS), max(1, MAX_DECODED_BYTES // decoded)))
    part, epoch = f"{split}[:{cached}]", -(-cached // BATCH_SIZE)
    with tempfile.TemporaryDirectory(prefix="beam_tfr-bench-") as scratch:
        read('cache="memory"', part, cache="memory")
        read("cache=FOLDER", part, cache=scratch)
        if not variable:
            read('cache="memory", cache_decoded=True', part, cache="memory", cache_decoded=True)
    if files is not None:
        ways[FILES] = _rate(files, skip=1)
    if tensorboard:
        _trace(load(folder, split=split, batch_size=BATCH_SIZE, shuffle=True, repeat=True, output="image"), tensorboard)
    disk = _disk_rate(folder, dataset.splits[split].shards)
    rates = {name: way[0] for name, way in ways.items()}
    return {
        "folder": folder,
        "split": split,
        "examples": examples,
        "batch_size": BATCH_SIZE,
        "images_per_s": rates,
        "disk_images_per_s": disk,
        "decoder_share": max(0.0, 1 - ways[ALONE][1] / ways[PLAIN][1]),
        "disk_share": min(1.0, rates[PLAIN] / disk),
        "suggestion": _suggest(rates, examples, dataset.splits[split].num_bytes, decoded * examples),
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


def _files(patterns: Sequence[str], dataset: Manifest) -> Any:
    """Endless batches of files, each opened, decoded and resized by itself, on all cores."""
    import tensorflow as tf

    checked = [storage.check_path(pattern, option="input") for pattern in patterns]
    if any(map(storage.is_gcs, checked)):
        raise UsageError("files to compare with DIR must be on a local disk", option="input", value=patterns[0])
    listed = sorted(itertools.islice(list_all(order_patterns(name_folders(checked))), MAX_LISTED))
    drawn = random.Random(0).sample(listed, min(MAX_FILES, len(listed)))  # noqa: S311  # nosec B311  # no secret
    paths = [entry.path for entry in drawn]

    def decode(path: Any) -> Any:
        image = tf.io.decode_image(tf.io.read_file(path), channels=3, expand_animations=False)
        return tf.cast(tf.image.resize(image, dataset.image_options.image_size), tf.uint8)

    images = tf.data.Dataset.from_tensor_slices(paths).repeat().map(decode, num_parallel_calls=tf.data.AUTOTUNE)
    return images.ignore_errors().batch(BATCH_SIZE).prefetch(tf.data.AUTOTUNE)


def _make_folder(folder: str) -> None:
    """Makes the folder for a trace, before anything is measured.

    Raises:
        UsageError: it cannot be made.
    """
    import tensorflow as tf

    try:
        tf.io.gfile.makedirs(folder)
    except tf.errors.OpError as error:
        raise UsageError(
            f"cannot be created: {error.message}; give a folder that you may write to",
            option="tensorboard",
            value=folder,
        ) from None


def _trace(batches: Any, folder: str) -> None:
    import tensorflow as tf

    iterator = iter(batches)
    next(iterator)
    with tf.profiler.experimental.Profile(folder):
        for step in range(TRACED_STEPS):
            with tf.profiler.experimental.Trace("read", step_num=step, _r=1):
                next(iterator)


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


def _suggest(rates: dict[str, float], examples: int, num_bytes: int, decoded_bytes: int) -> str:
    """The recommended arguments of `load`."""
    if (epoch_s := examples / rates[PLAIN]) < SHORT_S:
        return f"load as it is; it reads all {examples:,} in {epoch_s:.2f} s"
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    needs = {'cache="memory"': num_bytes, 'cache="memory", cache_decoded=True': decoded_bytes}
    gains = {
        name: rate / rates[PLAIN]
        for name, rate in rates.items()
        if name.startswith("cache") and needs.get(name, 0) < memory / 2
    }
    best = max(gains, key=lambda name: gains[name], default="")
    if not best or gains[best] < WORTHWHILE:
        return "none: no cache that fits makes load much faster"
    space = f", {needs[best] / 1e9:,.1f} GB of memory" if best in needs else ""
    return f"load(…, {best}): {gains[best]:.1f} times as fast after the first epoch{space}"


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
        f"decoder:    {found['decoder_share']:.0%} of the CPU time",
        f"disk:       {found['disk_share']:.0%} of the time",
        f"suggestion: {found['suggestion']}",
    ]
    return "\n".join(lines)


def forget(path: str) -> None:
    """Asks the system to drop a local file from memory, so that the next read comes from the disk."""
    if not storage.is_gcs(path) and hasattr(os, "posix_fadvise"):
        with contextlib.suppress(OSError), open(path, "rb", opener=_without_waiting) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # a pipe would wait for whoever writes into it
