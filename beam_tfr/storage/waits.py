"""Counts requests to gs:// that are repeated, for whoever reports them: the threads that read have no counters."""

from __future__ import annotations

import threading
from typing import NamedTuple

THROTTLING = (429, 503)  # the service asks for fewer requests


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
_retries = _too_many = 0
_throttled_s = 0.0


def note(status: int, seconds: float) -> None:
    """Counts a request that is repeated after so many seconds; status 0 is a broken connection."""
    global _retries, _too_many, _throttled_s
    with _LOCK:
        _retries += 1
        _too_many += status == 429
        _throttled_s += seconds if status in THROTTLING else 0.0


def take_waits() -> Waits:
    """What was counted in this process since the last call; parts of a second are kept for the next one."""
    global _retries, _too_many, _throttled_s
    if not _retries and _throttled_s < 1:
        return Waits()
    with _LOCK:
        taken = Waits(_retries, _too_many, int(_throttled_s))
        _retries = _too_many = 0
        _throttled_s -= taken.throttled_s
    return taken
