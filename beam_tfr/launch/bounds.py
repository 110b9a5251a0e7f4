"""Bounds the memory and time that a look at an input takes, whatever the input is made of.

Before a run, the first files and rows are looked at: what they are, and what is odd about them. For
a sound input that takes seconds and some hundred MB, however large it is. Each kind of file has
limits of its own (docs/reliability.md). This one is for what they do not foresee: a small file that
somebody made to grow without end.
"""

import contextlib
import os
import resource
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from beam_tfr.console import process
from beam_tfr.console.terminal import print_message
from beam_tfr.options import ConvertOptions
from beam_tfr.schema.differences import join_names, join_texts
from beam_tfr.schema.errors import DataError, spell_as_flags
from beam_tfr.schema.untrusted import quote
from beam_tfr.storage import opened

MOST_BYTES = 640 << 20  # 640 MiB of memory,
BYTES_PER_BYTE = 64  # and this for each byte of the files that are opened
MOST_S = 40.0  # of CPU time,
S_PER_BYTE = 1e-6  # and this for each byte
_PERIOD_S = 0.05
_MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1024  # bytes: see getrusage(2) of each system


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


@contextlib.contextmanager
def bounded_look(given: Sequence[str]) -> Iterator[None]:
    """Bounds what the block takes, in a process that runs a command.

    A block that takes too much ends the process with a message, which names what the user gave, the
    largest files that were opened, and the last one. An exception could arrive while a library
    holds a lock. A look precedes everything that a command writes.

    In a program of somebody else nothing is bounded, since its other threads would count too.

    Args:
        given: paths and patterns that the user gave; see `list_given`.
    """
    if not process.program:
        yield
        return
    ended = threading.Event()
    watch = threading.Thread(target=_watch, args=(ended, given), name="bounds", daemon=True)
    watch.start()
    try:
        yield
    finally:
        ended.set()


def _watch(ended: threading.Event, given: Sequence[str]) -> None:
    """Measures until a look ends, and ends the process once the look has taken too much."""
    before = _Usage.measure()
    while not ended.wait(_PERIOD_S):
        excess = _Usage.measure().describe_excess(before)
        if excess:
            print_message(f"{process.program}: {spell_as_flags(_describe(excess, given))}")
            os._exit(DataError.exit_code)


def list_given(options: ConvertOptions) -> list[str]:
    """Lists the paths and patterns of the input that the user gave."""
    lists = [options.input_list] if options.input_list else []
    return [*options.input, *lists, *options.table]


def _describe(excess: str, given: Sequence[str]) -> str:
    """Describes a look that took too much."""
    inputs = join_names([*map(quote, given)]) or "the input"
    problem = f"looking at {inputs} took {excess}, far more than the size explains"
    names = [*map(quote, opened.list_paths())]
    if not names:
        return f"{problem}; no file was read yet: leave folders out of it"
    return (
        f"{problem}; the largest files that were read, and the last one: {join_texts(names)}; "
        "leave out the one that takes so much, or make a sound one"
    )
