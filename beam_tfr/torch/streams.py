"""The records of a stream, from the shards, in windows."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from beam_tfr.records import RecordError, RecordFile
from beam_tfr.schema import DataError
from beam_tfr.selection import Part as Run
from beam_tfr.torch.order import Epoch, Part, permutation

_CURE = "copy the dataset again, or convert it again with --overwrite; beam-tfr verify names all damage"


class Stored(NamedTuple):
    """A serialized record, and where it lies; `problem` says why there is none."""

    data: bytes
    file: str
    record: int
    problem: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Source:
    """What of which shards is read, and how they are compressed: "gzip" or "none"."""

    runs: tuple[Run, ...]
    compression: str

    def read(self, part: Part) -> Iterator[Stored]:
        """As many records as the part has; from where the file is damaged or ends, with a problem instead of data.

        Raises:
            OSError: the file cannot be read.
        """
        run = self.runs[part.run]
        first = run.begin + part.skip
        file = RecordFile(run.file, compression=self.compression, skip=first)
        found, problem = 0, ""
        try:
            for data in itertools.islice(file, part.take):
                yield Stored(data, run.file, first + found)
                found += 1
        except RecordError as error:
            problem = f"{error}; {_CURE}"
        for number in range(first + found, first + part.take):
            ends = f"{run.file} ends after {file.record} of its {run.records} records; {_CURE}"
            yield Stored(b"", run.file, number, problem or ends)

    def apply(self, decode: Callable[[bytes], Any], stored: Stored) -> Any:
        """What `decode` makes of a record.

        Raises:
            DataError: it raised ValueError, or there is no record.
        """
        if stored.problem:
            raise DataError(stored.problem)
        try:
            return decode(stored.data)
        except ValueError as error:
            raise DataError(f"{stored.file}: record {stored.record}: {error}; {_CURE}") from error


class Stream:
    """Records [low, low + size) of an epoch, shuffled window by window; read once, from some record on to the end.

    Args:
        window: records that are shuffled at a time.
        key: of the shuffle; None for the order of the epoch.
    """

    def __init__(
        self, source: Source, epoch: Epoch, low: int, size: int, *, window: int, key: tuple[int, ...] | None
    ) -> None:
        self._source, self._epoch = source, epoch
        self._low, self._size = low, size
        self._window, self._key = window, key
        self._number = -1  # of the window that is held
        self._held: list[Stored] = []
        self._order: Any = range(0)
        self._records: Iterator[Stored] | None = None

    def take(self, begin: int, end: int) -> list[Stored]:
        """Records [begin, end) of the shuffled stream, all in one window; not before those taken last."""
        number, first = divmod(begin, self._window)
        if begin < end and number != self._number:
            self._hold(number)
        return [self._held[place] for place in self._order[first : first + end - begin]]

    def _hold(self, number: int) -> None:
        self._held = []  # before the next ones come
        if self._records is None:  # whole windows before the first one are not even read
            parts = self._epoch.parts(self._low + number * self._window, self._low + self._size)
            self._records = itertools.chain.from_iterable(map(self._source.read, parts))
        else:  # windows that other workers give
            passed = (number - self._number - 1) * self._window
            next(itertools.islice(self._records, passed, passed), None)
        self._number = number
        self._held = list(itertools.islice(self._records, self._window))
        self._order = range(len(self._held))
        if self._key is not None:
            self._order = permutation(len(self._held), *self._key, number)
