"""Defines errors that users can act on, and the rejection of a single image.

A message spells an option as `name=` or `name=value` in backticks, as in Python. The command line
shows the same message with `--name` and `--name value` (`spell_as_flags`). The notation is plain
text because only the message of an error comes back from a worker.
"""

import functools
import operator
import os
import re
import shlex
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from beam_tfr.console.terminal import printable, without_secrets
from beam_tfr.schema.dataset import REJECT_REASONS
from beam_tfr.schema.untrusted import quote

TRACEBACK_VARIABLE = "BEAM_TFR_TRACEBACK"  # if set, a failed run prints its stack trace
_MOST_CHARACTERS = 500  # most characters shown of a value in a message
_FOR_SHELL = re.compile(r"[\s#&();<>|$`]")  # characters with a meaning in shells
_LONG_WORD = re.compile(rf"\S{{{_MOST_CHARACTERS + 100},}}")  # leaves room for option and value
_P = ParamSpec("_P")
_R = TypeVar("_R")
RESUME = "run the same command again to resume from the finished shards"


class BeamTfrError(Exception):
    """An error that the user can act on, shown without a stack trace.

    Its message is safe to print: long words, such as paths, are cut to 500 characters.

    Args:
        message: what is wrong, what is allowed, and how to fix it.
        option: the wrong option or argument, spelled as in Python; the message then begins with
            it.
        value: the value of the option, cut to 500 characters; if None, the message names the option
            alone.
    """

    exit_code = 1

    def __init__(self, message: str, *, option: str = "", value: object = None) -> None:
        if option:
            message = f"`{option}={_show_value(value)}`: {message}"
        message = _LONG_WORD.sub(_shorten_word, without_secrets(message))
        super().__init__(printable(message))


def _show_value(value: object) -> str:
    """Shows a value on one line; leaves out the middle of a long value."""
    if value is None:
        return ""
    try:
        text = str(value)
    except Exception:  # noqa: BLE001 - the caller's class may raise anything
        text = quote(value)
    return _shorten(text.replace("\n", "\\n"))


def _shorten(text: str) -> str:
    """Leaves out the middle of a string if it is long."""
    if len(text) <= _MOST_CHARACTERS:
        return text
    half = _MOST_CHARACTERS // 2
    return f"{text[:half]}…{text[-half:]}"


def _shorten_word(word: re.Match[str]) -> str:
    return _shorten(word[0])


class UsageError(BeamTfrError, ValueError):
    """The error for a wrong call or option."""

    exit_code = 2


class InputNotFoundError(UsageError, FileNotFoundError):
    """The error for input that does not exist, or a pattern that matches no file."""


class NotInstalledError(UsageError, ImportError):
    """The error for an extra whose library is not installed."""


class DataError(BeamTfrError):
    """The error for unusable data, or a dataset that differs from its manifest."""


class NotFoundError(DataError, FileNotFoundError):
    """The error for a dataset or file that does not exist."""


class RunError(BeamTfrError):
    """The error for a failed run, for example because the disk is full."""


class InterruptedRunError(BeamTfrError):
    """The error for a run that the user interrupted (Ctrl-C)."""

    exit_code = 130


class EngineError(Exception):
    """The error that ended a run, if it is not one of ours; made by `engine.failures`.

    Attributes:
        cause: what happened.
        cure: what to do before running the same command again.
        hint: what to add to that advice.
    """

    def __init__(self, cause: str, *, cure: str = "", hint: str = "") -> None:
        super().__init__(cause)
        self.cause = cause
        self.cure = cure
        self.hint = hint


def spell_as_flags(message: str) -> str:
    """Spells the options in an error message as command-line flags.

    A path, which has no flag, stays as it is.
    """
    message = re.sub(r"^`path=([^`]*)`", r"\1", message)
    return re.sub(r"`([a-z][a-z0-9_]*)=([^`]*)`", _spell_flag, message)


def _spell_flag(match: re.Match[str]) -> str:
    """Spells an option and its value as a flag; quotes values that need it in a shell."""
    name, value = match.groups()
    names_columns = name.endswith(("_column", "_columns"))
    is_quoted = value.startswith(("'", '"'))
    if names_columns and not is_quoted and _FOR_SHELL.search(value):
        value = shlex.quote(value)
    elif _has_commands(value):
        begin, _, rest = value.partition("'")
        middle, _, end = rest.rpartition("'")
        value = shlex.quote(f"{begin}{middle}{end}")
    return f"--{name} {value}".rstrip()


def _has_commands(value: str) -> bool:
    """Whether a shell would find more than words in a value, such as `'a';ls;'b'`.

    The names of files and columns, which may be anything, can end the quotes around them.
    """
    if '"' in value and "$" in value:  # shells evaluate $(…) between double quotes
        return True
    if "\n" in value or "\r" in value:  # a line break ends a command
        return True
    lexer = shlex.shlex(value, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        words = [*lexer]
    except ValueError:  # a quote is open
        return True
    return any(not word.strip("();<>|&") for word in words)


def describe_os_error(error: OSError) -> str:
    """Returns the file and the cause of an operating system error."""
    if error.filename is None or error.strerror is None:
        return str(error)
    return f"{error.filename}: {error.strerror}"


_STARVED = re.compile(r"MemoryError|can't start new thread")
MORE_ROOM = "raise the limits (ulimit -v, ulimit -u) or use fewer threads"


def tells_starved(text: str) -> bool:
    """Whether an error message says that memory or threads ran out."""
    return bool(_STARVED.search(text))


def describe_starved(cause: str) -> str:
    """Describes what ran out, from the last line of an error that `tells_starved` recognizes."""
    return f"out of memory, address space or threads ({cause})"


def explain_starved(error: BaseException) -> str:
    """Says what ran out, and what to do; empty if neither memory nor threads ran out."""
    cause = f"{type(error).__name__}: {error}"
    return f"{describe_starved(cause)}: {MORE_ROOM}" if tells_starved(cause) else ""


def check_text(text: str) -> str:
    """Checks and returns a string from the user.

    Raises:
        ValueError: the string has a NUL or half of a character, which no file name can have.
    """
    if "\0" in text:
        raise ValueError("must not contain the character NUL")
    try:
        text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        half = text[error.start]
        raise ValueError(f"must not contain {half!a}, which is half of a character") from None
    return text


def check_whole_number(value: Any, low: float, high: float) -> int:
    """Checks and returns a whole number, which may be a NumPy number.

    Raises:
        ValueError: the value is not a whole number, or outside the range, which includes both ends;
            the message says what is allowed.
    """
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool) or not low <= number <= high:
        raise ValueError(f"must be a whole number from {low} to {high}")
    return number


def without_traceback(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Raises our errors without the engine's stack trace, which fills three notebook screens."""

    @functools.wraps(function)
    def call(*args: _P.args, **named: _P.kwargs) -> _R:
        try:
            return function(*args, **named)
        except BeamTfrError as error:
            if os.environ.get(TRACEBACK_VARIABLE):
                raise
            raise error.with_traceback(None) from None

    return call


class RejectError(Exception):
    """The error that rejects a single image.

    Attributes:
        reason: one of `REJECT_REASONS`.
        detail: a description of the problem.
        may_pass: whether a later attempt might succeed.
    """

    def __init__(self, reason: str, detail: str, *, may_pass: bool = False) -> None:
        if reason not in REJECT_REASONS:
            raise ValueError(
                f"unknown reject reason {reason!r}, known: {', '.join(REJECT_REASONS)}"
            )
        self.reason = reason
        self.detail = without_secrets(detail)
        super().__init__(f"{reason}: {self.detail}")
        self.may_pass = may_pass
