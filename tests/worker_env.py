"""An environment like a worker's: Beam with what it requires, and nothing else."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

BEAM = "apache-beam[gcp]"


def closure(requirement: str, found: set[tuple[str, frozenset[str]]] | None = None) -> set[str]:
    """Names of all that is installed here because of a requirement, and its own."""
    found = set() if found is None else found
    wanted = Requirement(requirement)
    key = (canonicalize_name(wanted.name), frozenset(wanted.extras))
    if key not in found:
        found.add(key)
        for line in importlib.metadata.requires(wanted.name) or []:
            next_one = Requirement(line)
            extras = wanted.extras or {""}
            if next_one.marker is None or any(next_one.marker.evaluate({"extra": extra}) for extra in extras):
                closure(_plain(next_one), found)
    return {name for name, _ in found}


def _plain(requirement: Requirement) -> str:
    return f"{requirement.name}[{','.join(requirement.extras)}]" if requirement.extras else requirement.name


def make_worker_env(folder: Path) -> Path:
    """A fresh environment with Beam and pip, of the files that are installed here; returns its Python."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    (target,) = folder.glob("lib/python*/site-packages")
    for name in closure(BEAM):
        link_distribution(name, target)
    return folder / "bin" / "python"


def link_distribution(name: str, target: Path) -> None:
    """Installs what is installed here into the folder of another environment."""
    for path in importlib.metadata.files(name) or []:
        source = Path(str(path.locate()))
        if ".." not in path.parts and path.name != "direct_url.json" and source.exists():
            (target / path).parent.mkdir(parents=True, exist_ok=True)
            _link(source, target / path)


def _link(source: Path, target: Path) -> None:
    if not target.exists():
        try:
            os.link(source, target)  # pip replaces files, it never writes into one
        except OSError:
            shutil.copy2(source, target)


def offline(folder: Path) -> dict[str, str]:
    """The environment variables of a worker without an index, whose home is a folder."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "STORAGE_EMULATOR_HOST") if name in os.environ}
    return {**kept, "HOME": str(folder), "PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull}


def install_staged(python: Path, staged: Path) -> None:
    """What a worker's boot program does with the files that were staged: each extra package twice, in their order."""
    pip = [python, "-m", "pip", "install", "--disable-pip-version-check", "--no-cache-dir"]
    for name in (staged / "extra_packages.txt").read_text().split():
        forced = ["--upgrade", "--force-reinstall", "--no-deps"]
        for more in (forced, []):
            subprocess.run([*pip, *more, staged / name], check=True, env=offline(staged), capture_output=True)
