"""The codecs and the resizing give the same bytes on every processor.

The same program runs under the settings that make the codecs behave as on other processors.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image as PillowImage

from tests.conftest import SAMPLE
from tests.fixtures import all_fixtures, save

# What OpenCV and libjpeg-turbo read; RESIZER is for `PROGRAM`, since cykooz-resizer has a setting
# but no variable.
PROCESSORS = {
    "all": {},
    "IPP disabled": {"OPENCV_IPP": "disabled"},
    "IPP sse42": {"OPENCV_IPP": "sse42", "JSIMD_FORCESSE2": "1"},
    "IPP avx2": {"OPENCV_IPP": "avx2"},
    "IPP avx512": {"OPENCV_IPP": "avx512"},
    "no AVX512": {"OPENCV_CPU_DISABLE": "AVX512-SKX"},
    "no AVX2": {"OPENCV_CPU_DISABLE": "AVX2,FMA3,AVX512-SKX", "RESIZER": "sse4_1"},
    "baseline": {
        "OPENCV_CPU_DISABLE": "SSE4.1,SSE4.2,AVX,FP16,FMA3,AVX2,AVX512-SKX",
        "OPENCV_IPP": "disabled",
        "JSIMD_FORCENONE": "1",
        "RESIZER": "none",
    },
}
# Prints the name and the digest of each thing that it does.
PROGRAM = """
import hashlib, os, pathlib, sys
import cykooz_resizer

class OtherResizer(cykooz_resizer.Resizer):
    def __init__(self):
        super().__init__()
        self.cpu_extensions = cykooz_resizer.CpuExtensions[os.environ["RESIZER"]]

if "RESIZER" in os.environ:
    cykooz_resizer.Resizer = OtherResizer

import cv2
import numpy as np
from beam_tfr.images import convert_image
from beam_tfr.images.encode import encode
from beam_tfr.images.formats import FORMATS
from beam_tfr.images.geometry import compute_placement, resize
from beam_tfr.images.resample import resize_window
from tests.fixtures import noise, smooth

files, photos = (sorted(pathlib.Path(folder).iterdir()) for folder in sys.argv[1:])

digest = hashlib.sha256()
crop = {"image_size": (64, 300), "resize": "crop"}
pad = {"image_size": (331, 47), "resize": "pad"}
for path in files:
    for change in ({}, crop, pad):
        image = convert_image(path.read_bytes(), **change)
        digest.update(repr((image.encoded, image.channel_sums, image.channel_squares)).encode())
print("convert_image", digest.hexdigest())

digest = hashlib.sha256()
for height, width in ((1, 1), (17, 9), (64, 64), (201, 333)):
    for image in (noise(height, width), smooth(height, width)):
        for pixels in (np.asarray(image), np.asarray(image)[..., :1]):
            for encoding in ("jpeg", "png", "webp", "raw"):
                for quality in (10, 90, 100):
                    for chroma in ("420", "444"):
                        digest.update(encode(pixels, encoding, quality=quality, chroma=chroma))
print("encode", digest.hexdigest())

digest = hashlib.sha256()
chance = np.random.default_rng(4)
# Widths of every rest to a vector, every number of boxes, growing and shrinking.
for number in range(120):
    height, width, channels = (*chance.integers(1, 700, 2), (1, 3, 4)[number % 3])
    pixels = chance.integers(0, 256, (height, width, channels), dtype=np.uint8)
    if number % 2:  # two levels only: most sums end at a half
        pixels = pixels // 128 * 255
    digest.update(resize_window(pixels, tuple(chance.integers(1, 250, 2))))
    window = {"rows": (height / 8, height * 0.7), "columns": (width / 16, width * 0.8)}
    digest.update(resize_window(pixels, tuple(chance.integers(1, 90, 2)), **window))
for path in photos:
    source = FORMATS["jpeg"].open(path.read_bytes())
    for mode in ("stretch", "fit", "crop", "pad", "shortest", "none"):
        decoded = source.decode(None if mode == "none" else (100, 100))
        placed = compute_placement(source.height, source.width, (48, 48), mode)
        digest.update(np.ascontiguousarray(resize(decoded.pixels, placed, eighths=decoded.eighths)))
print("resample", digest.hexdigest())
print(cv2.getCPUFeaturesLine())
"""


@pytest.mark.slow
def test_the_same_bytes_on_every_processor(tmp_path: Path) -> None:
    files, photos = tmp_path / "files", tmp_path / "photos"
    files.mkdir()
    photos.mkdir()
    samples = sorted(SAMPLE.rglob("*.jpg"))[::10]
    sound = [fixture.data for _, fixture in sorted(all_fixtures().items()) if not fixture.reason]
    small = [data for data in sound if len(data) < 100_000][::2]
    for number, data in enumerate([*(path.read_bytes() for path in samples), *small]):
        (files / f"{number:03d}").write_bytes(data)
    for number, path in enumerate(samples):
        photo = PillowImage.open(path)
        large = photo.resize((photo.width * 2 + number, photo.height * 2 + 1))
        (photos / f"{number:03d}").write_bytes(save(large, "JPEG", quality=90))
    clean = {
        key: value for key, value in os.environ.items() if not key.startswith(("OPENCV_", "JSIMD_"))
    }
    children = {
        name: subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(files), str(photos)],
            env=clean | variables,
            cwd=Path(__file__).parents[1],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # of libtiff, about damaged files
            text=True,
        )
        for name, variables in PROCESSORS.items()
    }
    found = {name: child.communicate()[0].splitlines() for name, child in children.items()}
    assert {name: child.returncode for name, child in children.items()} == dict.fromkeys(
        PROCESSORS, 0
    )
    for name, lines in found.items():
        assert lines[:3] == found["all"][:3], name
    features = {name: lines[3] for name, lines in found.items()}
    if "AVX2" in features["all"]:  # the settings have an effect
        assert features["all"] != features["baseline"]
        assert features["all"] != features["no AVX2"]
