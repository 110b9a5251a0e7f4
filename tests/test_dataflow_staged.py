"""What a submission stages runs on workers that have Beam, the staged files, and no index."""

from __future__ import annotations

import contextlib
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_job_api_pb2, beam_runner_api_pb2, endpoints_pb2
from apache_beam.runners.portability.portable_runner import PortableRunner

from beam_tfr import storage
from beam_tfr.dataset.manifest import read_manifest
from tests.conftest import SAMPLE, Run, wait_for
from tests.fake_dataflow import FakeDataflow
from tests.portable_runners import job_service, prism, worker_pool
from tests.test_dataflow import dataflow_server, service
from tests.worker_env import install_staged, make_shelf, make_worker_env, offline

__all__ = ["dataflow_server", "prism", "service"]

Command = Callable[..., Run]
LAYOUT = ["--layout", "{label}/*", "--num_shards", "3", "--name", "d"]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_staged_files_convert_on_a_worker_that_has_only_beam(
    service: FakeDataflow,
    beam_tfr: Command,
    prism: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    there = ["--input", "gs://b/photos/**/*.jpg", "--output", "gs://b/out"]
    with job_served(service, prism, tmp_path, monkeypatch):
        run = beam_tfr("convert", *there, *LAYOUT, *service.flags)
    assert run.code == 0, run.err
    assert run.err.startswith(
        "convert: job 2026-01-01_00_00_00-1234567890: https://console.cloud.google.com/dataflow/jobs/"
    )
    written = read_manifest("gs://b/out")
    assert "balance: 20 matched = 20 written + 0 rejected" in run.out
    assert not [name for name in service.names() if name.startswith("out/.beam_tfr/")]
    storage.gcs_client.make_client.cache_clear()
    here = beam_tfr(
        "convert", "--input", f"{SAMPLE}/test/**/*.jpg", "--output", tmp_path / "here", *LAYOUT
    )
    assert here.code == 0
    assert written.dataset_digest == read_manifest(str(tmp_path / "here")).dataset_digest
    for path in (tmp_path / "here").glob("d-*"):
        assert service.get(f"out/{path.name}") == path.read_bytes()


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
    """What the service would do with the job: workers install what was staged, and the staged
    pipeline runs on them."""
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
