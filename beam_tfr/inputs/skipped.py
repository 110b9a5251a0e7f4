"""Reports files that a listing skips: those that are not images, and images that a pattern
misses."""

import collections
import re
import shlex
import threading
from collections.abc import Mapping, Sequence

from beam_tfr.inputs.patterns import compile_pattern, is_wild, split_pattern
from beam_tfr.schema.errors import UsageError
from beam_tfr.schema.extensions import FORMAT_OF, kind_of_name

MOST_PATTERNS = 16  # of more nothing is counted, since each file is compared with each


class SkippedFiles:
    """Counts files that match no pattern, each once; thread-safe.

    A folder skips files without an image extension. `*.jpg` skips files that `*.*` would match and
    that look like images, such as 1.JPG and 1.png; others are not counted.

    Args:
        patterns: all patterns of the call; folders end in /.
        exclude: result of `compile_exclusion`; what it matches is not counted.

    Attributes:
        kinds: kind of name, such as ".txt" -> files.
    """

    def __init__(self, patterns: Sequence[str], exclude: re.Pattern[str] | None) -> None:
        wild = sorted(filter(is_wild, patterns))
        self.kinds = collections.Counter[str]()
        self._lock = threading.Lock()
        self._reach = (
            {pattern: _reach(pattern) for pattern in wild} if len(wild) <= MOST_PATTERNS else {}
        )
        self._taken = [*map(compile_pattern, wild), *([exclude] if exclude else [])]
        self._paths = {*patterns}

    def add(self, pattern: str, path: str) -> None:
        """Counts a file that was listed for a pattern, but does not match it."""
        if (
            next(
                (other for other, reach in self._reach.items() if reach and reach.fullmatch(path)),
                "",
            )
            != pattern
        ):
            return
        is_folder = pattern.endswith("/")
        if not is_folder and not compile_pattern(f"{split_pattern(pattern)[0]}/").fullmatch(
            path
        ):  # hidden, or no image
            return
        if path in self._paths or any(regex.fullmatch(path) for regex in self._taken):
            return
        self.add_kind(path.removeprefix(pattern) if is_folder else path.rpartition("/")[2])

    def add_kind(self, path: str) -> None:
        """Counts a file by its name."""
        with self._lock:
            self.kinds[kind_of_name(path)] += 1


def _reach(pattern: str) -> re.Pattern[str] | None:
    """Matches what a pattern could have meant: all below a folder, or the same names with any
    extension."""
    if pattern.endswith("/"):
        return re.compile(f"{re.escape(pattern)}.*", re.DOTALL)
    try:
        return compile_pattern(f"{pattern.rpartition('.')[0]}.*")
    except UsageError:  # alternatives with dots in them
        return None


def describe_skipped(kinds: Mapping[str, int]) -> str:
    """Says how many files of a folder are skipped: "2 without an image extension (1 .md, 1 other
    names)"."""
    number, names = describe_kinds(kinds, images=False)
    return f"{number:,} without an image extension ({names})" if number else ""


def describe_missed(kinds: Mapping[str, int], root: str) -> str:
    """Says which images the patterns miss, and how to include them; `root` is the folder that all
    inputs share."""
    number, names = describe_kinds(kinds, images=True)
    if number:
        return f"images beside them are skipped ({names}): `input={shlex.quote(root)}` takes all images"
    return ""


def describe_kinds(kinds: Mapping[str, int], *, images: bool) -> tuple[int, str]:
    """The number of files that are images or are not, and their kinds: "10 .JPG, 3 .jpeg"."""
    chosen = {
        kind: number for kind, number in kinds.items() if (kind[1:].lower() in FORMAT_OF) == images
    }
    ordered = sorted(chosen.items(), key=lambda item: (-item[1], item[0]))
    return sum(chosen.values()), ", ".join(f"{number:,} {kind}" for kind, number in ordered)
