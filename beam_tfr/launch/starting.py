"""Checks a call, builds its pipeline, and runs it here or elsewhere."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence

from beam_tfr import cloud, dataflow
from beam_tfr.claim import Progress
from beam_tfr.launch import elsewhere, here
from beam_tfr.launch.flags import choose_runner, parse_beam_flags
from beam_tfr.launch.results import Result, Saved, Submission
from beam_tfr.options import ConvertOptions
from beam_tfr.pipeline import Convert
from beam_tfr.schema import UsageError
from beam_tfr.sources import check_reach, open_source


def convert(
    options: ConvertOptions, beam_flags: Sequence[str] = (), *, progress: Callable[[Progress], object] | None = None
) -> Result:
    """Converts and returns the complete dataset; arguments and errors as of `start`."""
    done = start(options, beam_flags, progress=progress)
    if not isinstance(done, Result):
        raise UsageError(
            "`no_wait=`, `template_location=`, `dry_run=` and `save_plan=` leave no dataset to return: call "
            "launch.start"
        )
    return done


def start(
    options: ConvertOptions,
    beam_flags: Sequence[str] = (),
    *,
    progress: Callable[[Progress], object] | None = None,
    say: Callable[[str], object] = lambda _: None,
) -> Result | Saved | Submission:
    """Converts, and returns when the dataset is complete or the options say so.

    Args:
        options: checked.
        beam_flags: Beam's own options, as on a command line.
        progress: called at the start with what an earlier run finished, then every `PROGRESS_S` seconds; all zero
            before there is a plan.
        say: called with a line about a job elsewhere.

    Returns:
        The dataset; with `save_plan=` the plan; with `no_wait=`, a template or a dry run the job.

    Raises:
        UsageError: the call is wrong.
        DataError: too many rejects, an empty split, a lost class.
        RunError: the run failed; the same call resumes from the finished shards.
        InterruptedRunError: Ctrl-C.
    """
    if options.gcs_project:
        beam_flags = [*beam_flags, f"--gcs_project={options.gcs_project}"]
    beam_options = parse_beam_flags(beam_flags)
    on_dataflow = dataflow.is_wanted(beam_options)
    if on_dataflow:
        dataflow.check(options, beam_options, beam_flags)
    else:
        _check_waits(options)
    cloud.use(beam_options)
    source = open_source(options)
    if not (on_dataflow and dataflow.is_only_form(beam_options)):
        check_reach(options, source)
    step = Convert(options, source, run_id=uuid.uuid4().hex)
    if on_dataflow:
        return elsewhere.run(step, beam_options, progress=progress, say=say)
    return here.run(step, choose_runner(beam_options, beam_flags), beam_options, progress=progress)


def _check_waits(options: ConvertOptions) -> None:
    """Refuses options for jobs elsewhere.

    Raises:
        UsageError: one is given.
    """
    for name, given in (("no_wait", options.no_wait), ("on_interrupt", options.on_interrupt != "ask")):
        if given:
            raise UsageError(f"`{name}=` has no effect without `runner=DataflowRunner`: the run ends with its command")
