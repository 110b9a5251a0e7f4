"""Turns a runner's report of a failed run into our errors."""

from __future__ import annotations

import ast
import contextlib
import errno
import re
from collections.abc import Iterator

import grpc

from beam_tfr import schema
from beam_tfr.schema import RESUME, TRACEBACK_VARIABLE, BeamTfrError, InterruptedRunError, RunError

_WHILE = r" \[while running '[^']*'\]"  # what Beam adds to the message of an error
_CLASS = r"beam_tfr\.schema\.(?:errors\.)?"
_KINDS = "UsageError|DataError|InputChangedError|RunError|InterruptedRunError"
_OURS = re.compile(rf"{_CLASS}({_KINDS}): ((?:(?!Traceback |{_CLASS}).)*?){_WHILE}", re.DOTALL)
_KIND = r"[\w.]*(?:Error|Exception|Interrupt)\b"
_OF_SYSTEM = re.compile(r"OSError: \[Errno ([0-9]+)\] (.*)")
_FILES = "raise the limit of open files (ulimit -n), or use fewer workers (`direct_num_workers=1`)"
_CURES = {
    errno.ENOSPC: "make room on the disk",
    errno.EDQUOT: "make room, or raise the quota",
    errno.EMFILE: _FILES,
    errno.ENFILE: _FILES,
}
_STARVED = re.compile(r"MemoryError|can't start new thread")


def is_starved(error: BaseException) -> bool:
    """True if memory or threads ran out."""
    return bool(_STARVED.search(repr(error)))


def translate(error: BaseException) -> BeamTfrError:
    """The error of a step, from the worker's traceback, which every runner passes on."""
    if isinstance(error, BeamTfrError):
        return type(error)(re.sub(_WHILE, "", str(error)))
    if isinstance(error, grpc.RpcError):
        return RunError(
            f"the connection to the engine was lost ({error.details()}), most likely because it was killed or ran out "
            f"of memory. Nothing is published; {RESUME}"
        )
    text = str(error)
    if "\\n" in text and "\n" not in text:  # quoted by a job service
        with contextlib.suppress(ValueError, SyntaxError):
            text = ast.literal_eval(f'"""{text}"""')
    if match := _OURS.search(text):
        kind: type[BeamTfrError] = getattr(schema, match[1])
        return kind(match[2])
    lines = [line for line in text.strip().splitlines() if line.strip()] or [type(error).__name__]
    cause = next((line for line in reversed(lines) if re.match(_KIND, line)), lines[-1])
    cause = re.sub(rf"^(?:{_KIND}: )+(?={_KIND}: )", "", re.sub(_WHILE, "", cause))[:500]  # wrapped by the runner
    if (match := _OF_SYSTEM.match(cause)) and (cure := _CURES.get(int(match[1]))):
        return RunError(f"{match[2]}. Nothing is published; {cure}, and {RESUME}")
    if _STARVED.search(cause):
        return RunError(
            f"out of memory, address space or threads ({cause}). Nothing is published; raise the limits (ulimit -v, "
            f"ulimit -u) or use fewer threads, and {RESUME}"
        )
    said = f"the run failed: {cause}. Nothing is published; {RESUME}"
    return RunError(f"{said}. {TRACEBACK_VARIABLE}=1 shows where it failed")


@contextlib.contextmanager
def reworded(state: str, again: str = "run the same command again") -> Iterator[None]:
    """Rewords the errors of a run that publishes nothing, with `again` in place of `RESUME`."""
    try:
        yield
    except (RunError, InterruptedRunError) as error:
        text = str(error).replace("othing is published", f"othing is {state}")
        raise type(error)(text.replace(RESUME, again)) from error
