"""Runs a conversion as a Dataflow job, and follows it if asked to."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from apache_beam.options.pipeline_options import PipelineOptions

from beam_tfr import dataflow
from beam_tfr.claim import Progress
from beam_tfr.launch.results import Beginning, Result, Saved, Submission
from beam_tfr.launch.running import RESUME, Reporter, build, held, on_interrupt, wait
from beam_tfr.pipeline import Convert
from beam_tfr.schema import InterruptedRunError


def run(
    step: Convert,
    beam_options: PipelineOptions,
    *,
    progress: Callable[[Progress], object] | None,
    say: Callable[[str], object],
) -> Result | Saved | Submission:
    """Submits the job and follows it unless `no_wait=` is given; errors as of `start`."""
    options = step.options
    only_form = dataflow.is_only_form(beam_options)
    beginning = Beginning(options, look=not only_form)
    with contextlib.ExitStack() as stack:
        interrupted = stack.enter_context(on_interrupt())
        leave = stack.enter_context(contextlib.nullcontext(lambda _: None) if only_form else held(step))
        stack.enter_context(dataflow.messages(say))
        submitted: list[Any] = []
        with dataflow.staged(beam_options) as runner:
            pipeline = build(step, runner, beam_options)
            try:
                wait(
                    lambda: submitted.append(pipeline.run()),
                    interrupted=interrupted,
                    stop=lambda: "the job was being submitted; if it was created after all, the console lists it",
                )
            except InterruptedRunError:
                if not submitted:  # else the job was created in that moment: what becomes of it is asked below
                    raise
        (result,) = submitted
        job = dataflow.job_of(result, beam_options)
        if job is None:
            return Submission(job=None, place=dataflow.template_location(beam_options))
        say(f"job {job.id}: {job.link}")
        if options.no_wait:
            leave(job.id)
            return Submission(job=job, place="")

        def stop() -> str:
            if dataflow.stop(result, job, options.on_interrupt):
                return f"job {job.id} is cancelled; {RESUME}"
            leave(job.id)
            return f"job {job.id} continues ({job.link})"

        reporter = Reporter(options, progress)
        wait(lambda: dataflow.wait(result, job), interrupted=interrupted, tick=reporter.tick, stop=stop)
    return beginning.result()
