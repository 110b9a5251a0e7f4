"""Lets Ctrl-C and SIGTERM end a command with a line on standard error and exit code `INTERRUPTED`.

Both signals raise KeyboardInterrupt in the main thread. A destructor may lose that exception, and a
library may turn it into another error, so the arrival of a signal is also recorded.
"""

import contextlib
import os
import signal
import sys
import threading
from types import FrameType
from typing import NoReturn

INTERRUPTED = 130  # exit code
NUMBERS = (signal.SIGINT, signal.SIGTERM)
ADVICE = "interrupted: run the same command again"

arrived = threading.Event()


def raise_interrupts() -> None:
    """Lets both signals raise KeyboardInterrupt from now on.

    A signal that is ignored, such as SIGINT in a background command of a script, stays ignored.
    """
    _handle_signals(_raise_interrupt)
    sys.unraisablehook = _report_unraisable


def end_at_once() -> None:
    """Lets both signals end the process immediately from now on."""
    _handle_signals(_end)


def _handle_signals(handler: "signal._HANDLER") -> None:
    for number in NUMBERS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)


def _raise_interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    arrived.set()
    raise KeyboardInterrupt


def _end(_number: int, _frame: FrameType | None) -> NoReturn:
    exit_interrupted()


def exit_interrupted(message: str = f"beam-tfr: {ADVICE}") -> NoReturn:
    """Prints a line and ends the process, without waiting for threads or destructors."""
    with contextlib.suppress(OSError):  # standard error is closed
        os.write(2, f"{message}\n".encode())
    os._exit(INTERRUPTED)


def _report_unraisable(unraisable: "sys.UnraisableHookArgs") -> None:
    """Reports an exception in a destructor, but only notes an interrupt."""
    if not issubclass(unraisable.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(unraisable)
