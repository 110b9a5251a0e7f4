"""Limits and counts repeated requests to gs://.

Beam's counters do not work in the threads that read files, so the counts are kept here.
"""

import collections
import math
import threading
import time

THROTTLING = (429, 503)  # the service asks for fewer requests
# Longest wait of a request, in which a bucket doubles its requests per second three times.
THROTTLED_S = 3600.0
_served = -math.inf  # when a download last succeeded


class Deadline:
    """The deadline for a request, including all retries.

    A throttled request waits for its turn among many, because giving up and starting over would
    only add load.

    Args:
        seconds: time from now; for a throttled request, time from when this process last received
            an object.
        most_s: maximum time from now, however many objects the process receives until then.
    """

    def __init__(self, seconds: float, most_s: float = 0.0) -> None:
        self._seconds = seconds
        now = time.monotonic()
        self._end = now + seconds
        self._last = now + most_s

    def left_s(self, status: int = 0) -> float:
        """Returns the number of seconds left after a response with this status."""
        if status in THROTTLING:
            self._end = max(self._end, min(_served + self._seconds, self._last))
        return self._end - time.monotonic()


_LOCK = threading.Lock()
_counts = collections.Counter[str]()


def note_served() -> None:
    """Records that a download succeeded."""
    global _served
    _served = time.monotonic()


def note_retry(status: int, seconds: float) -> None:
    """Counts a request that is repeated after a wait of this many seconds."""
    throttled_ms = round(seconds * 1e3) if status in THROTTLING else 0
    with _LOCK:
        _counts.update(retries=1, too_many=int(status == 429), throttled_ms=throttled_ms)


def take_waits() -> collections.Counter[str]:
    """Returns the counts in this process since the last call.

    The counters are `retries`, `too_many` for status 429, and `throttled_ms`, the time spent
    waiting after responses that ask for fewer requests; the part below a full second is returned by
    the next call.
    """
    with _LOCK:
        taken = _counts.copy()
        _counts.clear()
        _counts["throttled_ms"] = taken["throttled_ms"] % 1000
    return taken
