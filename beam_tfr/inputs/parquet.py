"""Images in a column of a Parquet file.

They are bytes, or structs with `bytes` and `path`, as Hugging Face writes them.

Neighbors are compressed together, so an image cannot be read by a range of bytes. The first time
that a run needs an image of a column, it copies all images of that column into its work folder, and
reads this and others from there. What has no work folder reads the group of rows that contains the
image, and keeps the last images in memory.

The place of such an image: the extension of the file, the length of the image's name below it, the
generation and the size of the file, the number of the row, from 0, and the column.
"""

import array
import contextlib
import functools
import re
import threading
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from beam_tfr import storage
from beam_tfr.inputs.archives import RangeReader, archive_of
from beam_tfr.schema.dataset import sha256_hex
from beam_tfr.schema.errors import DataError, RejectError

KEPT_BYTES = 128 << 20  # 128 MiB of images, in each process
BATCH_ROWS = 1024
_BATCH_BYTES = 4 << 20  # 4 MiB of rows
_READ_BYTES = 8 << 20  # 8 MiB of a column
# As pyarrow names types.
_BYTES = re.compile(r"(?:dictionary<values=)?(?:large_|fixed_size_)?binary")
_STRUCT = re.compile(r"struct<(?:.*, )?bytes: (?:large_)?binary")
_LOCK = threading.Lock()  # a process copies or reads one column at a time, and each once
_kept: dict[tuple[storage.Entry, str, int], bytes] = {}  # file, column and row -> image


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


def open_parquet(file: storage.Entry) -> Any:
    """Opens a file as a `pyarrow.parquet.ParquetFile`.

    Raises a DataError if it is none.
    """
    from pyarrow import parquet

    with _naming_errors(file.path, "is not a Parquet file"):
        return parquet.ParquetFile(RangeReader(file), buffer_size=_READ_BYTES)


def read_batches(
    path: str, opened: Any, columns: Sequence[str], row: int | None = None
) -> Iterator[tuple[int, int, Any]]:
    """Yields each batch of rows.

    That is the number of its first row, from 0, the mean size of a row, and the
    `pyarrow.RecordBatch`.

    Args:
        path, opened: the file.
        columns: the columns to read.
        row: a row, of which only the group is read; None for all rows.

    Raises:
        DataError: the file is damaged.
        OSError: it cannot be read, or was changed.
    """
    first = 0
    for group in range(opened.num_row_groups):
        end = first + opened.metadata.row_group(group).num_rows
        if row is None or first <= row < end:
            yield from _read_group(path, opened, columns, group, first)
        first = end


def _read_group(
    path: str, opened: Any, columns: Sequence[str], group: int, first: int
) -> Iterator[tuple[int, int, Any]]:
    """Yields the batches of a group of rows.

    `first` is the number of its first row.
    """
    about = opened.metadata.row_group(group)
    mean_bytes = about.total_byte_size // max(1, about.num_rows)
    rows = max(1, min(BATCH_ROWS, _BATCH_BYTES // (mean_bytes + 1)))
    batches = opened.iter_batches(rows, row_groups=[group], columns=columns, use_threads=False)
    number = first
    while number < first + about.num_rows:
        place = f"{path}, row {number + 1}"
        with _naming_errors(place, f"this or one of the next {rows} rows is damaged"):
            batch = next(batches)
        yield number, mean_bytes, batch
        number += batch.num_rows


@contextlib.contextmanager
def _naming_errors(place: str, problem: str) -> Iterator[None]:
    """Turns an error of pyarrow in the block into a DataError."""
    import pyarrow

    try:
        yield
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError, StopIteration) as error:
        if isinstance(error, OSError) and error.errno is not None:  # of reading
            raise
        cause = str(error).strip().partition("\n")[0][:300].rstrip(".") or "values are missing"
        raise DataError(
            f"{problem}: {cause}; write the file again", option="table", value=place
        ) from None


def read_in_parquet(image: storage.Entry, max_bytes: int, copies: str) -> bytes:
    """Reads an image in a Parquet file.

    Args:
        image: the image.
        max_bytes: of a longer image, one byte more is enough.
        copies: the folder of copies; empty to make none.

    Raises:
        RejectError: the row has no image.
        DataError, OSError: see `read_batches`.
    """
    generation, size, number, column = image.place.split(":", 5)[2:]
    file = storage.Entry(archive_of(image.path, image.place), int(size), int(generation))
    row = int(number)
    if copies:
        data = _read_copy(file, column, row, max_bytes + 1, copies)
    else:
        data = _read_kept(file, column, row)
    if not data:
        raise RejectError(
            "bad-value", f"{file.name}, row {row + 1}: column {column!r} holds no bytes"
        )
    return data


def _read_images(
    file: storage.Entry, column: str, row: int | None = None
) -> Iterator[tuple[int, bytes]]:
    """Yields rows and images of a column, or of the group with a row.

    An image is empty where there is none.
    """
    for first, _, batch in read_batches(file.path, open_parquet(file), [column], row):
        (images,) = batch.columns
        if images.type.num_fields:  # structs, of which only the bytes are read
            (images,) = images.flatten()
        for number, image in enumerate(images, first):
            yield number, image.as_py() or b""


def _read_kept(file: storage.Entry, column: str, row: int) -> bytes:
    """The image in a row, whose neighbors are kept; when they fill the room, all go."""
    with _LOCK:
        if (file, column, row) in _kept:
            return _kept[file, column, row]
        image = b""
        room = KEPT_BYTES - sum(map(len, _kept.values()))
        for number, data in _read_images(file, column, row):
            if number == row:
                image = data
            room -= len(data)
            if room < 0:
                _kept.clear()
                room = KEPT_BYTES - len(data)
            _kept[file, column, number] = data
        return image


class _Copy(NamedTuple):
    """A copy of a column: its images one after another.

    Where each begins, and the end.
    """

    path: str
    begins: "array.array[int]"


def _read_copy(file: storage.Entry, column: str, row: int, max_bytes: int, folder: str) -> bytes:
    with _LOCK:
        copy = _find_copy(file, column, folder)
    begin = copy.begins[row]
    num_bytes = min(copy.begins[row + 1] - begin, max_bytes)
    try:
        return storage.read_part(copy.path, begin, num_bytes)
    except FileNotFoundError:  # it was made by an earlier run in this process
        _find_copy.cache_clear()
        return _read_copy(file, column, row, max_bytes, folder)


@functools.lru_cache(maxsize=256)
def _find_copy(file: storage.Entry, column: str, folder: str) -> _Copy:
    """The copy of a column, made if it is not there."""
    path = storage.join(folder, f"images-{sha256_hex(repr((*file, column)).encode())[:16]}")
    begins = array.array("Q", storage.read_existing(f"{path}.begins") or b"")
    if begins and storage.find(path):
        return _Copy(path, begins)
    begins = array.array("Q", [0])
    with storage.create(path, scratch=folder) as copied:
        for _, image in _read_images(file, column):
            copied.write(image)
            begins.append(begins[-1] + len(image))
        copied.commit()
    storage.write_bytes(f"{path}.begins", begins.tobytes(), scratch=folder)
    return _Copy(path, begins)
