"""What a dataset of many shards costs its readers.

The manifest, the check of the files, `load` to its first batch, and `inspect` of one record.

The shards are hard links to a few files of the sample. Each row is a process of its own, but for
`--quick`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measuring import ROOT, Table, measure, python

LINKS = 60_000  # to one file: ext4 allows 65,000
ROWS = (
    "load, one shard",
    "manifest",
    "manifest and check",
    "inspect --record",
    "load",
    "load, two splits",
)
COLUMNS = {"": "", "CPU seconds": ".2f", "seconds": ".2f", "peak MB": ",.0f"}


def make(folder: Path, shards: int) -> None:
    """A dataset of so many shards in two splits, of which the second has a tenth."""
    import beam_tfr
    from beam_tfr.dataset.manifest import (
        manifest_bytes,
        manifest_digest,
        read_manifest,
    )
    from beam_tfr.schema import naming

    one = folder / "one"
    photos = f"{ROOT}/beam_tfr/sample/test/*/*.jpg"
    beam_tfr.convert(input=photos, output=one, name="d", num_shards=1, image_size=32)
    fields = json.loads((one / "manifest.json").read_text())
    whole = read_manifest(str(one)).splits["train"]
    (shard,) = fields["splits"]["train"]["shards"]
    many = folder / "many"
    (many / naming.contents_name("")).parent.mkdir(parents=True)
    for name, number in {"train": shards - shards // 10, "test": shards // 10}.items():
        entries = []
        for i in range(number):
            if i % LINKS == 0:
                sources = [many / f"copy-{name}-{i}", many / f"copy-contents-{name}-{i}"]
                sources[0].write_bytes((one / shard["file"]).read_bytes())
                sources[1].write_bytes((one / naming.contents_name(shard["file"])).read_bytes())
            file = naming.file_name("d", naming.shard_name(name, i, number), ".tfrecord.gz")
            os.link(sources[0], many / file)
            os.link(sources[1], many / naming.contents_name(file))
            entries.append({**shard, "file": file})
        fields["splits"][name] = {
            "matched": whole.matched * number,
            "rejected": 0,
            "num_examples": whole.num_examples * number,
            "num_bytes": whole.num_bytes * number,
            "class_counts": {label: count * number for label, count in whole.class_counts.items()},
            "shards": entries,
        }
    fields["manifest_digest"] = manifest_digest(fields)
    (many / "manifest.json").write_bytes(manifest_bytes(fields))


def run_one(what: str, folder: str) -> None:
    """What a row measures, after its imports."""
    from beam_tfr.dataset.manifest import check_shard_files, read_manifest
    from beam_tfr.inspection import inspect
    from beam_tfr.reader import load

    started = time.perf_counter()
    cpu = time.process_time()
    if what == "manifest":
        read_manifest(folder)
    elif what == "manifest and check":
        dataset = read_manifest(folder)
        check_shard_files(dataset, dataset.splits.values())
    elif what == "inspect --record":
        total = sum(split.num_examples for split in read_manifest(folder).splits.values())
        inspect(folder, record=total * 9 // 10)
    else:
        of = f"{folder}/../one" if what == "load, one shard" else folder
        for split in ("train", "test")[: 1 + (what == "load, two splits")]:
            next(iter(load(of, split=split, batch_size=32, shuffle=True)))
    print(time.process_time() - cpu, time.perf_counter() - started)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--shards", type=int, default=70_000, help="(default: 70000)")


def run(arguments: argparse.Namespace) -> Iterator[Table]:
    shards = 20 if arguments.quick else arguments.shards
    rows = []
    with tempfile.TemporaryDirectory(prefix="beam_tfr-shards-") as folder:
        make(Path(folder), shards)
        for group in [ROWS] if arguments.quick else zip(ROWS):
            done = measure(python("-m", "benchmarks.shards", f"{folder}/many", *group))
            for what, line in zip(group, done.output.splitlines(), strict=True):
                rows.append([what, *map(float, line.split()), done.peak_bytes / 1e6])
    yield Table(f"shards: {shards:,}", COLUMNS, rows)


if __name__ == "__main__":
    for what in sys.argv[2:]:
        run_one(what, sys.argv[1])
