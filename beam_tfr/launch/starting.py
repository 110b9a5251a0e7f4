"""Checks a call and runs its conversion: here, on another engine, or as a Dataflow job."""

import contextlib
import functools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import cast

from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.runner import PipelineRunner

from beam_tfr import storage
from beam_tfr.console.display import Progress
from beam_tfr.dataflow import checks, jobs
from beam_tfr.engine import cloud
from beam_tfr.engine.failures import UNPUBLISHED, Outcome
from beam_tfr.engine.runs import follow, on_interrupt
from beam_tfr.launch.flags import choose_runner, parse_beam_flags, run_on
from beam_tfr.launch.progress import Reporter
from beam_tfr.launch.results import Result, read_before, result_of
from beam_tfr.options import ConvertOptions
from beam_tfr.output import attempts, lock, removed
from beam_tfr.pipeline import Convert
from beam_tfr.schema.dataset import MANIFEST_FILE, SWITCH_FILE
from beam_tfr.schema.errors import DataError, InterruptedRunError, RunError, UsageError
from beam_tfr.sources import Input, check_gcs_access, early_warnings, open_source


def convert(
    options: ConvertOptions,
    beam_flags: Sequence[str] = (),
    *,
    progress: Callable[[Progress], object] | None = None,
    say: Callable[[str], object] = lambda _: None,
) -> Result:
    """Converts and returns the complete dataset; see `start` for arguments and errors."""
    if options.no_wait or checks.is_only_form(parse_beam_flags(beam_flags)):
        problem = "`no_wait=`, `template_location=` and `dry_run=` leave no dataset to return"
        raise UsageError(f"{problem}: call beam_tfr.launch.start(ConvertOptions(…), beam_flags)")
    return cast(Result, start(options, beam_flags, progress=progress, say=say))


def prepare(
    options: ConvertOptions,
    beam_flags: Sequence[str],
    open_input: Callable[[ConvertOptions], Input] = open_source,
) -> tuple[PipelineOptions, PipelineRunner | None, Input]:
    """Checks a call, for `convert` and `plan`, and opens its input; the runner is None for
    Dataflow.

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
        raise UsageError(
            f"`{name}=` has no effect without `runner=DataflowRunner`: the run ends with its command"
        )
    runner = (
        None if on_dataflow else choose_runner(beam_options, beam_flags)
    )  # wrong flags are refused before files
    cloud.use(beam_options)
    source = open_input(options)
    if runner or not checks.is_only_form(beam_options):
        check_gcs_access(options)
    return beam_options, runner, source


def start(
    options: ConvertOptions,
    beam_flags: Sequence[str] = (),
    *,
    open_input: Callable[[ConvertOptions], Input] = open_source,
    make: Callable[[ConvertOptions, Input], Convert] = Convert,
    outcome: Outcome = UNPUBLISHED,
    progress: Callable[[Progress], object] | None = None,
    say: Callable[[str], object] = lambda _: None,
) -> Result | jobs.Job:
    """Converts; returns when the dataset is complete, or earlier if the options say so.

    Args:
        options: checked options.
        beam_flags: Beam's own options, as on a command line.
        open_input: opens the source.
        make: makes the step from the options and the opened source.
        outcome: what is left if the run fails, for its error.
        progress: called at the start, then about every second, and at the end.
        say: called with messages about earlier runs, a remote job and rewritten shards, one line
            each.

    Returns:
        The dataset; with `no_wait=`, a template or a dry run the job.

    Raises:
        UsageError: the call is wrong.
        DataError: too many rejects, an empty split, a lost class.
        RunError: the run failed; the same call resumes from the finished shards.
        InterruptedRunError: Ctrl-C.
    """
    beam_options, runner, source = prepare(options, beam_flags, open_input)
    only_form = runner is None and checks.is_only_form(beam_options)
    if not only_form:
        for warning in early_warnings(source):
            say(warning)
    step = make(options, source)
    before = None if only_form else read_before(options.output)
    started = time.monotonic()
    # From here on Ctrl-C only sets a flag: raised in the middle of Beam's code, an exception might
    # be swallowed.
    with on_interrupt(), contextlib.ExitStack() as stack:
        step.read.guarded = before is not None and "crashed-decoder" in before["counts"]["rejected"]
        hold = None if only_form else stack.enter_context(_held(step, beam_options, say))
        with contextlib.suppress(
            *([OSError] if only_form else [])
        ):  # which may be made where there is no access
            step.leave_out(removed.read_removed(options.output))
        report = (
            Reporter(step, progress, say) if hold and progress and not options.no_wait else None
        )
        settings = {"waits": not options.no_wait, "on_interrupt": options.on_interrupt}
        created = hold.leave if hold else lambda _: None
        run = run_on(runner, step, beam_options, say=say, created=created, **settings)
        counters = follow(run, report, outcome)
        if isinstance(run, jobs.JobRun) and (options.no_wait or not run.job.id):
            return run.job
    done = result_of(step, before, counters, time.monotonic() - started)
    if progress:
        read = counters.get("bytes-read", 0)
        rejected = counters.get("rejected", 0)
        progress(step.end(done.manifest)._replace(num_bytes=read, rejected=rejected))
    return done


@contextlib.contextmanager
def _held(
    step: Convert, beam_options: PipelineOptions, say: Callable[[str], object]
) -> Iterator[lock.HeldLock]:
    """Holds the output, as `lock.hold_lock` does; adds to the error of a failed run what becomes of its
    dataset.

    After runs that crashed, each image is decoded in a guarded process.
    """
    output = step.options.output
    job_state = functools.partial(jobs.job_state, beam_options)
    with lock.hold_lock(output, step.run_id, say=say, job_state=job_state) as hold:
        if attempts.has_crashed(output):
            step.read.guarded = True
            say(
                "earlier runs crashed; this run decodes each image in a guarded process and rejects any that crash it"
            )
        manifest = storage.join(output, MANIFEST_FILE)
        before = storage.find(manifest) if step.options.overwrite else None
        try:
            yield hold
        except (DataError, RunError, InterruptedRunError) as error:
            if storage.find(storage.work_path(output, SWITCH_FILE)):
                place = f"the run ended while the dataset was put into its place in {output}"
                raise type(error)(f"{place}: {error}\nThe same command completes it") from error
            if before and storage.find(manifest) == before:
                raise type(error)(
                    f"{error}\nThe dataset in {output} is whole, as it was"
                ) from error
            raise
