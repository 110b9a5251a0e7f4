"""Bounds the memory and time that a look at an input takes, whatever the input is made of.

Before a run, the first files and rows are looked at: what they are, and what is odd about them. For
a sound input that takes seconds and some hundred MB, however large it is. Each kind of file has
limits of its own (docs/reliability.md). This one is for what they do not foresee: a small file that
somebody made to grow without end.
"""

import contextlib
import ctypes
import resource
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from beam_tfr.schema.differences import join_texts
from beam_tfr.schema.errors import DataError
from beam_tfr.schema.untrusted import quote
from beam_tfr.storage import opened

MOST_BYTES = 640 << 20  # 640 MiB of memory,
BYTES_PER_BYTE = 64  # and this for each byte of the files that are opened
MOST_S = 40.0  # of CPU time,
S_PER_BYTE = 1e-6  # and this for each byte
_PERIOD_S = 0.05
_PATIENCE_S = 5.0  # until the exception is raised again, if a library has swallowed it
_MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1024  # bytes: see getrusage(2) of each system


class _LookTakesTooMuchError(BaseException):
    """Raised within a look by its watch; no handler of ordinary errors catches it."""


class _Usage(NamedTuple):
    """What this process has used up to now, and the bytes of the files that it has opened."""

    peak_bytes: int
    cpu_s: float
    opened_bytes: int

    @classmethod
    def measure(cls) -> "_Usage":
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _MAXRSS_UNIT
        return cls(peak, time.process_time(), opened.num_bytes)

    def describe_excess(self, before: "_Usage") -> str:
        """What has been used since then, if it is more than allowed; else empty."""
        num_bytes = self.opened_bytes - before.opened_bytes
        grown = self.peak_bytes - before.peak_bytes
        if grown > MOST_BYTES + BYTES_PER_BYTE * num_bytes:
            return f"{grown / 1e9:.1f} GB of memory"
        cpu_s = self.cpu_s - before.cpu_s
        if cpu_s > MOST_S + S_PER_BYTE * num_bytes:
            return f"{cpu_s:.0f} s of CPU time"
        return ""


class _Watch(threading.Thread):
    """Ends a look of another thread once it has used more than allowed.

    Args:
        looker: identifier of the thread.

    Attributes:
        excess: what the look has used, if it was too much; else empty.
    """

    def __init__(self, looker: int) -> None:
        super().__init__(name="bounds", daemon=True)
        self.excess = ""
        self._looker = looker
        self._before = _Usage.measure()
        self._lock = threading.Lock()  # held by whoever decides whether the look has ended
        self._ended = threading.Event()

    def run(self) -> None:
        """Measures until the look ends, and interrupts it once it takes too much."""
        while not self._ended.wait(_PATIENCE_S if self.excess else _PERIOD_S):
            excess = _Usage.measure().describe_excess(self._before)
            with self._lock:
                if excess and not self._ended.is_set():
                    self.excess = excess
                    _raise_in(self._looker, ctypes.py_object(_LookTakesTooMuchError))

    def end(self) -> None:
        """Notes that the look has ended; no exception comes after this."""
        with self._lock:
            self._ended.set()
            _raise_in(self._looker, None)


def _raise_in(thread: int, error: Any) -> None:
    """Raises an exception, as a `py_object`, in a thread; None takes back one that is pending."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), error)


@contextlib.contextmanager
def bounded_look() -> Iterator[None]:
    """Bounds what the block takes in this thread.

    Raises:
        DataError: it takes too much; names the largest files that were opened, and the last one.
    """
    watch = _Watch(threading.get_ident())
    watch.start()
    try:
        try:
            yield
        finally:
            watch.end()
    except _LookTakesTooMuchError:
        raise DataError(_describe(watch.excess)) from None
    if watch.excess:
        raise DataError(_describe(watch.excess))


def _describe(excess: str) -> str:
    problem = f"looking at the input took {excess}, far more than its size explains"
    names = [*map(quote, opened.list_paths())]
    if not names:
        return f"{problem}; no file was read yet: leave folders out of it"
    return (
        f"{problem}; the largest files that were read, and the last one: {join_texts(names)}; "
        "leave out the one that takes so much, or make a sound one"
    )
