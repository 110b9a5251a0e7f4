"""Finds images that are not where the paths in tables say, to name the cure that helps."""

import collections
import contextlib
import itertools
import os
from collections.abc import Callable, Iterable, Sequence

from beam_tfr import storage
from beam_tfr.inputs.spellings import change_slashes
from beam_tfr.schema.differences import join_texts
from beam_tfr.schema.extensions import FORMAT_OF, is_junk

_MOST_PATHS = 1_000  # that are looked for
_MOST_FILES = 200_000  # among which they are looked for
_MOST_REMOTE = 10_000  # with 1,000 in each request
_MOST_SHOWN = 3  # folders


def describe_lost(
    paths: Iterable[str],
    folder: str,
    *,
    of_one_table: bool = True,
    is_around: bool = False,
    find: "FileSearch | None" = None,
) -> str:
    """What to do about images that are elsewhere; empty if they are not found.

    Args:
        paths: those in the tables, of which none has a file.
        folder: where they are looked for, with a trailing slash.
        of_one_table: whether they may be taken from one of several folders that have their names.
        is_around: whether the folder is the one around that of the table, so that others in it may
            be those of other data sets.
        find: finds files; `find_files` unless it is given.
    """
    written = [_normalize(path) for path in itertools.islice(paths, _MOST_PATHS)]
    files_of = (find or find_files)(tuple(written), folder)
    roots = sorted(set[str]().union(*files_of.values()))
    if not roots or roots == [folder]:
        return ""
    path = next(path for path in written if path in files_of)
    example = files_of[path][min(files_of[path])]
    if len(roots) == 1:
        cure = f"there is {example}: give `image_root={roots[0].rstrip('/') or '/'}`"
        return f"{cure}, if this is an image of this table" if is_around else cure
    if is_around and of_one_table:
        return _describe_around(roots, folder, example)
    shown = join_texts(roots, _MOST_SHOWN, ", ")
    start = f"there is {example}, but such files are in several folders ({shown}):"
    complete = [root for root in roots if _holds_all(root, written, files_of)]
    if complete and of_one_table:
        root = complete[0].rstrip("/") or "/"
        cure = f"give that of all images of this table, such as `image_root={root}`"
        if len(complete) > 1:
            cure += "; if they are in several, write the folder of each into its path"
        return f"{start} {cure}"
    return f"{start} write the folder of each image into its path"


def _describe_around(roots: Sequence[str], folder: str, example: str) -> str:
    """What to do if files of these names are in several folders beside that of the table.

    Args:
        roots: these folders.
        folder: the one around them.
        example: a file in them.
    """
    shown = join_texts(roots, _MOST_SHOWN, ", ")
    return (
        f"there is {example}, but such files are in several folders beside that of the table "
        f"({shown}), which may be other data sets: give that of the images of this table as "
        f"`image_root=FOLDER`, or `image_root={folder.rstrip('/')}` if each name is in one of them "
        "and all are meant"
    )


def find_only_root(paths: Iterable[str], folder: str) -> str:
    """The only folder below which all of some images are; empty if there is none.

    For the arguments see `describe_lost`.
    """
    written = [_normalize(path) for path in itertools.islice(paths, _MOST_PATHS)]
    files_of = find_files(written, folder)
    roots = set[str]().union(*files_of.values())
    complete = [root for root in roots if _holds_all(root, written, files_of)]
    return complete[0].rstrip("/") if len(complete) == 1 else ""


def _normalize(path: str) -> str:
    return os.path.normpath(change_slashes(path)).lstrip("/")


def _holds_all(root: str, paths: Iterable[str], files_of: "FilesOf") -> bool:
    """Whether all images that are anywhere are below a folder."""
    return all(root in files_of[path] for path in paths if path in files_of)


# Path -> the folders, with a trailing slash, below which a file is at it -> this file.
FilesOf = dict[str, dict[str, str]]
# Finds the files at paths below any folder in one; see `find_files`.
FileSearch = Callable[[tuple[str, ...], str], FilesOf]


def find_files(paths: Sequence[str], folder: str) -> FilesOf:
    """The files at paths below any folder in one, of which the first files are looked at.

    Args:
        paths: the paths, without `..` in them.
        folder: the folder, with a trailing slash.
    """
    by_name = collections.defaultdict[str, dict[str, None]](dict)
    for path in paths:
        by_name[os.path.basename(path)][path] = None
    most = _MOST_REMOTE if storage.is_remote(folder) else _MOST_FILES
    files_of = collections.defaultdict[str, dict[str, str]](dict)
    with contextlib.suppress(OSError):
        files = storage.walk(folder.rstrip("/"), lambda inner: not is_junk(inner))
        for file in itertools.islice(files, most):
            for name in dict.fromkeys((file.name, _stem_of(file.name))):
                written = file.path if name == file.name else _stem_of(file.path)
                for path in by_name.get(name, ()):
                    if written.endswith(f"/{path}"):
                        files_of[path].setdefault(written[: -len(path)], file.path)
    return dict(files_of)


def _stem_of(name: str) -> str:
    """A name without the extension of an image, if it has one."""
    stem, _, extension = name.rpartition(".")
    return stem if extension.lower() in FORMAT_OF else name
