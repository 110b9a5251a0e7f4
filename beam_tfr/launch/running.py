"""A pipeline under way: its progress, Ctrl-C, and a quiet screen."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator

from beam_tfr import claim, interrupt
from beam_tfr.claim import Progress
from beam_tfr.launch.errors import translate
from beam_tfr.schema import TRACEBACK_VARIABLE, InterruptedRunError

INTERRUPT_WAIT_S = 2.0  # for the stages to end by themselves
PROGRESS_S = 10.0
MAX_REPORT_SHARE = 0.05  # of the time; with 100,000 files on gs:// each look at them takes seconds
GOES_ON = "nothing is published; the same command goes on with the finished shards"


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keeps the engine's own account of a failure off the screen: our error, several times over, with stack traces.

    A worker in this process prints it to sys.stderr whatever the log level, and hangs when nobody reads that any more.
    Worker processes and engines print to what they inherit as standard error, and a Ctrl-C in the terminal reaches each
    of them. C libraries print there too: libtiff, of every damaged file.
    """
    if os.environ.get(TRACEBACK_VARIABLE):
        yield
        return
    logging.getLogger("apache_beam").setLevel(logging.CRITICAL + 1)
    with contextlib.ExitStack() as stack:
        null = stack.enter_context(open(os.devnull, "w"))
        stack.enter_context(contextlib.redirect_stderr(null))
        inherited = os.dup(2)
        stack.callback(os.close, inherited)
        stack.callback(os.dup2, inherited, 2)
        os.dup2(null.fileno(), 2)
        yield


class Reporter:
    """Tells from time to time how far a run is: from what was committed, so that it works on every runner."""

    def __init__(self, output: str, progress: Callable[[Progress], object] | None) -> None:
        self._output, self._progress, self._next = output, progress, time.monotonic() + PROGRESS_S

    def begin(self, *, anew: bool) -> None:
        """Tells what an earlier run has finished, unless that is thrown away."""
        if anew and self._progress is not None:
            self._progress(Progress(0, 0, 0, 0))
        else:
            self.report()

    def tick(self) -> None:
        if time.monotonic() >= self._next:
            self.report()

    def report(self) -> None:
        started = time.monotonic()
        if self._progress is not None:
            with contextlib.suppress(OSError):
                self._progress(claim.read_progress(self._output) or Progress(0, 0, 0, 0))
        took = time.monotonic() - started
        self._next = started + max(PROGRESS_S, took / MAX_REPORT_SHARE)


def wait(
    call: Callable[[], object],
    *,
    interrupted: threading.Event,
    tick: Callable[[], None],
    stop: Callable[[], str] = lambda: GOES_ON,
) -> None:
    """Waits for a pipeline's end in a thread of its own, so that Ctrl-C reaches this one at once.

    Args:
        call: returns at the pipeline's end.
        interrupted: set when it is to stop.
        tick: called often while it runs.
        stop: stops it, or not; returns what is then said to the user.

    Raises:
        BeamTfrError: of whatever kind the failing step raised; `RunError` for anything else.
    """
    failure: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:  # noqa: BLE001 - handed to the main thread
            failure.append(error)

    thread = threading.Thread(target=run, name="beam_tfr-pipeline", daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(0.2)
        tick()
        if interrupted.is_set():
            _ignore_threads()
            said = stop()
            thread.join(INTERRUPT_WAIT_S)
            raise InterruptedRunError(f"interrupted: {said}")
    if failure:
        _ignore_threads()
        raise translate(failure[0]) from failure[0]


def _ignore_threads() -> None:
    """The threads of an engine that ends lose their connections, and would say so, with stack traces."""
    if not os.environ.get(TRACEBACK_VARIABLE):
        ending, before = set(threading.enumerate()), threading.excepthook  # threads of later are not concerned
        threading.excepthook = lambda told: None if told.thread in ending else before(told)


@contextlib.contextmanager
def on_interrupt() -> Iterator[threading.Event]:
    """Within the block Ctrl-C and SIGTERM set the event and ask the stages to stop, when this is the main thread."""
    interrupted = threading.Event()
    interrupt.clear()

    def handle(*_: object) -> None:
        interrupted.set()
        interrupt.request()

    if threading.current_thread() is not threading.main_thread():
        yield interrupted
        return
    previous = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield interrupted
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
