"""Builds pipelines, waits for them, reports their progress, handles Ctrl-C."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.runner import PipelineRunner

from beam_tfr import claim, interrupt, lock
from beam_tfr.claim import Progress
from beam_tfr.launch.errors import translate
from beam_tfr.options import ConvertOptions
from beam_tfr.pipeline import Convert
from beam_tfr.schema import TRACEBACK_VARIABLE, InterruptedRunError, UsageError

INTERRUPT_WAIT_S = 2.0  # for the stages to end by themselves
PROGRESS_S = 10.0
MAX_REPORT_SHARE = 0.05  # of the time; listing 100,000 files on gs:// takes seconds
_NOTHING = Progress(0, 0, 0, 0)
RESUME = "nothing is published; run the same command again to resume from the finished shards"


def build(step: Convert, runner: PipelineRunner, beam_options: PipelineOptions) -> beam.Pipeline:
    """The pipeline of a conversion, not yet started.

    Raises:
        UsageError: Beam refuses its own options.
    """
    try:
        pipeline = beam.Pipeline(runner=runner, options=beam_options)
    except ValueError as error:
        raise UsageError(str(error)) from error
    except Exception as error:
        raise translate(error) from error
    pipeline | "Convert" >> step
    return pipeline


def held(step: Convert) -> contextlib.AbstractContextManager[Callable[[str], None]]:
    """Holds the output, as `lock.held` does; nothing where the output is not touched."""
    options = step.options
    return contextlib.nullcontext(lambda _: None) if options.save_plan else lock.held(options.output, step.run_id)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keeps the engine's own report of a failure off the screen.

    It is our error several times over, with stack traces. A worker in this process prints it to sys.stderr whatever the
    log level, and hangs when nobody reads that any more. Worker processes and engines print to the standard error that
    they inherit, and Ctrl-C in a terminal reaches each of them. C libraries print there too: libtiff does for every
    damaged file.
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
    """Reports how far a run is, from what it committed, whatever the runner.

    It begins with what an earlier run finished, unless that is overwritten. A plan to be saved has no progress.
    """

    def __init__(self, options: ConvertOptions, progress: Callable[[Progress], object] | None) -> None:
        self._output, self._progress = options.output, None if options.save_plan else progress
        self._next = time.monotonic() + PROGRESS_S
        if self._progress is not None and options.overwrite:
            self._progress(_NOTHING)
        else:
            self._report()

    def tick(self) -> None:
        """Reports if it is time to."""
        if time.monotonic() >= self._next:
            self._report()

    def _report(self) -> None:
        started = time.monotonic()
        if self._progress is not None:
            with contextlib.suppress(OSError):
                self._progress(claim.read_progress(self._output) or _NOTHING)
        took = time.monotonic() - started
        self._next = started + max(PROGRESS_S, took / MAX_REPORT_SHARE)


def wait(
    call: Callable[[], object],
    *,
    interrupted: threading.Event,
    tick: Callable[[], object] = lambda: None,
    stop: Callable[[], str] = lambda: RESUME,
) -> None:
    """Waits for a pipeline in another thread, so that Ctrl-C reaches this one at once.

    Args:
        call: returns when the pipeline ends.
        interrupted: set when it is to stop.
        tick: called often while it runs.
        stop: stops it, or does not; returns what to tell the user.

    Raises:
        BeamTfrError: of the kind that the failing step raised; `RunError` for anything else.
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
    """Silences threads that lose their connections when an engine ends."""
    if not os.environ.get(TRACEBACK_VARIABLE):
        ending, before = set(threading.enumerate()), threading.excepthook  # later threads may complain
        threading.excepthook = lambda told: None if told.thread in ending else before(told)


@contextlib.contextmanager
def on_interrupt() -> Iterator[threading.Event]:
    """Lets Ctrl-C and SIGTERM set the event and stop the stages, in the main thread."""
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
