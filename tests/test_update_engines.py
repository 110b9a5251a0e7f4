"""Updates on every engine: the bytes that the default one writes, also where the join runs in other processes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import beam_tfr
from tests.conftest import Run
from tests.portable_runners import prism
from tests.test_engines import PROCESSES, THREADS, portable
from tests.test_update import REJECTS, Photos, files_of, fresh

__all__ = ["portable", "prism"]

Command = Callable[..., Run]
OPTIONS = {"image_size": 32, "num_shards": 3}


def check_updates(beam_tfr_command: Command, tmp_path: Path, flags: list[str]) -> None:
    """Updates a dataset with its input, then its plan, and takes an image down, on an engine."""
    photos, dataset = Photos(tmp_path / "photos", 1), tmp_path / "d"
    pattern = f"{photos.folder}/**"
    beam_tfr.convert(input=pattern, output=dataset, progress=False, **REJECTS, **OPTIONS)
    photos.change()
    run = beam_tfr_command("update", dataset, "--input", pattern, "--max_rejects", "0.9", "--json", *flags)
    assert run.code == 0, run.err
    assert files_of(dataset) == fresh(tmp_path / "fresh", input=pattern, **REJECTS, **OPTIONS)
    assert 0 < run.json["changed"]["added"] < run.json["written"] / 2
    assert beam_tfr_command("update", dataset, "--num_shards", "2", "--quiet", *flags).code == 0
    assert files_of(dataset) == fresh(tmp_path / "fresh", input=pattern, **REJECTS, **OPTIONS | {"num_shards": 2})
    gone = next(path for path in photos.all() if path.read_bytes()[:2] == b"\xff\xd8")
    (tmp_path / "keys").write_text(f"{gone.relative_to(photos.folder)}\n")
    assert beam_tfr_command("remove", dataset, "--keys", tmp_path / "keys", "--quiet", *flags).code == 0
    gone.unlink()
    found = files_of(dataset)
    assert found.pop("removed.txt").count(b"\n") == 2
    assert found == fresh(tmp_path / "fresh", input=pattern, **REJECTS, **OPTIONS | {"num_shards": 2})


@pytest.mark.slow
@pytest.mark.parametrize("engine", THREADS)
def test_beams_own_engines(beam_tfr: Command, tmp_path: Path, engine: str) -> None:
    check_updates(beam_tfr, tmp_path, THREADS[engine])


@pytest.mark.slow
def test_processes(beam_tfr: Command, tmp_path: Path) -> None:
    check_updates(beam_tfr, tmp_path, PROCESSES)


@pytest.mark.slow
def test_prism(beam_tfr: Command, tmp_path: Path, prism: Path) -> None:
    flags = ["--runner=PrismRunner", f"--prism_location={prism}", "--experiments=disable_prism_server_singleton"]
    check_updates(beam_tfr, tmp_path, flags)


@pytest.mark.slow
def test_a_job_service_with_its_own_workers(beam_tfr: Command, tmp_path: Path, portable: list[str]) -> None:
    check_updates(beam_tfr, tmp_path, portable)
