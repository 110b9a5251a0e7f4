"""Runs the worker processes of a local run, which end along with it.

On Linux they are forked from one process that has already imported everything they need, so that
they start at once. `engine.processes` starts that process early. The process exchanges messages
with the run:

    run ── environment variables, a JSON object in a line ──▶ fork_workers       for each worker
    run ◀── {"pid": 7} ── fork_workers                                           once it exists
    run ◀── {"pid": 7, "status": 0} ── fork_workers                              at its end

`multiprocessing` also has such a process, but that process runs the user's program again, so it
starts the conversion twice if the program lacks `if __name__ == "__main__":`.

All of these processes end when their standard input, which the run holds open, ends. Otherwise
workers would outlive a killed run (`kill -9`, out of memory) for a while, and hold memory.
"""

import contextlib
import gc
import importlib
import json
import os
import select
import signal
import sys
import threading
import traceback
from collections.abc import Mapping

from beam_tfr.engine.processes import START
from beam_tfr.schema.errors import tells_starved

# Modules that workers import, at the latest for the first image.
_NEEDED = (
    "apache_beam.runners.worker.sdk_worker_main",
    "beam_tfr.pipeline",
    "beam_tfr.transforms.shards",
    "cykooz_resizer",
    "simplejpeg",
)
_LOOK_S = 0.2  # between checks whether standard input has ended


def run() -> None:
    """Runs Beam's worker until it or standard input ends."""
    threading.excepthook = _end_if_starved
    threading.Thread(target=_end_with_input, daemon=True).start()
    from apache_beam.runners.worker import sdk_worker_main

    gc.enable()
    sdk_worker_main.main([])


def _end_with_input(timeout_s: float | None = None) -> None:
    """Ends this process if standard input ends within a time; None waits without a limit."""
    standard_input = select.poll()
    standard_input.register(0, 0)  # only to see it end: `fork_workers` reads the lines
    timeout_ms = None if timeout_s is None else timeout_s * 1000
    if standard_input.poll(timeout_ms):
        os._exit(1)


def _end_if_starved(args: threading.ExceptHookArgs) -> None:
    """Ends this process if one of its threads has ended because memory or threads ran out.

    Otherwise the run would wait forever for that thread.
    """
    threading.__excepthook__(args)
    if tells_starved(repr(args.exc_value)):
        os._exit(1)


def _import_needed() -> None:
    """Imports the modules that workers need, unless standard input ends first.

    Uses a timer instead of a thread, because a fork would lose the thread.
    """
    signal.signal(signal.SIGALRM, lambda *_: _end_with_input(0))
    signal.setitimer(signal.ITIMER_REAL, _LOOK_S, _LOOK_S)
    try:
        for name in _NEEDED:
            importlib.import_module(name)
    finally:  # else the next tick would end the process before it says why an import failed
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)


def fork_workers(reports: int) -> None:
    """Forks a worker for each line of standard input, until standard input ends.

    Args:
        reports: descriptor that reports are written to.
    """
    os.set_inheritable(reports, False)
    _import_needed()
    _share_memory_budget()
    gc.freeze()  # a collection in a worker would copy all shared memory by writing to it
    workers = _Workers(reports)
    signal.signal(signal.SIGCHLD, workers.report_ends)
    for line in sys.stdin.buffer:
        workers.start(json.loads(line))
    workers.kill()
    os._exit(0)


def _share_memory_budget() -> None:
    """Limits the memory for decoding in all workers together to the limit of one process."""
    from beam_tfr.images.limits import BUDGET

    BUDGET.share()


class _Workers:
    """The workers that this process has started.

    Args:
        reports: descriptor that reports are written to.
    """

    def __init__(self, reports: int) -> None:
        self._reports = reports
        self._pids = set[int]()

    def start(self, environment: Mapping[str, str]) -> None:
        """Starts a worker, and reports it.

        The worker is forked, unless this process has another thread, such as a debugger's or a
        profiler's: a fork would lose that thread, and keep the locks that the thread holds.
        """
        # its end must be reported after its start
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
        pid = self._spawn(environment) if threading.active_count() > 1 else self._fork(environment)
        self._pids.add(pid)
        self._report(pid=pid)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])

    def report_ends(self, *_: object) -> None:
        """Reports workers that have ended."""
        with contextlib.suppress(ChildProcessError):  # there are no workers
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    return
                self._pids.discard(pid)
                self._report(pid=pid, status=os.waitstatus_to_exitcode(status))

    def kill(self) -> None:
        """Ends the workers, even stopped ones, which do not notice the end of standard input."""
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
        for pid in self._pids:
            os.kill(pid, signal.SIGKILL)

    def _spawn(self, environment: Mapping[str, str]) -> int:
        command = [sys.executable, "-c", f"{START}worker.run()", *sys.path]
        return os.posix_spawn(sys.executable, command, environment, setsigmask=[])

    def _fork(self, environment: Mapping[str, str]) -> int:
        pid = os.fork()
        if not pid:
            # The end of the reports tells the run that this process has ended.
            os.close(self._reports)
            _run_forked(environment)
        return pid

    def _report(self, **values: int) -> None:
        with contextlib.suppress(BrokenPipeError):  # the run has just ended
            os.write(self._reports, f"{json.dumps(values)}\n".encode())


def _run_forked(environment: Mapping[str, str]) -> None:
    """Runs a worker in a forked process, which ends when the worker does."""
    status = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
        os.environ.clear()
        os.environ.update(environment)
        run()
        status = 0
    except BaseException:  # noqa: BLE001 - must not go on with the code of its parent process
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(status)
