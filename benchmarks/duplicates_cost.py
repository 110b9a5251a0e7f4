"""What it costs to look for copies: the command with many rows, and the report of a conversion.

The rows are those of converted photos, again and again, with some bits of each hash inverted: so
many that they look like other photos, or so few that each has hundreds of near copies.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import shutil
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.measuring import Table, convert, measure, python

ROWS = 1_000_000
QUICK_ROWS = 2_000
SHARD_ROWS = 50_000
FLIPPED = {"other photos": 64, "near copies": 8}  # bits
TURNS = 3  # of the report, of which the median counts


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", type=int, default=ROWS, help=f"default: {ROWS:,}")


def measure_costs(
    arguments: argparse.Namespace, folder: pathlib.Path, photos: list[pathlib.Path]
) -> Iterator[Table]:
    """Yields the tables; `folder` is for temporary files, `photos` are links below one folder."""
    converted = folder / "converted"
    pattern = f"{photos[0].parents[3]}/**/*.jpg"
    flags = ["--name", "d", "--num_shards", "1", "--layout", "*", "--image_size", "224"]
    conversion = measure(convert(pattern, str(converted), *flags))
    yield measure_report(converted, len(photos), conversion.cpu_s)
    yield measure_command(folder, converted, QUICK_ROWS if arguments.quick else arguments.rows)


def measure_report(converted: pathlib.Path, photos: int, conversion_s: float) -> Table:
    """The CPU time that a conversion takes to look for copies, of all that it takes."""
    turns = []
    for _ in range(TURNS):
        done = measure(python("-m", "benchmarks.duplicates_cost", converted))
        turns.append(float(done.output))
    report_s = sorted(turns)[len(turns) // 2]
    columns = {"": "", "CPU s": ".3f", "ms an image": ".3f", "share of the conversion": ".4f"}
    rows = [
        ["conversion", conversion_s, 1000 * conversion_s / photos, None],
        ["report", report_s, 1000 * report_s / photos, report_s / conversion_s],
    ]
    return Table(f"report of copies in a conversion of {photos:,} photos", columns, rows)


def measure_command(folder: pathlib.Path, converted: pathlib.Path, number: int) -> Table:
    """`beam-tfr duplicates` with so many rows, a process for each kind."""
    rows = []
    for name, bits in FLIPPED.items():
        many = folder / "many"
        multiply(converted, many, number, bits)
        done = measure(python("-m", "beam_tfr", "duplicates", many, "--quiet"))
        rows.append([name, done.wall_s, done.cpu_s, done.peak_bytes / 1e6])
        shutil.rmtree(many)
    columns = {"": "", "s": ".1f", "CPU s": ".1f", "peak MB": ",.0f"}
    return Table(f"beam-tfr duplicates with {number:,} rows", columns, rows)


def multiply(converted: pathlib.Path, output: pathlib.Path, number: int, bits: int) -> None:
    """Writes manifest and contents of a dataset with so many rows, and without shards."""
    from beam_tfr.dataset.lookup import read_contents
    from beam_tfr.dataset.manifest import manifest_bytes, manifest_digest, read_manifest
    from beam_tfr.records.contents_file import contents_bytes
    from beam_tfr.schema import naming

    dataset = read_manifest(str(converted))
    fields = json.loads((converted / "manifest.json").read_text())
    (split,) = fields["splits"].values()
    (entry,) = split["shards"]
    table = read_contents(dataset, entry["file"], entry["num_examples"], entry["num_bytes"])
    generator = np.random.default_rng(0)
    num_shards = -(-number // SHARD_ROWS)
    entries = []
    for shard in range(num_shards):
        rows = min(SHARD_ROWS, number - shard * SHARD_ROWS)
        name = naming.shard_name("train", shard, num_shards)
        file = naming.file_name("d", name, ".tfrecord.gz")
        path = output / naming.contents_name(file)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(contents_bytes(draw_rows(table, shard, rows, bits, generator)))
        num_bytes = entry["num_bytes"] * (1 + rows // entry["num_examples"])
        entries.append({**entry, "file": file, "num_examples": rows, "num_bytes": num_bytes})
    split |= {
        "matched": number,
        "rejected": 0,
        "num_examples": number,
        "num_bytes": sum(shard["num_bytes"] for shard in entries),
        "shards": entries,
    }
    fields["counts"] |= {"matched": number, "written": number}
    fields["manifest_digest"] = manifest_digest(fields)
    (output / "manifest.json").write_bytes(manifest_bytes(fields))


def draw_rows(table: Any, shard: int, rows: int, bits: int, generator: np.random.Generator) -> Any:
    """Rows of a table, each with a key and a source of its own, and with bits inverted."""
    import pyarrow as pa

    chosen = np.arange(rows) % len(table)
    drawn = table.take(pa.array(chosen))
    hashes = np.frombuffer(b"".join(drawn.column("phash").to_pylist()), np.uint8)
    order = generator.random((rows, 256), np.float32).argsort(axis=1)
    inverted = np.packbits(order < bits, axis=1)
    columns = {
        "key": pa.array([f"{shard}/{row}.jpg" for row in range(rows)]),
        "shard": pa.array(np.full(rows, shard)),
        "phash": _as_hashes(hashes.reshape(rows, 32) ^ inverted),
        "source_sha256": _as_hashes(generator.integers(0, 256, (rows, 32), np.uint8)),
    }
    for name, values in columns.items():
        place = drawn.schema.get_field_index(name)
        drawn = drawn.set_column(
            place, drawn.schema.field(name), values.cast(drawn.schema.types[place])
        )
    return drawn


def _as_hashes(values: np.ndarray) -> Any:
    """An Arrow array of 32 bytes each."""
    import pyarrow as pa

    return pa.array([*map(bytes, values)], pa.binary(32))


def time_report(folder: str) -> None:
    """Prints the CPU seconds of what a conversion does for its report of copies."""
    from beam_tfr.copies.images import read_images
    from beam_tfr.copies.summary import summarize_images
    from beam_tfr.dataset.manifest import read_manifest

    dataset = read_manifest(folder)
    read_images(dataset)  # loads what a conversion has loaded, which writes contents
    cpu = time.process_time()
    summarize_images(dataset, read_images(dataset))
    print(time.process_time() - cpu)


if __name__ == "__main__":
    time_report(sys.argv[1])
