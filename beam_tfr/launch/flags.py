"""Parses Beam's own flags, and chooses the engine."""

import contextlib
import importlib
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from apache_beam.options import pipeline_options as beams
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.runner import PipelineRunner, create_runner
from apache_beam.transforms.ptransform import PTransform

from beam_tfr import storage
from beam_tfr.dataflow import checks, jobs
from beam_tfr.engine.beam_internals import LocalRunner, beam_parser
from beam_tfr.engine.processes import FORKS
from beam_tfr.engine.runs import LocalRun, PortableRun, Run, build_pipeline
from beam_tfr.options import ConvertOptions, default_threads, suggest_name
from beam_tfr.options.table import options_of
from beam_tfr.schema.errors import UsageError, check_text
from beam_tfr.schema.spelling import quote_word, spell_option
from beam_tfr.schema.untrusted import quote

# More threads would wait for each other: with codecs that sleep, 4 threads are 2.9 times as fast as
# one thread, and 16 only 1.8 times.
MAX_THREADS = 4
# Numbers of images from which forked processes are faster than two to four threads, and than four
# threads if there are more cores; see docs/performance.md.
LONG_RUN = 5_000
LONG_RUN_OF_MANY_CORES = 1_000
ALL_CORES_BUT_ONE = 0  # a value of --sdk_worker_parallelism, by Beam's DefaultJobBundleFactory
LOCAL_RUNNERS = ("FnApiRunner", "DirectRunner", "SwitchingDirectRunner")

_THIS_MACHINE = ("[local]", "[auto]")  # values of --flink_master; all cores by default
_LONG_FLAGS = {"-i": "--input", "-o": "--output", "-t": "--table"}  # flags that users may guess


def parse_beam_flags(flags: Sequence[str], ours: Collection[str] = ()) -> PipelineOptions:
    """Parses the flags that are not ours as Beam's options.

    Args:
        flags: flags as on a command line.
        ours: the flags of the command, to suggest for misspelled ones; by default the options of a
            conversion.

    Raises:
        UsageError: Beam does not allow a value, or a flag is unknown; the message names the most
            similar known flag.
    """
    if "--dry_run" in flags:
        raise UsageError(
            "`beam-tfr plan` shows what convert would do, and `limit=` converts a few images; "
            "Beam's own flag is --dry_run=true",
            option="dry_run",
        )
    for flag in flags:
        _check_flag(flag)
    _import_runner(flags)
    parser = beam_parser()
    _, unknown = parser.parse_known_args([*flags])
    if unknown:
        ours = ours or [f"--{name}" for name in options_of(ConvertOptions)]
        raise _refuse_flag(unknown, ours, [*parser._option_string_actions])
    options = PipelineOptions([*flags])
    if options.view_as(beams.StandardOptions).streaming:
        raise UsageError(
            "is not possible: a conversion is a batch job, and a streaming job would retry an "
            "error forever",
            option="streaming",
        )
    return options


def _check_flag(flag: str) -> None:
    """Checks the characters of a flag, which may come from a file."""
    try:
        check_text(flag)
    except ValueError as error:
        raise UsageError(f"{quote(flag)}: {error}") from None


def _refuse_flag(
    unknown: Sequence[str], ours: Collection[str], others: Sequence[str]
) -> UsageError:
    """Builds the error for unknown flags, which names the first of them.

    Args:
        unknown: flags and arguments.
        ours: the flags of the command.
        others: Beam's flags.
    """
    flag = unknown[0].partition("=")[0]
    kind = "flag" if flag.startswith("-") else "argument"
    hint = suggest_name(flag, [*ours, *others])
    long_flag = _LONG_FLAGS.get(flag)
    if long_flag in ours:
        hint = f"did you mean {long_flag}?"
    elif kind == "argument" and flag.endswith(".txt") and "--input_list" in ours:
        hint = (
            f"--input_list accepts one list: `cat FIRST {quote_word(flag, 'SECOND')} > all.txt` "
            "joins them"
        )
    elif kind == "argument" and not hint and "--input" in ours:
        flags = zip(("input", "output"), unknown, strict=False)
        texts = [spell_option(name, value) for name, value in flags]
        hint = f"use a flag, such as {' '.join(texts)}"
    hint = hint or "--help-all lists ours; Beam's own are accepted too"
    return UsageError(f"{flag}: unknown {kind}; {hint}")


def _import_runner(flags: Sequence[str]) -> None:
    """Imports a runner from another package, which may define options of its own."""
    runner = beam_parser().parse_known_args([*flags])[0].runner or ""
    module = runner.rpartition(".")[0]
    if module:
        with contextlib.suppress(ImportError):  # `choose_runner` reports it
            importlib.import_module(module)


def choose_runner(beam_options: PipelineOptions, flags: Sequence[str]) -> PipelineRunner:
    """Returns the runner that --runner names; by default, a local runner that uses all cores.

    DirectRunner means the FnApiRunner here, because Beam's DirectRunner first tries to download
    another engine.

    Raises:
        UsageError: there is no such runner, or a flag has no effect on it.
    """
    _refuse_dataflow_flags(beam_options)
    name = beam_options.view_as(beams.StandardOptions).runner or LOCAL_RUNNERS[0]
    if name.rpartition(".")[2] not in LOCAL_RUNNERS:
        _choose_node_workers(beam_options.view_as(beams.PortableOptions), flags)
        return _find_runner(name)
    _choose_workers(beam_options.view_as(beams.DirectOptions), flags)
    return LocalRunner()


def _refuse_dataflow_flags(beam_options: PipelineOptions) -> None:
    """Raises an error for flags that only affect Dataflow."""
    harness_threads = "number_of_worker_harness_threads"
    for options, name in ((beams.TestOptions, "dry_run"), (beams.DebugOptions, harness_threads)):
        if getattr(beam_options.view_as(options), name):
            raise UsageError("has no effect without `runner=DataflowRunner`", option=name)


def _find_runner(name: str) -> PipelineRunner:
    """Returns the runner of another engine.

    Raises:
        UsageError: no runner has this name.
    """
    try:
        return create_runner(name)
    except (ValueError, ImportError, AttributeError, TypeError) as error:
        runners = ", ".join(beams.StandardOptions.KNOWN_RUNNER_NAMES)
        cause = "" if isinstance(error, ValueError) else f": {error}"
        raise UsageError(
            f"must be one of {runners}, or the full name of a runner's class{cause}",
            option="runner",
            value=name,
        ) from error


def _choose_node_workers(portable: beams.PortableOptions, flags: Sequence[str]) -> None:
    """Sets how many worker processes Flink and Spark start on each node, unless a flag does.

    Beam's default is one process, whose GIL would leave the other cores idle.
    """
    names = {flag.partition("=")[0] for flag in flags}
    if "--sdk_worker_parallelism" not in names:
        portable.sdk_worker_parallelism = ALL_CORES_BUT_ONE


def engine_advice(runner: PipelineRunner | None, beam_options: PipelineOptions) -> str:
    """Returns which flag lets another engine use all of its cores, or "" if no flag is needed."""
    flink = beam_options.view_as(beams.FlinkRunnerOptions)
    is_cluster = flink.flink_master not in _THIS_MACHINE
    is_flink = type(runner).__name__ == "FlinkRunner"
    if not is_flink or not is_cluster or flink.parallelism > 0:
        return ""
    return (
        "Flink converts one shard at a time, unless its cluster has a different default: set the "
        "number of its task slots, such as `parallelism=16`"
    )


def _choose_workers(direct: beams.DirectOptions, flags: Sequence[str]) -> None:
    """Sets how many threads or processes a local run has, unless flags do."""
    if direct.direct_num_workers < 0:
        raise UsageError(
            "must be 1 or more, or 0 for all cores",
            option="direct_num_workers",
            value=direct.direct_num_workers,
        )
    names = {flag.partition("=")[0] for flag in flags}
    has_mode = "--direct_running_mode" in names
    if has_mode and direct.direct_running_mode == "in_memory":
        return
    if "--direct_num_workers" not in names or direct.direct_num_workers == 0:
        direct.direct_num_workers = default_threads()
    if not has_mode:
        direct.direct_running_mode = _choose_mode(direct.direct_num_workers)


def _choose_mode(workers: int) -> str:
    """Returns Beam's running mode for a number of workers."""
    return "multi_threading" if workers <= MAX_THREADS else "multi_processing"


def fit_workers(
    beam_options: PipelineOptions, flags: Sequence[str], is_long: Callable[[int], bool]
) -> None:
    """Gives processes to long local runs and threads to short ones, unless flags say otherwise.

    Where processes cannot be forked, all runs use threads: starting processes takes too long.

    Args:
        beam_options: Beam's options, with those of `choose_runner`.
        flags: Beam's own options, as on a command line.
        is_long: takes a number of images; returns whether the run has at least that many.
    """
    direct = beam_options.view_as(beams.DirectOptions)
    names = {flag.partition("=")[0] for flag in flags}
    if not FORKS or "--direct_running_mode" in names or direct.direct_num_workers < 2:
        return
    has_many = direct.direct_num_workers > MAX_THREADS
    if is_long(LONG_RUN_OF_MANY_CORES if has_many else LONG_RUN):
        direct.direct_running_mode = "multi_processing"
    elif "--direct_num_workers" not in names:
        direct.direct_running_mode = "multi_threading"
        direct.direct_num_workers = min(direct.direct_num_workers, MAX_THREADS)


@contextlib.contextmanager
def ready_workers(runner: PipelineRunner | None, beam_options: PipelineOptions) -> Iterator[None]:
    """Starts the process that forks the workers of a local run, and ends it after the block.

    It imports the modules that workers need while this process prepares the run.
    """
    mode = beam_options.view_as(beams.DirectOptions).direct_running_mode
    if not isinstance(runner, LocalRunner) or mode != "multi_processing":
        yield
        return
    try:
        runner.prepare_workers()
        yield
    finally:
        runner.end_workers()


def choose_dataset_runner(
    purpose: str, folders: Sequence[str], beam_options: PipelineOptions, flags: Sequence[str]
) -> PipelineRunner | None:
    """Chooses the runner for a command that reads a dataset; see `choose_runner`.

    Args:
        purpose: what the command does, for messages: "verify".
        folders: the folder of the dataset, and the folders to write to.

    Returns:
        The runner; None for Dataflow.

    Raises:
        UsageError: there is no such runner, a flag is wrong, or Dataflow's workers cannot reach a
            folder.
    """
    if not checks.names_dataflow(beam_options):
        return choose_runner(beam_options, flags)
    for folder in folders:
        if not storage.is_gcs(folder):
            raise UsageError(f"{folder}: must be on gs://, where Dataflow's workers can reach it")
    template_location = beam_options.view_as(beams.GoogleCloudOptions).template_location
    if template_location or beam_options.view_as(beams.TestOptions).dry_run:
        raise UsageError(f"`template_location=` and `dry_run=` {purpose} nothing")
    images = f"{folders[0].rstrip('/')}/*"
    checks.check_job(ConvertOptions(input=(images,), output=folders[-1]), beam_options)
    return None


def make_run(
    runner: PipelineRunner | None, step: PTransform, beam_options: PipelineOptions, **arguments: Any
) -> Run:
    """Builds the run of a step, without starting it.

    Args:
        runner: result of `choose_runner`; None for Dataflow.
        step: the step.
        beam_options: Beam's options.
        arguments: other arguments of `JobRun`.
    """
    if runner is None:
        return jobs.JobRun(step, beam_options, **arguments)
    pipeline = build_pipeline(step, runner, beam_options)
    if isinstance(runner, LocalRunner):
        return LocalRun(pipeline, runner)
    return PortableRun(pipeline)
