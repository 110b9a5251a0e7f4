"""A dataset that lives.

Its input changes at random, and updates and removals are killed at any moment.
"""

from __future__ import annotations

import contextlib
import io
import json
import random
import shutil
import signal
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import PIL.Image

from beam_tfr.dataset.base import planned_shards
from beam_tfr.dataset.manifest import read_manifest
from beam_tfr.dataset.taken_down import read_removed
from beam_tfr.output.known import read_sources
from beam_tfr.output.sidecars import RECORDS
from beam_tfr.schema.dataset import (
    HISTORY_FILE,
    MANIFEST_FILE,
    REMOVED_FILE,
    SOURCES_FOLDER,
    SWITCH_FILE,
    sha256_hex,
)
from beam_tfr.schema.encoded_ref import key_of
from tests.faults.places import Place, files_in, write_files
from tests.faults.runs import STRICT_FLAGS, Run, call, wait_until
from tests.living_photos import files_of

if TYPE_CHECKING:
    from tests.faults.trials import Trial

CHANGES = 8  # updates and removals of a trial
MOMENTS = {  # when a run is killed, and the longest time after it in seconds; "" is the start
    "": 1.5,
    "lock": 1.0,
    "plan": 0.3,
    "shards": 0.1,
    "switch": 0.02,
    "end": 0.02,  # the new dataset stands, its work folder too
}
LOOSE = ["--max_rejects", "0.9"]


class Life:
    """What the photos of a place are, and what was removed."""

    def __init__(self, chance: random.Random, photos: Path) -> None:
        self._chance = chance
        self._photos = files_of(photos)
        self._removed: list[str] = []
        self._changes = 0

    def _some(self, number: int) -> list[str]:
        return self._chance.sample(sorted(self._photos), number)

    def _paint(self) -> bytes:
        if not self._chance.randrange(8):
            return self._chance.randbytes(50)  # no image
        sides, file = (self._chance.randrange(30, 99), self._chance.randrange(30, 99)), io.BytesIO()
        color = tuple(self._chance.randbytes(3))
        PIL.Image.new("RGB", sides, color).save(
            file, "JPEG", comment=self._chance.randbytes(8).hex()
        )
        return file.getvalue()

    def change(self, place: Place) -> None:
        """Adds, replaces, moves, relabels and deletes photos; sometimes only one."""
        self._changes += 1
        most = self._chance.choice((0, 3, 12))
        before = dict(self._photos)
        for name in self._some(1 + most):
            self._photos[name] = self._paint()
        for name in self._some(most):
            del self._photos[name]
        for name in self._some(most):
            split, label, file = name.split("/")
            split, label = self._chance.choice(((split, "hat"), ("train", label)))
            self._photos[f"{split}/{label}/{self._changes}-{file}"] = self._photos.pop(name)
        for number in range(most):
            self._photos[f"train/shoes/new-{self._changes}-{number}.jpg"] = self._paint()
        for name in before.keys() - self._photos.keys():
            place.delete_photo(name)
        for name, data in self._photos.items():
            if before.get(name) != data:
                place.put_photo(name, data)

    def remove(self, path: Path) -> str:
        """Chooses photos to be removed.

        They stay in the input. Returns the path of the list of their keys.
        """
        names = self._some(self._chance.randint(1, 4))
        for name in names:
            del self._photos[name]
        self._removed += names
        path.write_text("".join(f"{name}\n" for name in names))
        return str(path)

    def convert(self, folder: Path) -> dict[str, bytes]:
        """The files of a fresh conversion."""
        shutil.rmtree(folder, ignore_errors=True)
        write_files(folder / "photos", self._photos)
        inputs = ["--input", f"{folder}/photos/**/*.jpg"]
        call("convert", *inputs, "--output", f"{folder}/out", *STRICT_FLAGS.split(), *LOOSE)
        return files_of(folder / "out")

    def check(self, trial: Trial, changes: int) -> None:
        """What lies beside the dataset.

        Sidecars of all its shards, the history, and hashes of what was removed.
        """
        with tempfile.TemporaryDirectory(prefix="beam_tfr-faults-") as folder:
            write_files(
                Path(folder), {name: trial.place.read(name) for name in trial.place.names()}
            )
            dataset, keys = read_manifest(folder), set[str]()
            shards = planned_shards(dataset)
            for shard in shards:
                sources = read_sources(folder, shard)
                if sources is None:
                    trial.problem(f"{SOURCES_FOLDER} lacks {shard.name}")
                keys |= {key_of(source.ref).decode() for source in sources or ()}
            if {path.name for path in Path(folder, SOURCES_FOLDER).iterdir()} != {
                f"{of.name}.json" for of in shards
            }:
                trial.problem(f"{SOURCES_FOLDER} has others")
            if keys != self._photos.keys():
                trial.problem(
                    f"{SOURCES_FOLDER} has other keys: {sorted(keys ^ self._photos.keys())[:5]}"
                )
            lines = [
                json.loads(line) for line in Path(folder, HISTORY_FILE).read_text().splitlines()
            ]
            if len(lines) != changes or lines[-1]["after"] != dataset.dataset_digest:
                trial.problem(f"{changes} changes, and the history has {len(lines)} lines")
            if read_removed(folder).keys != {sha256_hex(name.encode()) for name in self._removed}:
                trial.problem(f"{REMOVED_FILE} has others")
            texts = [path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()]
            if left := [
                name for name in self._removed if any(name.encode() in text for text in texts)
            ]:
                trial.problem(f"removed, and still there: {left}")


def reached(run: Run, trial: Trial, old: bytes) -> bool:
    """Waits for a random moment of an update; False if the run ended before."""
    place, moment = trial.place, trial.chance.choice([*MOMENTS, "switch", "end"])
    more, delay = trial.chance.randint(1, 8), trial.chance.uniform(0, MOMENTS[moment])

    def is_there() -> bool:
        if moment == "end":
            with contextlib.suppress(FileNotFoundError):
                return place.read(MANIFEST_FILE) != old
            return False
        names = place.names()
        if moment == "shards":
            return sum(RECORDS in name for name in names) >= more
        wanted = {
            "lock": ".beam_tfr/lock.",
            "plan": ".beam_tfr/plan.json",
            "switch": f".beam_tfr/{SWITCH_FILE}",
        }
        return not moment or any(name.startswith(wanted[moment]) for name in names)

    if not wait_until(is_there, run):
        return False
    if run.ended(delay):
        return False
    trial.outcome.kinds[moment or "start"] += 1
    trial.outcome.faults += 1
    return True


def update(trial: Trial) -> None:
    """Kills updates of a dataset whose input changes, and removals from it, again and again."""
    life = Life(trial.chance, trial.scene.photos)
    trial.wait(trial.start())
    with tempfile.TemporaryDirectory(prefix="beam_tfr-faults-") as folder:
        for number in range(CHANGES):
            if number % 4 == 3:
                command = [
                    "remove",
                    trial.place.output,
                    "--keys",
                    life.remove(Path(folder, "keys")),
                ]
            else:
                life.change(trial.place)
                command = ["update", trial.place.output, "--input", trial.place.input, *LOOSE]
            old, new = files_in(trial.place), life.convert(Path(folder, "fresh"))
            for _ in range(trial.chance.randint(1, 3)):
                run = trial.start(command=command)
                killed = reached(run, trial, old[MANIFEST_FILE])
                if killed:
                    run.send(signal.SIGKILL, run.processes())
                trial.wait(run)
                found = files_in(trial.place)
                dataset = {name: data for name, data in found.items() if not name.startswith(".")}
                if dataset not in (old, new) and (
                    MANIFEST_FILE in found or f".beam_tfr/{SWITCH_FILE}" not in found
                ):
                    trial.problem(f"neither dataset is whole: {sorted(found)}")
                if not killed:
                    break
            trial.finish(command=command, expected=new)
            life.check(trial, number + 1)
            if trial.outcome.problems:
                break
