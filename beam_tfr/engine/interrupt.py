"""Holds flags that end local stages, which check them for every image."""

import threading

from beam_tfr.schema.errors import InterruptedRunError

requested = threading.Event()  # by Ctrl-C
over = threading.Event()  # the run has failed, and its engine ends


def check_interrupt() -> None:
    """Ends the calling stage if the user has pressed Ctrl-C, or the run is over.

    Raises:
        InterruptedRunError: either is true.
    """
    if requested.is_set() or over.is_set():
        raise InterruptedRunError("interrupted")
