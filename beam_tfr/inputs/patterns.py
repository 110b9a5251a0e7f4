"""Patterns: which paths they match, which folder they share, and where they come from.

`*` stands for any characters but /, `**/` for any number of folders, `?` for one character, `[abc]` for one of them,
`{a,b}` for either. Names that begin with a dot match like any other.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import os
import re
from collections.abc import Iterator, Sequence

from beam_tfr import storage
from beam_tfr.schema import UsageError

WILDCARD = re.compile(r"[*?\[{]")
BATCHES = 64
MAX_LIST_BYTES = 1 << 30  # 1 GiB of --input_list


def split_pattern(pattern: str) -> tuple[str, str]:
    """(folder before the first wildcard, the rest): ("/data/a", "*/b.jpg"). Without a wildcard the rest is the file."""
    start = len(storage.GCS) if storage.is_gcs(pattern) else 0
    match = WILDCARD.search(pattern, start)
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
    folders = [split_pattern(pattern)[0].rstrip("/") for pattern in patterns]
    return common_folder(folders, "--input: patterns")


def common_folder(folders: Sequence[str], what: str) -> str:
    """The longest folder that all have in common, with a slash at its end.

    Args:
        folders: without one.
        what: they are, for an error.

    Raises:
        UsageError: some are local and some on gs://.
    """
    if len({storage.is_gcs(folder) for folder in folders}) > 1:
        raise UsageError(f"{what} must all be local or all on gs://")
    parts = [folder.split("/") for folder in folders]
    levels = itertools.takewhile(lambda level: len(set(level)) == 1, zip(*parts, strict=False))
    shared = [level[0] for level in levels]
    return "/".join(shared) + "/"


@functools.cache
def to_regex(pattern: str, flag: str = "--input") -> re.Pattern[str]:
    """The regular expression that matches whole paths as the pattern does; errors name the flag.

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
                raise UsageError(f"{flag} {pattern}: [ is not closed; write [[] for the character itself")
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
        raise UsageError(f"{flag} {pattern}: {{ is not closed; write [{{] for the character itself")
    try:
        return re.compile(out, re.DOTALL)
    except re.error as error:
        raise UsageError(f"{flag} {pattern}: is no pattern: {error}") from None


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


def has_wildcard(pattern: str) -> bool:
    return WILDCARD.search(pattern) is not None


def literal_start(pattern: str) -> str:
    """What every path that matches begins with."""
    match = WILDCARD.search(pattern)
    return pattern[: match.start()] if match else pattern


def order_patterns(patterns: Sequence[str]) -> list[tuple[str, tuple[str, ...]]]:
    """Each pattern once, with those that a file which matches several of them belongs to before it.

    Patterns with wildcards come first, sorted; a path written out belongs to any of them that matches it. Only those
    that can match the same files, by their beginnings, are named: of thousands few.

    Raises:
        UsageError: a [ or { that is not closed.
    """
    ordered = sorted(set(patterns), key=lambda pattern: (not WILDCARD.search(pattern), pattern))
    wild = [pattern for pattern in ordered if WILDCARD.search(pattern)]
    by_start: dict[str, list[int]] = {}
    for i, pattern in enumerate(wild):
        to_regex(pattern)
        by_start.setdefault(literal_start(pattern), []).append(i)
    starts = sorted(by_start)

    def rivals(pattern: str, number: int) -> Iterator[str]:
        start = literal_start(pattern)
        shorter = (start[:length] for length in range(len(start)))
        longer = itertools.takewhile(
            lambda other: other.startswith(start), itertools.islice(starts, bisect.bisect_left(starts, start), None)
        )
        found = itertools.chain.from_iterable(by_start.get(other, ()) for other in itertools.chain(shorter, longer))
        yield from (wild[i] for i in sorted(found) if i < number)

    return [(pattern, tuple(rivals(pattern, i))) for i, pattern in enumerate(ordered)]


def exclusion(patterns: Sequence[str], root: str) -> re.Pattern[str] | None:
    """The regular expression of the paths that --exclude leaves out; None without patterns.

    Args:
        patterns: like those of --input; one that begins with neither / nor gs:// is matched with the key: `thumbs/**`,
            `**/*.gif`.
        root: folder that the keys are below, with a slash at its end.

    Raises:
        UsageError: a [ or { that is not closed.
    """
    parts = []
    for pattern in patterns:
        whole = storage.is_gcs(pattern) or pattern.startswith("/")
        parts.append(("" if whole else re.escape(root)) + to_regex(pattern, "--exclude").pattern)
    return re.compile("|".join(f"(?:{part})" for part in parts), re.DOTALL) if parts else None


def all_patterns(patterns: Sequence[str], input_list: str | None) -> tuple[str, ...]:
    """Those of --input and those of the file that --input_list names, if any. Raises what `read_input_list` does."""
    return (*patterns, *(read_input_list(input_list) if input_list else ()))


def batches(ordered: Sequence[tuple[str, tuple[str, ...]]]) -> Iterator[Sequence[tuple[str, tuple[str, ...]]]]:
    """The patterns in portions that are listed together: few have a worker each."""
    size = -(-len(ordered) // BATCHES)
    for start in range(0, len(ordered), size):
        yield ordered[start : start + size]


def read_input_list(path: str) -> tuple[str, ...]:
    """The patterns of a file, one a line, as --input takes them; empty lines are passed over. Blanks at the end of a
    line count, as names may have them.

    Args:
        path: local or gs://; UTF-8, with or without a byte order mark. Names that are not UTF-8 are read as the file
            system has them.

    Raises:
        UsageError: the file cannot be read, holds nothing, or a line is no path; names the line.
    """
    try:
        data = storage.read_bytes(path, max_bytes=MAX_LIST_BYTES)
    except OSError as error:
        raise UsageError(f"--input_list {path}: cannot be read: {error.strerror or error}") from error
    if len(data) > MAX_LIST_BYTES:
        raise UsageError(f"--input_list {path}: has more than {MAX_LIST_BYTES} bytes; use patterns")
    if b"\0" in data:
        raise UsageError(f"--input_list {path}: is no text file; give one URI or pattern a line, in UTF-8")
    patterns = []
    for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        if text := os.fsdecode(line.removesuffix(b"\r")):
            where = f"--input_list {path}, line {number}:"
            if text[0].isspace() and text.lstrip().startswith(("/", storage.GCS)):
                raise UsageError(f"{where} {text!r} begins with blanks; take them away")
            try:
                patterns.append(storage.check_path(text))
            except UsageError as error:
                raise UsageError(f"{where} {error}") from None
    if not patterns:
        raise UsageError(f"--input_list {path}: is empty; give one URI or pattern a line")
    return tuple(patterns)
