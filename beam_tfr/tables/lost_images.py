"""Finds images that are not at their paths in tables, so that messages can name the fix."""

import collections
import contextlib
import functools
import itertools
import os
from collections.abc import Iterable, Sequence

from beam_tfr import storage
from beam_tfr.inputs.spellings import change_slashes
from beam_tfr.layouts.mask_folders import is_of_masks
from beam_tfr.schema.differences import join_texts
from beam_tfr.schema.extensions import is_junk, stem_of_image
from beam_tfr.schema.spelling import spell_option
from beam_tfr.tables.paths import folder_around

_MOST_PATHS = 1_000  # paths that are looked up
_MOST_FILES = 200_000  # files that are searched
_MOST_REMOTE = 10_000  # files on gs://, 1,000 per request
_MOST_SHOWN = 3  # folders in messages

# Path -> folder, with a trailing slash, below which the path exists -> the file there.
FilesOf = dict[str, dict[str, str]]


def describe_folders(texts: Sequence[str], base: str = "") -> str:
    """Says what to do about paths that are folders, as in MURA, or returns an empty string.

    Args:
        texts: the first paths in a table.
        base: the folder that the paths are relative to, with a trailing slash; an empty string if
            unknown.
    """
    if not texts or not all(_is_folder(text, base) for text in texts[:_MOST_SHOWN]):
        return ""
    return (
        "these are folders rather than images: write a row for each image in them; with pandas, "
        "in the folder that the paths start from: table[NAME] = table[NAME].map(lambda path: "
        "sorted(glob.glob(os.path.join(path, '*')))); table = table.explode(NAME)"
    )


def _is_folder(text: str, base: str) -> bool:
    """Whether a path ends in a slash, or is a folder on a disk."""
    if text.endswith("/"):
        return True
    return bool(base) and not storage.is_remote(base) and os.path.isdir(base + text)


def describe_lost(
    paths: Iterable[str], folder: str, *, of_one_table: bool = True, is_around: bool = False
) -> str:
    """Says what to do about images that are elsewhere, or returns an empty string.

    Args:
        paths: paths in the tables, none of which leads to a file.
        folder: the folder to search, with a trailing slash.
        of_one_table: whether a single folder may hold all images, even if several folders hold
            files with these names.
        is_around: whether this is the parent folder of the table's folder, so that other folders in
            it may belong to other data sets.
    """
    written = _normalize(paths)
    files_of = find_files(written, folder)
    roots = list_roots_of(files_of)
    if not roots or roots == [folder]:
        return ""
    path = next(path for path in written if path in files_of)
    example = files_of[path][min(files_of[path])]
    if len(roots) == 1:
        cure = f"there is {example}: give {name_root(roots[0])}"
        return f"{cure}, if this is an image of this table" if is_around else cure
    if is_around and of_one_table:
        return _describe_around(roots, folder, example)
    complete = list_complete_roots(files_of) if of_one_table else []
    return _describe_several(roots, complete, example)


def _describe_around(roots: Sequence[str], folder: str, example: str) -> str:
    """Says what to do if files with these names are in several folders near the table's folder.

    Args:
        roots: the folders.
        folder: the parent folder of these folders.
        example: a file in one of the folders.
    """
    shown = join_texts(roots, _MOST_SHOWN, ", ")
    return (
        f"there is {example}, but such files are in several folders near that of the table "
        f"({shown}), which may be other data sets: give the folder with this table's images as "
        f"`image_root=FOLDER`, or {spell_option('image_root', folder.rstrip('/'))} if its images "
        "are spread over all of these folders"
    )


def _describe_several(roots: Sequence[str], complete: Sequence[str], example: str) -> str:
    """Says what to do if files with these names are in several folders.

    Args:
        roots: the folders.
        complete: the folders among them that may hold all images.
        example: a file in one of the folders.
    """
    shown = join_texts(roots, _MOST_SHOWN, ", ")
    start = f"there is {example}, but such files are in several folders ({shown}):"
    if not complete:
        return f"{start} add the folder of each image to its path"
    cure = f"give the folder with all images of this table, such as {name_root(complete[0])}"
    if len(complete) > 1:
        cure += "; if several folders have some, add the folder of each image to its path"
    return f"{start} {cure}"


def name_root(root: str) -> str:
    """Spells the option that makes paths start from a folder."""
    return spell_option("image_root", root.rstrip("/") or "/")


def list_outer_folders(folder: str) -> list[str]:
    """Lists a folder of tables, and parents that may hold the images, with trailing slashes.

    The parents are the parent folder and, if it is named for annotations, as in Annotations/boxes,
    the parent of the parent folder.
    """
    outer = folder_around(folder)
    folders = [folder, outer]
    if is_of_masks(outer.rstrip("/").rpartition("/")[2]):
        folders.append(folder_around(outer))
    return [each for each in folders if each.removeprefix(storage.GCS).rstrip("/")]


def find_only_root(paths: Iterable[str], folder: str) -> str:
    """Returns the only folder that holds all images that were found, or an empty string.

    For the arguments, see `describe_lost`.
    """
    complete = list_complete_roots(find_files(_normalize(paths), folder))
    return complete[0].rstrip("/") if len(complete) == 1 else ""


def _normalize(paths: Iterable[str]) -> list[str]:
    """Returns the first paths, normalized for the search."""
    first = itertools.islice(paths, _MOST_PATHS)
    return [os.path.normpath(change_slashes(path)).lstrip("/") for path in first]


def list_roots_of(files_of: FilesOf) -> list[str]:
    """Lists the folders that files were found in, sorted."""
    return sorted(set[str]().union(*files_of.values()))


def list_complete_roots(files_of: FilesOf) -> list[str]:
    """Lists the folders that hold a file for every path that was found anywhere, sorted."""
    roots = list_roots_of(files_of)
    return [root for root in roots if all(root in files for files in files_of.values())]


def find_files(paths: Sequence[str], folder: str) -> FilesOf:
    """Finds the files at relative paths in any folder below a folder.

    Searches only the first files in the folder. Paths with the same file names are searched once,
    until `clear_files` is called.

    Args:
        paths: the paths, without `..` in them.
        folder: the folder, with a trailing slash.
    """
    files_named = _find_named(frozenset(map(os.path.basename, paths)), folder)
    files_of = collections.defaultdict[str, dict[str, str]](dict)
    for path in dict.fromkeys(paths):
        name = os.path.basename(path)
        for file in files_named.get(name, ()):
            written = file if file.endswith(f"/{name}") else stem_of_image(file)
            if written.endswith(f"/{path}"):
                files_of[path].setdefault(written[: -len(path)], file)
    return dict(files_of)


@functools.lru_cache(maxsize=4)
def _find_named(names: frozenset[str], folder: str) -> dict[str, list[str]]:
    """Returns name -> the files below a folder with this name, perhaps with an extension.

    Args:
        names: the names of files.
        folder: the folder, with a trailing slash.
    """
    most = _MOST_REMOTE if storage.is_remote(folder) else _MOST_FILES
    files_named = collections.defaultdict[str, list[str]](list)
    with contextlib.suppress(OSError):
        files = storage.walk(folder.rstrip("/"), lambda inner: not is_junk(inner))
        for file in itertools.islice(files, most):
            for name in {file.name, stem_of_image(file.name)} & names:
                files_named[name].append(file.path)
    return dict(files_named)


def clear_files() -> None:
    """Clears cached paths of files, which may change before the next run in this process."""
    _find_named.cache_clear()
