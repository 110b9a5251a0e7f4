"""Decodes a Parquet file in a guarded process, which answers requests.

Nothing in the file bounds the cost of decoding it: a page of 30 bytes may hold 2^31 values, a page
may be compressed a thousandfold, all rows may share one stored value, and pyarrow may crash on
damaged metadata. So decoding happens here, within memory and time limits that the kernel enforces.
This process opens no file: it requests bytes of the file, and answers in batches.

    ParquetFile ── OpenFile, ReadRows, ReadCategories, ReadImages or NextBatch ──▶ serve
    ParquetFile ◀── Span ── serve, ParquetFile ── bytes ──▶ serve            for each read
    ParquetFile ◀── OpenedFile, StoredRows, StoredImages, None or Failure ── serve

Messages go through a connection, and bytes through a `Tray`. `serve` sends these types as
MessagePack, never as pickle: a damaged file might take control of the process, and a pickle from it
could then run code in the other process.
"""

import contextlib
import io
import os
import resource
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

MOST_MEMORY = 1 << 30  # 1 GiB, in addition to the memory of the process at its start
_MEMORY_OF_STORED = 3  # additional memory, as a multiple of the size of a row group in the file
_MOST_MORE_MEMORY = 4 << 30  # 4 GiB: a page has no more than 2 GiB
MOST_CPU_S = 60  # for a batch; the largest page takes a few
OUT_OF_MEMORY = 90  # exit status
BATCH_ROWS = 1024
MOST_ROW_BYTES = 128 << 20  # for the cells of a row in Python
_BATCH_BYTES = 4 << 20  # 4 MiB of rows
_READ_BYTES = 8 << 20  # 8 MiB of a column
_KEPT_BYTES = 16 << 20  # 16 MiB in a tray
_SHARED_BYTES = 32 << 20  # 32 MiB of a compressed dictionary, which pyarrow copies for every batch
_MOST_SCHEMA_BYTES = 32 << 20
_DEEPEST = 64  # lists and structs within each other
_MOST_MESSAGE_BYTES = 64 << 20  # 64 MiB for a schema or a list of numbers
_MOST_ANSWER_BYTES = 2 << 30  # 2 GiB: a row, or an image of any `--max_file_bytes`
_VALUE_BYTES = 40  # overhead of a value in Python


class Tray:
    """An unnamed file in which two processes leave bytes for each other.

    Through a socket, the processes would have to take turns every 200 kB.

    Args:
        descriptor: descriptor of the file.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def put(self, parts: Iterable[bytes]) -> None:
        """Replaces the bytes in the tray with the given parts, one after another."""
        if os.fstat(self._descriptor).st_size > _KEPT_BYTES:
            os.ftruncate(self._descriptor, 0)
        begin = 0
        for part in parts:
            view = memoryview(part)
            while view:
                size = os.pwrite(self._descriptor, view, begin)
                view = view[size:]
                begin += size

    def take(self, begin: int, num_bytes: int) -> bytes:
        """Returns some of the bytes in the tray."""
        return os.pread(self._descriptor, num_bytes, begin)

    def send(self, connection: Connection, answer: "Answer | None") -> None:
        """Sends an answer; leaves its images or its stream in the tray."""
        from msgspec import msgpack

        parts: Sequence[bytes | None] = ()
        if isinstance(answer, StoredImages):
            parts = answer.values
            answer = answer._replace(values=())
        elif isinstance(answer, StoredRows):
            parts = [answer.stream]
            answer = answer._replace(stream=b"")
        self.put(part for part in parts if part)
        sizes = [None if part is None else len(part) for part in parts]
        connection.send_bytes(msgpack.encode((type(answer).__name__, answer, sizes)))

    def recv(self, connection: Connection) -> "Answer | None":
        """Receives an answer; the other end may send anything.

        Raises:
            OSError, EOFError: the connection is closed, or the message is too long.
            ValueError: the message is not an answer.
        """
        import msgspec

        data = connection.recv_bytes(_MOST_MESSAGE_BYTES)
        try:
            kind, value, sizes = msgspec.msgpack.decode(
                data, type=tuple[str, msgspec.Raw, list[int | None]]
            )
            answer: Answer | None = msgspec.msgpack.decode(value, type=_ANSWERS[kind])
        except (msgspec.MsgspecError, LookupError) as error:
            raise ValueError(str(error)) from error
        parts = self._take_parts(sizes)
        if isinstance(answer, StoredImages):
            return answer._replace(values=parts)
        if isinstance(answer, StoredRows):
            return answer._replace(stream=b"".join(filter(None, parts)))
        return answer

    def _take_parts(self, sizes: Sequence[int | None]) -> list[bytes | None]:
        """Returns the bytes in the tray as parts of the specified sizes.

        Raises:
            ValueError: there are too many bytes.
        """
        if sum(size or 0 for size in sizes) > _MOST_ANSWER_BYTES:
            raise ValueError("an answer is too long")
        parts = list[bytes | None]()
        begin = 0
        for size in sizes:
            parts.append(None if size is None else self.take(begin, size))
            begin += size or 0
        return parts


class Span(NamedTuple):
    """A request for bytes of the file; the reply says how many bytes are in the tray."""

    begin: int
    num_bytes: int


class OpenFile(NamedTuple):
    """A request to open another file, of the given size; the answer is an `OpenedFile`."""

    num_bytes: int


class ReadRows(NamedTuple):
    """A request to read a row group; the answers are `StoredRows`, then None at the end.

    Attributes:
        group: number of the group.
        columns: the columns to read.
        skip: number of rows of the group to leave out.
        careful: whether to decode each row separately.
    """

    group: int
    columns: Sequence[str]
    skip: int
    careful: bool


class ReadCategories(NamedTuple):
    """A request to read the dictionary of a column in the first row group; see `ReadRows`.

    There are no answers if the dictionary is too large for a batch.
    """

    column: str


class ReadImages(NamedTuple):
    """A request to read the images in a row group; the answers are `StoredImages`, then None.

    Attributes:
        group, skip, careful: see `ReadRows`.
        column: the column with the bytes of the images.
        max_bytes: size limit; a longer image is cut off one byte beyond this limit.
    """

    group: int
    column: str
    max_bytes: int
    skip: int
    careful: bool


class NextBatch(NamedTuple):
    """A request for the next answer to `ReadRows` or `ReadImages`.

    Attributes:
        skip: number of the first wanted row; earlier rows that are not decoded yet are left out.
    """

    skip: int = 0


class RowGroup(NamedTuple):
    """A row group as the metadata describe it, with its size before compression."""

    num_rows: int
    num_bytes: int

    @property
    def mean_bytes(self) -> int:
        """The mean size of a row."""
        return self.num_bytes // max(1, self.num_rows)


class OpenedFile(NamedTuple):
    """The metadata of a file; `schema` is a serialized `pyarrow.Schema`."""

    schema: bytes
    groups: Sequence[RowGroup]


class StoredRows(NamedTuple):
    """Consecutive rows.

    Attributes:
        first: number of the first row in its group.
        num_rows: number of rows.
        stream: their cells, as a stream in Arrow's IPC format with one batch.
    """

    first: int
    num_rows: int
    stream: bytes


class StoredImages(NamedTuple):
    """The images in consecutive rows.

    Attributes:
        first: number of the first row in its group.
        values: images, each once; None for an image that an earlier answer to the request
            contains.
        positions: for each row, the position of its image in `values`; -1 if it has none.
        numbers: for each of `values`, the number of the stored value, which equal images may share;
            empty if these numbers are not known.
    """

    first: int
    values: Sequence[bytes | None]
    positions: Sequence[int]
    numbers: Sequence[int] = ()

    @property
    def num_rows(self) -> int:
        return len(self.positions)


class Failure(NamedTuple):
    """The reason why there is no further answer."""

    problem: str


Answer = Span | OpenedFile | StoredRows | StoredImages | Failure
_ANSWERS: dict[str, Any] = {
    "Span": Span,
    "OpenedFile": OpenedFile,
    "StoredRows": StoredRows,
    "StoredImages": StoredImages,
    "Failure": Failure,
    "NoneType": None,
}


def serve(descriptor: int, tray_descriptor: int) -> None:
    """Answers requests, in the guarded process, until the other end closes."""
    # The system frees the memory of a file when the file is closed.
    os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"
    from pyarrow import parquet  # noqa: F401  # so its memory does not count for a file

    connection = Connection(descriptor)
    tray = Tray(tray_descriptor)
    used_bytes = 0
    if sys.platform == "linux":
        with open("/proc/self/statm", encoding="ascii") as file:
            pages = int(file.read().split()[5])
        used_bytes = pages * resource.getpagesize()
    server = _Server(connection, tray, used_bytes)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    server.limit_memory(0)
    with open(os.devnull, "wb") as nothing:
        os.dup2(nothing.fileno(), 2)
    connection.send_bytes(b"ready")
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            request = connection.recv()
            _limit(resource.RLIMIT_CPU, int(time.process_time()) + MOST_CPU_S)
            tray.send(connection, server.answer(request))


def _limit(kind: int, value: int) -> None:
    """Sets a limit for this process, unless a lower one already holds."""
    _, hard = resource.getrlimit(kind)
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(kind, (value, hard))


class _AskedFile(io.RawIOBase):
    """A file whose bytes the other end of a connection leaves in a tray on request."""

    def __init__(self, connection: Connection, tray: Tray, num_bytes: int) -> None:
        self._connection = connection
        self._tray = tray
        self._num_bytes = num_bytes
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        starts = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._num_bytes}
        self._position = starts[whence] + offset
        return self._position

    def read(self, size: int = -1) -> bytes:
        rest = max(0, self._num_bytes - self._position)
        num_bytes = rest if size < 0 else min(size, rest)
        if not num_bytes:
            return b""
        self._tray.send(self._connection, Span(self._position, num_bytes))
        data = self._tray.take(0, self._connection.recv())
        if not data:
            raise OSError("the file ends too early, or cannot be read")
        self._position += len(data)
        return data


class _Server:
    """The state of a guarded process: the open file, and the batches still to be sent.

    Args:
        connection, tray: for the answers.
        used_bytes: memory of the process at its start; 0 where memory cannot be limited.
    """

    def __init__(self, connection: Connection, tray: Tray, used_bytes: int) -> None:
        self._used_bytes = used_bytes
        self._connection = connection
        self._tray = tray
        self._num_bytes = 0  # size of the file
        self._source: Any = None
        self._file: Any = None
        self._batches: Iterator[Any] = iter(())
        self._skip = 0  # number of the first wanted row

    def limit_memory(self, stored_bytes: int) -> None:
        """Limits the memory for decoding a row group of the given size in the file.

        A page may be a whole group. It is in memory both compressed and decompressed, and pyarrow
        needs as much memory again for the values.
        """
        more = min(_MEMORY_OF_STORED * stored_bytes, _MOST_MORE_MEMORY)
        if self._used_bytes:
            _limit(resource.RLIMIT_DATA, self._used_bytes + MOST_MEMORY + more)

    def _allow_group(self, group: int) -> None:
        """Raises the memory limit to what a row group may need."""
        about = self._file.metadata.row_group(group)
        stored = sum(
            about.column(number).total_compressed_size for number in range(about.num_columns)
        )
        self.limit_memory(min(max(0, stored), self._num_bytes))

    def answer(self, request: Any) -> Any:
        """Answers a request; ends the process if it runs out of memory."""
        try:
            match request:
                case OpenFile():
                    return self._open(request)
                case ReadRows():
                    self._allow_group(request.group)
                    self._skip = request.skip
                    self._batches = self._read_rows(request)
                case ReadCategories():
                    self._allow_group(0)
                    self._skip = 0
                    self._batches = self._read_categories(request.column)
                case ReadImages():
                    self._allow_group(request.group)
                    self._skip = request.skip
                    self._batches = self._read_images(request)
                case NextBatch():
                    self._skip = max(self._skip, request.skip)
            return next(self._batches, None)
        except MemoryError:
            os._exit(OUT_OF_MEMORY)
        except Exception as error:  # noqa: BLE001 - pyarrow raises any, whatever the file holds
            return Failure(str(error).strip().partition("\n")[0][:300].rstrip("."))

    def _open(self, request: OpenFile) -> OpenedFile | Failure:
        self._batches = iter(())
        self._file = None
        self._num_bytes = request.num_bytes
        self.limit_memory(0)
        self._source = _AskedFile(self._connection, self._tray, request.num_bytes)
        self._file = self._open_with()
        metadata = self._file.metadata
        groups = []
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            groups.append(RowGroup(group.num_rows, group.total_byte_size))
        schema = self._file.schema_arrow
        if _nests_deeply(schema):
            return Failure(f"its columns nest lists and structs more than {_DEEPEST} levels deep")
        serialized = schema.serialize().to_pybytes()
        if len(serialized) > _MOST_SCHEMA_BYTES:
            return Failure(f"its schema takes more than {_MOST_SCHEMA_BYTES >> 20} MiB")
        return OpenedFile(serialized, groups)

    def _open_with(self, **how: Any) -> Any:
        from pyarrow import parquet

        return parquet.ParquetFile(self._source, buffer_size=_READ_BYTES, pre_buffer=False, **how)

    def _read_rows(self, request: ReadRows) -> Iterator[StoredRows]:
        rows = self._rows_at_once(request.group, careful=request.careful)
        for first, batch in self._iterate(self._file, rows, request.group, request.columns):
            for begin, part in _divide(batch, _count_bytes):
                if _count_bytes(part) > MOST_ROW_BYTES:
                    raise ValueError(f"a row takes more than {MOST_ROW_BYTES >> 20} MiB of memory")
                yield StoredRows(first + begin, len(part), _to_stream(part))

    def _read_categories(self, column: str) -> Iterator[StoredRows]:
        import pyarrow as pa

        for _, batch in self._iterate(self._file, 1, 0, [column]):
            categories = pa.RecordBatch.from_arrays([batch.column(column).dictionary], [column])
            if _count_bytes(categories) <= _BATCH_BYTES:
                yield StoredRows(0, len(categories), _to_stream(categories))
            return

    def _iterate(
        self, file: Any, rows: int, group: int, columns: Sequence[str]
    ) -> Iterator[tuple[int, Any]]:
        """Yields the batches of a group from the first wanted row on.

        Each batch comes with the number of its first row.
        """
        first = 0
        batches = file.iter_batches(rows, row_groups=[group], columns=columns, use_threads=False)
        for batch in batches:
            skip = max(0, self._skip - first)
            if skip < len(batch):
                yield first + skip, batch.slice(skip)
            first += len(batch)

    def _rows_at_once(self, group: int, *, careful: bool) -> int:
        """Returns how many rows to decode per batch."""
        if careful:
            return 1
        about = self._file.metadata.row_group(group)
        mean_bytes = RowGroup(about.num_rows, about.total_byte_size).mean_bytes
        return max(1, min(BATCH_ROWS, _BATCH_BYTES // (mean_bytes + 1)))

    def _read_images(self, request: ReadImages) -> Iterator[StoredImages]:
        """Yields images; if possible, yields an image only once for all rows that share it."""
        group = request.group
        careful = request.careful
        dictionary_bytes = self._dictionary_bytes(group, request.column)
        if dictionary_bytes > _SHARED_BYTES:
            careful = True
        if dictionary_bytes and not careful:
            rows = yield from self._read_shared_images(request)
            if rows == self._file.metadata.row_group(group).num_rows:
                return
            self._skip = max(self._skip, rows)
        rows_at_once = self._rows_at_once(group, careful=careful)
        batches = self._iterate(self._file, rows_at_once, group, [request.column])
        for first, batch in _join_rows(batches):
            for begin, part in _divide(_bytes_column(batch), _size_of):
                images = [_cut(image, request.max_bytes) for image in part.to_pylist()]
                positions = [row if image else -1 for row, image in enumerate(images)]
                yield StoredImages(first + begin, images, positions)

    def _dictionary_bytes(self, group: int, column: str) -> int:
        """Returns the stated size of a column's dictionary in the file; 0 if there is none."""
        about = self._file.metadata.row_group(group)
        for number in range(about.num_columns):
            chunk = about.column(number)
            is_shared = chunk.has_dictionary_page and chunk.physical_type == "BYTE_ARRAY"
            if is_shared and chunk.path_in_schema == column:
                num_bytes = chunk.data_page_offset - chunk.dictionary_page_offset
                return max(1, int(num_bytes))
        return 0

    def _read_shared_images(self, request: ReadImages) -> Generator[StoredImages, None, int]:
        """Yields the images that are in the dictionary of a column.

        Ends before the first image that is not in the dictionary: pyarrow would add the image to
        the dictionary, and return ever more images with each batch.

        Returns:
            The number of rows before that image.
        """
        file = self._open_with(metadata=self._file.metadata, read_dictionary=[request.column])
        rows = 0
        size = -1
        sent = set[int]()
        for first, batch in self._iterate(file, BATCH_ROWS, request.group, [request.column]):
            images = _bytes_column(batch, decode=False)
            if size not in (-1, len(images.dictionary)):
                break
            size = len(images.dictionary)
            rows = first + len(batch)
            yield from _share_images(first, images, request.max_bytes, sent)
        return rows


def _nests_deeply(schema: Any) -> bool:
    """Whether lists and structs are nested too deeply to be sent in messages."""
    waiting = [(field.type, 1) for field in schema]
    while waiting:
        kind, depth = waiting.pop()
        if depth > _DEEPEST:
            return True
        waiting += [(kind.field(number).type, depth + 1) for number in range(kind.num_fields)]
    return False


def _join_rows(batches: Iterator[tuple[int, Any]]) -> Iterator[tuple[int, Any]]:
    """Joins batches of one row, up to `_BATCH_BYTES`; yields other batches unchanged.

    Each batch comes with the number of its first row.
    """
    import pyarrow as pa

    waiting = list[Any]()
    begin = 0
    num_bytes = 0
    for first, batch in batches:
        if not waiting:
            begin = first
        waiting.append(batch)
        num_bytes += batch.nbytes
        if len(batch) > 1 or num_bytes >= _BATCH_BYTES or len(waiting) == BATCH_ROWS:
            yield begin, pa.concat_batches(waiting)
            waiting.clear()
            num_bytes = 0
    if waiting:
        yield begin, pa.concat_batches(waiting)


def _divide(
    rows: Any, count_bytes: Callable[[Any], int], begin: int = 0
) -> Iterator[tuple[int, Any]]:
    """Yields rows in parts of `_BATCH_BYTES`, or of one row, each with its position."""
    if len(rows) <= 1 or count_bytes(rows) <= _BATCH_BYTES:
        yield begin, rows
        return
    half = len(rows) // 2
    yield from _divide(rows.slice(0, half), count_bytes, begin)
    yield from _divide(rows.slice(half), count_bytes, begin + half)


def _size_of(array: Any) -> int:
    return int(array.nbytes)


def _count_bytes(rows: Any) -> int:
    """Estimates how many bytes rows take in Python."""
    return sum(map(_count_array, rows.columns))


def _count_array(array: Any) -> int:
    """Estimates how many bytes the values of an array take in Python, including values in lists."""
    from pyarrow import types

    array = _decode_dictionary(array)
    kind = array.type
    num_bytes = _VALUE_BYTES * len(array)
    if types.is_struct(kind):
        return num_bytes + sum(map(_count_array, array.flatten()))
    if types.is_map(kind):
        return num_bytes + _count_array(array.keys) + _count_array(array.items)
    if types.is_nested(kind) and hasattr(array, "flatten"):
        return num_bytes + _count_array(array.flatten())
    return num_bytes + int(array.nbytes)


def _to_stream(rows: Any) -> bytes:
    """Returns rows as a stream in Arrow's IPC format, without dictionaries, which may be large."""
    import pyarrow as pa
    from pyarrow import ipc

    columns = [_decode_dictionary(column) for column in rows.columns]
    rows = pa.RecordBatch.from_arrays(columns, rows.schema.names)
    sink = io.BytesIO()
    with ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
    return sink.getvalue()


def _decode_dictionary(array: Any) -> Any:
    """Returns the values of an array, which may be stored in a dictionary."""
    from pyarrow import types

    return array.dictionary_decode() if types.is_dictionary(array.type) else array


def _bytes_column(batch: Any, *, decode: bool = True) -> Any:
    """Returns the bytes array of a batch whose only column holds bytes, or structs with bytes."""
    from pyarrow import types

    (array,) = batch.columns
    if types.is_struct(array.type):
        (array,) = array.flatten()
    return _decode_dictionary(array) if decode else array


def _cut(image: bytes | None, max_bytes: int) -> bytes:
    """Returns an image, cut off one byte beyond the limit, or empty bytes if the image is null."""
    return (image or b"")[: max_bytes + 1]


def _share_images(
    first: int, images: Any, max_bytes: int, sent: set[int]
) -> Iterator[StoredImages]:
    """Yields the images in a dictionary array, each value once.

    Args:
        first: number of the first row in the array.
        sent: numbers of the values yielded so far; this function adds new ones.
    """
    from pyarrow import compute

    sizes = compute.fill_null(compute.binary_length(images.dictionary), 0)

    def count_bytes(part: Any) -> int:
        new = [number for number in _list_numbers(part) if number not in sent]
        if len(new) < 2:  # dividing the rows would not make any answer smaller
            return 0
        return int(compute.sum(sizes.take(new)).as_py() or 0)

    for begin, part in _divide(images, count_bytes):
        numbers = _list_numbers(part)
        values: list[bytes | None] = [None] * len(numbers)
        for place, number in enumerate(numbers):
            if number not in sent:
                values[place] = _cut(images.dictionary[number].as_py(), max_bytes)
        sent.update(numbers)
        places = {number: place for place, number in enumerate(numbers)}
        positions = [places.get(number, -1) for number in part.indices.to_pylist()]
        yield StoredImages(first + begin, values, positions, numbers)


def _list_numbers(images: Any) -> list[int]:
    """Lists the numbers of the values that a dictionary array uses, each once."""
    numbers: list[int] = images.indices.unique().drop_null().to_pylist()
    return numbers
