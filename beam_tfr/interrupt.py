"""The flag that Ctrl-C sets and that local stages check for every image."""

from __future__ import annotations

import threading

from beam_tfr.schema import InterruptedRunError

requested = threading.Event()


def check() -> None:
    """Ends the calling stage if the user has pressed Ctrl-C.

    Raises:
        InterruptedRunError: the user did.
    """
    if requested.is_set():
        raise InterruptedRunError("interrupted")
