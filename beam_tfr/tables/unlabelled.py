"""Finds images that no annotation file describes, or that no table lists."""

import collections
import contextlib
import functools
import itertools
import json
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence, Set
from typing import Any

from beam_tfr import storage
from beam_tfr.console.terminal import counted
from beam_tfr.layouts.mask_folders import is_of_masks
from beam_tfr.layouts.split_names import split_of_folder
from beam_tfr.options.implied import table_suffix
from beam_tfr.schema.errors import UsageError
from beam_tfr.schema.extensions import has_image_name, is_junk
from beam_tfr.tables.image_names import ImageFinder
from beam_tfr.tables.image_sets import name_of_image
from beam_tfr.tables.paths import folder_of

_MOST_BYTES = 32 << 20  # of tables that are read for all images that they list
_MOST_SCANNED = 4 << 30  # of tables on disk that are scanned for names
_SCANNED_BYTES = 8 << 20  # bytes per read of a scan
_MOST_NAMES = 1_000_000  # names in these tables
_MOST_TABLES = 1_000  # Pascal VOC tables whose images are looked up, and folders of tables
_FIRST_TABLES = 8  # minimum number of tables from each folder
_MOST_REMOTE_TABLES = 20  # tables that are read again on gs://
_MOST_REMOTE = 10_000  # names in a folder on gs://, 1,000 per request
_MOST_FILES = 100_000  # files that tables without boxes list, and files in their folders
_MOST_FOLDERS = 10_000  # folders of these images
_FILE_NAME = re.compile(rb'"file_name"\s*:\s*("(?:[^"\\]++|\\.)*+")')
_LONGEST_NAME = 4 << 10  # bytes of a name with its key

_UNLISTED = "none of the tables lists it"

ReadUris = Callable[[str], Iterator[Any]]


class NotLookedAtError(Exception):
    """The search for images that are left out would take too long; the message says why."""


def describe_unlabelled(
    tables: Sequence[str],
    read_uris: ReadUris,
    choose_base: Callable[[str], str],
    finder: ImageFinder,
) -> str:
    """Returns the message about images of Pascal VOC that are left out, or an empty string.

    Looks at the folders of the first images for each folder of XML files. There is no message if an
    image does not have the name of its XML file.

    Args:
        tables: all XML files.
        read_uris: yields the cells of a table with image paths.
        choose_base: returns the folder that the paths of a table start from.
        finder: finds the images.
    """
    tables_in = collections.defaultdict[str, list[str]](list)
    for table in tables:
        tables_in[folder_of(table)].append(table)
    most_folders = _MOST_TABLES
    num_first = max(_FIRST_TABLES, _MOST_TABLES // len(tables_in))
    if storage.is_remote(tables[0]):  # each table takes a request
        most_folders = _MOST_REMOTE_TABLES
        num_first = max(1, _MOST_REMOTE_TABLES // len(tables_in))
    # folder of images -> stems of described images
    stems_in = collections.defaultdict[str, set[str]](set)
    for members in itertools.islice(tables_in.values(), most_folders):
        stems = set(map(name_of_image, members))
        for table in members[:num_first]:
            for image in _find_images(read_uris(table), table, choose_base(table), finder):
                if name_of_image(image) not in stems:
                    return ""
                stems_in[os.path.dirname(image)] |= stems
    cause = "none of the XML files has its name"
    return _describe_left_out(
        stems_in, lambda path: name_of_image(path) not in stems_in[os.path.dirname(path)], cause
    )


def describe_unlisted(
    tables: Sequence[str],
    read_uris: ReadUris,
    choose_base: Callable[[str], str],
    finder: ImageFinder,
) -> str:
    """Returns the message about images that no table lists, or an empty string if there are none.

    Looks at the folders of the listed images. If this would take long, the message says that the
    folders were not checked.

    Args:
        tables: all tables.
        read_uris: yields the cells of a table with image paths.
        choose_base: returns the folder that the paths of a table start from.
        finder: finds the images.
    """
    try:
        listed = _find_listed(tables, read_uris, choose_base, finder)
    except NotLookedAtError as error:
        return (
            f"it is unknown whether images next to those listed in {tables[0]} are left out: "
            f"{error}"
        )
    folders = dict.fromkeys(map(os.path.dirname, listed))
    return _describe_left_out(folders, lambda path: path not in listed, _UNLISTED)


def describe_mostly_listed(
    tables: Sequence[str],
    first: Iterable[tuple[int, Any]],
    read_names: ReadUris,
    choose_base: Callable[[str], str],
    finder: ImageFinder,
) -> str:
    """Returns the message about images that no table lists, if most images around them are listed.

    Otherwise, the tables list a part on purpose. The message leaves out images that other tables
    next to these list, such as those of another split, but includes images in a new folder next to
    several image folders. There is no message if images are not on disk, or if the search would
    take long.

    Args:
        tables: all tables.
        first: the first cells with images, each with the number of its table.
        read_names: yields the cells of a table that name files.
        choose_base: returns the folder that the paths of a table start from.
        finder: finds the images.
    """
    if storage.is_remote(tables[0]):
        return ""
    try:
        first_folders = set[str]()
        for number, name in first:
            table = tables[number]
            images = _find_images([name], table, choose_base(table), finder)
            first_folders.update(map(os.path.dirname, images))
        around = _list_images(first_folders)
        find_listed = functools.partial(
            _find_listed,
            read_uris=read_names,
            choose_base=choose_base,
            finder=finder,
            known={*around},
            most=_MOST_FILES,
        )
        listed = find_listed(tables)
        folders = set(map(os.path.dirname, listed))
        around += _list_images(folders - first_folders)
        new = _list_images({*_list_new_folders(folders)})
        if len(new) < len(listed):
            around += new
        if all(path in listed for path in around):
            return ""
        others = find_listed(_list_other_tables(tables))
    except NotLookedAtError:
        return ""
    num_listed = sum(path in listed for path in around)
    left_out = [path for path in around if path not in listed and path not in others]
    if 2 * num_listed <= len(around):
        return ""
    place = "in" if {*new}.isdisjoint(left_out) else "in or next to"
    return _name_left_out(left_out, _UNLISTED, place)


def _find_listed(
    tables: Sequence[str],
    read_uris: ReadUris,
    choose_base: Callable[[str], str],
    finder: ImageFinder,
    *,
    known: Set[str] = frozenset(),
    most: int = _MOST_NAMES,
) -> set[str]:
    """Returns the paths of the images that tables list.

    Args:
        tables, read_uris, choose_base, finder: see `describe_unlisted`.
        known: paths of files that exist, which are faster to find than other files.
        most: the maximum number of images.

    Raises:
        NotLookedAtError: the tables are too large, or list too many images.
    """
    listed = set[str]()
    for table, names in _read_names(tables, read_uris):
        for image in _find_images(names, table, choose_base(table), finder, known):
            listed.add(image)
            if len(listed) > most:
                raise NotLookedAtError(f"they list more than {most:,} images")
    return listed


def _list_images(folders: Collection[str]) -> list[str]:
    """Lists the images in folders on disk.

    Raises:
        NotLookedAtError: there are too many folders or files, or some are remote.
    """
    if len(folders) > _MOST_FOLDERS or any(map(storage.is_remote, folders)):
        raise NotLookedAtError(f"{len(folders):,} folders would have to be listed for this")
    files = list[str]()
    for folder in folders:
        with contextlib.suppress(OSError):  # reading the images raises the error
            names = itertools.islice(storage.list_names(folder), _MOST_FILES + 1)
            files += (f"{folder}/{name}" for name in names)
        if len(files) > _MOST_FILES:
            message = f"more than {_MOST_FILES:,} files would have to be listed for this"
            raise NotLookedAtError(message)
    return [*filter(has_image_name, files)]


def _list_new_folders(folders: Set[str]) -> Iterator[str]:
    """Yields the folders next to several image folders, except folders of splits and masks."""
    numbers = collections.Counter(map(os.path.dirname, folders))
    for parent in [parent for parent, number in numbers.items() if number > 1]:
        names = list[str]()
        with contextlib.suppress(OSError):  # the folder may be read, but not listed
            names = storage.list_folders(parent)
        for name in names:
            path = f"{parent}/{name}"
            if not (path in folders or is_junk(name) or split_of_folder(name) or is_of_masks(name)):
                yield path


def _list_other_tables(tables: Sequence[str]) -> list[str]:
    """Lists the tables next to some tables, with the same extension."""
    suffix = table_suffix(tables[0])
    paths = set[str]()
    for folder in dict.fromkeys(map(folder_of, tables)):
        with contextlib.suppress(OSError):  # the folder may be read, but not listed
            names = storage.list_folder(folder)
            paths.update(folder + name for name in names if table_suffix(name) == suffix)
    return sorted(paths.difference(tables))


def _find_images(
    names: Iterable[Any],
    table: str,
    base: str,
    finder: ImageFinder,
    known: Set[str] = frozenset(),
) -> Iterator[str]:
    """Yields the paths of the images that a table names, skipping cells that are not paths.

    For the arguments, see `_find_listed`.
    """
    for name in names:
        if f"{base}{name}" in known:
            yield f"{base}{name}"
            continue
        with contextlib.suppress(ValueError, UsageError):  # reading the rows raises the error
            yield finder.find(name, base, table)


def _read_names(tables: Sequence[str], read_uris: ReadUris) -> Iterator[tuple[str, Iterable[Any]]]:
    """Yields each table along with its image names.

    Raises:
        NotLookedAtError: the tables are too large.
    """
    are_remote = any(map(storage.is_remote, tables))
    if are_remote and len(tables) > _MOST_REMOTE_TABLES:
        raise NotLookedAtError(f"{len(tables):,} files would have to be read for this")
    entries = [entry for entry in map(storage.find, tables) if entry]
    num_bytes = sum(entry.size_bytes for entry in entries)
    if num_bytes <= _MOST_BYTES:
        for table in tables:
            yield table, read_uris(table)
    elif num_bytes > _MOST_SCANNED or are_remote or not tables[0].endswith(".json"):
        raise NotLookedAtError(f"{num_bytes >> 20:,} MiB would have to be read for this")
    else:
        for table in tables:
            yield table, _scan_names(table)


def _scan_names(table: str) -> Iterator[str]:
    """Yields the values of `file_name` in a large COCO file, without parsing the file.

    Some values may name files other than images. Takes 1 s for 500 MB.

    Raises:
        NotLookedAtError: there are too many names, or none.
    """
    number = 0
    begin = 0
    rest = b""
    with contextlib.suppress(OSError):  # reading the rows raises the error
        while part := storage.read_part(table, begin, _SCANNED_BYTES):
            begin += len(part)
            data = rest + part
            end = 0
            for match in _FILE_NAME.finditer(data):
                end = match.end()
                number += 1
                yield json.loads(match[1].decode("utf-8", "surrogateescape"))
            rest = data[max(end, len(data) - _LONGEST_NAME) :]
            if number > _MOST_NAMES:
                raise NotLookedAtError(f"it lists more than {_MOST_NAMES:,} images")
    if not number:
        raise NotLookedAtError("it has no `file_name`")


def _describe_left_out(
    folders: Iterable[str], is_left_out: Callable[[str], bool], cause: str
) -> str:
    """Returns the message about images in folders that are left out, or an empty string."""
    unfinished = ""
    left_out = list[str]()
    for folder in sorted(folders):
        for number, path in enumerate(_walk_files(folder)):
            if storage.is_remote(folder) and number >= _MOST_REMOTE:
                unfinished = folder
                break
            if has_image_name(path) and is_left_out(path):
                left_out.append(path)
    if left_out:
        least = "at least " if unfinished else ""
        return least + _name_left_out(left_out, cause)
    if unfinished:
        return (
            f"it is unknown whether images in {unfinished} are left out: more than "
            f"{_MOST_REMOTE:,} files would have to be listed for this"
        )
    return ""


def _name_left_out(left_out: Sequence[str], cause: str, place: str = "in") -> str:
    """Returns the message about images that are left out, or an empty string if there are none."""
    if not left_out:
        return ""
    images = counted(len(left_out), "image")
    verb = "is" if len(left_out) == 1 else "are"
    return (
        f"{images} {place} the folders of the other images {verb} left out, such as "
        f"{min(left_out)}: {cause}"
    )


def _walk_files(folder: str) -> Iterator[str]:
    """Yields the paths of the files in a folder, in no particular order."""
    with contextlib.suppress(OSError):
        for entry in storage.walk(folder, lambda _: False, deep=False):
            yield entry.path
