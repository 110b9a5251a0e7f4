"""A bound on the CPU time of what hostile input must not make slow."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

# what these tests do takes a hundredth of it, also on a slow machine; what they guard against,
# minutes
SECONDS = 20.0
SLOWER = 4  # times: what a slow machine, or one with other work, may take longer than is said


@contextlib.contextmanager
def bounded_cpu() -> Iterator[None]:
    """Fails if its block takes more than `SECONDS` of CPU time.

    Only this process counts, whatever else the machine does.
    """
    started = time.process_time()
    yield
    assert time.process_time() - started < SECONDS
