"""Checks a call and runs its conversion: here, on another engine, or as a Dataflow job."""

import contextlib
import functools
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.runner import PipelineRunner

from beam_tfr import storage
from beam_tfr.console.display import Progress
from beam_tfr.dataflow import checks, jobs
from beam_tfr.dataset.taken_down import Removed, read_removed
from beam_tfr.engine import cloud
from beam_tfr.engine.beam_internals import LocalRunner
from beam_tfr.engine.failures import UNPUBLISHED, Outcome
from beam_tfr.engine.runs import Run, follow_run, handling_interrupts
from beam_tfr.first_look import early_warnings
from beam_tfr.launch.bounds import bounded_look, list_given
from beam_tfr.launch.flags import (
    choose_runner,
    engine_advice,
    fit_workers,
    make_run,
    parse_beam_flags,
    ready_workers,
)
from beam_tfr.launch.progress import Reporter
from beam_tfr.launch.results import Result, read_replaced, read_result
from beam_tfr.launch.workload import has_many_images
from beam_tfr.options import ConvertOptions
from beam_tfr.output import attempts, lock
from beam_tfr.pipeline import Convert
from beam_tfr.schema.dataset import MANIFEST_FILE, SWITCH_FILE
from beam_tfr.schema.errors import DataError, InterruptedRunError, RunError, UsageError
from beam_tfr.sources import Input, check_gcs_access, open_source
from beam_tfr.storage import opened


def prepare_run(
    options: ConvertOptions,
    beam_flags: Sequence[str],
    open_input: Callable[[ConvertOptions], Input] = open_source,
) -> tuple[PipelineOptions, PipelineRunner | None, Input]:
    """Checks a call to `convert` or `plan`, and opens its input.

    Returns:
        Beam's options, the runner (None for Dataflow), and the input.

    Raises:
        UsageError: the call is wrong.
    """
    if options.gcs_project:
        beam_flags = [*beam_flags, f"--gcs_project={options.gcs_project}"]
    beam_options = parse_beam_flags(beam_flags)
    runner = None
    if checks.names_dataflow(beam_options):
        checks.check_job(options, beam_options)
    else:
        _refuse_job_options(options)
        runner = choose_runner(beam_options, beam_flags)  # refuses wrong flags before files
    cloud.use_cloud_options(beam_options)
    opened.forget_paths()
    with bounded_look(list_given(options)):
        source = open_input(options)
    if runner or not checks.creates_no_job(beam_options):
        check_gcs_access(options)
    return beam_options, runner, source


def _refuse_job_options(options: ConvertOptions) -> None:
    """Raises an error for options about Dataflow jobs if another runner is used."""
    defaults = {"no_wait": False, "on_interrupt": "ask"}
    for name, default in defaults.items():
        if getattr(options, name) != default:
            raise UsageError(
                f"`{name}=` has no effect without `runner=DataflowRunner`: other runs end with "
                "the command"
            )


class StepBuilder(Protocol):
    """Builds the step of a run, once the run holds the output."""

    def __call__(self, *, run_id: str, removed: Removed, guarded: bool) -> Convert:
        """Builds the step; see `Convert` for the arguments."""


def choose_convert(options: ConvertOptions, source: Input) -> StepBuilder:
    """Builds the step of a conversion."""
    return functools.partial(Convert, options, source)


def run_step(
    options: ConvertOptions,
    beam_flags: Sequence[str] = (),
    *,
    open_input: Callable[[ConvertOptions], Input] = open_source,
    choose_step: Callable[[ConvertOptions, Input], StepBuilder] = choose_convert,
    outcome: Outcome = UNPUBLISHED,
    progress: Callable[[Progress], object] = lambda _: None,
    say: Callable[[str], object] = lambda _: None,
) -> Result | jobs.Job:
    """Converts images into a dataset.

    Returns when the dataset is complete, or earlier if the options say so.

    Args:
        options: checked options.
        beam_flags: Beam's own options, as on a command line.
        open_input: opens the source.
        choose_step: chooses what to run, from the options and the opened source.
        outcome: the state that a failed run leaves behind, for its error.
        progress: called at the start, then about every second, and at the end.
        say: called with messages about earlier runs, a remote job and rewritten shards, one line
            each.

    Returns:
        The dataset; or the job, with `no_wait=`, a template or a dry run.

    Raises:
        UsageError: the call is wrong.
        DataError: there are too many rejects, or a split or class is lost.
        RunError: the run failed; the same call resumes from the finished shards.
        InterruptedRunError: the user pressed Ctrl-C.
    """
    beam_options, runner, source = prepare_run(options, beam_flags, open_input)
    if runner is None and checks.creates_no_job(beam_options):
        build_step = choose_step(options, source)
        return _run_without_access(
            options, beam_options, build_step, outcome=outcome, progress=progress, say=say
        )
    with bounded_look(list_given(options)):
        for warning in early_warnings(
            source, shares_option=options.shares_option, exclude=options.exclude
        ):
            say(warning)
    advice = engine_advice(runner, beam_options)
    if advice:
        say(advice)
    if isinstance(runner, LocalRunner):
        fit_workers(beam_options, beam_flags, functools.partial(has_many_images, source, options))
    build_step = choose_step(options, source)
    replaced = read_replaced(options.output)
    started = time.monotonic()
    run_id = uuid.uuid4().hex
    # From here on, Ctrl-C only sets a flag, because Beam's code might swallow an exception.
    with (
        handling_interrupts(),
        ready_workers(runner, beam_options),
        _hold_output(options, run_id, beam_options, say) as held_lock,
    ):
        step = build_step(
            run_id=run_id,
            removed=read_removed(options.output),
            guarded=_may_crash(options.output, replaced, say),
        )
        reporter = None
        if not options.no_wait:
            reporter = Reporter(step, progress, say)
        run = make_run(
            runner,
            step,
            beam_options,
            say=say,
            created=held_lock.leave_to_job,
            waits=not options.no_wait,
            on_interrupt=options.on_interrupt,
        )
        counters = follow_run(run, _choose_tick(run, reporter, progress), outcome)
        if isinstance(run, jobs.JobRun) and options.no_wait:
            return run.job
    result = read_result(step, replaced, counters, time.monotonic() - started)
    final = step.final_progress(result.manifest)
    num_bytes = counters.get("bytes-read", 0)
    progress(final._replace(num_bytes=num_bytes, rejected=counters.get("rejected", 0)))
    return result


def _run_without_access(
    options: ConvertOptions,
    beam_options: PipelineOptions,
    build_step: StepBuilder,
    *,
    outcome: Outcome,
    progress: Callable[[Progress], object],
    say: Callable[[str], object],
) -> Result | jobs.Job:
    """Makes a template or a dry run, which neither locks nor reads the output."""
    removed = Removed()
    with contextlib.suppress(OSError):
        removed = read_removed(options.output)
    step = build_step(run_id=uuid.uuid4().hex, removed=removed, guarded=False)
    run = jobs.JobRun(
        step,
        beam_options,
        say=say,
        waits=not options.no_wait,
        on_interrupt=options.on_interrupt,
    )
    started = time.monotonic()
    with handling_interrupts():
        counters = follow_run(run, _choose_tick(run, None, progress), outcome)
    if options.no_wait or not run.job.id:
        return run.job
    return read_result(step, None, counters, time.monotonic() - started)  # with Beam's --no_auth


def _choose_tick(
    run: Run, reporter: Reporter | None, progress: Callable[[Progress], object]
) -> Callable[[Mapping[str, int]], object]:
    """Chooses the function that receives a run's counters, which are empty before submission."""

    def report(counters: Mapping[str, int]) -> None:
        if not run.is_submitted:
            progress(Progress("submitting", 0))
        elif reporter:
            reporter(counters)

    return report


@contextlib.contextmanager
def _hold_output(
    options: ConvertOptions,
    run_id: str,
    beam_options: PipelineOptions,
    say: Callable[[str], object],
) -> Iterator[lock.HeldLock]:
    """Locks the output while the block runs, as `lock.hold_lock` does.

    Adds the state of the dataset in the output to the error of a failed run.
    """
    output = options.output
    job_state = functools.partial(jobs.read_job_state, beam_options)
    with lock.hold_lock(output, run_id, say=say, job_state=job_state) as held_lock:
        manifest = storage.join(output, MANIFEST_FILE)
        replaced = storage.find(manifest) if options.overwrite else None
        try:
            yield held_lock
        except (DataError, RunError, InterruptedRunError) as error:
            if storage.find(storage.work_path(output, SWITCH_FILE)):
                first, *rest = error.args
                raise type(error)(
                    f"the run ended while the dataset was moved into place in {output}: {first}",
                    *rest,
                    "Run the same command again to complete it",
                ) from error
            if replaced and storage.find(manifest) == replaced:
                raise type(error)(*error.args, f"The dataset in {output} is unchanged") from error
            raise


def _may_crash(
    output: str, replaced: Mapping[str, Any] | None, say: Callable[[str], object]
) -> bool:
    """Whether earlier runs crashed, so that guarded processes must decode the images."""
    if attempts.has_crashed(output):
        say(
            "earlier runs crashed; this run decodes each image in a guarded process and rejects "
            "any that crash it"
        )
        return True
    return replaced is not None and "crashed-decoder" in replaced["counts"]["rejected"]
