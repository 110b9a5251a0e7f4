"""Starts a conversion: here, or wherever Beam's own options say.

`start(options, beam_flags)` is what `beam-tfr convert` does after parsing, `convert` the same for Python.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import fn_runner
from apache_beam.runners.runner import PipelineRunner

from beam_tfr import cloud, dataflow, lock, manifest, storage
from beam_tfr.claim import Progress
from beam_tfr.launch.errors import translate
from beam_tfr.launch.flags import beam_parser, choose_runner, parse_beam_flags
from beam_tfr.launch.running import GOES_ON, Reporter, on_interrupt, quiet, wait
from beam_tfr.options import ConvertOptions
from beam_tfr.pipeline import Convert
from beam_tfr.saved_plan import SavedPlan, check_place
from beam_tfr.schema import BeamTfrError, DataError, InterruptedRunError, Plan, RunError, UsageError

__all__ = ["Result", "Saved", "Submission", "beam_parser", "convert", "parse_beam_flags", "start", "translate"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """What a conversion did.

    Attributes:
        manifest: of the complete dataset.
        seconds: wall time.
        fresh: False when the dataset was there already and nothing was done.
    """

    manifest: manifest.Manifest
    seconds: float
    fresh: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class Saved:
    """A plan that was made and saved.

    Attributes:
        path: of the file.
        plan: in it.
        seconds: wall time.
    """

    path: str
    plan: Plan
    seconds: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Submission:
    """A conversion that goes on without this process.

    Attributes:
        job: that was created; None where only its description was, for a template or a dry run.
        place: of the description that a template's launcher asked for; empty: nowhere.
    """

    job: dataflow.Job | None
    place: str


def convert(
    options: ConvertOptions, beam_flags: Sequence[str] = (), *, progress: Callable[[Progress], object] | None = None
) -> Result:
    """Converts, and returns when the dataset is complete; arguments and errors as of `start`."""
    done = start(options, beam_flags, progress=progress)
    if not isinstance(done, Result):
        raise UsageError(
            "--no_wait, --template_location, --dry_run and --save_plan leave no dataset to return: call launch.start"
        )
    return done


def start(
    options: ConvertOptions,
    beam_flags: Sequence[str] = (),
    *,
    progress: Callable[[Progress], object] | None = None,
    say: Callable[[str], object] = lambda _: None,
) -> Result | Saved | Submission:
    """Converts, and returns when the dataset is complete, or, where that was asked for, when the plan is saved or the
    job is created.

    Args:
        options: checked.
        beam_flags: Beam's own options, as on a command line.
        progress: called at the start with what an earlier run finished, then every `PROGRESS_S` seconds; all zero
            before there is a plan.
        say: called with a line about a job elsewhere.

    Raises:
        UsageError: the call is wrong.
        DataError: too many rejects, an empty split, a lost class.
        RunError: the run failed; what is finished stays for the same call to go on with.
        InterruptedRunError: Ctrl-C.
    """
    if options.gcs_project:
        beam_flags = [*beam_flags, f"--gcs_project={options.gcs_project}"]
    beam_options = parse_beam_flags(beam_flags)
    job_is_elsewhere = dataflow.is_wanted(beam_options)
    only_form = job_is_elsewhere and dataflow.is_only_form(beam_options)
    if job_is_elsewhere:
        dataflow.check(options, beam_options, beam_flags)
    else:
        _check_waits(options)
    cloud.use(beam_options)
    run_id = uuid.uuid4().hex
    step = Convert(options, run_id=run_id)
    if not only_form:
        _check_reach(options)
        step.check_plan()
    if job_is_elsewhere:
        return _run_on_dataflow(step, beam_options, progress=progress, say=say)
    return _run_here(step, choose_runner(beam_options, beam_flags), beam_options, progress=progress)


def _run_here(
    step: Convert,
    runner: PipelineRunner,
    beam_options: PipelineOptions,
    *,
    progress: Callable[[Progress], object] | None,
) -> Result | Saved:
    output = step.options.output
    before, started = _manifest_bytes(output), time.monotonic()
    # From here on Ctrl-C only sets a flag: raised in the middle of Beam's code, an exception might be swallowed.
    with on_interrupt() as interrupted, _held(step):
        pipeline = _build(step, runner, beam_options)
        reporter = Reporter(output, None if step.options.save_plan else progress)
        reporter.begin(anew=step.options.overwrite)
        with quiet():
            try:
                if isinstance(runner, fn_runner.FnApiRunner):
                    wait(lambda: pipeline.run().wait_until_finish(), interrupted=interrupted, tick=reporter.tick)
                else:
                    result = _submit(pipeline)  # at once, and some want the main thread for it

                    def cancel() -> str:
                        with contextlib.suppress(Exception):
                            result.cancel()
                        return GOES_ON

                    wait(result.wait_until_finish, interrupted=interrupted, tick=reporter.tick, stop=cancel)
            except InterruptedRunError:
                if _manifest_bytes(output) in (None, before):
                    raise
                # Too late: the dataset was published in that moment, and to say otherwise would be wrong.
    return _outcome(step.options, before, started)


def _held(step: Convert) -> contextlib.AbstractContextManager[lock.Hold]:
    """The output's lock; none where the output is not touched."""
    return (
        contextlib.nullcontext(lock.Hold()) if step.options.save_plan else lock.held(step.options.output, step.run_id)
    )


def _run_on_dataflow(
    step: Convert,
    beam_options: PipelineOptions,
    *,
    progress: Callable[[Progress], object] | None,
    say: Callable[[str], object],
) -> Result | Saved | Submission:
    options, output = step.options, step.options.output
    only_form = dataflow.is_only_form(beam_options)
    before = None if only_form else _manifest_bytes(output)
    started = time.monotonic()
    with contextlib.ExitStack() as stack:
        interrupted = stack.enter_context(on_interrupt())
        hold = lock.Hold() if only_form else stack.enter_context(_held(step))
        stack.enter_context(dataflow.messages(say))
        with dataflow.staged(beam_options) as runner:
            pipeline = _build(step, runner, beam_options)
            submitted: list[Any] = []
            try:
                wait(
                    lambda: submitted.append(pipeline.run()),
                    interrupted=interrupted,
                    tick=lambda: None,
                    stop=lambda: "while the job was submitted; should it be created after all, the console lists it",
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
            hold.leave(job.id)
            return Submission(job=job, place="")
        reporter = Reporter(output, None if options.save_plan else progress)
        reporter.begin(anew=options.overwrite)

        def stop() -> str:
            if not dataflow.stop(result, job, options.on_interrupt):
                hold.leave(job.id)
                return f"job {job.id} goes on ({job.link})"
            return f"job {job.id} is cancelled; {GOES_ON}"

        wait(lambda: dataflow.wait(result, job), interrupted=interrupted, tick=reporter.tick, stop=stop)
    return _outcome(options, before, started)


def _build(step: Convert, runner: PipelineRunner, beam_options: PipelineOptions) -> beam.Pipeline:
    """
    Raises:
        UsageError: Beam's check of its own options.
    """
    try:
        pipeline = beam.Pipeline(runner=runner, options=beam_options)
    except ValueError as error:
        raise UsageError(str(error)) from error
    except Exception as error:
        raise translate(error) from error
    pipeline | "Convert" >> step
    return pipeline


def _submit(pipeline: beam.Pipeline) -> beam.runners.runner.PipelineResult:
    """
    Raises:
        BeamTfrError: the engine did not take it.
    """
    try:
        return pipeline.run()
    except Exception as error:
        raise translate(error) from error


def _outcome(options: ConvertOptions, before: bytes | None, started: float) -> Result | Saved:
    """
    Raises:
        RunError: there is no dataset, or no plan, whatever the engine says.
    """
    if options.save_plan:
        try:
            with SavedPlan(options.save_plan) as saved:
                return Saved(path=options.save_plan, plan=saved.plan, seconds=time.monotonic() - started)
        except UsageError as error:
            raise RunError(f"the runner says that it is done, but there is no plan: {error}") from error
    try:
        published = manifest.read(options.output)
    except DataError as error:
        raise RunError(f"the runner says that it is done, but it lost elements on the way: {error}") from error
    fresh = options.overwrite or before != manifest.to_bytes(published.fields)
    return Result(manifest=published, seconds=time.monotonic() - started, fresh=fresh)


def _check_waits(options: ConvertOptions) -> None:
    """
    Raises:
        UsageError: an option is given that is for jobs elsewhere.
    """
    for flag, given in (("no_wait", options.no_wait), ("on_interrupt", options.on_interrupt != "ask")):
        if given:
            raise UsageError(f"--{flag} has no effect without --runner=DataflowRunner: the run ends with its command")


def _check_reach(options: ConvertOptions) -> None:
    """Finds credentials for gs:// before anything begins, where any of it is there, and a place for a plan to be saved.

    Raises:
        UsageError: there are none, or no plan can be saved there.
    """
    files = [options.input_list, options.classes, options.save_plan, options.plan]
    places = [path for path in [*options.input, *options.table, options.output, *files] if path]
    place = next(filter(storage.is_gcs, places), None)
    if place is not None:
        try:
            storage.connect()
        except OSError as error:
            raise UsageError(f"{place} cannot be reached: {error.strerror}") from error
    if options.save_plan:
        check_place(options.save_plan, replace=options.overwrite)


def _manifest_bytes(output: str) -> bytes | None:
    with contextlib.suppress(BeamTfrError):
        return manifest.to_bytes(manifest.read(output).fields)
    return None
