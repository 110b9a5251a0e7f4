"""Starts a conversion: Beam's own options, the engine, Ctrl-C, and what went wrong in a sentence.

`convert(options, beam_flags)` is what `beam-tfr convert` does after parsing.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import dataclasses
import difflib
import importlib
import logging
import os
import re
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

import apache_beam as beam
from apache_beam.options.pipeline_options import (
    DirectOptions,
    PipelineOptions,
    StandardOptions,
    _BeamArgumentParser,
)
from apache_beam.portability.api import beam_provision_api_pb2
from apache_beam.runners.portability.fn_api_runner import fn_runner
from apache_beam.runners.portability.portable_runner import JobServiceHandle
from apache_beam.runners.runner import PipelineRunner, create_runner

from beam_tfr import claim, cloud, interrupt, lock, manifest, schema, storage
from beam_tfr.claim import Progress
from beam_tfr.options import ConvertOptions, default_threads
from beam_tfr.pipeline import Convert
from beam_tfr.schema import TRACEBACK_VARIABLE, BeamTfrError, DataError, InterruptedRunError, RunError, UsageError

OWN_FLAGS = [f"--{field.name}" for field in dataclasses.fields(ConvertOptions)]
LOCAL_RUNNERS = ("FnApiRunner", "DirectRunner", "SwitchingDirectRunner")
INTERRUPT_WAIT_S = 2.0
PROGRESS_S = 10.0


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


class _BeamParser(_BeamArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


def beam_parser() -> argparse.ArgumentParser:
    """All options that Beam knows, of every runner."""
    parser = _BeamParser(add_help=False, allow_abbrev=False, conflict_handler="resolve")
    for known in PipelineOptions.__subclasses__():
        known._add_argparse_args(parser)
    return parser


def parse_beam_flags(flags: Sequence[str]) -> PipelineOptions:
    """Beam's options from the flags that are not ours.

    Raises:
        UsageError: a value that Beam does not allow, or a flag that neither knows; names the nearest that one does.
    """
    module = (beam_parser().parse_known_args(list(flags))[0].runner or "").rpartition(".")[0]
    if module:  # a runner from elsewhere may bring options of its own
        with contextlib.suppress(ImportError):  # `choose_runner` tells
            importlib.import_module(module)
    parser = beam_parser()
    _, unknown = parser.parse_known_args(list(flags))
    if unknown:
        flag = unknown[0].partition("=")[0]
        known = [option for action in parser._actions for option in action.option_strings]
        near = difflib.get_close_matches(flag, [*OWN_FLAGS, *known], n=1)
        hint = f"did you mean {near[0]}?" if near else "beam-tfr convert --help lists ours; Beam's own are accepted too"
        kind = "flag" if flag.startswith("-") else "argument"
        raise UsageError(f"{flag}: unknown {kind}; {hint}")
    return PipelineOptions(list(flags))


def choose_runner(beam_options: PipelineOptions, flags: Sequence[str]) -> PipelineRunner:
    """The runner named by --runner, or Beam's FnApiRunner in this process with a thread for every core.

    Beam's DirectRunner would first look for another engine on the internet, so its name means the FnApiRunner here too.

    Raises:
        UsageError: there is no such runner.
    """
    name = beam_options.view_as(StandardOptions).runner or LOCAL_RUNNERS[0]
    if name.rsplit(".", 1)[-1] not in LOCAL_RUNNERS:
        try:
            return create_runner(name)
        except (ValueError, ImportError, AttributeError) as error:
            raise UsageError(f"--runner {name}: {error}") from error
    given = {flag.partition("=")[0] for flag in flags}
    direct = beam_options.view_as(DirectOptions)
    if direct.direct_num_workers < 0:
        raise UsageError(f"--direct_num_workers {direct.direct_num_workers}: must be 1 or more, or 0 for every core")
    if "--direct_num_workers" not in given and direct.direct_running_mode != "in_memory":
        direct.direct_num_workers = default_threads()
    if "--direct_running_mode" not in given:
        direct.direct_running_mode = "multi_threading"
        if "--direct_num_workers" not in given:
            direct.direct_num_workers = default_threads()
    # Worker processes get the options through the provision info only.
    encoded = JobServiceHandle.encode_pipeline_options(beam_options.get_all_options())
    info = beam_provision_api_pb2.ProvisionInfo(pipeline_options=encoded)
    return fn_runner.FnApiRunner(provision_info=fn_runner.ExtendedProvisionInfo(info))


def convert(
    options: ConvertOptions, beam_flags: Sequence[str] = (), *, progress: Callable[[Progress], object] | None = None
) -> Result:
    """Converts, and returns when the dataset is complete.

    Args:
        options: checked.
        beam_flags: Beam's own options, as on a command line.
        progress: called at the start with what an earlier run finished, then every `PROGRESS_S` seconds; all zero
            before there is a plan.

    Raises:
        UsageError: the call is wrong.
        DataError: too many rejects, an empty split, a lost class.
        RunError: the run failed; what is finished stays for the same call to go on with.
        InterruptedRunError: Ctrl-C.
    """
    if options.gcs_project:
        beam_flags = [*beam_flags, f"--gcs_project={options.gcs_project}"]
    beam_options = parse_beam_flags(beam_flags)
    cloud.use(beam_options)
    run_id = uuid.uuid4().hex
    step = Convert(options, run_id=run_id)
    _connect(options)
    runner = choose_runner(beam_options, beam_flags)
    before = _manifest_bytes(options.output)
    started = time.monotonic()
    # From here on Ctrl-C only sets a flag: raised in the middle of Beam's code, an exception might be swallowed.
    with _on_interrupt() as interrupted, lock.held(options.output, run_id):
        try:
            pipeline = beam.Pipeline(runner=runner, options=beam_options)
        except ValueError as error:  # Beam's check of its own options
            raise UsageError(str(error)) from error
        pipeline | "Convert" >> step
        local = isinstance(runner, fn_runner.FnApiRunner)
        reporter = _Reporter(options.output, progress)
        reporter.report()
        with _quiet(local=local):
            try:
                _run(pipeline, local=local, interrupted=interrupted, tick=reporter.tick)
            except InterruptedRunError:
                if _manifest_bytes(options.output) in (None, before):
                    raise
                # Too late: the dataset was published in that moment, and to say otherwise would be wrong.
    try:
        published = manifest.read(options.output)
    except DataError as error:
        raise RunError(f"the runner says that it is done, but it lost elements on the way: {error}") from error
    fresh = options.overwrite or before != manifest.to_bytes(published.fields)
    return Result(manifest=published, seconds=time.monotonic() - started, fresh=fresh)


def _connect(options: ConvertOptions) -> None:
    """Finds credentials for gs:// before anything begins, where any of it is there.

    Raises:
        UsageError: there are none.
    """
    places = [*options.input, options.output, options.input_list or "", options.classes or ""]
    place = next(filter(storage.is_gcs, places), None)
    if place is not None:
        try:
            storage.connect()
        except OSError as error:
            raise UsageError(f"{place} cannot be reached: {error.strerror}") from error


def _manifest_bytes(output: str) -> bytes | None:
    with contextlib.suppress(BeamTfrError):
        return manifest.to_bytes(manifest.read(output).fields)
    return None


@contextlib.contextmanager
def _quiet(*, local: bool) -> Iterator[None]:
    """Keeps Beam's own account of a failure off the screen: our error, several times over, with stack traces.

    A local worker prints it to sys.stderr whatever the log level, and hangs when nobody reads that any more. Worker
    processes print to what they inherit as standard error, and a Ctrl-C in the terminal reaches each of them. C
    libraries print there too: libtiff, of every damaged file.
    """
    if os.environ.get(TRACEBACK_VARIABLE):
        yield
        return
    logging.getLogger("apache_beam").setLevel(logging.CRITICAL + 1 if local else logging.WARNING)
    with contextlib.ExitStack() as stack:
        if local:
            null = stack.enter_context(open(os.devnull, "w"))
            stack.enter_context(contextlib.redirect_stderr(null))
            inherited = os.dup(2)
            stack.callback(os.close, inherited)
            stack.callback(os.dup2, inherited, 2)
            os.dup2(null.fileno(), 2)
        yield


class _Reporter:
    """Tells from time to time how far a run is: from what was committed, so that it works on every runner."""

    def __init__(self, output: str, progress: Callable[[Progress], object] | None) -> None:
        self._output, self._progress, self._last = output, progress, time.monotonic()

    def tick(self) -> None:
        if time.monotonic() - self._last >= PROGRESS_S:
            self.report()

    def report(self) -> None:
        self._last = time.monotonic()
        if self._progress is not None:
            with contextlib.suppress(OSError):
                self._progress(claim.read_progress(self._output) or Progress(0, 0, 0, 0))


def _run(pipeline: beam.Pipeline, *, local: bool, interrupted: threading.Event, tick: Callable[[], None]) -> None:
    """Runs a pipeline; waits in a thread of its own, so that Ctrl-C reaches this one at once.

    Args:
        pipeline: to run.
        local: `run()` returns only at the end; other runners return at once, and some want the main thread for it.
        interrupted: set when it is to stop.
        tick: called often while it runs.

    Raises:
        BeamTfrError: of whatever kind the failing step raised; `RunError` for anything else.
    """
    failure: list[BaseException] = []
    results: list[Any] = []

    def run() -> None:
        try:
            if local:
                results.append(pipeline.run())
            results[0].wait_until_finish()
        except BaseException as error:  # noqa: BLE001 - handed to the main thread
            failure.append(error)

    if not local:
        try:
            results.append(pipeline.run())
        except Exception as error:
            raise translate(error) from error
    thread = threading.Thread(target=run, name="beam_tfr-pipeline", daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(0.2)
        tick()
        if interrupted.is_set():
            _stop(thread, results)
            raise InterruptedRunError(
                "interrupted: nothing is published; the same command goes on with the finished shards"
            )
    if failure:
        raise translate(failure[0]) from failure[0]


def _stop(thread: threading.Thread, results: list[Any]) -> None:
    threading.excepthook = lambda _: None  # an engine's threads lose their connections, and would say so
    for result in results:  # a runner in another process
        with contextlib.suppress(Exception):
            result.cancel()
    thread.join(INTERRUPT_WAIT_S)


@contextlib.contextmanager
def _on_interrupt() -> Iterator[threading.Event]:
    """Within the block Ctrl-C and SIGTERM set the event and ask the stages to stop, when this is the main thread."""
    interrupted = threading.Event()
    interrupt.clear()

    def handle(*_: object) -> None:
        interrupted.set()
        interrupt.request()

    if threading.current_thread() is not threading.main_thread():
        yield interrupted
        return
    previous = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield interrupted
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


_WHILE = r" \[while running '[^']*'\]"  # what Beam adds to the message of an error
_OURS = re.compile(
    r"beam_tfr\.schema\.(UsageError|DataError|RunError|InterruptedRunError): ((?:(?!Traceback |beam_tfr\.schema\.).)*?)"
    + _WHILE,
    re.DOTALL,
)


def translate(error: BaseException) -> BeamTfrError:
    """The error of a step, from what a runner made of it: all of them pass on the text of the worker's traceback."""
    if isinstance(error, BeamTfrError):
        return type(error)(re.sub(_WHILE, "", str(error)))
    text = str(error)
    if "\\n" in text and "\n" not in text:  # quoted by a job service
        with contextlib.suppress(ValueError, SyntaxError):
            text = ast.literal_eval(f'"""{text}"""')
    if match := _OURS.search(text):
        kind: type[BeamTfrError] = getattr(schema, match[1])
        return kind(match[2])
    lines = [line for line in text.strip().splitlines() if line.strip()] or [type(error).__name__]
    cause = next(
        (line for line in reversed(lines) if re.match(r"[\w.]*(Error|Exception|Interrupt)\b", line)), lines[-1]
    )
    return RunError(
        f"the run failed: {re.sub(_WHILE, '', cause)[:500]}. Nothing is published; the same command goes on with the "
        f"finished shards. {TRACEBACK_VARIABLE}=1 shows where it failed"
    )
