"""Turns an engine's failure into one of our errors, which says what to do next."""

import ast
import contextlib
import errno
import re
from typing import NamedTuple

import grpc

from beam_tfr.schema import errors
from beam_tfr.schema.dataset import WORK_FOLDER
from beam_tfr.schema.errors import RESUME, TRACEBACK_VARIABLE, BeamTfrError, EngineError, RunError

_WHILE = r" \[while running '[^']*'\]"  # added by Beam to error messages
_CLASS = r"beam_tfr\.(?:[a-z_]+\.)+"
_DATA_ERRORS = "DataError|RecordError|DamagedTableError|DamagedArchiveError"
_USAGE_ERRORS = "InputNotFoundError|NotInstalledError|UsageError"
_KINDS = f"{_USAGE_ERRORS}|NotFoundError|{_DATA_ERRORS}|RunError|InterruptedRunError"
_OURS = re.compile(
    rf"{_CLASS}({_KINDS}): ((?:(?!Traceback |{_CLASS}(?:{_KINDS}): ).)*?){_WHILE}", re.DOTALL
)
_KIND = r"[\w.]*(?:Error|Exception|Interrupt)\b"
_OF_SYSTEM = re.compile(r"(?:[A-Za-z]+Error: )?\[Errno ([0-9]+)\] (.*)")
_FILES = "raise the limit of open files (ulimit -n), or use fewer workers (`direct_num_workers=1`)"
_RIGHTS = "allow this user to read and write there"
_IN_THE_WAY = "move the existing file or folder away"
_LEAVE_ALONE = "leave the output folder as it is while a run works in it"
_CURES = {
    errno.EACCES: _RIGHTS,
    errno.EPERM: _RIGHTS,
    errno.EROFS: _RIGHTS,
    errno.ENOSPC: "make room on the disk",
    errno.EDQUOT: "free disk space, or raise the quota",
    errno.EMFILE: _FILES,
    errno.ENFILE: _FILES,
    errno.EISDIR: _IN_THE_WAY,
    errno.ENOTDIR: _IN_THE_WAY,
}
# Prism may start the step after a failed one before it ends the run, and report its error.
_WITHOUT_INPUT = "EmptySideInput"


class Outcome(NamedTuple):
    """The state that a failed run leaves behind, and what to do next, for an error message."""

    left: str = "nothing is published"
    again: str = RESUME

    def __str__(self) -> str:
        return f"{self.left}; {self.again}"


UNPUBLISHED = Outcome()


def is_starved(error: BaseException) -> bool:
    """Whether memory or threads ran out."""
    return errors.tells_starved(repr(error))


def translate_error(error: BaseException, outcome: Outcome = UNPUBLISHED) -> BeamTfrError:
    """Returns one of our errors for an error of an engine.

    The error may come from a step, as part of the worker's traceback, which every runner passes on,
    or from the engine itself.
    """
    if isinstance(error, BeamTfrError):
        error.args = tuple(re.sub(_WHILE, "", line) for line in error.args)
        return error
    text = _unquote(str(error))
    match = _OURS.search(text)
    if match:
        # Subclasses of DataError are not in `errors`.
        kind: type[BeamTfrError] = getattr(errors, match[1], errors.DataError)
        return kind(*match[2].split("\n"))
    cause = error if isinstance(error, EngineError) else _explain(error, text)
    cure = f"{cause.cure}, and " if cause.cure else ""
    return RunError(
        f"{cause.cause}. {outcome.left.capitalize()}; {cure}{outcome.again}{cause.hint}"
    )


def _unquote(text: str) -> str:
    """Restores the line ends of a message if a job service has escaped them."""
    is_quoted = "\\n" in text and "\n" not in text
    if not is_quoted:
        return text
    with contextlib.suppress(ValueError, SyntaxError):
        return str(ast.literal_eval(f'"""{text}"""'))
    return text


def _explain(error: BaseException, text: str) -> EngineError:
    """Explains the cause of an error that is not ours, with a fix if there is one."""
    if isinstance(error, grpc.RpcError):
        return EngineError(
            f"the connection to the engine was lost ({error.details()}), "
            "most likely because the engine was killed or ran out of memory"
        )
    cause = _last_exception(text) or type(error).__name__
    match = _OF_SYSTEM.match(cause)
    cure = _find_cure(match) if match else ""
    if match and cure:
        return EngineError(match[2], cure=cure)
    if errors.tells_starved(cause):
        return EngineError(errors.describe_starved(cause), cure=errors.MORE_ROOM)
    if _WITHOUT_INPUT in cause:
        return EngineError("a step failed, and the engine did not report its error")
    return EngineError(
        f"the run failed: {cause}", hint=f". {TRACEBACK_VARIABLE}=1 shows where it failed"
    )


def _find_cure(match: re.Match[str]) -> str:
    """Returns a fix for an error of the operating system, or an empty string if none is known."""
    number = int(match[1])
    if number == errno.ENOENT and f"/{WORK_FOLDER}/" in match[2]:
        return _LEAVE_ALONE
    return _CURES.get(number, "")


def _last_exception(text: str) -> str:
    """Finds, in a traceback, the last line that begins with the name of an exception.

    Removes the names of exceptions that wrap another one. If no line names an exception, returns
    the last line, or an empty string if there are no lines.
    """
    lines = [line for line in text.strip().splitlines() if line.strip()]
    exceptions = [line for line in lines if re.match(_KIND, line)]
    last = (exceptions or lines or [""])[-1]
    last = re.sub(_WHILE, "", last)
    return re.sub(rf"^(?:{_KIND}: )+(?={_KIND}: )", "", last)[:500]
