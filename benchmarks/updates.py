"""What an update costs, as a share of the CPU time of a conversion.

Links the photos of a folder into classes, several times, converts them, changes a share of them (a
third each is added, removed, and replaced under the same name), and updates the dataset. Compares
the result with a fresh conversion, and the updates with both conversions, the one before and the
one after them.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import random
import tempfile
from collections.abc import Iterator

from benchmarks.measuring import Cost, Table, measure, python
from benchmarks.turns import SAMPLE

COLUMNS = {"": "", "CPU s": ",.1f", "seconds": ",.1f", "CPU, a conversion = 1": ".3f"}
NUM_CLASSES = 20
BESIDE_DATASET = (".sources", "history.jsonl")  # which a fresh conversion does not have


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "photos",
        type=pathlib.Path,
        nargs="?",
        default=SAMPLE,
        help="folder of JPEGs (default: the bundled sample)",
    )
    parser.add_argument(
        "--number", type=int, default=20_000, help="photos to convert (default: %(default)s)"
    )
    parser.add_argument(
        "--shares", default="0,0.01,0.1", help="shares to change (default: %(default)s)"
    )
    parser.add_argument(
        "--scratch",
        type=pathlib.Path,
        help="folder on the disk of the photos (default: beside them)",
    )


def run(arguments: argparse.Namespace) -> Iterator[Table]:
    number = 100 if arguments.quick else arguments.number
    shares = [0.1] if arguments.quick else [float(share) for share in arguments.shares.split(",")]
    scratch = arguments.scratch or arguments.photos.parent
    with tempfile.TemporaryDirectory(prefix="beam_tfr-benchmark-", dir=scratch) as folder:
        costs = run_updates(arguments.photos, pathlib.Path(folder), number, shares)
    conversion_cpu_s = (costs["conversion before"].cpu_s + costs["conversion after"].cpu_s) / 2
    rows = [
        (name, cost.cpu_s, cost.wall_s, cost.cpu_s / conversion_cpu_s)
        for name, cost in costs.items()
    ]
    notes = ["The last update left the bytes of the fresh conversion."]
    yield Table(f"updates: {number:,} photos", COLUMNS, rows, notes)


def run_updates(
    photos: pathlib.Path, folder: pathlib.Path, number: int, shares: list[float]
) -> dict[str, Cost]:
    """What a conversion costs, an update after each change, and a fresh conversion at the end.

    Raises:
        SystemExit: a command fails, or the last update has other bytes than a fresh conversion.
    """
    links = folder / "photos"
    dataset = folder / "dataset"
    fresh = folder / "fresh"
    link_photos(photos, links, number)
    costs = {
        "conversion before": measure(beam_tfr("convert", "--input", links, "--output", dataset))
    }
    for seed, share in enumerate(shares):
        change_photos(links, share, seed)
        name = f"update {seed + 1}: {share:.1%} changed"
        costs[name] = measure(beam_tfr("update", dataset, "--input", links))
    convert_again = beam_tfr("convert", "--input", links, "--output", fresh, "--name", "dataset")
    costs["conversion after"] = measure(convert_again)
    if read_dataset(dataset) != read_dataset(fresh):
        raise SystemExit("the update has other bytes than a fresh conversion")
    return costs


def beam_tfr(*arguments: object) -> list[str]:
    return python("-m", "beam_tfr", *arguments, "--quiet")


def link_photos(photos: pathlib.Path, folder: pathlib.Path, number: int) -> None:
    """Links photos into classes, each as often as it takes."""
    originals = sorted(photos.rglob("*.jpg"))
    for index in range(number):
        link = folder / f"class{index % NUM_CLASSES:02d}" / f"{index:07d}.jpg"
        link.parent.mkdir(parents=True, exist_ok=True)
        os.link(originals[index % len(originals)], link)


def change_photos(folder: pathlib.Path, share: float, seed: int) -> None:
    """Adds, removes and replaces photos, a third of a share each."""
    chance = random.Random(seed)
    photos = sorted(folder.rglob("*.jpg"))
    chosen = chance.sample(photos, round(share * len(photos)))
    others = sorted({*photos}.difference(chosen))
    for index, photo in enumerate(chosen):
        other = chance.choice(others)
        match index % 3:
            case 0:
                os.link(other, photo.with_name(f"added{seed}-{index}.jpg"))
            case 1:
                photo.unlink()
                os.link(other, photo)
            case 2:
                photo.unlink()


def read_dataset(folder: pathlib.Path) -> dict[str, bytes]:
    """Name -> bytes of a dataset's files."""
    files = {}
    for path in folder.rglob("*"):
        name = path.relative_to(folder)
        if path.is_file() and name.parts[0] not in BESIDE_DATASET:
            files[str(name)] = path.read_bytes()
    return files
