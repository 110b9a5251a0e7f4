"""Reads any record of a dataset by itself, by the contents of its shards: without TensorFlow and
Beam."""

import bisect
import itertools
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from beam_tfr import storage
from beam_tfr.dataset.manifest import REPAIR_OR_COPY, Manifest, check_not_replaced
from beam_tfr.dataset.splits import ShardPart
from beam_tfr.records import contents
from beam_tfr.records.shard_file import RESTART_BYTES, stored_range, strip_block_headers
from beam_tfr.records.tfrecords import (
    FOOTER,
    FRAME_BYTES,
    HEADER_BYTES,
    RecordError,
    describe_damage,
    max_record_bytes_in,
)
from beam_tfr.schema.dataset import CONTENTS_FOLDER
from beam_tfr.schema.errors import DataError
from beam_tfr.schema.feature_names import FeatureSpec
from beam_tfr.schema.naming import contents_name

_TRAILER_BYTES = 8  # of gzip
Buffer = bytes | memoryview
# Two records that are no farther apart are read with one request, up to so many bytes.
_GAP_BYTES = 1 << 16
_MOST_BYTES = 8 << 20


class _Shard(NamedTuple):
    """Where the records of a shard are.

    Attributes:
        path: of its file.
        generation: of its file, when the dataset was seen to be the one of the manifest.
        ends: of the frames, in the bytes of the records: int64 [records].
        restarts: where the inflating starts for each record, in the file; None unless it is
            compressed.
        num_bytes: size of the file.
        is_stored: whether it is gzip, but not compressed.
    """

    path: str
    generation: int
    ends: NDArray[np.int64]
    restarts: NDArray[np.int64] | None
    num_bytes: int
    is_stored: bool

    def begin(self, row: int) -> int:
        """Where the frame of a record begins in the bytes of the records."""
        return int(self.ends[row - 1]) if row else 0

    def span(self, row: int) -> tuple[int, int]:
        """The bytes of the file to read for a record: if it is compressed, from a restart point to
        the next."""
        if self.restarts is not None:
            begin = int(self.restarts[row])
            following = int(self.restarts.searchsorted(begin, "right"))
            is_last = following == len(self.restarts)
            return begin, self.num_bytes - _TRAILER_BYTES if is_last else int(
                self.restarts[following]
            )
        begin = self.begin(row)
        end = int(self.ends[row])
        return stored_range(begin, end) if self.is_stored else (begin, end)

    def frames(self, spans: Sequence["_Span"], data: bytes) -> Iterator[bytes]:
        """Yields the frames of some records, given the bytes of the file from the first on.

        Raises:
            RecordError: one is damaged.
        """
        view = memoryview(data)
        inflated = b""
        first = 0
        restart = -1
        for span in spans:
            begin = self.begin(span.row)
            end = int(self.ends[span.row])
            piece: Buffer = view[span.begin - spans[0].begin : span.end - spans[0].begin]
            if self.restarts is not None:
                if span.begin != restart:
                    (inflated, first) = self._inflate(self.restarts, span, piece)
                    restart = span.begin
                piece = inflated[begin - first : end - first]
            frame = strip_block_headers(piece, begin) if self.is_stored else bytes(piece)
            problem = describe_damage(frame, end - begin)
            if problem:
                raise RecordError(self.path, span.row, begin, f"{problem}; {REPAIR_OR_COPY}")
            yield frame

    def _inflate(
        self, restarts: NDArray[np.int64], span: "_Span", data: Buffer
    ) -> tuple[bytes, int]:
        """The records after a restart point, and where the first begins in the bytes of the
        records.

        Raises:
            RecordError: they are damaged.
        """
        first, end = (
            int(np.searchsorted(restarts, span.begin, side=side)) for side in ("left", "right")
        )
        begin = self.begin(first)
        size = int(self.ends[end - 1]) - begin
        try:
            if size > RESTART_BYTES + max_record_bytes_in(self.num_bytes) + FRAME_BYTES:
                raise zlib.error("two restart points are too far apart")
            return zlib.decompressobj(-zlib.MAX_WBITS).decompress(data, size), begin
        except zlib.error as error:
            place = self.path, span.row, self.begin(span.row)
            raise RecordError(*place, f"it is damaged ({error}); {REPAIR_OR_COPY}") from None


class _Span(NamedTuple):
    """Bytes [begin, end) of a file, which hold the record of a row, and its place among those asked
    for."""

    begin: int
    end: int
    row: int
    place: int


class RecordLookup:
    """The records of some parts of a dataset, by number.

    May be used by several threads at once, and pickled. Keeps no file open.

    Args:
        dataset: manifest of the dataset.
        parts: the parts, one after the other; record 0 is the first of the first.
    """

    def __init__(self, dataset: Manifest, parts: Sequence[ShardPart]) -> None:
        self.dataset = dataset
        self.parts = tuple(parts)
        self._ends = [*itertools.accumulate(part.take for part in parts)]
        self._level = dataset.gzip_level
        self._shards: dict[str, _Shard] = {}

    def __len__(self) -> int:
        return self._ends[-1]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_shards": {}}

    def locate(self, number: int) -> tuple[ShardPart, int]:
        """The part that holds a record, and the number of the record in its file."""
        at = bisect.bisect_right(self._ends, number)
        part = self.parts[at]
        return part, part.begin + number - (self._ends[at] - part.take)

    def stretches(self, numbers: Sequence[int]) -> Iterator[tuple[ShardPart, int, int]]:
        """Divides numbers into stretches of records that follow each other: the part, the first
        row, how many."""
        begin = 0
        while begin < len(numbers):
            part, row = self.locate(first := numbers[begin])
            longest = min(part.begin + part.take - row, len(numbers) - begin)
            size = 1
            while size < longest and numbers[begin + size] == first + size:
                size += 1
            yield part, row, size
            begin += size

    def read_records(self, numbers: Sequence[int]) -> list[bytes]:
        """The records of these numbers, in this order, with as few requests as possible; raises as
        `read_frames`."""
        return [frame[HEADER_BYTES : -FOOTER.size] for frame in self.read_frames(numbers)]

    def read_frames(self, numbers: Sequence[int]) -> list[bytes]:
        """The records as `tfrecords.frame` frames them.

        Raises:
            DataError: there are no contents, a file is damaged (with its name), or another dataset
                has replaced this.
            OSError: a file cannot be read.
        """
        wanted: dict[ShardPart, list[tuple[int, int]]] = {}
        for place, number in enumerate(numbers):
            part, row = self.locate(number)
            wanted.setdefault(part, []).append((row, place))
        found = [b""] * len(numbers)

        def fetch(job: tuple[_Shard, list[_Span]]) -> None:
            shard, spans = job
            data = self._fetch(shard, spans[0].begin, spans[-1].end - spans[0].begin)
            for span, frame in zip(spans, shard.frames(spans, data), strict=True):
                found[span.place] = frame

        jobs = [
            job
            for batch in self._each(lambda item: list(self._jobs(*item)), wanted.items())
            for job in batch
        ]
        self._each(fetch, jobs)
        return found

    def check_contents(self) -> None:
        """Checks that records can be read by number: opens the contents of the first shard; raises
        as `read_records` does."""
        self._open(self.parts[0])

    def _each(self, function: Callable[[Any], Any], items: Collection[Any]) -> list[Any]:
        """What a function returns for each item; on gs:// in threads, as each waits for
        requests."""
        if len(items) < 2 or not storage.is_gcs(self.dataset.folder):
            return [*map(function, items)]
        with ThreadPoolExecutor(min(len(items), storage.READ_AHEAD)) as pool:
            return [*pool.map(function, items)]

    def read_contents(self, part: ShardPart, columns: Sequence[str] | None = None) -> Any:
        """The contents of the whole shard of a part, as a `pyarrow.Table` with the columns of
        `contents_schema`.

        Raises:
            DataError: there are none, or they are damaged.
        """
        return read_contents(
            self.dataset, _name(part), part.records, max_record_bytes_in(part.num_bytes), columns
        )

    def _jobs(
        self, part: ShardPart, rows: Sequence[tuple[int, int]]
    ) -> Iterator[tuple[_Shard, list[_Span]]]:
        """Groups records of a part, by row and place, each of which is then read with one
        request."""
        shard = self._shards.get(part.file) or self._open(part)
        group = list[_Span]()
        for row, place in sorted(rows):
            begin, end = shard.span(row)
            if group and (begin - group[-1].end > _GAP_BYTES or end - group[0].begin > _MOST_BYTES):
                yield shard, group
                group = []
            group.append(_Span(begin, end, row, place))
        yield shard, group

    def open_shard(self, part: ShardPart) -> Any:
        """The whole contents of the shard of a part, whose records can then be read without reading
        these again."""
        table = self.read_contents(part)
        self._open(part, table)
        return table

    def generation(self, part: ShardPart) -> int:
        """The generation of the file of a part, as records are read from it."""
        return (self._shards.get(part.file) or self._open(part)).generation

    def _open(self, part: ShardPart, table: Any = None) -> _Shard:
        path = part.file
        entry = storage.find(path)
        table = (
            self.read_contents(part, ["offset", "length", "restart"]) if table is None else table
        )
        check_not_replaced(self.dataset)  # so both belong to it
        if entry is None or entry.size_bytes != part.num_bytes:
            if entry is None:
                wrong = "is missing"
            else:
                wrong = f"has {entry.size_bytes} bytes instead of {part.num_bytes}"
            raise DataError(f"{path} {wrong}: {REPAIR_OR_COPY}")
        lengths, offsets = (table.column(name).to_numpy() for name in ("length", "offset"))
        restarts = table.column("restart").to_numpy() if self._level else None
        try:
            ends = _ends(lengths, offsets, max_record_bytes_in(part.num_bytes))
            if restarts is not None:
                if (
                    restarts.dtype != np.int64
                    or (np.diff(restarts, prepend=0, append=part.num_bytes) < 0).any()
                ):
                    raise ValueError(
                        "does not fit its shard: its restart points are not in it, in order"
                    )
            elif len(ends) and self._file_bytes(int(ends[-1])) != part.num_bytes:
                raise ValueError("does not fit its shard: the file has another size")
        except ValueError as error:
            raise DataError(
                f"{storage.join(self.dataset.folder, contents_name(_name(part)))} {error}"
            ) from None
        shard = _Shard(path, entry.generation, ends, restarts, part.num_bytes, self._level == 0)
        self._shards[part.file] = shard
        return shard

    def _file_bytes(self, num_bytes: int) -> int:
        """The size of the file of so many bytes of records, if it is not compressed."""
        return num_bytes if self._level is None else stored_range(0, num_bytes)[1] + _TRAILER_BYTES

    def _fetch(self, shard: _Shard, begin: int, size: int) -> bytes:
        try:
            return storage.read_part(shard.path, begin, size, generation=shard.generation)
        except (storage.ChangedError, FileNotFoundError):
            check_not_replaced(self.dataset)
            raise DataError(
                f"{shard.path} was changed or removed while it was read: {REPAIR_OR_COPY}"
            ) from None


def read_contents(
    dataset: Manifest, file: str, rows: int, max_bytes: int, columns: Sequence[str] | None = None
) -> Any:
    """The contents of a shard, as a `pyarrow.Table` with the columns of `contents_schema`.

    Raises:
        DataError: there are none, they are damaged, or another dataset has replaced this one.
        NotInstalledError: pyarrow is missing.
    """
    path = storage.join(dataset.folder, contents_name(file))
    schema = contents.contents_schema(features_in(dataset), dataset.names)
    if rows * FRAME_BYTES > max_bytes:
        raise DataError(
            f"{path}: the manifest says that its shard has {rows} records, too many for its size"
        )
    try:
        data = storage.read_bytes(path, max_bytes=max_bytes)
    except FileNotFoundError:
        raise missing_contents(dataset, file) from None
    if len(data) > max_bytes:
        raise DataError(
            f"{path} has more than {max_bytes} bytes, more than contents of that shard can have"
        )
    try:
        return contents.parse_contents(data, schema, path=path, num_rows=rows, columns=columns)
    except DataError:
        check_not_replaced(dataset)  # else they may be those of another dataset, and intact
        raise


def missing_contents(dataset: Manifest, file: str) -> DataError:
    """The error for missing contents of a shard; raises one if the dataset was replaced."""
    check_not_replaced(dataset)
    path = storage.join(dataset.folder, contents_name(file))
    return DataError(f"{path}: it is missing; copy {CONTENTS_FOLDER}/ too, or {REPAIR_OR_COPY}")


def features_in(dataset: Manifest) -> dict[str, FeatureSpec]:
    """name -> (dtype, shape) of the features of a dataset."""
    return {
        name: FeatureSpec(feature["dtype"], tuple(feature["shape"]))
        for name, feature in dataset.features.items()
    }


def _name(part: ShardPart) -> str:
    return part.file.rpartition("/")[2]


def _ends(lengths: Any, offsets: Any, longest: int) -> NDArray[np.int64]:
    """Where each frame ends.

    Raises:
        ValueError: the columns contradict each other, or no shard is so long.
    """
    if (
        lengths.dtype != np.int64
        or offsets.dtype != np.int64
        or (lengths < 0).any()
        or (lengths > longest).any()
    ):
        raise ValueError("does not fit its shard: a length is impossible")
    ends = np.cumsum(lengths + FRAME_BYTES)
    if (offsets + lengths + FOOTER.size != ends).any():
        raise ValueError("does not fit its shard: an offset is not behind the record before it")
    return ends
