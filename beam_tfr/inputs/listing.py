"""MatchImages: lists the files that match patterns, each once."""

from __future__ import annotations

import os
import queue
import re
import threading
from collections.abc import Iterator, Sequence

from beam_tfr import storage
from beam_tfr.inputs.patterns import WILDCARD, files_below, literal_start, split_pattern, to_regex
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
    others = [to_regex(other) for other in before]
    try:
        for entry in _list(pattern, option):
            found = True
            if exclude is not None and exclude.fullmatch(entry.path):
                continue
            if not any(other.fullmatch(entry.path) for other in others):
                yield entry
        if not found:
            hints = f"{_hint(pattern, option)}{_blanks(pattern)}"
            raise UsageError(f"matches no file{hints}", option=option, value=pattern)
    except OSError as error:
        message = f"cannot be listed: {error.filename}: {error.strerror}"
        raise UsageError(message, option=option, value=pattern) from error


def list_all(
    patterns: Sequence[tuple[str, Sequence[str]]],
    *,
    exclude: re.Pattern[str] | None = None,
    threads: int = LIST_THREADS,
) -> Iterator[storage.Entry]:
    """Lists many patterns in parallel, in any order and in bounded memory.

    Args:
        patterns: (pattern, patterns before it), of `order_patterns`.
        exclude: of `exclusion`.
        threads: maximum number of patterns listed at a time.

    Raises:
        UsageError: see `list_images`.
    """
    if len(patterns) < 2:
        for pattern, before in patterns:
            yield from list_images(pattern, before, exclude=exclude)
        return
    threads = min(threads, len(patterns))
    waiting: queue.SimpleQueue[tuple[str, Sequence[str]]] = queue.SimpleQueue()
    found: queue.Queue[list[storage.Entry] | Exception | None] = queue.Queue(maxsize=2 * threads)
    stopped = threading.Event()
    for pattern_and_before in patterns:
        waiting.put(pattern_and_before)

    def hand_on(what: list[storage.Entry] | Exception | None) -> None:
        while not stopped.is_set():
            try:
                found.put(what, timeout=0.1)
                return
            except queue.Full:
                continue

    def work() -> None:
        batch: list[storage.Entry] = []
        try:
            while not stopped.is_set():
                pattern, before = waiting.get_nowait()
                for entry in list_images(pattern, before, exclude=exclude):
                    batch.append(entry)
                    if len(batch) >= LIST_BATCH:
                        hand_on(batch)
                        batch = []
                    if stopped.is_set():
                        return
        except queue.Empty:
            hand_on(batch)
            hand_on(None)
        except Exception as error:  # noqa: BLE001 - raised by the consumer
            hand_on(error)

    for _ in range(threads):
        threading.Thread(target=work, name="beam_tfr-list", daemon=True).start()
    try:
        while threads:
            what = found.get()
            if isinstance(what, Exception):
                raise what
            if what is None:
                threads -= 1
            else:
                yield from what
    finally:
        stopped.set()


def _list(pattern: str, option: str) -> Iterator[storage.Entry]:
    if not WILDCARD.search(pattern):
        if entry := storage.find(pattern):
            yield entry
        return
    folder, rest = split_pattern(pattern, option=option)
    regex = to_regex(pattern, option=option)
    # Folders above the first ** must match their part of the pattern; below it, any folder may hold a match.
    fixed = rest.split("/")[:-1]
    levels = next((i for i, part in enumerate(fixed) if "**" in part), len(fixed))
    deep = "**" in rest
    if "{" in rest:  # alternatives may contain slashes: look everywhere
        levels, deep = 0, True
    prefixes = [to_regex("/".join([folder.rstrip("/"), *fixed[: i + 1]])) for i in range(levels)]
    base_depth = folder.rstrip("/").count("/") + 1

    def descend(path: str) -> bool:
        level = path.count("/") - base_depth
        return bool(prefixes[level].fullmatch(path)) if level < levels else deep

    start = literal_start(pattern)[len(folder.rstrip("/")) + 1 :]
    for entry in storage.walk(folder, descend, prefix=start, deep=deep or "/" in rest):
        if regex.fullmatch(entry.path):
            yield entry


def _hint(pattern: str, option: str) -> str:
    wild = WILDCARD.search(pattern)
    if storage.is_gcs(pattern):
        a_folder = not wild and next(storage.walk(pattern, lambda _: True), None) is not None
        return f"; it is a folder, use '{files_below(pattern, option)}'" if a_folder else ""
    folder = split_pattern(pattern, option=option)[0]
    if wild and os.path.isfile(pattern):
        return "; a file has this very name: write [[] for [, [{] for {, [*] for *, [?] for ?"
    if not os.path.isdir(folder):
        return f"; there is no folder {folder}"
    if os.path.isdir(pattern):
        return f"; it is a folder, use '{files_below(pattern, option)}'"
    return ""


def _blanks(pattern: str) -> str:
    part = next((part for part in pattern.split("/") if part != part.strip()), "")
    return f"; {part!r} begins or ends with blanks, which count: is that intended?" if part else ""
