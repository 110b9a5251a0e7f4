"""Ctrl-C: a flag that the stages of a local run look at for every image, so that they end cleanly and soon."""

from __future__ import annotations

import threading

from beam_tfr.schema import InterruptedRunError

_requested = threading.Event()


def request() -> None:
    """Asks the stages in this process to stop."""
    _requested.set()


def clear() -> None:
    _requested.clear()


def check() -> None:
    """
    Raises:
        InterruptedRunError: the user asked for an end.
    """
    if _requested.is_set():
        raise InterruptedRunError("interrupted")
