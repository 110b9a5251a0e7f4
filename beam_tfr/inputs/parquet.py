"""Reads images in a column of a Parquet file.

Images are stored as bytes, or as structs with `bytes` and `path`, as Hugging Face writes them.

Neighboring images are compressed together, so an image cannot be read as a range of bytes. The
first time that a run needs an image from a column, it copies all images in that column to its work
folder, and reads them from there. Without a work folder, as for a sample, the row group that
contains the image is decoded: a small group is kept in memory, and a large group is decoded up to
the image, and from there on for the next image.

The place of such an image consists of the extension of the file, the length of the image's name,
the generation and the size of the file, the number of the row, from 0, and the column.
"""

import os
import re
import struct
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from beam_tfr import storage
from beam_tfr.inputs.archives import archive_of
from beam_tfr.inputs.parquet_file import ParquetFile
from beam_tfr.schema.dataset import sha256_hex
from beam_tfr.schema.errors import DataError, RejectError

KEPT_BYTES = 128 << 20  # 128 MiB of images, in each process
# How much larger a copy may be than the file states, so that a tiny file cannot fill a disk.
_MOST_EXCESS = 4
_FREE_EXCESS_BYTES = 1 << 30
_KEPT_COPIES = 256  # copies whose places are kept in memory
_IN_COPY = struct.Struct("<QQ")  # where an image begins, and its size
# Names of types in pyarrow.
_BYTES = re.compile(r"(?:dictionary<values=)?(?:large_|fixed_size_)?binary")
_STRUCT = re.compile(r"struct<(?:.*, )?bytes: (?:large_)?binary")
_LOCK = threading.Lock()  # a process copies or reads only one column at a time
_Source = tuple[storage.Entry, str, int]  # a file, a column, and the limit of bytes
_kept = dict[tuple[_Source, int], bytes]()  # source and row -> image


def image_column(field: Any, image: str) -> str:
    """Returns the name of the column with the bytes of images, such as `image.bytes`, or "".

    Structs with bytes count as images; a column of bytes counts if its name is `image`.

    Args:
        field: a `pyarrow.Field`.
        image: name of the image column.
    """
    column_type = str(field.type)
    if _STRUCT.match(column_type):
        return f"{field.name}.bytes"
    if field.name == image and _BYTES.match(column_type):
        return image
    return ""


def image_entry(file: storage.Entry, column: str, row: int, size_bytes: int) -> storage.Entry:
    """Returns the image in a row of a file as a listed file with an approximate size."""
    stem, dot, extension = file.path.rpartition(".")
    name = f"{row:08d}"
    place = f"{dot}{extension}:{len(name)}:{file.generation}:{file.size_bytes}:{row}:{column}"
    return storage.Entry(f"{stem}/{name}", size_bytes, file.generation, place=place)


def is_in_parquet(place: str) -> bool:
    """Whether a place belongs to an image in a Parquet file."""
    return place[:9].lower() == ".parquet:"


def read_in_parquet(image: storage.Entry, max_bytes: int, copies: str) -> bytes:
    """Reads an image in a Parquet file.

    Args:
        image: the image.
        max_bytes: size limit; a longer image may be cut off one byte beyond this limit.
        copies: the folder of copies; empty to make none.

    Raises:
        RejectError: the row has no image.
        DataError, OSError: see `ParquetFile`.
    """
    file, column, row = _parse_place(image)
    if copies:
        data = _read_copy(file, column, row, max_bytes, copies)
    else:
        data = _read_kept(file, column, row, max_bytes)
    if not data:
        raise RejectError(
            "bad-value", f"{file.name}, row {row + 1}: column {column!r} holds no bytes"
        )
    return data


def size_in_parquet(image: storage.Entry, max_bytes: int, copies: str) -> int:
    """Returns the maximum number of bytes that `read_in_parquet` can return; reads nothing.

    Once the image is copied, this is its size.
    """
    file, column, row = _parse_place(image)
    copy = _copies.get((file, column, max_bytes, copies))
    return max_bytes if copy is None else min(copy.place(row)[1], max_bytes)


def _parse_place(image: storage.Entry) -> tuple[storage.Entry, str, int]:
    """Returns the file, the column and the number of the row of an image."""
    generation, size, row, column = image.place.split(":", 5)[2:]
    file = storage.Entry(archive_of(image.path, image.place), int(size), int(generation))
    return file, column, int(row)


class _RowImage(NamedTuple):
    """The image in a row; empty if the row has none.

    Attributes:
        row: number of the row, from 0.
        data: the bytes of the image; None if an earlier row has the same value.
        value: a number that equal images in a row group share; None if that is not known.
    """

    row: int
    data: bytes | None
    value: int | None


def _read_images(
    opened: ParquetFile,
    column: str,
    max_bytes: int,
    group: int,
    skip: Callable[[], int] = lambda: 0,
) -> Iterator[_RowImage]:
    """Yields the images in a row group; see `ParquetFile.read_images`."""
    for first, stored in opened.read_images(column, max_bytes, group, skip):
        for row, position in enumerate(stored.positions, first):
            if position < 0:
                yield _RowImage(row, b"", None)
                continue
            value = stored.numbers[position] if stored.numbers else None
            yield _RowImage(row, stored.values[position], value)


class _GroupReader:
    """A reader of images in a row group, which are requested roughly in row order.

    For a sample, a large group is thus decoded only once. Images that are decoded on the way to a
    requested one are kept as long as the memory limit allows.

    Args:
        source: the file, the column, and the limit of bytes: see `read_in_parquet`.
        row: number of the first requested row.
    """

    def __init__(self, source: _Source, row: int) -> None:
        self._source = source
        self._process_id = os.getpid()
        file, column, max_bytes = source
        self._opened = ParquetFile(file)
        group = self._opened.find_group(row)
        first = self._opened.first_row(group)
        self._rows = range(first, first + self._opened.groups[group].num_rows)
        self._wanted = row
        self._next = row  # the next row to decode
        self._kept = dict[int, bytes]()  # row -> image
        self._values = dict[int, bytes]()  # value that equal images have in common -> image
        self._room = KEPT_BYTES
        self._images = _read_images(
            self._opened, column, max_bytes, group, skip=self._count_unwanted
        )

    def reaches(self, source: _Source, row: int) -> bool:
        """Whether an image can be read without decoding its group from the beginning."""
        if (self._source, self._process_id) != (source, os.getpid()):
            return False
        return row in self._kept or (row in self._rows and row >= self._next)

    def read(self, row: int) -> bytes:
        """Returns the image in a row for which `reaches` is true; empty bytes if there is none.

        Raises:
            DataError, OSError: see `ParquetFile`.
        """
        self._wanted = row
        while row not in self._kept:
            self._keep(next(self._images))
        return self._kept[row]

    def close(self) -> None:
        """Ends reading, and the process that decodes the file, which may hold much of the file."""
        self._opened.end_process()

    def _count_unwanted(self) -> int:
        """Returns how many rows to leave out at the start of the group."""
        return self._wanted - self._rows.start

    def _keep(self, image: _RowImage) -> None:
        data = image.data
        if data is None:
            data = self._values[image.value or 0]
        else:
            self._room -= len(data)
        if self._room < 0:
            self._make_room(len(data))
        if image.value is not None:
            self._values[image.value] = data
        self._kept[image.row] = data
        self._next = image.row + 1

    def _make_room(self, num_bytes: int) -> None:
        """Drops all kept images, to make room for an image of `num_bytes` bytes."""
        self._kept.clear()
        self._room = KEPT_BYTES - num_bytes - sum(map(len, self._values.values()))
        if self._room < 0:  # later rows may refer to any of these
            self._rows = range(0)


_reader: _GroupReader | None = None


def _read_kept(file: storage.Entry, column: str, row: int, max_bytes: int) -> bytes:
    """Returns the image in a row of a sample.

    Small row groups are kept whole; when the memory limit for them is reached, all are dropped.
    """
    global _reader
    source = (file, column, max_bytes)
    with _LOCK:
        image = _kept.get((source, row))
        if image is not None:
            return image
        if _reader is None or not _reader.reaches(source, row):
            _drop_reader()
            if _keep_group(source, row):
                return _kept[source, row]
            _reader = _GroupReader(source, row)
        try:
            return _reader.read(row)
        except BaseException:
            _drop_reader()
            raise


def _keep_group(source: _Source, row: int) -> bool:
    """Keeps all images in the group of a row, if the memory limit allows.

    Returns:
        Whether the images are kept.
    """
    file, column, max_bytes = source
    with ParquetFile(file) as opened:
        group = opened.find_group(row)
        num_bytes = opened.groups[group].num_bytes
        if num_bytes > KEPT_BYTES:
            return False
        if num_bytes > KEPT_BYTES - _count_kept():
            _kept.clear()
        room = KEPT_BYTES - _count_kept()
        values = dict[int | None, bytes]()
        for image in _read_images(opened, column, max_bytes, group):
            data = values[image.value] if image.data is None else image.data
            room -= 0 if image.data is None else len(data)
            if room < 0:
                _kept.clear()
                return False
            values[image.value] = data
            _kept[source, image.row] = data
    return True


def _count_kept() -> int:
    """Counts the bytes of the kept images; equal images in a group count once."""
    return sum(map(len, {id(image): image for image in _kept.values()}.values()))


def _drop_reader() -> None:
    global _reader
    if _reader is not None:
        _reader.close()
    _reader = None


def end_sample() -> None:
    """Ends the process that is decoding a large row group for a sample."""
    with _LOCK:
        _drop_reader()


class _Copy(NamedTuple):
    """A copy of a column: its images one after another, known duplicates only once.

    Attributes:
        path: path of the copy.
        places: a packed `_IN_COPY` for each row.
    """

    path: str
    places: bytes

    def place(self, row: int) -> tuple[int, int]:
        """Returns where the image in a row begins, and its size."""
        begin, size = _IN_COPY.unpack_from(self.places, row * _IN_COPY.size)
        return begin, size


def _read_copy(file: storage.Entry, column: str, row: int, max_bytes: int, folder: str) -> bytes:
    with _LOCK:
        copy = _find_copy(file, column, max_bytes, folder)
    begin, size = copy.place(row)
    if size > max_bytes:
        raise RejectError("file-too-large", f"more than {max_bytes} bytes")
    try:
        return storage.read_part(copy.path, begin, size)
    except FileNotFoundError:  # an earlier run in this process made the copy
        with _LOCK:
            _copies.clear()
        return _read_copy(file, column, row, max_bytes, folder)


# File, column, limit of bytes and folder -> copy.
_copies: dict[tuple[storage.Entry, str, int, str], _Copy] = {}


def _find_copy(file: storage.Entry, column: str, max_bytes: int, folder: str) -> _Copy:
    """Returns the copy of a column, and remembers the latest copies."""
    key = (file, column, max_bytes, folder)
    copy = _copies.get(key)
    if copy is None:
        copy = _make_copy(file, column, max_bytes, folder)
        if len(_copies) == _KEPT_COPIES:
            del _copies[next(iter(_copies))]
        _copies[key] = copy
    return copy


def _make_copy(file: storage.Entry, column: str, max_bytes: int, folder: str) -> _Copy:
    """Returns the copy of a column; makes it if there is none."""
    name = sha256_hex(repr((*file, column, max_bytes)).encode())[:16]
    path = storage.join(folder, f"images-{name}")
    places = storage.read_existing(f"{path}.places")
    if places and storage.find(path):
        return _Copy(path, places)
    with ParquetFile(file) as opened, storage.create(path, scratch=folder) as copied:
        copier = _Copier(file, copied, opened)
        for group in range(len(opened.groups)):
            copier.copy_group(_read_images(opened, column, max_bytes, group), max_bytes)
        copied.commit()
    places = bytes(copier.places)
    storage.write_bytes(f"{path}.places", places, scratch=folder)
    return _Copy(path, places)


class _Copier:
    """A copier of the images in a file.

    Args:
        file, opened: the file, as listed and as opened.
        copied: the copy, open for writing.

    Attributes:
        places: a packed `_IN_COPY` for each row.
    """

    def __init__(self, file: storage.Entry, copied: Any, opened: ParquetFile) -> None:
        self._file = file
        self._copied = copied
        self._num_bytes = 0
        self._stated_bytes = sum(max(0, group.num_bytes) for group in opened.groups)
        self._most_bytes = _MOST_EXCESS * self._stated_bytes + _FREE_EXCESS_BYTES
        self.places = bytearray()

    def copy_group(self, images: Iterable[_RowImage], max_bytes: int) -> None:
        """Copies the images in a row group, except those that are too large.

        Raises:
            DataError: the images take much more space than the file states.
        """
        places = dict[int | None, bytes]()  # value -> its `_IN_COPY`
        for image in images:
            if image.data is not None and (image.value is None or image.value not in places):
                places[image.value] = _IN_COPY.pack(self._num_bytes, len(image.data))
                if len(image.data) <= max_bytes:
                    self._write(image.row, image.data)
            self.places += places[image.value]

    def _write(self, row: int, data: bytes) -> None:
        self._num_bytes += len(data)
        if self._num_bytes > self._most_bytes:
            raise DataError(
                f"its images take more than {self._num_bytes:,} bytes, though its footer states "
                f"{self._stated_bytes:,}; write the file again",
                option="table",
                value=f"{self._file.path}, row {row + 1}",
            )
        self._copied.write(data)
