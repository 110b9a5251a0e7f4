"""MatchImages and ReadImages: patterns become keys, keys become bytes.

A key is the path of an image below the folder that all patterns share before their first wildcard, so that the same
images elsewhere give the same dataset. `*` stands for any characters but /, `**/` for any number of folders, `?` for
one character, `[abc]` for one of them, `{a,b}` for either. Names that begin with a dot match like any other.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import itertools
import os
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from beam_tfr import storage
from beam_tfr.schema import RejectError, UsageError

MAX_FILE_BYTES = 64 << 20  # 64 MiB; a larger file is a reject
READ_AHEAD_THREADS = 16
READ_AHEAD_IMAGES = 64
_WILDCARD = re.compile(r"[*?\[{]")


def split_pattern(pattern: str) -> tuple[str, str]:
    """(folder before the first wildcard, the rest): ("/data/a", "*/b.jpg"). Without a wildcard the rest is the file."""
    start = len(storage.GCS) if storage.is_gcs(pattern) else 0
    match = _WILDCARD.search(pattern, start)
    slash = pattern.rfind("/", start, match.start() if match else len(pattern))
    if slash < 0 and match:
        raise UsageError(f"--input {pattern}: the bucket must be written out; use gs://BUCKET/PATTERN")
    if slash < 0 or slash == len(pattern) - 1:
        raise UsageError(f"--input {pattern}: names no file; write '{pattern.rstrip('/')}/**/*.jpg'")
    return pattern[:slash] if slash else "/", pattern[slash + 1 :]


def common_root(patterns: Sequence[str]) -> str:
    """The longest folder that all patterns share before their first wildcard, with a slash at its end.

    Raises:
        UsageError: some are local and some on gs://.
    """
    folders = [split_pattern(pattern)[0] for pattern in patterns]
    if len({storage.is_gcs(folder) for folder in folders}) > 1:
        raise UsageError("--input: patterns must all be local or all on gs://")
    parts = [folder.rstrip("/").split("/") for folder in folders]
    levels = itertools.takewhile(lambda level: len(set(level)) == 1, zip(*parts, strict=False))
    shared = [level[0] for level in levels]
    return "/".join(shared) + "/"


@functools.cache
def to_regex(pattern: str) -> re.Pattern[str]:
    """The regular expression that matches whole paths as the pattern does.

    Raises:
        UsageError: a [ or { that is not closed.
    """
    out, i, depth = "", 0, 0
    while i < len(pattern):
        char = pattern[i]
        if pattern.startswith("**/", i) and (i == 0 or pattern[i - 1] == "/"):
            out += "(?:[^/]*/)*"  # also the nameless folders that names on gs:// may have: a//b
            i += 3
            continue
        if pattern[i:] == "**" and pattern[i - 1 : i] in ("", "/"):
            out += "(?:[^/]*/)*[^/]*"
            break
        if char == "*":
            out += "[^/]*"
        elif char == "?":
            out += "[^/]"
        elif char == "[":
            start = i + 2 if pattern.startswith("!", i + 1) else i + 1
            end = pattern.find("]", start + 1)  # a ] that comes first is a member
            if end < 0:
                raise UsageError(f"--input {pattern}: [ is not closed; write [[] for the character itself")
            out += f"(?!/)[{'^' if start == i + 2 else ''}{_members(pattern[start:end])}]"
            i = end
        elif char == "{":
            out, depth = out + "(?:", depth + 1
        elif char == "}" and depth:
            out, depth = out + ")", depth - 1
        elif char == "," and depth:
            out += "|"
        else:
            out += re.escape(char)
        i += 1
    if depth:
        raise UsageError(f"--input {pattern}: {{ is not closed; write [{{] for the character itself")
    try:
        return re.compile(out, re.DOTALL)
    except re.error as error:
        raise UsageError(f"--input {pattern}: is no pattern: {error}") from None


def _members(text: str) -> str:
    """The inside of [...] as that of a regular expression: single characters and ranges, all else by the letter."""
    out, i = "", 0
    while i < len(text):
        if text[i + 1 : i + 2] == "-" and i + 2 < len(text):
            out += f"{re.escape(text[i])}-{re.escape(text[i + 2])}"
            i += 3
        else:
            out += re.escape(text[i])
            i += 1
    return out


def order_patterns(patterns: Sequence[str]) -> list[tuple[str, tuple[str, ...]]]:
    """Each pattern once, with those that a file which matches several of them belongs to before it.

    Patterns with wildcards come first, sorted; a path written out belongs to any of them that matches it.

    Raises:
        UsageError: a [ or { that is not closed.
    """
    ordered = sorted(set(patterns), key=lambda pattern: (not _WILDCARD.search(pattern), pattern))
    wild = tuple(pattern for pattern in ordered if _WILDCARD.search(pattern))
    for pattern in wild:
        to_regex(pattern)
    return [(pattern, wild[:i]) for i, pattern in enumerate(ordered)]


def list_images(pattern: str, before: Sequence[str]) -> Iterator[storage.Entry]:
    """The files that match a pattern and none of the patterns `before` it.

    Raises:
        UsageError: nothing matches, the bucket or folder is not there or may not be listed.
    """
    found = False
    others = [to_regex(other) for other in before]
    try:
        for entry in _list_all(pattern):
            found = True
            if not any(other.fullmatch(entry.path) for other in others):
                yield entry
        if not found:
            raise UsageError(f"--input {pattern}: matches no file{_hint(pattern)}")
    except (storage.ListError, OSError) as error:
        said = getattr(error, "strerror", None) or error
        raise UsageError(f"--input {pattern}: cannot be listed: {said}") from error


def _list_all(pattern: str) -> Iterator[storage.Entry]:
    if not _WILDCARD.search(pattern):
        if entry := storage.find(pattern):
            yield entry
        return
    folder, rest = split_pattern(pattern)
    regex = to_regex(pattern)
    # Folders above the first ** must fit their part of the pattern; below it any folder may hold a match.
    fixed = rest.split("/")[:-1]
    levels = next((i for i, part in enumerate(fixed) if "**" in part), len(fixed))
    deep = "**" in rest
    if "{" in rest:  # alternatives may hold slashes: look everywhere
        levels, deep = 0, True
    prefixes = [to_regex("/".join([folder.rstrip("/"), *fixed[: i + 1]])) for i in range(levels)]
    base_depth = folder.rstrip("/").count("/") + 1

    def descend(path: str) -> bool:
        level = path.count("/") - base_depth
        return bool(prefixes[level].fullmatch(path)) if level < levels else deep

    for entry in storage.walk(folder, descend):
        if regex.fullmatch(entry.path):
            yield entry


def _hint(pattern: str) -> str:
    wild = _WILDCARD.search(pattern)
    if storage.is_gcs(pattern):
        a_folder = not wild and next(storage.walk(pattern, lambda _: True), None) is not None
        return f"; it is a folder, write '{pattern.rstrip('/')}/**/*.jpg'" if a_folder else ""
    folder = split_pattern(pattern)[0]
    if wild and os.path.isfile(pattern):
        return "; there is a file of this very name: write [[] for [, [{] for {, [*] for *, [?] for ?"
    if not os.path.isdir(folder):
        return f"; there is no folder {folder}"
    if os.path.isdir(pattern):
        return f"; it is a folder, write '{pattern.rstrip('/')}/**/*.jpg'"
    return ""


def read_image(path: str, *, max_bytes: int = MAX_FILE_BYTES) -> bytes:
    """The bytes of one source file.

    Raises:
        RejectError: `not-found`, `unreadable`, `empty-file` or `file-too-large`.
    """
    try:
        data = storage.read_bytes(path, max_bytes=max_bytes)
    except FileNotFoundError as error:
        raise RejectError("not-found", error.strerror or str(error)) from error
    except OSError as error:
        raise RejectError("unreadable", error.strerror or str(error), may_pass=storage.may_pass(error)) from error
    if not data:
        raise RejectError("empty-file", "0 bytes")
    if len(data) > max_bytes:
        raise RejectError("file-too-large", f"more than {max_bytes} bytes")
    return data


@dataclasses.dataclass
class ReadAhead:
    """Reads many files in order, some ahead of the consumer, so that latency costs nothing once the pool is full.

    Local files are read in the caller's thread: they come from the page cache or at the disk's own speed, and a
    hand-over between threads costs more than it hides.
    """

    max_bytes: int = MAX_FILE_BYTES
    threads: int = READ_AHEAD_THREADS
    images: int = READ_AHEAD_IMAGES
    _pool: ThreadPoolExecutor | None = None

    def read(self, paths: Sequence[str | None]) -> Iterator[bytes | RejectError | None]:
        """What each path holds, in order, or why it cannot be read; None for None."""
        if not any(path and storage.is_gcs(path) for path in paths):
            yield from map(self._read_one, paths)
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.threads, thread_name_prefix="beam_tfr-read")
        pending: collections.deque[Future[bytes | RejectError | None]] = collections.deque()
        for path in paths:
            pending.append(self._pool.submit(self._read_one, path))
            if len(pending) >= self.images:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None

    def _read_one(self, path: str | None) -> bytes | RejectError | None:
        if path is None:
            return None
        try:
            return read_image(path, max_bytes=self.max_bytes)
        except RejectError as error:
            return error
