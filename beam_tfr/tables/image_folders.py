"""Where the images of tables are, if not where their paths say.

Either in folders that are named like their tables, as of COCO: paths in
`annotations/instances_train2017.json` start from `train2017`, not from the folder around it. Or
beside the folder of the tables, as of Pascal VOC: `Annotations`, `JPEGImages`; if tables are in
several folders, beside each of these. Or in folders that mirror those of the tables, as of
ImageNet: `Annotations/train/n01/1.xml`, `Data/train/n01/1.JPEG`.
"""

import collections
import contextlib
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from beam_tfr import storage
from beam_tfr.schema.differences import join_texts
from beam_tfr.schema.extensions import FORMAT_OF
from beam_tfr.tables.paths import folder_around, folder_of, resolve_path
from beam_tfr.tables.places import image_folder_names

_FIRST_ROWS = 8  # whose files are looked for
_MOST_FOLDERS = 1_000  # of tables, beside which images are looked for
_MOST_SECOND = 30  # folders in which files are looked for that are elsewhere
_EXTENSIONS = [f".{each}" for name in FORMAT_OF for each in (name, name.upper())]
_SIBLINGS = ("", "images/", "JPEGImages/")  # below the folder around that of the tables


class ImageFolder(NamedTuple):
    """A folder with the images of some tables, which is named like them or beside theirs.

    Both have a trailing slash. One that begins at the folder of all tables holds their images in
    folders that mirror theirs.

    Attributes:
        base: the folder that paths of the tables would start from.
        path: the folder.
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
    """Finds the folders in which the files of tables are, and not in the folder around them.

    Args:
        tables: all tables.
        folder: the folder of all tables, with a trailing slash.
        base: the folder that their paths start from; empty for that of each table.
        read_uris: yields the cells of a table with the paths of images.
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
    """The folders that are named like tables, each with the first of these.

    For the arguments see `find_image_folders`.
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
    """The message about files that are where their paths say, and in another usual folder too.

    Such as `0.jpg`, and `train/0.jpg` or `images/0.jpg`, for train.csv. Empty if there are none;
    for the arguments see `find_image_folders`.
    """
    first_tables = _find_first_tables(tables, folder=folder, base=base)
    start = base or folder_of(tables[0])
    for name in filter(None, _SIBLINGS):
        first_tables.setdefault(ImageFolder(start, f"{start}{name}"), [tables[0]])
    for image_folder, members in itertools.islice(first_tables.items(), _MOST_SECOND):
        if not _has_files(image_folder.path):
            continue
        for uri in itertools.islice(read_uris(members[0]), _FIRST_ROWS):
            if _is_file(uri, image_folder.base) and _is_file(uri, image_folder.path):
                first = resolve_path(uri, image_folder.base)
                second = resolve_path(uri, image_folder.path)
                return (
                    f"{uri} in {members[0]} may be {first} or {second}: the former is taken, and "
                    "so for all of its rows; where the latter is meant, write its folder in the "
                    f"paths, or give `image_root={image_folder.path.rstrip('/')}`"
                )
    return ""


def _is_mirrored(
    tables: Sequence[str], *, folder: str, base: str, read_uris: Callable[[str], Iterator[Any]]
) -> bool:
    """Whether the files of tables are in folders below the base that are called as those of these.

    For the arguments see `find_image_folders`.
    """
    for table in tables[:_FIRST_ROWS]:
        mirror = _mirror_folder(table, folder=folder, base=base)
        if mirror != base and _holds_images(ImageFolder(base, mirror), read_uris(table)):
            return True
    return False


def _mirror_folder(table: str, *, folder: str, base: str) -> str:
    """The folder of a table, with the base in place of the folder of all tables."""
    return base + folder_of(table)[len(folder) :] if base else base


def _find_siblings(
    tables: Sequence[str], *, folder: str, base: str, read_uris: Callable[[str], Iterator[Any]]
) -> Iterator[ImageFolder]:
    """Yields the folders with the images of tables in several folders, each beside one of these.

    None for a folder of tables if several beside it could be meant. For the arguments see
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
    """The only folder in or beside that of all tables in which their first files are.

    Empty if there is none, if several could be meant, if a file is where its path says, or if the
    tables are in several folders.

    Args:
        tables, folder, read_uris: see `find_image_folders`.
        first_uris: cells with the paths of images, of the first table.
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
    """The folders in and around that of tables that have all of some files, else at least half.

    Args:
        folder: that of the tables.
        uris: relative paths of the files.
        has_folders: folder -> whether folders in it, by the places of tables, have all files.
    """
    roots = [root for root in list_roots(folder) if root != folder and _has_files(root)]
    complete = [root for root in roots if _holds_all(root, uris) or has_folders(root)]
    return complete or [root for root in roots if _holds_half(root, uris)]


def _are_elsewhere(uris: Iterable[str], folder: str, tables: Iterable[str]) -> bool:
    """Whether all tables are in one folder, in which none of some files is."""
    if any(folder_of(table) != folder for table in tables):
        return False
    return not any(_is_file(uri, folder) for uri in uris)


def _holds_all(root: str, uris: Iterable[str]) -> bool:
    """Whether a folder has all of some files."""
    return all(_is_file(uri, root) for uri in uris)


def _holds_half(root: str, uris: Sequence[str]) -> bool:
    """Whether a folder has at least half of some files, of which others may be gone."""
    number = sum(_is_file(uri, root) for uri in uris)
    return 2 * number >= len(uris)


def list_roots(folder: str) -> list[str]:
    """The folders in and around that of tables that may hold their images."""
    inner = [f"{folder}{name}" for name in _SIBLINGS]
    return [*inner, *_list_around(folder)]


def _list_around(folder: str) -> list[str]:
    """The folders around and beside that of tables that may hold their images."""
    outer = folder.rstrip("/").rpartition("/")[0]
    if not outer.removeprefix(storage.GCS.rstrip("/")):
        return []  # a bucket, or the folder of all
    around = [f"{outer}/{name}" for name in _SIBLINGS]
    outermost = outer.rpartition("/")[0]
    if outermost.removeprefix(storage.GCS.rstrip("/")):  # as of annotations/xmls
        around += [f"{outermost}/{name}" for name in _SIBLINGS if name]
    return around


def _list_candidates(table: str, *, folder: str, base: str) -> list[ImageFolder]:
    """The folders that may hold the files of a table, by its place; see `find_image_folders`."""
    named_alike = _list_named_alike(table, folder=folder, base=base)
    return [*named_alike, *_list_siblings(table, folder=folder, base=base)]


def choose_base(
    table: str, *, folder: str, base: str, image_folders: frozenset[ImageFolder]
) -> str:
    """The folder that relative paths in a table start from; see `find_image_folders`."""
    if image_folders:
        for image_folder in _list_candidates(table, folder=folder, base=base):
            if image_folder in image_folders:
                return image_folder.path
    if ImageFolder(folder, base) in image_folders:
        return _mirror_folder(table, folder=folder, base=base)
    return base or folder_of(table)


def _list_named_alike(table: str, *, folder: str, base: str) -> list[ImageFolder]:
    """The folders that are named like a table, and may hold its files."""
    start = base or folder_of(table)
    names = image_folder_names(table[len(folder) :])
    paths = [f"{start}{name}/" for name in names]
    if not base:
        paths += [f"{start}images/{name}/" for name in names]
    return [ImageFolder(start, path) for path in paths]


def _list_siblings(table: str, *, folder: str, base: str) -> list[ImageFolder]:
    """The folders in and beside that of a table that may hold its files.

    None if the table is in the folder of all tables, beside which keys would start elsewhere.
    """
    table_folder = folder_of(table)
    outer = folder_around(table_folder)
    if table_folder == folder or not outer.startswith(base):
        return []
    inner = [f"{table_folder}{name}" for name in _SIBLINGS if name]
    beside = [f"{outer}{name}" for name in _SIBLINGS]
    return [ImageFolder(base or table_folder, path) for path in (*inner, *beside)]


def describe_image_root(image_root: str, folder: str) -> str:
    """The message about a guessed folder of images; empty without one."""
    if not image_root:
        return ""
    return (
        f"the files that tables in {folder} name are not there, but below {image_root}, from which "
        f"their paths start, as with `image_root={image_root.rstrip('/')}`"
    )


def describe_image_folders(image_folders: Iterable[ImageFolder]) -> str:
    """The message about folders in which the files of tables are; empty without any."""
    paths = sorted(image_folder.path for image_folder in image_folders)
    if not paths:
        return ""
    return (
        "the files that tables name are in folders that are named like them or theirs, or in or "
        "beside theirs; from these their paths start: "
        f"{join_texts(paths, most=5, separator=', ')}"
    )


def clear_caches() -> None:
    """Forgets which folders have files, which may change until the next run of this process."""
    _has_files.cache_clear()


@functools.lru_cache(maxsize=1_024)
def _has_files(folder: str) -> bool:
    with contextlib.suppress(OSError):
        for _ in storage.walk(folder.rstrip("/"), lambda _: True):
            return True
    return False


def _holds_images(image_folder: ImageFolder, uris: Iterator[Any]) -> bool:
    """Whether the folder holds one of the first files, and the folder around it none."""
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
    """Whether a path without an extension is that of an image on a disk, but for this."""
    if "." in path.rpartition("/")[2] or storage.is_remote(path):
        return False
    return any(storage.find(f"{path}{extension}") for extension in _EXTENSIONS)
