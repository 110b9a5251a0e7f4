"""Finds the error of a step in what a runner made of it."""

from __future__ import annotations

import ast
import contextlib
import re

from beam_tfr import schema
from beam_tfr.schema import TRACEBACK_VARIABLE, BeamTfrError, RunError

_WHILE = r" \[while running '[^']*'\]"  # what Beam adds to the message of an error
_CLASS = r"beam_tfr\.schema\.(?:errors\.)?"
_OURS = re.compile(
    _CLASS + rf"(UsageError|DataError|RunError|InterruptedRunError): ((?:(?!Traceback |{_CLASS}).)*?)" + _WHILE,
    re.DOTALL,
)


def translate(error: BaseException) -> BeamTfrError:
    """The error of a step, from the worker's traceback, which every runner passes on."""
    if isinstance(error, BeamTfrError):
        return type(error)(re.sub(_WHILE, "", str(error)))
    text = str(error)
    if "\\n" in text and "\n" not in text:  # quoted by a job service
        with contextlib.suppress(ValueError, SyntaxError):
            text = ast.literal_eval(f'"""{text}"""')
    if match := _OURS.search(text):
        kind: type[BeamTfrError] = getattr(schema, match[1])
        return kind(match[2])
    lines = [line for line in text.strip().splitlines() if line.strip()] or [type(error).__name__]
    cause = next(
        (line for line in reversed(lines) if re.match(r"[\w.]*(Error|Exception|Interrupt)\b", line)), lines[-1]
    )
    return RunError(
        f"the run failed: {re.sub(_WHILE, '', cause)[:500]}. Nothing is published; run the same command again to "
        f"resume from the finished shards. {TRACEBACK_VARIABLE}=1 shows where it failed"
    )
