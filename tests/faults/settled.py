"""Datasets by shares, with groups and copies that are settled.

Their conversions and updates are two runs each, and are killed at any moment in both.
"""

from __future__ import annotations

import functools
import shutil
import signal
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tests.faults.places import Place, files_in, write_files
from tests.faults.runs import call, wait_until
from tests.living_photos import files_of

if TYPE_CHECKING:
    from tests.faults.trials import Trial

FIRST = ".beam_tfr/first/manifest.json"  # the first run is done
COMMON = (
    "--name d --splits train=0.7,test=0.3 --stratify --num_shards train=6,test=3 --image_size 96 "
    "--max_rejects 0.9"
)
# The sizes of a photo are near copies.
VARIANTS = {
    "copies in one split": "--layout */{label}/* --duplicates group",
    "one of the copies": "--layout */{label}/* --duplicates drop",
    "groups and copies": "--layout */{label}/{group}-* --duplicates group",
}
SECONDS = 12.0  # of a run, about
MOST_KILLS = 4


@functools.cache
def converted(photos: Path, flags: str) -> dict[str, bytes]:
    """The files of a conversion that nothing disturbs."""
    with tempfile.TemporaryDirectory(prefix="beam_tfr-faults-") as folder:
        shutil.copytree(photos, f"{folder}/photos")
        inputs = ["--input", f"{folder}/photos/**/*.jpg"]
        call("convert", *inputs, "--output", f"{folder}/out", *flags.split())
        return files_of(Path(folder, "out"))


def updated(place: Place, photos: dict[str, bytes]) -> dict[str, bytes]:
    """The files of an update of the dataset of a place that nothing disturbs."""
    with tempfile.TemporaryDirectory(prefix="beam_tfr-faults-") as folder:
        files = {f"out/{name}": place.read(name) for name in place.names()}
        files |= {f"photos/{name}": data for name, data in photos.items()}
        write_files(Path(folder), files)
        call("update", f"{folder}/out", "--input", f"{folder}/photos/**/*.jpg")
        return files_of(Path(folder, "out"))


def disturb(trial: Trial, command: Sequence[str], expected: dict[str, bytes]) -> None:
    """Kills runs of a command at any moment, and checks what it makes in the end."""
    for _ in range(trial.chance.randint(1, MOST_KILLS)):
        run = trial.start(command=command)
        end = time.monotonic() + trial.chance.uniform(0.5, SECONDS)
        if not wait_until(lambda end=end: time.monotonic() >= end, run):  # type: ignore[misc]
            trial.wait(run)
            break
        trial.outcome.kinds["second run" if FIRST in trial.place.names() else "first run"] += 1
        trial.outcome.faults += 1
        driver, *workers = run.processes() or [run.pid]
        whom = trial.chance.choice(([driver], workers[-1:] or [driver], [driver, *workers]))
        run.send(signal.SIGKILL, whom)
        trial.wait(run)
    trial.finish(command=command, expected=expected)


def settled(trial: Trial) -> None:
    """Kills a conversion, then an update with fewer photos and with more copies."""
    place = trial.place
    flags = f"{COMMON} {trial.chance.choice([*VARIANTS.values()])}"
    inputs = ["--input", place.input]
    command = ["convert", *inputs, "--output", place.output, *flags.split()]
    disturb(trial, command, converted(trial.scene.photos, flags))
    if trial.outcome.problems:
        return
    photos = files_of(trial.scene.photos)
    for name in trial.chance.sample(sorted(photos), 8):
        place.delete_photo(name)
        data = photos.pop(name)
        if trial.chance.randrange(2):
            continue
        split, label, file = name.split("/")
        for number in range(2):
            copy = f"{split}/{label}/new{number}-{file}"
            photos[copy] = data
            place.put_photo(copy, data)
    before = files_in(place)
    expected = updated(place, photos)
    assert expected != before
    disturb(trial, ["update", place.output, *inputs], expected)
