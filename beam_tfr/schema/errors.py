"""What may go wrong: with the call, the data, the run, or one image."""

from __future__ import annotations

from beam_tfr.schema.dataset import REJECT_REASONS

TRACEBACK_VARIABLE = "BEAM_TFR_TRACEBACK"  # set: errors of a run come with the stack trace


class BeamTfrError(Exception):
    """Something the user can act on: shown as its message alone, never as a stack trace."""

    exit_code = 1


class UsageError(BeamTfrError):
    """The call is wrong: the message names the flag, the value, what is allowed and the cure."""

    exit_code = 2


class DataError(BeamTfrError):
    """The data is wrong, or a dataset is not what its manifest promises."""


class RunError(BeamTfrError):
    """The run failed: the disk, a permission, a runner that lost elements, another run in the folder."""


class InterruptedRunError(BeamTfrError):
    """The user asked for an end (Ctrl-C)."""

    exit_code = 130


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
