"""Reads annotations of objects as tables: COCO and Create ML (.json), Pascal VOC (.xml), YOLO (.yaml).

A row is an image with the boxes and classes of its objects; `schema.features.ANNOTATIONS` names the columns. Formats:

    COCO        https://cocodataset.org/#format-data; an image without objects has none, and is a row
    Create ML   a list of images, whose boxes have the center x, y, and width and height in pixels
    Pascal VOC  the PASCAL VOC devkit: pixels count from 1, and the last belongs to its box
    YOLO        https://docs.ultralytics.com/datasets/detect: `data.yaml` names folders of images; beside each "images"
                is a folder "labels", with a text file for each image that has objects
"""

from __future__ import annotations

import array
import contextlib
import os
import posixpath
from collections.abc import Iterator, Sequence
from typing import IO, Any
from xml.etree import ElementTree  # nosec B405  # a document with entities is refused

import numpy as np

from beam_tfr import storage
from beam_tfr.inputs.listing import list_files
from beam_tfr.inputs.patterns import escape
from beam_tfr.inputs.pool import Pool
from beam_tfr.schema.errors import UsageError
from beam_tfr.schema.features import SOURCE_HEIGHT, SOURCE_WIDTH
from beam_tfr.tables.json_stream import read_elements

MAX_TEXT_BYTES = 1 << 20  # 1 MiB, of an XML, YAML or label file; so much YAML takes half a minute
NO_BOX = (float("nan"),) * 4  # rejects its image
READ_AT_A_TIME = 256  # label files
SPLITS = {"train": "train", "val": "validation", "test": "test"}


def read_annotations(path: str, file: IO[bytes]) -> Iterator[dict[str, Any]]:
    """Yields column -> cell for each image, in the order of the file.

    Of COCO, all boxes are held in memory, 64 bytes each.

    Raises:
        ValueError: it is not such a file; says what is wrong and where.
    """
    suffix = os.path.splitext(path)[1].lower()
    if suffix == ".xml":
        yield _voc(_text(file.read(MAX_TEXT_BYTES + 1)))
    elif suffix != ".json":
        yield from _yolo(path, _text(file.read(MAX_TEXT_BYTES + 1)))
    else:
        first = file.read(1024).lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
        file.seek(0)
        yield from _create_ml(file) if first == b"[" else _coco(file)


def _text(data: bytes) -> str:
    """The text of a small file, which is UTF-8 whatever it declares."""
    if len(data) > MAX_TEXT_BYTES:
        raise ValueError(f"has more than {MAX_TEXT_BYTES >> 20} MiB")
    return data.decode("utf-8-sig")


def _members(file: IO[bytes]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """The key, the place and the content of each object in the lists of a JSON file."""
    for key, place, member in read_elements(file):
        if key in ("", "images", "annotations", "categories"):
            if not isinstance(member, dict):
                raise ValueError(f"{place} is not a JSON object")
            yield key, place, member


def _field(member: dict[str, Any], name: str, place: str) -> Any:
    if name not in member:
        raise ValueError(f"{place} has no {name!r}")
    return member[name]


def _id(member: dict[str, Any], name: str, place: str) -> str:
    """An id as text: 7, 7.0 and "7" are the same."""
    value = _field(member, name, place)
    return str(int(value) if isinstance(value, float) and value.is_integer() else value)


def _coco(file: IO[bytes]) -> Iterator[dict[str, Any]]:
    classes, names, kinds = dict[str, Any](), dict[str, Any](), dict[str, int]()
    numbers, places = dict[str, int](), dict[str, str]()  # id of an image -> number of its row, an annotation
    images, categories, crowds, sides = array.array("q"), array.array("q"), array.array("b"), array.array("d")
    for key, place, member in _members(file):
        if key == "annotations":
            identity, kind = _id(member, "image_id", place), _id(member, "category_id", place)
            if identity not in names:
                places.setdefault(identity, place)
            images.append(numbers.setdefault(identity, len(numbers)))
            categories.append(kinds.setdefault(kind, len(kinds)))
            crowds.append(member.get("iscrowd") == 1)
            left, top, width, height = _four(member.get("bbox"))
            sides.extend((left, top, left + width, top + height, *_numbers([member.get("area", width * height)])))
            continue
        identity, found = _id(member, "id", place), names if key == "images" else classes
        if identity in found:
            raise ValueError(f"{place} has the id {identity}, as one before it has")
        found[identity] = _field(member, "file_name" if key == "images" else "name", place)
        if key == "images":
            numbers.setdefault(identity, len(numbers))
            found[identity] = found[identity], member.get("width"), member.get("height")
    if not names:
        raise ValueError("lists no images; COCO has them under 'images', Create ML in a list; rows belong into .jsonl")
    ids = [*kinds]
    order = np.argsort(np.asarray(images), kind="stable")
    ends = np.cumsum(np.bincount(images, minlength=len(numbers)))
    boxes, begin = np.asarray(sides).reshape(-1, 5), 0
    for identity, number in numbers.items():
        mine, begin = order[begin : ends[number]], int(ends[number])
        own = [ids[categories[at]] for at in mine]
        no_path = {"image_id": identity, "annotation": places.get(identity)}  # of an image that is not listed: a reject
        name, width, height = names.get(identity, (no_path, 0, 0))
        yield {
            "file": name,
            "class": [classes.get(kind, {"category_id": kind}) for kind in own],
            "box": boxes[mine, :4].tolist(),
            "image/source_id": identity,
            SOURCE_WIDTH: width,
            SOURCE_HEIGHT: height,
            "image/object/category_id": [int(kind) if kind.isdecimal() else kind for kind in own],
            "image/object/is_crowd": [crowds[at] for at in mine],
            "image/object/area": boxes[mine, 4].tolist(),
        }


def _four(value: Any) -> Sequence[float]:
    return _numbers(value) if isinstance(value, list) and len(value) == 4 else NO_BOX


def _numbers(values: Sequence[Any]) -> Sequence[float]:
    """Numbers as floats; all NaN if one is not."""
    try:
        return [float(value) for value in values]
    except (TypeError, ValueError, OverflowError):
        return NO_BOX[: len(values)]


def _create_ml(file: IO[bytes]) -> Iterator[dict[str, Any]]:
    for _, place, member in _members(file):
        objects = _field(member, "annotations", f"image {place}, which Create ML needs (rows belong into .jsonl),")
        try:
            labels = [one["label"] for one in objects]
            sides = [_four([one["coordinates"][name] for name in ("x", "y", "width", "height")]) for one in objects]
        except (TypeError, KeyError):
            raise ValueError(f"{place} has an annotation without a label, or without coordinates") from None
        name = member.get("image", member.get("imagefilename"))
        yield {
            "file": name,
            "class": labels,
            "box": [[x - width / 2, y - height / 2, x + width / 2, y + height / 2] for x, y, width, height in sides],
            "image/source_id": name,
            "image/object/category_id": [-1] * len(sides),
            "image/object/is_crowd": [0] * len(sides),
            "image/object/area": [width * height for _, _, width, height in sides],
        }


def _voc(text: str) -> dict[str, Any]:
    if "<!" in text.replace("<!--", ""):
        raise ValueError("has a DOCTYPE or an entity, which no file of Pascal VOC needs")
    try:
        root = ElementTree.fromstring(text)  # noqa: S314  # nosec B314
    except ElementTree.ParseError as error:
        raise ValueError(f"is not valid XML: {error}") from None
    objects = root.findall("object")
    sides = [[one.findtext(f"bndbox/{side}") for side in ("xmin", "ymin", "xmax", "ymax")] for one in objects]
    name = root.findtext("filename")
    return {
        "file": name,
        "class": [one.findtext("name") for one in objects],
        "box": [[left - 1, top - 1, right, bottom] for left, top, right, bottom in map(_four, sides)],
        "image/source_id": name,
        SOURCE_WIDTH: root.findtext("size/width"),
        SOURCE_HEIGHT: root.findtext("size/height"),
        "image/object/difficult": [one.findtext("difficult") or 0 for one in objects],
        "image/object/truncated": [one.findtext("truncated") or 0 for one in objects],
    }


def _yolo(path: str, text: str) -> Iterator[dict[str, Any]]:
    import yaml

    try:
        about = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, LookupError, AttributeError, ValueError) as error:  # as of `!!bool x`
        raise ValueError(f"is not valid YAML: {str(error).partition(chr(10))[0]}") from None
    names = about.get("names") if isinstance(about, dict) else None
    pairs = names.items() if isinstance(names, dict) else enumerate(names if isinstance(names, list) else ())
    classes = {str(number): name for number, name in pairs}
    if not classes or not all(isinstance(name, (str, int)) for name in classes.values()):
        raise ValueError("names no classes; data.yaml of YOLO has a list of them under 'names'")
    base = posixpath.join(posixpath.dirname(path), str(about.get("path") or ""))
    given = {split: about[split] for split in SPLITS if about.get(split)}
    folders = [(split, of) for split, some in given.items() for of in (some if isinstance(some, list) else [some])]
    with contextlib.closing(Pool(storage.READ_AHEAD, "beam_tfr-labels")) as pool:
        for split, folder in folders:
            files = _images(split, base, str(folder))
            for at in range(0, len(files), READ_AT_A_TIME):
                some = files[at : at + READ_AT_A_TIME]
                for file, lines in zip(some, pool.map(_read_labels, some), strict=True):
                    yield {
                        "file": file,
                        "image/source_id": posixpath.relpath(file, base),
                        "split": SPLITS[split],
                        "class": [classes.get(line[0], {"class": line[0]}) for line in lines],
                        "box": [_enclosing(line[1:]) for line in lines],
                    }


def _images(split: str, base: str, folder: str) -> list[str]:
    for below in (folder, folder.removeprefix("../")):  # Roboflow writes ../train/images for train/images
        path = posixpath.normpath(posixpath.join(base, below))
        path = path.replace("gs:/", storage.GCS) if path.startswith("gs:/") else path
        with contextlib.suppress(UsageError):
            return sorted(entry.path for entry in list_files(f"{escape(path)}/"))
    cure = "name folders, relative to that of the file and to its 'path'"
    raise ValueError(f"{split}: there are no images in {path}; {cure}")


def _read_labels(image: str) -> list[list[str]]:
    """The fields of each line of the labels of an image; none without a file."""
    before, _, behind = image.rpartition("/images/")
    path = f"{os.path.splitext(f'{before}/labels/{behind}' if before else image)[0]}.txt"
    try:
        text = _text(storage.read_bytes(path, max_bytes=MAX_TEXT_BYTES))
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from None
    return [fields for line in text.splitlines() if (fields := line.split())]


def _enclosing(fields: Sequence[str]) -> Sequence[float]:
    """The box of a line, whose numbers are those of a box or of the corners of a polygon."""
    numbers = _numbers(fields)
    if len(numbers) < 6 or len(numbers) % 2:
        return numbers if len(numbers) == 4 else NO_BOX
    (left, right), (top, bottom) = ((min(side), max(side)) for side in (numbers[::2], numbers[1::2]))
    return [(left + right) / 2, (top + bottom) / 2, right - left, bottom - top]
