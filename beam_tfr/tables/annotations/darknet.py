"""Files of Darknet, for which a `data.yaml` of YOLO can be written: `obj.data`.

Its lines are `train = data/train.txt`, `valid = …`, `names = data/obj.names`. See
https://github.com/AlexeyAB/darknet#how-to-train-to-detect-your-custom-objects.
"""

import contextlib
import json
import posixpath

from beam_tfr import storage
from beam_tfr.tables.annotations.text import MAX_TEXT_BYTES, decode_text

_KEYS = {"train": "train", "valid": "val"}  # of Darknet -> of YOLO


def suggest_yaml(path: str) -> str:
    """The `data.yaml` to write instead of an `obj.data`; empty if the file is none."""
    with contextlib.suppress(OSError, ValueError):
        pairs = [line.partition("=") for line in _read_text(path).splitlines()]
        values = {key.strip(): value.strip() for key, _, value in pairs}
        lines = []
        for key, name in _KEYS.items():
            list_file = _find_beside(path, values.get(key, ""))
            if list_file:
                lines.append(f"{name}: {list_file}")
        names_file = _find_beside(path, values.get("names", ""))
        if lines and names_file:
            text = _read_text(posixpath.join(posixpath.dirname(path), names_file))
            names = [line.strip() for line in text.splitlines() if line.strip()]
            lines.append(f"names: {json.dumps(names, ensure_ascii=False)}")
            listed = ", ".join(f"`{line}`" for line in lines)
            return (
                f"; for this file of Darknet, write a data.yaml beside it with the lines {listed}"
            )
    return ""


def _read_text(path: str) -> str:
    return decode_text(storage.read_bytes(path, max_bytes=MAX_TEXT_BYTES))


def _find_beside(path: str, value: str) -> str:
    """A file that an `obj.data` names, relative to its folder; empty if it is not there.

    Its path there is relative to the folder in which Darknet runs, which may be that above, or
    have another name: `data/train.txt`.
    """
    folder = posixpath.dirname(path)
    below = value.partition("/")[2]
    for name in (value, below, posixpath.basename(value), f"../{value}"):
        if name and storage.find(posixpath.join(folder, name)):
            return name
    return ""
