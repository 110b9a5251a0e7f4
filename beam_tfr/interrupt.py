"""The flag that Ctrl-C sets, and that local stages check for every image."""

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
