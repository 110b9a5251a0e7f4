"""Fills in paths of masks and other images in `--pair`: `../masks/{stem%_rgb}_mask.png`.

{path} is the key of the image without its extension, {folder} its folder, {stem} its name. As in
shells, `%TEXT` removes TEXT from the end, and `#TEXT` from the beginning, if TEXT is there.
"""

import os
import re
from collections.abc import Callable

_FIELD = re.compile(
    r"\{(?P<name>path|stem|folder)(?:(?P<side>[%#])(?P<text>[^{}\[]*))?\}(?P<slash>/?)"
)
_LIKE_FIELD = re.compile(r"\{\w*(?:[%#][^{}]*)?\}")
_GLOBS = {"path": "**/*", "stem": "*", "folder": "**/*"}


def check_fields(pattern: str) -> None:
    """Checks the fields in a path.

    Raises:
        ValueError: a field is not allowed.
    """
    for field in _LIKE_FIELD.finditer(pattern):
        if not _FIELD.fullmatch(field[0]):
            raise ValueError(
                f"{field[0]} in PATH is not {{stem}}, {{path}} or {{folder}}, which may have "
                "%TEXT to remove TEXT from the end, or #TEXT from the beginning"
            )


def fill_path(pattern: str, key: str) -> str:
    """Returns the path of the file that goes with the image that has the given key."""
    path = os.path.splitext(key)[0]
    folder, _, stem = path.rpartition("/")
    values = {"path": path, "stem": stem, "folder": folder}

    def fill(field: re.Match[str]) -> str:
        value = values[field["name"]]
        if field["side"] == "%":
            value = value.removesuffix(field["text"])
        elif field["side"] == "#":
            value = value.removeprefix(field["text"])
        return value and value + field["slash"]  # the key may have no folder

    return _FIELD.sub(fill, pattern)


def to_glob(pattern: str, escape: Callable[[str], str] = str) -> str:
    """Returns a pattern for the files that a path may stand for.

    Args:
        pattern: the path.
        escape: turns the text between fields into patterns.
    """
    glob = ""
    end = 0
    for field in _FIELD.finditer(pattern):
        glob += escape(pattern[end : field.start()])
        end = field.end()
        if field["name"] == "folder" and field["slash"]:
            glob += "**/"
            if pattern.startswith("../", end):
                end += len("../")
        else:
            glob += _GLOBS[field["name"]] + field["slash"]
    return glob + escape(pattern[end:])
