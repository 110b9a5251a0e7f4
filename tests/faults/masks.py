"""Masks that are made to hurt: real commands convert them, and verify, read and export what comes.

Each command runs in a process of its own. It has to end within its limits, with a dataset in which
the image is a record or a reject, or with an error of one line.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np

from tests.faults.outcome import Outcome

ROOT = Path(__file__).parents[2]
SIDE = 8000  # of the image, whose PNG has 190 kB
MOST_PEAK_BYTES = 500_000_000  # above the same commands for a mask that is sound
LONGEST_S = 60.0  # of CPU
_COLUMNS = "box:bbox[xywh],segment:mask[box]"
_READ = """
import sys
from beam_tfr import Records
for example in Records(sys.argv[1], split="train", output="dict", boxes="xyxy"):
    for mask in example["masks"]:
        mask.sum()
"""
_Segment = Any  # of COCO: polygons, or run lengths
_Shape = Sequence[float]


def star(points: int, radius: float = SIDE / 2) -> _Shape:
    """A polygon of which all sides cross each other."""
    corners = list[float]()
    step = 2 * math.pi * (points // 2) / points
    for number in range(points):
        corners += [
            radius * (1 + math.cos(number * step)),
            radius * (1 + math.sin(number * step)),
        ]
    return corners


def stripes(number: int, size: Sequence[Any] = (SIDE, SIDE)) -> _Segment:
    """Run lengths of so many lines across the image."""
    counts = [SIDE // 2, SIDE // 2] * number
    return {"size": [*size], "counts": [*counts, SIDE * SIDE - sum(counts)]}


WHOLE: _Shape = (0, 0, SIDE, 0, SIDE, SIDE, 0, SIDE)
HURTING_MASKS: dict[str, Callable[[], Iterator[_Segment]]] = {
    "sound": lambda: iter([[[10, 10, 500, 10, 500, 500]]]),
    "30 of the whole image": lambda: iter([[WHOLE]] * 30),
    "8,000 of the whole image": lambda: iter([[WHOLE]] * 8_000),
    "8,000 small ones": lambda: ([[n, n, n + 9, n, n + 9, n + 9]] for n in range(7_000)),
    "2,000 polygons of one mask": lambda: iter([[WHOLE] * 2_000]),
    "a star of 100,000 points": lambda: iter([[star(100_000)]]),
    "100 stars of 1,000 points": lambda: iter([[star(1_000)]] * 100),
    "far outside": lambda: iter([[[-1e300, -1e300, 1e300, -1e300, 1e300, 1e300]]] * 30),
    "30 of stripes": lambda: iter([stripes(4_000)] * 30),
    "2,000 of stripes": lambda: iter([stripes(100)] * 2_000),
    "of another size": lambda: iter([stripes(4_000, (10**6, 10**6))]),
    "of a size that is none": lambda: iter([stripes(4, (-1, "x")), stripes(4, (0, 0))]),
    "a run of 10^18": lambda: iter([{"size": [SIDE, SIDE], "counts": [0, 10**18]}]),
    "a million runs of nothing": lambda: iter([{"size": [SIDE, SIDE], "counts": [0] * 1_000_000}]),
    "text of runs": lambda: iter([{"size": [SIDE, SIDE], "counts": "o" * 1_000_000}] * 8),
    "lists within lists": lambda: iter([[[[[0] * 6] * 10] * 10] * 1_000]),
    "polygons of nothing": lambda: iter([[[]] * 300_000]),
}


class Reading(NamedTuple):
    """How a command ended: its status, what it printed, its CPU time and its peak of memory."""

    status: int
    output: str
    seconds: float
    peak_bytes: int


def run(*command: object) -> Reading:
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            [sys.executable, *map(str, command)], cwd=ROOT, stdout=output, stderr=output
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        seconds = usage.ru_utime + usage.ru_stime
        return Reading(process.returncode, output.read(), seconds, usage.ru_maxrss << 10)


def write_scene(folder: Path, segments: Iterator[_Segment]) -> Path:
    """Writes an image and the file of COCO about its masks, and returns the path of that."""
    folder.mkdir(parents=True)
    cv2.imwrite(str(folder / "a.png"), np.zeros((SIDE, SIDE), np.uint8))
    cv2.imwrite(str(folder / "b.png"), np.zeros((9, 9), np.uint8))
    annotations = [
        {
            "id": number,
            "image_id": 1,
            "category_id": 1,
            "bbox": [0, 0, SIDE, SIDE],
            "iscrowd": int(isinstance(segment, dict)),
            "segmentation": segment,
        }
        for number, segment in enumerate(segments)
    ]
    images = [
        {"id": 1, "file_name": "a.png", "width": SIDE, "height": SIDE},
        {"id": 2, "file_name": "b.png", "width": 9, "height": 9},
    ]
    categories = [{"id": 1, "name": "cat"}]
    content = {"images": images, "annotations": annotations, "categories": categories}
    table = folder / "coco.json"
    table.write_text(json.dumps(content))
    return table


def commands(table: Path) -> Iterator[tuple[str, list[object]]]:
    """Yields the name of each command, and its arguments."""
    dataset = table.with_name("dataset")
    options = ["--resize", "none", "--encoding", "png", "--max_rejects", 2, "--json"]
    options += ["--allow_empty", "cat"]  # of which the only boxes may be those of a reject
    cli = ["-m", "beam_tfr"]
    columns = ["--feature_columns", _COLUMNS]
    yield "convert", [*cli, "convert", "--table", table, "--output", dataset, *columns, *options]
    if not (dataset / "manifest.json").exists():
        return
    yield "verify", [*cli, "verify", dataset]
    yield "read", ["-c", _READ, dataset]
    yield "inspect", [*cli, "inspect", dataset, "--contact_sheet", dataset / "sheet.jpg"]
    for form in ("folder", "tfds"):
        output = table.with_name(f"export-{form}")
        yield f"export {form}", [*cli, "export", dataset, output, "--format", form]


def find_problem(name: str, reading: Reading) -> str:
    """What must not be; empty if nothing."""
    if "Traceback" in reading.output or reading.status not in (0, 1):
        return f"{name} ends with {reading.status}: {reading.output[-2_000:]}"
    if reading.seconds > LONGEST_S:
        return f"{name} takes {reading.seconds:.1f} s"
    if name != "convert" or reading.status:
        return ""
    summary = json.loads(reading.output.splitlines()[-1])
    if summary["matched"] != summary["written"] + sum(summary["rejected"].values()):
        return f"{name} loses an image: {summary}"
    return ""


def measure(folder: Path, name: str) -> dict[str, Reading]:
    """Runs all commands about some masks: the name of each -> how it ended."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        table = write_scene(Path(place) / "scene", HURTING_MASKS[name]())
        return {command: run(*arguments) for command, arguments in commands(table)}


def trials(folder: Path) -> Callable[[int], Outcome]:
    """What makes the trials, each of which runs all commands about all masks."""
    folder.mkdir(parents=True, exist_ok=True)

    def trial(_: int) -> Outcome:
        outcome = Outcome(faults=len(HURTING_MASKS))
        sound = measure(folder, "sound")
        for name in HURTING_MASKS:
            for command, reading in measure(folder, name).items():
                above = reading.peak_bytes - sound[command].peak_bytes
                last = reading.output.strip().rpartition("\n")[2]
                figures = f"{above / 1e6:6.0f} MB {reading.seconds:6.2f} s"
                print(f"{figures}  {name}, {command}: {last:.150}")
                problem = find_problem(command, reading)
                if above > MOST_PEAK_BYTES:
                    problem += f" {command} takes {above:,} bytes"
                if problem:
                    outcome.problem(f"{name}: {problem}")
        return outcome

    return trial
