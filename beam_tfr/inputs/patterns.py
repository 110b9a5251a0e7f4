"""Compiles patterns, finds the folder that they share, and reads lists of patterns.

`*` matches any characters except /, `**/` any number of folders, `?` one character, `[abc]` one of
these characters, and `{a,b}` either name. `{000..131}` is expanded beforehand
(`schema.number_ranges`). Names that begin with a dot match like any other. A path that ends in / is
a folder: it matches every file below it that is named like an image (`schema.extensions`). A path
that ends in .zip or .tar matches archives, each of which stands for the folder with its path
without the extension.

Functions that raise errors have the argument `option`: the option or argument that specifies the
patterns.
"""

import codecs
import functools
import itertools
import os
import re
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from beam_tfr import storage
from beam_tfr.schema.differences import common_start
from beam_tfr.schema.errors import UsageError
from beam_tfr.schema.extensions import IMAGE_NAME, JUNK
from beam_tfr.schema.spelling import quote_word, spell_option
from beam_tfr.schema.wildcards import WILDCARD, escape_pattern

OPTIONS_OF_IMAGES = ("input", "sources")  # their patterns may be folders and archives
NOTHING = re.compile("(?!)")
EVERYTHING = re.compile(".*", re.DOTALL)
MAX_LIST_BYTES = 256 << 20  # 256 MiB for a file with a name, path or pattern per line
MAX_LINES = 5_000_000  # in such a file
# The end of a pattern that matches archives.
ARCHIVE = re.compile(r"\.(?i:zip|tar|\{(?:zip|tar)(?:,(?:zip|tar))*\})\Z")
# A ] that comes first in [...] is a member.
_TOKEN = re.compile(r"(?<![^/])\*\*(?:/|\Z)|\[(?P<not>!|(?!!))(?P<members>.[^]]*)\]|.", re.DOTALL)
_REGEXES = {
    "**/": "(?:[^/]*/)*",  # gs:// allows empty names: a//b
    "**": "(?:[^/]*/)*[^/]*",
    "*": "[^/]*",
    "?": "[^/]",
}
_ANY_LENGTH = ("*", "**", "**/")
_MOST_WILDCARDS = 500  # counting the characters that begin one
_MOST_COMBINATIONS = 1000  # of alternatives in braces, if wildcards are in or before braces
# Pairs of patterns that may match the same files: a total, and an allowance per pattern.
_MOST_PAIRS = 2_000_000
_MOST_PAIRS_EACH = 16
_MEMBER = re.compile(r"(.)(?:-(.))?", re.DOTALL)  # in [...]: a character or a range


def mark_folders(patterns: Sequence[str]) -> tuple[str, ...]:
    """Appends / to each folder among the patterns, and escapes the names of existing files.

    On gs://, where no request is sent, a folder is a path without wildcards whose last name has no
    extension.
    """
    return tuple(map(_mark_folder, patterns))


def _mark_folder(pattern: str) -> str:
    if storage.is_gcs(pattern):
        name = storage.split_gcs(pattern)[1].rpartition("/")[2]
        is_folder = not WILDCARD.search(pattern) and "." not in name
    else:
        is_folder = os.path.isdir(pattern)
    return f"{pattern.rstrip('/')}/" if is_folder else escape_if_file(pattern)


def is_wild(pattern: str) -> bool:
    """Whether a pattern may match several files."""
    return pattern.endswith("/") or WILDCARD.search(pattern) is not None


def escape_if_file(pattern: str) -> str:
    """Escapes a pattern that is the path of a file on disk; returns other patterns unchanged.

    The name of a file may contain brackets, braces and so on.
    """
    is_file = not storage.is_gcs(pattern) and os.path.isfile(pattern)
    return escape_pattern(pattern) if is_file else pattern


def split_pattern(pattern: str, *, option: str = "input") -> tuple[str, str]:
    """Splits a pattern before its first wildcard: ("/data/a", "*/b.jpg").

    Without a wildcard, the second part is the file name; for a folder it is empty.

    Raises:
        UsageError: the pattern has no bucket or no file name.
    """
    scheme = storage.GCS if storage.is_gcs(pattern) else ""
    slash = literal_start(pattern).rfind("/", len(scheme))
    if slash < 0 and is_wild(pattern):
        raise UsageError(
            "the bucket must not contain wildcards: gs://BUCKET/PATTERN",
            option=option,
            value=pattern,
        )
    folder = pattern[:slash] or "/"
    rest = pattern[slash + 1 :]
    is_misplaced_folder = not rest and option not in OPTIONS_OF_IMAGES
    if slash < 0 or is_misplaced_folder:
        raise UsageError(
            f"names no file; use {quote_word(pattern.rstrip('/') + '/**', 'FOLDER/**')}",
            option=option,
            value=pattern,
        )
    return folder, rest


def common_root(patterns: Sequence[str]) -> str:
    """Returns the longest folder that all patterns share, with a final slash.

    Raises:
        UsageError: some are local and some on gs://.
    """
    return common_folder([_folder_of(pattern).rstrip("/") for pattern in patterns])


def _folder_of(pattern: str) -> str:
    """Returns the folder of a pattern before its first wildcard; an archive is its own folder."""
    if ARCHIVE.search(pattern) and not is_wild(pattern):
        return ARCHIVE.sub("", pattern)
    return split_pattern(pattern)[0]


def common_folder(folders: Sequence[str], *, option: str = "input", noun: str = "patterns") -> str:
    """Returns the longest folder that all folders share, with a trailing slash.

    Args:
        folders: folders without a trailing slash.
        option, noun: the option, and what messages call the folders.

    Raises:
        UsageError: some are local and some on gs://.
    """
    if len({storage.is_gcs(folder) for folder in folders}) > 1:
        raise UsageError(f"{noun} must all be local or all on gs://", option=option)
    shared = common_start([folder.split("/") for folder in folders])
    return "/".join(shared) + "/"


@functools.cache
def compile_pattern(pattern: str, *, option: str = "input") -> re.Pattern[str]:
    """Returns the regular expression that matches the same whole paths as the pattern.

    Raises:
        UsageError: a [ or { is not closed.
    """
    if pattern.endswith("/"):
        return re.compile(f"{re.escape(pattern)}(?:(?!{JUNK}/)[^/]*/)*{IMAGE_NAME}", re.DOTALL)
    try:
        return re.compile(_translate(pattern), re.DOTALL)
    except re.error as error:
        raise UsageError(f"is not a pattern: {error}", option=option, value=pattern) from None
    except ValueError as error:
        raise UsageError(str(error), option=option, value=pattern) from None


class _Part(NamedTuple):
    """A part of a pattern: a token, or a pair of braces with everything between them.

    Attributes:
        text: the token; "{" for braces.
        regex: the regular expression for the part.
        members: the parts of each alternative in braces.
    """

    text: str
    regex: str
    members: "tuple[tuple[_Part, ...], ...]" = ()


def _translate(pattern: str) -> str:
    """Translates a pattern into a regular expression.

    Raises:
        ValueError: a [ or { is not closed, or the pattern may take too long.
    """
    tokens = _TOKEN.finditer(pattern)
    if len(WILDCARD.findall(pattern)) > _MOST_WILDCARDS:
        raise ValueError(f"has more than {_MOST_WILDCARDS} wildcards")
    parts = _read_parts(tokens, in_braces=False)
    if not _match_in_many_ways(parts):
        return _join_parts(parts)
    combinations = _count_combinations(parts)
    if combinations > _MOST_COMBINATIONS:
        raise ValueError(
            f"has {combinations:,} combinations of alternatives in {{…}}, with wildcards in or "
            f"before the braces; at most {_MOST_COMBINATIONS:,} are allowed: use several patterns"
        )
    regex = "|".join(map(_join_parts, _combine(parts)))
    return f"(?:{regex})"


def _match_in_many_ways(parts: Sequence[_Part]) -> bool:
    """Whether a wildcard may be tried several times because braces surround or follow it.

    Each such wildcard multiplies the time to match a name.
    """
    for number, part in enumerate(parts):
        if any(other.text in _ANY_LENGTH for member in part.members for other in member):
            return True
        if any(map(_match_in_many_ways, part.members)):
            return True
        following = _find_following(parts, number) if part.text in _ANY_LENGTH else None
        if following and any(other.members for other in parts[number:following]):
            return True
    return False


def _count_combinations(parts: Sequence[_Part]) -> int:
    """Counts the patterns without braces that together match the same paths as the parts."""
    combinations = 1
    for part in parts:
        if part.members:
            combinations *= sum(map(_count_combinations, part.members))
    return combinations


def _combine(parts: Sequence[_Part]) -> Iterator[list[_Part]]:
    """Yields the patterns without braces that together match the same paths as the parts."""
    choices = list[list[list[_Part]]]()
    for part in parts:
        if part.members:
            choices.append([*itertools.chain.from_iterable(map(_combine, part.members))])
        else:
            choices.append([[part]])
    for combination in itertools.product(*choices):
        yield [*itertools.chain.from_iterable(combination)]


def _read_parts(tokens: Iterator[re.Match[str]], *, in_braces: bool) -> list[_Part]:
    """Reads the parts of a pattern, or of an alternative in braces, which ends in "," or "}"."""
    parts = list[_Part]()
    for token in tokens:
        match token[0]:
            case "[":
                raise ValueError("[ is not closed; write [[] for the character itself")
            case "{":
                parts.append(_read_braces(tokens))
            case "," | "}" as end if in_braces:
                return [*parts, _Part(end, "")]
            case text:
                regex = _translate_members(token) or _REGEXES.get(text, re.escape(text))
                parts.append(_Part(text, regex))
    if in_braces:
        raise ValueError("{ is not closed; write [{] for the character itself")
    return parts


def _read_braces(tokens: Iterator[re.Match[str]]) -> _Part:
    """Reads the alternatives in braces, after the opening brace."""
    members = list[tuple[_Part, ...]]()
    end = ","
    while end == ",":
        *parts, last = _read_parts(tokens, in_braces=True)
        end = last.text
        members.append(tuple(parts))
    regex = "|".join("".join(part.regex for part in member) for member in members)
    return _Part("{", f"(?:{regex})", tuple(members))


def _join_parts(parts: Sequence[_Part]) -> str:
    """Joins the parts of a pattern into a regular expression.

    A wildcard that is followed by the same wildcard matches as little as possible, and is never
    tried again, because the text between the two has a fixed length: in characters of a name, or in
    names of a path. So the time is linear in the number of wildcards.
    """
    regex = ""
    closing = list[int]()  # where the open groups end
    for number, part in enumerate(parts):
        while closing and closing[-1] == number:
            regex += ")"
            closing.pop()
        following = _find_following(parts, number) if part.text in _ANY_LENGTH else None
        if following is None:
            regex += part.regex
        else:
            regex += f"(?>{part.regex}?"
            closing.append(following)
    return regex + ")" * len(closing)


def _find_following(parts: Sequence[_Part], number: int) -> int | None:
    """Returns the position of the next part with the same wildcard; for `*`, in the same name."""
    wildcard = parts[number].text
    for following in range(number + 1, len(parts)):
        text = parts[following].text
        if text == wildcard:
            return following
        if wildcard == "*" and text in ("/", "**/", "**"):
            return None
    return None


def _translate_members(token: re.Match[str]) -> str:
    """Returns the regular expression for a token [...], or "" for any other token."""
    if not token["members"]:
        return ""
    members = _MEMBER.sub(_escape_member, token["members"])
    negation = "^" if token["not"] else ""
    return f"(?!/)[{negation}{members}]"


def _escape_member(member: re.Match[str]) -> str:
    characters = filter(None, member.groups())
    return "-".join(map(re.escape, characters))


def literal_start(pattern: str) -> str:
    """Returns the literal prefix that all matching paths share."""
    if pattern.endswith("/"):
        return pattern
    return WILDCARD.split(pattern, maxsplit=1)[0]


def order_patterns(
    patterns: Sequence[str], *, option: str = "input"
) -> list[tuple[str, tuple[str, ...]]]:
    """Pairs each pattern with the earlier patterns that may match the same files.

    With these pairs, each file counts once. Patterns with wildcards come first; a path without
    wildcards belongs to any such pattern that matches it. With patterns sorted by literal prefix,
    an earlier pattern may match the same files only if the later prefix begins with its own.

    Raises:
        UsageError: a [ or { is not closed, or too many patterns may match the same files.
    """
    ordered = sorted(
        set(patterns), key=lambda pattern: (not is_wild(pattern), literal_start(pattern), pattern)
    )
    rivals: dict[str, list[str]] = {}  # literal prefix -> patterns with wildcards
    pairs = []
    room = _MOST_PAIRS + _MOST_PAIRS_EACH * len(ordered)
    for pattern in ordered:
        start = literal_start(pattern)
        before: list[str] = []
        for end in range(len(start) + 1):
            before += rivals.get(start[:end], ())
        room -= len(before)
        if room < 0:
            raise UsageError(
                f"too many of the {len(ordered):,} patterns may match the same files: join "
                "patterns that begin alike into one, or list the paths of the files",
                option=option,
            )
        pairs.append((pattern, tuple(before)))
        if is_wild(pattern):
            compile_pattern(pattern)  # raises an error if it is not a pattern
            rivals.setdefault(start, []).append(pattern)
    return pairs


def compile_exclusion(patterns: Sequence[str], root: str) -> re.Pattern[str]:
    """Returns the regular expression for the paths that `exclude` skips, or `NOTHING`.

    Args:
        patterns: patterns of `exclude`; unless they begin with / or gs://, they are matched against
            keys: `thumbs/**`, `**/*.gif`.
        root: folder that keys are relative to, with a trailing slash.

    Raises:
        UsageError: a [ or { is not closed.
    """
    regexes = []
    for pattern in patterns:
        is_whole_path = pattern.startswith(("/", storage.GCS))
        folder = "" if is_whole_path else re.escape(root)
        regex = compile_pattern(pattern, option="exclude").pattern
        regexes.append(f"(?:{folder}{regex})")
    return re.compile("|".join(regexes), re.DOTALL) if regexes else NOTHING


def compile_exclusions(patterns: Sequence[str], root: str) -> list[re.Pattern[str]]:
    """Returns the regular expression for each pattern of `exclude`; see `compile_exclusion`."""
    return [compile_exclusion([pattern], root) for pattern in patterns]


def describe_unused(patterns: Sequence[str], used: Collection[int], root: str) -> list[str]:
    """Returns messages about patterns of `exclude` that match no file.

    Args:
        patterns: the patterns of the option.
        used: 1-based numbers of the patterns that match a file.
        root: folder that keys are relative to, with a trailing slash.
    """
    messages = []
    for number, pattern in enumerate(patterns, start=1):
        is_told = bool(describe_misplaced([pattern], root))
        if number not in used and not is_told:
            messages.append(
                f"{spell_option('exclude', pattern)} leaves out nothing: no file matches it; "
                f"patterns are relative to {root}, and `exclude='thumbs/**'` matches all files "
                "below a folder"
            )
    return messages


def describe_misplaced(patterns: Sequence[str], root: str) -> list[str]:
    """Returns messages about patterns of `exclude` that are relative to the current folder.

    They match nothing, since patterns are relative to the folder that all inputs share.

    Args:
        patterns: the patterns of the option.
        root: the folder that all inputs share, with a trailing slash.
    """
    messages = []
    for pattern in patterns:
        if storage.is_gcs(root) or pattern.startswith(("/", storage.GCS)):
            continue
        meant = os.path.abspath(pattern).removeprefix(root)
        first = pattern.partition("/")[0]
        is_there = first not in (".", "..") and os.path.lexists(f"{root}{first}")
        if meant in (pattern, os.path.abspath(pattern)) or is_wild(first) or is_there:
            continue
        messages.append(
            f"{spell_option('exclude', pattern)} leaves out nothing, since patterns are relative "
            f"to {root}: use {spell_option('exclude', meant)}"
        )
    return messages


def read_lines(path: str | None, *, option: str, needs: str) -> list[str]:
    """Reads the lines of a file; keeps spaces at either end, which names may have too.

    Args:
        path: local or gs://, or None for no file. The file is UTF-8, with or without a byte order
            mark; other bytes are read as in file names.
        option: the option that specifies the file.
        needs: what the file should contain.

    Raises:
        UsageError: the file cannot be read, is too long, is not text or is empty.
    """
    if path is None:
        return []
    try:
        data = storage.read_bytes(storage.check_path(path, option=option), max_bytes=MAX_LIST_BYTES)
    except OSError as error:
        problem = f"cannot be read: {error.strerror or error}"
        raise UsageError(f"{problem}; give {needs}", option=option, value=path) from error
    return parse_lines(data, path, option=option, needs=needs)


def parse_lines(data: bytes, path: str, *, option: str, needs: str) -> list[str]:
    """Returns the lines in the content of a file; see `read_lines`.

    Raises:
        UsageError: the content is not text, is empty, or has too many lines or bytes.
    """
    if len(data) > MAX_LIST_BYTES or data.count(b"\n") > MAX_LINES:
        problem = f"has more than {MAX_LIST_BYTES >> 20} MiB, or {MAX_LINES:,} lines"
        raise UsageError(f"{problem}; give {needs}", option=option, value=path)
    if b"\0" in data:
        raise UsageError(f"is not UTF-8 text; give {needs}", option=option, value=path)
    lines = data.removeprefix(codecs.BOM_UTF8).removesuffix(b"\n").split(b"\n")
    names = [os.fsdecode(line.removesuffix(b"\r")) for line in lines]
    if not any(names):
        raise UsageError(f"is empty; give {needs}", option=option, value=path)
    return names
