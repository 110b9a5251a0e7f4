"""Datasets of rows and files, whose contents tests read."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import pyarrow as pa

from beam_tfr import cli
from beam_tfr.dataset.manifest import read_manifest
from beam_tfr.records import contents
from tests.converted import once

ROWS = [
    {
        "n": i,
        "score": i / 4,
        "kinds": ["a", "b", "c"][: i % 4],
        "ids": [i, i + 1][: i % 3],
        "text": "é" * (i * 40),
    }
    for i in range(40)
]


@functools.cache
def converted_rows() -> Path:
    """A table with lists, texts that fit no cell, and several labels, as rows."""

    def write(folder: Path) -> None:
        table = folder.with_name("contents_rows.jsonl")
        table.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
        columns = "n:int64,score:float,ids:int64[],text:bytes"
        flags = [
            "--table",
            table,
            "--label_column",
            "kinds",
            "--feature_columns",
            columns,
            "--num_shards",
            3,
        ]
        assert cli.main([str(part) for part in ["convert", "--output", folder, *flags]]) == 0

    return once("contents_rows", write)


@functools.cache
def converted_files() -> Path:
    """Files as they are, each in a shard of its own; one is rejected, so its shard is empty."""

    def write(folder: Path) -> None:
        source = folder.with_name("contents_files")
        source.mkdir()
        for number in range(3):
            (source / f"{number}.bin").write_bytes(bytes(range(100)) * (number > 0))
        flags = [
            "--input",
            f"{source}/*.bin",
            "--encoding",
            "bytes",
            "--layout",
            "*",
            "--num_shards",
            3,
        ]
        flags += ["--max_rejects", 1]
        assert cli.main([str(part) for part in ["convert", "--output", folder, *flags]]) == 0

    return once("contents_bytes", write)


FEATURES = {
    "row/key": ("bytes", ()),
    "n": ("int64", ()),
    "ids": ("int64", (-1,)),
    "words": ("bytes", (-1,)),
}


def schema() -> pa.Schema:
    names = read_manifest(str(converted_rows())).names
    return contents.contents_schema(FEATURES, names)
