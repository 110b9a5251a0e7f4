"""Dataflow: what is checked before a job is created, what its workers get, and what becomes of it."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from apache_beam.internal import cloudpickle_pickler
from apache_beam.options.pipeline_options import (
    DebugOptions,
    GoogleCloudOptions,
    PipelineOptions,
    SetupOptions,
    StandardOptions,
    TestOptions,
    WorkerOptions,
)
from apache_beam.pipeline import Pipeline
from apache_beam.runners.dataflow import dataflow_runner
from apache_beam.runners.runner import PipelineState

from beam_tfr import images
from beam_tfr.dataflow import staging
from beam_tfr.dataflow.checks import check, is_only_form
from beam_tfr.schema import TRACEBACK_VARIABLE, RunError

__all__ = [
    "DataflowRunner",
    "Job",
    "check",
    "is_only_form",
    "is_wanted",
    "job_of",
    "messages",
    "staged",
    "stop",
    "template_location",
    "wait",
]

_LOGGER = "apache_beam.runners.dataflow.dataflow_runner"
_CONSOLE = "https://console.cloud.google.com/dataflow/jobs"
_NOT_CODECS = ("zlib",)  # of `images.codec_versions`: part of Python


class Job(NamedTuple):
    """A job that the service took.

    Attributes:
        id: that the service gave it.
        link: to its page in the console.
    """

    id: str
    link: str


def is_wanted(options: PipelineOptions) -> bool:
    """Whether --runner names Dataflow."""
    return (options.view_as(StandardOptions).runner or "").rpartition(".")[2].lower() in ("dataflowrunner", "dataflow")


def template_location(options: PipelineOptions) -> str:
    return options.view_as(GoogleCloudOptions).template_location or ""


class DataflowRunner(dataflow_runner.DataflowRunner):
    """Beam's. The wheels that it stages for the workers stand in no option of the job, which others may see."""

    def __init__(self, wheels: list[Path]) -> None:
        super().__init__()
        self._wheels = list(map(str, wheels))

    def run_pipeline(self, pipeline: Pipeline, options: PipelineOptions, pipeline_proto: Any = None) -> Any:
        setup = options.view_as(SetupOptions)
        self._given = setup.extra_packages
        if self._wheels:
            setup.extra_packages = [*self._wheels, *(self._given or [])]
        return super().run_pipeline(pipeline, options, pipeline_proto)

    def _adjust_pipeline_for_dataflow_v2(self, pipeline: Pipeline) -> None:  # what follows the list of files
        pipeline.options.view_as(SetupOptions).extra_packages = self._given
        super()._adjust_pipeline_for_dataflow_v2(pipeline)


@contextlib.contextmanager
def staged(options: PipelineOptions) -> Iterator[DataflowRunner]:
    """A runner whose jobs bring this package and its codecs with them, unless an image has them.

    Raises:
        UsageError: a codec cannot be had for workers.
    """
    # Beam would list all that is installed here beside the job, with the addresses that it came from.
    options.view_as(DebugOptions).add_experiment("disable_logging_submission_environment")
    with _no_folders_in_pickles(), tempfile.TemporaryDirectory(prefix="beam_tfr-staging-") as folder:
        wheels = []
        if not options.view_as(WorkerOptions).sdk_container_image:
            codecs = [name for name in images.codec_versions() if name not in _NOT_CODECS]
            wheels = staging.make_wheels(Path(folder), sorted(codecs, key=lambda name: name != "numpy"))
        yield DataflowRunner(wheels)


@contextlib.contextmanager
def _no_folders_in_pickles() -> Iterator[None]:
    """Within the block the code of lambdas, Beam's own too, is pickled without the folder that it lies in here."""
    config = cloudpickle_pickler.DEFAULT_CONFIG
    before, config.filepath_interceptor = config.filepath_interceptor, os.path.basename
    try:
        yield
    finally:
        config.filepath_interceptor = before


def job_of(result: Any, options: PipelineOptions) -> Job | None:
    """The job that a run created; None where it only described one (a template, a dry run)."""
    if options.view_as(TestOptions).dry_run or not result.has_job:
        return None
    google = options.view_as(GoogleCloudOptions)
    return Job(result.job_id(), f"{_CONSOLE}/{google.region}/{result.job_id()}?project={google.project}")


def wait(result: Any, job: Job) -> None:
    """Waits for the end of a job.

    Raises:
        RunError: it was cancelled.
        DataflowRuntimeException: it failed; with what the service says of it.
    """
    try:
        state = result.wait_until_finish()
    except dataflow_runner.DataflowRuntimeException as error:
        state = error.result.state
        if state != PipelineState.CANCELLED:
            raise
    if state != PipelineState.DONE:
        raise RunError(
            f"job {job.id} was {state.lower()}: nothing is published; the same command goes on with the finished shards"
        )


def stop(result: Any, job: Job, on_interrupt: str) -> bool:
    """Cancels a job, or leaves it, as --on_interrupt says; asks where that says so and somebody is there.

    Returns:
        Whether the job is cancelled.

    Raises:
        RunError: it could not be.
    """
    cancel = on_interrupt == "cancel"
    if on_interrupt == "ask" and sys.stdin is not None and sys.stdin.isatty():
        print(f"\ncancel job {job.id}? It goes on otherwise [y/N] ", end="", file=sys.stderr, flush=True)
        cancel = sys.stdin.readline().strip().lower() in ("y", "yes")
    if cancel:
        try:
            result.cancel()
        except Exception as error:
            raise RunError(f"job {job.id} could not be cancelled, and goes on ({job.link}): {error}") from error
    return cancel


class _Messages(logging.Handler):
    """Beam's log of a job as short lines, each once."""

    def __init__(self, say: Callable[[str], object]) -> None:
        super().__init__(logging.INFO)
        self._say, self._said = say, set[str]()

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.msg == "Job %s is in state %s":
            text = f"job is {text.rpartition('JOB_STATE_')[2].lower()}"
        elif "JOB_MESSAGE_ERROR: " in text or "JOB_MESSAGE_WARNING: " in text:
            lines = text.partition(": JOB_MESSAGE_")[2].strip().splitlines()
            kind, _, first = lines[0].partition(": ")
            text = f"Dataflow, {kind.lower()}: {(lines[-1] if first.startswith('Traceback') else first)[:300]}"
        else:
            return
        if text not in self._said:
            self._said.add(text)
            self._say(text)


@contextlib.contextmanager
def messages(say: Callable[[str], object]) -> Iterator[None]:
    """Within the block the state of a job, and what the service complains of, is said, and nothing else is logged."""
    if os.environ.get(TRACEBACK_VARIABLE):
        yield
        return
    handler = _Messages(say)
    beams, runners = logging.getLogger("apache_beam"), logging.getLogger(_LOGGER)
    before = beams.level, runners.level, runners.propagate
    beams.setLevel(logging.CRITICAL + 1)
    runners.setLevel(logging.INFO)
    runners.propagate = False
    runners.addHandler(handler)
    try:
        yield
    finally:
        runners.removeHandler(handler)
        beams.setLevel(before[0])
        runners.setLevel(before[1])
        runners.propagate = before[2]
