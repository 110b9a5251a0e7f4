"""Suggests fixes for patterns that match no file."""

import collections
import contextlib
import difflib
import itertools
import os
import posixpath
from collections.abc import Iterable, Mapping

from beam_tfr import storage
from beam_tfr.inputs.first_names import FirstNames
from beam_tfr.inputs.patterns import OPTIONS_OF_IMAGES, is_wild, split_pattern
from beam_tfr.inputs.skipped import describe_cures, describe_other_files
from beam_tfr.records.tfrecords import HEADER_BYTES, begins_record
from beam_tfr.schema.dataset import MANIFEST_FILE
from beam_tfr.schema.extensions import is_junk
from beam_tfr.schema.spelling import quote_word, spell_option
from beam_tfr.schema.wildcards import escape_pattern

_MOST_LOOKED_AT = 20  # files that are tried to find out why a pattern matches nothing
_MOST_MANIFEST_BYTES = 32 << 20  # 32 MiB; no manifest is longer
_MOST_LISTED = 1_000  # files in the folder of a missing file
_MOST_SHOWN = 3  # names in a message
_TABLES = (".parquet", ".tfrecord", ".jsonl", ".csv", ".tsv")


def describe_no_match(pattern: str, option: str, kinds: Mapping[str, int]) -> str:
    """Returns a fix for a pattern that matches no file, or an empty string if none is known.

    Args:
        pattern: the pattern.
        option: the option that specifies the pattern.
        kinds: kind of name -> number of skipped files.
    """
    folder = split_pattern(pattern, option=option)[0]
    advice = suggest_dataset(folder if is_wild(pattern) else pattern)
    if not advice:
        advice = _name_what_is_missing(pattern, folder)
    if not advice and option in OPTIONS_OF_IMAGES:
        advice = _suggest_records(folder)
    if advice:
        return advice
    if pattern.endswith("/"):
        return _describe_folder(pattern, option, kinds)
    if is_wild(pattern):
        return _describe_wildcards(pattern, option)
    return _describe_path(pattern, option)


def _describe_folder(folder: str, option: str, kinds: Mapping[str, int]) -> str:
    """Suggests a fix for a folder without images; the folder ends in a slash.

    For the other arguments see `describe_no_match`.
    """
    tables = _suggest_tables(folder) if option == "input" else ""
    cures = dict.fromkeys([*describe_cures(kinds), *describe_other_files(kinds), tables])
    advice = "; ".join(filter(None, cures))
    all_files = f"{quote_word(f'{escape_pattern(folder)}**', 'FOLDER/**')} matches all files"
    advice = advice or f"{all_files}, if these are images without an extension"
    return f" below it with an image extension; {advice}"


def _describe_wildcards(pattern: str, option: str) -> str:
    """Returns a fix for a pattern whose wildcards match nothing, or an empty string."""
    literal = _escape_folders(pattern)
    if literal != pattern:
        cure = spell_option(option, literal)
        return f"; put wildcard characters that belong to a name into brackets: {cure}"
    if option in OPTIONS_OF_IMAGES:
        folder = split_pattern(pattern, option=option)[0]
        return f"; {spell_option(option, folder)} includes all images below that folder"
    return ""


def _describe_path(path: str, option: str) -> str:
    """Suggests a fix for a path at which there is no file."""
    tables = _suggest_tables(path, ".tar") if option == "table" else ""
    if tables:
        return f"; {tables}"
    if posixpath.splitext(path)[1] and not storage.is_folder(path):
        return f"; there is no file with this name{_suggest_names(path)}"
    return (
        "; specify a file, or a pattern for several files, such as "
        f"{quote_word(f'{path}/*', 'FOLDER/*')}"
    )


def _name_what_is_missing(pattern: str, folder: str) -> str:
    """Returns which part of a pattern is missing on disk, or "" if that is not known."""
    if "\\" in pattern:
        return "; a backslash separates folders on Windows only: write /"
    if storage.is_gcs(pattern):
        return ""
    if not os.path.isdir(folder):
        return f"; there is no folder {folder}"
    is_folder = not is_wild(pattern) and "." not in pattern.rpartition("/")[2]
    if is_folder and not os.path.lexists(pattern):
        return "; there is no folder or file with this name"
    return ""


def suggest_dataset(folder: str) -> str:
    """Returns how to read a folder as a dataset, or "" if the folder holds no dataset."""
    path = storage.join(folder, MANIFEST_FILE)
    with contextlib.suppress(OSError):
        if b'"dataset_digest"' in storage.read_bytes(path, max_bytes=_MOST_MANIFEST_BYTES):
            return f"; this is a beam_tfr dataset: read it with {spell_option('table', path)}"
    return ""


def find_records(paths: Iterable[str]) -> str:
    """Returns the first TFRecord file, judging by content, or an empty string if there is none."""
    for path in paths:
        with contextlib.suppress(OSError):
            if begins_record(storage.read_part(path, 0, HEADER_BYTES)):
                return path
    return ""


def _suggest_records(folder: str) -> str:
    """Returns how to read the TFRecords in a folder, or "" if none of its first files has any."""
    first = itertools.islice(storage.walk(folder, lambda _: False, deep=False), _MOST_LOOKED_AT)
    found = find_records(entry.path for entry in first)
    return f"; TFRecords, such as {found}, can be read with `table=`" if found else ""


def _suggest_tables(folder: str, *more: str) -> str:
    """Returns a pattern for the tables in a folder, or "" if none of its first files is a table.

    Args:
        more: extensions to look for, in addition to those that only tables have.
    """
    extensions = (*_TABLES, *more)  # the likeliest first
    folders_of = collections.defaultdict[str, set[str]](set)
    first = itertools.islice(storage.walk(folder.rstrip("/"), lambda _: True), _MOST_LOOKED_AT)
    with contextlib.suppress(OSError):
        for entry in first:
            inner, _, name = entry.path.rpartition("/")
            extension = os.path.splitext(name)[1]
            if extension.lower() in extensions and not is_junk(entry.path):
                folders_of[extension].add(inner)
    if not folders_of:
        return ""
    extension = min(folders_of, key=lambda name: extensions.index(name.lower()))
    inner_folders = folders_of[extension]
    inner = min(inner_folders) if len(inner_folders) == 1 else f"{folder.rstrip('/')}/**"
    return f"there are tables in it: {spell_option('table', f'{inner}/*{extension}')}"


def _suggest_names(path: str) -> str:
    """Suggests names in the folder of a missing file that are most like its name; may return ""."""
    folder, name = posixpath.split(path)
    extension = posixpath.splitext(name)[1]
    listed = FirstNames().list_names(folder, _MOST_LISTED)
    names = sorted(other for other in listed if other.endswith(extension))
    alike = difflib.get_close_matches(name, names, n=1)
    names = alike or names[:_MOST_SHOWN]
    return f", but there is {', '.join(names)}" if names else ""


def _escape_folders(pattern: str) -> str:
    """Escapes the part of a pattern that is the path of an existing folder."""
    folder = pattern
    while "/" in folder and not storage.is_gcs(pattern):
        folder = folder.rpartition("/")[0]
        if os.path.isdir(folder):
            return escape_pattern(folder) + pattern[len(folder) :]
    return pattern
