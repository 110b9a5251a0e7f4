"""Annotations of YOLO: a `data.yaml` that names folders of images.

Beside each folder "images" is a folder "labels", with a text file for each image that has objects.
See https://docs.ultralytics.com/datasets/detect.
"""

import contextlib
import os
import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, Any, Literal, NamedTuple

import msgspec
import yaml

from beam_tfr import storage
from beam_tfr.features.cells import BadCell
from beam_tfr.inputs.listing import match_files
from beam_tfr.inputs.patterns import escape_pattern
from beam_tfr.inputs.pool import Pool
from beam_tfr.schema.errors import UsageError
from beam_tfr.tables.annotations.text import MAX_TEXT_BYTES, decode_text, parse_numbers, read_text

READ_AT_A_TIME = 256  # label files
_NO_FOLDER = ("", "null", "~")  # as YAML spells null
_LEAST_CORNERS = 6  # numbers of a triangle


class _Yolo(msgspec.Struct):
    """What is read of data.yaml, all of it as text."""

    names: list[str] | dict[str, str]
    kpt_shape: tuple[str, Literal["2", "3"]] | None = None
    path: str = ""
    train: str | list[str] = ""
    val: str | list[str] = ""
    test: str | list[str] = ""

    def class_names(self) -> Mapping[str, str]:
        """Number of a class, as text -> its name."""
        if isinstance(self.names, dict):
            return self.names
        return {str(number): name for number, name in enumerate(self.names)}

    def folders(self) -> Iterator[tuple[str, str]]:
        """Yields each folder of images, with its split."""
        splits = {"train": self.train, "validation": self.val, "test": self.test}
        for split, folders in splits.items():
            for folder in [folders] if isinstance(folders, str) else folders:
                if folder not in _NO_FOLDER:
                    yield folder, split


class _YoloImage(NamedTuple):
    path: str
    split: str


class _Shape(NamedTuple):
    """The shape of an object, relative to the image.

    `box` is center x, y, width and height.
    """

    box: list[float]
    keypoints: list[Any] | BadCell
    polygon: list[float]


def read_yolo(path: str, file: IO[bytes], say: Callable[[str], object]) -> Iterator[dict[str, Any]]:
    """Yields the rows of the images that a `data.yaml` names.

    Raises:
        ValueError, MsgspecError, YAMLError, RecursionError: it is not such a file, there are no
            images in a folder, or a label file cannot be read.
    """
    # The base loader makes texts, lists and dicts of everything.
    fields = yaml.load(read_text(file), yaml.BaseLoader)  # noqa: S506  # nosec B506
    data = msgspec.convert(fields, _Yolo)
    names = data.class_names()
    base = posixpath.join(posixpath.dirname(path), data.path)
    images = []
    for folder, split in data.folders():
        images += [_YoloImage(image, split) for image in _list_images(base, folder)]
    for image, lines in _read_all_labels(images):
        shapes = [_read_shape(parse_numbers(line[1:]), data.kpt_shape) for line in lines]
        polygons = [shape.polygon for shape in shapes]
        yield {
            "file": image.path,
            "image/source_id": posixpath.relpath(image.path, base),
            "split": image.split,
            "class": [_class_name(line[0], names) for line in lines],
            "box": [shape.box for shape in shapes],
            "keypoint": [shape.keypoints for shape in shapes],
            "polygon": polygons,
            "segment": polygons,
        }


def _list_images(base: str, folder: str) -> list[str]:
    """The images in a folder, sorted.

    Roboflow writes ../train/images for train/images.
    """
    for relative in (folder, folder.removeprefix("../")):
        path = posixpath.normpath(posixpath.join(base, relative))
        if path.startswith("gs:/"):
            path = path.replace("gs:/", storage.GCS)  # which normpath shortened
        with contextlib.suppress(UsageError):
            pattern = f"{escape_pattern(path)}/"
            return sorted(entry.path for entry in match_files([(pattern, ())]))
    raise ValueError(
        f"there are no images in {path}; name folders, relative to that of the file and its `path`"
    )


def _read_all_labels(images: Sequence[_YoloImage]) -> Iterator[tuple[_YoloImage, list[list[str]]]]:
    """Yields each image with the lines of its labels.

    Many of them are read at a time.
    """
    with contextlib.closing(Pool(storage.READ_AHEAD, "beam_tfr-labels")) as pool:
        for begin in range(0, len(images), READ_AT_A_TIME):
            batch = images[begin : begin + READ_AT_A_TIME]
            labels = pool.map(_read_labels, [image.path for image in batch])
            yield from zip(batch, labels, strict=True)


def _read_labels(image: str) -> list[list[str]]:
    """The fields of each line of the labels of an image; none without a file."""
    stem = os.path.splitext(image)[0]
    path = "/labels/".join(f"{stem}.txt".rsplit("/images/", 1))
    try:
        text = decode_text(storage.read_bytes(path, max_bytes=MAX_TEXT_BYTES))
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from None
    lines = [line.split() for line in text.splitlines()]
    return [fields for fields in lines if fields]


def _class_name(number: str, names: Mapping[str, str]) -> str | BadCell:
    if number in names:
        return names[number]
    return BadCell(f"{number} is not in `names`")


def _read_shape(numbers: list[float], kpt_shape: tuple[str, str] | None) -> _Shape:
    """The shape of an object: a box, the corners of a polygon, or a box and keypoints."""
    if kpt_shape:
        keypoints = _read_keypoints(numbers[4:], *kpt_shape)
        return _Shape(numbers[:4], keypoints=keypoints, polygon=[])
    if len(numbers) < _LEAST_CORNERS or len(numbers) % 2:
        return _Shape(numbers, keypoints=[], polygon=[])
    return _Shape(_enclose(numbers), keypoints=[], polygon=numbers)


def _read_keypoints(numbers: list[float], count: str, size: str) -> list[Any] | BadCell:
    """Reads keypoints as x, y and visibility.

    Their number, and how many numbers each has, are given.
    """
    if len(numbers) != int(count) * int(size):
        return BadCell(f"{len(numbers)} numbers, but `kpt_shape` says {count} keypoints of {size}")
    if size == "3":
        return numbers
    points = zip(numbers[::2], numbers[1::2], strict=True)
    return [[x, y, 0 if min(x, y) < 0 else 2] for x, y in points]


def _enclose(corners: Sequence[float]) -> list[float]:
    """The box around the corners of a polygon."""
    left = min(corners[::2])
    right = max(corners[::2])
    top = min(corners[1::2])
    bottom = max(corners[1::2])
    return [(left + right) / 2, (top + bottom) / 2, right - left, bottom - top]
