"""Defines errors that users can act on, and the rejection of a single image."""

import functools
import operator
import os
import re
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from beam_tfr.console.terminal import as_message, printable, shorten, without_secrets
from beam_tfr.schema.dataset import REJECT_REASONS
from beam_tfr.schema.untrusted import quote

TRACEBACK_VARIABLE = "BEAM_TFR_TRACEBACK"  # if set, a failed run prints its stack trace
# What Beam adds to the first argument of an error; here it follows the whole message, whose end it
# marks for `engine.failures`.
_STEP = re.compile(r" \[while running '[^']*'\]\Z")
_P = ParamSpec("_P")
_R = TypeVar("_R")
RESUME = "run the same command again to resume from the finished shards"


class BeamTfrError(Exception):
    """An error that the user can act on, shown without a stack trace.

    Its message is safe to print: see `as_message`.

    Args:
        lines: what is wrong, what is allowed, and how to fix it; usually one line. Line ends in
            these strings are escaped, since they can only come from names and values.
        option: the wrong option or argument, spelled as in Python; the message then begins with
            it.
        value: the value of the option, cut if it is long; if None, the message names the option
            alone.
    """

    exit_code = 1

    def __init__(self, *lines: str, option: str = "", value: object = None) -> None:
        head = f"`{option}={show_value(value)}`: " if option else ""
        first, *rest = lines
        super().__init__(*map(as_message, [f"{head}{first}", *rest]))

    def __str__(self) -> str:
        first, *rest = self.args
        step = _STEP.search(first)
        if not step:
            return "\n".join(self.args)
        return "\n".join([first[: step.start()], *rest]) + step[0]


def show_value(value: object) -> str:
    """Shows a value; leaves out the middle of a long one."""
    if value is None:
        return ""
    try:
        text = str(value)
    except Exception:  # noqa: BLE001 - the caller's class may raise anything
        text = quote(value)
    return shorten(printable(text).replace("`", r"\x60"))  # which would end the option


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
    """Returns what ran out, and what to do, or "" if neither memory nor threads ran out."""
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
