"""Finds the folders that image paths in tables start from."""

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from beam_tfr import storage
from beam_tfr.features.cells import members_of
from beam_tfr.inputs.patterns import ARCHIVE, common_folder
from beam_tfr.inputs.skipped import UNCOUNTED, SkippedFiles
from beam_tfr.inputs.spellings import is_plain
from beam_tfr.options.implied import table_suffix
from beam_tfr.schema.errors import BeamTfrError, UsageError
from beam_tfr.schema.extensions import PACKED, has_image_name
from beam_tfr.tables.base import BadRow, DamagedTableError, Row, RowReader, skip_bad_rows
from beam_tfr.tables.content import TableContent
from beam_tfr.tables.first_paths import MOST_PATHS, WrittenPath, survey_paths
from beam_tfr.tables.foreign_paths import describe_foreign_paths, find_foreign_paths, spread
from beam_tfr.tables.formats import read_columns, read_rows
from beam_tfr.tables.image_folders import (
    ImageFolder,
    choose_base,
    clear_caches,
    describe_image_folders,
    describe_image_root,
    describe_second_files,
    find_image_folders,
    guess_image_root,
    list_roots,
)
from beam_tfr.tables.image_names import ImageFinder, ImageName, drop_prefix
from beam_tfr.tables.lost_images import clear_files, list_outer_folders
from beam_tfr.tables.missing_images import (
    NumberedUri,
    describe_missing,
    describe_strays,
    warn_of_lost_tables,
)
from beam_tfr.tables.parquet_rows import Parquet
from beam_tfr.tables.part_folders import (
    MOST_NAMES,
    PartFolders,
    clear_names,
    find_part_folders,
)
from beam_tfr.tables.paths import folder_of, is_absolute, read_path, resolve_path, spell_number
from beam_tfr.tables.text_rows import Delimited, JsonLines
from beam_tfr.tables.unlabelled import (
    describe_mostly_listed,
    describe_unlabelled,
    describe_unlisted,
)
from beam_tfr.tables.unused.suggestions import FIRST_ROWS, read_first_cells

_TEXTS = (".csv", ".tsv")


class ImageRoots(NamedTuple):
    """The folders that image paths start from.

    All folders have a trailing slash.

    Attributes:
        folder: the folder of all tables.
        base: the folder that relative paths start from; an empty string stands for the folder of
            each table.
        root: the folder that keys start from.
        image_folders: folders that the paths in some tables start from; each of these tables has
            its own folder.
        prefix: the prefix to remove, if paths are from another machine.
        ignores_case: whether paths may mean files whose names differ in case.
        parts: folders in which bare file names are looked up; None if there are no such folders.
        missing: the message about the first images if none of them exist; otherwise an empty
            string.
        warnings: lines about assumptions where no option decides.
    """

    folder: str
    base: str
    root: str
    image_folders: frozenset[ImageFolder]
    prefix: str
    ignores_case: bool
    parts: PartFolders | None
    missing: str
    warnings: tuple[str, ...]


def find_image_roots(
    content: TableContent, numbered_uris: Sequence[NumberedUri], read: RowReader
) -> ImageRoots:
    """Finds the folders that image paths start from.

    Args:
        content: the findings about the tables.
        numbered_uris: the first cells with images, each with the number of its table; an empty
            sequence if rows become records.
        read: yields the rows of a table.

    Raises:
        UsageError: tables, or images with absolute paths, have no folder in common.
    """
    read = _reuse_first_rows(content, numbered_uris, read)
    folder = _common_folder(content.files, "tables")
    uris = [uri for _, uri in numbered_uris]
    places = _find_places(content, folder, uris, read)
    paths = [(number, drop_prefix(uri, places.prefix)) for number, uri in numbered_uris]
    choose = _base_chooser(places, folder)
    survey = survey_paths(
        [
            WrittenPath(path, choose(content.files[number]))
            for number, path in spread(paths, MOST_PATHS)
            if isinstance(path, str)
        ]
    )
    if survey.missing:
        places = _add_parts(places, content, folder, paths)
    root = places.base or (_common_root(folder, uris) if uris else folder)
    finder = ImageFinder(prefix=places.prefix, ignores_case=survey.ignores_case, parts=places.parts)
    missing = ""
    warnings = [*filter(None, [*places.warnings, survey.example])]
    if not places.parts:
        start = places.base or folder
        missing = describe_missing(content, survey.missing, paths, folder=folder, base=start)
        images = _find_images([path for _, path in paths], start)
        if missing:
            _check_image_root(content.options.image_root, missing)
        lost_tables = [*warn_of_lost_tables(content, survey, paths, choose)]
        warnings += lost_tables or filter(None, [describe_strays(survey)])
        warnings += _warn_of_names(images, start)
    warnings += _warn_of_left_out(
        content, numbered_uris, read, choose, finder, are_missing=bool(missing)
    )
    return ImageRoots(
        folder=folder,
        base=places.base,
        root=root,
        image_folders=places.image_folders,
        prefix=places.prefix,
        ignores_case=survey.ignores_case,
        parts=places.parts,
        missing=missing,
        warnings=tuple(warnings),
    )


def _check_image_root(image_root: str, missing: str) -> None:
    """Checks that the image folder exists, if none of the first images exists.

    Args:
        image_root: the option; may be empty.
        missing: the message about the first images.

    Raises:
        UsageError: the folder does not exist, or is an archive or another file.
    """
    if not image_root or _holds_anything(image_root):
        return
    problem = "there is no such folder"
    if storage.find(image_root):
        problem = "this is a file; give the folder of the images"
        if ARCHIVE.search(image_root) or PACKED.search(image_root):
            problem = "tables cannot use images in archives: unpack it, and give the folder"
    raise UsageError(f"{problem}; {missing}", option="image_root", value=image_root)


def _holds_anything(folder: str) -> bool:
    """Whether a folder exists and, on gs://, has files; true if it cannot be listed."""
    if not storage.is_gcs(folder):
        return storage.is_folder(folder)
    with contextlib.suppress(OSError):
        return any(True for _ in storage.walk(folder, lambda _: False))
    return True


def _base_chooser(places: "_Places", folder: str) -> Callable[[str], str]:
    """Returns a function that returns the folder that the paths in a table start from."""
    return functools.partial(
        choose_base, folder=folder, base=places.base, image_folders=places.image_folders
    )


def _add_parts(
    places: "_Places", content: TableContent, folder: str, paths: Sequence[NumberedUri]
) -> "_Places":
    """Adds the folders that each hold some of the images, if the images are in several folders.

    Args:
        places: the places so far, where none of the first images exists.
        content: the findings about the tables.
        folder: the folder of all tables.
        paths: the first cells with images.
    """
    in_one_folder = all(folder_of(table) == folder for table in content.files)
    if places.image_folders or not (places.base or in_one_folder):
        return places
    own = places.base or folder
    starts = [own] if places.base else list_outer_folders(own)
    names = [path for _, path in spread(paths, MOST_NAMES)]
    for start in starts:
        parts = None
        with contextlib.suppress(OSError):  # the folder cannot be listed
            parts = find_part_folders(names, start, own=own)
        if parts:
            base = "" if start == folder else start
            warnings = (*places.warnings, parts.describe())
            return places._replace(base=base, parts=parts, warnings=warnings)
    return places


class _Places(NamedTuple):
    """The places of images; the attributes are described in `ImageRoots`."""

    base: str
    image_folders: frozenset[ImageFolder]
    prefix: str
    warnings: tuple[str, ...]
    parts: PartFolders | None = None


def _find_places(
    content: TableContent, folder: str, uris: Sequence[Any], read: RowReader
) -> _Places:
    """Finds where images are, given the folder of the tables and the first cells with images.

    Places next to or around the tables are tried before paths from another machine are mapped.
    """
    clear_caches()
    clear_files()
    clear_names()
    image_root = content.options.image_root
    guessed = "" if image_root else _guess_image_root(content, folder, uris, read)
    base = f"{image_root.rstrip('/')}/" if image_root else guessed
    image_folders = _find_image_folders(content, folder, base, read)
    if guessed or image_folders:
        warnings = (describe_image_root(guessed, folder), describe_image_folders(image_folders))
        return _Places(base, image_folders, "", warnings)
    is_relative = not any(_is_whole_path(uri) for uri in uris)
    second_files = _describe_second_files(content, folder, base, read) if is_relative else ""
    roots = [base] if base else list_roots(folder)
    foreign = find_foreign_paths(uris, base or folder, roots)
    if foreign is None:
        return _Places(base, image_folders, "", (second_files,))
    notice = describe_foreign_paths(foreign)
    if foreign.problem:
        return _Places(base, image_folders, "", (second_files, notice))
    return _Places(foreign.root, image_folders, foreign.prefix, (notice,))


def _is_whole_path(uri: Any) -> bool:
    """Whether a cell is an absolute path."""
    return isinstance(uri, str) and is_absolute(uri)


def paths_below_root(uris: Iterable[Any], roots: ImageRoots) -> list[str]:
    """Returns the paths of images relative to the folder of all images; leaves out paths elsewhere.

    Args:
        uris: cells with images.
        roots: the folders that paths start from.
    """
    paths = []
    base = roots.base or roots.folder
    finder = ImageFinder(parts=roots.parts)
    for uri in map(spell_number, uris):
        with contextlib.suppress(ValueError):  # its row becomes a reject
            if isinstance(uri, storage.Entry):
                path = uri.path
            elif roots.parts:
                path = finder.find(uri, base)
            else:
                path = resolve_path(drop_prefix(uri, roots.prefix), base)
            if path.startswith(roots.root):
                paths.append(path[len(roots.root) :])
    return paths


def _guess_image_root(
    content: TableContent, folder: str, uris: Sequence[Any], read: RowReader
) -> str:
    """Guesses the image folder near the tables; see `guess_image_root`."""
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
    """Finds the image folders of tables; see `image_folders.find_image_folders`."""
    uri_column = content.options.uri_column
    if not uri_column or content.read_rows:
        return frozenset()
    read_uris = _uri_reader(uri_column, read)
    return find_image_folders(content.files, folder=folder, base=base, read_uris=read_uris)


def _describe_second_files(content: TableContent, folder: str, base: str, read: RowReader) -> str:
    """Returns the message about files in two places; see `describe_second_files`."""
    uri_column = content.options.uri_column
    if not uri_column or content.read_rows:
        return ""
    read_uris = _uri_reader(uri_column, read)
    return describe_second_files(content.files, folder=folder, base=base, read_uris=read_uris)


def _reuse_first_rows(
    content: TableContent, numbered_uris: Sequence[NumberedUri], read: RowReader
) -> RowReader:
    """Returns a function that yields the paths in tables, without reading known paths again.

    The paths in tables with a single row are known. For the arguments, see `find_image_roots`.
    """
    if not content.table_format.of_one_image:
        return read
    known = {content.files[number]: uri for number, uri in numbered_uris}

    def reuse_rows(
        path: str, columns: Sequence[str], skipped: SkippedFiles
    ) -> Iterator[Row | BadRow]:
        if path in known:
            yield 1, [known[path]]
        else:
            yield from read(path, columns, skipped)

    return reuse_rows


def _uri_reader(uri_column: str, read: RowReader) -> Callable[[str], Iterator[Any]]:
    """Returns the function that yields the image paths in a table."""

    def read_uris(path: str) -> Iterator[Any]:
        with contextlib.suppress(DamagedTableError):  # reading the rows raises the same error
            for _, cells in skip_bad_rows(read(path, [uri_column], UNCOUNTED)):
                yield spell_number(cells[0])

    return read_uris


def _common_root(folder: str, uris: Sequence[Any]) -> str:
    """Returns the folder that the paths in the first rows have in common.

    If a path is relative, this is the folder of the tables.

    A later row outside this folder becomes a reject, so the number of rows read here never changes
    the keys.
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
    if len(remote) != len(local):  # otherwise, nothing shows which paths are wrong
        paths = max(remote, local, key=len)
    return _common_folder(paths, "the files that its rows name")


def _common_folder(paths: Sequence[str], noun: str) -> str:
    return common_folder([folder_of(path)[:-1] for path in paths], option="table", noun=noun)


class _FoundImage(NamedTuple):
    """The file of an image whose path is ambiguous.

    Attributes:
        cell: the path or name of an image.
        path: the path of the file.
    """

    cell: str
    path: str


def _find_images(cells: Iterable[Any], base: str) -> Iterator[_FoundImage]:
    """Yields the files of images whose paths are ambiguous."""
    finder = ImageFinder()
    for cell in cells:
        if isinstance(cell, str) and not _is_certain(cell):
            with contextlib.suppress(ValueError):  # the image becomes a reject
                yield _FoundImage(cell, finder.find(cell, base))


def _warn_of_names(images: Iterable[_FoundImage], base: str) -> Iterator[str]:
    """Yields a line about paths and names that differ from those of the image files."""
    for cell, path in images:
        if path != resolve_path(cell, base):
            yield (
                "if there is no file at a path as written, a file with other slashes, spaces or "
                "extension, or without leading folders, is used, such as "
                f"{path.removeprefix(base)} for {cell}"
            )
            return


def _is_certain(cell: str) -> bool:
    """Whether a path can only mean the file at the path as written."""
    has_extension = "." in cell.rpartition("/")[2]
    return has_extension and is_plain(cell) and not isinstance(cell, ImageName)


def _warn_of_left_out(
    content: TableContent,
    numbered_uris: Sequence[NumberedUri],
    read: RowReader,
    choose: Callable[[str], str],
    finder: ImageFinder,
    *,
    are_missing: bool,
) -> Iterator[str]:
    """Yields a warning about images that have no annotations, or that the tables do not list.

    For this warning, tables without boxes are not read if their first images are missing.
    """
    uri_column = content.options.uri_column
    if not uri_column or content.read_rows:
        return
    read_uris = _uri_reader(uri_column, read)
    if content.table_format.of_one_image:
        yield from filter(None, [describe_unlabelled(content.files, read_uris, choose, finder)])
        return
    suffix = table_suffix(content.files[0])
    has_row_per_box = content.implies_features and suffix in _TEXTS
    if suffix == ".json" or has_row_per_box:
        yield from filter(None, [describe_unlisted(content.files, read_uris, choose, finder)])
    elif isinstance(content.table_format, Delimited | JsonLines | Parquet) and not are_missing:
        read_names = _name_reader(content)
        text = describe_mostly_listed(content.files, numbered_uris, read_names, choose, finder)
        yield from filter(None, [text])


def _name_reader(content: TableContent) -> Callable[[str], Iterator[Any]]:
    """Returns the function that yields the names of images and other files in a table."""
    cells_of = read_first_cells(content, content.columns)
    of_files = [name for name, cells in cells_of.items() if any(map(_names_image, cells))]
    wanted = {content.options.uri_column, *of_files}  # other tables may lack some of these columns

    def read_names(path: str) -> Iterator[Any]:
        with contextlib.suppress(BeamTfrError):  # reading the rows raises the same error
            columns = [name for name in read_columns(path, FIRST_ROWS) if name in wanted]
            for _, cells in skip_bad_rows(read_rows(path, columns)):
                yield from itertools.chain.from_iterable(map(members_of, cells))

    return read_names


def _names_image(cell: Any) -> bool:
    """Whether a cell is the name of an image, or a list of names."""
    return any(isinstance(name, str) and has_image_name(name) for name in members_of(cell))
