"""Reads any record of a dataset by itself, by the contents of its shards: without TensorFlow and Beam."""

import bisect
import itertools
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from beam_tfr import storage
from beam_tfr.dataset import manifest as manifests
from beam_tfr.dataset.manifest import REPAIR, Manifest
from beam_tfr.dataset.splits import Part
from beam_tfr.records import contents
from beam_tfr.records.shard_file import RESTART_BYTES, stored_range, without_headers
from beam_tfr.records.tfrecords import FOOTER, FRAME_BYTES, RecordError, header, is_intact, longest_in, payloads
from beam_tfr.schema.dataset import CONTENTS_FOLDER
from beam_tfr.schema.errors import DataError
from beam_tfr.schema.naming import contents_name

_TRAILER_BYTES = 8  # of gzip
# Two records that are no farther apart are read with one request, up to so many bytes.
_GAP_BYTES, _MOST_BYTES = 1 << 16, 8 << 20


class _Shard(NamedTuple):
    """Where the records of a shard are.

    Attributes:
        path: of its file.
        generation: of its file, when the dataset was seen to be the one of the manifest.
        ends: of the frames, in the bytes of the records: int64 [records].
        restarts: where the inflating starts for each record, in the file; None unless it is compressed.
        num_bytes: size of the file.
    """

    path: str
    generation: int
    ends: NDArray[np.int64]
    restarts: NDArray[np.int64] | None
    num_bytes: int

    def begin(self, row: int) -> int:
        """Where the frame of a record begins in the bytes of the records."""
        return int(self.ends[row - 1]) if row else 0


class _Span(NamedTuple):
    """Bytes [begin, end) of a file, which hold the records of rows [first, last], and the place of these."""

    begin: int
    end: int
    first: int
    last: int
    place: int


class Lookup:
    """The records of some parts of a dataset, by number.

    May be used by several threads at once, and pickled. Keeps no file open.

    Args:
        dataset: manifest of the dataset.
        parts: the parts, one after the other; record 0 is the first of the first.
    """

    def __init__(self, dataset: Manifest, parts: Sequence[Part]) -> None:
        self.dataset, self.parts = dataset, tuple(parts)
        self._ends = [*itertools.accumulate(part.take for part in parts)]
        self._level = dataset.gzip_level
        self._shards: dict[str, _Shard] = {}

    def __len__(self) -> int:
        return self._ends[-1]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_shards": {}}

    def locate(self, number: int) -> tuple[Part, int]:
        """The part that holds a record, and the number of the record in its file."""
        at = bisect.bisect_right(self._ends, number)
        part = self.parts[at]
        return part, part.begin + number - (self._ends[at] - part.take)

    def stretches(self, numbers: Sequence[int]) -> Iterator[tuple[Part, int, int]]:
        """Divides numbers into stretches of records that follow each other: the part, the first row, how many."""
        begin = 0
        while begin < len(numbers):
            part, row = self.locate(first := numbers[begin])
            longest, size = min(part.begin + part.take - row, len(numbers) - begin), 1
            while size < longest and numbers[begin + size] == first + size:
                size += 1
            yield part, row, size
            begin += size

    def read(self, numbers: Sequence[int]) -> list[bytes]:
        """The records of these numbers, in this order, with as few requests as possible; raises as `read_frames`."""
        return [record for frames, sizes in self.read_frames(numbers) for record in payloads(frames, sizes)]

    def read_frames(self, numbers: Sequence[int]) -> list[tuple[bytes, list[int]]]:
        """The records as `tfrecords.frame` frames them: some that follow each other, the size of each frame, and so on.

        Raises:
            DataError: there are no contents, a file is damaged (with its name), or another dataset has replaced this.
            OSError: a file cannot be read.
        """
        wanted: dict[Part, list[tuple[int, int, int]]] = {}
        place = 0
        for part, row, size in self.stretches(numbers):
            wanted.setdefault(part, []).append((row, size, place))
            place += size
        found: dict[int, tuple[bytes, list[int]]] = {}

        def fetch(job: tuple[_Shard, list[_Span]]) -> None:
            shard, spans = job
            data = self._fetch(shard, spans[0].begin, max(span.end for span in spans) - spans[0].begin)
            for place, frames in self._frames(shard, spans, data):
                found[place] = frames

        jobs = [job for batch in self._each(lambda item: list(self._jobs(*item)), wanted.items()) for job in batch]
        self._each(fetch, jobs)
        return [found[place] for place in sorted(found)]

    def check(self) -> None:
        """Checks that records can be read by number: opens the contents of the first shard; raises as `read` does."""
        self._open(self.parts[0])

    def _each(self, function: Callable[[Any], Any], items: Collection[Any]) -> list[Any]:
        """What a function returns for each item; on gs:// in threads, as each waits for requests."""
        if len(items) < 2 or not storage.is_gcs(self.dataset.folder):
            return [*map(function, items)]
        with ThreadPoolExecutor(min(len(items), storage.READ_AHEAD)) as pool:
            return [*pool.map(function, items)]

    def table(self, part: Part, columns: Sequence[str] | None = None) -> Any:
        """The contents of the whole shard of a part, as a `pyarrow.Table` with the columns of `contents.schema_of`.

        Raises:
            DataError: there are none, or they are damaged.
        """
        return read_table(self.dataset, _name(part), part.records, longest_in(part.num_bytes), columns)

    def _jobs(self, part: Part, stretches: Sequence[tuple[int, int, int]]) -> Iterator[tuple[_Shard, list[_Span]]]:
        """Groups records of a part, each of which is then read with one request."""
        shard = self._shards.get(part.file) or self._open(part)
        group = list[_Span]()
        for span in (span for stretch in sorted(stretches) for span in self._spans(shard, *stretch)):
            if group and (span.begin - group[-1].end > _GAP_BYTES or span.end - group[0].begin > _MOST_BYTES):
                yield shard, group
                group = []
            group.append(span)
        yield shard, group

    def _spans(self, shard: _Shard, row: int, size: int, place: int) -> Iterator[_Span]:
        """Divides records that follow each other, of which the first has a row and a place."""
        stop = row + size
        while row < stop:
            begin, last = shard.begin(row), stop - 1
            if shard.ends[last] - begin > _MOST_BYTES:
                last = max(row, int(shard.ends.searchsorted(begin + _MOST_BYTES, "right")) - 1)
            if shard.restarts is not None:
                begin = int(shard.restarts[row])
                following = int(shard.restarts.searchsorted(begin, "right"))
                last = min(last, following - 1)
                is_last = following == len(shard.restarts)
                end = shard.num_bytes - _TRAILER_BYTES if is_last else int(shard.restarts[following])
            else:
                end = int(shard.ends[last])
                if self._level == 0:
                    begin, end = stored_range(begin, end)
            yield _Span(begin, end, row, last, place)
            place, row = place + last + 1 - row, last + 1

    def open(self, part: Part) -> Any:
        """The whole contents of the shard of a part, whose records can then be read without reading these again."""
        table = self.table(part)
        self._open(part, table)
        return table

    def generation(self, part: Part) -> int:
        """The generation of the file of a part, as records are read from it."""
        return (self._shards.get(part.file) or self._open(part)).generation

    def _open(self, part: Part, table: Any = None) -> _Shard:
        path = part.file
        entry = storage.find(path)
        table = self.table(part, ["offset", "length", "restart"]) if table is None else table
        manifests.check_current(self.dataset)  # so both belong to it
        if entry is None or entry.size_bytes != part.num_bytes:
            wrong = "is missing" if entry is None else f"has {entry.size_bytes} bytes instead of {part.num_bytes}"
            raise DataError(f"{path} {wrong}: {REPAIR}")
        lengths, offsets = (table.column(name).to_numpy() for name in ("length", "offset"))
        restarts = table.column("restart").to_numpy() if self._level else None
        try:
            ends = _ends(lengths, offsets, longest_in(part.num_bytes))
            if restarts is not None:
                restarts = _checked_restarts(restarts, ends, part.num_bytes)
            elif len(ends) and self._file_bytes(int(ends[-1])) != part.num_bytes:
                raise ValueError("does not fit its shard: the file has another size")
        except ValueError as error:
            raise DataError(f"{storage.join(self.dataset.folder, contents_name(_name(part)))} {error}") from None
        shard = _Shard(path, entry.generation, ends, restarts, part.num_bytes)
        self._shards[part.file] = shard
        return shard

    def _file_bytes(self, num_bytes: int) -> int:
        """The size of the file of so many bytes of records, if it is not compressed."""
        return num_bytes if self._level is None else stored_range(0, num_bytes)[1] + _TRAILER_BYTES

    def _fetch(self, shard: _Shard, begin: int, size: int) -> bytes:
        try:
            return storage.read_part(shard.path, begin, size, generation=shard.generation)
        except (storage.ChangedError, FileNotFoundError):
            manifests.check_current(self.dataset)
            raise DataError(f"{shard.path} was changed or removed while it was read: {REPAIR}") from None

    def _frames(self, shard: _Shard, spans: list[_Span], data: bytes) -> Iterator[tuple[int, tuple[bytes, list[int]]]]:
        """Yields the place of each span, its frames, and their sizes, given the bytes of the file from the first on."""
        inflated, first, restart = b"", 0, -1
        for span in spans:
            piece = data[span.begin - spans[0].begin : span.end - spans[0].begin]
            begin, ends = shard.begin(span.first), shard.ends[span.first : span.last + 1].tolist()
            if shard.restarts is not None:
                if span.begin != restart:
                    (inflated, first), restart = _inflate(shard, shard.restarts, span, piece), span.begin
                piece = inflated[begin - first : ends[-1] - first]
            elif self._level == 0:
                piece = without_headers(piece, begin)
            sizes = [end - begin for begin, end in itertools.pairwise([begin, *ends])]
            yield span.place, (_checked(shard, span.first, sizes, piece[: ends[-1] - begin]), sizes)


def read_table(dataset: Manifest, file: str, rows: int, max_bytes: int, columns: Sequence[str] | None = None) -> Any:
    """The contents of a shard, as a `pyarrow.Table` with the columns of `contents.schema_of`.

    Raises:
        DataError: there are none, they are damaged, or another dataset has replaced this one.
        NotInstalledError: pyarrow is missing.
    """
    path = storage.join(dataset.folder, contents_name(file))
    schema = contents.schema_of(features_in(dataset), dataset.names)
    if rows * FRAME_BYTES > max_bytes:
        raise DataError(f"{path}: the manifest says that its shard has {rows} records, too many for its size")
    try:
        data = storage.read_bytes(path, max_bytes=max_bytes)
    except FileNotFoundError:
        raise missing(dataset, file) from None
    if len(data) > max_bytes:
        raise DataError(f"{path} has more than {max_bytes} bytes, more than contents of that shard can have")
    try:
        return contents.from_bytes(data, schema, path=path, num_rows=rows, columns=columns)
    except DataError:
        manifests.check_current(dataset)  # else they may be those of another dataset, and intact
        raise


def missing(dataset: Manifest, file: str) -> DataError:
    """The error for missing contents of a shard; raises one if the dataset was replaced."""
    manifests.check_current(dataset)
    path = storage.join(dataset.folder, contents_name(file))
    return DataError(f"{path}: it is missing; copy {CONTENTS_FOLDER}/ too, or {REPAIR}")


def features_in(dataset: Manifest) -> dict[str, tuple[str, tuple[int, ...]]]:
    """name -> (dtype, shape) of the features of a dataset."""
    return {name: (feature["dtype"], tuple(feature["shape"])) for name, feature in dataset.features.items()}


def _name(part: Part) -> str:
    return part.file.rpartition("/")[2]


def _ends(lengths: Any, offsets: Any, longest: int) -> NDArray[np.int64]:
    """Where each frame ends.

    Raises:
        ValueError: the columns contradict each other, or no shard is so long.
    """
    if lengths.dtype != np.int64 or offsets.dtype != np.int64 or (lengths < 0).any() or (lengths > longest).any():
        raise ValueError("does not fit its shard: a length is impossible")
    ends = np.cumsum(lengths + FRAME_BYTES)
    if (offsets + lengths + FOOTER.size != ends).any():
        raise ValueError("does not fit its shard: an offset is not behind the record before it")
    return ends


def _checked_restarts(restarts: Any, ends: NDArray[np.int64], num_bytes: int) -> NDArray[np.int64]:
    """Restart points that are in the file, in order.

    Raises:
        ValueError: they are not.
    """
    if restarts.dtype != np.int64:
        raise ValueError("has no restart points")
    if len(restarts) and (restarts[0] < 0 or restarts[-1] > num_bytes or (np.diff(restarts) < 0).any()):
        raise ValueError("does not fit its shard: a restart point is outside of it")
    first = np.flatnonzero(np.diff(restarts, prepend=-1))  # the first record after each restart point
    begins = np.concatenate([[0], ends])[first]
    if (np.diff(begins, append=ends[-1:]) > RESTART_BYTES + longest_in(num_bytes) + FRAME_BYTES).any():
        raise ValueError("does not fit its shard: two restart points are too far apart")
    return restarts  # type: ignore[no-any-return]


def _inflate(shard: _Shard, restarts: NDArray[np.int64], span: _Span, data: bytes) -> tuple[bytes, int]:
    """The records after a restart point, and where the first begins in the bytes of the records.

    Raises:
        RecordError: they are damaged.
    """
    first, end = (int(np.searchsorted(restarts, span.begin, side=side)) for side in ("left", "right"))
    begin = shard.begin(first)
    try:
        return zlib.decompressobj(-zlib.MAX_WBITS).decompress(data, int(shard.ends[end - 1]) - begin), begin
    except zlib.error as error:
        place = shard.path, span.first, shard.begin(span.first)
        raise RecordError(*place, f"it is damaged ({error}); {REPAIR}") from None


def _checked(shard: _Shard, row: int, sizes: Sequence[int], frames: bytes) -> bytes:
    """The frames of a row and those after it, checked.

    Raises:
        RecordError: one is damaged.
    """
    places = itertools.pairwise(itertools.accumulate(sizes, initial=0))
    for number, (begin, end) in enumerate(places, row):
        if not is_intact(frames, begin, end):
            framed, size = frames[begin:end], end - begin
            problem = "its data does not match the checksum of the data"
            if len(framed) != size:
                problem = f"the file ends within it; {size - len(framed)} bytes are missing"
            elif not framed.startswith(header(size - FRAME_BYTES)):
                problem = "it does not begin where the contents say, or its length is another"
            raise RecordError(shard.path, number, shard.begin(number), f"{problem}; {REPAIR}")
    return frames
