"""Ctrl-C: a flag that the stages of a local run check for every image, so that they end cleanly and soon."""

from __future__ import annotations

import threading

from beam_tfr.schema import InterruptedRunError

_requested = threading.Event()


def request() -> None:
    """Asks the stages in this process to stop."""
    _requested.set()


def clear() -> None:
    """Takes the request back, for the next run."""
    _requested.clear()


def check() -> None:
    """Ends the stage that calls it, if the user asked for that.

    Raises:
        InterruptedRunError: the user did.
    """
    if _requested.is_set():
        raise InterruptedRunError("interrupted")
