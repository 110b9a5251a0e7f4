"""Beam's private parts are still what `beam_internals`, and these tests, rely on.

When a case fails after an upgrade of Beam, the docstring of the function that it names says what to
do.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import logging
import signal
import subprocess
import sys
import threading
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.internal import cloudpickle_pickler
from apache_beam.internal.gcp import auth
from apache_beam.io.filesystems import FileSystems
from apache_beam.options import pipeline_options
from apache_beam.options.pipeline_options import PipelineOptions, SetupOptions
from apache_beam.runners.dataflow import dataflow_runner
from apache_beam.runners.portability.fn_api_runner import worker_handlers
from apache_beam.runners.portability.portable_runner import JobServiceHandle
from apache_beam.runners.worker import data_plane
from apache_beam.utils import interactive_utils, processes
from apache_beam.utils.subprocess_server import SubprocessServer

from beam_tfr.dataflow import jobs, staging
from beam_tfr.engine import beam_internals, interrupt
from beam_tfr.engine.processes import ForkedWorker
from beam_tfr.schema.errors import UsageError
from tests.conftest import Run, files_of
from tests.converted import converted_photos, once, write_photos

Patch = pytest.MonkeyPatch


def worker_options(patch: Patch, folder: Path) -> None:
    patch.setattr(FileSystems, "_pipeline_options", None)
    assert beam_internals.worker_options() is None
    options = PipelineOptions([])
    FileSystems.set_options(options)  # as `sdk_worker_main` does
    assert beam_internals.worker_options() is options


def beam_parser(patch: Patch, folder: Path) -> None:
    parser = beam_internals.beam_parser()
    known, unknown = parser.parse_known_args(
        ["--runner=x", "--region=y", "--direct_num_workers=3", "--nothing"]
    )
    assert (known.runner, known.region, known.direct_num_workers, unknown) == (
        "x",
        "y",
        3,
        ["--nothing"],
    )
    with pytest.raises(UsageError, match="argument --direct_num_workers: invalid int value: 'x'"):
        parser.parse_known_args(["--direct_num_workers=x"])


def no_folders_in_pickles(patch: Patch, folder: Path) -> None:
    def pickled() -> str:
        code = compile("made = lambda: 1", f"{folder}/made.py", "exec")
        names: dict[str, Any] = {"__name__": "__main__"}
        exec(code, names)
        return str(
            cloudpickle_pickler.loads(cloudpickle_pickler.dumps(names["made"])).__code__.co_filename
        )

    assert pickled() == f"{folder}/made.py"
    with beam_internals.no_folders_in_pickles():
        assert pickled() == "made.py"
    assert pickled() == f"{folder}/made.py"


def building(patch: Patch, folder: Path) -> None:
    patch.setattr(interactive_utils, "is_in_ipython", lambda: True)
    patch.setattr(PipelineOptions, "view_as", inspect.unwrap(PipelineOptions.view_as))
    pipeline = beam.Pipeline()
    with beam_internals.building_pipeline():
        pipeline | "Label" >> beam.Create([1])
        view = pipeline.options.view_as(SetupOptions)
        assert pipeline.options.view_as(SetupOptions) is view
    view.save_main_session = True
    assert pipeline.options.view_as(SetupOptions) is not view
    assert pipeline.options.view_as(SetupOptions).save_main_session
    assert "Label" in pipeline.applied_labels
    with pytest.raises(ImportError):  # of IPython, or before that of pandas
        pipeline | "Other" >> beam.Create([1])


def streams_without_timeout(patch: Patch, folder: Path) -> None:
    seen: list[float | None] = []

    class Service:
        def GetStateStream(self, request: object, *, timeout: float | None) -> Any:
            seen.append(timeout)
            return iter([None])

        def GetMessageStream(self, request: object, *, timeout: float | None) -> Any:
            return self.GetStateStream(request, timeout=timeout)

        def Run(self, request: object) -> Any:
            return types.SimpleNamespace(job_id="job")

    for block, expected in (
        (contextlib.nullcontext, 300),
        (beam_internals.streams_without_timeout, None),
    ):
        seen.clear()
        with block():
            JobServiceHandle(Service(), PipelineOptions([])).run("job")
        assert seen == [expected] * 2


def local_runner_flushes_by_size(patch: Patch, folder: Path) -> None:
    create, streams = data_plane.ClosableOutputStream.create, set()

    def noted(*arguments: Any) -> Any:
        streams.add(type(stream := create(*arguments)))
        return stream

    patch.setattr(data_plane.ClosableOutputStream, "create", staticmethod(noted))
    options = PipelineOptions(["--direct_running_mode=multi_threading", "--direct_num_workers=2"])
    with beam.Pipeline(runner=beam_internals.LocalRunner(), options=options) as pipeline:
        pipeline | beam.Create([1, 2]) | beam.Reshuffle() | beam.Map(str)
    assert streams == {data_plane.SizeBasedBufferingClosableOutputStream}
    assert worker_handlers.DATA_BUFFER_TIME_LIMIT_MS == 1000


class OneFails(beam.DoFn):
    """Two threads of which the second fails.

    The first to begin goes on until it is told to end, then the other one fails.
    """

    begun, ended = threading.Event(), threading.Event()
    lock = threading.Lock()

    def process(self, number: int) -> None:
        with self.lock:
            first = not self.begun.is_set()
            self.begun.set()
        if not first:
            raise UsageError("the other one")
        try:
            while True:
                interrupt.check_interrupt()
                time.sleep(0.01)
        finally:
            self.ended.set()


def local_runner_ends_with_its_bundles(patch: Patch, folder: Path) -> None:
    options = PipelineOptions(["--direct_running_mode=multi_threading", "--direct_num_workers=2"])
    pipeline = beam.Pipeline(runner=beam_internals.LocalRunner(), options=options)
    pipeline | beam.Create(range(100)) | beam.Reshuffle() | beam.ParDo(OneFails())
    with pytest.raises(Exception, match="the other one"):
        pipeline.run()
    assert OneFails.ended.is_set()
    assert not interrupt.over.is_set()


def local_runner_starts_our_workers(patch: Patch, folder: Path) -> None:
    options = PipelineOptions(["--direct_running_mode=multi_processing", "--direct_num_workers=1"])
    runner = beam_internals.LocalRunner()
    with beam.Pipeline(runner=runner, options=options) as pipeline:
        pipeline | beam.Create([1])
    (worker,) = runner._workers
    assert isinstance(worker, ForkedWorker)
    assert worker.poll() == 0
    assert runner._fork_server is not None
    assert runner._fork_server.poll() == 0


def dataflow_runner_hides_what_it_stages(patch: Patch, folder: Path) -> None:
    flags = ["--project=my-project", "--region=europe-west4", "--job_name=j", "--no_auth"]
    flags += ["--dataflow_endpoint=http://localhost:1", f"--template_location={folder}/job.json"]
    options = PipelineOptions(
        [*flags, f"--temp_location={folder}", f"--staging_location={folder}/staged"]
    )
    (folder / "here").mkdir()
    (folder / "staged").mkdir()
    wheel = staging.build_wheel(folder / "here")
    runner = beam_internals.DataflowRunner(extra_packages=[str(wheel)])
    pipeline = beam.Pipeline(runner=runner, options=options)
    pipeline | beam.Create([1])
    pipeline.run()
    assert [path.name for path in (folder / "staged").rglob("*.whl")] == [wheel.name]
    job = json.loads((folder / "job.json").read_text())
    assert "extra_packages" not in job["environment"]["sdkPipelineOptions"]["options"]
    assert options.view_as(SetupOptions).extra_packages is None


def dataflow_runner_reports_pip(patch: Patch, folder: Path) -> None:
    pip = [sys.executable, "-m", "pip", "download", "--find-links", folder, "none", "--no-index"]
    with pytest.raises(RuntimeError) as failed:
        processes.check_output(pip, stderr=subprocess.STDOUT)
    assert isinstance(failed.value.__cause__, subprocess.CalledProcessError)
    assert b"No matching distribution found for none" in failed.value.__cause__.output


def servers_are_killed(patch: Patch, folder: Path) -> None:
    servers = SubprocessServer(None, ["sleep", "60"], port=1)
    process, _ = servers.start_process()
    beam_internals.kill_servers()
    assert process.wait(60) == -signal.SIGKILL


def credentials_of_these_tests(
    patch: Patch, folder: Path
) -> None:  # tests/conftest.py: nobody waits for any
    assert auth._Credentials._credentials_init is True
    patch.setattr(auth, "default", None, raising=False)
    assert auth.get_service_credentials(PipelineOptions([])) is None


@pytest.mark.parametrize(
    "case",
    [
        worker_options,
        beam_parser,
        no_folders_in_pickles,
        building,
        streams_without_timeout,
        local_runner_flushes_by_size,
        local_runner_ends_with_its_bundles,
        local_runner_starts_our_workers,
        dataflow_runner_hides_what_it_stages,
        dataflow_runner_reports_pip,
        servers_are_killed,
        credentials_of_these_tests,
    ],
    ids=lambda case: case.__name__,
)
def test_beam_is_as_it_was(
    case: Callable[[Patch, Path], None], monkeypatch: Patch, tmp_path: Path
) -> None:
    case(monkeypatch, tmp_path)


# A later Beam


@pytest.mark.slow
def test_with_a_beam_that_lacks_all_these_parts_everything_works(
    beam_tfr: Callable[..., Run], tmp_path: Path, monkeypatch: Patch
) -> None:
    def found(path: str) -> Any:
        missing.add(path)
        raise AttributeError(f"there is no {path}")

    missing: set[str] = set()
    monkeypatch.setattr(beam_internals, "_find_part", found)
    for mode, workers in (("in_memory", 1), ("multi_threading", 2), ("multi_processing", 2)):
        command = [
            "convert",
            "--input",
            f"{once('photos', write_photos)}/**/*.jpg",
            "--output",
            tmp_path / mode,
        ]
        flags = [
            "--direct_running_mode",
            mode,
            "--direct_num_workers",
            workers,
            "--layout",
            "{split}/{label}/*",
        ]
        run = beam_tfr(*command, *flags, "--name", "d")
        assert run.code == 0, run.err
        assert files_of(tmp_path / mode) == files_of(converted_photos())
    assert len(missing) >= 8
    assert beam_internals.dataflow_job_state(PipelineOptions([]), "job") == ""
    with beam_internals.no_folders_in_pickles(), beam_internals.streams_without_timeout():
        assert len(missing) > 10


def test_what_is_used_without_a_block_has_a_substitute(monkeypatch: Patch) -> None:
    monkeypatch.delattr(FileSystems, "_pipeline_options")
    assert beam_internals.worker_options() is None
    monkeypatch.delattr(pipeline_options, "_BeamArgumentParser")
    known, unknown = beam_internals.beam_parser().parse_known_args(["--region=y", "--nothing"])
    assert (known.region, unknown) == ("y", ["--nothing"])


def test_a_job_log_is_told_as_far_as_it_is_read() -> None:
    logger, said = logging.getLogger(jobs._LOGGER), list[str]()
    assert dataflow_runner._LOGGER is logger
    with jobs.forward_messages(said.append):
        for text in (
            "JOB_MESSAGE_ERROR: ",
            "x: JOB_MESSAGE_WARNING: y: z",
            "x: JOB_MESSAGE_WARNING: y: z",
            "other",
        ):
            logger.warning(text)
        logger.info("x: JOB_MESSAGE_BASIC: y")
    assert said == ["Dataflow, error:: ", "Dataflow, warning: y: z"]


def test_a_job_is_staged_by_a_runner_without_the_method(monkeypatch: Patch) -> None:
    seen = []

    def run(self: object, pipeline: object, options: PipelineOptions, proto: object) -> None:
        seen.append(options.view_as(SetupOptions).extra_packages)

    monkeypatch.setattr(dataflow_runner.DataflowRunner, "run_pipeline", run)
    options = PipelineOptions([])
    beam_internals.DataflowRunner(extra_packages=["a.whl"]).run_pipeline(beam.Pipeline(), options)
    assert (seen, options.view_as(SetupOptions).extra_packages) == ([["a.whl"]], None)
