"""ReadImages: reads listed files ahead of their consumer, and a sample of them for the plan."""

import collections
import dataclasses
import errno
import functools
import posixpath
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

from beam_tfr import storage
from beam_tfr.inputs.archives import archive_of, read_member
from beam_tfr.inputs.parquet import is_in_parquet, read_in_parquet
from beam_tfr.inputs.pool import Pool
from beam_tfr.schema.errors import RejectError, RunError
from beam_tfr.schema.features import Companion
from beam_tfr.schema.items import Accompanied, ImageRef

MAX_FILE_BYTES = 64 << 20  # 64 MiB; a larger file is a reject
READ_AHEAD_BYTES = 32 << 20  # 32 MiB
SLOW_DISK_S = 0.01  # disks with slower reads, on average, are read ahead by threads too
_AVERAGED_READS = 32

FileContent = bytes | Accompanied | RejectError | None


def read_embedded(image: storage.Entry, max_bytes: int, copies: str = "") -> bytes:
    """Reads an image in an archive or a Parquet file; for `copies` and errors see
    `read_in_parquet`, `read_member`."""
    if is_in_parquet(image.place):
        return read_in_parquet(image, max_bytes, copies)
    return read_member(image, max_bytes)


def read_image(
    file: storage.Entry,
    *,
    max_bytes: int = MAX_FILE_BYTES,
    cancelled: Callable[[], bool] = lambda: False,
    read_embedded: Callable[[storage.Entry, int], bytes] = read_embedded,
) -> bytes:
    """Reads one source file.

    Args:
        file: a listed file; one of any version has the generation 0.
        max_bytes: larger files are rejected; an object listed with more bytes is not fetched at
            all.
        cancelled: returns True once the result is no longer needed, which ends the retries.
        read_embedded: reads a file that has a place.

    Raises:
        RejectError: `not-found`, `changed-while-reading`, `unusable-file`, `empty-file` or
            `file-too-large`. What may pass: `unreadable` (no permission, a failing service or disk,
            no disk), and `changed-while-reading` if a file that no version was listed of is
            changing all the time.
    """
    path = archive_of(file.path, file.place) if file.place else file.path
    is_estimate = is_in_parquet(file.place)
    if (file.place or storage.is_gcs(path)) and file.size_bytes > max_bytes and not is_estimate:
        raise _too_large(max_bytes)
    try:
        if file.place:
            data = read_embedded(file, max_bytes)
        else:
            data = storage.read_bytes(
                path, max_bytes=max_bytes, generation=file.generation, cancelled=cancelled
            )
    except OSError as error:
        reason = (error.strerror or str(error)) + (
            f" ({path.rpartition('/')[2]})" if file.place else ""
        )
        if isinstance(error, storage.ChangedError):
            passing = error.errno == errno.EBUSY  # but what was listed does not come back
            raise RejectError("changed-while-reading", reason, may_pass=passing) from error
        if isinstance(error, FileNotFoundError):
            if storage.is_gone(path):
                raise RejectError("not-found", reason) from error
            reason += "; its folder is empty or cannot be listed"
        elif not storage.may_pass(error):
            raise RejectError("unusable-file", reason) from error
        raise RejectError("unreadable", reason, may_pass=True) from error
    if not data:
        raise RejectError("empty-file", "0 bytes")
    if len(data) > max_bytes:
        raise _too_large(max_bytes)
    return data


def _too_large(max_bytes: int) -> RejectError:
    return RejectError("file-too-large", f"more than {max_bytes} bytes")


@dataclasses.dataclass
class ReadAhead:
    """Reads many files in order, ahead of the consumer, to hide latency.

    Local files are read in the caller's thread, because passing them between threads costs more
    than it hides. Slow disks, such as network mounts, are read ahead too.

    Args:
        max_bytes: see `read_image`.
        images: maximum number of images to read or hold ahead, each in its own thread.
        ahead_bytes: their maximum total size, as listed; a larger file is read alone.
        companions: for each companion of the images, what returns its file, which is read with the
            image.
        read_embedded: see `read_image`.
    """

    max_bytes: int = MAX_FILE_BYTES
    images: int = storage.READ_AHEAD
    ahead_bytes: int = READ_AHEAD_BYTES
    companions: Mapping[Companion, Callable[[ImageRef], storage.Entry]] = dataclasses.field(
        default_factory=dict
    )
    read_embedded: Callable[[storage.Entry, int], bytes] = read_embedded

    def __post_init__(self) -> None:
        self._pool: Pool | None = None
        self._disk_s = 0.0  # moving average of the time of a local read

    def read(self, sources: Sequence[storage.Entry | None]) -> Iterator[FileContent]:
        """Yields the bytes of each source in order, or the error that says why it cannot be read;
        None for no source.

        Reading starts with the call, not with the first `next`.

        Raises:
            CancelledError: `close` was called.
        """
        if self._pool is None:
            self._pool = Pool(self.images, "beam_tfr-read")
        pool = self._pool
        rest = collections.deque(sources)
        ahead: collections.deque[tuple[Callable[[], FileContent], int]] = collections.deque()
        total = 0

        def fill() -> None:
            nonlocal total
            while rest and len(ahead) < self.images and not pool.closed.is_set():
                source = rest[0]
                size = 0 if source is None else min(source.size_bytes, self.max_bytes)
                if ahead and total + size > self.ahead_bytes:
                    return
                total += size
                ahead.append((self._begin(rest.popleft(), pool), size))

        def drain() -> Iterator[FileContent]:
            nonlocal total
            while ahead:
                result, size = ahead.popleft()
                content = result()
                total -= size
                fill()
                yield content
                del content, result

        fill()
        return drain()

    def close(self) -> None:
        """Cancels reading without waiting for it; reads in progress end by themselves and are not
        retried."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    def _begin(self, source: storage.Entry | None, pool: Pool) -> Callable[[], FileContent]:
        """Starts to read a source that is on gs:// or a slow disk; returns a function that returns
        its content."""
        if source is None:
            return lambda: None
        if storage.is_gcs(source.path) or self._disk_s > SLOW_DISK_S:
            return pool.submit(functools.partial(self._read_one, source, pool.closed.is_set)).result
        return functools.partial(self._read_near, source)

    def _read_near(self, source: storage.Entry) -> FileContent:
        started = time.perf_counter()
        content = self._read_one(source, lambda: False)
        self._disk_s += (time.perf_counter() - started - self._disk_s) / _AVERAGED_READS
        return content

    def _read_one(self, source: storage.Entry, cancelled: Callable[[], bool]) -> FileContent:
        try:
            return read_image(
                source,
                max_bytes=self.max_bytes,
                cancelled=cancelled,
                read_embedded=self.read_embedded,
            )
        except RejectError as error:
            return error


def read_refs(
    root: str, refs: Iterable[ImageRef], ahead: ReadAhead | None, *, leave: Container[int] = ()
) -> Iterator[tuple[ImageRef, FileContent]]:
    """Each reference with the content of its file, in order; None for known rejects.

    Args:
        root: folder that keys are relative to, with a trailing slash.
        refs: the references to read.
        ahead: how to read the files; None for table rows, whose references contain everything.
        leave: positions of those to leave unread, also None.
    """
    if ahead is None:
        return ((ref, None) for ref in refs)  # one by one: a shard may have a million rows
    refs = list(refs)
    files = [
        None
        if ref.reason or position in leave
        else storage.Entry(root + ref.key, *ref[1:3], place=ref.place)
        for position, ref in enumerate(refs)
    ]
    contents = ahead.read(files)
    for companion, file_of in ahead.companions.items():
        beside = [file and file_of(ref) for ref, file in zip(refs, files, strict=True)]
        paths = [file and _relative(file.path, root) for file in beside]
        contents = map(
            functools.partial(_accompanied, companion=companion),
            contents,
            ahead.read(beside),
            paths,
        )
    return zip(refs, contents, strict=True)


def _accompanied(
    image: FileContent, beside: FileContent, path: str | None, *, companion: Companion
) -> FileContent:
    """An image with one more companion, which was read from a path, or the first error of all."""
    if isinstance(image, bytes):
        image = Accompanied(image, {})
    if isinstance(image, Accompanied) and isinstance(beside, bytes):
        return Accompanied(image.image, {**image.companions, companion: beside})
    if isinstance(image, Accompanied) and isinstance(beside, RejectError):
        return RejectError(
            beside.reason, f"its {companion.key} {path}: {beside.detail}", may_pass=beside.may_pass
        )
    return image


def _relative(path: str, root: str) -> str:
    """A path relative to a folder, if both are on gs:// or both on a disk: so it is the same after
    both are moved."""
    return posixpath.relpath(path, root) if storage.is_gcs(path) == storage.is_gcs(root) else path


def make_record(
    content: FileContent, ref: ImageRef, steps: Sequence[Callable[[Any, ImageRef], Any]]
) -> Any:
    """Applies the steps to the content of a file; raises it if it is a `RejectError`."""
    if isinstance(content, RejectError):
        raise content
    return functools.reduce(lambda value, step: step(value, ref), steps, content)


def measure_sample(
    refs: Sequence[ImageRef],
    *,
    root: str,
    ahead: ReadAhead | None,
    steps: Sequence[Callable[[Any, ImageRef], Any]],
    known: Mapping[str, int | None] | None = None,
) -> tuple[float, bool]:
    """Measures the records of a sample.

    Args:
        refs: references to the images.
        root, ahead: see `read_refs`.
        steps: from the content of a file to its record.
        known: key -> size of the record that is there already, or None for a reject.

    Returns:
        The mean size of a serialized record, without rejects; and whether all files could be read.

    Raises:
        RunError: none of its files can be read now.
    """
    known = known or {}
    sizes = [size for ref in refs if (size := known.get(ref.key)) is not None]
    unread = []
    for ref, content in read_refs(root, [ref for ref in refs if ref.key not in known], ahead):
        try:
            sizes.append(len(make_record(content, ref, steps).serialized))
        except RejectError as error:
            if error.may_pass:
                unread.append(f"{root}{ref.key} cannot be read: {error.detail}")
    if ahead is not None:
        ahead.close()
    if unread and not sizes:
        raise RunError(
            f"{unread[0]}. None of the {len(refs)} files tried first can be read: run the same command again when they "
            "can, or correct the folder that a table, `image_root=`, `masks=` or `pair=` names"
        )
    return sum(sizes) / len(sizes) if sizes else 0.0, not unread
