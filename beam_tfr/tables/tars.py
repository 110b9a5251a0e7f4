"""Reads tars of WebDataset (https://github.com/webdataset/webdataset).

A sample is a row: consecutive files with the same path up to the first dot of the file names. The
rest of each name, in lower case, is a column, and so are the fields of the object in a .json file.

Hidden files and files about the tar itself belong to no sample; they are skipped.
"""

import itertools
import posixpath
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import IO, Any, NamedTuple

from beam_tfr import storage
from beam_tfr.features.cells import BadCell
from beam_tfr.inputs import archives
from beam_tfr.inputs.patterns import compile_pattern
from beam_tfr.inputs.skipped import UNCOUNTED, SkippedFiles
from beam_tfr.records.repeats import hash_key
from beam_tfr.schema.differences import join_texts
from beam_tfr.schema.errors import DataError
from beam_tfr.schema.extensions import is_junk
from beam_tfr.schema.untrusted import parse_json
from beam_tfr.tables.base import ColumnSelection, find_table, open_table
from beam_tfr.tables.samples import ImageColumns, Samples, decode_text
from beam_tfr.tables.text_lines import MAX_ROW_BYTES

MAX_TEXT_BYTES = 1 << 20  # 1 MiB per file that is not an image
_ABOUT_TAR = re.compile(r"(?is)(?:readme|licen[cs]e|notice)\..*|thumbs\.db|desktop\.ini|__.*__\..*")
_MOST_NAMES = 3  # of files in messages
_IS_IMAGE = compile_pattern("/").fullmatch

_NamedMember = tuple[str, archives.Member]


class _Sample(NamedTuple):
    """The files of a sample, as a row.

    Attributes:
        key: the path of the files up to the first dot of their names.
        names: the paths of the files.
        row: column -> cell.
        has_image: whether one of the files has the name of an image.
    """

    key: str
    names: list[str]
    row: dict[str, Any]
    has_image: bool


class Tar(Samples):
    """Tars of WebDataset."""

    has_lower_names = True

    def read_samples(
        self,
        listed: storage.Entry,
        file: IO[bytes],
        selection: ColumnSelection,
        images: ImageColumns,
    ) -> Iterator[dict[str, Any]]:
        together = _FilesTogether(listed.path, selection, images)
        members = _list_files(listed, file, selection.skipped)
        for key, group in itertools.groupby(members, _key_of):
            sample = _read_sample(listed, file, key, group, images.names)
            together.check(sample)
            if _is_stray(sample, selection):
                for name in sample.names:
                    selection.skipped.add_packed_kind(name)
                continue
            if images.main and not images.find_main(sample.row):
                sample.row[images.main] = BadCell(_describe_missing(sample))
            yield sample.row

    def describe_columns(self, path: str) -> str:
        with open_table(path) as file:
            for name, _ in _list_files(find_table(path), file, UNCOUNTED):
                column = _column_of(name)
                if "." in column and _IS_IMAGE(f"/{name}"):
                    return (
                        "; a sample's key ends at the first dot of its file names, so "
                        f"{posixpath.basename(name)} is the file {column!r} of a sample: "
                        "rename such files, for example with _ instead, and create the tar again"
                    )
        return ""


def _list_files(
    listed: storage.Entry, file: IO[bytes], skipped: SkippedFiles
) -> Iterator[_NamedMember]:
    """Yields the files that belong to samples, and counts the others.

    Raises:
        ValueError: the tar is damaged.
    """
    try:
        for name, member in archives.list_members(listed, file):
            if _is_of_sample(name):
                yield name, member
            else:
                skipped.add_packed_kind(name)
    except archives.ERRORS as error:
        raise ValueError(f"{error or type(error).__name__}; copy the tar again") from None


def _is_of_sample(path: str) -> bool:
    """Whether the name of a file shows that it belongs to a sample."""
    parts = path.split("/")
    name = parts[-1]
    leads_out = path.startswith("/") or ".." in parts
    if is_junk(name if leads_out else path):
        return False
    return "." in name and not _ABOUT_TAR.fullmatch(name)


def _key_of(named_member: tuple[str, object]) -> str:
    """Returns the path of a file in a tar, up to the first dot of its name."""
    folder, slash, name = named_member[0].rpartition("/")
    return folder + slash + name.partition(".")[0]


def _column_of(path: str) -> str:
    """Returns the column of a file: its name from the first dot on, in lower case."""
    return posixpath.basename(path).partition(".")[2].lower()


def _read_sample(
    listed: storage.Entry,
    file: IO[bytes],
    key: str,
    members: Iterable[_NamedMember],
    image_columns: Collection[str],
) -> _Sample:
    """Reads the files of a sample, which are consecutive."""
    names = list[str]()
    row = dict[str, Any]()
    fields: Mapping[str, Any] = {}
    has_image = False
    room = MAX_ROW_BYTES
    for name, member in members:
        names.append(name)
        column = _column_of(name)
        if column in row:
            member = archives.Member(0, problem=f"is in {listed.name} more than once")
        entry = member.to_entry(listed, name)
        row[column] = entry
        if column in image_columns or _IS_IMAGE(f"/{name}"):
            has_image = True
            continue
        if member.problem:
            row[column] = BadCell(f"{name}: {member.problem}")
        elif member.size_bytes <= MAX_TEXT_BYTES:
            room -= member.size_bytes
            if room < 0:
                row[column] = BadCell(
                    f"{name}: the texts of the sample have more than {MAX_ROW_BYTES:,} bytes"
                )
                continue
            file.seek(member.begin)
            data = file.read(member.num_bytes)
            row[column] = _read_text(data)
            if column == "json":
                fields = _parse_fields(name, data)
    return _Sample(key, names, {**fields, **row}, has_image)


def _read_text(data: bytes) -> str | bytes:
    """Returns a file as a string without its last line end, or as bytes if it is not text."""
    text = decode_text(data)
    return text.rstrip("\r\n") if isinstance(text, str) else text


def _parse_fields(name: str, data: bytes) -> dict[str, Any]:
    """Returns the fields of a JSON object, or an empty dict for any other JSON value."""
    try:
        value = parse_json(data.decode())
    except ValueError as error:
        raise ValueError(f"{name} is not valid JSON: {error}") from None
    return value if isinstance(value, dict) else {}


def _is_stray(sample: _Sample, selection: ColumnSelection) -> bool:
    """Whether a sample has no selected column, and no image that would be lost."""
    if not selection.columns or sample.has_image:
        return False
    return sample.row.keys().isdisjoint(selection.columns)


def _describe_missing(sample: _Sample) -> str:
    """Says why a sample has nothing in the column of images."""
    problem = f"has no value next to {join_texts(sample.names, _MOST_NAMES, ', ')}"
    if any("." in _column_of(name) for name in sample.names):
        problem += "; the key of a sample ends at the first dot of its file names"
    return problem


class _FilesTogether:
    """Checks that all files of each sample are consecutive.

    Scattered files would become samples of their own, without their labels. The check takes some
    100 bytes of memory for each sample.

    Args:
        path: the tar.
        selection, images: the parts of the tar to read.
    """

    def __init__(self, path: str, selection: ColumnSelection, images: ImageColumns) -> None:
        self._path = path
        self._labels = {*selection.columns} - images.names  # and features
        self._keys = set[bytes]()
        # Names of samples, without folders, that lack an image or all of its labels and features.
        self._unlabelled = set[bytes]()
        self._imageless = set[bytes]()

    def check(self, sample: _Sample) -> None:
        """Checks the next sample.

        Raises:
            DataError: this sample, or an earlier sample, has files elsewhere.
        """
        key = hash_key(sample.key.encode("utf-8", "surrogateescape"))
        if key in self._keys:
            raise self._error(
                sample,
                f"after other samples, but other files of sample {sample.key!r} are before these. "
                "Files of a sample must be consecutive: create the tar again, for example with "
                "`tar --sort=name`",
            )
        self._keys.add(key)
        self._check_folders(sample)

    def _check_folders(self, sample: _Sample) -> None:
        """Checks that no image has its labels in another folder."""
        has_labels = not sample.row.keys().isdisjoint(self._labels)
        if not self._labels or has_labels == sample.has_image:
            return
        name = posixpath.basename(sample.key)
        key = hash_key(name.encode("utf-8", "surrogateescape"))
        others = self._imageless if sample.has_image else self._unlabelled
        if key in others:
            raise self._error(
                sample,
                f"in one folder, but other files of {name!r} are in another folder. All files of "
                "a sample must be in one folder: move them there, and create the tar again, for "
                "example with `tar --sort=name`",
            )
        own = self._unlabelled if sample.has_image else self._imageless
        own.add(key)

    def _error(self, sample: _Sample, place: str) -> DataError:
        """Returns the error for a sample with files in this place."""
        names = join_texts(sample.names, _MOST_NAMES, ", ")
        verb = "is" if len(sample.names) == 1 else "are"
        return DataError(f"{names} {verb} {place}", option="table", value=self._path)
