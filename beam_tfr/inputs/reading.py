"""ReadImages: listed files become bytes, read ahead of who consumes them."""

from __future__ import annotations

import collections
import dataclasses
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future

from beam_tfr import storage
from beam_tfr.schema import ImageRef, RejectError, RunError

MAX_FILE_BYTES = 64 << 20  # 64 MiB; a larger file is a reject
READ_AHEAD_BYTES = 32 << 20  # 32 MiB
CALLS = 2  # of `ReadAhead.read` at a time: one is consumed, the next begun
SLOW_DISK_S = 0.01  # a read from a disk that takes longer on average is worth a hand-over between threads
_AVERAGED_READS = 32

Source = storage.Entry | str
Content = bytes | RejectError | None


def sources(root: str, refs: Sequence[ImageRef]) -> list[storage.Entry | None]:
    """What `ReadAhead.read` takes for references to files below a folder; None for those that are rejects already."""
    return [None if ref.reason else storage.Entry(root + ref.key, ref.size_bytes, ref.generation) for ref in refs]


def read_image(
    source: Source,
    *,
    max_bytes: int = MAX_FILE_BYTES,
    deadline_s: float = storage.DEADLINE_S,
    cancelled: Callable[[], bool] = lambda: False,
) -> bytes:
    """The bytes of one source file.

    Args:
        source: as it was listed; or a path, for whatever lies there now.
        max_bytes: more are a reject; of an object that was listed with more, nothing is fetched.
        deadline_s: for an object on gs:// with all its tries, in seconds.
        cancelled: whether nobody waits for it any more; then it is not tried again.

    Raises:
        RejectError: `not-found`, `changed-while-reading`, `unreadable`, `empty-file` or `file-too-large`.
        RunError: the account may not read objects of this bucket: nor any other image.
    """
    path, size_bytes, generation = (source, 0, 0) if isinstance(source, str) else source
    too_large = RejectError("file-too-large", f"more than {max_bytes} bytes")
    if storage.is_gcs(path) and size_bytes > max_bytes:
        raise too_large
    try:
        data = storage.read_bytes(
            path, max_bytes=max_bytes, generation=generation, deadline_s=deadline_s, cancelled=cancelled
        )
    except FileNotFoundError as error:
        raise RejectError("not-found", error.strerror or str(error)) from error
    except storage.ChangedError as error:
        raise RejectError("changed-while-reading", error.strerror or str(error)) from error
    except OSError as error:
        if isinstance(error, PermissionError) and storage.is_gcs(path):
            raise RunError(f"{path} cannot be read: {error.strerror}") from error
        raise RejectError("unreadable", error.strerror or str(error), may_pass=storage.may_pass(error)) from error
    if not data:
        raise RejectError("empty-file", "0 bytes")
    if len(data) > max_bytes:
        raise too_large
    return data


@dataclasses.dataclass
class ReadAhead:
    """Reads many files in order, some ahead of the consumer, so that latency costs nothing once the pool is full.

    Local files are read in the caller's thread: they come from the page cache or at the disk's own speed, and a
    hand-over between threads costs more than it hides. A disk that is slow on average, such as a far one on a network,
    is read ahead too.

    Args:
        max_bytes: of one file; see `read_image`.
        images: most that are read or wait to be consumed, of one call, each by a thread of its own.
        ahead_bytes: most that they have together, as listed; a file that has more comes alone.
        deadline_s: for an object on gs:// with all its tries, in seconds.
    """

    max_bytes: int = MAX_FILE_BYTES
    images: int = storage.READ_AHEAD
    ahead_bytes: int = READ_AHEAD_BYTES
    deadline_s: float = storage.DEADLINE_S

    def __post_init__(self) -> None:
        self._pool: _Pool | None = None
        self._disk_s = 0.0  # moving average of a read from a disk

    def read(self, sources: Sequence[Source | None]) -> Iterator[Content]:
        """What each source holds, in order, or why it cannot be read; None for None.

        Reading begins at once, before the first is asked for, so that one call can begin while another is consumed.

        Raises:
            RunError: see `read_image`; when the content is asked for.
            CancelledError: `close` was called meanwhile.
        """
        if self._pool is None:
            self._pool = _Pool(CALLS * self.images)
        pool = self._pool
        rest = collections.deque(sources)
        ahead: collections.deque[tuple[Future[Content] | Source | None, int]] = collections.deque()
        total = 0

        def fill() -> None:
            nonlocal total
            while rest and len(ahead) < self.images:
                source = rest[0]
                size = 0 if source is None or isinstance(source, str) else min(source.size_bytes, self.max_bytes)
                if ahead and total + size > self.ahead_bytes:
                    return
                total += size
                rest.popleft()
                if source is not None and self._is_far(source):
                    ahead.append((pool.submit(self._read_one, source, pool.closed.is_set), size))
                else:
                    ahead.append((source, size))

        def drain() -> Iterator[Content]:
            nonlocal total
            try:
                while ahead:
                    first, size = ahead.popleft()
                    content = first.result() if isinstance(first, Future) else self._read_near(first)
                    total -= size
                    fill()
                    yield content
                    del content, first
            finally:  # also where the consumer goes away in the middle
                for begun, _ in ahead:
                    if isinstance(begun, Future):
                        begun.cancel()

        fill()
        return drain()

    def close(self) -> None:
        """Waits for nobody: what is under way ends by itself, and is not tried again."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    def _is_far(self, source: Source) -> bool:
        return storage.is_gcs(source if isinstance(source, str) else source.path) or self._disk_s > SLOW_DISK_S

    def _read_near(self, source: Source | None) -> Content:
        if source is None:
            return None
        started = time.perf_counter()
        content = self._read_one(source, lambda: False)
        self._disk_s += (time.perf_counter() - started - self._disk_s) / _AVERAGED_READS
        return content

    def _read_one(self, source: Source, cancelled: Callable[[], bool]) -> Content:
        try:
            return read_image(source, max_bytes=self.max_bytes, deadline_s=self.deadline_s, cancelled=cancelled)
        except RejectError as error:
            return error


class _Pool:
    """Threads that a process may end without: one that waits for a dead service must not hold up Ctrl-C, as those of
    the standard library do.
    """

    def __init__(self, most: int) -> None:
        self._most, self._begun = most, 0
        self._idle = threading.Semaphore(0)
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self.closed = threading.Event()

    def submit(self, function: Callable[..., Content], *arguments: object) -> Future[Content]:
        future: Future[Content] = Future()
        if self.closed.is_set():
            future.cancel()
            return future

        def job() -> None:
            if self.closed.is_set() or not future.set_running_or_notify_cancel():
                future.cancel()
                return
            try:
                future.set_result(function(*arguments))
            except BaseException as error:  # noqa: BLE001 - raised by who asks for the result
                future.set_exception(error)

        self._jobs.put(job)
        if not self._idle.acquire(blocking=False) and self._begun < self._most:
            self._begun += 1
            threading.Thread(target=self._work, name="beam_tfr-read", daemon=True).start()
        return future

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
            del job  # nor what it read
            self._idle.release()

    def close(self) -> None:
        self.closed.set()
        for _ in range(self._begun):
            self._jobs.put(None)
