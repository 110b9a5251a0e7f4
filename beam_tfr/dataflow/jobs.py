"""Follows a job: its messages, its end, and Ctrl-C."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from apache_beam.options.pipeline_options import GoogleCloudOptions, PipelineOptions, TestOptions
from apache_beam.runners.dataflow.dataflow_runner import DataflowRuntimeException
from apache_beam.runners.runner import PipelineState

from beam_tfr.beam_internals import DATAFLOW_LOGGER, read_job_log
from beam_tfr.schema import RESUME, TRACEBACK_VARIABLE, RunError

_CONSOLE = "https://console.cloud.google.com/dataflow/jobs"


class Job(NamedTuple):
    """A job that continues without this process.

    Attributes:
        id: the service's id; empty for a template or a dry run, which create no job.
        place: its page in the console; without an id, the file with its description, if any.
    """

    id: str
    place: str


def job_of(result: Any, options: PipelineOptions) -> Job:
    """The job that a run created or described."""
    google = options.view_as(GoogleCloudOptions)
    if options.view_as(TestOptions).dry_run or not result.has_job:
        return Job("", google.template_location or "")
    return Job(result.job_id(), f"{_CONSOLE}/{google.region}/{result.job_id()}?project={google.project}")


def wait(result: Any, job: Job) -> None:
    """Waits for the end of a job.

    Raises:
        RunError: it was cancelled.
        DataflowRuntimeException: it failed; the message is the service's.
    """
    try:
        state = result.wait_until_finish()
    except DataflowRuntimeException as error:
        state = error.result.state
        if state != PipelineState.CANCELLED:
            raise
    if state != PipelineState.DONE:
        raise RunError(f"job {job.id} was {state.lower()}: nothing is published; {RESUME}")


def stop(result: Any, job: Job, on_interrupt: str) -> bool:
    """Cancels a job or leaves it, as `on_interrupt=` or the user says.

    Returns:
        True if the job is cancelled.

    Raises:
        RunError: it could not be.
    """
    cancel = on_interrupt == "cancel"
    if on_interrupt == "ask" and sys.stdin is not None and sys.stdin.isatty():
        print(f"\ncancel job {job.id}? Otherwise it continues [y/N] ", end="", file=sys.stderr, flush=True)
        cancel = sys.stdin.readline().strip().lower() in ("y", "yes")
    if cancel:
        try:
            result.cancel()
        except Exception as error:
            raise RunError(f"job {job.id} could not be cancelled and continues ({job.place}): {error}") from error
    return cancel


@contextlib.contextmanager
def messages(say: Callable[[str], object]) -> Iterator[None]:
    """Prints a job's states and the service's errors, each once; silences Beam's other messages."""
    if os.environ.get(TRACEBACK_VARIABLE):
        yield
        return
    said = {""}

    def tell(record: logging.LogRecord) -> bool:
        if (text := read_job_log(record)) not in said:
            said.add(text)
            say(text)
        return False

    runners = logging.getLogger(DATAFLOW_LOGGER)
    logging.getLogger("apache_beam").setLevel(logging.CRITICAL + 1)
    runners.setLevel(logging.INFO)
    runners.addFilter(tell)
    try:
        yield
    finally:
        runners.setLevel(logging.NOTSET)
        runners.removeFilter(tell)
