"""What tests of updates share.

Small photos, their decoding counted, and fresh conversions to compare with.
"""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

import beam_tfr
from beam_tfr import images
from beam_tfr.launch import Result
from beam_tfr.transforms import drafting
from tests.fixtures import save, smooth
from tests.living_photos import files_of

CLASSES = ("cat", "dog", "owl")


def paint(path: Path, number: int, kind: str = "JPEG", **how: Any) -> None:
    """Writes a small photo that differs for each number."""
    path.parent.mkdir(parents=True, exist_ok=True)
    image = smooth(20 + number % 7, 24 + number % 5)
    image.putpixel((number % 20, number // 20 % 20), (250, 3 * number % 256, 5))
    path.write_bytes(save(image, kind, **how))


def write_photos(folder: Path, each: int = 6) -> None:
    """Writes photos of three classes: CLASS/NUMBER.jpg."""
    for i, label in enumerate(CLASSES):
        for j in range(each):
            paint(folder / label / f"{j}.jpg", i * each + j)


def spoil(folder: Path) -> None:
    """Puts other bytes of the same size in place of all files.

    They are no image. The times of files stay.
    """
    chance = random.Random(1)
    for path in folder.rglob("*"):
        if path.is_file():
            status = path.stat()
            path.write_bytes(chance.randbytes(status.st_size))
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def convert(output: Path, **options: Any) -> Result:
    return beam_tfr.convert(output=output, progress=False, name="d", **options)


def fresh(output: Path, **options: Any) -> dict[str, bytes]:
    """The files of a fresh conversion."""
    shutil.rmtree(output, ignore_errors=True)
    convert(output, **options)
    return files_of(output)


def update(folder: Path, **options: Any) -> Result:
    return beam_tfr.update(folder, progress=False, **options)


_decoded, _measuring = list[str](), list[bool]()
_measure, _decode = drafting.measure_sample, images.convert_image


def _measured(*arguments: Any, **options: Any) -> Any:
    _measuring.append(True)
    try:
        return _measure(*arguments, **options)
    finally:
        _measuring.clear()


def _counted(data: bytes, *arguments: Any, name: str, **options: Any) -> Any:
    if not _measuring:
        _decoded.append(name)
    return _decode(data, *arguments, name=name, **options)


def count_decoding(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Lists the keys of images as they are decoded.

    Those of the sample that the plan measures are left out.
    """
    _decoded.clear()
    monkeypatch.setattr(drafting, "measure_sample", _measured)
    monkeypatch.setattr(images, "convert_image", _counted)
    return _decoded
