"""Parses Beam's own flags, and chooses the engine."""

import contextlib
import importlib
from collections.abc import Collection, Sequence
from typing import Any

from apache_beam.options import pipeline_options as beams
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.runner import PipelineRunner, create_runner
from apache_beam.transforms.ptransform import PTransform

from beam_tfr import storage
from beam_tfr.dataflow import checks, jobs
from beam_tfr.engine.beam_internals import LocalRunner, beam_parser
from beam_tfr.engine.runs import LocalRun, PortableRun, Run, build
from beam_tfr.options import ConvertOptions, default_threads, meant
from beam_tfr.options.table import options_of
from beam_tfr.schema.errors import UsageError

# More threads than this wait for each other: with codecs that sleep, 4 are 2.9 times as fast as
# one, and 16 only 1.8.
MAX_THREADS = 4
LOCAL_RUNNERS = ("FnApiRunner", "DirectRunner", "SwitchingDirectRunner")


def parse_beam_flags(flags: Sequence[str], ours: Collection[str] = ()) -> PipelineOptions:
    """Parses the flags that are not ours as Beam's options.

    Args:
        flags: flags as on a command line.
        ours: the flags of the command, to suggest for misspelled ones; by default the options of a
            conversion.

    Raises:
        UsageError: a value that Beam does not allow, or an unknown flag; names the nearest known
            one.
    """
    if "--dry_run" in flags:
        advice = "`beam-tfr plan` shows what convert would do, and `limit=` converts a few images"
        raise UsageError(f"{advice}; Beam's own is --dry_run=true", option="dry_run")
    module = (beam_parser().parse_known_args(list(flags))[0].runner or "").rpartition(".")[0]
    if module:  # a runner from elsewhere may bring options of its own
        with contextlib.suppress(ImportError):  # `choose_runner` reports it
            importlib.import_module(module)
    parser = beam_parser()
    _, unknown = parser.parse_known_args(list(flags))
    if unknown:
        flag = unknown[0].partition("=")[0]
        ours = ours or [f"--{name}" for name in options_of(ConvertOptions)]
        hint = meant(flag, [*ours, *parser._option_string_actions])
        hint = hint or "--help lists ours; Beam's own are accepted too"
        kind = "flag" if flag.startswith("-") else "argument"
        raise UsageError(f"{flag}: unknown {kind}; {hint}")
    options = PipelineOptions(list(flags))
    if options.view_as(beams.StandardOptions).streaming:
        message = "is not possible: a conversion is a batch job, and a streaming job would retry an error for ever"
        raise UsageError(message, option="streaming")
    return options


def choose_runner(beam_options: PipelineOptions, flags: Sequence[str]) -> PipelineRunner:
    """The runner that --runner names; by default a local one with a thread or process for each
    core.

    DirectRunner also means the FnApiRunner, because Beam's would first look for another engine on
    the internet.

    Raises:
        UsageError: there is no such runner, or a flag has no effect on it.
    """
    for options, name in (
        (beams.TestOptions, "dry_run"),
        (beams.DebugOptions, "number_of_worker_harness_threads"),
    ):
        if getattr(beam_options.view_as(options), name):  # which Beam reads only for Dataflow
            raise UsageError("has no effect without `runner=DataflowRunner`", option=name)
    name = beam_options.view_as(beams.StandardOptions).runner or LOCAL_RUNNERS[0]
    if name.rsplit(".", 1)[-1] not in LOCAL_RUNNERS:
        try:
            return create_runner(name)
        except (ValueError, ImportError, AttributeError, TypeError) as error:
            known = ", ".join(beams.StandardOptions.KNOWN_RUNNER_NAMES)
            why = "" if isinstance(error, ValueError) else f": {error}"
            message = f"must be one of {known}, or the full name of a class of runners{why}"
            raise UsageError(message, option="runner", value=name) from error
    direct = beam_options.view_as(beams.DirectOptions)
    if direct.direct_num_workers < 0:
        message = "must be 1 or more, or 0 for all cores"
        raise UsageError(message, option="direct_num_workers", value=direct.direct_num_workers)
    given = {flag.partition("=")[0] for flag in flags}
    mode = direct.direct_running_mode if "--direct_running_mode" in given else None
    if mode != "in_memory":
        wanted = direct.direct_num_workers if "--direct_num_workers" in given else 0
        direct.direct_num_workers = wanted or default_threads()
    if mode is None:
        are_few = direct.direct_num_workers <= MAX_THREADS
        direct.direct_running_mode = "multi_threading" if are_few else "multi_processing"
    return LocalRunner()


def choose_for(
    purpose: str, folders: Sequence[str], beam_options: PipelineOptions, flags: Sequence[str]
) -> PipelineRunner | None:
    """The runner of a command that reads a dataset, as `choose_runner` chooses it; None for
    Dataflow.

    Args:
        purpose: what the command does, for messages: "verify".
        folders: the folder of the dataset, and those that are written to.

    Raises:
        UsageError: there is no such runner, a flag is wrong, or Dataflow's workers cannot reach a
            folder.
    """
    if not checks.is_wanted(beam_options):
        return choose_runner(beam_options, flags)
    outside = [folder for folder in folders if not storage.is_gcs(folder)]
    if outside:
        raise UsageError(f"{outside[0]}: must be on gs://, where Dataflow's workers can reach it")
    google, test = (
        beam_options.view_as(kind) for kind in (beams.GoogleCloudOptions, beams.TestOptions)
    )
    if google.template_location or test.dry_run:
        raise UsageError(f"`template_location=` and `dry_run=` {purpose} nothing")
    checks.check(
        ConvertOptions(input=(f"{folders[0].rstrip('/')}/*",), output=folders[-1]), beam_options
    )
    return None


def run_on(
    runner: PipelineRunner | None, step: PTransform, beam_options: PipelineOptions, **arguments: Any
) -> Run:
    """The run of a step, not yet started, on a runner, or on Dataflow for None; `arguments` are
    those of `JobRun`."""
    if runner is None:
        return jobs.JobRun(step, beam_options, **arguments)
    pipeline = build(step, runner, beam_options)
    return LocalRun(pipeline, runner) if isinstance(runner, LocalRunner) else PortableRun(pipeline)
