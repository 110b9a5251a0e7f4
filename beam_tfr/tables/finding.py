"""Finds tables, and derives options from their content."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from beam_tfr import storage
from beam_tfr.inputs.listing import match_files
from beam_tfr.inputs.no_match import suggest_dataset
from beam_tfr.inputs.patterns import escape_if_file, is_wild, literal_start
from beam_tfr.inputs.skipped import FoundFolders
from beam_tfr.options import ConvertOptions
from beam_tfr.options.implied import is_dataset
from beam_tfr.schema.dataset import MANIFEST_FILE
from beam_tfr.schema.differences import join_texts
from beam_tfr.schema.extensions import is_junk
from beam_tfr.schema.naming import parse_file_name
from beam_tfr.tables.annotations import Annotations
from beam_tfr.tables.base import table_error
from beam_tfr.tables.content import TableContent, imply_by_file, imply_columns
from beam_tfr.tables.datasets import open_dataset
from beam_tfr.tables.first_rows import SAMPLE_ROWS
from beam_tfr.tables.formats import format_of, has_table_name, read_columns
from beam_tfr.tables.our_exports import is_export_mark
from beam_tfr.tables.text_rows import Delimited
from beam_tfr.tables.tfds import open_tfds


def find_content(options: ConvertOptions) -> TableContent:
    """Finds the tables, and derives options from the content of the tables.

    Raises:
        UsageError: there is no table, or a table cannot be used.
        DataError: the first table is damaged.
    """
    dataset = next(filter(is_dataset, options.table), "")
    if dataset:
        return _find_dataset(options, dataset)
    found = find_tables(options.table)
    _check_kinds(found.files)
    options = imply_by_file(options, found.files[0])
    if options.uri_column:
        _refuse_shards(found.files)
    for path in found.files:
        columns = read_columns(path, SAMPLE_ROWS)
        if columns:
            content = imply_columns(options, found.files, columns)
            return content._replace(warnings=(*found.warnings, *content.warnings))
    raise table_error(" ".join(options.table), "there are no rows")


def _find_dataset(options: ConvertOptions, path: str) -> TableContent:
    """Returns the content of a dataset, given the file that describes it.

    Raises the same errors as `find_content`.
    """
    is_pattern = is_wild(path) and not storage.find(path)
    if len(options.table) > 1 or is_pattern:
        raise table_error(path, "is a dataset, which must be the only table: give its exact path")
    open_content = open_dataset if path.endswith(MANIFEST_FILE) else open_tfds
    return open_content(options, path)


def _check_kinds(files: Sequence[str]) -> None:
    """Checks that all tables are annotations of the same kind, or that none are annotations.

    Raises:
        UsageError: kinds are mixed, such as COCO's JSON and XML, or annotations and other tables.
    """
    first = files[0]
    first_format = format_of(first)
    for path in files[1:]:
        other_format = format_of(path)
        if other_format is first_format:
            continue
        if isinstance(first_format, Annotations) or isinstance(other_format, Annotations):
            raise table_error(
                path,
                f"is of a different kind than {first}, and they have no columns in common: "
                "convert each kind separately, or write all as one CSV with a row for each box",
            )


def _refuse_shards(files: Sequence[str]) -> None:
    """Rejects tables if the first shard among them belongs to one of our datasets.

    Raises:
        UsageError: a shard belongs to a dataset; the message says how to read that dataset.
    """
    for path in files:
        folder, _, name = path.rpartition("/")
        if parse_file_name(name):
            cure = suggest_dataset(folder)
            if cure:
                raise table_error(
                    path, f"is a shard, which does not record its split and classes{cure}"
                )
            return


class FoundTables(NamedTuple):
    """The tables that match patterns.

    Attributes:
        files: the paths of the tables, sorted, without repeats.
        warnings: lines about other files and folders that match.
    """

    files: tuple[str, ...]
    warnings: Sequence[str]


def find_tables(patterns: Sequence[str]) -> FoundTables:
    """Lists the tables that match the patterns.

    Raises:
        UsageError: a pattern matches no file, only empty files, or a file that cannot be a table.
    """
    patterns = [*map(escape_if_file, patterns)]
    wild = [*filter(is_wild, patterns)]
    named = [(pattern, ()) for pattern in patterns if pattern not in wild]
    paths = {entry.path for entry in match_files(named, option="table")}
    matched = _match_wild(wild)
    paths |= matched.tables
    if matched.empty and not paths:
        problem = "is empty, as are all tables that the pattern matches"
        raise table_error(min(matched.empty), problem)
    if not paths:
        shown = join_texts(sorted(matched.markers | matched.marks))
        raise table_error(" ".join(patterns), f"matches only {shown}")
    files = tuple(sorted(paths))
    for path in files:
        format_of(path)  # raises an error if it cannot be a table
    return FoundTables(files, [*_warn_of_others(matched, paths)])


class _Matched(NamedTuple):
    """The files and folders that match patterns with wildcards.

    Attributes:
        tables: files that may be tables.
        markers: files that other systems add to folders of tables.
        marks: the `export.json` files of our exports, which are read for splits and classes.
        empty: tables of 0 bytes.
        folders: folders that match the patterns.
    """

    tables: set[str]
    markers: set[str]
    marks: set[str]
    empty: set[str]
    folders: FoundFolders


def _match_wild(patterns: Iterable[str]) -> _Matched:
    """Lists the matches of patterns with wildcards; raises the same errors as `match_files`."""
    matched = _Matched(set(), set(), set(), set(), FoundFolders())
    for pattern in patterns:
        for entry in match_files([(pattern, ())], option="table", skipped=matched.folders):
            if _is_marker(entry.path, pattern):
                matched.markers.add(entry.path)
            elif is_export_mark(entry.path):
                matched.marks.add(entry.path)
            elif _is_empty_part(entry):
                matched.empty.add(entry.path)
            else:
                matched.tables.add(entry.path)
    return matched


def _warn_of_others(matched: _Matched, tables: Collection[str]) -> Iterator[str]:
    """Yields warnings about matches other than the tables that are read."""
    yield from _warn_of_folders(matched.folders.folders)
    yield from filter(None, [matched.folders.repeats.describe()])
    if matched.markers:
        texts = join_texts(sorted(matched.markers))
        yield f"files that other systems add to folders of tables are skipped: {texts}"
    empty = sorted(matched.empty.difference(tables))
    if empty:
        yield f"tables of 0 bytes are skipped: {join_texts(empty)}"


def _is_empty_part(entry: storage.Entry) -> bool:
    """Whether a file is a CSV without a header, such as Spark writes for parts without rows."""
    if entry.size_bytes or not has_table_name(entry.path):
        return False
    return isinstance(format_of(entry.path), Delimited)


def _is_marker(path: str, pattern: str) -> bool:
    """Whether a matching file is one that other systems add to folders of tables.

    Examples are `._train.parquet`, `.part-0.parquet.crc` and `_SUCCESS`, which marks a finished
    job.
    """
    below = path[len(literal_start(pattern).rpartition("/")[0]) :]
    name = path.rpartition("/")[2]
    return is_junk(below) or (name.startswith("_") and not has_table_name(path))


def _warn_of_folders(folders: Iterable[str]) -> Iterator[str]:
    """Yields a warning about folders whose names look like those of tables."""
    named_so = [folder for folder in sorted(folders) if has_table_name(folder)]
    if named_so:
        yield f"folders with names like those of tables are skipped: {join_texts(named_so)}"
