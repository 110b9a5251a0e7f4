"""Runs a conversion as a Dataflow job, and follows it to its end."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.runner import PipelineResult

from beam_tfr import notes
from beam_tfr.claim import Progress
from beam_tfr.dataflow import checks, jobs
from beam_tfr.dataflow.staging import staged
from beam_tfr.launch.live import JobCounters
from beam_tfr.launch.results import Beginning, Result
from beam_tfr.launch.running import UNPUBLISHED, Reporter, build, held, on_interrupt, wait
from beam_tfr.pipeline import Convert


def run(
    step: Convert,
    beam_options: PipelineOptions,
    *,
    progress: Callable[[Progress], object] | None,
    say: Callable[[str], object],
) -> Result | jobs.Job:
    """Submits the job and follows it unless `no_wait=` is given. Raises what `start` raises."""
    options = step.options
    only_form = checks.is_only_form(beam_options)
    beginning = Beginning(step, progress, look=not only_form)
    with contextlib.ExitStack() as stack:
        stack.enter_context(on_interrupt())
        holding = held(step, beam_options, say, guarded=beginning.crashed)
        hold = None if only_form else stack.enter_context(holding)
        stack.enter_context(jobs.messages(say))
        step.attended = not (options.no_wait or only_form)
        result, job = submit(step, beam_options, say)
        if not job.id:
            return job
        if hold:
            hold.leave(job.id)  # which may outlive this process
        if options.no_wait:
            return job

        def stop() -> str:
            if jobs.stop(result, job, options.on_interrupt):
                return f"job {job.id} is cancelled; {UNPUBLISHED}"
            return f"job {job.id} continues ({job.place})"

        counters = JobCounters(result)
        reporter = Reporter(step, progress, counters.latest)
        wait(lambda: jobs.wait(result, job), tick=reporter.tick, stop=stop)
        noted = notes.take(options.output, step.run_id)
    return beginning.result(counters.final(), noted)


def submit(
    step: beam.PTransform, beam_options: PipelineOptions, say: Callable[[str], object]
) -> tuple[PipelineResult, jobs.Job]:
    """Creates the job of a step, or only describes it, and says where the job is."""
    with staged(beam_options) as runner:
        pipeline = build(step, runner, beam_options)
        unclear = "the job was being submitted; if it was created after all, the console lists it"
        result = wait(pipeline.run, stop=lambda: unclear)
    job = jobs.job_of(result, beam_options)
    if job.id:
        say(f"job {job.id}: {job.place}")
    return result, job
