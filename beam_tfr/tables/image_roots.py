"""The folders from which the paths of images in tables start."""

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from beam_tfr import storage
from beam_tfr.inputs.patterns import common_folder
from beam_tfr.inputs.skipped import UNCOUNTED
from beam_tfr.options.implied import table_suffix
from beam_tfr.tables.base import (
    DamagedTableError,
    RowReader,
)
from beam_tfr.tables.content import (
    TableContent,
)
from beam_tfr.tables.formats import format_of
from beam_tfr.tables.image_folders import (
    ImageFolder,
    choose_base,
    describe_image_folders,
    describe_image_root,
    find_image_folders,
    guess_image_root,
)
from beam_tfr.tables.image_names import ImageFinder, ImageName
from beam_tfr.tables.paths import folder_of, is_absolute, read_path, resolve_path
from beam_tfr.tables.unlabelled import describe_unlabelled, describe_unlisted


class ImageRoots(NamedTuple):
    """The folders from which the paths of images start.

    Attributes:
        folder: that of all tables.
        base: from which relative paths start; empty for the folder of their table.
        root: from which keys start.
        image_folders: folders that are named like their tables, from which paths in these start.
        warnings: about what no option says.

    All folders have a trailing slash.
    """

    folder: str
    base: str
    root: str
    image_folders: frozenset[ImageFolder]
    warnings: tuple[str, ...]


def find_image_roots(content: TableContent, uris: Sequence[Any], read: RowReader) -> ImageRoots:
    """Finds the folders from which paths start.

    Args:
        content: what the tables say.
        uris: the first cells with images; none if rows become the records.
        read: yields the rows of a table.

    Raises:
        UsageError: tables, or images on absolute paths, have no folder in common.
    """
    folder = _common_folder(content.files, "tables")
    image_root = content.options.image_root
    guessed = ""
    if not image_root:
        guessed = _guess_image_root(content, folder, uris, read)
    base = f"{image_root.rstrip('/')}/" if image_root else guessed
    root = base or (_common_root(folder, uris) if uris else folder)
    image_folders = _find_image_folders(content, folder, base, read)
    texts = [describe_image_root(guessed, folder), describe_image_folders(image_folders)]
    choose = functools.partial(choose_base, folder=folder, base=base, image_folders=image_folders)
    warnings = (
        *filter(None, texts),
        *_warn_of_names(uris, base or folder),
        *_warn_of_unlabelled(content, uris, base),
        *_warn_of_unlisted(content, read, choose),
    )
    return ImageRoots(folder, base, root, image_folders, warnings)


def paths_below_root(uris: Iterable[Any], roots: ImageRoots) -> list[str]:
    """The paths of images below the folder of all of them; others are left out.

    Args:
        uris: cells with images.
        roots: the folders from which paths start.
    """
    paths = []
    for uri in uris:
        with contextlib.suppress(ValueError):  # which rejects its row
            is_file = isinstance(uri, storage.Entry)
            path = uri.path if is_file else resolve_path(uri, roots.base or roots.folder)
            if path.startswith(roots.root):
                paths.append(path[len(roots.root) :])
    return paths


def _guess_image_root(
    content: TableContent, folder: str, uris: Sequence[Any], read: RowReader
) -> str:
    """The folder of images beside that of the tables; see `guess_image_root`."""
    uri_column = content.options.uri_column
    if not uri_column or content.read_rows:
        return ""
    return guess_image_root(
        content.files,
        folder=folder,
        first_uris=uris,
        read_uris=_uri_reader(uri_column, read),
    )


def _find_image_folders(
    content: TableContent, folder: str, base: str, read: RowReader
) -> frozenset[ImageFolder]:
    """The folders of images that are named like their tables; see `find_image_folders`."""
    uri_column = content.options.uri_column
    if not uri_column or content.read_rows:
        return frozenset()
    read_uris = _uri_reader(uri_column, read)
    return find_image_folders(content.files, folder=folder, base=base, read_uris=read_uris)


def _uri_reader(uri_column: str, read: RowReader) -> Callable[[str], Iterator[Any]]:
    """The function that yields the paths of images in a table."""

    def read_uris(path: str) -> Iterator[Any]:
        with contextlib.suppress(DamagedTableError):  # of which reading the rows tells
            for _, cells in read(path, [uri_column], UNCOUNTED):
                yield cells[0]

    return read_uris


def _common_root(folder: str, uris: Sequence[Any]) -> str:
    """The folder that the paths of the first rows share.

    If a path is relative, the folder of the tables.

    A later row outside this folder is a reject, so the number of rows read here never changes the
    keys.
    """
    paths = []
    for uri in uris:
        try:
            path = resolve_path(uri, folder)
        except ValueError:
            continue
        if not is_absolute(read_path(uri)):
            return folder
        if isinstance(uri, ImageName) and not storage.find(path):
            return folder  # a path on another machine
        paths.append(path)
    if not paths:
        return folder
    remote = [path for path in paths if storage.is_gcs(path)]
    local = [path for path in paths if not storage.is_gcs(path)]
    if len(remote) != len(local):  # else nothing says which of them are astray
        paths = max(remote, local, key=len)
    return _common_folder(paths, "the files that its rows name")


def _common_folder(paths: Sequence[str], noun: str) -> str:
    return common_folder([folder_of(path)[:-1] for path in paths], option="table", noun=noun)


def _warn_of_names(cells: Iterable[Any], base: str) -> Iterator[str]:
    """Yields a line about paths and names of images that are not those of their files."""
    finder = ImageFinder()
    for cell in cells:
        if not isinstance(cell, str):
            continue
        with contextlib.suppress(ValueError):
            written = resolve_path(cell, base)
            path = finder.find(cell, base)
            if path != written:
                yield (
                    "where no file is at the path that is written, one with other slashes or "
                    "spaces, with its stem, or without the folders before it, is taken, such as "
                    f"{path.removeprefix(base)} for {cell}"
                )
                return


def _warn_of_unlabelled(content: TableContent, names: Sequence[Any], base: str) -> Iterator[str]:
    """Warns of images without annotations, if each table is about one image."""
    is_dataset = content.read_rows is not None
    if not is_dataset and format_of(content.files[0]).of_one_image:
        yield from filter(None, [describe_unlabelled(content.files, names, base)])


def _warn_of_unlisted(
    content: TableContent, read: RowReader, choose: Callable[[str], str]
) -> Iterator[str]:
    """Warns of images that files of COCO or Create ML do not list."""
    uri_column = content.options.uri_column
    if uri_column and table_suffix(content.files[0]) == ".json" and not content.read_rows:
        read_uris = _uri_reader(uri_column, read)
        yield from filter(None, [describe_unlisted(content.files, read_uris, choose)])
