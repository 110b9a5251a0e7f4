"""Creates a job of Dataflow and follows it: its messages, its counters, its end, and Ctrl-C."""

import contextlib
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.options import pipeline_options as beams
from apache_beam.options.pipeline_options import GoogleCloudOptions, PipelineOptions
from apache_beam.runners.dataflow.dataflow_runner import DataflowRuntimeException
from apache_beam.runners.runner import PipelineState

from beam_tfr.dataflow.staging import staged
from beam_tfr.engine.beam_internals import dataflow_job_state
from beam_tfr.engine.runs import INTERRUPT_WAIT_S, Run, build, counters_of
from beam_tfr.schema.errors import TRACEBACK_VARIABLE, EngineError, RunError

PERIOD_S = 10.0  # between questions for the counters of a job
FINAL_S = 5.0
_LOGGER = "apache_beam.runners.dataflow.dataflow_runner"
_CONSOLE = "https://console.cloud.google.com/dataflow/jobs"


class Job(NamedTuple):
    """A job that continues without this process.

    Attributes:
        id: the service's id; empty for a template or a dry run, which create no job.
        place: its page in the console; without an id, the file with its description, if any.
    """

    id: str
    place: str

    def lines(self) -> Iterator[str]:
        """Yields what was submitted, in a line."""
        if self.id:
            yield f"job {self.id} was created and runs on its own: {self.place}"
        else:
            yield f"no job was created; its description: {self.place or 'not kept, this was a dry run'}"

    def as_json(self) -> dict[str, Any]:
        """The job as JSON values."""
        return {"job_id": self.id or None, "console" if self.id else "template": self.place}


class JobRun(Run):
    """A run of a step as a job; see `engine.runs.Run`.

    Args:
        step: step of the run.
        beam_options: checked options of Beam.
        say: called with messages, one line each.
        created: called with the id of the job, which may outlive this process.
        waits: whether the run ends with the job, or once the job is created.
        on_interrupt: what Ctrl-C does to the job: "ask", "cancel" or "leave".

    Attributes:
        job: the job once it is created; a template or a dry run has no id.
    """

    def __init__(
        self,
        step: beam.PTransform,
        beam_options: PipelineOptions,
        *,
        say: Callable[[str], object],
        created: Callable[[str], object] = lambda _: None,
        waits: bool = True,
        on_interrupt: str = "cancel",
    ) -> None:
        self._step = step
        self._options = beam_options
        self._say = say
        self._created = created
        self._waits = waits
        self._on_interrupt = on_interrupt
        self.job = Job("", "")
        self._submitted = threading.Event()
        self._staged = contextlib.ExitStack()
        self._result: Any = None
        self._latest: Mapping[str, int] = {}
        self._asking = threading.Thread()
        self._next = 0.0

    @contextlib.contextmanager
    def session(self) -> Iterator[None]:
        with messages(self._say), self._staged:
            self._runner = self._staged.enter_context(staged(self._options))
            yield

    def result(self) -> Mapping[str, int]:
        self._result = build(self._step, self._runner, self._options).run()
        self._staged.close()
        google = self._options.view_as(GoogleCloudOptions)
        if self._options.view_as(beams.TestOptions).dry_run or not self._result.has_job:
            self.job = Job("", google.template_location or "")
        else:
            name = self._result.job_id()
            self.job = Job(name, f"{_CONSOLE}/{google.region}/{name}?project={google.project}")
            self._say(f"job {self.job.id}: {self.job.place}")
            self._created(self.job.id)
        self._submitted.set()
        if not (self.job.id and self._waits):
            return {}
        try:
            state = self._result.wait_until_finish()
        except DataflowRuntimeException as error:
            state = error.result.state
            if state != PipelineState.CANCELLED:
                raise
        if state != PipelineState.DONE:
            raise EngineError(f"job {self.job.id} was {state.lower()}")
        self._ask().join(FINAL_S)
        return self._latest

    def counters(self) -> Mapping[str, int]:
        """The last answer of the service, which may be slow; asks again every `PERIOD_S`
        seconds."""
        if (
            self._submitted.is_set()
            and time.monotonic() >= self._next
            and not self._asking.is_alive()
        ):
            self._ask()
        return self._latest

    def _ask(self) -> threading.Thread:
        self._next = time.monotonic() + PERIOD_S
        self._asking = threading.Thread(target=self._keep, name="beam_tfr-counters", daemon=True)
        self._asking.start()
        return self._asking

    def _keep(self) -> None:
        self._latest = counters_of(self._result) or self._latest

    def stop(self) -> str:
        if not self._submitted.wait(INTERRUPT_WAIT_S):
            return "the job was being submitted; if it was created after all, the console lists it"
        if not stop(self._result, self.job, self._on_interrupt):
            return f"job {self.job.id} continues ({self.job.place})"
        self._say(f"job {self.job.id} is cancelled")
        return ""


def stop(result: Any, job: Job, on_interrupt: str) -> bool:
    """Cancels a job or leaves it, as `on_interrupt=` or the user decides.

    Returns:
        True if the job is cancelled.

    Raises:
        RunError: it could not be.
    """
    cancel = on_interrupt == "cancel"
    if on_interrupt == "ask" and sys.stdin is not None and sys.stdin.isatty():
        print(
            f"\ncancel job {job.id}? Otherwise it continues [y/N] ",
            end="",
            file=sys.stderr,
            flush=True,
        )
        cancel = sys.stdin.readline().strip().lower() in ("y", "yes")
    if cancel:
        try:
            result.cancel()
        except Exception as error:
            raise RunError(
                f"job {job.id} could not be cancelled and continues ({job.place}): {error}"
            ) from error
    return cancel


@contextlib.contextmanager
def messages(say: Callable[[str], object]) -> Iterator[None]:
    """Passes on the service's warnings and errors, each once, as Beam logs them; silences its other
    messages."""
    if os.environ.get(TRACEBACK_VARIABLE):
        yield
        return
    seen = set[str]()

    def tell(record: logging.LogRecord) -> bool:
        text = (
            record.getMessage().partition("JOB_MESSAGE_")[2].strip()
        )  # "ERROR: …" for a message of the service
        if record.levelno >= logging.WARNING and text and text not in seen:
            seen.add(text)
            kind, _, message = text.partition(": ")
            lines = message.splitlines() or [""]
            line = lines[-1] if lines[0].startswith("Traceback") else lines[0]
            say(f"Dataflow, {kind.lower()}: {line[:300]}")
        return False

    runner = logging.getLogger(_LOGGER)
    logging.getLogger("apache_beam").setLevel(logging.CRITICAL + 1)
    runner.setLevel(logging.WARNING)
    runner.addFilter(tell)
    try:
        yield
    finally:
        runner.setLevel(logging.NOTSET)
        runner.removeFilter(tell)


def job_state(options: PipelineOptions | None, job_id: str) -> str:
    """The state of a job as Dataflow reports it, such as "RUNNING"; empty if it cannot be asked."""
    from google.api_core.exceptions import GoogleAPIError
    from google.auth.exceptions import GoogleAuthError

    google = options and options.view_as(GoogleCloudOptions)
    if not google or not google.project or not google.region:
        return ""
    with contextlib.suppress(GoogleAPIError, GoogleAuthError):
        return dataflow_job_state(google, job_id).removeprefix("JOB_STATE_")
    return ""


def own_job(options: PipelineOptions | None) -> str:
    """The id of the job that this worker process works for; empty for any other process."""
    runner = options and options.view_as(beams.StandardOptions).runner
    return os.environ.get("JOB_ID", "") if runner and runner.endswith("DataflowRunner") else ""
