"""Contains all uses of private parts of Beam, as of Beam 2.77.

Each docstring says why a part is needed, and what to do if tests/test_beam_internals.py fails
because Beam has changed the part. With a version of Beam that lacks a part, everything else works;
the docstring describes the effects.
"""

import argparse
import collections
import concurrent.futures
import contextlib
import functools
import importlib
import inspect
import itertools
import json
import logging
import operator
import os
import re
import signal
import subprocess  # nosec B404  # for the class of its errors
import threading
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION
from typing import Any, NoReturn

from apache_beam.io.filesystems import FileSystems
from apache_beam.metrics.metric import MetricResults
from apache_beam.options import pipeline_options
from apache_beam.options.pipeline_options import PipelineOptions, SetupOptions
from apache_beam.pipeline import Pipeline
from apache_beam.portability.api import beam_fn_api_pb2
from apache_beam.runners.dataflow import dataflow_runner
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from google.protobuf import text_format

from beam_tfr.engine import interrupt
from beam_tfr.engine.processes import FORKS, ForkServer, StartedWorker, Worker
from beam_tfr.schema.errors import MORE_ROOM, EngineError, UsageError, tells_starved
from beam_tfr.schema.spelling import spell_option

PROGRESS_REQUEST_S = 1.0
END_S = 10.0
_FN_RUNNER = "runners.portability.fn_api_runner.fn_runner"
_WORKER_HANDLERS = "runners.portability.fn_api_runner.worker_handlers"
ONE_RUN = threading.Lock()  # a local run replaces parts of Beam, so one at a time in a process
_REPLACING: dict[str, threading.Lock] = collections.defaultdict(threading.Lock)  # by path
_LOGGER = logging.getLogger(__name__)
# The beginning of the names of threads that are workers of an engine in this process. If it
# changes: a failed run on Prism may print a stack trace after its message.
WORKER_THREAD = "run_worker_"
NAMESPACE = "beam_tfr"  # of our counters


def worker_options() -> PipelineOptions | None:
    """Returns the pipeline options of this worker process, or None in any other process.

    Why: the options name the account and the project for gs://. `sdk_worker_main` sets them with
    `FileSystems.set_options` before any function is unpickled, and no public function returns them.
    If `_pipeline_options` is removed: pass the options to each DoFn. Without them, workers on
    Dataflow use the project and the account of their machine.
    """
    return getattr(FileSystems, "_pipeline_options", None)


def beam_parser() -> argparse.ArgumentParser:
    """Builds a parser for all of Beam's options that raises a `UsageError` for a wrong value.

    Why: PipelineOptions ignores unknown flags, and exits on a wrong value. Beam adds its options
    with methods of `_BeamArgumentParser`. If this class is removed: build the parser as
    `PipelineOptions.get_all_options` does.
    """
    base: Any = getattr(pipeline_options, "_BeamArgumentParser", argparse.ArgumentParser)

    class Parser(base):
        def add_value_provider_argument(self, *names: str, **kwargs: Any) -> Any:
            beams = getattr(base, "add_value_provider_argument", base.add_argument)
            return beams(self, *names, **kwargs)

        def error(self, message: str) -> NoReturn:
            raise UsageError(message)

    parser: argparse.ArgumentParser = Parser(
        add_help=False, allow_abbrev=False, conflict_handler="resolve"
    )
    for options in PipelineOptions.__subclasses__():
        options._add_argparse_args(parser)
    return parser


def no_folders_in_pickles() -> contextlib.AbstractContextManager[None]:
    """Keeps local paths out of functions that are pickled while the block runs.

    Why: other people can see a job's description. If `DEFAULT_CONFIG` is removed: see what
    `cloudpickle_pickler.dumps` passes to `CloudPickler`.
    """
    config = "internal.cloudpickle_pickler:DEFAULT_CONFIG.filepath_interceptor"
    return _replaced_part(config, lambda _: os.path.basename)


@contextlib.contextmanager
def building_pipeline() -> Iterator[None]:
    """Builds pipelines faster, with the same labels in notebooks as elsewhere.

    Why: in IPython, Beam adds the cell number to labels. To do so, it imports pandas, which is not
    among its dependencies. Beam also parses its flags four times for each step, which took half of
    the time needed to build a pipeline. If `alter_label_if_ipython` or `view_as` is removed: see
    how `Pipeline._apply_internal` finds the label and the options of a step.
    """
    cached = functools.cache  # views share their values
    with (
        _replaced_part("pipeline:alter_label_if_ipython", lambda _: lambda *_: None),
        _replaced_part("options.pipeline_options:PipelineOptions.view_as", cached),
    ):
        yield


def streams_without_timeout() -> contextlib.AbstractContextManager[None]:
    """Lets a portable run outlast `--job_server_timeout`, 300 s.

    Why: Beam also applies that timeout to the streams of a job's states and messages, and considers
    the engine lost when these streams end. If `JobServiceHandle.run` is removed: see which timeout
    the streams have.
    """

    def lasting(start: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
        def run(handle: Any, preparation_id: str) -> Any:
            handle.timeout = None
            return start(handle, preparation_id)

        return run

    return _replaced_part("runners.portability.portable_runner:JobServiceHandle.run", lasting)


def _ending_threads(module: Any) -> types.SimpleNamespace:
    """Returns a `thread_pool_executor` for workers in this process, which ends within `END_S`."""

    class Threads(module.UnboundedThreadPoolExecutor):
        def shutdown(self, wait: bool = True) -> None:
            interrupt.over.set()
            # in a thread, because it waits without a limit
            ending = threading.Thread(target=super().shutdown, daemon=True)
            ending.start()
            ending.join(END_S)

    return types.SimpleNamespace(shared_unbounded_instance=Threads)


def _failing_first(module: Any) -> types.SimpleNamespace:
    """Returns a `thread_pool_executor` for bundles, in which the first failure ends the run."""

    class Bundles(module.UnboundedThreadPoolExecutor):
        def map(self, fn: Callable[..., Any], *iterables: Any, **options: Any) -> Iterator[Any]:
            futures = [self.submit(fn, *arguments) for arguments in zip(*iterables, strict=True)]
            ended, _ = concurrent.futures.wait(futures, return_when=FIRST_EXCEPTION)
            failed = [future for future in ended if future.exception()]
            if failed:
                interrupt.over.set()
                futures = failed
            return (future.result() for future in futures)

        def shutdown(self, wait: bool = True) -> None:
            super().shutdown(wait=False)

    return types.SimpleNamespace(shared_unbounded_instance=Bundles)


class LocalRunner(FnApiRunner):
    """Beam's FnApiRunner, fixed so that it loses no elements and ends its workers.

    Why: Beam also flushes its data buffers on a timer, in another thread, and loses elements
    written during a flush: up to 2,500 of 100,000 references in bundles longer than a second. With
    a time limit of 0, Beam flushes buffers only when they are full. Beam passes no pipeline options
    to worker processes. The command that starts them is replaced because Beam's command fails if
    the path of Python contains a space, and its workers survive if this process is killed. Beam
    waits forever for a worker that has failed, and ends no worker after an interrupt, so this class
    keeps track of the processes. Beam can request counters from running workers, but does not pass
    the counters on. When a bundle fails, Beam first waits for the bundles before it, and lets the
    others run on in this process; this class asks them to end within `END_S`.

    If `DATA_BUFFER_TIME_LIMIT_MS` is removed: see whether `data_plane` still has a buffer that a
    timer flushes. If one of the modules no longer has `thread_pool_executor`: see how
    `ParallelBundleManager` waits for bundles, and how `SdkHarness.run` waits for bundles in
    progress. If `ProgressRequester` is removed: see whether `FnApiRunner` shows counters before the
    end. If `SubprocessSdkWorkerHandler.start_worker` is removed: see how Beam starts a process, and
    what waits for `ControlFuture`. Without these parts, `assignment.order_shard` still ends a run
    that has lost elements; but workers may outlive the run, steps may go on after a failure, worker
    processes use the project and the account of this machine, and progress is coarse.
    """

    def __init__(self) -> None:
        super().__init__(progress_request_frequency=PROGRESS_REQUEST_S)
        self._workers: list[Worker] = []
        self._fork_server: ForkServer | None = None
        self._reports: dict[str, Sequence[Any]] = {}
        self._over = False

    def prepare_workers(self) -> None:
        """Starts a process that imports the modules that workers need, if workers can be forked."""
        if FORKS and self._fork_server is None:
            self._fork_server = ForkServer()

    def run_via_runner_api(self, pipeline_proto: Any, options: PipelineOptions) -> Any:
        reports = self._reports

        def collecting(requester: type[Any]) -> Callable[[Any, str, float], Any]:
            def make_requester(handler: Any, bundle: str, frequency: float) -> Any:
                def collect(progress: Any) -> None:
                    if progress.monitoring_infos:  # none when the bundle has ended
                        reports[bundle] = progress.monitoring_infos

                return requester(handler, bundle, frequency, collect)

            return make_requester

        start_worker = functools.partial(self._start_worker, options)
        starting = f"{_WORKER_HANDLERS}:SubprocessSdkWorkerHandler.start_worker"
        time_limit = f"{_WORKER_HANDLERS}:DATA_BUFFER_TIME_LIMIT_MS"
        with (
            _replaced_part(f"{_FN_RUNNER}:ProgressRequester", collecting),
            _replaced_part(time_limit, lambda _: 0),
            _replaced_part(f"{_FN_RUNNER}:thread_pool_executor", _failing_first),
            _replaced_part("runners.worker.sdk_worker:thread_pool_executor", _ending_threads),
            _replaced_part(starting, lambda _: lambda handler: start_worker(handler)),
        ):
            try:
                return super().run_via_runner_api(pipeline_proto, options)
            finally:
                self._over = interrupt.over.is_set()
                interrupt.over.clear()
                if all(worker.poll() is not None for worker in self._workers):
                    self.end_workers()

    def _start_worker(self, options: PipelineOptions, handler: Any) -> None:
        """Starts the worker process of a `SubprocessSdkWorkerHandler`."""
        descriptor = handler.control_api_service_descriptor()
        options_json = json.dumps(options.get_all_options(drop_default=True), default=str)
        environment = {
            **os.environ,
            "CONTROL_API_SERVICE_DESCRIPTOR": text_format.MessageToString(descriptor),
            "WORKER_ID": handler.worker_id,
            "PIPELINE_OPTIONS": options_json,
        }
        self.prepare_workers()
        worker: Worker
        if self._fork_server:
            worker = self._fork_server.fork(environment)
        else:
            worker = StartedWorker(environment)
        self._workers.append(worker)
        follow = functools.partial(self._follow_worker, worker, handler.control_conn)
        handler.worker_thread = _Follower(follow, functools.partial(self._end_worker, worker))
        handler.worker_thread.start()

    def _end_worker(self, worker: Worker) -> None:
        """Kills a worker that has no more work, without treating its end as a failure."""
        self._workers.remove(worker)
        worker.kill()

    def _follow_worker(self, worker: Worker, connection: Any) -> None:
        """Waits for the end of a worker; if the worker has failed, fails all requests to it."""
        worker.wait()
        error = _worker_error(worker, len(self._workers))
        if error is None:
            return
        ask = connection.push

        def refuse(request: Any) -> Any:
            if isinstance(request, beam_fn_api_pb2.InstructionRequest):
                raise error
            return ask(request)  # the request ends the connection

        connection.push = refuse
        for future in [*connection._futures_by_id.values()]:
            future.abort(error)
            future.set(beam_fn_api_pb2.InstructionResponse(error=str(error)))

    def metrics(self) -> MetricResults:
        """Returns the counters of a running pipeline, about a second old.

        Raises an error if Beam lacks the part that provides the counters.
        """
        reports = list(self._reports.values())  # copied at once, because threads add more
        infos = _find_part("metrics.monitoring_infos:consolidate")(itertools.chain(*reports))
        results: MetricResults = _find_part(f"{_FN_RUNNER}:FnApiMetrics")({"": infos})
        return results

    def check_workers(self) -> None:
        """Checks that no worker process has failed.

        Beam itself does not report such failures, and may wait forever.

        Raises:
            EngineError: a worker was killed by a signal, or ended with a status other than 0.
        """
        over = self._over or interrupt.over.is_set()
        for worker in self._workers:
            status = worker.poll() or 0
            ends_with_engine = status > 0 or status == -signal.SIGABRT  # by gRPC
            error = _worker_error(worker, len(self._workers))
            if error and not (over and ends_with_engine):
                raise error

    def end_workers(self) -> None:
        """Ends worker processes that are still running, for example after an interrupt."""
        for worker in self._workers:
            worker.kill()
        if self._fork_server:
            self._fork_server.close()


class _Follower(threading.Thread):
    """A thread that waits for the end of a worker process, or ends the worker on Beam's request.

    A worker that has lost one of its threads might never end by itself.
    """

    def __init__(self, follow: Callable[[], None], end: Callable[[], None]) -> None:
        super().__init__(target=follow, daemon=True)
        self._end = end

    def join(self, timeout: float | None = None) -> None:
        super().join(END_S)
        if self.is_alive():
            self._end()
        super().join(timeout)


def _worker_error(worker: Worker, workers: int) -> EngineError | None:
    """Returns the error to report for a worker process, or None if the worker has not failed."""
    status = worker.poll() or 0
    if status > 0:
        message = worker.last_message()[:500].rstrip(".")
        cause = f"a worker process ended with exit code {status}"
        cure = MORE_ROOM if tells_starved(message) else ""
        return EngineError(f"{cause}: {message}" if message else cause, cure=cure)
    if status < 0:
        return _killed_worker_error(-status, workers)
    return None


def _killed_worker_error(number: int, workers: int) -> EngineError:
    """Returns the error to report for a worker process that was killed by a signal."""
    name = signal.Signals(number).name
    if number == signal.SIGKILL:
        cause = f"a worker process was killed ({name}), most likely because memory ran out"
        fewer = f", with fewer workers: {spell_option('direct_num_workers', workers // 2)}"
        return EngineError(cause, hint=fewer if workers > 1 else "")
    if number == signal.SIGTERM:
        return EngineError(f"a worker process was killed ({name})")
    return EngineError(f"a worker process crashed ({name})")


class DataflowRunner(dataflow_runner.DataflowRunner):
    """Beam's DataflowRunner, changed so that the options of a job do not name the staged files.

    Why: other people can see a job's options, which would contain local paths.
    `_adjust_pipeline_for_dataflow_v2` runs after Beam has listed the files to stage and before the
    options become part of the job. If this method is removed: use any method that runs between
    these two steps. Without it, the options of a job name the staged files.

    Args:
        setup: fields of `SetupOptions`, for staging only.
    """

    def __init__(self, **setup: object) -> None:
        super().__init__()
        self._setup = setup
        self._given = dict[str, object]()

    def run_pipeline(
        self, pipeline: Pipeline, options: PipelineOptions, pipeline_proto: Any = None
    ) -> Any:
        self._given = {name: getattr(options.view_as(SetupOptions), name) for name in self._setup}
        _set(options, self._setup)
        try:
            return super().run_pipeline(pipeline, options, pipeline_proto)
        except RuntimeError as error:
            pip = error.__cause__
            if not isinstance(pip, subprocess.CalledProcessError):
                raise
            reason = pip.output.decode(errors="replace").strip().rpartition("\n")[2]
            raise UsageError(
                f"pip cannot download the packages that workers need ({reason}); give pip access "
                "to an index, or use `sdk_container_image=IMAGE` with an image that has beam_tfr"
            ) from error
        finally:
            _set(options, self._given)

    def _adjust_pipeline_for_dataflow_v2(self, pipeline: Pipeline) -> None:
        _set(pipeline.options, self._given)
        super()._adjust_pipeline_for_dataflow_v2(pipeline)


def _set(options: PipelineOptions, setup: Mapping[str, object]) -> None:
    """Sets fields of `SetupOptions`."""
    for name, value in setup.items():
        setattr(options.view_as(SetupOptions), name, value)


def dataflow_job_state(options: PipelineOptions, job_id: str) -> str:
    """Returns the state of a Dataflow job, such as `JOB_STATE_QUEUED`.

    Why: `get_job` uses the credentials and the endpoint in the options, but retries for minutes if
    there is no such job. If `DataflowApplicationClient` is removed: use
    `google.cloud.dataflow_v1beta3` directly.

    Raises:
        GoogleAPIError, GoogleAuthError: the service does not answer.
    """
    try:
        client = _find_part("runners.dataflow.internal.apiclient:DataflowApplicationClient")
        get_job = inspect.unwrap(client.get_job)
    except (ImportError, AttributeError) as error:
        _LOGGER.warning("this version of Beam cannot ask for the state of a job: %s", error)
        return ""
    return str(get_job(client(options), job_id).current_state.name)


def kill_servers() -> None:
    """Kills the servers that Beam has started in this process, such as Prism.

    Why: an interrupted command ends at once, without calling the functions in which Beam ends its
    servers and waits for them. If `SubprocessServer._cache` is removed: see where
    `_really_start_process` keeps its processes. Without it, Prism may outlive an interrupted
    command.
    """
    with contextlib.suppress(ImportError, AttributeError):
        servers = _find_part("utils.subprocess_server:SubprocessServer._cache._cache")
        for entry in [*servers.values()]:
            process, _ = entry.obj
            process.kill()


def _find_part(path: str) -> Any:
    """Returns the part of Beam named `module:attribute.attribute` or `module`.

    Raises:
        ImportError, AttributeError: Beam has no such part.
    """
    module, _, attributes = path.partition(":")
    part: Any = importlib.import_module(f"apache_beam.{module}")
    return operator.attrgetter(attributes)(part) if attributes else part


@contextlib.contextmanager
def _replaced_part(path: str, replace: Callable[[Any], Any]) -> Iterator[None]:
    """Replaces a part of Beam while the block runs, if the part exists; see `_find_part`.

    Blocks in several threads wait for each other.

    Args:
        replace: function that takes the part and returns its replacement.
    """
    owner_path, name = re.fullmatch(r"(.+)[.:](\w+)", path).groups()  # type: ignore[union-attr]
    with _REPLACING[path], contextlib.ExitStack() as stack:
        try:
            original = _find_part(path)
            owner = _find_part(owner_path)
            setattr(owner, name, replace(original))
            stack.callback(setattr, owner, name, original)
        except (ImportError, AttributeError) as error:
            _LOGGER.warning("this version of Beam lacks a part that beam_tfr modifies: %s", error)
        yield
