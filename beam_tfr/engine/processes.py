"""Starts and watches the worker processes of a local run."""

import contextlib
import json
import os
import queue
import signal
import subprocess  # nosec B404  # starts this Python alone
import sys
import threading
from collections.abc import Mapping
from typing import IO, Protocol, cast

from beam_tfr.guarded import import_paths
from beam_tfr.schema.errors import TRACEBACK_VARIABLE

END_OF_MESSAGES_S = 0.3  # to read the last line of a process that has ended
END_S = 2.0  # for the process that forks workers to end
FORKS = sys.platform == "linux"  # some macOS libraries fail after a fork
# Ctrl-C reaches each process of a terminal or a notebook, but the run decides. The package may be
# only on the run's own `sys.path`. Garbage collection is off while Beam's modules are imported.
START = (
    "import gc, signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); gc.disable(); "
    "sys.path[:] = sys.argv[1:]; from beam_tfr import worker; "
)


class Worker(Protocol):
    """A worker process, which ends when this process ends."""

    def poll(self) -> int | None:
        """Returns the exit code, which is negative for a signal, or None while the worker runs."""

    def wait(self) -> int:
        """Waits for the end of the worker; returns its exit code."""

    def kill(self) -> None:
        """Ends the worker, unless it has already ended."""

    def last_message(self) -> str:
        """Returns the last line that the worker printed to standard error."""


class _Python(subprocess.Popen[bytes]):
    """Another process of this Python, which calls a function of `beam_tfr.worker`.

    The process ends when this process ends.

    Args:
        call: the call, such as "run()".
        descriptors: the file descriptors that the process inherits.
    """

    def __init__(
        self, call: str, environment: Mapping[str, str], descriptors: tuple[int, ...] = ()
    ) -> None:
        super().__init__(
            [sys.executable, "-c", f"{START}worker.{call}", *import_paths()],
            stdin=subprocess.PIPE,  # closing it ends the process
            stderr=subprocess.PIPE,
            env=environment,
            pass_fds=descriptors,
        )
        self._messages = Messages(self.stderr)

    def last_message(self) -> str:
        """Returns the last line that the process printed to standard error."""
        return self._messages.last_line()


class StartedWorker(_Python):
    """A worker that imports all modules itself."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        super().__init__("run()", environment)


class ForkServer(_Python):
    """A process that imports the modules that workers need, and forks workers from itself."""

    def __init__(self) -> None:
        reports, target = os.pipe()
        # The other allocators of pyarrow have threads and heaps of their own, which a fork does not
        # copy whole.
        environment = {**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system"}
        try:
            super().__init__(f"fork_workers({target})", environment, (target,))
        finally:
            os.close(target)
        self._requests = cast(IO[bytes], self.stdin)
        self._pids = queue.SimpleQueue[int]()
        self._workers = dict[int, ForkedWorker]()
        self._reader = threading.Thread(target=self._read_reports, args=(reports,), daemon=True)
        self._reader.start()

    def fork(self, environment: Mapping[str, str]) -> "Worker":
        """Forks a worker with these environment variables.

        If forking fails, returns this `ForkServer` instead of a worker.
        """
        # the process has ended, or its input is closed
        with contextlib.suppress(OSError, ValueError):
            self._requests.write(f"{json.dumps(dict(environment))}\n".encode())
            self._requests.flush()
        pid = self._pids.get()
        if not pid:
            self._pids.put(pid)  # for the next call
        return self._workers.get(pid, self)

    def close(self) -> None:
        """Ends the process and its workers."""
        for worker in [*self._workers.values()]:
            worker.kill()
        with contextlib.suppress(OSError):
            self._requests.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(END_S)
        self.kill()
        self.wait()
        self._reader.join(END_S)

    def _read_reports(self, descriptor: int) -> None:
        with open(descriptor, "rb") as reports:
            for line in reports:
                report = json.loads(line)
                pid = report["pid"]
                if "status" in report:
                    self._workers[pid].end(report["status"])
                else:
                    self._workers[pid] = ForkedWorker(pid, self._messages)
                    self._pids.put(pid)
        status = self.wait() or 1  # ending during a run is a failure, even with status 0
        for worker in self._workers.values():
            worker.kill()
            worker.end(status)
        self._pids.put(0)


class ForkedWorker:
    """A worker forked from a process that had already imported all modules."""

    def __init__(self, pid: int, messages: "Messages") -> None:
        self._pid = pid
        self._messages = messages
        self._status: int | None = None
        self._ended = threading.Event()

    def poll(self) -> int | None:
        """Implements `Worker.poll`."""
        return self._status

    def wait(self) -> int:
        """Implements `Worker.wait`."""
        self._ended.wait()
        return self._status or 0

    def kill(self) -> None:
        """Implements `Worker.kill`."""
        if self._status is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)

    def last_message(self) -> str:
        """Implements `Worker.last_message`; the line may come from another worker of the run."""
        return self._messages.last_line()

    def end(self, status: int) -> None:
        """Notes that the worker has ended."""
        if self._status is None:
            self._status = status
        self._ended.set()


class Messages(threading.Thread):
    """The messages that a process prints to standard error; only the last line is kept.

    Engines print a failure several times, with stack traces, so messages are shown only on demand.

    Args:
        stream: the standard error of the process.
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
        """Returns the last line; to be called when the process has ended."""
        self.join(END_OF_MESSAGES_S)
        return self._last_line.decode(errors="replace")
