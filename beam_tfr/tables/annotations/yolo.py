"""Reads YOLO annotations: a `data.yaml` names the classes, and the images in each split.

`yolo_images` finds the images, `yolo_files` finds the label file of each image, and `yolo_lines`
reads the lines of label files. See https://docs.ultralytics.com/datasets/detect.
"""

import itertools
import posixpath
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO, Any

import msgspec
import yaml

from beam_tfr import storage
from beam_tfr.features.cells import BadCell
from beam_tfr.inputs.spellings import MAX_PATH_LENGTH
from beam_tfr.schema.yolo import SPLITS, name_splits
from beam_tfr.tables.annotations.text import read_text
from beam_tfr.tables.annotations.yolo_files import (
    LabelFile,
    describe_imageless,
    describe_shared,
    find_respelled,
    read_label_files,
    require_labels,
)
from beam_tfr.tables.annotations.yolo_images import (
    OtherKeys,
    YoloPlaces,
    describe_other_keys,
    describe_unnamed,
    describe_unread_lists,
    find_images,
)
from beam_tfr.tables.annotations.yolo_lines import (
    ClassNames,
    KeypointShape,
    LineForm,
    ObjectShape,
    choose_form,
    read_class,
    read_numbers,
    read_shape,
    seem_corners,
)
from beam_tfr.tables.our_exports import read_export_splits

_SAMPLE_FILES = 2_048  # label files from which the form of lines is determined
_SAMPLE_BYTES = 16 << 20  # 16 MiB of label files, after which no more are sampled
_MOST_CLASSES = 100_000
_MOST_DIGITS = 20  # in a number
_MOST_DEPTH = 50  # levels of nested lists and mappings
# Loads everything as strings, lists and dicts; the loader in C takes a fifth of the time.
_LOADER = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
_OTHER_KEYS = {"validation": "val", "valid": "val"}  # keys that some programs write
_NO_PLACE = ("", "null", "~")  # spellings of null in YAML


class _Yolo(msgspec.Struct):
    """The fields of data.yaml that are read, all of them as strings."""

    names: list[str] | dict[str, str] | None = None
    nc: str = ""
    kpt_shape: KeypointShape | None = None
    flip_idx: Any = None
    kpt_names: Any = None
    path: str = ""
    train: str | list[str] = ""
    val: str | list[str] = ""
    test: str | list[str] = ""
    other_keys: OtherKeys = {}

    def class_names(self, say: Callable[[str], object]) -> ClassNames:
        """Returns a mapping from the number of a class to its name.

        Raises:
            ValueError: there are no names.
        """
        if self.names is None:
            names = [f"class_{number}" for number in range(_read_count(self.nc))]
            say(f"has no names: its {self.nc:.60} classes are class_0 and so on")
            return ClassNames(enumerate(names))
        if self.nc not in ("", str(len(self.names))):
            say(f"has {len(self.names)} names, but nc: {self.nc:.60}")
        if isinstance(self.names, list):
            by_number = ClassNames(enumerate(map(str.strip, self.names)))
        else:
            numbers = map(_read_count, self.names)
            stripped = map(str.strip, self.names.values())
            by_number = ClassNames(zip(numbers, stripped, strict=True))
        repeated = len(by_number) - len(by_number.texts)
        if repeated:
            say(f"names repeat others ({repeated}): classes with the same name are one class")
        for note in _describe_numbers(by_number):
            say(note)
        return by_number

    def places(self, folder: str) -> YoloPlaces:
        """Returns the places of the images; `folder` is the folder of the file.

        Raises:
            ValueError: there are no places.
        """
        places = {}
        for key in SPLITS:
            value = getattr(self, key)
            names = [value] if isinstance(value, str) else value
            named = [name for name in names if name not in _NO_PLACE]
            _check_lengths(key, named)
            if named:
                places[key] = named
        if not places:
            raise ValueError("names no images, such as `train: images/train`")
        path = "" if self.path in _NO_PLACE else self.path
        _check_lengths("path", [path])
        return YoloPlaces(folder, path, places)


def _describe_keypoints(data: _Yolo) -> str:
    """Says which keypoint fields are not stored, or returns an empty string."""
    fields = {"kpt_names": data.kpt_names, "flip_idx": data.flip_idx}
    present = [name for name, value in fields.items() if value]
    if not present:
        return ""
    return (
        f"its {' and '.join(present)} are not stored: `description=` may keep them with the "
        "dataset; add them to the data.yaml of an export"
    )


def _check_lengths(key: str, places: Iterable[str]) -> None:
    """Checks that no place is too long for a path.

    Raises:
        ValueError: a place is too long.
    """
    longest = max(map(len, places), default=0)
    if longest > MAX_PATH_LENGTH:
        raise ValueError(
            f"{key} names a place of {longest:,} characters; paths have up to {MAX_PATH_LENGTH:,}"
        )


def _describe_numbers(names: ClassNames) -> Iterator[str]:
    """Yields a line if class numbers cannot be the class ids of a dataset."""
    for label, name in enumerate(names.in_order()):
        if names.get(label) != name:
            yield f"its class numbers are not the class ids: {name!r:.60} becomes {label}"
            return


def _read_count(text: str) -> int:
    """Parses the number of a class, or the total number of classes.

    Raises:
        ValueError: the text is not such a number.
    """
    if not text:
        raise ValueError("has no names of classes, such as `names: [cat, dog]`")
    if not text.isdecimal() or len(text) > _MOST_DIGITS or int(text) > _MOST_CLASSES:
        raise ValueError(f"{text!r:.60} is not the number of a class, or of all classes (nc)")
    return int(text)


def read_names(file: IO[bytes]) -> list[str]:
    """Returns the names of all classes in a `data.yaml`, in the order of their numbers.

    Raises the same errors as `read_yolo`.
    """
    names = _parse(read_text(file)).class_names(lambda _: None)
    return names.in_order()


def read_yolo(path: str, file: IO[bytes], say: Callable[[str], object]) -> Iterator[dict[str, Any]]:
    """Yields the rows for the images that a `data.yaml` names.

    Raises:
        ValueError, MsgspecError, YAMLError, RecursionError: the file is not a `data.yaml`, a place
            has no images, or a split has no label files.
    """

    def say_of_file(note: str) -> None:
        say(f"{path}: {note}")

    data = _parse(read_text(file))
    names = data.class_names(say_of_file)
    folder = posixpath.dirname(path)
    places = data.places(folder)
    base, images = find_images(places, say_of_file)
    splits = name_splits(read_export_splits(folder))
    files = require_labels(read_label_files(images), base, names)
    first = _take_first(files)
    lines = [] if data.kpt_shape else _read_lines(first)
    form = choose_form(lines)
    for note in _describe_files(first, form, lines):
        say_of_file(note)
    doubts = (
        _describe_keypoints(data),
        describe_imageless(images),
        describe_unnamed(images, base),
        describe_shared(images),
        describe_unread_lists(images, places),
        describe_other_keys(data.other_keys, images, base),
    )
    for note in filter(None, doubts):
        say_of_file(note)
    for label_file in itertools.chain(first, files):
        row = _read_row(label_file, base, names, form, data.kpt_shape)
        problem = label_file.image.problem
        split = BadCell(problem) if problem else splits[label_file.image.key]
        yield row | {"split": split}


def _take_first(files: Iterator[LabelFile]) -> list[LabelFile]:
    """Returns the first label files, from which the form of all lines is determined."""
    first = []
    num_bytes = 0
    for file in itertools.islice(files, _SAMPLE_FILES):
        first.append(file)
        num_bytes += len(file.data)
        if num_bytes > _SAMPLE_BYTES:
            break
    return first


def _describe_files(
    files: Sequence[LabelFile], form: LineForm, lines: Sequence[Sequence[float]]
) -> Iterator[str]:
    """Yields messages about how the first label files are read, and about open questions."""
    if form.describe():
        yield f"its label files have {form.describe()}{form.cure}"
    if seem_corners(lines):
        yield (
            "boxes in its label files end outside of their images if read as center and size; "
            "if they are corners (xmin, ymin, xmax, ymax), which would all be inside, use "
            "`feature_columns='box:bbox[rel_xyxy]'`"
        )
    missing = [file for file in files if not file.is_there]
    if missing:
        respelled = find_respelled(missing)
        cure = f"; {respelled} exists: rename it, and all others" if respelled else ""
        have = "has" if len(missing) == 1 else "have"
        yield (
            f"{len(missing)} of the first {len(files)} images {have} no label file, such as "
            f"{missing[0].path}: they count as images without objects{cure}"
        )


def _parse(text: str) -> _Yolo:
    _check_depth(text)
    fields = yaml.load(text, _LOADER)  # noqa: S506  # nosec B506
    if isinstance(fields, dict):
        fields["other_keys"] = _find_other_keys(fields)
        for name, key in _OTHER_KEYS.items():
            if name in fields:
                fields.setdefault(key, fields[name])
        _check_names(fields)
    data = msgspec.convert(fields, _Yolo)
    if data.kpt_shape:
        count, _ = data.kpt_shape
        if not count.isdecimal() or len(count) > _MOST_DIGITS:
            raise ValueError(f"kpt_shape: {count!r:.60} is not a number of keypoints")
    return data


def _find_other_keys(fields: Mapping[Any, Any]) -> OtherKeys:
    """Returns the keys that are not read and whose values may be places with images."""
    places = dict[str, list[str]]()
    for key, value in fields.items():
        names = value if isinstance(value, list) else [value]
        is_other = key not in _Yolo.__struct_fields__ and key not in _OTHER_KEYS
        if is_other and isinstance(key, str) and all(isinstance(name, str) for name in names):
            places[key] = names
    return places


def _check_names(fields: dict[Any, Any]) -> None:
    """Checks that the class names are not a single string; removes the key if it is null.

    Raises:
        ValueError: the names are a string, such as the path of another file.
    """
    names = fields.get("names")
    if not isinstance(names, str):
        return
    if names not in _NO_PLACE:
        raise ValueError(
            f"names: {names!r:.60} is a string: write the names themselves into this file, in the "
            "order of their numbers, such as `names: [cat, dog]`"
        )
    del fields["names"]


def _check_depth(text: str) -> None:
    """Checks that lists and mappings are not nested so deeply that the loader in C would crash.

    Raises:
        ValueError: lists or mappings are nested too deeply.
        YAMLError: the text is not YAML.
    """
    depth = 0
    for event in yaml.parse(text, _LOADER):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > _MOST_DEPTH:
            raise ValueError("nests lists or mappings too deeply to be read")


def _read_lines(files: Iterable[LabelFile]) -> list[list[float]]:
    """Returns the numbers in each line of some label files; omits lines that cannot be read."""
    lines = []
    for file in files:
        for fields in file.split_lines():
            numbers = read_numbers(fields[1:])
            if not isinstance(numbers, BadCell):
                lines.append(numbers)
    return lines


def _read_row(
    file: LabelFile,
    base: str,
    names: ClassNames,
    form: LineForm,
    kpt_shape: KeypointShape | None,
) -> dict[str, Any]:
    """Returns the row for an image."""
    image = file.image.path
    is_below = storage.is_gcs(image) == storage.is_gcs(base)
    row: dict[str, Any] = {
        "file": image,
        "image/source_id": posixpath.relpath(image, base) if is_below else image,
    }
    if file.problem:
        problem = BadCell(f"{file.path}: {file.problem}")
        columns = ("class", "box", "keypoint", "polygon", "segment", "confidence")
        return row | dict.fromkeys(columns, problem)
    classes = list[str | BadCell]()
    shapes = list[ObjectShape]()
    for number, fields in enumerate(file.split_lines(), start=1):
        class_name = read_class(fields[0], names)
        classes.append(_locate(class_name, file, number))
        shape = read_shape(fields[1:], form, kpt_shape)
        if len(fields) == 1 and isinstance(class_name, BadCell):  # such as 1,0.5,0.5,0.2,0.2
            shape = shape._replace(box=class_name)
        if isinstance(shape.box, BadCell):
            shape = shape._replace(box=_locate(shape.box, file, number))
        shapes.append(shape)
    polygons = [shape.polygon for shape in shapes]
    return row | {
        "class": classes,
        "box": [shape.box for shape in shapes],
        "keypoint": [shape.keypoints for shape in shapes],
        "polygon": polygons,
        "segment": polygons,
        "confidence": [shape.confidence for shape in shapes],
    }


def _locate(cell: Any, file: LabelFile, number: int) -> Any:
    """Returns a cell; a bad cell names its label file, and the object by its number from 1."""
    if isinstance(cell, BadCell):
        return BadCell(f"{posixpath.basename(file.path)}, object {number}: {cell.problem}")
    return cell
