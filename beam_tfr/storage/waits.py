"""Requests to gs:// that are repeated: until when, and how many, as the threads that read have no counters."""

import collections
import math
import threading
import time
from typing import NamedTuple

THROTTLING = (429, 503)  # the service asks for fewer requests
THROTTLED_S = 3600.0  # for a request, at most: a bucket doubles its requests per second three times meanwhile
_served = -math.inf  # when a download last succeeded


class Deadline:
    """The end of a request with all its retries.

    A throttled request of many waits for its turn: to begin anew would only add load.

    Args:
        seconds: from now; for a throttled request, since this process last got an object.
        most_s: from now, however much is served to others.
    """

    def __init__(self, seconds: float, most_s: float = 0.0) -> None:
        self._seconds, now = seconds, time.monotonic()
        self._end, self._last = now + seconds, now + most_s

    def left_s(self, status: int = 0) -> float:
        """Seconds that are left after an answer with this status."""
        if status in THROTTLING:
            self._end = max(self._end, min(_served + self._seconds, self._last))
        return self._end - time.monotonic()


class Waits(NamedTuple):
    """Repeated requests.

    Attributes:
        retries: number of retried requests.
        too_many: number of retries after status 429.
        throttled_s: whole seconds waited after responses that ask for fewer requests.
    """

    retries: int = 0
    too_many: int = 0
    throttled_s: int = 0


_LOCK = threading.Lock()
_counts = collections.Counter[str]()


def note_served() -> None:
    """Notes that a download succeeded."""
    global _served
    _served = time.monotonic()


def note(status: int, seconds: float) -> None:
    """Counts a request that is repeated after so many seconds; status 0 is a broken connection."""
    throttled_ms = round(seconds * 1e3) if status in THROTTLING else 0
    with _LOCK:
        _counts.update(retries=1, too_many=int(status == 429), throttled_ms=throttled_ms)


def take_waits() -> Waits:
    """What was counted in this process since the last call; parts of a second are kept for the next one."""
    with _LOCK:
        throttled_s, rest_ms = divmod(_counts["throttled_ms"], 1000)
        taken = Waits(_counts["retries"], _counts["too_many"], throttled_s)
        _counts.clear()
        _counts.update(throttled_ms=rest_ms)
    return taken
