"""MatchImages: lists the files that match patterns, each once."""

from __future__ import annotations

import collections
import itertools
import os
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import Future

from beam_tfr import storage
from beam_tfr.inputs.patterns import WILDCARD, files_below, literal_start, split_pattern, to_regex
from beam_tfr.inputs.pool import Pool
from beam_tfr.schema import UsageError

LIST_THREADS = 32
LIST_BATCH = 1000  # files passed on at a time


def list_images(
    pattern: str, before: Sequence[str] = (), *, exclude: re.Pattern[str] | None = None, option: str = "input"
) -> Iterator[storage.Entry]:
    """Lists the files that match a pattern, but neither a pattern `before` it nor `exclude`.

    Args:
        pattern: local or gs://.
        before: of `order_patterns`.
        exclude: of `exclusion`.
        option: the option or argument that the pattern was given for.

    Raises:
        UsageError: nothing matches, or the bucket or folder is missing or cannot be listed.
    """
    found = False
    left_out = [*map(to_regex, before), *([exclude] if exclude else [])]
    try:
        for entry in _list(pattern, option):
            found = True
            if not any(regex.fullmatch(entry.path) for regex in left_out):
                yield entry
        if not found:
            raise UsageError(f"matches no file{_hints(pattern, option)}", option=option, value=pattern)
    except OSError as error:
        message = f"cannot be listed: {error.filename}: {error.strerror}"
        raise UsageError(message, option=option, value=pattern) from error


def list_all(
    patterns: Sequence[tuple[str, Sequence[str]]], *, exclude: re.Pattern[str] | None = None
) -> Iterator[storage.Entry]:
    """Lists many patterns in parallel, in any order and in bounded memory.

    Args:
        patterns: (pattern, patterns before it), of `order_patterns`.
        exclude: of `exclusion`.

    Raises:
        UsageError: see `list_images`.
    """
    pool = Pool(LIST_THREADS, "beam_tfr-list")

    def next_batch(files: Iterator[storage.Entry]) -> Future[list[storage.Entry]]:
        return pool.submit(lambda: list(itertools.islice(files, LIST_BATCH)))

    parts = [
        itertools.chain.from_iterable(list_images(*pair, exclude=exclude) for pair in patterns[i::LIST_THREADS])
        for i in range(min(LIST_THREADS, len(patterns)))
    ]
    ahead = collections.deque((part, next_batch(part)) for part in parts)
    try:
        while ahead:
            part, batch = ahead.popleft()
            if files := batch.result():
                ahead.append((part, next_batch(part)))
                yield from files
    finally:
        pool.close()


def _list(pattern: str, option: str) -> Iterator[storage.Entry]:
    if not WILDCARD.search(pattern):
        if entry := storage.find(pattern):
            yield entry
        return
    folder, rest = split_pattern(pattern, option=option)
    regex = to_regex(pattern, option=option)
    # A folder above the first ** must match its part of the pattern; below it, any folder may hold a match, and beside
    # alternatives too, which may contain slashes.
    parts, deep = rest.split("/"), "**" in rest or "{" in rest
    fixed = [] if "{" in rest else itertools.takewhile(lambda part: "**" not in part, parts[:-1])
    base = folder.rstrip("/")
    folders = [*map(to_regex, itertools.accumulate([base, *fixed], "{}/{}".format))]

    def descend(path: str) -> bool:
        level = path.count("/") - base.count("/")
        return bool(folders[level].fullmatch(path)) if level < len(folders) else deep

    start = literal_start(pattern)[len(base) + 1 :]
    for entry in storage.walk(folder, descend, prefix=start, deep=deep or len(parts) > 1):
        if regex.fullmatch(entry.path):
            yield entry


def _hints(pattern: str, option: str) -> str:
    """What may be wrong with a pattern that matches nothing."""
    wild, hint = WILDCARD.search(pattern), ""
    folder = split_pattern(pattern, option=option)[0]
    if not wild and next(storage.walk(pattern, lambda _: True), None):
        hint = f"; it is a folder, use '{files_below(pattern, option)}'"
    elif not storage.is_gcs(pattern) and wild and os.path.isfile(pattern):
        hint = "; a file has this very name: write [[] for [, [{] for {, [*] for *, [?] for ?"
    elif not storage.is_gcs(pattern) and not os.path.isdir(folder):
        hint = f"; there is no folder {folder}"
    part = next((part for part in pattern.split("/") if part != part.strip()), "")
    return hint + (f"; {part!r} begins or ends with blanks, which count: is that intended?" if part else "")
