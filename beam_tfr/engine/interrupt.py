"""Holds flags that end local stages, which check the flags for every image."""

import threading

from beam_tfr.schema.errors import InterruptedRunError

requested = threading.Event()  # set by Ctrl-C
over = threading.Event()  # the run has failed, and its engine ends


def check_interrupt() -> None:
    """Ends the calling stage if the user has pressed Ctrl-C, or the run is over.

    Raises:
        InterruptedRunError: one of the two has happened.
    """
    if requested.is_set() or over.is_set():
        raise InterruptedRunError("interrupted")
