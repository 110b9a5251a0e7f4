"""How many copies of photos are found by their perceptual hashes, how many falsely, at what cost.

Each photo is converted as `convert` does by default, and so are its copies, which are made here:
re-encoded, resized, brighter, gray, mirrored, with text, and cropped. A copy is found if its hash
is near enough to that of its photo. A false pair is one of different photos.
"""

from __future__ import annotations

import argparse
import io
import itertools
import pathlib
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from beam_tfr.copies.hashes import Hashes
from beam_tfr.images import convert_image
from beam_tfr.inspection import fonts
from benchmarks import duplicates_cost
from benchmarks.measuring import Table
from benchmarks.turns import add_photos, photos

PARTS = ("found", "cost")
DISTANCES = (16, 24, 31, 40)
MOST_PHOTOS = 1000
_ROWS_AT_A_TIME = 64  # whose distances to all are in memory
_FARTHEST = 60
_PAIRS_WITHIN = (*DISTANCES, 48, _FARTHEST)
_SIDE = 224  # of pictures of pairs


def reencode(image: Image.Image) -> Image.Image:
    """As a JPEG of quality 30."""
    data = io.BytesIO()
    image.save(data, "JPEG", quality=30)
    return Image.open(data)


def halve(image: Image.Image) -> Image.Image:
    return image.resize((image.width // 2, image.height // 2), Image.Resampling.LANCZOS)


def brighten(image: Image.Image) -> Image.Image:
    """Brighter by 30 %."""
    return image.point([min(255, round(value * 1.3)) for value in range(256)] * 3)


def write_text(image: Image.Image, share: float) -> Image.Image:
    """With a line of text across the lower part, of a share of the height."""
    written = image.copy()
    font = ImageFont.load_default(max(8, image.height * share))
    place = (image.width // 20, image.height * 3 // 4)
    draw = ImageDraw.Draw(written)
    draw.text(place, "Sample photo", "white", font, stroke_width=1, stroke_fill="black")
    return written


def crop(image: Image.Image, share: float) -> Image.Image:
    """Without a share of its width and of its height, at the left and the top."""
    return image.crop((round(image.width * share), round(image.height * share), *image.size))


COPIES: dict[str, Callable[[Image.Image], Image.Image]] = {
    "JPEG, quality 30": reencode,
    "half size": halve,
    "30 % brighter": brighten,
    "gray": lambda image: image.convert("L"),
    "mirrored": lambda image: image.transpose(Image.Transpose.FLIP_LEFT_RIGHT),
    "text, 5 % of the height": lambda image: write_text(image, 0.05),
    "text, 10 % of the height": lambda image: write_text(image, 0.10),
    "cropped by 1 %": lambda image: crop(image, 0.01),
    "cropped by 2 %": lambda image: crop(image, 0.02),
    "cropped by 5 %": lambda image: crop(image, 0.05),
    "cropped by 10 %": lambda image: crop(image, 0.10),
}


class Pair(NamedTuple):
    """Two photos that are so many bits apart."""

    distance: int
    left: int
    right: int


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_photos(parser)
    parser.add_argument("--resize", default="crop", help="as of convert; default: crop")
    parser.add_argument("--most", type=int, default=MOST_PHOTOS, help="photos to copy")
    parser.add_argument("--part", choices=PARTS, help="only this part; default: both")
    duplicates_cost.add_arguments(parser)
    parser.add_argument("--pictures", type=pathlib.Path, help="folder for pictures of pairs")


def hash_photo(image: Image.Image, resize: str) -> NDArray[np.uint8]:
    """The perceptual hash that the contents would have: uint8 [32]."""
    data = io.BytesIO()
    image.save(data, "PNG", compress_level=0)
    appearance = convert_image(data.getvalue(), resize=resize).appearance
    return np.frombuffer(appearance.phash, np.uint8)


def hash_copies(path: pathlib.Path, resize: str) -> NDArray[np.uint8]:
    """The hashes of a photo and of its copies, in the order of `COPIES`: uint8 [1 + copies, 32]."""
    with Image.open(path) as opened:
        image = opened.convert("RGB")
    images = [image, *(make(image) for make in COPIES.values())]
    return np.array([hash_photo(image, resize) for image in images])


def hash_original(path: pathlib.Path, resize: str) -> NDArray[np.uint8]:
    with Image.open(path) as opened:
        return hash_photo(opened.convert("RGB"), resize)


def find_near_pairs(hashes: Hashes, most: int) -> list[Pair]:
    """The pairs of images that are at most so many bits apart, the nearest first."""
    number = len(hashes)
    pairs = list[Pair]()
    for begin in range(0, number, _ROWS_AT_A_TIME):
        rows = np.arange(begin, min(begin + _ROWS_AT_A_TIME, number))
        left, right = (side.ravel() for side in np.meshgrid(rows, np.arange(number)))
        is_once = left < right
        left, right = left[is_once], right[is_once]
        near = np.flatnonzero(hashes.are_near(left, right, most))
        distances = hashes.distances(left[near], right[near])
        pairs += itertools.starmap(Pair, zip(distances, left[near], right[near], strict=True))
    return sorted(pairs)


def run(arguments: argparse.Namespace) -> Iterator[Table]:
    if arguments.part != "cost":
        yield from measure_found(arguments)
    if arguments.part != "found":
        temporary = tempfile.TemporaryDirectory(prefix="beam_tfr-duplicates-")
        with photos(arguments) as paths, temporary as folder:
            yield from duplicates_cost.measure_costs(arguments, pathlib.Path(folder), paths)


def measure_found(arguments: argparse.Namespace) -> Iterator[Table]:
    """Yields which copies are found, and which pairs falsely."""
    with photos(arguments) as paths:
        copied = paths[:: max(1, len(paths) // arguments.most)][: arguments.most]
        with ThreadPoolExecutor(2) as pool:
            with_copies = pool.map(hash_copies, copied, itertools.repeat(arguments.resize))
            hashes = np.array([*with_copies])  # [photos, 1 + copies, 32]
            alone = pool.map(hash_original, paths, itertools.repeat(arguments.resize))
            originals = Hashes.from_bytes(np.array([*alone]))
        yield measure_recall(hashes, copied, arguments.pictures)
        pairs = find_near_pairs(originals, _FARTHEST)
        rows = [[str(most), sum(pair.distance <= most for pair in pairs)] for most in _PAIRS_WITHIN]
        title = f"duplicates: pairs among {len(paths):,} different photos"
        yield Table(title, {"bits, at most": "", "pairs": ",d"}, rows)
        if arguments.pictures:
            draw_nearest(arguments.pictures, paths, pairs)


def measure_recall(
    hashes: NDArray[np.uint8], paths: list[pathlib.Path], folder: pathlib.Path | None
) -> Table:
    """The share of copies that are found, for each kind and distance."""
    rows = []
    own = np.arange(len(paths))
    for number, name in enumerate(COPIES, start=1):
        both = Hashes.from_bytes(np.concatenate([hashes[:, 0], hashes[:, number]]))
        distances = both.distances(own, own + len(paths))
        shares = [float((distances <= most).mean()) for most in DISTANCES]
        rows.append([name, *shares, float(np.median(distances)), int(distances.max())])
        if folder:
            draw_missed(folder, name, paths, distances)
    columns = {"copy": "", **dict.fromkeys(map(str, DISTANCES), ".3f")}
    columns |= {"median": ".0f", "largest": "d"}
    return Table(
        f"duplicates: share of copies that are found, of {len(paths):,} photos", columns, rows
    )


def draw_missed(
    folder: pathlib.Path, name: str, paths: list[pathlib.Path], distances: NDArray[np.int64]
) -> None:
    """Draws the photo whose copy is farthest from it, beside that copy."""
    farthest = int(np.argmax(distances))
    with Image.open(paths[farthest]) as opened:
        image = opened.convert("RGB")
    draw_pair(
        folder / f"{name.replace(' ', '_')}.jpg",
        image,
        COPIES[name](image),
        f"{name}: {distances[farthest]} bits",
    )


def draw_nearest(folder: pathlib.Path, paths: list[pathlib.Path], pairs: list[Pair]) -> None:
    """Draws the nearest pairs of different photos."""
    for number, pair in enumerate(pairs[:12]):
        with Image.open(paths[pair.left]) as left, Image.open(paths[pair.right]) as right:
            draw_pair(
                folder / f"near_{number}.jpg",
                left.convert("RGB"),
                right.convert("RGB"),
                f"{pair.distance} bits: {paths[pair.left].name} {paths[pair.right].name}",
            )


def draw_pair(path: pathlib.Path, left: Image.Image, right: Image.Image, text: str) -> None:
    sheet = Image.new("RGB", (2 * _SIDE + 24, _SIDE + 34), "white")
    for place, image in enumerate((left, right)):
        shown = image.convert("RGB")
        shown.thumbnail((_SIDE, _SIDE))
        sheet.paste(shown, (8 + place * (_SIDE + 8), 8))
    ImageDraw.Draw(sheet).text((8, _SIDE + 14), fonts.drawable(text), "black")
    path.parent.mkdir(parents=True, exist_ok=True)
    sheet.save(path, quality=85)
