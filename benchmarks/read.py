"""How fast `beam_tfr.reader` reads, beside the reader of the tutorials and beside decoding alone.

    python benchmarks/read.py PHOTOS [--times 1] [--turns 5]

Photos are converted several times with the same options, to one shard and to 97, stored, compressed and plain. All
readers take turns in one process, each for an epoch, from a fresh iterator whose first batches do not count; ratios are
taken within a turn, and the medians of those are what to compare.
"""

from __future__ import annotations

import argparse
import dataclasses
import glob
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from convert import ROOT, SUFFIX, make_corpus  # beside this program

from beam_tfr.reader import load

WARM_UP = 512  # images at the beginning of a turn that do not count
EPOCHS = 6  # for memory
VARIANTS = {
    "1 shard": ["--num_shards", "1"],
    "97 shards": ["--num_shards", "97"],
    "zlib 6": ["--num_shards", "97", "--gzip_level", "6"],
    "none": ["--num_shards", "97", "--compression", "none"],
}
SPEC = {
    "image/encoded": tf.io.FixedLenFeature([], tf.string),
    "image/class/label": tf.io.FixedLenFeature([], tf.int64),
}
FIRST_BATCH = """
import os, sys, time
began = time.perf_counter()
import tensorflow
imported = time.perf_counter()
from beam_tfr.reader import load
next(iter(load(sys.argv[1], split="train", batch_size=64, shuffle=True)))
print(imported - began, time.perf_counter() - began)
"""
MEMORY = """
import sys
from beam_tfr.reader import load
batches = load(sys.argv[1], split="train", batch_size=64, shuffle=True, repeat=True)
steps = load(sys.argv[1], split="train", batch_size=64).cardinality().numpy()
for number, _ in enumerate(batches.take(steps * int(sys.argv[2])), 1):
    if number % steps == 0:
        with open("/proc/self/status") as status:
            print(next(line for line in status if line.startswith("VmRSS")).split()[1])
"""


@dataclasses.dataclass(frozen=True)
class Speed:
    """Of one turn: seconds of wall clock, and of the CPU of all threads, for an image."""

    wall_s: float
    cpu_s: float


def convert(corpus: pathlib.Path, folder: pathlib.Path, variants: dict[str, list[str]]) -> dict[str, str]:
    """Variant -> its dataset."""
    for name, flags in variants.items():
        command = [sys.executable, "-m", "beam_tfr", "convert", "--input", f"{corpus}/{SUFFIX}", "--name", "photos"]
        command += ["--output", str(folder / name), *flags]
        run = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
        if run.returncode:
            raise SystemExit(f"exit code {run.returncode}: {' '.join(command)}\n{run.stderr}")
    return {name: str(folder / name) for name in variants}


def tutorial(folder: str, batch_size: int) -> tf.data.Dataset:
    """The reader that tutorials teach: example by example, to float32."""

    def parse(record: Any) -> Any:
        example = tf.io.parse_single_example(record, SPEC)
        image = tf.cast(tf.io.decode_jpeg(example["image/encoded"], channels=3), tf.float32) / 255.0
        return tf.ensure_shape(image, [224, 224, 3]), example["image/class/label"]

    files = sorted(glob.glob(f"{folder}/*.tfrecord.gz"))
    records = tf.data.TFRecordDataset(files, "GZIP", num_parallel_reads=tf.data.AUTOTUNE).shuffle(2048)
    return records.map(parse, num_parallel_calls=tf.data.AUTOTUNE).batch(batch_size).prefetch(tf.data.AUTOTUNE)


def decoding_alone(folder: str, batch_size: int) -> tf.data.Dataset:
    """The same JPEGs from memory, decoded by all cores and batched: nothing is read, parsed or shuffled."""
    records = list(tf.data.TFRecordDataset(sorted(glob.glob(f"{folder}/*.tfrecord.gz")), "GZIP"))
    encoded = tf.io.parse_example(records, SPEC)["image/encoded"]

    def decode(data: Any) -> Any:
        image = tf.io.decode_jpeg(data, channels=3, dct_method="INTEGER_ACCURATE")
        return tf.ensure_shape(image, [224, 224, 3])

    images = tf.data.Dataset.from_tensor_slices(encoded).map(decode, num_parallel_calls=tf.data.AUTOTUNE)
    return images.batch(batch_size).prefetch(tf.data.AUTOTUNE)


def contestants(folders: dict[str, str]) -> dict[str, tuple[int, tf.data.Dataset]]:
    """Name -> images of a batch, and the batches of an epoch."""
    ours = {"split": "train", "shuffle": True}
    many = folders["97 shards"]
    found = {
        "tutorial": (64, tutorial(many, 64)),
        "decoding alone": (64, decoding_alone(many, 64)),
    }
    for name, folder in folders.items():
        found[f"beam_tfr, {name}"] = (64, load(folder, batch_size=64, **ours))
    found["beam_tfr, float32"] = (64, load(many, batch_size=64, dtype="float32", **ours))
    found["tutorial, batch 1"] = (1, tutorial(many, 1))
    found["beam_tfr, batch 1"] = (1, load(many, batch_size=1, **ours))
    return found


def measure(batch_size: int, batches: tf.data.Dataset, images: int, *, warm_up: int) -> Speed:
    """Reads `images` images, after those that do not count."""
    endless = iter(batches.repeat())
    for _ in range(warm_up // batch_size):
        next(endless)
    steps = max(1, images // batch_size)
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(steps):
        next(endless)
    count = steps * batch_size
    return Speed((time.perf_counter() - wall) / count, (time.process_time() - cpu) / count)


def run_alone(code: str, *arguments: str) -> list[float]:
    """The numbers that a program prints, in a process of its own."""
    command = [sys.executable, "-c", code, *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}
    run = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return [float(number) for number in run.stdout.split()]


def report(images: int, turns: dict[str, list[Speed]], starts: list[list[float]], memory_kb: list[float]) -> str:
    """In Markdown: medians, and medians of the ratios to another reader in the same turn."""

    def ratio(of: Callable[[Speed], float], name: str, other: str) -> float:
        return statistics.median(of(b) / of(a) for a, b in zip(turns[name], turns[other], strict=True))

    lines = [
        f"{images:,} photos, {len(starts)} turns, {os.cpu_count()} cores, TensorFlow {tf.__version__}",
        "",
        "| | images/s | CPU ms each | tutorial = 1 | decoding alone = 1 | by CPU, tutorial = 1 | decoding alone = 1 |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, speeds in turns.items():
        peers = ("tutorial, batch 1" if name.endswith("batch 1") else "tutorial", "decoding alone")
        rate = statistics.median(1 / speed.wall_s for speed in speeds)
        cpu = statistics.median(speed.cpu_s * 1e3 for speed in speeds)
        ratios = [ratio(of, name, peer) for of in (lambda one: one.wall_s, lambda one: one.cpu_s) for peer in peers]
        lines.append(f"| {name} | {rate:,.0f} | {cpu:.3f} | " + " | ".join(f"{one:.2f}" for one in ratios) + " |")
    imported, first = (statistics.median(column) for column in zip(*starts, strict=True))
    memory = ", ".join(f"{number / 1e3:,.0f}" for number in memory_kb)
    return "\n".join(
        [
            *lines,
            "",
            f"import tensorflow: {imported:.2f} s; first batch, with that: {first:.2f} s",
            f"memory after each epoch, MB: {memory}",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="How fast beam_tfr.reader reads.", allow_abbrev=False)
    parser.add_argument("photos", type=pathlib.Path, help="folder of JPEGs, in any folders below it")
    parser.add_argument("--times", type=int, default=1, help="take it so many times, through links (default: 1)")
    parser.add_argument("--turns", type=int, default=5, help="turns of each reader (default: 5)")
    parser.add_argument("--quick", action="store_true", help="97 shards alone, no warm-up, two epochs for memory")
    arguments = parser.parse_args()
    warm_up, epochs, variants = WARM_UP, EPOCHS, VARIANTS
    if arguments.quick:
        warm_up, epochs, variants = 0, 2, {"97 shards": VARIANTS["97 shards"]}
    with tempfile.TemporaryDirectory(prefix="beam_tfr-benchmark-") as temporary:
        corpus = pathlib.Path(temporary) / "corpus"
        corpus.mkdir()
        images = make_corpus(arguments.photos, corpus, arguments.times)
        if not images:
            raise SystemExit(f"{arguments.photos}: there is no {SUFFIX} in it")
        folders = convert(corpus, pathlib.Path(temporary), variants)
        readers = contestants(folders)
        turns: dict[str, list[Speed]] = {name: [] for name in readers}
        starts = []
        for _ in range(arguments.turns):
            for name, (batch_size, batches) in readers.items():
                turns[name].append(measure(batch_size, batches, images, warm_up=warm_up))
            starts.append(run_alone(FIRST_BATCH, folders["97 shards"]))
        memory_kb = run_alone(MEMORY, folders["97 shards"], str(epochs))
        print(report(images, turns, starts, memory_kb))


if __name__ == "__main__":
    main()
