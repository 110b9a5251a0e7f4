"""Builds pipelines, waits for them, reports their progress and errors, handles Ctrl-C."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.runner import PipelineRunner, PipelineState

from beam_tfr import attempts, cloud, interrupt, lock, sidecars, storage
from beam_tfr.beam_internals import inspected_once, labels_without_cells
from beam_tfr.claim import Progress
from beam_tfr.launch.failures import is_starved, translate
from beam_tfr.launch.live import has_begun, progress_of, with_counters, without_new
from beam_tfr.pipeline import Convert
from beam_tfr.schema import (
    MANIFEST_FILE,
    RESUME,
    SWITCH_FILE,
    TRACEBACK_VARIABLE,
    BeamTfrError,
    DataError,
    InterruptedRunError,
    RunError,
    UsageError,
)
from beam_tfr.terminal import silent_stderr

INTERRUPT_WAIT_S = 2.0  # for the stages to end by themselves
PROCESSES_WAIT_S = 0.3  # for a run in worker processes, which do not know of the interrupt, to come to its end
PROGRESS_S = 1.0
MAX_LOOK_SHARE = 0.01  # of the time, for what is finished; with 100,000 shards on gs:// each look takes seconds
_THREAD = "beam_tfr-pipeline"
_NOTHING = Progress(0, 0, 0, 0)
UNPUBLISHED = f"nothing is published; {RESUME}"


def build(step: beam.PTransform, runner: PipelineRunner, beam_options: PipelineOptions) -> beam.Pipeline:
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
    with inspected_once(), labels_without_cells():
        pipeline | type(step).__name__ >> step
    return pipeline


@contextlib.contextmanager
def held(
    step: Convert, beam_options: PipelineOptions, say: Callable[[str], object], *, guarded: bool
) -> Iterator[lock.Hold]:
    """Holds the output, as `lock.held` does; after a run that failed, says which shards were rewritten for new input.

    With `guarded`, and after runs that crashed, each image is decoded in a guarded process.
    """
    output = step.options.output
    job_state = functools.partial(cloud.job_state, beam_options)
    with lock.held(output, step.run_id, say=say, job_state=job_state) as hold:
        step.read.guarded = guarded
        if attempts.has_crashed(output):
            step.read.guarded = True
            say("earlier runs crashed; this run decodes each image in a guarded process and rejects any that crash it")
        manifest = storage.join(output, MANIFEST_FILE)
        before = storage.find(manifest) if step.options.overwrite else None
        try:
            yield hold
        except (DataError, RunError, InterruptedRunError) as error:
            if storage.find(storage.work_path(output, SWITCH_FILE)):
                raise type(error)(
                    f"the run ended while the dataset was put into its place in {output}; the same command completes it"
                ) from error
            if before and storage.find(manifest) == before:
                raise type(error)(f"{error}\nThe dataset that stands in {output} is whole, as it was") from error
            raise
        finally:
            with contextlib.suppress(OSError):
                if told := str(sidecars.take_changes(output)):
                    say(told)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keeps the engine's own report of a failure off the screen.

    The report repeats our error several times, with stack traces. A worker in this process prints it to sys.stderr at
    any log level, and hangs when sys.stderr is no longer read. Worker processes and engines print to the standard error
    that they inherit, and Ctrl-C in a terminal reaches each of them. C libraries print there too, such as libtiff for
    every damaged file. The steps' own log is for an engine's console.
    """
    if os.environ.get(TRACEBACK_VARIABLE):
        yield
        return
    logging.getLogger("apache_beam").setLevel(logging.CRITICAL + 1)
    logging.getLogger("PrismJobServer").disabled = True  # its level is set by Beam
    steps = logging.getLogger("beam_tfr.transforms")
    steps.setLevel(logging.CRITICAL + 1)
    try:
        with silent_stderr():
            yield
    finally:
        steps.setLevel(logging.NOTSET)


class Reporter:
    """Reports the progress of a run, from the engine's counters and what an earlier run finished.

    The folder is read rarely if it has many shards, once when the engine has claimed it, and then only for an engine
    without counters, since another run may be writing to it.

    Args:
        step: the running step.
        progress: called with the progress.
        counters: counters of this package, while the run goes on.
        check: raises an error if the run must end.
    """

    def __init__(
        self,
        step: Convert,
        progress: Callable[[Progress], object] | None,
        counters: Callable[[], Mapping[str, int]] = dict,
        check: Callable[[], object] | None = None,
    ) -> None:
        self._step, self._progress = step, progress
        self._counters, self._check = counters, check
        self._next, self._next_look, self._planned = 0.0, 0.0, 0
        self._finished = _NOTHING
        self._earlier: Progress | None = None  # before this run did anything
        self.tick()

    def tick(self) -> None:
        """Reports if the last report is old enough."""
        if self._check is not None:
            self._check()
        started = time.monotonic()
        if self._progress is None or started < self._next:
            return
        self._next = started + PROGRESS_S
        counters = self._counters()
        planned, begun = counters.get("planned-shards", 0), has_begun(counters)
        known = begun and self._finished.matched
        if planned != self._planned or (started >= self._next_look and not known):  # claimed, perhaps for another plan
            self._planned, self._finished = planned, _NOTHING
            with contextlib.suppress(OSError):
                self._finished = without_new(self._step.progress() or _NOTHING, counters)
            self._next_look = started + (time.monotonic() - started) / MAX_LOOK_SHARE
        self._earlier = self._earlier or self._finished
        if not begun:  # or the engine has no counters
            moved = not counters and self._finished != self._earlier
            self._progress(with_counters(self._finished, counters)._replace(begun=moved))
            return
        self._progress(progress_of(self._finished, counters))


def wait(
    call: Callable[[], Any],
    *,
    tick: Callable[[], object] = lambda: None,
    stop: Callable[[], str] = lambda: UNPUBLISHED,
    patience_s: float = INTERRUPT_WAIT_S,
) -> Any:
    """Waits for a pipeline in another thread, so that Ctrl-C reaches this one at once.

    Args:
        call: function that returns when the pipeline ends.
        tick: called often while it runs, and once after a failure; one of our errors ends the wait.
        stop: called on Ctrl-C, and may stop it; returns a message for the user.
        patience_s: seconds that it may then take to end.

    Returns:
        What `call` returned.

    Raises:
        BeamTfrError: of the kind that the failing step raised; `RunError` for anything else.
    """
    returned: list[Any] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            returned.append(call())
        except BaseException as error:  # noqa: BLE001 - handed to the main thread
            failure.append(error)

    thread = threading.Thread(target=run, name=_THREAD, daemon=True)
    with _starved() as starved:
        thread.start()
        while thread.is_alive() and not starved:
            thread.join(0.2)
            try:
                if not returned:
                    tick()
            except BeamTfrError:
                _ignore_threads()
                raise
            if interrupt.requested.is_set():
                _ignore_threads()
                said = stop()
                thread.join(patience_s)
                if returned in ([], [PipelineState.CANCELLED]):
                    raise InterruptedRunError(f"interrupted: {said}")
                break  # too late: it ended well in that moment
    if not returned and not failure:  # it waits for a thread that is gone
        interrupt.requested.set()
        failure = starved
    if failure:
        _ignore_threads()
        raise translate(failure[0]) from failure[0]
    return returned[0]


@contextlib.contextmanager
def _starved() -> Iterator[list[BaseException]]:
    """Collects errors of threads that run out of memory: an engine would wait forever for a thread of gRPC."""
    found: list[BaseException] = []
    before = threading.excepthook

    def note(told: threading.ExceptHookArgs) -> None:
        if told.exc_value is not None and is_starved(told.exc_value):
            found.append(told.exc_value)
        else:
            before(told)

    threading.excepthook = note
    try:
        yield found
    finally:
        if threading.excepthook is note:  # not one of `_ignore_threads`
            threading.excepthook = before


def _ignore_threads() -> None:
    """Silences threads that lose their connections when an engine ends."""
    if not os.environ.get(TRACEBACK_VARIABLE):
        ending, before = set(threading.enumerate()), threading.excepthook  # later threads may complain
        threading.excepthook = lambda told: None if told.thread in ending else before(told)


@contextlib.contextmanager
def on_interrupt() -> Iterator[None]:
    """Lets Ctrl-C and SIGTERM stop the stages and `wait`, in the main thread."""
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
            interrupt.requested.clear()  # or a later pipeline of this process would end at its first image
