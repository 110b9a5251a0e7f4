"""Other processes that hold locks, as fixtures."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CHILD = """
import sys, time
from beam_tfr.output import lock, lock_holder
lock_holder.WATCHED_S = 0.0
from beam_tfr.schema.errors import BeamTfrError
for line in sys.stdin:
    output, run_id, start = line.rstrip("\\n").split("\\t")
    while time.time() < float(start):
        pass
    try:
        lock.acquire_lock(output, run_id)
        print("holds", flush=True)
    except BeamTfrError as error:
        print(type(error).__name__, error, flush=True)
"""


class Other:
    """A process of its own that takes folders."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", CHILD],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )

    def ask(self, output: Path, run_id: str, start: float = 0.0) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{output}\t{run_id}\t{start}\n")
        self.process.stdin.flush()

    def answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def kill(self) -> None:
        """Dead, but not looked at yet by its parent."""
        os.kill(self.process.pid, signal.SIGKILL)
        os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOWAIT)

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture(scope="module")
def pool() -> Iterator[list[Other]]:
    started: list[Other] = []
    yield started
    for other in started:
        other.end()


@pytest.fixture
def others(pool: list[Other]) -> list[Other]:
    """Three living processes."""
    pool[:] = [other for other in pool if other.process.poll() is None]
    pool.extend(Other() for _ in range(3 - len(pool)))
    return pool
