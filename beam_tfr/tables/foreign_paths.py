r"""Maps paths from another machine, such as `/home/bob/img/1.jpg` or `s3://b/img/1.jpg`, to files.

If none of the first paths leads to a file, but files are found without the leading folders that all
paths share, all paths are read without these folders. This also covers web addresses.
"""

import contextlib
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from beam_tfr import storage
from beam_tfr.inputs.spellings import MAX_PATH_LENGTH, change_slashes
from beam_tfr.schema.differences import common_start
from beam_tfr.tables.image_names import ImageName, drop_prefix
from beam_tfr.tables.paths import resolve_path

WEB_ADDRESS = re.compile("(?i)(?:https?|ftp|file)://")
_WHOLE = re.compile("(?i)/|[a-z]:/|[a-z0-9]+://")
# A folder; or what Label Studio writes before paths, as in /data/local-files/?d=img/1.jpg.
_AFTER_FOLDER = re.compile(r"(?<=/)|(?<=\?d=)")
_MOST_TRIED = 16  # first paths to try, evenly spaced
_MOST_REMOTE = 4  # each path takes a request for each rule that is tried
_MOST_FOLDERS = 32  # leading folders of paths that may be removed


class ForeignPaths(NamedTuple):
    """A rule for reading paths from another machine.

    Attributes:
        prefix: the prefix to remove, with a trailing slash.
        root: the folder that the rest is relative to, with a trailing slash.
        problem: why it is unknown whether files exist at the paths as written; an empty string if
            it is known.
    """

    prefix: str
    root: str
    problem: str = ""


def find_foreign_paths(uris: Iterable[Any], base: str, roots: Sequence[str]) -> ForeignPaths | None:
    """Finds the prefix to remove from paths of another machine.

    Returns None if any path, as written, leads to a file; if removing the prefix leaves most files
    unfound; or if there are several ways to find the files.

    Args:
        uris: the first cells with image paths.
        base: the folder that relative paths start from, with a trailing slash.
        roots: folders that the rest of a path may start from, best first, with trailing slashes.
    """
    texts = [*_select_paths(uris)]
    if not texts:
        return None
    is_remote = storage.is_gcs(base) or any(map(storage.is_gcs, texts))
    tried = spread(texts, _MOST_REMOTE if is_remote else _MOST_TRIED)
    problem = ""
    local_first = sorted(tried, key=storage.is_gcs)
    try:
        if any(_has_file(text, base) for text in local_first):
            return None
    except OSError as error:
        problem = error.strerror or str(error)
    paths = [*map(change_slashes, texts)]
    readings = dict[str, ForeignPaths]()  # the first file that is found -> how it was found
    prefixes = [*_list_prefixes(paths)]
    for root in roots:
        for prefix in prefixes:
            reading = ForeignPaths(prefix, root, problem)
            files = [*_find_files(tried, reading)]
            if 2 * len(files) > len(tried):
                readings.setdefault(files[0], reading)
    return next(iter(readings.values())) if len(readings) == 1 else None


def describe_foreign_paths(foreign: ForeignPaths) -> str:
    """Returns the message about paths from another machine."""
    if foreign.problem:
        return (
            "it is unknown whether the image paths in the first rows exist "
            f"({foreign.problem}); without the prefix {foreign.prefix}, files are found in "
            f"{foreign.root}: remove the prefix from the paths to read these files"
        )
    return (
        "none of the image paths in the first rows exists; without the prefix "
        f"{foreign.prefix}, files are found in {foreign.root}, so all paths are read that way"
    )


def drop_shared_folders(paths: Sequence[str]) -> list[str]:
    """Removes the folders that all paths share; returns an empty list if a path is relative."""
    texts = [*map(change_slashes, _select_paths(paths))]
    if len(texts) < len(paths) or not all(map(_WHOLE.match, texts)):
        return []
    prefixes = [*_list_prefixes(texts)]
    if not prefixes:
        return []
    prefix = prefixes[-1]
    return [text[len(prefix) :] for text in texts]


def spread(members: Sequence[Any], most: int) -> Sequence[Any]:
    """Returns some members of a list, evenly spaced."""
    step = -(-len(members) // most) or 1
    return members[::step]


def _select_paths(uris: Iterable[Any]) -> Iterator[str]:
    """Yields the strings that are paths on disk, or addresses in buckets or on the web."""
    for uri in uris:
        is_plain = isinstance(uri, str) and not isinstance(uri, ImageName)
        if is_plain and 0 < len(uri) <= MAX_PATH_LENGTH:
            yield uri


def _list_prefixes(paths: Sequence[str]) -> Iterator[str]:
    """Yields the prefixes of folders that all paths share, shortest first."""
    shared = common_start([_AFTER_FOLDER.split(path)[:-1] for path in paths])
    for number in range(1, min(len(shared), _MOST_FOLDERS) + 1):
        yield "".join(shared[:number])


def _find_files(texts: Iterable[str], reading: ForeignPaths) -> Iterator[str]:
    """Yields the files that paths lead to if read by this rule."""
    for text in texts:
        rest = drop_prefix(text, reading.prefix)
        with contextlib.suppress(OSError):
            if _has_file(rest, reading.root):
                yield resolve_path(rest, reading.root)


def _has_file(text: str, base: str) -> bool:
    """Whether there is a file at a path.

    Raises:
        OSError: this cannot be determined.
    """
    try:
        path = resolve_path(text, base)
    except ValueError:  # such as s3://bucket/1.jpg
        return False
    return storage.find(path) is not None
