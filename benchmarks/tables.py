"""How fast the rows of a table become records, and in how much memory.

    python benchmarks/tables.py [--rows 1000000] [--kinds csv jsonl parquet]

Makes tables of five columns (a key, a class, a whole number, a number, a text) and measures, each in a process of its
own: the rows read and typed, but not converted; and the whole conversion of the rows into records, up to the published
dataset.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import pathlib
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

from convert import Cost, measure

COLUMNS = ("id", "class", "age", "score", "name")
ROLES = ["--key_column", "id", "--label_column", "class"]
READ = """
import sys
from beam_tfr.tables.opening import open_tables
from beam_tfr.tables.rows import Roles
tables = open_tables(sys.argv[1:], Roles(key="id", label="class"), features={"*": ""})
for path in tables.files:
    for number, ref in tables.read(path):
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
            file.writelines(json.dumps(dict(zip(COLUMNS, row, strict=True))) + "\n" for row in rows(number))
        else:
            writer = csv.writer(file)
            writer.writerow(COLUMNS)
            writer.writerows(rows(number))


def line(name: str, number: int, table: pathlib.Path, cost: Cost) -> str:
    rate, cpu = number / cost.wall_s, cost.cpu_s / number * 1e6
    return f"| {name} | {table.stat().st_size / 1e6:,.0f} | {rate:,.0f} | {cpu:.1f} | {cost.peak_bytes / 1e6:,.0f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--kinds", nargs="+", default=["csv", "jsonl", "parquet"])
    arguments = parser.parse_args()
    print(f"{arguments.rows:,} rows, {os.cpu_count()} cores")
    print()
    print("| | table MB | rows/s | CPU µs per row | peak memory MB |")
    print("| --- | --- | --- | --- | --- |")
    for kind in arguments.kinds:
        with tempfile.TemporaryDirectory(prefix="beam_tfr-benchmark-") as folder:
            table = pathlib.Path(folder) / f"t.{kind}"
            write_table(table, arguments.rows)
            print(
                line(f"{kind}, read", arguments.rows, table, measure([sys.executable, "-c", READ, str(table)])),
                flush=True,
            )
            command = [sys.executable, "-m", "beam_tfr", "convert", "--table", str(table), *ROLES]
            cost = measure([*command, "--output", f"{folder}/out"])
            print(line(f"{kind}, converted", arguments.rows, table, cost), flush=True)


if __name__ == "__main__":
    main()
