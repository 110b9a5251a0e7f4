"""How fast the rows of a table become records, and in how much memory.

They are read and typed alone, and converted.

The tables have five columns: a key, a class, a whole number, a number, a text.
"""

from __future__ import annotations

import argparse
import csv
import json
import pathlib
import tempfile
from collections.abc import Iterator
from typing import Any

from benchmarks.measuring import Table, measure, python

HEADINGS = {
    "": "",
    "table MB": ",.0f",
    "rows/s": ",.0f",
    "CPU µs per row": ".1f",
    "peak MB": ",.0f",
}
COLUMNS = ("id", "class", "age", "score", "name")
ROLES = ["--key_column", "id", "--label_column", "class"]
READ = """
import sys
from beam_tfr.tables.finding import find_content
from beam_tfr.tables.opening import open_tables
from beam_tfr.options import ConvertOptions
roles = {"key_column": "id", "label_column": "class"}
options = ConvertOptions(table=tuple(sys.argv[1:]), output="/o", **roles)
tables = open_tables(find_content(options))
for path in tables.files:
    for ref in tables.read(path):
        ref.encode()
"""


def rows(number: int) -> Iterator[tuple[Any, ...]]:
    for i in range(number):
        yield f"row-{i:09d}", f"class-{i % 100}", i % 90, i / 7, f"the name of row {i}"


def write_table(path: pathlib.Path, number: int) -> None:
    if path.suffix == ".parquet":
        import pyarrow
        from pyarrow import parquet

        arrays = [*map(pyarrow.array, zip(*rows(number), strict=True))]
        parquet.write_table(pyarrow.table(arrays, names=COLUMNS), path)
        return
    with path.open("w", newline="", encoding="utf-8") as file:
        if path.suffix == ".jsonl":
            file.writelines(
                json.dumps(dict(zip(COLUMNS, row, strict=True))) + "\n" for row in rows(number)
            )
        else:
            writer = csv.writer(file)
            writer.writerow(COLUMNS)
            writer.writerows(rows(number))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", type=int, default=1_000_000, help="(default: %(default)s)")
    parser.add_argument(
        "--kinds", nargs="+", default=["csv", "jsonl", "parquet"], help="(default: all three)"
    )


def run(arguments: argparse.Namespace) -> Iterator[Table]:
    number = 300 if arguments.quick else arguments.rows
    found: list[list[Any]] = []
    for kind in arguments.kinds[-1:] if arguments.quick else arguments.kinds:
        with tempfile.TemporaryDirectory(prefix="beam_tfr-benchmark-") as folder:
            table = pathlib.Path(folder) / f"t.{kind}"
            write_table(table, number)
            convert = python(
                "-m", "beam_tfr", "convert", "--table", table, *ROLES, "--output", f"{folder}/out"
            )
            for what, command in (("read", python("-c", READ, table)), ("converted", convert)):
                cost = measure(command)
                size = table.stat().st_size
                cpu_us = cost.cpu_s / number * 1e6
                found.append(
                    [
                        f"{kind}, {what}",
                        size / 1e6,
                        number / cost.wall_s,
                        cpu_us,
                        cost.peak_bytes / 1e6,
                    ]
                )
    yield Table(f"tables: {number:,} rows", HEADINGS, found)
