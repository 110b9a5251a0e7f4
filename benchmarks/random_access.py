"""Reading records by number with `Records`, beside the streaming readers.

It also measures what writing the contents costs.

The page cache is dropped with posix_fadvise. The server answers each request after 50 ms, as many
at a time as come.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks import measuring
from benchmarks.measuring import Cost, Table, measure, median_of, python, ratio
from benchmarks.turns import add_photos, pattern_of, photos

BATCH = 64
COLUMNS = {"": "", "images/s": ",.0f", "CPU ms an image": ".3f"}
WRITING = {"": "", "CPU ms an image": ".3f", "CPU, neither = 1": ".3f", "bytes, dataset = 1": ".4f"}
# Converts in this process, without some of what the contents take.
CONVERT = """
import sys
pattern, output, what = sys.argv[1:]
import beam_tfr
from beam_tfr.images import appearance, convert
from beam_tfr.schema.items import Appearance
from beam_tfr.transforms import writing
if what != "all":
    appearance.perceptual_hash = lambda pixels: bytes(32)
if what == "neither":
    convert.describe_pixels = lambda *_: Appearance(0.0, 0.0, bytes(32))
    for of in vars(writing).values():
        if hasattr(of, "_row"):
            of._row = lambda self, record, ref: {}
    writing.to_bytes = lambda *_, **__: b""
beam_tfr.convert(input=pattern, output=output, name="d", num_shards=8, layout="{label}/*")
"""


def drop(folder: str) -> None:
    """Drops the files of a folder from the page cache."""
    for path in Path(folder).rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def clocked(read: Callable[[], int]) -> Cost:
    """What an image costs; `read` returns how many it read."""
    wall = time.perf_counter()
    cpu = time.process_time()
    count = read()
    return Cost((time.perf_counter() - wall) / count, (time.process_time() - cpu) / count)


def by_number(folder: str, size: int, most: int) -> Callable[[], int]:
    """Reads records in random order, `size` at a time."""
    import beam_tfr

    records = beam_tfr.Records(folder, split="train")
    numbers = random.Random(1).sample(range(len(records)), min(most, len(records)))
    records.__getitems__(range(0, len(records), max(1, len(records) // 64)))  # opens the shards

    def read() -> int:
        for begin in range(0, len(numbers), size):
            records.__getitems__(numbers[begin : begin + size])
        return len(numbers)

    return read


def streaming(reader: str, folder: str) -> Callable[[], int]:
    def read() -> int:
        made: Any
        if reader == "load":
            from beam_tfr.reader import load

            made = load(folder, split="train", batch_size=BATCH, shuffle=True)
        else:
            from beam_tfr.torch import ImageDataset

            made = ImageDataset(folder, split="train", batch_size=BATCH, shuffle=True)
        return sum(len(batch[1]) for batch in made)

    return read


add_arguments = add_photos


def reading(arguments: argparse.Namespace, folder: str) -> Iterator[list[Any]]:
    ways = {
        "Records, one by one": by_number(folder, 1, 1 << 30),
        "Records, batches of 64": by_number(folder, BATCH, 1 << 30),
        "ImageDataset": streaming("torch", folder),
        "load": streaming("load", folder),
    }
    for where in ("warm", "dropped"):
        for name, read in ways.items():
            costs = []
            for _ in range(arguments.pairs):
                if where == "dropped":
                    drop(folder)
                costs.append(clocked(read))
            rate = median_of(costs, lambda cost: 1 / cost.wall_s)
            yield [f"{name}, {where}", rate, median_of(costs, lambda cost: cost.cpu_s * 1e3)]


def from_gcs(arguments: argparse.Namespace, folder: str) -> Iterator[list[Any]]:
    program = (
        "-m",
        "tests.fake_gcs",
        "--photos",
        f"photos={folder}",
        "--latency_ms",
        0 if arguments.quick else 50,
    )
    with measuring.served(*program) as (address, _):
        os.environ["STORAGE_EMULATOR_HOST"] = address
        for name, size, most in (
            ("one by one", 1, 64),
            ("batches of 64", BATCH, 640),
            ("batches of 512", 512, 2048),
        ):
            cost = clocked(by_number("gs://photos", size, 16 if arguments.quick else most))
            yield [f"Records, {name}, 50 ms away", 1 / cost.wall_s, cost.cpu_s * 1e3]
        del os.environ["STORAGE_EMULATOR_HOST"]


def writing(
    arguments: argparse.Namespace, pattern: str, temporary: str, count: int
) -> Iterator[list[Any]]:
    names = {
        "neither": "without contents",
        "rows": "contents without the perceptual hash",
        "all": "contents",
    }
    ways = [
        way for way in names if way != "rows" or not arguments.quick
    ]  # "neither" leaves the hash out too
    costs: dict[str, list[Cost]] = {way: [] for way in ways}
    for turn in range(arguments.pairs):
        for way in ways:
            costs[way].append(
                measure(python("-c", CONVERT, pattern, f"{temporary}/{turn}{way}", way))
            )
    sizes = {
        path: path.stat().st_size for path in Path(f"{temporary}/0all").rglob("*") if path.is_file()
    }
    share = sum(size for path, size in sizes.items() if path.suffix == ".parquet") / sum(
        sizes.values()
    )
    for way in ways:
        each = median_of(costs[way], lambda cost: cost.cpu_s * 1e3 / count)
        against = ratio(costs[way], costs["neither"], lambda cost: cost.cpu_s)
        yield [names[way], each, against, share if way == "all" else None]


def run(arguments: argparse.Namespace) -> Iterator[Table]:
    with (
        photos(arguments) as paths,
        tempfile.TemporaryDirectory(prefix="beam_tfr-benchmark-") as temporary,
    ):
        pattern = pattern_of(paths)
        folder = f"{temporary}/d"
        measure(measuring.convert(pattern, folder, "--name", "d", "--num_shards", "8"))
        title = f"random_access: {len(paths):,} photos, {arguments.pairs} turns"
        yield Table(title, COLUMNS, [*reading(arguments, folder), *from_gcs(arguments, folder)])
        rows = [*writing(arguments, pattern, temporary, len(paths))]
        yield Table("random_access: what the contents cost", WRITING, rows)
