"""Starts Python processes that may crash, or be ended by limits that the kernel enforces.

The processes read files whose headers do not show how much memory or time reading takes.
"""

import multiprocessing
import os
import signal
import subprocess  # nosec B404  # starts this Python alone
import sys
import weakref
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO

from beam_tfr.schema.errors import RunError

START_S = 300.0  # for starting a process on a busy machine with its packages on a network
# The beginning of every program: `descriptors` holds its end of the connection and the inherited
# descriptors.
_BEGIN = "import sys; sys.path[:] = sys.argv[2:]; descriptors = map(int, sys.argv[1].split(',')); "
# Keeps glibc from returning the memory of each image to the system, which takes a fifth of the
# time.
_MALLOC = {"MALLOC_TRIM_THRESHOLD_": f"{32 << 20}", "MALLOC_MMAP_THRESHOLD_": f"{4 << 20}"}

_PACKAGE_PARENT = str(Path(__file__).parents[1])


def import_paths() -> list[str]:
    """Returns `sys.path` for a new Python process, with the folder of this package.

    In `python -c`, `sys.path` contains "", which stands for the current folder: the program may
    have changed this folder since it imported the package from there.
    """
    paths = [*sys.path]
    if "" in paths and _PACKAGE_PARENT not in paths:
        paths.insert(paths.index(""), _PACKAGE_PARENT)
    return paths


class GuardedProcess:
    """A guarded process, for one thread at a time.

    Args:
        program: code that uses `descriptors`, and sends some bytes once it is ready.
        descriptors: other descriptors that the process inherits.
        opened: files to close when the process ends.

    Attributes:
        connection: this end of the connection.

    Raises:
        RunError: the process does not start.
    """

    def __init__(
        self, program: str, *, descriptors: Sequence[int] = (), opened: Sequence[IO[bytes]] = ()
    ) -> None:
        self.connection, child_end = multiprocessing.Pipe()
        with child_end:
            # It has its own session, so that Ctrl-C does not reach it, and prints errors only until
            # it is ready.
            inherited = (child_end.fileno(), *descriptors)
            numbers = ",".join(map(str, inherited))
            self.process = subprocess.Popen(  # noqa: S603  # nosec B603  # none of it is input
                [sys.executable, "-c", _BEGIN + program, numbers, *import_paths()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=inherited,
                env=_MALLOC | os.environ,
                start_new_session=True,
            )
        self._owner = os.getpid()
        self._end = weakref.finalize(
            self, _end_process, self.process, self._owner, self.connection, *opened
        )
        self._wait_until_ready()

    def _wait_until_ready(self) -> None:
        try:
            is_ready = self.connection.poll(START_S)
            if is_ready:
                self.connection.recv_bytes()
        except (EOFError, OSError) as error:
            self._end()
            raise RunError(
                f"the guarded process did not start: it {self.describe_end()}"
            ) from error
        if not is_ready:
            self._end()
            raise RunError(f"the guarded process did not start: it hung for {START_S:g} s")

    def is_usable(self) -> bool:
        """Whether the process is alive, and this process was not forked after starting it."""
        return self._end.alive and self._owner == os.getpid() and self.process.poll() is None

    def kill(self) -> None:
        """Ends the process; its connection and files stay open until `close`."""
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        """Ends the process, and closes its connection and files."""
        self._end()

    def describe_end(self) -> str:
        """Says how the process ended."""
        status = self.process.returncode
        if status < 0:
            return f"died of {signal.Signals(-status).name}"
        return f"ended with status {status}"


def _end_process(
    process: subprocess.Popen[bytes], owner: int, *opened: Connection | IO[bytes]
) -> None:
    """Closes the connection and files of a process, and ends it if this process started it."""
    for file in opened:
        file.close()
    if owner == os.getpid():
        process.kill()
        process.wait()
