"""Starts a pipeline, and follows it until it ends or fails, or the user presses Ctrl-C."""

import collections
import contextlib
import functools
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

import apache_beam as beam
import grpc
from apache_beam.metrics import MetricsFilter
from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions
from apache_beam.runners.runner import PipelineResult, PipelineRunner, PipelineState

from beam_tfr.console import signals
from beam_tfr.console.terminal import silent_stderr
from beam_tfr.engine import beam_internals, interrupt
from beam_tfr.engine.failures import Outcome, is_starved, translate_error
from beam_tfr.schema.errors import (
    TRACEBACK_VARIABLE,
    BeamTfrError,
    EngineError,
    InterruptedRunError,
    UsageError,
)

INTERRUPT_WAIT_S = 2.0  # for the stages to end by themselves
PROCESSES_WAIT_S = 0.3  # for a run to end in worker processes, which do not notice the interrupt
PROGRESS_S = 1.0
POLL_S = 0.2
_THREAD = "beam_tfr-pipeline"


class Run(Protocol):
    """A pipeline that runs on this machine, on another engine, or as a job on Dataflow.

    Attributes:
        patience_s: seconds that the run may take to end after Ctrl-C.
    """

    patience_s: float = INTERRUPT_WAIT_S

    @property
    def is_submitted(self) -> bool:
        """Whether the run has been submitted, if it runs on another machine."""
        return True

    def session(self) -> contextlib.AbstractContextManager[None]:
        """Returns a context to enter in the main thread while the run is followed."""

    def result(self) -> Mapping[str, int]:
        """Waits for the end of the run; returns this package's counters. Runs in another thread."""

    def counters(self) -> Mapping[str, int]:
        """Returns name -> value of this package's counters while the pipeline runs.

        Raises an error if the run cannot end by itself.
        """

    def stop(self) -> str:
        """Stops the run, unless its stages notice the interrupt themselves.

        Returns a sentence about the effects that the run still has, or an empty string.
        """
        return ""


def build_pipeline(
    step: beam.PTransform, runner: PipelineRunner, beam_options: PipelineOptions
) -> beam.Pipeline:
    """Builds the pipeline of a step, without starting it.

    Raises:
        UsageError: Beam rejects the options.
    """
    try:
        pipeline = beam.Pipeline(runner=runner, options=beam_options)
    except ValueError as error:
        raise UsageError(str(error)) from error
    except Exception as error:
        raise translate_error(error) from error
    with beam_internals.building_pipeline():
        pipeline | type(step).__name__ >> step
    return pipeline


class LocalRun(Run):
    """A run on this machine.

    A second run in this process, started by another thread, waits for the first.
    """

    def __init__(self, pipeline: beam.Pipeline, runner: beam_internals.LocalRunner) -> None:
        self._pipeline = pipeline
        self._runner = runner
        mode = pipeline.options.view_as(DirectOptions).direct_running_mode
        if mode == "multi_processing":
            self.patience_s = PROCESSES_WAIT_S

    @contextlib.contextmanager
    def session(self) -> Iterator[None]:
        with beam_internals.ONE_RUN, silent_engine():
            try:
                yield
            finally:
                self._runner.end_workers()

    def result(self) -> Mapping[str, int]:
        return read_counters(self._pipeline.run())

    def counters(self) -> Mapping[str, int]:
        self._runner.check_workers()
        return read_counters(self._runner)


class PortableRun(Run):
    """A run on an engine chosen by Beam's options, such as Prism, Flink or Spark."""

    def __init__(self, pipeline: beam.Pipeline) -> None:
        self._pipeline = pipeline

    @contextlib.contextmanager
    def session(self) -> Iterator[None]:
        with silent_engine():
            with beam_internals.streams_without_timeout():
                self._result = self._pipeline.run()  # some engines need the main thread
            yield

    def result(self) -> Mapping[str, int]:
        if self._result.wait_until_finish() == PipelineState.CANCELLED:
            raise EngineError("the run was cancelled")
        return read_counters(self._result)

    def counters(self) -> Mapping[str, int]:
        return read_counters(self._result)

    def stop(self) -> str:
        with contextlib.suppress(Exception):
            self._result.cancel()
        return ""


def read_counters(result: PipelineResult | beam_internals.LocalRunner) -> Mapping[str, int]:
    """Returns name -> value of this package's counters, including uncommitted values.

    The result is empty if the engine has no counters.
    """
    totals: collections.Counter[str] = collections.Counter()
    try:
        queried = result.metrics().query(MetricsFilter().with_namespace(beam_internals.NAMESPACE))
    # Any exception is ignored: a run needs no counters.
    except Exception:  # noqa: BLE001
        return totals
    for counter in queried["counters"]:
        totals[counter.key.metric.name] += max(counter.attempted or 0, counter.committed or 0)
    return totals


class _RunThread(threading.Thread):
    """A thread that waits for the end of a run, so that Ctrl-C reaches the main thread at once.

    Attributes:
        counters: the result of the run; None until the run ends, and if it fails.
        failure: the exception that the run raised.
    """

    def __init__(self, run: Run) -> None:
        super().__init__(name=_THREAD, daemon=True)
        self.counters: Mapping[str, int] | None = None
        self.failure: BaseException | None = None
        self._run_to_end = run.result

    def run(self) -> None:
        try:
            self.counters = self._run_to_end()
        except BaseException as error:  # noqa: BLE001 - handed to the main thread
            self.failure = error


Tick = Callable[[Mapping[str, int]], object]


def follow_run(run: Run, tick: Tick | None, outcome: Outcome) -> Mapping[str, int]:
    """Follows a run until it ends or fails, or the user presses Ctrl-C; returns its last counters.

    Args:
        run: the run, not yet started.
        tick: called with the counters before the run starts, every `PROGRESS_S` seconds, and once
            after a failure.
        outcome: the state that a failed run leaves behind.

    Raises:
        BeamTfrError: the run failed or was interrupted. If a step failed with one of our errors,
            the error has the same class; otherwise, it is a `RunError`.
    """
    thread = _RunThread(run)
    with _starved_threads() as starved, contextlib.ExitStack() as stack:
        with translated_errors(outcome):
            stack.enter_context(run.session())
        report = functools.partial(_report, run, tick, outcome)
        report()
        thread.start()
        _watch(thread, starved, report)
        if thread.counters is None and interrupt.requested.is_set():
            _stop(run, thread, outcome)
        if thread.counters is not None:
            return thread.counters
        error = thread.failure
        if error is not None:
            report()  # may raise an error that names the cause
        else:  # the run waits for a lost thread
            interrupt.requested.set()
            error = starved[0]
        raise translate_error(error, outcome) from error


def _report(run: Run, tick: Tick | None, outcome: Outcome) -> None:
    with translated_errors(outcome):
        counters = run.counters()
    if tick:
        tick(counters)


def _watch(
    thread: threading.Thread, starved: Sequence[BaseException], report: Callable[[], None]
) -> None:
    """Reports progress until the run ends or loses a thread, or the user presses Ctrl-C."""
    last = time.monotonic()
    while thread.is_alive() and not starved and not interrupt.requested.is_set():
        thread.join(POLL_S)
        if thread.is_alive() and time.monotonic() >= last + PROGRESS_S:
            last = time.monotonic()
            report()


def _stop(run: Run, thread: _RunThread, outcome: Outcome) -> None:
    """Stops a run, unless it ends by itself.

    Raises:
        InterruptedRunError: the run was stopped.
    """
    effect = run.stop()
    thread.join(run.patience_s)
    if thread.counters is None:
        raise InterruptedRunError(f"interrupted: {effect or outcome}")


@contextlib.contextmanager
def translated_errors(outcome: Outcome) -> Iterator[None]:
    """Raises our errors instead of the engine's."""
    try:
        yield
    except Exception as error:
        raise translate_error(error, outcome) from error


@contextlib.contextmanager
def _starved_threads() -> Iterator[list[BaseException]]:
    """Collects errors of threads that run out of memory.

    An engine would wait forever for a lost gRPC thread. This function also silences threads that
    lose their connections when the engine ends after a failure. Worker threads are always silenced,
    because Prism starts another worker after a failed step, and then rejects that worker.
    """
    starved: list[BaseException] = []
    silenced = set[threading.Thread | None]()  # threads that start later may print errors
    original_hook = threading.excepthook

    def note(args: threading.ExceptHookArgs) -> None:
        if args.thread in silenced:
            return
        error = args.exc_value
        if error is not None and is_starved(error) and not silenced:
            starved.append(error)
        elif not _is_lost_worker(args):
            original_hook(args)

    threading.excepthook = note
    try:
        yield starved
    except BaseException:
        if not os.environ.get(TRACEBACK_VARIABLE):
            silenced.update(threading.enumerate())
        raise
    finally:
        if not silenced:
            threading.excepthook = original_hook


def _is_lost_worker(args: threading.ExceptHookArgs) -> bool:
    """Whether the thread of an exception is an engine's worker that has lost its connection."""
    if os.environ.get(TRACEBACK_VARIABLE) or args.thread is None:
        return False
    is_worker = args.thread.name.startswith(beam_internals.WORKER_THREAD)
    return is_worker and isinstance(args.exc_value, grpc.RpcError)


@contextlib.contextmanager
def handling_interrupts() -> Iterator[None]:
    """Lets Ctrl-C and SIGTERM stop the stages and `follow_run`; for use in the main thread.

    Raises:
        InterruptedRunError: a signal arrived, even if it was too late to stop anything.
    """
    interrupt.requested.clear()
    arrived = threading.Event()
    try:
        with _noting_signals(arrived):
            yield
    except InterruptedRunError:
        raise
    except BeamTfrError as error:
        if arrived.is_set():
            raise InterruptedRunError(f"interrupted: {error}") from error
        raise
    finally:
        if _THREAD not in [thread.name for thread in threading.enumerate()]:
            # or a later pipeline of this process would end at its first image
            interrupt.requested.clear()
    if arrived.is_set():
        raise InterruptedRunError(
            "interrupted after all work was done: run the same command again to see the result"
        )


@contextlib.contextmanager
def _noting_signals(arrived: threading.Event) -> Iterator[None]:
    """Lets Ctrl-C and SIGTERM only request an interrupt, if called in the main thread."""

    def request(*_: object) -> None:
        arrived.set()
        interrupt.requested.set()

    with contextlib.ExitStack() as stack:
        if threading.current_thread() is threading.main_thread():
            for number in signals.NUMBERS:
                previous = signal.signal(number, request)
                stack.callback(signal.signal, number, previous)
        yield


@contextlib.contextmanager
def silent_engine() -> Iterator[None]:
    """Keeps the engine's own report of a failure off the screen.

    The report repeats our error several times, with stack traces. A worker in this process prints
    it to sys.stderr at any log level, and hangs if nobody reads sys.stderr. Worker processes and
    engines print to the standard error that they inherit, and Ctrl-C in a terminal reaches each of
    them. C libraries also print to standard error, as libtiff does for every damaged file.
    """
    if os.environ.get(TRACEBACK_VARIABLE):
        yield
        return
    logging.getLogger("apache_beam").setLevel(logging.CRITICAL + 1)
    logging.getLogger("PrismJobServer").disabled = True  # its level is set by Beam
    with silent_stderr():
        yield
