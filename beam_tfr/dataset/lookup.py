"""Reads single records of a dataset, located by the contents of its shards.

Needs neither TensorFlow nor Beam.
"""

import bisect
import itertools
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

from beam_tfr import storage
from beam_tfr.dataset.contents_check import find_contradiction
from beam_tfr.dataset.manifest import (
    REPAIR_OR_COPY,
    Manifest,
    ShardEntry,
    check_not_replaced,
    wrong_size,
)
from beam_tfr.dataset.shard_index import INDEX_COLUMNS, ByteRange, ShardIndex, index_shard
from beam_tfr.dataset.splits import ShardPart
from beam_tfr.records.contents_file import damaged_contents, parse_contents
from beam_tfr.records.examples import parse_example
from beam_tfr.records.tfrecords import FOOTER, FRAME_BYTES, HEADER_BYTES, max_record_bytes_in
from beam_tfr.schema.dataset import CONTENTS_FOLDER
from beam_tfr.schema.encoded_ref import to_text
from beam_tfr.schema.errors import DataError
from beam_tfr.schema.naming import contents_name

_ESCAPED_BYTE = "\\x"  # in a key of the contents that is not UTF-8
# One request reads records with gaps of at most the first number, and at most the second in all.
_MAX_GAP_BYTES = 1 << 16
_MAX_READ_BYTES = 8 << 20
_CONTENTS_AT_A_TIME = 32  # shards, with a thread and a request each
_PARSED_AT_A_TIME = 4  # of these; parsed contents may be far larger than their files

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class _RecordRead(NamedTuple):
    """The records that one request reads from a shard, in the order of their byte ranges."""

    shard: ShardIndex
    ranges: list[ByteRange]


class RecordLookup:
    """Random access to the records in some parts of a dataset, by number.

    Several threads may share a lookup. A lookup can be pickled, and keeps no files open.

    Args:
        dataset: manifest of the dataset.
        parts: the parts, in order; record 0 is the first record of the first part.
    """

    def __init__(self, dataset: Manifest, parts: Sequence[ShardPart]) -> None:
        self.dataset = dataset
        self.parts = tuple(parts)
        counts = [part.take for part in parts]
        self._ends = [*itertools.accumulate(counts)]
        self._shards: dict[str, ShardIndex] = {}

    @classmethod
    def whole(cls, dataset: Manifest) -> "RecordLookup":
        """Returns a lookup of all records in a dataset, numbered in the order of the manifest."""
        parts = [ShardPart.whole(dataset.folder, shard) for shard in dataset.shards]
        return cls(dataset, [part for part in parts if part.take])

    def __len__(self) -> int:
        return self._ends[-1]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_shards": {}}

    def locate(self, number: int) -> tuple[ShardPart, int]:
        """Returns the part that holds a record, and the record's number in the file."""
        index = bisect.bisect_right(self._ends, number)
        part = self.parts[index]
        first = self._ends[index] - part.take
        return part, part.begin + number - first

    def stretches(self, numbers: Sequence[int]) -> Iterator[tuple[ShardPart, int, int]]:
        """Groups record numbers into stretches of consecutive records.

        Yields:
            The part, first row and number of records of each stretch.
        """
        begin = 0
        while begin < len(numbers):
            first = numbers[begin]
            part, row = self.locate(first)
            rows_left = part.begin + part.take - row
            longest = min(rows_left, len(numbers) - begin)
            size = 1
            while size < longest and numbers[begin + size] == first + size:
                size += 1
            yield part, row, size
            begin += size

    def read_records(self, numbers: Sequence[int]) -> list[bytes]:
        """Reads the records with these numbers, in this order.

        Raises the errors of `read_frames`.
        """
        frames = self.read_frames(numbers)
        return [frame[HEADER_BYTES : -FOOTER.size] for frame in frames]

    def read_frames(self, numbers: Sequence[int]) -> list[bytes]:
        """Reads the records with these numbers, in this order, framed as by `tfrecords.frame`.

        Makes as few requests as possible.

        Raises:
            DataError: contents are missing, a file is damaged (the message names the file), or
                another dataset has replaced this one.
            OSError: a file cannot be read.
        """
        rows: dict[ShardPart, list[tuple[int, int]]] = {}
        for slot, number in enumerate(numbers):
            part, row = self.locate(number)
            rows.setdefault(part, []).append((row, slot))
        reads = self._map(self._plan_reads, rows.items())
        frames = [b""] * len(numbers)

        def fill(read: _RecordRead) -> None:
            data = self._fetch(read)
            cut = read.shard.cut_frames(read.ranges, data)
            for span, frame in zip(read.ranges, cut, strict=True):
                frames[span.slot] = frame

        self._map(fill, [*itertools.chain.from_iterable(reads)])
        return frames

    def whole_key(self, number: int, key: str | None) -> str:
        """Returns the full key of a record from its key in the contents.

        Contents omit long keys, and escape bytes that are not valid UTF-8.

        Raises:
            DataError: the record has no key, or cannot be read; see `read_frames`.
        """
        if key is not None and _ESCAPED_BYTE not in key:
            return key
        (record,) = self.read_records([number])
        stored = parse_example(record).get(self.dataset.names.key, [])
        if len(stored) != 1 or not isinstance(stored[0], bytes):
            part, row = self.locate(number)
            raise DataError(f"{part.file}: record {row} has no key: {REPAIR_OR_COPY}")
        return to_text(stored[0])

    def check_contents(self) -> None:
        """Opens the contents of the first shard to check that records can be read by number.

        Raises the errors of `read_records`.
        """
        self._find_shard(self.parts[0])

    def read_contents(self, part: ShardPart, columns: Sequence[str] | None = None) -> Any:
        """Reads the contents of a part's whole shard; see the function `read_contents`.

        Raises:
            DataError: the contents are missing or damaged.
        """
        return read_contents(self.dataset, part.file_name, part.records, part.num_bytes, columns)

    def open_shard(self, part: ShardPart) -> Any:
        """Reads and indexes the contents of a part's whole shard.

        Records of the shard can then be read without reading the contents again.
        """
        table = self.read_contents(part)
        self._index_shard(part, table)
        return table

    def generation(self, part: ShardPart) -> int:
        """Returns the generation that the file of a part must have when its records are read."""
        return self._find_shard(part).generation

    def _map(self, function: Callable[[_Item], _Result], items: Collection[_Item]) -> list[_Result]:
        """Calls a function for each item, and returns the results.

        On gs://, threads make the calls, because each call waits for requests.
        """
        if len(items) < 2 or not storage.is_remote(self.dataset.folder):
            return [*map(function, items)]
        with ThreadPoolExecutor(min(len(items), storage.READ_AHEAD)) as pool:
            return [*pool.map(function, items)]

    def _plan_reads(
        self, rows_of_part: tuple[ShardPart, list[tuple[int, int]]]
    ) -> list[_RecordRead]:
        """Groups the records of a part, so that one request can read each group."""
        part, rows = rows_of_part
        shard = self._find_shard(part)
        reads = list[_RecordRead]()
        for row, slot in sorted(rows):
            span = ByteRange(*shard.locate(row), row, slot)
            if not reads or not _is_near(reads[-1].ranges, span):
                reads.append(_RecordRead(shard, []))
            reads[-1].ranges.append(span)
        return reads

    def _find_shard(self, part: ShardPart) -> ShardIndex:
        shard = self._shards.get(part.file)
        if shard is None:
            shard = self._index_shard(part, self.read_contents(part, INDEX_COLUMNS))
        return shard

    def _index_shard(self, part: ShardPart, table: Any) -> ShardIndex:
        """Builds the index of the shard of a part from the contents of the shard."""
        entry = storage.find(part.file)
        check_not_replaced(self.dataset)  # so contents and file both belong to it
        if entry is None or entry.size_bytes != part.num_bytes:
            raise wrong_size(part.file, entry and entry.size_bytes, part.num_bytes)
        try:
            shard = index_shard(
                table,
                path=part.file,
                generation=entry.generation,
                num_bytes=part.num_bytes,
                gzip_level=self.dataset.gzip_level,
            )
        except ValueError as error:
            path = storage.join(self.dataset.folder, contents_name(part.file_name))
            raise DataError(f"{path} {error}") from None
        self._shards[part.file] = shard
        return shard

    def _fetch(self, read: _RecordRead) -> bytes:
        """Reads the bytes of a shard from the first range to the last."""
        shard = read.shard
        begin = read.ranges[0].begin
        size = read.ranges[-1].end - begin
        try:
            return storage.read_part(shard.path, begin, size, generation=shard.generation)
        except (storage.ChangedError, FileNotFoundError):
            check_not_replaced(self.dataset)
            raise DataError(
                f"{shard.path} was changed or removed while it was read: {REPAIR_OR_COPY}"
            ) from None


def _is_near(ranges: Sequence[ByteRange], following: ByteRange) -> bool:
    """Whether one request can read a record together with the records before it."""
    if following.begin - ranges[-1].end > _MAX_GAP_BYTES:
        return False
    return following.end - ranges[0].begin <= _MAX_READ_BYTES


def read_contents(
    dataset: Manifest,
    file: str,
    num_records: int,
    num_bytes: int,
    columns: Sequence[str] | None = None,
) -> Any:
    """Reads the contents of a shard: a `pyarrow.Table` with the `contents_schema`.

    Args:
        dataset: manifest of the dataset.
        file: name of the shard's file.
        num_records, num_bytes: the shard's numbers of records and bytes, from the manifest.
        columns: the columns to read; None for all.

    Raises:
        DataError: the contents are missing or damaged, or another dataset has replaced this one.
        NotInstalledError: pyarrow is missing.
    """
    data = _read_file(dataset, file, num_records, num_bytes)
    return _parse_file(dataset, file, num_records, data, columns)


def _read_file(dataset: Manifest, file: str, num_records: int, num_bytes: int) -> bytes:
    """Reads the bytes of the contents of a shard; see `read_contents`."""
    path = storage.join(dataset.folder, contents_name(file))
    max_bytes = max_record_bytes_in(num_bytes)
    if num_records * FRAME_BYTES > max_bytes:
        raise DataError(
            f"{path}: the manifest lists {num_records} records in this shard, too many for its size"
        )
    try:
        data = storage.read_bytes(path, max_bytes=max_bytes)
    except FileNotFoundError:
        raise missing_contents(dataset, file) from None
    if len(data) > max_bytes:
        raise DataError(
            f"{path} has more than {max_bytes} bytes, too many for the contents of this shard"
        )
    return data


def _parse_file(
    dataset: Manifest, file: str, num_records: int, data: bytes, columns: Sequence[str] | None
) -> Any:
    """Parses the bytes of the contents of a shard; see `read_contents`."""
    path = storage.join(dataset.folder, contents_name(file))
    schema = dataset.contents_schema()
    try:
        table = parse_contents(data, schema, path=path, num_rows=num_records, columns=columns)
        contradiction = find_contradiction(dataset, file, table)
        if contradiction:
            raise damaged_contents(path, contradiction)
        return table
    except DataError:
        check_not_replaced(dataset)  # else they may be those of another dataset, and intact
        raise


def read_shard_contents(
    dataset: Manifest, shard: ShardEntry, columns: Sequence[str] | None = None
) -> Any:
    """Reads the contents of a shard in the manifest, as `read_contents` does."""
    return read_contents(dataset, shard.file, shard.num_examples, shard.num_bytes, columns)


def read_all_contents(
    dataset: Manifest, columns: Sequence[str], shards: Sequence[ShardEntry] | None = None
) -> Iterator[Any]:
    """Yields the contents of shards in order, as `read_contents` returns them.

    Threads read the files of many shards in advance, and parse a few at a time.

    Args:
        dataset: manifest of the dataset.
        columns: the columns to read.
        shards: the shards; None for all, in the order of the manifest.

    Raises:
        DataError: as in `read_contents`; also at the end, if another dataset has replaced this one.
    """

    def read(shard: ShardEntry) -> bytes:
        return _read_file(dataset, shard.file, shard.num_examples, shard.num_bytes)

    def parse(file: tuple[ShardEntry, bytes]) -> Any:
        shard, data = file
        return _parse_file(dataset, shard.file, shard.num_examples, data, columns)

    chosen = dataset.shards if shards is None else shards
    with ThreadPoolExecutor(_CONTENTS_AT_A_TIME) as pool:
        for begin in range(0, len(chosen), _CONTENTS_AT_A_TIME):
            batch = chosen[begin : begin + _CONTENTS_AT_A_TIME]
            files = zip(batch, pool.map(read, batch), strict=True)
            while few := [*itertools.islice(files, _PARSED_AT_A_TIME)]:
                yield from pool.map(parse, few)
    check_not_replaced(dataset)


def missing_contents(dataset: Manifest, file: str) -> DataError:
    """Creates the exception for missing contents of a shard.

    Raises:
        DataError: another dataset has replaced this one.
    """
    check_not_replaced(dataset)
    path = storage.join(dataset.folder, contents_name(file))
    return DataError(f"{path} is missing; copy {CONTENTS_FOLDER}/ too, or {REPAIR_OR_COPY}")
