"""What a submission stages runs on workers that have Beam, the staged files, and no index."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from beam_tfr import storage
from beam_tfr.dataset.manifest import read_manifest
from tests.conftest import SAMPLE, Run
from tests.dataflow_fixtures import job_served
from tests.fake_dataflow import FakeDataflow
from tests.worker_env import make_shelf

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


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_beam_builds_an_image_from_what_would_be_staged(
    service: FakeDataflow, beam_tfr: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in make_shelf(tmp_path / "shelf").items():
        monkeypatch.setenv(name, value)
    docker = tmp_path / "docker"
    docker.write_text('#!/bin/sh\necho "$@" >>"$0.log"\n[ "$1" = push ] || ls >>"$0.log"\n')
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    there = ["--input", "gs://b/photos/**/*.jpg", "--output", "gs://b/out", "--no_wait"]
    built = ["--prebuild_sdk_container_engine=local_docker", "--docker_registry_push_url=r/images"]
    run = beam_tfr("convert", *there, *LAYOUT, *service.flags, *built)
    assert run.code == 0, run.err
    noted = (tmp_path / "docker.log").read_text().split()
    assert noted[:3] == ["build", ".", "-t"]
    (image,) = {word for word in noted if word.startswith("r/images/")}
    assert "requirements.txt" in noted
    for name in ("beam_tfr", "cykooz_resizer", "simplejpeg"):
        assert any(word.startswith(f"{name}-") and word.endswith(".whl") for word in noted), name
    (environment,) = service.pipeline().components.environments.values()
    assert image.encode() in environment.payload
    assert not environment.dependencies  # nothing is staged for each worker
