"""The table of an updated dataset."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

OPTIONS: dict[str, Any] = {
    "uri_column": "file",
    "label_column": "class",
    "split_column": "part",
    "image_size": 16,
    "feature_columns": "age:int64,score:float,note:bytes,marks:float[]",
    "allow_empty": ["cat", "dog", "owl"],
}
Rows = list[dict[str, str]]


def rows_of(number: int = 20) -> Rows:
    return [
        {
            "file": f"{i}.jpg",
            "class": ("cat", "dog")[i % 2],
            "part": "test" if i % 5 == 0 else "train",
            "age": str(i),
            "score": str(i / 4),
            "note": f"note {i}",
            "marks": f"[{i}, 0.5]",
        }
        for i in range(number)
    ]


def write_table(path: Path, rows: Rows) -> str:
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, [*rows[0]])
        writer.writeheader()
        writer.writerows(rows)
    return str(path)
