"""Worker processes of a local run, as the process that runs it sees them."""

import contextlib
import os
import subprocess  # nosec B404  # starts this Python alone
import sys
import threading
from collections.abc import Mapping
from typing import IO

from beam_tfr.schema.errors import TRACEBACK_VARIABLE

END_OF_MESSAGES_S = 1.0  # until the last line of a process that has ended is read
_PROGRAM = (
    "import sys; sys.path[:] = sys.argv[1:]; from beam_tfr.engine import worker; worker.main()"
)


class Worker(subprocess.Popen[bytes]):
    """A worker process, which ends with this one.

    It imports from the same places as this process: the package may be on `sys.path` alone.

    Args:
        environment: its environment variables.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        super().__init__(
            [sys.executable, "-c", _PROGRAM, *sys.path],
            stdin=subprocess.PIPE,  # its end ends the process
            stderr=subprocess.PIPE,
            env=environment,
        )
        self._messages = Messages(self.stderr)

    def last_message(self) -> str:
        """The last line that the process printed to standard error."""
        return self._messages.last_line()


class Messages(threading.Thread):
    """Reads what a process prints to standard error, and keeps the last line.

    Engines print a failure several times, with stack traces, so it is shown only on demand.

    Args:
        stream: what is read.
    """

    def __init__(self, stream: IO[bytes] | None) -> None:
        super().__init__(daemon=True)
        self._stream = stream
        self._last_line = b""
        self.start()

    def run(self) -> None:
        is_shown = bool(os.environ.get(TRACEBACK_VARIABLE))
        for line in self._stream or ():
            self._last_line = line.strip() or self._last_line
            if is_shown:
                with contextlib.suppress(OSError):
                    os.write(2, line)

    def last_line(self) -> str:
        """The last line, once the process has ended."""
        self.join(END_OF_MESSAGES_S)
        return self._last_line.decode(errors="replace")
