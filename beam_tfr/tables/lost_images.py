"""Finds images that are not where the paths in tables say, to name the cure that helps."""

import collections
import contextlib
import itertools
import os
from collections.abc import Iterable, Sequence

from beam_tfr import storage
from beam_tfr.inputs.spellings import change_slashes
from beam_tfr.schema.differences import join_texts
from beam_tfr.schema.extensions import FORMAT_OF, is_junk

_MOST_PATHS = 8  # that are looked for
_MOST_FILES = 200_000  # among which they are looked for
_MOST_REMOTE = 10_000  # with 1,000 in each request
_MOST_SHOWN = 3  # folders


def describe_lost(paths: Iterable[str], folder: str) -> str:
    """What to do about images that are elsewhere; empty if they are not found.

    Args:
        paths: those in the tables, of which none has a file.
        folder: where they are looked for, with a trailing slash.
    """
    written = [_normalize(path) for path in itertools.islice(paths, _MOST_PATHS)]
    roots_of = _find_roots(written, folder)
    roots = sorted(set[str]().union(*roots_of.values()))
    if not roots or roots == [folder]:
        return ""
    path = next(path for path in written if path in roots_of)
    example = f"{min(roots_of[path])}{path}"
    if len(roots) == 1:
        return f"there is {example}: give `image_root={roots[0].rstrip('/') or '/'}`"
    shown = join_texts(roots, _MOST_SHOWN, ", ")
    return (
        f"there is {example}, but such files are in several folders ({shown}): write the folder of "
        "each image into its path"
    )


def _normalize(path: str) -> str:
    return os.path.normpath(change_slashes(path)).lstrip("/")


def _find_roots(paths: Sequence[str], folder: str) -> dict[str, set[str]]:
    """The folders, with a trailing slash, below which a file is at each path, if there are any."""
    by_name = {os.path.basename(path): path for path in paths}
    most = _MOST_REMOTE if storage.is_remote(folder) else _MOST_FILES
    roots_of = collections.defaultdict[str, set[str]](set)
    with contextlib.suppress(OSError):
        files = storage.walk(folder.rstrip("/"), lambda inner: not is_junk(inner))
        for file in itertools.islice(files, most):
            path = by_name.get(file.name) or by_name.get(_stem_of(file.name))
            if path is None:
                continue
            found = file.path if file.path.endswith(path) else _stem_of(file.path)
            if found.endswith(f"/{path}"):
                roots_of[path].add(found[: -len(path)])
    return dict(roots_of)


def _stem_of(name: str) -> str:
    """A name without the extension of an image, if it has one."""
    stem, _, extension = name.rpartition(".")
    return stem if extension.lower() in FORMAT_OF else name
