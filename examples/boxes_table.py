"""Makes a table of boxes from annotations of COCO, Create ML, Pascal VOC or YOLO, and prints the line that converts it.

    python examples/boxes_table.py instances_train2017.json train2017 boxes.jsonl        # COCO, Create ML
    python examples/boxes_table.py VOC2012/Annotations VOC2012/JPEGImages boxes.jsonl    # Pascal VOC
    python examples/boxes_table.py coco8/data.yaml coco8/images boxes.jsonl              # YOLO

Each row has an image, its boxes, and the name of the class of each. An image without objects has an empty list. What is
wrong with one object becomes a reject of its image when the table is converted. Formats:

    COCO        https://cocodataset.org/#format-data
    Create ML   a list of images, whose boxes have the center x, y, and width and height in pixels
    Pascal VOC  the PASCAL VOC devkit: pixels count from 1, and the last belongs to its box
    YOLO        https://docs.ultralytics.com/datasets/detect: `data.yaml` names folders of images; beside each "images"
                is a folder "labels", with a text file for each image that has objects

A JSON file is read element by element: 555 MB of COCO with 1,000,000 boxes take 28 s and 96 MiB.
"""

from __future__ import annotations

import argparse
import array
import codecs
import functools
import json
import math
import os
import pathlib
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from typing import IO, Any
from xml.etree import ElementTree  # nosec B405  # a document with entities is refused

import numpy as np

Row = dict[str, Any]
BOXES = {".json": "bbox[xyxy]", ".xml": "bbox[xyxy]", ".yaml": "bbox[rel_center_xywh]"}
OF_COCO = "image/source_id:bytes,image/object/category_id:int64[box],image/object/is_crowd:int64[box]"
OF_COCO += ",image/object/area:float[box]"
OF_VOC = "image/source_id:bytes,image/object/difficult:int64[box],image/object/truncated:int64[box]"
WIDTH, HEIGHT = "image/source/width", "image/source/height"  # as stated, to be compared with the image
MAX_ELEMENT = 16 << 20  # characters of an element of a JSON list
MAX_TEXT = 1 << 20  # bytes of an XML, YAML or label file; so much YAML takes half a minute
NO_BOX = (math.nan,) * 4  # rejects its image
IMAGES = {".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff"}
SPLITS = {"train": "train", "val": "validation", "test": "test"}
_CHUNK = 1 << 20  # 1 MiB
_NOT_SPACE = re.compile(r"[^ \t\n\r]")
_decode = json.JSONDecoder().raw_decode


def read_annotations(path: pathlib.Path) -> Iterator[Row]:
    """Yields the row of each image.

    Of COCO, all boxes are held in memory, 64 bytes each.

    Raises:
        ValueError: the file is not what its name says; says what is wrong and where.
    """
    if path.suffix == ".xml":
        yield _voc(_text(path))
    elif path.suffix in (".yaml", ".yml"):
        yield from _yolo(path)
    else:
        with path.open("rb") as file:
            first = file.read(1024).lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
            file.seek(0)
            yield from _create_ml(file) if first == b"[" else _coco(file)


def _text(path: pathlib.Path) -> str:
    """The text of a small file, which is UTF-8 whatever it declares."""
    with path.open("rb") as file:
        data = file.read(MAX_TEXT + 1)
    if len(data) > MAX_TEXT:
        raise ValueError(f"has more than {MAX_TEXT >> 20} MiB")
    return data.decode("utf-8-sig")


def _entries(file: IO[bytes]) -> Iterator[tuple[str, str, dict[str, Any]]]:
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
    for key, place, member in _entries(file):
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
        raise ValueError("lists no images; COCO has them under 'images', Create ML in a list")
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
            WIDTH: width,
            HEIGHT: height,
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
    for _, place, member in _entries(file):
        objects = _field(member, "annotations", f"image {place}, which Create ML needs (rows belong into .jsonl),")
        try:
            labels = [one["label"] for one in objects]
            sides = [_four([one["coordinates"][name] for name in ("x", "y", "width", "height")]) for one in objects]
        except (TypeError, KeyError):
            raise ValueError(f"{place} has an annotation without a label, or without coordinates") from None
        boxes = [[x - width / 2, y - height / 2, x + width / 2, y + height / 2] for x, y, width, height in sides]
        name = member.get("image", member.get("imagefilename"))
        yield {
            "file": name,
            "class": labels,
            "box": boxes,
            "image/source_id": name,
            WIDTH: 0,
            HEIGHT: 0,
            "image/object/category_id": [-1] * len(boxes),
            "image/object/is_crowd": [0] * len(boxes),
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
        WIDTH: root.findtext("size/width"),
        HEIGHT: root.findtext("size/height"),
        "image/object/difficult": [one.findtext("difficult") or 0 for one in objects],
        "image/object/truncated": [one.findtext("truncated") or 0 for one in objects],
    }


def _yolo(path: pathlib.Path) -> Iterator[Row]:
    import yaml

    try:
        about = yaml.safe_load(_text(path))
    except (yaml.YAMLError, RecursionError, LookupError, AttributeError, ValueError) as error:  # as of `!!bool x`
        raise ValueError(f"is not valid YAML: {str(error).partition(chr(10))[0]}") from None
    names = about.get("names") if isinstance(about, dict) else None
    pairs = names.items() if isinstance(names, dict) else enumerate(names if isinstance(names, list) else ())
    classes = {str(number): name for number, name in pairs}
    if not classes or not all(isinstance(name, (str, int)) for name in classes.values()):
        raise ValueError("names no classes; data.yaml of YOLO has a list of them under 'names'")
    base = path.parent.resolve() / str(about.get("path") or "")
    given = {split: about[split] for split in SPLITS if about.get(split)}
    for split, folder in [
        (split, of) for split, some in given.items() for of in (some if isinstance(some, list) else [some])
    ]:
        below = (base / str(folder), base / str(folder).removeprefix("../"))  # Roboflow writes ../train for train
        found = ([of for of in path.resolve().rglob("*") if of.suffix.lower() in IMAGES] for path in below)
        images = sorted(next(filter(None, found), []))
        if not images:
            cure = "name folders, relative to that of the file and to its 'path'"
            raise ValueError(f"{split}: there are no images in {below[0]}; {cure}")
        for image in images:
            before, _, behind = str(image).rpartition("/images/")
            labels = pathlib.Path(f"{before}/labels/{behind}" if before else image).with_suffix(".txt")
            try:
                lines = [line.split() for line in _text(labels).splitlines() if line.strip()] if labels.exists() else []
            except (OSError, ValueError) as error:
                raise ValueError(f"{labels}: {error}") from None
            yield {
                "file": str(image),
                "image/source_id": os.path.relpath(image, base),
                "split": SPLITS[split],
                "class": [classes.get(line[0], {"class": line[0]}) for line in lines],
                "box": [_enclosing(line[1:]) for line in lines],
            }


def _enclosing(fields: Sequence[str]) -> Sequence[float]:
    """The box of a line, whose numbers are those of a box or of the corners of a polygon."""
    numbers = _numbers(fields)
    if len(numbers) < 6 or len(numbers) % 2:
        return numbers if len(numbers) == 4 else NO_BOX
    (left, right), (top, bottom) = ((min(side), max(side)) for side in (numbers[::2], numbers[1::2]))
    return [(left + right) / 2, (top + bottom) / 2, right - left, bottom - top]


def read_elements(file: IO[bytes]) -> Iterator[tuple[str, str, Any]]:
    """Yields (key, place, element) for each element of a list, or of the lists in an object, in the order of the file.

    Raises:
        ValueError: it is not such a file, or an element has more than `MAX_ELEMENT` characters.
    """
    text = _Text(file)
    if text.take("[{", "the file") == "[":
        yield from _elements(text, "")
    else:
        for _ in _members(text, "}", "the file"):
            key = text.value("a key")
            text.take(":", f"{key!r}")
            if text.peek() == "[":
                text.take("[", key)
                yield from _elements(text, key)
            else:
                text.value(key)
    if text.peek():
        raise ValueError("is not valid JSON: more follows after its end")


def _elements(text: _Text, key: str) -> Iterator[tuple[str, str, Any]]:
    for number, _ in enumerate(_members(text, "]", key)):
        place = f"{key}[{number}]"
        yield key, place, text.value(place)


def _members(text: _Text, end: str, place: str) -> Iterator[None]:
    """Stops before each member of a list or object that has begun, up to its end."""
    if text.peek() == end:
        text.take(end, place)
        return
    yield
    while text.take(f",{end}", place) != end:
        yield


class _Text:
    """The text of a file, of which only what is being read is in memory."""

    def __init__(self, file: IO[bytes]) -> None:
        self._chunks = codecs.iterdecode(iter(functools.partial(file.read, _CHUNK), b""), "utf-8-sig")
        self._text, self._at = "", 0

    def peek(self) -> str:
        """Skips white space and returns the next character; empty at the end."""
        while not (found := _NOT_SPACE.search(self._text, self._at)):
            self._at = len(self._text)
            if not self._more():
                return ""
        self._at = found.start()
        return found[0]

    def take(self, allowed: str, place: str) -> str:
        """Skips white space and one of the allowed characters, which it returns."""
        found = self.peek()
        if not found or found not in allowed:
            wrong = f"{found!r} is there" if found else "the file ends"
            raise ValueError(f"is not valid JSON: {place}: {wrong} instead of {' or '.join(allowed)}")
        self._at += 1
        return found

    def value(self, place: str) -> Any:
        """Skips white space and reads a value."""
        self.peek()
        while True:
            cause = ""
            try:
                value, end = _decode(self._text, self._at)
                if end < len(self._text):  # else more digits of a number may follow
                    break
            except RecursionError:
                cause = "it is nested too deeply"
            except ValueError as error:  # where the text is cut, or wrong
                cause = getattr(error, "msg", "a number has too many digits")
            if len(self._text) - self._at > MAX_ELEMENT:
                raise ValueError(f"is not valid JSON: {place} has more than {MAX_ELEMENT >> 20} MiB, or {cause}")
            if not self._more():
                if cause:
                    raise ValueError(f"is not valid JSON: {place}: {cause}")
                end = len(self._text)
                break
        self._at = end
        return value

    def _more(self) -> bool:
        """Appends a chunk to what is not read yet; false at the end."""
        chunk = next(self._chunks, "")
        self._text, self._at = self._text[self._at :] + chunk, 0
        return bool(chunk)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("annotations", type=pathlib.Path, help="JSON file, folder of XML files, or data.yaml")
    parser.add_argument("images", type=pathlib.Path, help="folder of the images")
    parser.add_argument("table", type=pathlib.Path, help="file to write, with the extension .jsonl")
    given = parser.parse_args(arguments)
    files = sorted(given.annotations.glob("*.xml")) if given.annotations.is_dir() else [given.annotations]
    kind = files[0].suffix.lower().replace("yml", "yaml") if files else ""
    if kind not in BOXES:
        print(f"{given.annotations}: give a .json file, a folder of .xml files, or data.yaml", file=sys.stderr)
        return 2
    with given.table.open("w") as table:
        for file in files:
            try:
                for row in read_annotations(file):
                    table.write(json.dumps(row) + "\n")
            except (ValueError, OSError) as error:
                print(f"{file}: {error}", file=sys.stderr)
                return 1
    sizes = f"{WIDTH}:int64=0,{HEIGHT}:int64=0"
    beside = {".json": f",{OF_COCO},{sizes}", ".xml": f",{OF_VOC},{sizes}"}.get(kind, ",image/source_id:bytes")
    columns = ["--uri_column", "file", "--label_column", "class", "--feature_columns", f"box:{BOXES[kind]}{beside}"]
    columns += ["--split_column", "split"] if kind == ".yaml" else []
    line = ["beam-tfr", "convert", "--table", given.table, "--image_root", given.images.resolve(), *columns]
    print(shlex.join(map(str, [*line, "--output", "DIR"])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
