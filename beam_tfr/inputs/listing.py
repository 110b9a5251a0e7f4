"""MatchImages: lists the files that match patterns, each once."""

import collections
import contextlib
import itertools
import os
import re
import shlex
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

from beam_tfr import storage
from beam_tfr.inputs import archives, ranges
from beam_tfr.inputs.patterns import (
    ARCHIVE,
    compile_pattern,
    escape_pattern,
    is_wild,
    literal_start,
    split_pattern,
)
from beam_tfr.inputs.pool import Pool
from beam_tfr.inputs.skipped import SkippedFiles
from beam_tfr.schema.dataset import MANIFEST_FILE
from beam_tfr.schema.errors import InputNotFoundError, UsageError

LIST_THREADS = 32
DIVIDE_THREADS = 10  # as many as the client has connections
LIST_BATCH = 1000  # files passed on at a time


class PatternPart(NamedTuple):
    """A pattern, or a range of the names that it may match.

    Attributes:
        pattern: local or gs://.
        before: patterns whose files do not count, of `order_patterns`.
        start, end: names in the bucket from `start` on and before `end`; empty for all.
        archive: the fields of an archive, of which the images are listed; empty for none.
    """

    pattern: str
    before: Sequence[str] = ()
    start: str = ""
    end: str = ""
    archive: Sequence[Any] = ()


def list_files(
    patterns: Sequence[tuple[str, Sequence[str]]],
    *,
    exclude: re.Pattern[str] | None = None,
    option: str = "input",
    skipped: SkippedFiles | None = None,
) -> Iterator[storage.Entry]:
    """Lists the files that match patterns, and the images in archives: in parallel, in any order,
    in bounded memory.

    Args:
        patterns: (pattern, patterns before it, whose files it leaves out), of `order_patterns`.
        exclude: result of `compile_exclusion`.
        option: the option or argument that the patterns were given for.
        skipped: counts files that are listed and do not match.

    Raises:
        UsageError: nothing matches, or the bucket or folder is missing or cannot be listed.
        DataError: an archive is damaged.
    """
    parts = [PatternPart(*pair) for pair in patterns]
    for found in list_parts(parts, exclude=exclude, option=option, skipped=skipped):
        yield from (entry for entry in found if isinstance(entry, storage.Entry))


def list_parts(
    parts: Sequence[PatternPart],
    *,
    exclude: re.Pattern[str] | None = None,
    limit: int | None = None,
    option: str = "input",
    skipped: SkippedFiles | None = None,
) -> Iterator[list[storage.Entry | PatternPart]]:
    """Lists like `list_files`, but with a limit opens no archive, and lists only the first names of
    each part on gs://.

    Yields files and remaining parts, which may be archives.

    Args:
        parts: parts that do not overlap.
        exclude: result of `compile_exclusion`.
        limit: maximum number of names of a part, matching or not, exceeded until a pattern's first
            match. None for all.
        option, skipped: see `list_files`.

    Raises:
        UsageError, DataError: see `list_files`.
    """

    def next_batch(
        listing: Iterator[storage.Entry | PatternPart],
    ) -> Future[list[storage.Entry | PatternPart]]:
        return pool.submit(lambda: list(itertools.islice(listing, LIST_BATCH)))

    def list_some(parts: Sequence[PatternPart]) -> Iterator[storage.Entry | PatternPart]:
        for part in parts:
            rest = yield from _list_part(part, exclude, option=option, limit=limit, skipped=skipped)
            if rest:
                yield rest

    waiting = collections.deque(
        list_some(parts[i::LIST_THREADS]) for i in range(min(LIST_THREADS, len(parts)))
    )
    ahead = collections.deque[tuple[Iterator[storage.Entry | PatternPart], Future[Any]]]()
    with contextlib.closing(Pool(LIST_THREADS, "beam_tfr-list")) as pool:
        while waiting or ahead:
            while waiting and len(ahead) < LIST_THREADS:
                ahead.append((listing := waiting.popleft(), next_batch(listing)))
            listing, batch = ahead.popleft()
            found = batch.result()
            if found:
                ahead.append((listing, next_batch(listing)))
                if limit is None:
                    waiting += [
                        list_some([part]) for part in found if isinstance(part, PatternPart)
                    ]
                yield found


def divide_part(part: PatternPart, parts: int) -> list[PatternPart]:
    """Divides a part on gs:// into about `parts` parts or more; fewer if it holds few names.

    Raises:
        UsageError: the bucket cannot be listed.
    """
    bucket, literal = storage.split_gcs(literal_start(part.pattern))

    def first_names(start: str, end: str) -> list[str]:
        listed = storage.walk(f"{storage.GCS}{bucket}", lambda _: True, start=start, end=end)
        return [storage.split_gcs(entry.path)[1] for entry in itertools.islice(listed, ranges.FEW)]

    end = part.end or ranges.after_prefix(literal)
    with (
        contextlib.closing(Pool(DIVIDE_THREADS, "beam_tfr-divide")) as pool,
        _named_errors(part.pattern, "input"),
    ):
        divided = ranges.divide(first_names, part.start, end, parts, run=pool.map)
    return [part._replace(start=names.start, end=names.end) for names in divided]


def _list_part(
    part: PatternPart,
    exclude: re.Pattern[str] | None,
    *,
    option: str,
    limit: int | None,
    skipped: SkippedFiles | None,
) -> Generator[storage.Entry | PatternPart, None, PatternPart | None]:
    """Yields the files of a part, and each archive as another part; returns what is left beyond
    `limit`."""
    if part.archive:
        with _named_errors(part.pattern, option):
            yield from archives.list_images(storage.Entry(*part.archive), exclude, skipped)
        return None
    is_archive = option in ("input", "sources") and ARCHIVE.search(part.pattern)
    matched = bool(part.start)  # the pattern, before the range began
    limit = limit if storage.is_gcs(part.pattern) else None
    left_out = [*map(compile_pattern, part.before), *([exclude] if exclude else [])]
    with _named_errors(part.pattern, option):
        regex = compile_pattern(part.pattern, option=option) if is_wild(part.pattern) else None
        for number, entry in enumerate(_walk(part, option)):
            if limit is not None and number >= limit and matched:
                return part._replace(start=storage.split_gcs(entry.path)[1])
            if regex is None or regex.fullmatch(entry.path):
                matched = True
                if not any(other.fullmatch(entry.path) for other in left_out):
                    yield PatternPart(part.pattern, archive=entry) if is_archive else entry
            elif skipped:
                skipped.add(part.pattern, entry.path)
    if not matched:
        raise InputNotFoundError(
            f"matches no file{_cure(part.pattern, option)}", option=option, value=part.pattern
        )
    return None


@contextlib.contextmanager
def _named_errors(pattern: str, option: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        message = f"cannot be listed: {error.filename}: {error.strerror}"
        raise UsageError(message, option=option, value=pattern) from error


def _walk(part: PatternPart, option: str) -> Iterator[storage.Entry]:
    """Files that the pattern of a part may match."""
    pattern = part.pattern
    if not is_wild(pattern):
        entry = storage.find(pattern)
        if entry:
            yield entry
        return
    folder, rest = split_pattern(pattern, option=option)
    # A folder above the first ** must match its part of the pattern; below it, any folder may hold
    # a match, and beside alternatives too, which may contain slashes.
    parts = rest.split("/")
    deep = not rest or "**" in rest or "{" in rest
    fixed = [] if "{" in rest else itertools.takewhile(lambda part: "**" not in part, parts[:-1])
    base = folder.rstrip("/")
    folders = [*map(compile_pattern, itertools.accumulate([base, *fixed], "{}/{}".format))]

    def descend(path: str) -> bool:
        level = path.count("/") - base.count("/")
        return bool(folders[level].fullmatch(path)) if level < len(folders) else deep

    prefix = literal_start(pattern)[len(base) + 1 :]
    has_folders = deep or len(parts) > 1
    yield from storage.walk(
        folder, descend, prefix=prefix, deep=has_folders, start=part.start, end=part.end
    )


def suggest_dataset(folder: str) -> str:
    """What to do about the files of a folder that holds a dataset, if it does, instead of reading
    them as others."""
    path = storage.join(folder, MANIFEST_FILE)
    with contextlib.suppress(OSError):
        if b'"dataset_digest"' in storage.read_bytes(path):
            return f"; this is a dataset of beam_tfr: read it with `table={path}`"
    return ""


def _cure(pattern: str, option: str) -> str:
    """What to do about a pattern that matches nothing; empty if nothing is known."""
    folder = split_pattern(pattern, option=option)[0]
    cure = suggest_dataset(folder if is_wild(pattern) else pattern)
    if cure:
        return cure
    if not storage.is_gcs(pattern) and not os.path.isdir(folder):
        return f"; there is no folder {folder}"
    if pattern.endswith("/"):
        return f" below it with an image extension; '{escape_pattern(pattern)}**' matches all files"
    if not is_wild(pattern):
        return f"; name a file, or several by a pattern such as '{pattern}/*'"
    return f"; `{option}={shlex.quote(folder)}` takes all images below that folder" * (
        option in ("input", "sources")
    )
