"""Reads many files in order, ahead of their consumer: the second half of ReadImages."""

import collections
import dataclasses
import functools
import posixpath
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import NamedTuple

from beam_tfr import storage
from beam_tfr.inputs.parquet import is_in_parquet, size_in_parquet
from beam_tfr.inputs.pool import Pool
from beam_tfr.inputs.reading import MAX_FILE_BYTES, MisnamedError, read_embedded, read_image
from beam_tfr.schema.errors import RejectError
from beam_tfr.schema.items import Accompanied, ImageRef

READ_AHEAD_BYTES = 32 << 20  # 32 MiB
SLOW_DISK_S = 0.01  # disks with slower reads, on average, are read ahead by threads too
_AVERAGED_READS = 32
_MOST_ABOVE_MEAN = 4  # limit for a file of unknown size, in multiples of the mean size

# The content of a reference's file; None if the file is not read.
FileContent = bytes | Accompanied | RejectError | None
_Read = bytes | RejectError


@dataclasses.dataclass
class ReadAhead:
    """A reader of many files in order, which reads ahead of the consumer to hide latency.

    Local files are read in the caller's thread, because passing them between threads costs more
    than the latency. Slow disks, such as network mounts, are read ahead too.

    Args:
        max_bytes: see `read_image`.
        images: maximum number of images to read or hold ahead, each in its own thread.
        ahead_bytes: maximum total size of these images, as listed or as copied; a larger file is
            read alone. A file that was not listed counts as several times the mean size of earlier
            files; if it is larger, its bytes are dropped, and it is read again when its turn comes.
        companions: name of a companion of the images -> function that returns the companion file of
            an image, which is read with the image.
        optional: names of the companions that images may lack.
        read_embedded: reads a file that has a place, see `reading.read_embedded`.
        copies: the folder for copies of images in Parquet files; empty to make none.
        root: see `read_image`.
    """

    max_bytes: int = MAX_FILE_BYTES
    images: int = storage.READ_AHEAD
    ahead_bytes: int = READ_AHEAD_BYTES
    companions: Mapping[str, Callable[[ImageRef], storage.Entry]] = dataclasses.field(
        default_factory=dict
    )
    optional: Container[str] = ()
    read_embedded: Callable[[storage.Entry, int, str], bytes] = read_embedded
    copies: str = ""
    root: str = ""

    def __post_init__(self) -> None:
        self._pool: Pool | None = None
        self._disk_s = 0.0  # moving average of the duration of a local read
        self._mean_bytes = 0.0  # moving average of the sizes of files that were not listed

    def read(self, sources: Iterable[storage.Entry]) -> Iterator[_Read]:
        """Yields the bytes of each source in order, or the error if a source cannot be read.

        Reading starts with the call, not with the first `next`.

        Raises:
            CancelledError: `close` was called.
        """
        if self._pool is None:
            self._pool = Pool(self.images, "beam_tfr-read")
        reads = _Reads(self, self._pool, collections.deque(sources))
        reads.fill()
        return reads.take_all()

    def close(self) -> None:
        """Cancels reading without waiting.

        Reads in progress end on their own and are not retried.
        """
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    def count_bytes(self, source: storage.Entry) -> int:
        """Returns how many bytes of memory a source may take when it is read ahead."""
        if is_in_parquet(source.place):
            return size_in_parquet(source, self.max_bytes, self.copies)
        if not _is_unlisted(source):
            return min(source.size_bytes, self.max_bytes)
        share = self.ahead_bytes // self.images
        return min(max(share, int(_MOST_ABOVE_MEAN * self._mean_bytes)), self.max_bytes)

    def begin(self, source: storage.Entry, num_bytes: int, pool: Pool) -> Callable[[], _Read]:
        """Starts to read a source that is on gs:// or a slow disk.

        Args:
            source: the source.
            num_bytes: how many bytes the source counts for.
            pool: the threads.

        Returns:
            A function that returns the content of the source.
        """
        if not storage.is_remote(source.path) and self._disk_s <= SLOW_DISK_S:
            return functools.partial(self._read_timed, source)
        cancelled = pool.closed.is_set
        if not _is_unlisted(source):
            return pool.submit(functools.partial(self._read, source, cancelled)).result
        future = pool.submit(functools.partial(self._read, source, cancelled, num_bytes))

        def take() -> _Read:
            content = future.result()
            if num_bytes < self.max_bytes and _is_too_large(content):
                content = self._read(source, cancelled)
            if isinstance(content, bytes):
                mean = self._mean_bytes or len(content)
                self._mean_bytes = mean + (len(content) - mean) / _AVERAGED_READS
            return content

        return take

    def _read_timed(self, source: storage.Entry) -> _Read:
        started = time.perf_counter()
        content = self._read(source, lambda: False)
        seconds = time.perf_counter() - started
        self._disk_s += (seconds - self._disk_s) / _AVERAGED_READS
        return content

    def _read(
        self, source: storage.Entry, cancelled: Callable[[], bool], max_bytes: int | None = None
    ) -> _Read:
        try:
            return read_image(
                source,
                max_bytes=self.max_bytes if max_bytes is None else max_bytes,
                cancelled=cancelled,
                read_embedded=self._read_embedded,
                root=self.root,
            )
        except RejectError as error:
            return error

    def _read_embedded(self, source: storage.Entry, max_bytes: int) -> bytes:
        return self.read_embedded(source, max_bytes, self.copies)


def _is_unlisted(source: storage.Entry) -> bool:
    """Whether a source was not listed, and so has an unknown size."""
    return not (source.size_bytes or source.generation or source.place)


def _is_too_large(content: _Read) -> bool:
    return isinstance(content, RejectError) and content.reason == "file-too-large"


class _BegunRead(NamedTuple):
    """A read in progress: a function that returns the content, and the content's maximum size."""

    result: Callable[[], _Read]
    num_bytes: int


@dataclasses.dataclass
class _Reads:
    """The reads of some sources; the first reads are in progress."""

    ahead: ReadAhead
    pool: Pool
    sources: collections.deque[storage.Entry]

    def __post_init__(self) -> None:
        self._begun = collections.deque[_BegunRead]()
        self._total_bytes = 0

    def fill(self) -> None:
        """Starts as many reads as may run ahead of the consumer."""
        while self._may_begin():
            source = self.sources.popleft()
            num_bytes = self.ahead.count_bytes(source)
            self._total_bytes += num_bytes
            result = self.ahead.begin(source, num_bytes, self.pool)
            self._begun.append(_BegunRead(result, num_bytes))

    def _may_begin(self) -> bool:
        if not self.sources or self.pool.closed.is_set():
            return False
        if not self._begun:
            return True
        total_bytes = self._total_bytes + self.ahead.count_bytes(self.sources[0])
        return len(self._begun) < self.ahead.images and total_bytes <= self.ahead.ahead_bytes

    def take_all(self) -> Iterator[_Read]:
        """Yields the content of each source in order."""
        while self._begun:
            read = self._begun.popleft()
            content = read.result()
            self._total_bytes -= read.num_bytes
            self.fill()
            yield content
            del content, read  # otherwise they hold bytes while the next read is awaited


def read_refs(
    root: str, refs: Iterable[ImageRef], ahead: ReadAhead | None, *, leave: Container[int] = ()
) -> Iterator[tuple[ImageRef, FileContent]]:
    """Yields each reference with the content of its file, in order; with None for known rejects.

    Args:
        root: folder that keys are relative to, with a trailing slash.
        refs: the references to read.
        ahead: how to read the files; None for table rows, whose references contain everything.
        leave: positions of references whose files are not read; these references also come with
            None.
    """
    if ahead is None:
        return ((ref, None) for ref in refs)  # one by one: a shard may have a million rows
    refs = list(refs)
    positions = [
        position for position, ref in enumerate(refs) if not ref.reason and position not in leave
    ]
    read = [refs[position] for position in positions]
    contents: Iterator[_Read | Accompanied] = ahead.read(
        storage.Entry(root + ref.key, ref.size_bytes, ref.generation, place=ref.place)
        for ref in read
    )
    for key, file_of in ahead.companions.items():
        files = list(map(file_of, read))
        is_optional = key in ahead.optional
        accompany = functools.partial(_accompany, key=key, root=root, is_optional=is_optional)
        keys = [ref.key for ref in read]
        contents = map(accompany, contents, ahead.read(files), files, keys)
    return _merge(refs, {*positions}, contents)


def _merge(
    refs: Iterable[ImageRef], positions: Container[int], contents: Iterator[_Read | Accompanied]
) -> Iterator[tuple[ImageRef, FileContent]]:
    """Yields each reference with its content if its position is in `positions`, else with None."""
    for position, ref in enumerate(refs):
        yield ref, next(contents) if position in positions else None


def _accompany(
    image: _Read | Accompanied,
    beside: _Read,
    file: storage.Entry,
    image_key: str,
    *,
    key: str,
    root: str,
    is_optional: bool,
) -> _Read | Accompanied:
    """Returns an image with one more companion; if either has an error, returns the first error.

    Args:
        image: the content of the image, which may have companions already.
        beside, file: the content of the new companion, and its file.
        image_key: the path of the image.
        key: the name of the companion for readers and messages.
        root: folder that keys are relative to.
        is_optional: whether the image may lack the companion.
    """
    if isinstance(image, RejectError):
        return image
    if isinstance(beside, RejectError) and is_optional:
        is_missing = not file.path or beside.reason == "not-found"
        beside = b"" if is_missing else beside
    if isinstance(beside, RejectError):
        detail = f"its {key} {_relative_path(file.path, root)}: {beside.detail}"
        if beside.reason == "not-found":
            is_misnamed = isinstance(beside, MisnamedError)
            if is_misnamed and _stem(file.path) != _stem(root + image_key):  # not the image itself
                detail += f", which is not read: if it is this {key}, rename it, or convert it"
            else:
                detail += "; [optional] after its path keeps images without one"
        return RejectError(beside.reason, detail, may_pass=beside.may_pass)
    if isinstance(image, bytes):
        return Accompanied(image, {key: beside})
    return Accompanied(image.image, {**image.companions, key: beside})


def _stem(path: str) -> str:
    return posixpath.splitext(path)[0]


def _relative_path(path: str, root: str) -> str:
    """Returns a path relative to a folder if both are on gs:// or both are on disk.

    So the path stays the same if file and folder are moved together.
    """
    if storage.is_gcs(path) != storage.is_gcs(root):
        return path
    return posixpath.relpath(path, root)
