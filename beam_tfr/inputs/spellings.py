"""Finds other spellings of a path: as on Windows, as in a URL, or without surrounding spaces.

A file at exactly the written path always comes first.
"""

import functools
import re
import unicodedata
from collections.abc import Callable
from urllib.parse import unquote

from beam_tfr import storage

MAX_PATH_LENGTH = 4_096  # characters; neither disks nor buckets have longer paths
# file:/1.jpg, file:///1.jpg, file://localhost/1.jpg
_FILE = re.compile(r"file:(?://(?:localhost)?)?(?P<path>/(?!/).*)", re.DOTALL | re.IGNORECASE)
_DATA = re.compile(r"data:[\w/+.-]*[;,]", re.IGNORECASE)
_ESCAPE = re.compile("%[0-9A-Fa-f]{2}")
_ODD = re.compile(rf"\\|{_ESCAPE.pattern}|^\s|\s\Z")
# An oddity in a path -> what messages say about it if there is no such file.
_ODDITIES = {
    r"(^|/)[A-Za-z]:[/\\]": "it begins with a Windows drive",
    r"\\": "a backslash separates folders on Windows only",
    _ESCAPE.pattern: "it has percent escapes, as in URLs",
    r"(^|/)\s|\s(/|\Z)": "it begins or ends with a space",
    r"(^|/)~": "~ does not stand for the home folder",
    r"\$\w|\$\{": "variables such as $HOME are not replaced",
    r"(^|/)[^./]+\Z": "its name has no extension",
}


def read_address(path: str) -> str:
    """Returns the path in a gs:// or file: URL; a path without a scheme stays as it is.

    Raises:
        ValueError: the URL has another scheme.
    """
    address = path.lstrip()
    if storage.is_gcs(address):
        return address
    file = _FILE.match(address)
    if file:
        return unquote(file["path"])
    if _DATA.match(address):
        raise ValueError(
            f"{path!r:.60} is an image itself, but only paths are read: write it to a file"
        )
    if "://" in address:
        raise ValueError(
            f"{address!r:.200}: only local paths and gs:// are read; download the files, and write "
            "their paths instead of the URLs"
        )
    return path


def change_slashes(path: str) -> str:
    """Returns a path with slashes in place of backslashes."""
    return path.replace("\\", "/")


_CHANGES: tuple[Callable[[str], str], ...] = (str.strip, change_slashes, unquote)
# Letters such as ü as one character, or as two, as on macOS.
_FORMS: tuple[Callable[[str], str], ...] = (
    functools.partial(unicodedata.normalize, "NFC"),
    functools.partial(unicodedata.normalize, "NFD"),
)


def is_plain(path: str) -> bool:
    """Whether a path has no other spellings; most paths have none, so this must be fast."""
    return (
        path.isascii()
        and "\\" not in path
        and "%" not in path
        and "~" not in path
        and ".." not in path
        and path == path.strip()
    )


def list_spellings(path: str, *, remote: bool) -> list[str]:
    r"""Lists other spellings of a path; most paths have none.

    ` a\b%20c.jpg` may mean `a/b c.jpg`, or any path in between.

    Args:
        path: the path.
        remote: whether the path is on gs://, where looking for each path with an umlaut would take
            long.
    """
    changes = list[Callable[[str], str]]()
    if _ODD.search(path):
        changes += _CHANGES
    if not path.isascii() and not remote:
        changes += _FORMS
    spellings = [path]
    for change in changes:
        spellings += map(change, spellings[:])
    others = dict.fromkeys(spellings[1:])
    return [other for other in others if other not in ("", path) and "\0" not in other]


def choose_spelling(path: str) -> str:
    """Returns the path, or its first other spelling that leads to a file if the path does not."""
    spellings = list_spellings(path, remote=storage.is_gcs(path))
    if not spellings or storage.find(path):
        return path
    return next(filter(storage.find, spellings), path)


def describe_oddities(path: str) -> str:
    """Returns what may be wrong with a path that leads to no file, or "" if nothing looks wrong."""
    oddities = [text for regex, text in _compile_oddities() if regex.search(path)]
    if any(change(path) != path for change in _FORMS):
        oddities.append("its letters may be written in another way (Unicode NFC, NFD)")
    return "; ".join(oddities)


@functools.cache
def _compile_oddities() -> list[tuple[re.Pattern[str], str]]:
    return [(re.compile(regex), text) for regex, text in _ODDITIES.items()]
