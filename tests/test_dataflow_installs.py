"""What a submission stages does not depend on how the package was installed.

From a wheel, or as these sources.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from beam_tfr.dataflow import staging
from tests.fake_dataflow import JOB_ID, FakeDataflow
from tests.installs import copy_sources, site_packages
from tests.worker_env import make_shelf, offline

PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
ALONE = ["--no-deps", "--no-index"]


def from_a_wheel(sources: Path, python: Path) -> Path:
    """Builds a wheel and installs it.

    Returns the folder that the package must then be imported from.
    """
    shelf = sources.parent / "shelf"
    subprocess.run(
        [*PIP, "wheel", *ALONE, "--no-build-isolation", "--wheel-dir", shelf, sources], check=True
    )
    (wheel,) = shelf.iterdir()
    shutil.rmtree(sources)
    subprocess.run([*PIP, "--python", python, "install", *ALONE, wheel], check=True)
    return python.parents[1]


def staged_by_a_wheel(service: FakeDataflow, folder: Path) -> dict[str, bytes]:
    """What a fresh environment stages, by name, where only the package itself is its own."""
    sources, elsewhere = copy_sources(folder / "sources"), folder / "elsewhere"
    elsewhere.mkdir()
    python = folder / "fresh" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "fresh"], check=True)
    home = from_a_wheel(sources, python)
    # Beam and the codecs are those of this environment. Its own .pth files have no effect there.
    here = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    (site_packages(python) / "of-this-environment.pth").write_text("\n".join(here))
    environment = {**offline(folder), **make_shelf(folder / "codecs")}
    look = [python, "-c", "import beam_tfr; print(beam_tfr.__file__)"]
    imported = subprocess.check_output(look, cwd=elsewhere, env=environment, text=True)
    assert home in Path(imported).parents
    before = set(service.names())
    command = [
        python.parent / "beam-tfr",
        "convert",
        "--input=gs://b/photos/**/*.jpg",
        "--output=gs://b/out",
    ]
    command += [*service.flags, "--no_wait"]
    run = subprocess.run(
        command, cwd=elsewhere, env=environment, capture_output=True, text=True, timeout=200
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith(f"job {JOB_ID} was created")
    assert not list(elsewhere.iterdir())
    return {name.rpartition("/")[2]: service.get(name) for name in set(service.names()) - before}


@pytest.mark.slow
def test_a_wheel_stages_the_same_as_these_sources(service: FakeDataflow, tmp_path: Path) -> None:
    staged = staged_by_a_wheel(service, tmp_path / "wheel")
    assert staged.pop("pipeline.pb")
    (own,) = staged.pop("extra_packages.txt").decode().split()
    here = staging.build_wheel(tmp_path)
    assert (own, staged.pop(own)) == (here.name, here.read_bytes())
    pins = staged.pop("requirements.txt").decode()
    assert pins == staging.codec_pins()
    assert len(pins.split()) == len(staged)
    assert {line.replace("-", "_").replace("==", "-") for line in pins.split()} == {
        "-".join(name.split("-")[:2]) for name in staged
    }
