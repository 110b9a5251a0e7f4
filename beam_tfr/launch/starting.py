"""Checks a call, builds its pipeline, and runs it here or elsewhere."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import cast

import apache_beam as beam
from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions
from apache_beam.runners.runner import PipelineResult, PipelineRunner

from beam_tfr import cloud, notes
from beam_tfr.beam_internals import ONE_RUN, LocalRunner, inspected_once, streams_without_timeout
from beam_tfr.claim import Progress
from beam_tfr.dataflow import checks
from beam_tfr.dataflow.jobs import Job
from beam_tfr.launch import elsewhere
from beam_tfr.launch.failures import translate
from beam_tfr.launch.flags import choose_runner, parse_beam_flags
from beam_tfr.launch.live import counters_of
from beam_tfr.launch.results import Beginning, Result
from beam_tfr.launch.running import (
    INTERRUPT_WAIT_S,
    PROCESSES_WAIT_S,
    UNPUBLISHED,
    Reporter,
    build,
    held,
    on_interrupt,
    quiet,
    wait,
)
from beam_tfr.options import ConvertOptions
from beam_tfr.pipeline import Convert
from beam_tfr.schema import UsageError
from beam_tfr.sources import Input, check_reach, early_warnings, open_source


def convert(
    options: ConvertOptions,
    beam_flags: Sequence[str] = (),
    *,
    progress: Callable[[Progress], object] | None = None,
    say: Callable[[str], object] = lambda _: None,
) -> Result:
    """Converts and returns the complete dataset; see `start` for arguments and errors."""
    if options.no_wait or checks.is_only_form(parse_beam_flags(beam_flags)):
        raise UsageError(
            "`no_wait=`, `template_location=` and `dry_run=` leave no dataset to return: call "
            "beam_tfr.launch.start(ConvertOptions(…), beam_flags)"
        )
    return cast(Result, start(options, beam_flags, progress=progress, say=say))


def prepare(options: ConvertOptions, beam_flags: Sequence[str]) -> tuple[PipelineOptions, PipelineRunner | None, Input]:
    """Checks a call, for `convert` and `plan`, and opens its input; the runner is None for Dataflow.

    Raises:
        UsageError: the call is wrong.
    """
    if options.gcs_project:
        beam_flags = [*beam_flags, f"--gcs_project={options.gcs_project}"]
    beam_options = parse_beam_flags(beam_flags)
    on_dataflow = checks.is_wanted(beam_options)
    if on_dataflow:
        checks.check(options, beam_options)
    elif options.no_wait or options.on_interrupt != "ask":
        name = "no_wait" if options.no_wait else "on_interrupt"
        raise UsageError(f"`{name}=` has no effect without `runner=DataflowRunner`: the run ends with its command")
    runner = None if on_dataflow else choose_runner(beam_options, beam_flags)  # wrong flags are refused before files
    cloud.use(beam_options)
    source = open_source(options)
    if runner or not checks.is_only_form(beam_options):
        check_reach(options, source)
    return beam_options, runner, source


def start(
    options: ConvertOptions,
    beam_flags: Sequence[str] = (),
    *,
    make: Callable[[ConvertOptions, Input], Convert] = Convert,
    progress: Callable[[Progress], object] | None = None,
    say: Callable[[str], object] = lambda _: None,
) -> Result | Job:
    """Converts; returns when the dataset is complete, or earlier if the options say so.

    Args:
        options: checked options.
        beam_flags: Beam's own options, as on a command line.
        make: makes the step from the options and the opened source.
        progress: called at the start with what an earlier run finished, then every `PROGRESS_S` seconds, and at the
            end; all zero before there is a plan.
        say: called with messages about a remote job and about rewritten shards, one line each.

    Returns:
        The dataset; with `no_wait=`, a template or a dry run the job.

    Raises:
        UsageError: the call is wrong.
        DataError: too many rejects, an empty split, a lost class.
        RunError: the run failed; the same call resumes from the finished shards.
        InterruptedRunError: Ctrl-C.
    """
    beam_options, runner, source = prepare(options, beam_flags)
    if runner or not checks.is_only_form(beam_options):
        for told in early_warnings(options, source):
            say(told)
    step = make(options, source)
    if runner is None:
        return elsewhere.run(step, beam_options, progress=progress, say=say)
    beginning = Beginning(step, progress)
    # From here on Ctrl-C only sets a flag: raised in the middle of Beam's code, an exception might be swallowed.
    with on_interrupt(), held(step, beam_options, say, guarded=beginning.crashed) as hold:
        step.attended = True
        pipeline = build(step, runner, beam_options)
        result = follow(
            pipeline, runner, beam_options, lambda counters: Reporter(step, progress, counters, hold.check).tick
        )
        noted = notes.take(options.output, step.run_id)
    return beginning.result(counters_of(result), noted)


def follow(
    pipeline: beam.Pipeline,
    runner: PipelineRunner,
    beam_options: PipelineOptions,
    report: Callable[[Callable[[], Mapping[str, int]]], Callable[[], object]],
) -> PipelineResult:
    """Runs a pipeline to its end on a runner other than Dataflow; returns the runner's result.

    A second run in this process, from another thread, waits for the first, which uses all cores.

    Args:
        pipeline: the complete pipeline.
        runner: runner for the pipeline.
        beam_options: options for the pipeline.
        report: takes a function that reads the counters; returns one to call often while the pipeline runs.
    """
    with ONE_RUN if isinstance(runner, LocalRunner) else contextlib.nullcontext(), inspected_once(), quiet():
        if isinstance(runner, LocalRunner):  # `run` returns when all is done
            told = report(runner.counters)
            by_processes = beam_options.view_as(DirectOptions).direct_running_mode == "multi_processing"
            patience_s = PROCESSES_WAIT_S if by_processes else INTERRUPT_WAIT_S

            def tick() -> None:
                runner.check_workers()
                told()

            try:
                result = wait(pipeline.run, tick=tick, patience_s=patience_s)
            finally:
                runner.end_workers()
        else:
            try:
                with streams_without_timeout():
                    result = pipeline.run()  # some want the main thread for it
            except Exception as error:
                raise translate(error) from error

            def cancel() -> str:
                with contextlib.suppress(Exception):
                    result.cancel()
                return UNPUBLISHED

            wait(result.wait_until_finish, tick=report(lambda: counters_of(result)), stop=cancel)
    return result
