"""Finds the `data.yaml` or class names of YOLO label files, or says which `data.yaml` to write.

Labeling programs write the names of classes, in the order of their numbers, to classes.txt
(LabelImg), notes.json (Label Studio), or obj.names (CVAT, Darknet), whose path is in obj.data. See
https://github.com/AlexeyAB/darknet#how-to-train-to-detect-your-custom-objects.
"""

import contextlib
import json
import posixpath
import re
from collections.abc import Iterator, Sequence

from beam_tfr import storage
from beam_tfr.inputs.annotation_texts import FIRST_LINES, have_lines
from beam_tfr.inputs.first_names import FirstNames
from beam_tfr.layouts.split_names import split_of_folder
from beam_tfr.schema.extensions import FORMAT_OF
from beam_tfr.schema.untrusted import parse_json

_SHARE = rb"(?:0?\.[0-9]+|[01](?:\.0*)?|[0-9.]+[eE]-[0-9]+)"
_LABEL_LINE = re.compile(rb"[0-9]+(?:[ \t]+%b){4}(?:[ \t]+[0-9.eE+-]+)*\s*" % _SHARE)
_NAMES_LINE = re.compile(rb"(?m)^names\s*:")
_SETUPS = ("data.yaml", "data.yml", "dataset.yaml")
_DARKNET = "obj.data"
_NAMES = (
    "classes.txt",
    "obj.names",
    "names.txt",
    "predefined_classes.txt",
    "class_names.txt",
    "labels.txt",
)
_NOTES = "notes.json"
_DARKNET_KEYS = {"train": "train", "valid": "val"}  # key of Darknet -> key of YOLO
_KEYS = ("train", "val", "test")  # some names of splits begin with each of these
_LABELS = "labels"
_CVAT = "obj_"  # prefix of folders of CVAT and Darknet: obj_train_data
_NAME_OF_IMAGE = re.compile(rf"\.(?i:{'|'.join(FORMAT_OF)})\b")
_MOST_BYTES = 1 << 20  # 1 MiB for a file of names
_MOST_LISTED = 1_000  # files and folders
_MOST_NAMES = 100  # in a message


def has_label_lines(begin: bytes) -> bool:
    """Whether the first lines of a text file are lines of a YOLO label file."""
    return have_lines(begin, _LABEL_LINE)


def has_setup_lines(begin: bytes) -> bool:
    """Whether a text file with these first bytes is a `data.yaml`."""
    return _NAMES_LINE.search(begin) is not None


def describe_label_files(path: str) -> str:
    """Returns how to read the label files in a folder, with a `data.yaml` that may be missing.

    Args:
        path: one of the label files.
    """
    folder = posixpath.dirname(path)
    setup = find_setup(path)
    if setup:
        return f"{folder}/*.txt belong to {setup}, which can be read with `table=`"
    around = _list_around(folder)
    lines = _list_lines(around)
    return (
        f"{folder}/*.txt belong to a data.yaml of YOLO, to be read with `table=`: there is none, "
        f"so write {storage.join(around[-1], _SETUPS[0])} with the lines {lines}"
    )


def find_setup(path: str) -> str:
    """Finds the `data.yaml` around a label file; returns an empty string if there is none."""
    for place in _list_around(posixpath.dirname(path)):
        for name in _SETUPS:
            setup = storage.join(place, name)
            if has_setup_lines(_read_file(setup)):
                return setup
    return ""


def describe_names(path: str) -> str:
    """Returns how to use a file of class names next to label files, or "" for other files."""
    folder, name = posixpath.split(path)
    if name not in (*_NAMES, _NOTES):
        return ""
    for place in _list_label_folders(folder):
        label_file = _find_label_file(place)
        if label_file:
            return f"has class names; {describe_label_files(label_file)}"
    return ""


def _list_label_folders(folder: str) -> Iterator[str]:
    """Yields the folders that may hold the label files for the class names in a folder."""
    yield folder
    for name in FirstNames().list_folders(folder, _MOST_LISTED):
        if not (name == _LABELS or name.startswith(_CVAT) or split_of_folder(name)):
            continue
        inner = storage.join(folder, name)
        yield inner
        for inner_name in FirstNames().list_folders(inner, _MOST_LISTED):
            if inner_name == _LABELS or split_of_folder(inner_name):
                yield storage.join(inner, inner_name)


def describe_darknet(path: str) -> str:
    """Returns which `data.yaml` to write instead of an `obj.data`, or "" for other files."""
    lines = _list_darknet_lines(path)
    if not lines:
        return ""
    return f"for this Darknet file, write a data.yaml next to it with the lines {_spell_all(lines)}"


def _list_around(folder: str) -> list[str]:
    """Lists the folders that may hold the class names for label files; the last is the root.

    For labels/train, these are labels/train, labels, and the folder around labels; for
    train/labels, they are train/labels, train, and the folder around train; otherwise there are
    fewer folders, such as one folder with images and labels.
    """
    parent = posixpath.dirname(folder)
    names = (posixpath.basename(folder), posixpath.basename(parent))
    if names[1].lower() == _LABELS:
        return [folder, parent, posixpath.dirname(parent)]
    if names[0].lower() == _LABELS and split_of_folder(names[1]):
        return [folder, parent, posixpath.dirname(parent)]
    is_inner = names[0].lower() == _LABELS or split_of_folder(names[0])
    if is_inner or names[0].startswith(_CVAT):
        return [folder, parent]
    return [folder]


def _list_lines(around: Sequence[str]) -> str:
    """Returns, for a message, the lines of a `data.yaml` for the last of the folders."""
    root = around[-1]
    darknet = _list_darknet_lines(storage.join(root, _DARKNET))
    if darknet:
        return _spell_all(darknet)
    places = _spell_all([*_list_places(root)] or ["train: ."])
    for folder in around:
        names = _read_notes(storage.join(folder, _NOTES))
        path = ""
        for name in _NAMES:
            if names:
                break
            path = storage.join(folder, name)
            names = _read_names(path)
        if len(names) > _MOST_NAMES:
            return f"{places}, `names:`, and the lines of {path}, each after `- `"
        if names:
            return f"{places}, `{_spell_names(names)}`"
    return (
        f"{places} and the names of the classes, in the order of their numbers, such as "
        "`names: [cat, dog]`"
    )


def _list_places(root: str) -> Iterator[str]:
    """Yields the lines for the folders of the splits, such as `val: images/valid`."""
    names = FirstNames()
    for place in ("images/", ""):
        seen = set[str]()
        for name in names.list_folders(f"{root}/{place}".rstrip("/"), _MOST_LISTED):
            split = split_of_folder(name)
            key = next((key for key in _KEYS if split.startswith(key)), "")
            if key and key not in seen:
                seen.add(key)
                yield f"{key}: {place}{name}"
        if seen:
            return


def _list_darknet_lines(path: str) -> list[str]:
    """Returns the lines of a `data.yaml` for an `obj.data`, or an empty list for other files."""
    pairs = [line.partition("=") for line in _read_text(path).splitlines()]
    values = {key.strip(): value.strip() for key, _, value in pairs}
    lines = []
    for key, name in _DARKNET_KEYS.items():
        list_file = _find_beside(path, values.get(key, ""))
        if list_file:
            lines.append(f"{name}: {list_file}")
    names_file = _find_beside(path, values.get("names", ""))
    if not (lines and names_file):
        return []
    names = _read_names(posixpath.join(posixpath.dirname(path), names_file))
    return [*lines, _spell_names(names)]


def _find_beside(path: str, value: str) -> str:
    """Returns the path of a file that an `obj.data` mentions, relative to its folder, or "".

    The path in the file, such as `data/train.txt`, is relative to the folder in which Darknet runs.
    That folder may be the one above, and `data` may have another name here.
    """
    folder = posixpath.dirname(path)
    below = value.partition("/")[2]
    for name in (value, below, posixpath.basename(value), f"../{value}"):
        if name and _is_there(posixpath.join(folder, name)):
            return name
    return ""


def _is_there(path: str) -> bool:
    with contextlib.suppress(OSError, ValueError):
        return storage.find(path) is not None
    return False


def _find_label_file(folder: str) -> str:
    """Returns a label file if one is among the first files in a folder, or an empty string."""
    listed = FirstNames().list_names(folder, _MOST_LISTED)
    texts = sorted(name for name in listed if name.endswith(".txt") and name not in _NAMES)
    for name in texts[:FIRST_LINES]:
        path = storage.join(folder, name)
        if has_label_lines(_read_file(path)):
            return path
    return ""


def _read_file(path: str) -> bytes:
    """Returns the beginning of a file, or empty bytes if the file cannot be read."""
    with contextlib.suppress(OSError, ValueError):
        return storage.read_bytes(path, max_bytes=_MOST_BYTES)
    return b""


def _read_text(path: str) -> str:
    """Returns the text of a small file, or "" if the file cannot be read, or is not UTF-8."""
    with contextlib.suppress(UnicodeDecodeError):
        return _read_file(path).decode("utf-8-sig")
    return ""


def _read_names(path: str) -> list[str]:
    """Returns the lines in a file of class names; none if it cannot be read or lists images."""
    names = [line.strip() for line in _read_text(path).splitlines() if line.strip()]
    return [] if any(map(_NAME_OF_IMAGE.search, names)) else names


def _read_notes(path: str) -> list[str]:
    """Returns the class names in notes.json; none if their ids do not count from 0."""
    try:
        categories = parse_json(_read_file(path))["categories"]
        name_of = {category["id"]: category["name"] for category in categories}
    except (ValueError, TypeError, LookupError):
        return []
    numbers = [*range(len(categories))]
    if name_of.keys() != {*numbers}:
        return []
    names = [name_of[number] for number in numbers]
    return names if all(isinstance(name, str) for name in names) else []


def _spell_names(names: Sequence[str]) -> str:
    return f"names: {json.dumps(names, ensure_ascii=False)}"


def _spell_all(lines: Sequence[str]) -> str:
    return ", ".join(f"`{line}`" for line in lines)
