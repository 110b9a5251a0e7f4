"""The service of `fake_dataflow` as fixtures, and jobs for it."""

from __future__ import annotations

import base64
import bz2
import contextlib
import re
import subprocess
import threading
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_job_api_pb2, beam_runner_api_pb2, endpoints_pb2
from apache_beam.runners.dataflow import dataflow_runner
from apache_beam.runners.portability.portable_runner import PortableRunner

from beam_tfr import storage
from tests.conftest import SAMPLE, Run, let_runs_end, wait_for
from tests.fake_dataflow import FakeDataflow
from tests.portable_runners import job_service, worker_pool
from tests.worker_env import install_staged, make_shelf, make_worker_env, offline

Command = Callable[..., Run]
IMAGE = "europe-west4-docker.pkg.dev/my-project/images/beam-tfr:1"


@pytest.fixture(scope="session")
def dataflow_server() -> Iterator[FakeDataflow]:
    server = FakeDataflow()
    yield server
    server.close()


class _Clock:
    """Time for Beam's polling of a job, which sleeps five seconds at a time."""

    def __init__(self) -> None:
        self.time = dataflow_runner.time.time

    def sleep(self, _: float) -> None:
        threading.Event().wait(0.02)


@pytest.fixture
def service(
    dataflow_server: FakeDataflow, monkeypatch: pytest.MonkeyPatch
) -> Iterator[FakeDataflow]:
    """Both services, with photos in the bucket b."""
    dataflow_server.clear()
    dataflow_server.put_folder(SAMPLE / "test", "photos")
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", dataflow_server.address)
    monkeypatch.setattr(dataflow_runner, "time", _Clock())
    storage.gcs_client.make_client.cache_clear()
    yield dataflow_server
    dataflow_server.set_service(state="JOB_STATE_DONE")
    let_runs_end()  # or one would ask the next tests' service for ever
    storage.gcs_client.make_client.cache_clear()


def submit(beam_tfr: Command, service: FakeDataflow, *flags: str) -> Run:
    """Submits a job whose image has everything, unless flags say otherwise."""
    defaults = {"--input": "gs://b/photos/**/*.jpg", "--output": "gs://b/out", "--num_shards": "3"}
    given = {flag.partition("=")[0] for flag in flags}
    command = ["convert"]
    for name, value in defaults.items():
        if name not in given:
            command += [name, value]
    return beam_tfr(*command, *service.flags, f"--sdk_container_image={IMAGE}", *flags)


def pickles_of(pipeline: beam_runner_api_pb2.Pipeline) -> Iterator[bytes]:
    """Beam's pickled functions, decompressed."""
    for transform in pipeline.components.transforms.values():
        for found in re.findall(rb"[A-Za-z0-9+/]{40,}={0,2}", transform.spec.payload):
            packed = base64.b64decode(found + b"=" * (-len(found) % 4))
            for decompress in (bz2.decompress, zlib.decompress):
                with contextlib.suppress(OSError, zlib.error, ValueError):
                    yield decompress(packed)


@contextlib.contextmanager
def job_served(
    service: FakeDataflow, prism: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Runs the job that is submitted within the block."""
    for name, value in make_shelf(folder / "shelf").items():
        monkeypatch.setenv(name, value)
    failure: list[BaseException] = []

    def serve() -> None:
        try:
            run_job(service, prism, folder)
            service.set_service(state="JOB_STATE_DONE")
        except BaseException as error:
            failure.append(error)
            service.set_service(state="JOB_STATE_CANCELLED")

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield
    thread.join(60)
    if failure:
        raise failure[0]


def run_job(service: FakeDataflow, prism: Path, folder: Path) -> None:
    """What the service would do with the job.

    Workers install what was staged, and the staged pipeline runs on them.
    """
    python = make_worker_env(folder / "worker")
    look = [
        python,
        "-c",
        "import importlib.util as u; print(u.find_spec('beam_tfr'), u.find_spec('tensorflow'))",
    ]
    assert (
        subprocess.check_output(look, env=offline(folder), cwd=folder, text=True) == "None None\n"
    )
    wait_for(service.jobs, timeout_s=300)
    staged = folder / "staged"
    staged.mkdir()
    for name in service.names():
        if name.startswith("tmp/"):
            (staged / name.rpartition("/")[2]).write_bytes(service.get(name))
    install_staged(python, staged)
    with (
        job_service(prism, folder / "service.log") as address,
        worker_pool(python, folder / "pool.log", offline(folder)) as pool,
    ):
        pipeline = service.pipeline()
        endpoint = endpoints_pb2.ApiServiceDescriptor(url=pool)
        for environment in pipeline.components.environments.values():
            del environment.dependencies[:]
            environment.urn = common_urns.environments.EXTERNAL.urn
            environment.payload = beam_runner_api_pb2.ExternalPayload(
                endpoint=endpoint
            ).SerializeToString()
        options = PipelineOptions([f"--job_endpoint={address}", "--environment_type=EXTERNAL"])
        handle = PortableRunner().create_job_service(options)
        _, messages, states = handle.submit(pipeline)
        said = [str(message) for message in messages]
        ended = [state.state for state in states][-1]
        assert ended == beam_job_api_pb2.JobState.DONE, said
