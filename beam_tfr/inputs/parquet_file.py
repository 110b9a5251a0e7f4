"""Reads Parquet files, whatever they hold, in bounded memory, or says why a file cannot be read.

A guarded process decodes the files, see `inputs.parquet_process`. The process is started for the
first file, which takes 0.3 s and 80 MB, and is then reused for other files.
"""

import collections
import contextlib
import itertools
import os
import signal
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any, NamedTuple

from beam_tfr import storage
from beam_tfr.guarded import GuardedProcess
from beam_tfr.inputs.parquet_process import (
    BATCH_ROWS,
    MOST_CPU_S,
    MOST_MEMORY,
    OUT_OF_MEMORY,
    Failure,
    NextBatch,
    OpenedFile,
    OpenFile,
    ReadCategories,
    ReadImages,
    ReadRows,
    RowGroup,
    Span,
    StoredImages,
    StoredRows,
    Tray,
)
from beam_tfr.schema.errors import DataError

_CHILD = "from beam_tfr.inputs import parquet_process; parquet_process.serve(*descriptors)"
# Columns whose rows are all alike take almost no bytes, but a table has keys or images.
_MOST_ROWS = 1_000_000
_MOST_ROWS_A_BYTE = 1_000
_WRITE_AGAIN = "write the file again"
_WRITE_SMALLER = f"{_WRITE_AGAIN} with fewer rows in a group"
# A string that is stored once becomes a separate string in each row that has it. This is how much
# more memory than the footer states long strings may take.
_SHORT_BYTES = 4096  # mean size of a row with short strings
_MOST_EXCESS = 4
_FREE_EXCESS_BYTES = 128 << 20
_idle = collections.deque["_Process"]()  # processes that no file uses
_Answer = StoredRows | StoredImages


class RowBatch(NamedTuple):
    """Consecutive rows.

    Attributes:
        first: number of the first row, from 0.
        num_rows: number of rows.
        mean_bytes: mean size of the rows in their group.
        cells: column -> its cells.
    """

    first: int
    num_rows: int
    mean_bytes: int
    cells: dict[str, list[Any]]


class _EndedError(Exception):
    """The guarded process ended; the message says how."""


class _TooSlowError(_EndedError):
    """The guarded process took more than `MOST_CPU_S` of processor time."""


class _Process(GuardedProcess):
    """A guarded process, used for one file at a time."""

    def __init__(self) -> None:
        file = _make_tray()
        self._tray = Tray(file.fileno())
        super().__init__(_CHILD, descriptors=[file.fileno()], opened=[file])

    def ask(self, request: Any, file: storage.Entry) -> Any:
        """Sends the process a request, and reads the file on its behalf until it answers.

        Raises:
            _EndedError: the process ended.
            OSError: the file cannot be read.
        """
        unreadable: OSError | None = None
        try:
            self.connection.send(request)
            answer = self._tray.recv(self.connection)
            while isinstance(answer, Span):
                data = b""
                try:
                    data = _read_span(file, answer)
                except OSError as error:
                    unreadable = error
                self._tray.put([data])
                self.connection.send(len(data))
                answer = self._tray.recv(self.connection)
        except (OSError, EOFError, ValueError):  # the process ended, or its answer is invalid
            self.kill()
            raise self._ended() from None
        except BaseException:  # Ctrl-C: the next request would get the answer to this one
            self.close()
            raise
        if unreadable is not None:
            raise unreadable
        return answer

    def _ended(self) -> _EndedError:
        status = self.process.returncode
        self.close()
        if status == -signal.SIGXCPU:
            return _TooSlowError(f"takes more than {MOST_CPU_S} s of processor time")
        if status in (OUT_OF_MEMORY, -signal.SIGABRT):
            return _EndedError(
                f"takes more than {MOST_MEMORY >> 30} GiB of memory in addition to three times the "
                "size of its group in the file"
            )
        return _EndedError(f"crashes its reader, which {self.describe_end()}")


def _make_tray() -> IO[bytes]:
    """Creates an unnamed file, in memory where the system allows."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("beam_tfr"), "r+b")
    return tempfile.TemporaryFile()


def _read_span(file: storage.Entry, span: Span) -> bytes:
    num_bytes = min(span.num_bytes, file.size_bytes)
    return storage.read_part(file.path, span.begin, num_bytes, generation=file.generation)


def _take_process() -> _Process:
    """Returns a process that no other file uses until it is handed back."""
    with contextlib.suppress(IndexError):
        while True:
            process = _idle.pop()
            if process.is_usable():
                return process
            process.close()
    return _Process()


class ParquetFile:
    """A Parquet file, to be used in a `with` statement by one thread.

    Args:
        file: the file, as listed.

    Attributes:
        schema: its `pyarrow.Schema`.
        groups: its groups of rows.

    Raises:
        DataError: the file is not Parquet.
        OSError: the file cannot be read, or has changed.
    """

    def __init__(self, file: storage.Entry) -> None:
        from pyarrow import BufferReader, ipc

        self._file = file
        self._process: _Process | None = None
        try:
            opened = self._open_twice()
            self._check_rows(opened.groups)
        except BaseException:
            self.close()
            raise
        self.schema: Any = ipc.read_schema(BufferReader(opened.schema))
        self.groups = opened.groups
        num_rows = [group.num_rows for group in opened.groups]
        self._firsts = [*itertools.accumulate(num_rows, initial=0)]

    def __enter__(self) -> "ParquetFile":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Frees the process for the next file."""
        if self._process is None:
            return
        _idle.append(self._process)
        self._process = None

    def end_process(self) -> None:
        """Closes the file, and ends the process."""
        if self._process is not None:
            self._process.close()
        self._process = None

    def read_rows(self, columns: Sequence[str]) -> Iterator[RowBatch]:
        """Yields all rows, with the given columns, in batches.

        Raises:
            DataError: the file is damaged, or takes too much memory or time.
            OSError: the file cannot be read, or has changed.
        """
        room = _FREE_EXCESS_BYTES
        room += _MOST_EXCESS * sum(max(0, group.num_bytes) for group in self.groups)
        for number, group in enumerate(self.groups):
            if not columns:
                yield from self._count_rows(number)
                continue

            def request(skip: int, careful: bool, number: int = number) -> ReadRows:
                return ReadRows(number, columns, skip, careful)

            for first, stored in self._read_group(number, request):
                cells = self._parse_cells(stored, columns, first)
                if len(stored.stream) > _SHORT_BYTES * stored.num_rows:
                    room -= _count_text_bytes(cells)
                if room < 0:
                    raise self._error(
                        first, "the strings up to here take far more memory than the footer states"
                    )
                yield RowBatch(first, stored.num_rows, group.mean_bytes, cells)

    def read_categories(self, column: str) -> list[Any]:
        """Returns the values in the dictionary of a column, in order; none if they are many.

        Raises the errors of `read_rows`.
        """
        values = list[Any]()
        if not self.groups:
            return values
        try:
            for stored in self._ask_all(ReadCategories(column), lambda: 0, 0):
                values += self._parse_cells(stored, [column], 0)[column]
        except _EndedError as error:
            raise self._error(0, f"this or a following row {error}", _WRITE_SMALLER) from None
        return values

    def _parse_cells(
        self, stored: StoredRows, columns: Sequence[str], first: int
    ) -> dict[str, list[Any]]:
        """Returns column -> its cells for a batch whose first row has the number `first`."""
        batch = _parse_stream(stored.stream)
        cells = dict[str, list[Any]]()
        for name in columns:
            try:
                cells[name] = batch.column(name).to_pylist()
            except (
                ValueError,
                ArithmeticError,
                LookupError,
            ) as error:  # not UTF-8; dates and times out of range, or in no known time zone
                value = f"a value of {name!r:.100} that cannot be read"
                problem = f"this or a following row has {value}: {str(error)[:200]}"
                raise self._error(first, problem) from None
        return cells

    def _count_rows(self, number: int) -> Iterator[RowBatch]:
        """Yields the rows of a group, without columns."""
        group = self.groups[number]
        for row in range(0, group.num_rows, BATCH_ROWS):
            num_rows = min(BATCH_ROWS, group.num_rows - row)
            yield RowBatch(self._firsts[number] + row, num_rows, group.mean_bytes, {})

    def read_images(
        self, column: str, max_bytes: int, group: int, skip: Callable[[], int] = lambda: 0
    ) -> Iterator[tuple[int, StoredImages]]:
        """Yields the images in a row group in batches, each with the number of its first row.

        Args:
            column: the column with the bytes of the images.
            max_bytes: size limit; a longer image may be cut off one byte beyond this limit.
            group: number of the group.
            skip: called before each batch; returns the number of rows of the group to leave out,
                some of which may be yielded nevertheless.

        Raises the errors of `read_rows`.
        """

        def request(skip: int, careful: bool) -> ReadImages:
            return ReadImages(group, column, max_bytes, skip, careful)

        return self._read_group(group, request, skip)

    def find_group(self, row: int) -> int:
        """Returns the number of the group that contains a row."""
        for group, end in enumerate(self._firsts[1:]):
            if row < end:
                return group
        raise self._error(row, "there is no such row")

    def first_row(self, group: int) -> int:
        """Returns the number of the first row of a group."""
        return self._firsts[group]

    def _read_group(
        self,
        group: int,
        request: Callable[[int, bool], ReadRows | ReadImages],
        skip: Callable[[], int] = lambda: 0,
    ) -> Iterator[tuple[int, Any]]:
        """Yields the batches of a row group, each with the number of its first row.

        If the process ends, another process decodes row by row, because values that are stored only
        once may take a thousand times their space in a batch of rows.

        Args:
            request: builds the request, from the number of rows to leave out and whether to be
                careful.
            skip: see `read_images`.
        """
        first = self._firsts[group]
        row = 0  # number within the group
        for careful in (False, True):
            row = max(row, skip())
            try:
                for batch in self._ask_all(request(row, careful), skip, first + row):
                    yield first + batch.first, batch
                    row = batch.first + batch.num_rows
                break
            except _EndedError as error:
                if careful or isinstance(error, _TooSlowError):
                    raise self._error(
                        first + row, f"this or a following row {error}", _WRITE_SMALLER
                    ) from None
        if first + row != self._firsts[group + 1]:
            raise self._error(first + row, "values are missing")

    def _ask_all(
        self, request: ReadRows | ReadCategories | ReadImages, skip: Callable[[], int], number: int
    ) -> Iterator[Any]:
        """Yields the answers to a request, from row `number` on."""
        answer = self._ask(request)
        while answer is not None:
            if isinstance(answer, Failure):
                problem = answer.problem or "values are missing"
                raise self._error(
                    number, f"this or one of the next {BATCH_ROWS} rows is damaged: {problem}"
                )
            yield answer
            number += answer.num_rows
            answer = self._ask(NextBatch(skip()))

    def _ask(self, request: Any) -> Any:
        if self._process is None:
            self._process = _take_process()
            if not isinstance(request, OpenFile):
                self._process.ask(OpenFile(self._file.size_bytes), self._file)
        process = self._process
        try:
            return process.ask(request, self._file)
        except BaseException:
            if not process.is_usable():
                self._process = None
            raise

    def _open_twice(self) -> OpenedFile:
        """Opens the file; if the first process ends, tries again with a second one."""
        storage.check_is_file(self._file)
        try:
            answer = self._ask(OpenFile(self._file.size_bytes))
        except _EndedError:
            answer = self._open_again()
        if isinstance(answer, Failure):
            raise self._error(None, f"is not a Parquet file: {answer.problem}")
        opened: OpenedFile = answer
        return opened

    def _open_again(self) -> Any:
        try:
            return self._ask(OpenFile(self._file.size_bytes))
        except _EndedError as error:
            raise self._error(None, f"its footer {error}", _WRITE_SMALLER) from None

    def _check_rows(self, groups: Sequence[RowGroup]) -> None:
        num_rows = sum(group.num_rows for group in groups)
        if min((group.num_rows for group in groups), default=0) < 0:
            raise self._error(None, "its footer states groups with a negative number of rows")
        if num_rows > _MOST_ROWS + _MOST_ROWS_A_BYTE * self._file.size_bytes:
            raise self._error(
                None,
                f"its footer states {num_rows:,} rows, more than its {self._file.size_bytes:,} "
                "bytes can hold",
            )

    def _error(self, row: int | None, problem: str, cure: str = _WRITE_AGAIN) -> DataError:
        """Builds the error for the file, or for one of its rows, counted from 0."""
        place = self._file.path if row is None else f"{self._file.path}, row {row + 1}"
        return DataError(f"{problem}; {cure}", option="table", value=place)


def _count_text_bytes(cells: dict[str, list[Any]]) -> int:
    """Adds up the lengths of all strings and bytes in cells, even in lists and objects."""
    num_bytes = 0
    waiting: list[Any] = [*cells.values()]
    while waiting:
        part = waiting.pop()
        if isinstance(part, str | bytes):
            num_bytes += len(part)
        elif isinstance(part, dict):
            waiting += part.values()
        elif isinstance(part, list) and part and not isinstance(part[0], int | float):
            waiting += part
    return num_bytes


def _parse_stream(stream: bytes) -> Any:
    """Returns the only `pyarrow.RecordBatch` in a stream from the guarded process."""
    from pyarrow import BufferReader, ipc

    with ipc.open_stream(BufferReader(stream)) as reader:
        return reader.read_next_batch()
