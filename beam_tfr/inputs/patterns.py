"""Patterns: what they match, which folder they share, and where they come from.

`*` matches any characters except /, `**/` any number of folders, `?` one character, `[abc]` one of
them, `{a,b}` either. Names that begin with a dot match like any other. A path that ends in / is a
folder: it matches every file below it whose name is that of an image (`schema.extensions`). One
that ends in .zip or .tar matches archives, each of which stands for the folder of the same name
without the extension.

Functions that raise errors take `option`: the option or argument that the patterns were given for.
"""

import codecs
import functools
import itertools
import os
import re
from collections.abc import Sequence

from beam_tfr import storage
from beam_tfr.schema.errors import UsageError
from beam_tfr.schema.extensions import IMAGE_NAME, JUNK

WILDCARD = re.compile(r"[*?\[{]")
ARCHIVE = re.compile(
    r"\.(?i:zip|tar|\{(?:zip|tar)(?:,(?:zip|tar))*\})\Z"
)  # what the pattern of archives ends in
# A ] that comes first in [...] is a member.
_TOKEN = re.compile(r"(?<![^/])\*\*(?:/|\Z)|\[(?P<not>!|(?!!))(?P<members>.[^]]*)\]|.", re.DOTALL)
_REGEXES = {
    "**/": "(?:[^/]*/)*",
    "**": "(?:[^/]*/)*[^/]*",
    "*": "[^/]*",
    "?": "[^/]",
}  # gs:// allows empty names: a//b
_MEMBER = re.compile(r"(.)(?:-(.))?", re.DOTALL)  # of [...]: a character or a range


def mark_folders(patterns: Sequence[str]) -> tuple[str, ...]:
    """Gives each folder among patterns the / at its end.

    On gs://, without a request, a folder is a path without wildcards whose last name has no
    extension.
    """
    return tuple(
        f"{pattern.rstrip('/')}/" if _is_folder(pattern) else pattern for pattern in patterns
    )


def _is_folder(pattern: str) -> bool:
    if not storage.is_gcs(pattern):
        return os.path.isdir(pattern)
    name = pattern[len(storage.GCS) :].partition("/")[2]
    return pattern.endswith("/") or not (WILDCARD.search(pattern) or "." in name.rpartition("/")[2])


def is_wild(pattern: str) -> bool:
    """True if a pattern may match several files."""
    return pattern.endswith("/") or WILDCARD.search(pattern) is not None


def escape_pattern(path: str) -> str:
    """The pattern that matches only this path."""
    return WILDCARD.sub(lambda char: f"[{char[0]}]", path)


def split_pattern(pattern: str, *, option: str = "input") -> tuple[str, str]:
    """Splits a pattern before its first wildcard: ("/data/a", "*/b.jpg"). Without one the second
    part is the file name.

    For a folder, the second part is empty.

    Raises:
        UsageError: the pattern has no bucket or names no file.
    """
    slash = literal_start(pattern).rfind("/", len(storage.GCS) if storage.is_gcs(pattern) else 0)
    if slash < 0 and is_wild(pattern):
        raise UsageError(
            "the bucket must not contain wildcards: gs://BUCKET/PATTERN",
            option=option,
            value=pattern,
        )
    if slash < 0 or (slash == len(pattern) - 1 and option not in ("input", "sources")):
        raise UsageError(
            f"names no file; use '{pattern.rstrip('/')}/**'", option=option, value=pattern
        )
    return pattern[:slash] if slash else "/", pattern[slash + 1 :]


def common_root(patterns: Sequence[str]) -> str:
    """The longest folder that all patterns share before their first wildcard, with a trailing
    slash.

    Raises:
        UsageError: some are local and some on gs://.
    """
    return common_folder([_folder_of(pattern).rstrip("/") for pattern in patterns])


def _folder_of(pattern: str) -> str:
    """The folder of a pattern, before its first wildcard; that of an archive is the archive."""
    is_archive = ARCHIVE.search(pattern) and not is_wild(pattern)
    return ARCHIVE.sub("", pattern) if is_archive else split_pattern(pattern)[0]


def common_folder(folders: Sequence[str], *, option: str = "input", what: str = "patterns") -> str:
    """The longest folder that all share, with a trailing slash.

    Args:
        folders: without a trailing slash.
        option, what: what an error says they are.

    Raises:
        UsageError: some are local and some on gs://.
    """
    if len({storage.is_gcs(folder) for folder in folders}) > 1:
        raise UsageError(f"{what} must all be local or all on gs://", option=option)
    parts = [folder.split("/") for folder in folders]
    levels = itertools.takewhile(lambda level: len(set(level)) == 1, zip(*parts, strict=False))
    shared = [level[0] for level in levels]
    return "/".join(shared) + "/"


@functools.cache
def compile_pattern(pattern: str, *, option: str = "input") -> re.Pattern[str]:
    """The regular expression that matches whole paths as the pattern does.

    Raises:
        UsageError: a [ or { is not closed.
    """
    if pattern.endswith("/"):
        return re.compile(f"{re.escape(pattern)}(?:(?!{JUNK}/)[^/]*/)*{IMAGE_NAME}", re.DOTALL)
    out = ""
    depth = 0
    for token in _TOKEN.finditer(pattern):
        text = token[0]
        if text in _REGEXES:
            out += _REGEXES[text]
        elif token["members"]:
            out += f"(?!/)[{'^' * len(token['not'])}{_MEMBER.sub(_member, token['members'])}]"
        elif text == "[":
            raise UsageError(
                "[ is not closed; write [[] for the character itself", option=option, value=pattern
            )
        elif text == "{":
            out = out + "(?:"
            depth = depth + 1
        elif text == "}" and depth:
            out = out + ")"
            depth = depth - 1
        elif text == "," and depth:
            out += "|"
        else:
            out += re.escape(text)
    if depth:
        raise UsageError(
            "{ is not closed; write [{] for the character itself", option=option, value=pattern
        )
    try:
        return re.compile(out, re.DOTALL)
    except re.error as error:
        raise UsageError(f"is not a pattern: {error}", option=option, value=pattern) from None


def _member(match: re.Match[str]) -> str:
    return "-".join(map(re.escape, filter(None, match.groups())))


def literal_start(pattern: str) -> str:
    """The literal prefix of every matching path."""
    return pattern if pattern.endswith("/") else WILDCARD.split(pattern, maxsplit=1)[0]


def order_patterns(patterns: Sequence[str]) -> list[tuple[str, tuple[str, ...]]]:
    """Pairs each pattern with the patterns before it that may match the same files, so that each
    file counts once.

    Patterns with wildcards come first; a path without wildcards belongs to any of them that matches
    it. In the order of literal prefixes, the rivals of a pattern that come before it are those
    whose prefixes begin its own.

    Raises:
        UsageError: a [ or { is not closed.
    """
    ordered = sorted(
        (not is_wild(pattern), literal_start(pattern), pattern) for pattern in set(patterns)
    )
    wild: dict[str, list[str]] = {}  # literal prefix -> patterns
    found = []
    for is_path, start, pattern in ordered:
        before = [other for end in range(len(start) + 1) for other in wild.get(start[:end], ())]
        found.append((pattern, tuple(before)))
        if not is_path:
            compile_pattern(pattern)
            wild.setdefault(start, []).append(pattern)
    return found


def compile_exclusion(patterns: Sequence[str], root: str) -> re.Pattern[str] | None:
    """The regular expression of the paths that `exclude` skips; None without patterns.

    Args:
        patterns: a pattern that begins with neither / nor gs:// is matched against keys:
            `thumbs/**`, `**/*.gif`.
        root: folder that keys are relative to, with a trailing slash.

    Raises:
        UsageError: a [ or { is not closed.
    """
    parts = []
    for pattern in patterns:
        whole = storage.is_gcs(pattern) or pattern.startswith("/")
        parts.append(
            ("" if whole else re.escape(root)) + compile_pattern(pattern, option="exclude").pattern
        )
    return re.compile("|".join(f"(?:{part})" for part in parts), re.DOTALL) if parts else None


def read_lines(path: str | None, *, option: str, needs: str) -> list[str]:
    """Reads the lines of a file. Blanks count, since names may end in them.

    Args:
        path: local or gs://, None for no file; UTF-8, with or without a byte order mark. Other
            bytes are read as the file system's names are.
        option: the option that names the file.
        needs: what is to be in it.

    Raises:
        UsageError: the file cannot be read, is not text or is empty.
    """
    if path is None:
        return []
    fail = functools.partial(UsageError, option=option, value=path)
    try:
        data = storage.read_bytes(storage.check_path(path, option=option)).removeprefix(
            codecs.BOM_UTF8
        )
    except OSError as error:
        raise fail(f"cannot be read: {error.strerror or error}; give {needs}") from error
    lines = [
        os.fsdecode(line.removesuffix(b"\r")) for line in data.removesuffix(b"\n").split(b"\n")
    ]
    if b"\0" in data or not any(lines):
        problem = "is not UTF-8 text" if b"\0" in data else "is empty"
        raise fail(f"{problem}; give {needs}")
    return lines


def read_input_list(path: str | None) -> tuple[str, ...]:
    """Reads the patterns of a file, one per line; empty lines are skipped.

    Raises:
        UsageError: the file cannot be read or is empty, or a line is not a path; names the line.
    """
    patterns = []
    for number, text in enumerate(
        read_lines(path, option="input_list", needs="one path or pattern per line"), start=1
    ):
        try:
            patterns += [storage.check_path(text)] if text else []
        except UsageError as error:
            raise UsageError(f"`input_list={path}`: line {number}: {error}") from None
    return tuple(patterns)
