"""The errors that users can act on, and the rejection of a single image.

A message names an option as `name=` or `name=value` in backticks, as Python spells it. The command line shows the same
message with `--name` and `--name value` (`as_flags`). The notation is plain text because an error from a worker comes
back as nothing but its text.
"""

from __future__ import annotations

import re

from beam_tfr.schema.dataset import REJECT_REASONS

TRACEBACK_VARIABLE = "BEAM_TFR_TRACEBACK"  # set: errors of a run come with the stack trace


class BeamTfrError(Exception):
    """An error that the user can act on; the command line shows its message without a stack trace.

    Args:
        message: what is wrong, what is allowed, and the cure.
        option: the option or argument that is wrong, named as in Python; the message then begins with it.
        value: the value that was given for it; None names the option alone.
    """

    exit_code = 1

    def __init__(self, message: str, *, option: str = "", value: object = None) -> None:
        super().__init__(f"`{option}={'' if value is None else value}`: {message}" if option else message)


class UsageError(BeamTfrError):
    """The call is wrong."""

    exit_code = 2


class DataError(BeamTfrError):
    """The data is wrong, or a dataset is not what its manifest promises."""


class RunError(BeamTfrError):
    """The run failed: the disk, a permission, a runner that lost elements, another run in the folder."""


class InterruptedRunError(BeamTfrError):
    """The user asked for an end (Ctrl-C)."""

    exit_code = 130


def as_flags(message: str) -> str:
    """Spells the options in an error message as command-line flags."""
    return re.sub(r"`([a-z][a-z0-9_]*)=([^`]*)`", lambda found: f"--{found[1]} {found[2]}".rstrip(), message)


class RejectError(Exception):
    """This one image cannot be used.

    Attributes:
        reason: one of `REJECT_REASONS`.
        detail: what was found, for a person.
        may_pass: another try later might succeed.
    """

    def __init__(self, reason: str, detail: str, *, may_pass: bool = False) -> None:
        if reason not in REJECT_REASONS:
            raise ValueError(f"unknown reject reason {reason!r}, known: {', '.join(REJECT_REASONS)}")
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail
        self.may_pass = may_pass
