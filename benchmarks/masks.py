"""Converting photos with a mask for each, beside the same photos without."""

from __future__ import annotations

import argparse
import csv
import glob
import pathlib
from collections.abc import Iterator

import cv2
import numpy as np

from benchmarks.measuring import Table, python
from benchmarks.turns import add_contest, run_contest

add_arguments = add_contest


def write_masks(pattern: str, folder: pathlib.Path) -> pathlib.Path:
    """Writes a mask of five classes for each photo, and the table of both.

    Borders are smooth, as people draw them.
    """
    folder.mkdir(parents=True, exist_ok=True)
    table = folder / "masks.csv"
    with table.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("path", "mask"))
        for number, path in enumerate(sorted(glob.glob(pattern, recursive=True))):
            gray = cv2.imread(path, cv2.IMREAD_GRAYSCALE)
            if gray is None:
                continue
            mask = (cv2.GaussianBlur(gray, (0, 0), 9) // 52).astype(np.uint8)
            cv2.imwrite(str(folder / f"{number}.png"), mask)
            rows.writerow((pathlib.Path(path).absolute(), folder.absolute() / f"{number}.png"))
    return table


def commands(pattern: str, folder: str) -> dict[str, list[str]]:
    table = str(write_masks(pattern, pathlib.Path(folder, "masks")))
    convert = python(
        "-m", "beam_tfr", "convert", "--table", table, "--uri_column", "path", "--max_rejects", "0"
    )
    return {
        "without masks": [*convert, "--output", f"{folder}/without"],
        "with masks": [*convert, "--output", f"{folder}/with", "--feature_columns", "mask:mask"],
    }


def run(arguments: argparse.Namespace) -> Iterator[Table]:
    return run_contest("masks", arguments, commands)
