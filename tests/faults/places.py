"""Where a trial reads and writes: a folder on the disk, or a bucket of the fake server."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import PIL.Image

from beam_tfr.schema.dataset import (
    HISTORY_FILE,
    REMOVED_FILE,
    SOURCES_FOLDER,
    canonical_json,
    sha256_hex,
)
from tests.converted import SAMPLE
from tests.fake_gcs import FakeGcs

SIDES = (96, 72, 60)  # pixels; a photo of the sample in each
REJECTS = 3
BESIDE = (SOURCES_FOLDER, HISTORY_FILE, REMOVED_FILE)  # of updates; no part of a dataset
LOCK = ".beam_tfr/lock."


def write_photos(folder: Path) -> Path:
    """Writes 393 small photos of three splits and ten classes.

    `REJECTS` of them cannot be read.
    """
    for path in sorted(SAMPLE.glob("*/*/*.jpg")):
        target = folder / path.parent.relative_to(SAMPLE)
        target.mkdir(parents=True, exist_ok=True)
        with PIL.Image.open(path) as photo:
            for side in SIDES:
                small = photo.convert("RGB")
                small.thumbnail((side, side))
                small.save(target / f"{path.stem}-{side}.jpg")
    sound = next(iter(sorted(folder.glob("*/*/*.jpg")))).read_bytes()
    for name, data in {
        "empty.jpg": b"",
        "text.jpg": b"no image",
        "cut.jpg": sound[: len(sound) // 2],
    }.items():
        (folder / "train" / "hat" / name).write_bytes(data)
    return folder


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Writes name -> content below a folder."""
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


class Disk:
    """A folder with `photos` and `out`."""

    def __init__(self, folder: Path, photos: Path) -> None:
        self._folder, self._out = folder, folder / "out"
        shutil.copytree(photos, folder / "photos", copy_function=os.link)
        self.input, self.output = f"{folder}/photos/**/*.jpg", str(self._out)
        self.environment: dict[str, str] = {}

    def names(self) -> list[str]:
        """Of the files in the output, those of the work folder too."""
        return [
            os.path.relpath(os.path.join(of, name), self._out)
            for of, _, files in os.walk(self._out)
            for name in files
        ]

    def read(self, name: str) -> bytes:
        return (self._out / name).read_bytes()

    def write(self, name: str, data: bytes) -> None:
        (self._out / name).write_bytes(data)

    def delete(self, name: str) -> None:
        (self._out / name).unlink(missing_ok=True)

    def put_photo(self, name: str, data: bytes) -> None:
        path = self._folder / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)  # a link to that of other trials
        path.write_bytes(data)

    def delete_photo(self, name: str) -> None:
        (self._folder / "photos" / name).unlink()

    def has_work_folder(self) -> bool:
        return (self._out / ".beam_tfr").exists()

    @contextlib.contextmanager
    def hidden(self) -> Iterator[None]:
        """Takes the photos away, as a disk that is not mounted."""
        away = self._folder / "away"
        (self._folder / "photos").rename(away)
        try:
            yield
        finally:
            away.rename(self._folder / "photos")

    @contextlib.contextmanager
    def quota(self, size: int) -> Iterator[None]:
        """Gives the output a disk of its own, of so many bytes, within the block.

        After the block, it may have as much as it wants.
        """
        self._out.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o"]
        subprocess.run([*mount, f"size={size}", "tmpfs", self._out], check=True)
        try:
            yield
        finally:
            subprocess.run([*mount, "remount,size=100m", "tmpfs", self._out], check=True)

    def close(self) -> None:
        if os.path.ismount(self._out):
            subprocess.run(["umount", self._out], check=True)
        shutil.rmtree(self._folder)


class Bucket:
    """The bucket `b` of a fake server, with `photos` and `out`."""

    def __init__(self, server: FakeGcs, photos: Path) -> None:
        self.server = server
        server.clear()
        server.set(log=False)
        server.put_folder(photos, "photos")
        self.input, self.output = "gs://b/photos/**/*.jpg", "gs://b/out"
        self.environment = {"STORAGE_EMULATOR_HOST": server.address}

    def names(self) -> list[str]:
        return [name[4:] for name in self.server.names() if name.startswith("out/")]

    def read(self, name: str) -> bytes:
        return self.server.get(f"out/{name}")

    def write(self, name: str, data: bytes) -> None:
        self.server.put(f"out/{name}", data)

    def delete(self, name: str) -> None:
        self.server.delete(f"out/{name}")

    def put_photo(self, name: str, data: bytes) -> None:
        self.server.put(f"photos/{name}", data)

    def delete_photo(self, name: str) -> None:
        self.server.delete(f"photos/{name}")

    def has_work_folder(self) -> bool:
        return any(name.startswith(".beam_tfr/") for name in self.names())

    def close(self) -> None:
        self.server.clear()


Place = Disk | Bucket


def files_in(place: Place) -> dict[str, bytes]:
    """Name -> content of everything in the output that is, or will be, part of a dataset."""
    found = {}
    for name in [name for name in place.names() if name.partition("/")[0] not in BESIDE]:
        with contextlib.suppress(FileNotFoundError):
            found[name] = place.read(name)
    return found


def bury(place: Place) -> None:
    """Makes the locks look as if the processes of their runs had died."""
    for name in [name for name in place.names() if name.startswith(LOCK)]:
        with contextlib.suppress(FileNotFoundError, ValueError):
            dead = {**json.loads(place.read(name)), "process_start": "0"}
            del dead["digest"]
            place.write(name, canonical_json({**dead, "digest": sha256_hex(canonical_json(dead))}))
