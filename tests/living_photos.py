"""Photos that change at random, for updates compared with fresh conversions."""

from __future__ import annotations

import pathlib
import random
import shutil
from typing import Any

from PIL import Image

import beam_tfr
from beam_tfr.schema.dataset import SOURCES_FOLDER

ROUNDS, FEW = 4, 2
OTHERS = {"history.jsonl", SOURCES_FOLDER}  # beside a dataset, and no part of it


def files_of(folder: pathlib.Path) -> dict[str, bytes]:
    """Name -> bytes of the files of a dataset."""
    found = {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    return {name: data for name, data in found.items() if name.partition("/")[0] not in OTHERS}


def paint(path: pathlib.Path, chance: random.Random, *, kind: str = "JPEG") -> None:
    """Writes a photo of random size and color; every tenth file is no image."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not chance.randrange(10):
        path.write_bytes(bytes(chance.randrange(256) for _ in range(50)))
        return
    size, color = (
        (chance.randrange(8, 90), chance.randrange(8, 90)),
        tuple(chance.randrange(256) for _ in range(3)),
    )
    image = Image.new("RGB", size, color)
    image.putpixel((chance.randrange(size[0]), chance.randrange(size[1])), (0, 0, 0))
    image.save(path, kind)


def updated(folder: pathlib.Path, **options: Any) -> Any:
    return beam_tfr.update(folder, progress=False, **options)


def fresh(output: pathlib.Path, **options: Any) -> dict[str, bytes]:
    """The files of a fresh conversion."""
    shutil.rmtree(output, ignore_errors=True)
    beam_tfr.convert(output=output, progress=False, name="d", **options)
    return files_of(output)


class Photos:
    """A folder of photos that changes at random, and what a table says of them."""

    def __init__(self, folder: pathlib.Path, seed: int) -> None:
        self.folder, self.chance, self.number = folder, random.Random(seed), 0
        for label in ("cat", "dog", "owl"):
            for _ in range(12):
                self.add(label)

    def all(self) -> list[pathlib.Path]:
        return sorted(path for path in self.folder.rglob("*") if path.is_file())

    def some(self, number: int) -> list[pathlib.Path]:
        found = self.all()
        return self.chance.sample(found, min(number, len(found)))

    def add(self, label: str) -> None:
        self.number += 1
        paint(self.folder / label / f"{self.number}.jpg", self.chance)

    def change(self) -> None:
        """Changes photos at random.

        It adds, removes, replaces, renames, moves and touches them, adds a class, and perhaps
        removes one.
        """
        for path in self.some(3):
            path.unlink()
        for path in self.some(3):
            paint(path, self.chance)
        for path in self.some(2):
            path.rename(path.with_name(f"renamed-{self.number}-{path.name}"))
        for path in self.some(2):
            path.touch()
        for path in self.some(3):
            target = self.folder / self.chance.choice(("cat", "dog")) / f"moved-{path.name}"
            target.parent.mkdir(exist_ok=True)
            path.rename(target)
        for _ in range(4):
            self.add(f"new{self.number // 9}")
        classes = sorted(self.folder.iterdir())
        if self.chance.randrange(3) == 0 and len(classes) > 3:
            shutil.rmtree(self.chance.choice(classes))
        for folder in self.folder.iterdir():
            if not any(folder.iterdir()):
                folder.rmdir()


PLANS: dict[str, list[Any]] = {
    "num_shards": [2, 5, {"train": 3, "test": 1}],
    "splits": [{"train": 0.7, "test": 0.3}, {"train": 0.5, "test": 0.5}],
    "seed": [0, 7],
    "compression": ["gzip", "none", "gzip:2"],
}
CLASSES = ["cat", "dog", "owl", *(f"new{number}" for number in range(30)), "train", "test"]
REJECTS = {"max_rejects": 0.9, "allow_empty": CLASSES}


def choose_plan(chance: random.Random) -> dict[str, Any]:
    return {name: chance.choice(values) for name, values in PLANS.items()}
