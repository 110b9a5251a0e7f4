"""Finds the images of tables that are not at the paths in the tables.

Images may be in folders with the names of their tables, as in COCO: paths in
`annotations/instances_train2017.json` start from `train2017`, not from its parent folder. Images
may be in a folder next to each folder of tables, as in Pascal VOC: `Annotations`, `JPEGImages`. Or
images are in folders that mirror the folders of the tables, as in ImageNet:
`Annotations/train/n01/1.xml`, `Data/train/n01/1.JPEG`.
"""

import collections
import contextlib
import functools
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from beam_tfr import storage
from beam_tfr.schema.differences import join_texts
from beam_tfr.schema.extensions import FORMAT_OF
from beam_tfr.schema.spelling import spell_option
from beam_tfr.tables.paths import folder_around, folder_of, resolve_path
from beam_tfr.tables.places import image_folder_names

_FIRST_ROWS = 8  # rows whose files are looked up
_MOST_FOLDERS = 1_000  # folders of tables near which images are searched for
_MOST_SECOND = 30  # folders that are searched for second copies of files
_EXTENSIONS = [f".{each}" for name in FORMAT_OF for each in (name, name.upper())]
_SIBLINGS = ("", "images/", "JPEGImages/")  # in the parent of the tables' folder
_IN_CAPITALS = "Images/"  # the same folder as images/ on a disk that ignores case


class ImageFolder(NamedTuple):
    """A folder with the images of some tables.

    The folder is named like the tables, or is in or next to their folder. If folders of images
    mirror the folders of the tables, `base` is the folder of all tables, and `path` is the root of
    the image folders. Both end in a slash.

    Attributes:
        base: the folder that paths in the tables would otherwise start from.
        path: the folder with the images.
    """

    base: str
    path: str


def find_image_folders(
    tables: Sequence[str],
    *,
    folder: str,
    base: str,
    read_uris: Callable[[str], Iterator[Any]],
) -> frozenset[ImageFolder]:
    """Finds folders with the images of tables, if the folders that paths start from lack them.

    Args:
        tables: all tables.
        folder: the folder of all tables, with a trailing slash.
        base: the folder that paths in tables start from; an empty string stands for the folder of
            each table.
        read_uris: yields the cells of a table with image paths.
    """
    image_folders = set[ImageFolder]()
    first_tables = _find_first_tables(tables, folder=folder, base=base)
    for image_folder, of_folder in first_tables.items():
        if _has_files(image_folder.path):
            uris = itertools.chain.from_iterable(map(read_uris, of_folder))
            if _holds_images(image_folder, uris):
                image_folders.add(image_folder)
    image_folders.update(_find_siblings(tables, folder=folder, base=base, read_uris=read_uris))
    if _is_mirrored(tables, folder=folder, base=base, read_uris=read_uris):
        image_folders.add(ImageFolder(folder, base))
    return frozenset(image_folders)


def _find_first_tables(
    tables: Sequence[str], *, folder: str, base: str
) -> dict[ImageFolder, list[str]]:
    """Returns the folders that are named like tables, each with the first such tables.

    For the arguments, see `find_image_folders`.
    """
    first_tables = collections.defaultdict[ImageFolder, list[str]](list)
    for table in tables:
        for image_folder in _list_named_alike(table, folder=folder, base=base):
            has_room = image_folder in first_tables or len(first_tables) < _MOST_FOLDERS
            if has_room and len(first_tables[image_folder]) < _FIRST_ROWS:
                first_tables[image_folder].append(table)
    return first_tables


def describe_second_files(
    tables: Sequence[str], *, folder: str, base: str, read_uris: Callable[[str], Iterator[Any]]
) -> str:
    """Returns the message about files that are both at their paths and in a common image folder.

    An example is `0.jpg` that is also `train/0.jpg` or `images/0.jpg`, for train.csv. Returns an
    empty string if there are no such files. For the arguments, see `find_image_folders`.
    """
    first_tables = _find_first_tables(tables, folder=folder, base=base)
    start = base or folder_of(tables[0])
    for name in filter(None, _list_names(start)):
        first_tables.setdefault(ImageFolder(start, f"{start}{name}"), [tables[0]])
    for image_folder, members in itertools.islice(first_tables.items(), _MOST_SECOND):
        if not _has_files(image_folder.path):
            continue
        for uri in itertools.islice(read_uris(members[0]), _FIRST_ROWS):
            if _is_file(uri, image_folder.base) and _is_file(uri, image_folder.path):
                first = resolve_path(uri, image_folder.base)
                second = resolve_path(uri, image_folder.path)
                return (
                    f"{uri} in {members[0]} may be {first} or {second}: the former is used, and "
                    "likewise for other rows; if the latter is meant, add its folder to the "
                    f"paths, or give {spell_option('image_root', image_folder.path.rstrip('/'))}"
                )
    return ""


def _is_mirrored(
    tables: Sequence[str], *, folder: str, base: str, read_uris: Callable[[str], Iterator[Any]]
) -> bool:
    """Whether images are in folders below the base that mirror the folders of the tables.

    For the arguments, see `find_image_folders`.
    """
    for table in tables[:_FIRST_ROWS]:
        mirror = _mirror_folder(table, folder=folder, base=base)
        if mirror != base and _holds_images(ImageFolder(base, mirror), read_uris(table)):
            return True
    return False


def _mirror_folder(table: str, *, folder: str, base: str) -> str:
    """Returns the folder of a table, with the base in place of the folder of all tables."""
    return base + folder_of(table)[len(folder) :] if base else base


def _find_siblings(
    tables: Sequence[str], *, folder: str, base: str, read_uris: Callable[[str], Iterator[Any]]
) -> Iterator[ImageFolder]:
    """Yields the image folders next to folders of tables, if several folders hold tables.

    Skips a folder of tables if there are several candidates next to it. For the arguments, see
    `find_image_folders`.
    """
    first_tables = collections.defaultdict[str, list[str]](list)
    for table in tables:
        members = first_tables[folder_of(table)]
        if len(members) < _FIRST_ROWS:
            members.append(table)
    for members in itertools.islice(first_tables.values(), _MOST_FOLDERS):
        candidates = _list_siblings(members[0], folder=folder, base=base)
        if candidates:
            uris = itertools.chain.from_iterable(map(read_uris, members))
            first_uris = [*itertools.islice(uris, _FIRST_ROWS)]
            siblings = [each for each in candidates if _holds_images(each, iter(first_uris))]
            if len(siblings) == 1:
                yield siblings[0]


def guess_image_root(
    tables: Sequence[str],
    *,
    folder: str,
    first_uris: Sequence[Any],
    read_uris: Callable[[str], Iterator[Any]],
) -> str:
    """Guesses the folder, in or next to the folder of all tables, that holds the first images.

    Returns an empty string if there is no such folder, if there are several, if a path as written
    leads to a file, or if several folders hold tables.

    Args:
        tables, folder, read_uris: see `find_image_folders`.
        first_uris: cells of the first table with image paths.
    """
    uris = [uri for uri in first_uris[:_FIRST_ROWS] if isinstance(uri, str)]
    if not uris or not _are_elsewhere(uris, folder, tables):
        return ""
    has_folders = functools.partial(find_image_folders, tables, folder=folder, read_uris=read_uris)
    if has_folders(base=""):
        return ""
    roots = _list_likely_roots(folder, uris, lambda root: bool(has_folders(base=root)))
    return roots[0] if len(roots) == 1 else ""


def _list_likely_roots(
    folder: str, uris: Sequence[str], has_folders: Callable[[str], bool]
) -> list[str]:
    """Lists the folders in and around `folder` that hold all files or, if none do, half of them.

    Args:
        folder: the folder of the tables.
        uris: relative paths of the files.
        has_folders: folder -> whether folders in it, chosen by table, have all files.
    """
    roots = [root for root in list_roots(folder) if root != folder and _has_files(root)]
    complete = [root for root in roots if _holds_all(root, uris) or has_folders(root)]
    return complete or [root for root in roots if _holds_half(root, uris)]


def _are_elsewhere(uris: Iterable[str], folder: str, tables: Iterable[str]) -> bool:
    """Whether all tables are in one folder, which holds none of the files."""
    if any(folder_of(table) != folder for table in tables):
        return False
    return not any(_is_file(uri, folder) for uri in uris)


def _holds_all(root: str, uris: Iterable[str]) -> bool:
    """Whether a folder holds all files."""
    return all(_is_file(uri, root) for uri in uris)


def _holds_half(root: str, uris: Sequence[str]) -> bool:
    """Whether a folder holds at least half of the files; the others may be missing."""
    number = sum(_is_file(uri, root) for uri in uris)
    return 2 * number >= len(uris)


def list_roots(folder: str) -> list[str]:
    """Lists the folders in and around the folder of the tables that may hold images."""
    inner = [f"{folder}{name}" for name in _list_names(folder)]
    return [*inner, *_list_around(folder)]


def _list_names(folder: str) -> tuple[str, ...]:
    """Lists the common names of image folders in a folder; the first name is empty.

    Args:
        folder: the folder, with a trailing slash.
    """
    with contextlib.suppress(OSError):  # one of them does not exist
        if os.path.samefile(f"{folder}{_IN_CAPITALS.lower()}", f"{folder}{_IN_CAPITALS}"):
            return _SIBLINGS
    return (*_SIBLINGS, _IN_CAPITALS)


def _list_around(folder: str) -> list[str]:
    """Lists the folders around and next to the folder of the tables that may hold images."""
    outer = folder_around(folder)
    if not _is_folder_of_data(outer):
        return []
    around = [f"{outer}{name}" for name in _list_names(outer)]
    outermost = folder_around(outer)
    if not _is_folder_of_data(outermost):
        return around
    own_name = folder[len(outer) :]
    names = [name for name in _list_names(outermost) if name]
    around += [f"{outermost}{name}" for name in names]  # for annotations/xmls
    around += [f"{outermost}{name}{own_name}" for name in names]  # for annotations/trainval
    return around


def _is_folder_of_data(folder: str) -> bool:
    """Whether a folder is neither a bucket nor the root folder."""
    return folder.removeprefix(storage.GCS).rstrip("/") != ""


def _list_candidates(table: str, *, folder: str, base: str) -> list[ImageFolder]:
    """Lists the folders that may hold the images of a table; see `find_image_folders`."""
    named_alike = _list_named_alike(table, folder=folder, base=base)
    return [*named_alike, *_list_siblings(table, folder=folder, base=base)]


def choose_base(
    table: str, *, folder: str, base: str, image_folders: frozenset[ImageFolder]
) -> str:
    """Returns the folder that relative paths in a table start from; see `find_image_folders`."""
    if image_folders:
        for image_folder in _list_candidates(table, folder=folder, base=base):
            if image_folder in image_folders:
                return image_folder.path
    if ImageFolder(folder, base) in image_folders:
        return _mirror_folder(table, folder=folder, base=base)
    return base or folder_of(table)


def _list_named_alike(table: str, *, folder: str, base: str) -> list[ImageFolder]:
    """Lists the folders named like a table that may hold its images."""
    start = base or folder_of(table)
    names = image_folder_names(table[len(folder) :])
    paths = [f"{start}{name}/" for name in names]
    if not base:
        paths += [f"{start}images/{name}/" for name in names]
    return [ImageFolder(start, path) for path in paths]


def _list_siblings(table: str, *, folder: str, base: str) -> list[ImageFolder]:
    """Lists the folders in and next to the folder of a table that may hold its images.

    The list is empty if the table is in the folder of all tables, which keys start from.
    """
    table_folder = folder_of(table)
    outer = folder_around(table_folder)
    if table_folder == folder or not outer.startswith(base):
        return []
    inner = [f"{table_folder}{name}" for name in _list_names(table_folder) if name]
    beside = [f"{outer}{name}" for name in _list_names(outer)]
    return [ImageFolder(base or table_folder, path) for path in (*inner, *beside)]


def describe_image_root(image_root: str, folder: str) -> str:
    """Returns the message about a guessed image folder, or an empty string if there is none."""
    if not image_root:
        return ""
    return (
        f"the files that tables in {folder} name are not there, but in {image_root}, so paths "
        f"start from there, as with {spell_option('image_root', image_root.rstrip('/'))}"
    )


def describe_image_folders(image_folders: Iterable[ImageFolder]) -> str:
    """Returns the message about folders with the images of tables, or an empty string."""
    paths = sorted(image_folder.path for image_folder in image_folders)
    if not paths:
        return ""
    return (
        "the files that tables name are in other folders, chosen by the names and places of the "
        f"tables; paths start from: {join_texts(paths, most=5, separator=', ')}"
    )


def clear_caches() -> None:
    """Clears cached facts about folders, which may change before the next run in this process."""
    _has_files.cache_clear()


@functools.lru_cache(maxsize=1_024)
def _has_files(folder: str) -> bool:
    with contextlib.suppress(OSError):
        for _ in storage.walk(folder.rstrip("/"), lambda _: True):
            return True
    return False


def _holds_images(image_folder: ImageFolder, uris: Iterator[Any]) -> bool:
    """Whether a folder, but not the one that paths start from, holds one of the first images."""
    first_uris = [*itertools.islice(uris, _FIRST_ROWS)]
    if any(_is_file(uri, image_folder.base) for uri in first_uris):
        return False
    return any(_is_file(uri, image_folder.path) for uri in first_uris)


def _is_file(uri: Any, base: str) -> bool:
    """Whether a cell is the path of a file below a folder."""
    try:
        path = resolve_path(uri, base)
    except ValueError:
        return False
    if not path.startswith(base):
        return False
    return storage.find(path) is not None or _is_stem(path)


def _is_stem(path: str) -> bool:
    """Whether adding an extension to a path makes it the path of an image on disk."""
    if "." in path.rpartition("/")[2] or storage.is_remote(path):
        return False
    return any(storage.find(f"{path}{extension}") for extension in _EXTENSIONS)
