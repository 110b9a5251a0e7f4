"""Creates a Dataflow job, follows its messages and counters to its end, and handles Ctrl-C."""

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

from beam_tfr.dataflow.staging import staging_runner
from beam_tfr.engine.beam_internals import dataflow_job_state
from beam_tfr.engine.runs import INTERRUPT_WAIT_S, Run, build_pipeline, read_counters
from beam_tfr.schema.errors import TRACEBACK_VARIABLE, EngineError, RunError

PERIOD_S = 10.0  # between requests for the counters of a job
FINAL_S = 5.0
_LOGGER = "apache_beam.runners.dataflow.dataflow_runner"
_RETRY_LOGGER = "apache_beam.utils.retry"
_CONSOLE = "https://console.cloud.google.com/dataflow/jobs"


class Job(NamedTuple):
    """A job that continues without this process.

    Attributes:
        id: the id of the job in the service; empty for a template or a dry run, which create no
            job.
        place: the page of the job in the console; without an id, the file with its description, if
            any.
    """

    id: str
    place: str

    def lines(self) -> Iterator[str]:
        """Yields one line, which says what was submitted."""
        if self.id:
            yield f"job {self.id} was created and runs on its own: {self.place}"
        elif self.place:
            yield f"no job was created; its description: {self.place}"
        else:
            yield "no job was created; its description: not kept, this was a dry run"

    def as_json(self) -> dict[str, Any]:
        """Returns the job as JSON values."""
        if self.id:
            return {"job_id": self.id, "console": self.place}
        return {"job_id": None, "template": self.place}


class JobRun(Run):
    """A run of a step as a job; see `engine.runs.Run`.

    Args:
        step: step of the run.
        beam_options: checked options of Beam.
        say: called with messages, one line each.
        created: called with the id of the job, which may outlive this process.
        waits: whether the run ends with the job, rather than once the job is created.
        on_interrupt: the effect of Ctrl-C on the job: "ask", "cancel" or "leave".

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

    @property
    def is_submitted(self) -> bool:
        return self._submitted.is_set()

    @contextlib.contextmanager
    def session(self) -> Iterator[None]:
        with forward_messages(self._say), self._staged:
            self._runner = self._staged.enter_context(staging_runner(self._options))
            yield

    def result(self) -> Mapping[str, int]:
        self._result = build_pipeline(self._step, self._runner, self._options).run()
        self._staged.close()
        self.job = self._describe_job()
        if self.job.id:
            self._say(f"job {self.job.id}: {self.job.place}")
            self._created(self.job.id)
        self._submitted.set()
        if not (self.job.id and self._waits):
            return {}
        state = self._wait_for_end()
        if state != PipelineState.DONE:
            raise EngineError(f"job {self.job.id} was {state.lower()}")
        self._ask_for_counters().join(FINAL_S)
        return self._latest

    def _describe_job(self) -> Job:
        google = self._options.view_as(GoogleCloudOptions)
        if self._options.view_as(beams.TestOptions).dry_run or not self._result.has_job:
            return Job("", google.template_location or "")
        name = self._result.job_id()
        return Job(name, f"{_CONSOLE}/{google.region}/{name}?project={google.project}")

    def _wait_for_end(self) -> str:
        """Returns the state in which the job ended; if it failed, raises Beam's error."""
        try:
            return str(self._result.wait_until_finish())
        except DataflowRuntimeException as error:
            if error.result.state == PipelineState.CANCELLED:
                return str(PipelineState.CANCELLED)
            raise

    def counters(self) -> Mapping[str, int]:
        """Returns the latest answer of the service, which may be slow.

        Asks again every `PERIOD_S` seconds.
        """
        is_due = self._submitted.is_set() and time.monotonic() >= self._next
        if is_due and not self._asking.is_alive():
            self._ask_for_counters()
        return self._latest

    def _ask_for_counters(self) -> threading.Thread:
        self._next = time.monotonic() + PERIOD_S
        self._asking = threading.Thread(
            target=self._keep_counters, name="beam_tfr-counters", daemon=True
        )
        self._asking.start()
        return self._asking

    def _keep_counters(self) -> None:
        self._latest = read_counters(self._result) or self._latest

    def stop(self) -> str:
        if not self._submitted.wait(INTERRUPT_WAIT_S):
            return "the job was being submitted; if it was created after all, the console lists it"
        if not stop_job(self._result, self.job, self._on_interrupt):
            return f"job {self.job.id} continues ({self.job.place})"
        self._say(f"job {self.job.id} is cancelled")
        return ""


def stop_job(result: Any, job: Job, on_interrupt: str) -> bool:
    """Cancels a job or leaves it running, as `on_interrupt=` or the user decides.

    Returns:
        True if the job is cancelled.

    Raises:
        RunError: the job could not be cancelled.
    """
    cancel = on_interrupt == "cancel"
    if on_interrupt == "ask" and sys.stdin is not None and sys.stdin.isatty():
        question = f"\ncancel job {job.id}? Otherwise it continues [y/N] "
        print(question, end="", file=sys.stderr, flush=True)
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
def forward_messages(say: Callable[[str], object]) -> Iterator[None]:
    """Passes on the service's warnings and errors, each once, as Beam logs them.

    Also passes on the reasons why requests are repeated, and silences Beam's other messages.
    """
    if os.environ.get(TRACEBACK_VARIABLE):
        yield
        return
    seen = set[str]()

    def forward_retry(record: logging.LogRecord) -> bool:
        # "… because we caught exception: NAME: …", with other times and addresses each time
        error = record.getMessage().partition("because we caught exception: ")[2]
        name = error.partition(":")[0].rpartition(".")[2]
        if name and name not in seen:
            seen.add(name)
            say(f"a request to Google Cloud failed and is repeated: {error.splitlines()[0][:300]}")
        return False

    def forward(record: logging.LogRecord) -> bool:
        # "ERROR: …" for a message from the service
        text = record.getMessage().partition("JOB_MESSAGE_")[2].strip()
        if record.levelno >= logging.WARNING and text and text not in seen:
            seen.add(text)
            say(_shorten_message(text))
        return False

    logging.getLogger("apache_beam").setLevel(logging.CRITICAL + 1)
    with _filtered(_LOGGER, forward), _filtered(_RETRY_LOGGER, forward_retry):
        yield


@contextlib.contextmanager
def _filtered(name: str, forward: Callable[[logging.LogRecord], bool]) -> Iterator[None]:
    """Passes the warnings of a logger to a function."""
    logger = logging.getLogger(name)
    logger.setLevel(logging.WARNING)
    logger.addFilter(forward)
    try:
        yield
    finally:
        logger.setLevel(logging.NOTSET)
        logger.removeFilter(forward)


def _shorten_message(text: str) -> str:
    """Shortens a service's message to one line: the last one of a traceback, else the first one."""
    severity, _, message = text.partition(": ")
    lines = message.splitlines() or [""]
    line = lines[-1] if lines[0].startswith("Traceback") else lines[0]
    return f"Dataflow, {severity.lower()}: {line[:300]}"


def read_job_state(options: PipelineOptions | None, job_id: str) -> str:
    """Returns the state of a job as Dataflow reports it, such as "RUNNING".

    Returns an empty string if the service cannot be asked.
    """
    from google.api_core.exceptions import GoogleAPIError
    from google.auth.exceptions import GoogleAuthError

    if options is None:
        return ""
    google = options.view_as(GoogleCloudOptions)
    if not google.project or not google.region:
        return ""
    with contextlib.suppress(GoogleAPIError, GoogleAuthError):
        return dataflow_job_state(google, job_id).removeprefix("JOB_STATE_")
    return ""


def worker_job_id(options: PipelineOptions | None) -> str:
    """Returns the id of the job that this worker process belongs to, or "" in other processes."""
    if options is None:
        return ""
    runner = options.view_as(beams.StandardOptions).runner or ""
    return os.environ.get("JOB_ID", "") if runner.endswith("DataflowRunner") else ""
