"""Describes tables whose first images are all missing, with possible fixes."""

import collections
import itertools
import os
import posixpath
import re
import urllib.parse
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from beam_tfr.inputs.spellings import change_slashes, is_plain
from beam_tfr.layouts.mask_folders import is_of_masks
from beam_tfr.schema.spelling import spell_option
from beam_tfr.tables.content import TableContent
from beam_tfr.tables.first_paths import PathSurvey, WrittenPath, survey_paths
from beam_tfr.tables.foreign_paths import WEB_ADDRESS, drop_shared_folders, spread
from beam_tfr.tables.lost_images import (
    describe_folders,
    describe_lost,
    find_files,
    find_only_root,
    list_complete_roots,
    list_outer_folders,
    list_roots_of,
    name_root,
)
from beam_tfr.tables.lost_zeros import describe_lost_zeros
from beam_tfr.tables.part_folders import MOST_NAMES
from beam_tfr.tables.paths import folder_around, folder_of
from beam_tfr.tables.shortened_numbers import describe_shortened

_MOST_TABLES = 20  # tables whose images are looked up one by one
_NAMES_OF_TABLE = (
    "with pandas: table[NAME] = table[NAME].str.strip().str.replace('\\\\', '/')"
    ".str.rsplit('/', n=1).str[-1]"
)
_NAMES_OF_COCO = (
    'jq \'.images[].file_name |= (gsub("\\\\\\\\"; "/") | split("/") | last)\' a.json > b.json'
)
# What Label Studio puts before the names of uploaded files.
_UPLOADED = re.compile(r"^(?:.*/)?[0-9a-f]{8}-", re.DOTALL)
_BARE_NAMES_OF_TABLE = (
    "with pandas: table[NAME] = table[NAME].str.replace('^.*/[0-9a-f]{8}-', '', regex=True)"
)
_BARE_NAMES_OF_COCO = """jq '.images[].file_name |= sub("^.*/[0-9a-f]{8}-"; "")' a.json > b.json"""
_FIRST_PATHS = 8  # paths that are checked for each of these tables
# The number of a table, and the cell of an image in it.
NumberedUri = tuple[int, Any]


def describe_missing(
    content: TableContent, missing: str, paths: Sequence[NumberedUri], *, folder: str, base: str
) -> str:
    """Returns the message if all first images are missing, with a fix if there is one.

    Args:
        content: the findings about the tables.
        missing: the message so far; an empty string if one of the images exists.
        paths: the first cells with images.
        folder: the folder of all tables.
        base: the folder in which the images are looked up.
    """
    if not missing:
        return ""
    root = _find_mirror_root(content.files, folder, paths)
    if root:
        return (
            f"{missing}; they are in folders named like the tables' folders: "
            f"{spell_option('image_root', root)}"
        )
    table = content.files[0]
    cured = _add_cure(missing, table, paths, base, of_one_table=len(content.files) == 1)
    if cured != missing:
        return cured
    names = _describe_names([path for _, path in paths], base, table)
    return f"{missing}; {names}" if names else missing


def warn_of_lost_tables(
    content: TableContent,
    survey: PathSurvey,
    paths: Sequence[NumberedUri],
    choose: Callable[[str], str],
) -> Iterator[str]:
    """Yields a line about the first table without any of its first images, if other images exist.

    Args:
        content: the findings about the tables.
        survey: the survey of all paths.
        paths: the first cells with images.
        choose: returns the folder that the paths in a table start from.
    """
    if survey.missing or content.table_format.of_one_image:
        return
    paths_of = collections.defaultdict[int, list[NumberedUri]](list)
    for number, path in paths:
        paths_of[number].append((number, path))
    if len(paths_of) < 2:
        return
    for number, members in itertools.islice(paths_of.items(), _MOST_TABLES):
        table = content.files[number]
        base = choose(table)
        written = [WrittenPath(path, base) for _, path in members if isinstance(path, str)]
        missing = survey_paths(written[:_FIRST_PATHS]).missing
        if missing:
            yield f"{table}: {_add_cure(missing, table, members, base, of_one_table=True)}"
            return


def describe_strays(survey: PathSurvey) -> str:
    """Returns the message about some first images in other folders, or an empty string."""
    if not survey.strays:
        return ""
    base = survey.strays[0].base
    texts = [path.text for path in survey.strays if path.base == base]
    zeros = describe_lost_zeros(texts, base)
    if zeros:
        return f"some of the first images do not exist, such as {texts[0]:.200} in {base}; {zeros}"
    files_of = find_files([text for text in texts if is_plain(text)], base)
    for path, files in files_of.items():
        for root, file in files.items():
            if root != base and not is_of_masks(root):
                return (
                    f"images of one table are in several folders: there is no {base}{path}, but "
                    f"there is {file}; move all images into one folder, or add the folder of each "
                    "to its path"
                )
    return ""


def _find_mirror_root(tables: Sequence[str], folder: str, paths: Sequence[NumberedUri]) -> str:
    """Returns the folder whose subfolders mirror the folders of tables, or an empty string.

    Args:
        tables, folder: all tables, and their folder.
        paths: the first cells with images.
    """
    mirrored = [
        f"{folder_of(tables[number])[len(folder) :]}{path}"
        for number, path in paths
        if isinstance(path, str) and folder_of(tables[number]) != folder
    ]
    if not mirrored:
        return ""
    outer = folder_around(folder)
    for around in (outer, folder_around(outer)):
        root = find_only_root(mirrored, around) if around.rstrip("/") else ""
        if root:
            return root
    return ""


def _add_cure(
    missing: str, table: str, paths: Sequence[NumberedUri], base: str, *, of_one_table: bool
) -> str:
    """Returns the message about missing first images, with a fix if images are found elsewhere.

    Args:
        missing: the message so far.
        table: the table that names these images.
        paths: the first cells with images.
        base: the folder in which the images are looked up.
        of_one_table: see `describe_lost`.
    """
    texts = [path for _, path in spread(paths, MOST_NAMES) if isinstance(path, str)]
    cure = describe_shortened(texts) or describe_folders(texts, base)
    cure = cure or describe_lost_zeros(texts, base) or _describe_downloads(texts, base)
    cure = cure or _describe_uploads(texts, base, table)
    if cure:
        return f"{missing}; {cure}"
    shorter = drop_shared_folders(texts)
    for folder in list_outer_folders(base):
        is_around = folder != base
        for written in filter(None, (texts, shorter)):
            cure = describe_lost(written, folder, of_one_table=of_one_table, is_around=is_around)
            if cure:
                return f"{missing}; {cure}"
    return missing


def _describe_downloads(texts: Sequence[str], base: str) -> str:
    """Says what to do if files are named like web addresses, or returns an empty string.

    Args:
        texts: the first paths in a table.
        base: the folder in which the files are looked up.
    """
    addresses = [text for text in texts if WEB_ADDRESS.match(text)]
    names = [posixpath.basename(urllib.parse.urlsplit(text).path) for text in addresses]
    if len(addresses) < len(texts):
        return ""
    return _describe_renamed(
        names,
        base,
        "files were downloaded under their own names, write these names; with pandas: table[NAME] "
        "= table[NAME].str.split('?').str[0].str.rsplit('/', n=1).str[1]",
    )


def _describe_uploads(texts: Sequence[str], base: str, table: str) -> str:
    """Says what to do if Label Studio has renamed the files, or returns an empty string.

    Args:
        texts: the first paths in a table.
        base: the folder in which the files are looked up.
        table: the table.
    """
    names = [_UPLOADED.sub("", text) for text in texts]
    if any(name == text for name, text in zip(names, texts, strict=True)):
        return ""
    command = _BARE_NAMES_OF_COCO if table.endswith(".json") else _BARE_NAMES_OF_TABLE
    return _describe_renamed(
        names,
        base,
        f"Label Studio put a code before their names, write names without it; {command}",
    )


def _describe_renamed(names: Sequence[str], base: str, cure: str) -> str:
    """Returns the message about files with other names, or an empty string if most do not exist.

    Args:
        names: the names that files may have; may be empty.
        base: the folder in which the files are looked up.
        cure: the reason for the other names, and what to do.
    """
    files_of = find_files([*filter(None, names)], base)
    if 2 * len(files_of) <= len(names):
        return ""
    roots = list_complete_roots(files_of)
    files = next(iter(files_of.values()))
    root = f", and give {name_root(roots[0])}" if roots and roots[0] != base else ""
    return f"there is {min(files.values())}: if {cure}{root}"


def _describe_names(cells: Sequence[Any], base: str, table: str) -> str:
    """Says how to omit folders if only file names match files, or returns an empty string.

    An example is data/Images/1.JPG, if the file is images/1.jpg.

    Args:
        cells: the first cells with images.
        base: the folder in which the files are looked up.
        table: the first table.
    """
    texts = [cell for cell in spread(cells, MOST_NAMES) if isinstance(cell, str)]
    names = {posixpath.basename(change_slashes(text.strip())) for text in texts}
    if "" in names or len(names) < len({*texts}):
        return ""
    spellings = {os.path.splitext(name)[0] for name in names}
    for folder in list_outer_folders(base):
        files_of = find_files(sorted(spellings), folder)
        roots = list_roots_of(files_of)
        if len(roots) == 1 and 2 * len(files_of) > len(names):
            example = min(files_of[min(files_of)].values())
            command = _NAMES_OF_COCO if table.endswith(".json") else _NAMES_OF_TABLE
            return (
                f"there is {example}: if this is an image of this table, give "
                f"{name_root(roots[0])}, and write names without folders: {command}"
            )
    return ""
