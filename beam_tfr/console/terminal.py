"""Handles standard streams, which may be closed, full or abandoned."""

import contextlib
import functools
import html
import io
import os
import re
import sys
from collections.abc import Iterator
from typing import IO


def open_standard_streams() -> None:
    """Opens the standard streams that are closed, and allows any text to be printed."""
    open_descriptors()
    sys.stdout = sys.stdout or open(1, "w")  # noqa: SIM115 - stays open to the end
    sys.stderr = sys.stderr or open(2, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # escapes characters that the terminal cannot show
            stream.reconfigure(errors="backslashreplace")


def open_descriptors() -> None:
    """Opens the descriptors of the standard streams that are closed.

    Without this, the next file to be opened, perhaps a shard, would get the number of a closed
    stream (`2>&-`), and receive what libraries write to standard error.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)  # takes the lowest free number: this one
            os.set_inheritable(opened, True)


def discard_stdout() -> None:
    """Drops unwritten output, so that the interpreter does not report an error at exit."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextlib.contextmanager
def own_stderr() -> Iterator[IO[str]]:
    """Opens a copy of standard error, because a local engine runs with standard error redirected.

    In a notebook, yields the stream of the cell.
    """
    with contextlib.ExitStack() as stack:
        stream: IO[str] = sys.stderr or _nowhere()  # it may be closed
        # A notebook's stream has a descriptor too, but it does not lead to the cell.
        if isinstance(stream, io.TextIOWrapper):
            with contextlib.suppress(OSError, ValueError):
                stream = stack.enter_context(
                    os.fdopen(os.dup(stream.fileno()), "w", errors="backslashreplace")
                )
        yield stream


def printable(text: str) -> str:
    r"""Escapes line ends, and invisible and control characters, such as "\u202e"."""
    return text if text.isprintable() else "".join(map(_escape, text))


def _escape(char: str) -> str:
    return char if char.isprintable() else char.encode("unicode_escape").decode()


_SECRETS = re.compile(
    r"(?<=://)[^/@\s'`]+(?=@)"
    r"|(?<=[?&#;])(?P<name>(?:[\w-]*[-_])?(?:Signature|Credential|(?:access)?token|sig"
    r"|(?:api|access|shared)?key(?:id)?|secret|password|pwd|auth(?:orization)?|GoogleAccessId)=)"
    r"[^&#;\s'`]*",
    re.IGNORECASE,
)
# Follows the path in a URL, except on gs://, where ? is a wildcard.
_QUERY = re.compile(r"(?i)(?<![a-z])(?:https?|ftps?)://[^\s'`?#;]*+[?#;][^\s'`]*+")
MOST_CHARACTERS = 500  # most characters shown of a value in a message
_LONG_WORD = re.compile(rf"\S{{{MOST_CHARACTERS + 100},}}")  # leaves room for option and value
_LONGEST_LINE = 5000  # most characters of a line of a message
_LONG_VALUE = re.compile(r"(?<![?&]project)=[^&#;]{5,}")  # a job's project is not secret


def without_secrets(text: str) -> str:
    """Masks passwords and signatures: "https://***@host/x.jpg?X-Goog-Signature=***".

    In the query of a URL, any value that is longer than a typical size or number may be a secret,
    whatever the name of its parameter.
    """
    masked = _SECRETS.sub(lambda match: f"{match['name'] or ''}***", text)
    return _QUERY.sub(lambda match: _LONG_VALUE.sub("=***", match[0]), masked)


def as_message(text: str) -> str:
    """Makes a line of a message safe to print and not too long.

    The line may contain any names and values: secrets are masked, control characters are escaped,
    and the middle of a long word, such as a path, or of a long line is left out.
    """
    line = _LONG_WORD.sub(lambda word: shorten(word[0]), without_secrets(text))
    return printable(shorten(line, most=_LONGEST_LINE))


def shorten(text: str, most: int = MOST_CHARACTERS) -> str:
    """Leaves out the middle of a string if it has more than `most` characters."""
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]}…{text[-half:]}"


def counted(number: int, noun: str, plural: str = "") -> str:
    """Formats a number with its noun: "1 record", "2,000 records", or "2 boxes" with `plural`."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


@functools.cache
def _nowhere() -> IO[str]:
    """Returns a file that drops everything written to it, and is never closed.

    Threads of an engine may still print to it after the run.
    """
    return open(os.devnull, "w")


@contextlib.contextmanager
def silent_stderr() -> Iterator[None]:
    """Drops everything written to standard error, including by C libraries and child processes."""
    inherited = os.dup(2)
    with contextlib.redirect_stderr(_nowhere()), os.fdopen(inherited):
        os.dup2(_nowhere().fileno(), 2)
        try:
            yield
        finally:
            os.dup2(inherited, 2)


def print_message(*lines: str) -> None:
    """Prints the lines of a message to standard error, if it is still open."""
    with contextlib.suppress(OSError):
        print(*map(as_message, lines), sep="\n", file=sys.stderr, flush=True)


class Printable:
    """A result that print(), a Python session and a notebook show as the same text."""

    def lines(self) -> Iterator[str]:
        """Yields the lines of the result, with options named as in Python."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return "\n".join(map(printable, self.lines()))

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(repr(self))}</pre>"
