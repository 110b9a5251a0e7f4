"""What an update costs, as a share of the CPU time of a conversion: `python -m benchmarks.updates
PHOTOS`.

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
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence


def run(*command: str) -> tuple[float, float]:
    """Runs `beam-tfr`; returns its CPU and wall time in seconds."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(
        [sys.executable, "-m", "beam_tfr", *command, "--quiet"],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu, time.monotonic() - started


def link_photos(photos: pathlib.Path, folder: pathlib.Path, number: int) -> None:
    """Links photos into 20 classes, each as often as it takes."""
    found = sorted(path for path in photos.rglob("*.jpg"))
    for i in range(number):
        target = folder / f"class{i % 20:02d}" / f"{i:07d}.jpg"
        target.parent.mkdir(parents=True, exist_ok=True)
        os.link(found[i % len(found)], target)


def change(folder: pathlib.Path, share: float, seed: int) -> None:
    """Changes a share of the photos."""
    chance, found = random.Random(seed), sorted(folder.rglob("*.jpg"))
    chosen = chance.sample(found, round(share * len(found)))
    for i, path in enumerate(chosen):
        other = chance.choice(found)
        while other in chosen:
            other = chance.choice(found)
        if i % 3 == 0:
            os.link(other, path.with_name(f"added{seed}-{i}.jpg"))
        else:
            path.unlink()
            if i % 3 == 1:
                os.link(other, path)


def files_of(folder: pathlib.Path) -> dict[str, bytes]:
    """Name -> bytes of a dataset's files."""
    names = sorted(
        path for path in folder.rglob("*") if path.is_file() and ".sources" not in path.parts
    )
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in names
        if path.name != "history.jsonl"
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("photos", type=pathlib.Path, help="folder with JPEGs")
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
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(dir=given.scratch or given.photos.parent) as place:
        folder, output, fresh = (
            pathlib.Path(place, name) for name in ("photos", "dataset", "fresh")
        )
        link_photos(given.photos, folder, given.number)
        before, wall = run("convert", "--input", str(folder), "--output", str(output))
        print(
            f"conversion of {given.number:,} photos: {before:.1f} s of CPU, {wall:.1f} s",
            flush=True,
        )
        updates = []
        for seed, share in enumerate(map(float, given.shares.split(","))):
            change(folder, share, seed)
            updates.append((share, *run("update", str(output), "--input", str(folder))))
        after, wall = run(
            "convert", "--input", str(folder), "--output", str(fresh), "--name", "dataset"
        )
        print(f"conversion after the updates: {after:.1f} s of CPU, {wall:.1f} s")
        for share, cpu, wall in updates:
            print(
                f"update of {share:.0%}: {cpu:.1f} s of CPU ({2 * cpu / (before + after):.1%}), {wall:.1f} s"
            )
        same = files_of(output) == files_of(fresh)
        print(
            "the same bytes as a fresh conversion"
            if same
            else "OTHER BYTES THAN A FRESH CONVERSION"
        )
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
