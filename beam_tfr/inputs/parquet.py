"""Images in a column of a Parquet file.

They are bytes, or structs with `bytes` and `path`, as Hugging Face writes them.

Neighbors are compressed together, so an image cannot be read by a range of bytes. The first time
that a run needs an image of a column, it copies all images of that column into its work folder, and
reads this and others from there. What has no work folder reads the group of rows that contains the
image, and keeps the last images in memory.

The place of such an image: the extension of the file, the length of the image's name below it, the
generation and the size of the file, the number of the row, from 0, and the column.
"""

import re
import struct
import threading
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from beam_tfr import storage
from beam_tfr.inputs.archives import archive_of
from beam_tfr.inputs.parquet_file import ParquetFile
from beam_tfr.schema.dataset import sha256_hex
from beam_tfr.schema.errors import DataError, RejectError

KEPT_BYTES = 128 << 20  # 128 MiB of images, in each process
# A copy may take so much more than the file states: a file of some bytes cannot fill a disk.
_MOST_EXCESS = 4
_FREE_EXCESS_BYTES = 1 << 30
_KEPT_COPIES = 256  # of which the places are in memory
_IN_COPY = struct.Struct("<QQ")  # of an image: where it begins, and its size
# As pyarrow names types.
_BYTES = re.compile(r"(?:dictionary<values=)?(?:large_|fixed_size_)?binary")
_STRUCT = re.compile(r"struct<(?:.*, )?bytes: (?:large_)?binary")
_LOCK = threading.Lock()  # a process copies or reads one column at a time, and each once
# File, column, limit of bytes and row -> image.
_kept: dict[tuple[storage.Entry, str, int, int], bytes] = {}


def image_column(field: Any, image: str) -> str:
    """The column with the bytes of images, given a `pyarrow.Field`.

    `image.bytes`, for example.

    Structs with bytes hold images; a column of bytes does if it is `image`. Empty for others.
    """
    column_type = str(field.type)
    if _STRUCT.match(column_type):
        return f"{field.name}.bytes"
    if field.name == image and _BYTES.match(column_type):
        return image
    return ""


def image_entry(file: storage.Entry, column: str, row: int, size_bytes: int) -> storage.Entry:
    """The image in a row of a file as a listed file of about this size."""
    stem, dot, extension = file.path.rpartition(".")
    name = f"{row:08d}"
    place = f"{dot}{extension}:{len(name)}:{file.generation}:{file.size_bytes}:{row}:{column}"
    return storage.Entry(f"{stem}/{name}", size_bytes, file.generation, place=place)


def is_in_parquet(place: str) -> bool:
    """True for the place of an image in a Parquet file."""
    return place[:9].lower() == ".parquet:"


def read_in_parquet(image: storage.Entry, max_bytes: int, copies: str) -> bytes:
    """Reads an image in a Parquet file.

    Args:
        image: the image.
        max_bytes: of a longer image, one byte more is enough.
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
    """How many bytes `read_in_parquet` returns at most: the image's size, once its copy is there.

    Reads nothing.
    """
    file, column, row = _parse_place(image)
    copy = _copies.get((file, column, max_bytes, copies))
    return max_bytes if copy is None else min(copy.place(row)[1], max_bytes)


def _parse_place(image: storage.Entry) -> tuple[storage.Entry, str, int]:
    """The file, the column and the number of the row of an image."""
    generation, size, row, column = image.place.split(":", 5)[2:]
    file = storage.Entry(archive_of(image.path, image.place), int(size), int(generation))
    return file, column, int(row)


class _RowImage(NamedTuple):
    """The image of a row; empty where there is none.

    Attributes:
        row: number of the row, from 0.
        data: its bytes; None if an earlier row has the same value.
        value: what it has in common with equal images of its group of rows; None if nothing is
            known of that.
    """

    row: int
    data: bytes | None
    value: int | None


def _read_images(
    opened: ParquetFile, column: str, max_bytes: int, group: int, skip: int = 0
) -> Iterator[_RowImage]:
    """Yields the images of a group of rows; see `ParquetFile.read_images`."""
    for first, stored in opened.read_images(column, max_bytes, group, skip):
        for row, position in enumerate(stored.positions, first):
            if position < 0:
                yield _RowImage(row, b"", None)
                continue
            value = stored.numbers[position] if stored.numbers else None
            yield _RowImage(row, stored.values[position], value)


def _read_kept(file: storage.Entry, column: str, row: int, max_bytes: int) -> bytes:
    """The image in a row, whose neighbors are kept; when they fill the room, all go."""
    with _LOCK:
        if (file, column, max_bytes, row) not in _kept:
            with ParquetFile(file) as opened:
                _keep_images(opened, file, column, row, max_bytes)
        return _kept[file, column, max_bytes, row]


def _keep_images(
    opened: ParquetFile, file: storage.Entry, column: str, row: int, max_bytes: int
) -> None:
    """Keeps the image in a row, and those of its group, while there is room for all."""
    group = opened.find_group(row)
    num_bytes = opened.groups[group].num_bytes
    position = row - opened.first_row(group)
    # A sample is read in the order of its rows.
    skip = position if num_bytes > KEPT_BYTES else 0
    key = (file, column, max_bytes)
    if num_bytes > KEPT_BYTES - _count_kept():
        _kept.clear()
    if not _keep_rows(key, row, _read_images(opened, column, max_bytes, group, skip)):
        _kept.clear()
        _keep_rows(key, row, _read_images(opened, column, max_bytes, group, position))


def _keep_rows(key: tuple[storage.Entry, str, int], row: int, images: Iterable[_RowImage]) -> bool:
    """Keeps images while there is room, and the first in any case.

    Returns:
        Whether that of a row is among them.
    """
    room = KEPT_BYTES - _count_kept()
    values = dict[int | None, bytes]()
    for number, image in enumerate(images):
        if image.data is None:
            data = values[image.value]
        else:
            data = image.data
            room -= len(data)
        if number and room < 0:
            return image.row > row
        if image.value is not None:
            values[image.value] = data
        _kept[*key, image.row] = data
    return True


def _count_kept() -> int:
    return sum(map(len, _kept.values()))


class _Copy(NamedTuple):
    """A copy of a column: its images one after another, equal ones once as far as that is known.

    Attributes:
        path: of the copy.
        places: an `_IN_COPY` for each row.
    """

    path: str
    places: bytes

    def place(self, row: int) -> tuple[int, int]:
        """Where the image of a row begins, and its size."""
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
    except FileNotFoundError:  # it was made by an earlier run in this process
        with _LOCK:
            _copies.clear()
        return _read_copy(file, column, row, max_bytes, folder)


# File, column, limit of bytes and folder -> copy.
_copies: dict[tuple[storage.Entry, str, int, str], _Copy] = {}


def _find_copy(file: storage.Entry, column: str, max_bytes: int, folder: str) -> _Copy:
    """The copy of a column; the last ones that were found are kept."""
    key = (file, column, max_bytes, folder)
    copy = _copies.get(key)
    if copy is None:
        copy = _make_copy(file, column, max_bytes, folder)
        if len(_copies) == _KEPT_COPIES:
            del _copies[next(iter(_copies))]
        _copies[key] = copy
    return copy


def _make_copy(file: storage.Entry, column: str, max_bytes: int, folder: str) -> _Copy:
    """The copy of a column, made if it is not there."""
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
    """Copies the images of a file.

    Args:
        file, opened: the file.
        copied: the copy.

    Attributes:
        places: an `_IN_COPY` for each row.
    """

    def __init__(self, file: storage.Entry, copied: Any, opened: ParquetFile) -> None:
        self._file = file
        self._copied = copied
        self._num_bytes = 0
        self._stated_bytes = sum(max(0, group.num_bytes) for group in opened.groups)
        self._most_bytes = _MOST_EXCESS * self._stated_bytes + _FREE_EXCESS_BYTES
        self.places = bytearray()

    def copy_group(self, images: Iterable[_RowImage], max_bytes: int) -> None:
        """Copies the images of a group of rows, but those that are too large.

        Raises:
            DataError: they take much more room than the file states.
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
