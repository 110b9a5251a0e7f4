"""Runs a pipeline on this machine or another engine, and follows any run to its end, its failure or
Ctrl-C."""

import collections
import contextlib
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

import apache_beam as beam
from apache_beam.metrics import MetricsFilter
from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions
from apache_beam.runners.runner import PipelineResult, PipelineRunner, PipelineState

from beam_tfr.console.terminal import silent_stderr
from beam_tfr.engine import beam_internals, interrupt
from beam_tfr.engine.failures import Outcome, is_starved, translate
from beam_tfr.schema.errors import TRACEBACK_VARIABLE, EngineError, InterruptedRunError, UsageError

INTERRUPT_WAIT_S = 2.0  # for the stages to end by themselves
PROCESSES_WAIT_S = (
    0.3  # for a run in worker processes, which do not know of the interrupt, to come to its end
)
PROGRESS_S = 1.0
_THREAD = "beam_tfr-pipeline"


class Run(Protocol):
    """A pipeline that runs on this machine, on another engine, or as a job of Dataflow.

    Attributes:
        patience_s: seconds that it may take to end after Ctrl-C.
    """

    patience_s: float = INTERRUPT_WAIT_S

    def session(self) -> contextlib.AbstractContextManager[None]:
        """What lasts as long as it is followed, entered in the main thread."""

    def result(self) -> Mapping[str, int]:
        """Waits for its end, in another thread; returns this package's counters."""

    def counters(self) -> Mapping[str, int]:
        """Name -> value of this package's counters while it runs; raises an error if it cannot end
        by itself."""

    def stop(self) -> str:
        """Stops it, if the stages do not see the interrupt; returns what becomes of it if it has
        further effects."""
        return ""


def build(
    step: beam.PTransform, runner: PipelineRunner, beam_options: PipelineOptions
) -> beam.Pipeline:
    """The pipeline of a step, not yet started.

    Raises:
        UsageError: Beam refuses its own options.
    """
    try:
        pipeline = beam.Pipeline(runner=runner, options=beam_options)
    except ValueError as error:
        raise UsageError(str(error)) from error
    except Exception as error:
        raise translate(error) from error
    with beam_internals.building():
        pipeline | type(step).__name__ >> step
    return pipeline


class LocalRun(Run):
    """A run on this machine; a second one in this process, from another thread, waits for the
    first."""

    def __init__(self, pipeline: beam.Pipeline, runner: beam_internals.LocalRunner) -> None:
        self._pipeline = pipeline
        self._runner = runner
        by_processes = (
            pipeline.options.view_as(DirectOptions).direct_running_mode == "multi_processing"
        )
        self.patience_s = PROCESSES_WAIT_S if by_processes else INTERRUPT_WAIT_S

    @contextlib.contextmanager
    def session(self) -> Iterator[None]:
        with beam_internals.ONE_RUN, quiet():
            try:
                yield
            finally:
                self._runner.end_workers()

    def result(self) -> Mapping[str, int]:
        return counters_of(self._pipeline.run())

    def counters(self) -> Mapping[str, int]:
        self._runner.check_workers()
        return counters_of(self._runner)


class PortableRun(Run):
    """A run on an engine that Beam's options name, such as Prism, Flink or Spark."""

    def __init__(self, pipeline: beam.Pipeline) -> None:
        self._pipeline = pipeline

    @contextlib.contextmanager
    def session(self) -> Iterator[None]:
        with quiet():
            with beam_internals.streams_without_timeout():
                self._result = self._pipeline.run()  # some engines want the main thread for it
            yield

    def result(self) -> Mapping[str, int]:
        if self._result.wait_until_finish() == PipelineState.CANCELLED:
            raise EngineError("the run was cancelled")
        return counters_of(self._result)

    def counters(self) -> Mapping[str, int]:
        return counters_of(self._result)

    def stop(self) -> str:
        with contextlib.suppress(Exception):
            self._result.cancel()
        return ""


def counters_of(result: PipelineResult | beam_internals.LocalRunner) -> Mapping[str, int]:
    """Name -> value of this package's counters, with what is not committed yet; empty if the engine
    has none."""
    totals: collections.Counter[str] = collections.Counter()
    try:
        queried = result.metrics().query(MetricsFilter().with_namespace(beam_internals.NAMESPACE))
    except Exception:  # noqa: BLE001 - of whatever kind: an engine without counters is no reason to end a run
        return totals
    for counter in queried["counters"]:
        totals[counter.key.metric.name] += max(counter.attempted or 0, counter.committed or 0)
    return totals


def follow(
    run: Run, tick: Callable[[Mapping[str, int]], object] | None, outcome: Outcome
) -> Mapping[str, int]:
    """Waits for a run in another thread, so that Ctrl-C reaches this one at once; returns the
    counters at its end.

    Args:
        run: the run, not yet started.
        tick: called with the counters before it starts, every `PROGRESS_S` seconds, and once after
            a failure; None for none.
        outcome: what is left if it does not reach its end.

    Raises:
        BeamTfrError: of the kind that the failing step raised; `RunError` for anything else.
    """
    returned: list[Mapping[str, int]] = []
    failure: list[BaseException] = []

    def call() -> None:
        try:
            returned.append(run.result())
        except BaseException as error:  # noqa: BLE001 - handed to the main thread
            failure.append(error)

    thread = threading.Thread(target=call, name=_THREAD, daemon=True)
    with _thread_errors() as starved, contextlib.ExitStack() as stack:
        with translated(outcome):
            stack.enter_context(run.session())
        _tell(run, tick, outcome)
        thread.start()
        last = time.monotonic()
        while thread.is_alive() and not starved and not interrupt.requested.is_set():
            thread.join(0.2)
            if thread.is_alive() and time.monotonic() >= last + PROGRESS_S:
                last = time.monotonic()
                _tell(run, tick, outcome)
        if interrupt.requested.is_set() and not returned:
            effect = run.stop()
            thread.join(run.patience_s)
            if not returned:
                raise InterruptedRunError(f"interrupted: {effect or outcome}")
        if failure:
            _tell(run, tick, outcome)  # may know better why
        elif not returned:  # it waits for a thread that is gone
            interrupt.requested.set()
        if not returned:
            error = (failure or starved)[0]
            raise translate(error, outcome) from error
    return returned[0]


def _tell(run: Run, tick: Callable[[Mapping[str, int]], object] | None, outcome: Outcome) -> None:
    with translated(outcome):
        counters = run.counters()
    if tick:
        tick(counters)


@contextlib.contextmanager
def translated(outcome: Outcome) -> Iterator[None]:
    """Raises our errors in place of the engine's."""
    try:
        yield
    except Exception as error:
        raise translate(error, outcome) from error


@contextlib.contextmanager
def _thread_errors() -> Iterator[list[BaseException]]:
    """Collects errors of threads that run out of memory: an engine would wait forever for a thread
    of gRPC.

    After a failure, silences the threads that lose their connections when the engine ends.
    """
    starved: list[BaseException] = []
    ending = set[threading.Thread | None]()  # later threads may complain
    before = threading.excepthook

    def note(args: threading.ExceptHookArgs) -> None:
        if not ending and args.exc_value is not None and is_starved(args.exc_value):
            starved.append(args.exc_value)
        elif args.thread not in ending:
            before(args)

    threading.excepthook = note
    try:
        yield starved
    except BaseException:
        if not os.environ.get(TRACEBACK_VARIABLE):
            ending.update(threading.enumerate())
        raise
    finally:
        if not ending:
            threading.excepthook = before


@contextlib.contextmanager
def on_interrupt() -> Iterator[None]:
    """Lets Ctrl-C and SIGTERM stop the stages and `follow`, in the main thread."""
    in_main = threading.current_thread() is threading.main_thread()
    numbers = (signal.SIGINT, signal.SIGTERM) if in_main else ()
    interrupt.requested.clear()
    previous = [signal.signal(number, lambda *_: interrupt.requested.set()) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, previous, strict=True):
            signal.signal(number, handler)
        if all(thread.name != _THREAD for thread in threading.enumerate()):
            # or a later pipeline of this process would end at its first image
            interrupt.requested.clear()


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keeps the engine's own report of a failure off the screen.

    The report repeats our error several times, with stack traces. A worker in this process prints
    it to sys.stderr at any log level, and hangs when sys.stderr is no longer read. Worker processes
    and engines print to the standard error that they inherit, and Ctrl-C in a terminal reaches each
    of them. C libraries print there too, such as libtiff for every damaged file.
    """
    if os.environ.get(TRACEBACK_VARIABLE):
        yield
        return
    logging.getLogger("apache_beam").setLevel(logging.CRITICAL + 1)
    logging.getLogger("PrismJobServer").disabled = True  # its level is set by Beam
    with silent_stderr():
        yield
