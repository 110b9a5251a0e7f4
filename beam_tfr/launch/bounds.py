"""Bounds the memory and time of looking at an input, whatever its files contain.

Before a run, a command looks at the first files and rows to find out what they are and whether they
are unusual. For valid input, this takes seconds and a few hundred MB, however large the input is.
Each kind of file has limits of its own (docs/reliability.md). The bounds here are for files that
those limits do not foresee, such as a small file that expands without end.
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
from beam_tfr.schema.errors import DataError
from beam_tfr.schema.spelling import spell_as_flags
from beam_tfr.schema.untrusted import quote
from beam_tfr.storage import opened

MOST_BYTES = 640 << 20  # 640 MiB of memory
BYTES_PER_BYTE = 64  # additional bytes of memory for each byte of the opened files
MOST_S = 40.0  # CPU time
S_PER_BYTE = 1e-6  # additional CPU time for each byte of the opened files
_PERIOD_S = 0.05
_MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1024  # in bytes, see getrusage(2)


class _Usage(NamedTuple):
    """The resources that this process has used, and the total size of the files it has opened."""

    peak_bytes: int
    cpu_s: float
    opened_bytes: int

    @classmethod
    def measure(cls) -> "_Usage":
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _MAXRSS_UNIT
        return cls(peak, time.process_time(), opened.num_bytes)

    def describe_excess(self, before: "_Usage") -> str:
        """Returns the use of a resource since `before`, or "" if it is not more than allowed."""
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
    """Bounds the resources that the block uses, in a process that runs a command.

    If the block uses too much, the process ends with a message that names the user's input, the
    largest files that were opened, and the last one. An exception would not do, because it could
    arrive while a library holds a lock. The block runs before the command writes anything.

    Nothing is bounded in a user's own program, because its other threads would count too.

    Args:
        given: paths and patterns from the user; see `list_given`.
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
    """Measures the resources until a look ends; ends the process if the look uses too much."""
    before = _Usage.measure()
    while not ended.wait(_PERIOD_S):
        excess = _Usage.measure().describe_excess(before)
        if excess:
            print_message(f"{process.program}: {spell_as_flags(_describe(excess, given))}")
            os._exit(DataError.exit_code)


def list_given(options: ConvertOptions) -> list[str]:
    """Lists the user's paths and patterns for the input."""
    lists = [options.input_list] if options.input_list else []
    return [*options.input, *lists, *options.table]


def _describe(excess: str, given: Sequence[str]) -> str:
    """Describes a look that used too much."""
    inputs = join_names([*map(quote, given)]) or "the input"
    problem = f"looking at {inputs} took {excess}, far more than its size explains"
    names = [*map(quote, opened.list_paths())]
    if not names:
        return f"{problem}; no file was read yet: leave out some folders"
    return (
        f"{problem}; the largest files read, and the last one: {join_texts(names)}; leave out the "
        "file at fault, or replace it with a valid one"
    )
