"""Updates on every engine write the bytes that the default one writes.

So they do where the join runs in other processes.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import beam_tfr
from tests.conftest import Run
from tests.converted import once
from tests.living_photos import REJECTS, Photos, files_of, fresh
from tests.portable_runners import PROCESSES, THREADS, own_prism

Command = Callable[..., Run]
OPTIONS = {"image_size": 32, "num_shards": 3}


def make(folder: Path) -> None:
    """Writes the dataset `d`, its changed photos, and what updates must give.

    Updates come one after another.

    Those are `updated`, then with other shards `replanned`, then `removed` without the photo in
    `keys`.
    """
    photos = Photos(folder / "photos", 1)
    pattern, other_plan = f"{photos.folder}/**", OPTIONS | {"num_shards": 2}
    beam_tfr.convert(
        input=pattern, output=folder / "d", progress=False, name="d", **REJECTS, **OPTIONS
    )
    photos.change()
    fresh(folder / "updated", input=pattern, **REJECTS, **OPTIONS)
    fresh(folder / "replanned", input=pattern, **REJECTS, **other_plan)
    gone = next(path for path in photos.all() if path.read_bytes()[:2] == b"\xff\xd8")
    (folder / "keys").write_text(f"{gone.relative_to(photos.folder)}\n")
    gone.rename(folder / "gone")
    fresh(folder / "removed", input=pattern, **REJECTS, **other_plan)
    (folder / "gone").rename(gone)


def check_an_update(beam_tfr_command: Command, tmp_path: Path, flags: list[str]) -> Path:
    """Updates a dataset with its input, on an engine; returns its folder."""
    made = once("update_engines", make)
    dataset, pattern = Path(shutil.copytree(made / "d", tmp_path / "d")), f"{made}/photos/**"
    run = beam_tfr_command(
        "update", dataset, "--input", pattern, "--max_rejects", "0.9", "--json", *flags
    )
    assert run.code == 0, run.err
    assert files_of(dataset) == files_of(made / "updated")
    assert 0 < run.json["changed"]["added"] < run.json["written"] / 2
    return dataset


def check_updates(beam_tfr_command: Command, tmp_path: Path, flags: list[str]) -> None:
    """Updates a dataset with its input, then its plan, and takes an image down, on an engine."""
    dataset, made = check_an_update(beam_tfr_command, tmp_path, flags), once("update_engines", make)
    assert beam_tfr_command("update", dataset, "--num_shards", "2", "--quiet", *flags).code == 0
    assert files_of(dataset) == files_of(made / "replanned")
    assert beam_tfr_command("remove", dataset, "--keys", made / "keys", "--quiet", *flags).code == 0
    found = files_of(dataset)
    assert found.pop("removed.txt").count(b"\n") == 2
    assert found == files_of(made / "removed")


@pytest.mark.slow
@pytest.mark.parametrize("engine", THREADS)
def test_beams_own_engines(beam_tfr: Command, tmp_path: Path, engine: str) -> None:
    check_updates(beam_tfr, tmp_path, THREADS[engine])


@pytest.mark.slow
def test_processes(beam_tfr: Command, tmp_path: Path) -> None:
    check_an_update(beam_tfr, tmp_path, PROCESSES)


@pytest.mark.slow
def test_prism(beam_tfr: Command, tmp_path: Path, prism: Path) -> None:
    flags = own_prism(prism)
    check_updates(beam_tfr, tmp_path, flags)


@pytest.mark.slow
def test_a_job_service_with_its_own_workers(
    beam_tfr: Command, tmp_path: Path, portable: list[str]
) -> None:
    check_an_update(beam_tfr, tmp_path, portable)
