"""How fast `beam_tfr.reader` reads, beside the reader of the tutorials and beside decoding alone.

Photos are converted several times with the same options, to one shard and to 97, stored, compressed
and plain. All readers take turns in one process, each for an epoch, from a fresh iterator whose
first batches do not count.
"""

from __future__ import annotations

import argparse
import glob
import statistics
import tempfile
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from benchmarks import measuring
from benchmarks.measuring import Cost, Table, measure, median_of, python, ratio
from benchmarks.turns import add_photos, pattern_of, photos

if TYPE_CHECKING:
    import tensorflow as tf

WARM_UP = 512  # images at the beginning of a turn that do not count
EPOCHS = 3  # for memory
VARIANTS = {
    "97 shards": ["--num_shards", "97"],
    "1 shard": ["--num_shards", "1"],
    "zlib 6": ["--num_shards", "97", "--compression", "gzip:6"],
    "none": ["--num_shards", "97", "--compression", "none"],
}
COLUMNS = {
    "": "",
    "images/s": ",.0f",
    "CPU ms an image": ".3f",
    "rate, tutorial = 1": ".2f",
    "rate, decoding alone = 1": ".2f",
    "by CPU, tutorial = 1": ".2f",
    "by CPU, decoding alone = 1": ".2f",
}
START = """
import sys, time
began = time.perf_counter()
import tensorflow
imported = time.perf_counter()
from beam_tfr.reader import load
next(iter(load(sys.argv[1], split="train", batch_size=64, shuffle=True)))
print(imported - began, time.perf_counter() - imported)
batches = load(sys.argv[1], split="train", batch_size=64, shuffle=True, repeat=True)
steps = load(sys.argv[1], split="train", batch_size=64).cardinality().numpy()
for number, _ in enumerate(batches.take(steps * int(sys.argv[2])), 1):
    if number % steps == 0:
        with open("/proc/self/status") as status:
            print(next(line for line in status if line.startswith("VmRSS")).split()[1])
"""


def features() -> dict[str, Any]:
    import tensorflow as tf

    return {
        "image/encoded": tf.io.FixedLenFeature([], tf.string),
        "image/class/label": tf.io.FixedLenFeature([], tf.int64),
    }


def tutorial(folder: str, batch_size: int) -> tf.data.Dataset:
    """The reader that tutorials teach: example by example, to float32."""
    import tensorflow as tf

    def parse(record: Any) -> Any:
        example = tf.io.parse_single_example(record, features())
        image = tf.cast(tf.io.decode_jpeg(example["image/encoded"], channels=3), tf.float32) / 255.0
        return tf.ensure_shape(image, [224, 224, 3]), example["image/class/label"]

    files = sorted(glob.glob(f"{folder}/*.tfrecord.gz"))
    records = tf.data.TFRecordDataset(files, "GZIP", num_parallel_reads=tf.data.AUTOTUNE).shuffle(
        2048
    )
    return (
        records.map(parse, num_parallel_calls=tf.data.AUTOTUNE)
        .batch(batch_size)
        .prefetch(tf.data.AUTOTUNE)
    )


def decoding_alone(folder: str, batch_size: int) -> tf.data.Dataset:
    """The same JPEGs from memory, decoded by all cores and batched.

    Nothing is read, parsed or shuffled.
    """
    import tensorflow as tf

    records = list(tf.data.TFRecordDataset(sorted(glob.glob(f"{folder}/*.tfrecord.gz")), "GZIP"))
    encoded = tf.io.parse_example(records, features())["image/encoded"]

    def decode(data: Any) -> Any:
        image = tf.io.decode_jpeg(data, channels=3, dct_method="INTEGER_ACCURATE")
        return tf.ensure_shape(image, [224, 224, 3])

    images = tf.data.Dataset.from_tensor_slices(encoded).map(
        decode, num_parallel_calls=tf.data.AUTOTUNE
    )
    return images.batch(batch_size).prefetch(tf.data.AUTOTUNE)


def contestants(folders: dict[str, str]) -> dict[str, tuple[int, tf.data.Dataset]]:
    """Name -> images of a batch, and the batches of an epoch."""
    from beam_tfr.reader import load

    ours = {"split": "train", "shuffle": True}
    many = folders["97 shards"]
    found = {"tutorial": (64, tutorial(many, 64)), "decoding alone": (64, decoding_alone(many, 64))}
    for name, folder in folders.items():
        found[f"beam_tfr, {name}"] = (64, load(folder, batch_size=64, **ours))
    found["tutorial, batch 1"] = (1, tutorial(many, 1))
    found["beam_tfr, batch 1"] = (1, load(many, batch_size=1, **ours))
    return found


def read_once(batch_size: int, batches: tf.data.Dataset, images: int, *, warm_up: int) -> Cost:
    """What reading an image costs, over `images` images after those that do not count."""
    endless = iter(batches.repeat())
    for _ in range(warm_up // batch_size):
        next(endless)
    steps = max(1, images // batch_size)
    wall = time.perf_counter()
    cpu = time.process_time()
    for _ in range(steps):
        next(endless)
    count = steps * batch_size
    return Cost((time.perf_counter() - wall) / count, (time.process_time() - cpu) / count)


def numbers(code: str, *arguments: object) -> list[float]:
    """The numbers that a program prints."""
    return [*map(float, measure(python("-c", code, *arguments)).output.split())]


def row(name: str, turns: dict[str, list[Cost]]) -> list[Any]:
    costs = turns[name]
    peers = [
        turns["tutorial, batch 1" if name.endswith("batch 1") else "tutorial"],
        turns["decoding alone"],
    ]
    rate = median_of(costs, lambda cost: 1 / cost.wall_s)
    gains = [
        ratio(peer, costs, value)
        for value in (lambda c: c.wall_s, lambda c: c.cpu_s)
        for peer in peers
    ]
    return [name, rate, median_of(costs, lambda cost: cost.cpu_s * 1e3), *gains]


add_arguments = add_photos


def run(arguments: argparse.Namespace) -> Iterator[Table]:
    with (
        photos(arguments) as paths,
        tempfile.TemporaryDirectory(prefix="beam_tfr-benchmark-") as temporary,
    ):
        warm_up = WARM_UP
        epochs = EPOCHS
        variants = [*VARIANTS]
        fewer = []
        if arguments.quick:
            warm_up = 0
            epochs = 1
            variants = ["97 shards"]
            fewer = ["--num_shards", "2"]
        folders = {name: f"{temporary}/{name}" for name in variants}
        for name, folder in folders.items():
            measure(
                measuring.convert(
                    pattern_of(paths), folder, "--name", "photos", *VARIANTS[name], *fewer
                )
            )
        readers = contestants(folders)
        turns: dict[str, list[Cost]] = {name: [] for name in readers}
        starts = []
        for _ in range(arguments.pairs):
            for name, (batch_size, batches) in readers.items():
                turns[name].append(read_once(batch_size, batches, len(paths), warm_up=warm_up))
            starts.append(numbers(START, folders["97 shards"], epochs))
    imported, first, *resident_kb = map(statistics.median, zip(*starts, strict=True))
    memory = ", ".join(f"{kb / 1e3:,.0f}" for kb in resident_kb)
    title = f"read: {len(paths):,} photos, {arguments.pairs} turns"
    notes = [
        f"import tensorflow: {imported:.2f} s",
        f"import of the reader to first batch: {first:.2f} s",
        f"memory after each epoch, MB: {memory}",
    ]
    yield Table(title, COLUMNS, [row(name, turns) for name in turns], notes)
