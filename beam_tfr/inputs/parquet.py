"""Images in a column of a Parquet file: bytes, or structs with `bytes` and `path`, as Hugging Face writes them.

Neighbors are compressed together, so an image cannot be read by a range of bytes. The first time that a run needs an
image of a column, it copies all images of that column into its work folder, and reads this and others from there. What
has no work folder reads the group of rows that contains the image, and keeps the last images in memory.

The place of such an image: the extension of the file, the length of the image's name below it, the generation and the
size of the file, the number of the row, from 0, and the column.
"""

import array
import contextlib
import functools
import threading
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

from beam_tfr import storage
from beam_tfr.inputs.archives import Ranges, archive_of
from beam_tfr.schema.dataset import sha256_hex
from beam_tfr.schema.errors import DataError, RejectError

CACHE_BYTES = 128 << 20  # 128 MiB of images, in each process
_READ_BYTES = 8 << 20  # 8 MiB of a column at a time
_BATCH_BYTES = 4 << 20  # 4 MiB of images at a time
_BATCH_ROWS = 64
_ABOUT_IMAGE = 256  # bytes of memory for each image beside its own
_COPYING = threading.Lock()  # a process makes one copy at a time, and each once


class Column(NamedTuple):
    """A column of images: its name in the file, such as `image.bytes`, and the file as listed."""

    name: str
    path: str
    size_bytes: int
    generation: int

    def entry(self, row: int, size_bytes: int) -> storage.Entry:
        """The image in a row as a listed file of about this size."""
        stem, dot, extension = self.path.rpartition(".")
        name = f"{row:08d}"
        place = f"{dot}{extension}:{len(name)}:{self.generation}:{self.size_bytes}:{row}:{self.name}"
        return storage.Entry(f"{stem}/{name}", size_bytes, self.generation, place=place)

    def images(self, row: int | None = None) -> Iterator[tuple[int, bytes]]:
        """Yields the number of each row and its image, empty if it has none: of the group with a row, or of all.

        Raises:
            ValueError: the file is damaged.
            OSError: it cannot be read, or was changed.
        """
        file = open_parquet(Ranges(storage.Entry(*self[1:])))
        first = 0
        for group in range(file.num_row_groups):
            about = file.metadata.row_group(group)
            rows, number, first = about.num_rows, first, first + about.num_rows
            if row is not None and not number <= row < first:
                continue
            at_once = max(1, min(_BATCH_ROWS, _BATCH_BYTES * rows // (about.total_byte_size + 1)))
            with damage(f"row {number + 1} or one of the next {rows} is damaged"):
                for batch in file.iter_batches(at_once, row_groups=[group], columns=[self.name], use_threads=False):
                    (images,) = batch.columns
                    if images.type.num_fields:  # structs, of which only the bytes are read
                        (images,) = images.flatten()
                    for image in images:
                        yield number, image.as_py() or b""
                        number += 1
                if number != first:
                    raise ValueError(f"row {number + 1} has no image in the column {self.name}")


def image_leaf(field: Any, images: Collection[str]) -> str:
    """The column with the bytes of images, given a `pyarrow.Field`; empty if it holds none.

    Structs with bytes are images, and other bytes are where `images` says so.
    """
    from pyarrow import types

    def is_bytes(of: Any) -> bool:
        value = of.value_type if types.is_dictionary(of) else of
        return any(check(value) for check in (types.is_binary, types.is_large_binary, types.is_fixed_size_binary))

    if types.is_struct(field.type):
        place = field.type.get_field_index("bytes")
        return f"{field.name}.bytes" if place >= 0 and is_bytes(field.type[place].type) else ""
    return field.name if field.name in images and is_bytes(field.type) else ""


def open_parquet(file: Ranges) -> Any:
    """Opens a file as a `pyarrow.parquet.ParquetFile`; raises a ValueError if it is none."""
    from pyarrow import parquet

    with damage("is not a Parquet file"):
        return parquet.ParquetFile(file, buffer_size=_READ_BYTES)


@contextlib.contextmanager
def damage(problem: str) -> Iterator[None]:
    """Turns errors of pyarrow within the block into a ValueError that begins with the problem."""
    import pyarrow

    try:
        yield
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # of reading the file
            raise
        raise ValueError(f"{problem}: {str(error).strip().partition(chr(10))[0][:300]}") from None


def is_in_parquet(place: str) -> bool:
    """True for the place of an image in a Parquet file."""
    return place.lower().startswith(".parquet:")


def read_in_parquet(file: storage.Entry, max_bytes: int, copies: str) -> bytes:
    """Reads an image in a Parquet file.

    Args:
        file: the image.
        max_bytes: of a longer image, one byte more is enough.
        copies: the folder of copies; empty to make none.

    Raises:
        RejectError: the row has no image.
        DataError: the file is damaged.
        OSError: it cannot be read, or was changed.
    """
    generation, size, row, name = file.place.split(":", 5)[2:]
    column, number = Column(name, archive_of(file.path, file.place), int(size), int(generation)), int(row)
    try:
        image = _read_copy(column, number, max_bytes + 1, copies) if copies else _cache.read(column, number)
    except ValueError as error:
        raise DataError(f"{error}; write the file again", option="table", value=column.path) from None
    if not image:
        raise RejectError("bad-value", f"{column.path}, row {number + 1}: column {name!a} holds no bytes")
    return image


class _Cache:
    """The images that were read last without copies."""

    def __init__(self) -> None:
        self._images = dict[tuple[Column, int], bytes]()
        self._room = CACHE_BYTES
        self._lock = threading.Lock()

    def read(self, column: Column, row: int) -> bytes:
        """The image in a row, which is read with its group."""
        with self._lock:
            found = self._images.get((column, row))
            for number, image in column.images(row) if found is None else ():
                found = image if number == row else found
                if (column, number) not in self._images:
                    self._images[column, number] = image
                    self._room -= _ABOUT_IMAGE + len(image)
                while self._room < 0:
                    self._room += _ABOUT_IMAGE + len(self._images.pop(next(iter(self._images))))
            return found or b""


_cache = _Cache()


def _read_copy(column: Column, row: int, max_bytes: int, copies: str) -> bytes:
    with _COPYING:
        path, starts = _copy(column, copies)
    try:
        return storage.read_part(path, starts[row], min(starts[row + 1] - starts[row], max_bytes))
    except FileNotFoundError:  # it was made by an earlier run in this process
        _copy.cache_clear()
        return _read_copy(column, row, max_bytes, copies)


@functools.lru_cache(maxsize=256)
def _copy(column: Column, folder: str) -> tuple[str, array.array[int]]:
    """The copy of a column, made if it is not there: its images one after another; and where each begins or ends."""
    path = storage.join(folder, f"images-{sha256_hex(repr(column).encode())[:16]}")
    starts = array.array("Q", storage.read_existing(f"{path}.starts") or b"")
    if not starts or storage.find(path) is None:
        starts = array.array("Q", [0])
        with storage.create(path, scratch=folder) as file:
            for _, image in column.images():
                file.write(image)
                starts.append(starts[-1] + len(image))
            file.commit()
        storage.write_bytes(f"{path}.starts", starts.tobytes(), scratch=folder)
    return path, starts
