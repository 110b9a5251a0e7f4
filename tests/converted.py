"""Datasets that many tests read.

They are converted once for a whole run of the tests, by whichever worker asks first.

They are in one folder that all workers of pytest-xdist share. No test may change them; copy one to
change it.
"""

from __future__ import annotations

import fcntl
import functools
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import PIL.Image

from beam_tfr import cli
from tests.fixtures import save, smooth

# environment variable with the folder's path; conftest makes and removes it
FOLDER = "BEAM_TFR_TEST_DATASETS"
SAMPLE = Path(cli.__file__).parent / "sample"


def once(name: str, make: Callable[[Path], object]) -> Path:
    """The file or folder `name`, made by `make(path)` if this run lacks it.

    A run is one of all tests.
    """
    path = Path(os.environ[FOLDER]) / name
    with open(f"{path}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            partial = path.with_name(f"{name}.partial")
            make(partial)
            partial.rename(path)
    return path


def convert(pattern: str, output: Path, flags: str) -> None:
    """Runs `beam-tfr convert` in this process; `flags` are separated by spaces."""
    assert (
        cli.main(
            ["convert", "--input", pattern, "--output", str(output), "--name", "d", *flags.split()]
        )
        == 0
    )


def _name(flags: str) -> str:
    return flags.replace(" ", "_").replace("-", "").replace("/", "|")


def write_photos(folder: Path) -> None:
    """Writes 18 of the bundled photos, of 3 classes: 4 of each class in train, 2 in test."""
    for split, each in (("train", 4), ("test", 2)):
        for label in ("hat", "shoes", "t-shirt"):
            target = folder / split / label
            target.mkdir(parents=True)
            found = sorted((SAMPLE / "train" / label).iterdir())
            for file in found[:each] if split == "train" else found[-each:]:
                shutil.copy(file, target / file.name)


@functools.cache
def converted_photos(flags: str = "") -> Path:
    """What `write_photos` writes as a dataset named `d`, with splits and labels."""
    photos = once("photos", write_photos)
    name = f"photos_{_name(flags)}"
    return once(
        name,
        lambda path: convert(f"{photos}/**/*.jpg", path, f"--layout {{split}}/{{label}}/* {flags}"),
    )


def spoil(photos: Path) -> dict[str, str]:
    """Adds what is wrong in real folders; key -> the reason that must stand in rejects.jsonl."""
    hat = photos / "train" / "hat"
    sound = next(hat.iterdir()).read_bytes()
    (hat / "truncated.jpg").write_bytes(sound[: len(sound) // 2])
    (hat / "empty.jpg").write_bytes(b"")
    (hat / "text.jpg").write_text("not an image at all, only its name says so")
    (hat / "gone.jpg").symlink_to("../../nowhere.jpg")
    os.mkfifo(hat / "pipe.jpg")
    (photos / "loose.jpg").write_bytes(sound)
    odd = photos / "my split" / "hat"
    odd.mkdir(parents=True)
    (odd / "a.jpg").write_bytes(sound)
    return {
        "train/hat/truncated.jpg": "damaged-image",
        "train/hat/empty.jpg": "empty-file",
        "train/hat/text.jpg": "not-an-image",
        "train/hat/gone.jpg": "not-found",
        "train/hat/pipe.jpg": "unusable-file",
        "loose.jpg": "layout-mismatch",
        "my split/hat/a.jpg": "layout-mismatch",
    }


@functools.cache
def spoiled_photos() -> Path:
    """`write_photos` after `spoil`."""

    def write(folder: Path) -> None:
        write_photos(folder)
        spoil(folder)

    return once("spoiled", write)


@functools.cache
def converted_spoiled_photos() -> Path:
    """`spoiled_photos` as a dataset named `d`, with splits and labels, of 3 and 2 shards."""
    flags = "--layout {split}/{label}/* --num_shards train=3,test=2 --max_rejects 7"
    return once(
        "spoiled_dataset", lambda path: convert(f"{spoiled_photos()}/**/*.jpg", path, flags)
    )


@functools.cache
def converted_sample(flags: str = "--layout {split}/{label}/*") -> Path:
    """The bundled photos as a dataset named `d`."""
    return once(f"sample_{_name(flags)}", lambda path: convert(f"{SAMPLE}/*/*/*.jpg", path, flags))


def _sources() -> dict[str, bytes]:
    """Name -> file, of every kind that matters to what reads a dataset.

    None is square, most have other sizes.
    """
    photo, wide, tall = smooth(48, 64), smooth(20, 90), smooth(70, 33)
    exif = PIL.Image.Exif()
    exif[0x0112] = 6
    half_clear = tall.copy()
    half_clear.putalpha(PIL.Image.linear_gradient("L").resize(tall.size))
    return {
        "photo.jpg": save(photo, "JPEG", quality=90),
        "wide.jpg": save(wide, "JPEG", quality=90, progressive=True),
        "gray.jpg": save(tall.convert("L"), "JPEG"),
        "turned.jpg": save(photo, "JPEG", exif=exif),
        "cmyk.jpg": save(tall.convert("CMYK"), "JPEG"),
        "photo.png": save(photo, "PNG"),
        "gray.png": save(wide.convert("L"), "PNG"),
        "palette.png": save(photo.quantize(32), "PNG"),
        "clear.png": save(half_clear, "PNG"),
        "photo.webp": save(tall, "WEBP", lossless=True),
        "photo.bmp": save(photo, "BMP"),
        "gray.bmp": save(photo.convert("L"), "BMP"),
        "palette.gif": save(photo.quantize(16), "GIF"),
        "photo.tif": save(wide, "TIFF"),
    }


SOURCES = _sources()


def _write_sources(folder: Path) -> None:
    for name, data in SOURCES.items():
        path = folder / name / name
        path.parent.mkdir(parents=True)
        path.write_bytes(data)


@functools.cache
def converted(flags: str) -> Path:
    """`SOURCES` as a dataset named `d`, each of a class of its own."""
    sources = once("sources", _write_sources)
    has_size = "--resize none" in flags or "--image_size" in flags
    size = "" if has_size else "--image_size 32x40"
    flags = f"--layout {{label}}/* {size} {flags}"
    return once(f"sources_{_name(flags)}", lambda path: convert(f"{sources}/*/*", path, flags))


CONVERSIONS = (
    "--encoding jpeg",
    "--encoding jpeg --color gray --resize shortest --image_size 32",
    "--encoding jpeg --color keep --resize pad",
    "--encoding png --resize fit",
    "--encoding png --color gray --resize pad --compression none",
    "--encoding webp --resize none",
    "--encoding raw --resize stretch",
    "--encoding raw --color gray --resize fit --upscale",
    "--encoding raw --color keep --resize none",
    "--encoding keep --resize none",
    "--encoding keep --resize none --ignore_orientation",
    "--encoding keep --color gray --resize fit",
    "--encoding keep --color keep --resize crop --image_size 48x64",
)
FAST = (
    CONVERSIONS[1],
    CONVERSIONS[3],
    CONVERSIONS[5],
    CONVERSIONS[7],
    CONVERSIONS[11],
)  # of every kind; tests with the others are slow
