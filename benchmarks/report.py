"""What the page about a dataset costs: time, memory and bytes for up to a million images.

The photos are converted into one shard. A larger dataset has this shard many times, through links;
its contents are those of the photos with keys of their own, and with some bits of each hash
inverted, so that they look like other photos.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import shutil
import tempfile
from collections.abc import Iterator

import numpy as np

from benchmarks.duplicates_cost import FLIPPED, draw_rows
from benchmarks.measuring import Table, convert, measure, python
from benchmarks.turns import add_photos, photos

IMAGES = (1_000, 100_000, 1_000_000)
SHARD_IMAGES = 1_000
COLUMNS = {"images": ",", "s": ".1f", "CPU s": ".1f", "peak MB": ",.0f", "page, kB": ",.0f"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_photos(parser)
    numbers = ", ".join(f"{number:,}" for number in IMAGES)
    parser.add_argument(
        "--images", type=int, nargs="+", default=IMAGES, help=f"in datasets (default: {numbers})"
    )


def run(arguments: argparse.Namespace) -> Iterator[Table]:
    numbers = arguments.images
    if arguments.limit is None:
        arguments.limit = SHARD_IMAGES
    if arguments.quick:
        numbers = [20, 100]
    temporary = tempfile.TemporaryDirectory(prefix="beam_tfr-report-")
    with photos(arguments) as paths, temporary as name:
        folder = pathlib.Path(name)
        pattern = f"{paths[0].parents[3]}/**/*.jpg"
        flags = ["--name", "d", "--num_shards", "1", "--image_size", "224"]
        measure(convert(pattern, str(folder / "converted"), *flags))
        rows = []
        for number in numbers:
            many = folder / "many"
            multiply(folder / "converted", many, number)
            cost = measure(python("-m", "beam_tfr", "report", many, "--quiet"))
            page_bytes = (many / "report.html").stat().st_size
            row = [number, cost.wall_s, cost.cpu_s, cost.peak_bytes / 1e6, page_bytes / 1e3]
            rows.append(row)
            shutil.rmtree(many)
    yield Table(f"report: {len(paths):,} photos many times", COLUMNS, rows)


def multiply(converted: pathlib.Path, output: pathlib.Path, number: int) -> None:
    """Writes a dataset of about so many images, whose shards are links to the one of another."""
    from beam_tfr.dataset.lookup import read_contents
    from beam_tfr.dataset.manifest import manifest_bytes, manifest_digest, read_manifest
    from beam_tfr.records.contents_file import contents_bytes
    from beam_tfr.schema import naming

    dataset = read_manifest(str(converted))
    fields = json.loads((converted / "manifest.json").read_text())
    (split,) = fields["splits"].values()
    (entry,) = split["shards"]
    rows = entry["num_examples"]
    table = read_contents(dataset, entry["file"], rows, entry["num_bytes"])
    generator = np.random.default_rng(0)
    num_shards = max(1, number // rows)
    entries = []
    for shard in range(num_shards):
        file = naming.file_name("d", naming.shard_name("train", shard, num_shards), ".tfrecord.gz")
        path = output / naming.contents_name(file)
        path.parent.mkdir(parents=True, exist_ok=True)
        drawn = draw_rows(table, shard, rows, FLIPPED["other photos"], generator)
        path.write_bytes(contents_bytes(drawn))
        os.link(converted / entry["file"], output / file)
        entries.append({**entry, "file": file})
    counts = {name: number * num_shards for name, number in split["class_counts"].items()}
    written = rows * num_shards
    split |= {
        "matched": written,
        "rejected": 0,
        "num_examples": written,
        "num_bytes": entry["num_bytes"] * num_shards,
        "class_counts": counts,
        "shards": entries,
    }
    fields["counts"] |= {"matched": written, "written": written}
    fields["manifest_digest"] = manifest_digest(fields)
    (output / "manifest.json").write_bytes(manifest_bytes(fields))
