"""An environment like a worker's: Beam with what it requires, and nothing else."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from beam_tfr.dataflow import staging

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
            if next_one.marker is None or any(
                next_one.marker.evaluate({"extra": extra}) for extra in extras
            ):
                closure(_plain(next_one), found)
    return {name for name, _ in found}


def _plain(requirement: Requirement) -> str:
    return (
        f"{requirement.name}[{','.join(requirement.extras)}]"
        if requirement.extras
        else requirement.name
    )


def make_worker_env(folder: Path) -> Path:
    """A fresh environment with Beam and pip, made of the files installed here.

    Returns its Python.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (target,) = folder.glob("lib/python*/site-packages")
    for name in closure(BEAM) | {"pip"}:
        link_distribution(name, target)
    python, pip = folder / "bin" / "python", folder / "bin" / "pip"
    pip.write_text(f"#!/bin/sh\nexec '{python}' -m pip \"$@\"\n")
    pip.chmod(0o755)
    return python


def link_distribution(name: str, target: Path) -> None:
    """Installs what is installed here into the folder of another environment."""
    for path in importlib.metadata.files(name) or []:
        source = Path(str(path.locate()))
        if ".." not in path.parts and path.name != "direct_url.json" and source.exists():
            _link(source, target / path)
            if (
                path.suffix == ".py"
                and (compiled := Path(importlib.util.cache_from_source(source))).exists()
            ):
                _link(compiled, target / path.parent / "__pycache__" / compiled.name)


def _link(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.exists():
        try:
            os.link(source, target)  # pip replaces files, it never writes into one
        except OSError:
            shutil.copy2(source, target)


def offline(folder: Path) -> dict[str, str]:
    """The environment variables of a worker without an index, whose home is a folder."""
    kept = {
        name: os.environ[name]
        for name in ("PATH", "LANG", "STORAGE_EMULATOR_HOST")
        if name in os.environ
    }
    return {
        **kept,
        "HOME": str(folder),
        "PIP_NO_INDEX": "1",
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_NO_COMPILE": "1",
    }


def install_staged(python: Path, staged: Path) -> None:
    """What a worker's boot program does with the files that were staged.

    First `requirements.txt`: staged files alone without an index, then whatever is still missing.
    Then each extra package: first by force and alone, then with what it requires.
    """
    pip = [python, "-m", "pip", "install", "--disable-pip-version-check", "--no-cache-dir"]
    requirements = ["-r", staged / "requirements.txt", "--find-links", staged]
    rounds: list[list[str | Path]] = [[*requirements, "--no-index", "--no-deps"], requirements]
    for name in (staged / "extra_packages.txt").read_text().split():
        rounds += [["--upgrade", "--force-reinstall", "--no-deps", staged / name], [staged / name]]
    for arguments in rounds:
        subprocess.run([*pip, *arguments], check=True, env=offline(staged), capture_output=True)


def make_shelf(folder: Path) -> dict[str, str]:
    """Wheels of the codecs in place of an index, and pip's variables for it.

    They are packed again from what is installed here.
    """
    folder.mkdir()
    for line in staging.codec_pins().split():
        _repack(importlib.metadata.distribution(line.partition("==")[0]), folder)
    return {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder)}


def _repack(found: importlib.metadata.Distribution, folder: Path) -> None:
    tags = re.findall(r"^Tag: (\S+)-(\S+)-(\S+)", found.read_text("WHEEL") or "", re.MULTILINE)
    names = [
        path
        for path in found.files or []
        if ".." not in path.parts and path.name != "direct_url.json"
    ]
    (info,) = {path.parts[0] for path in names if path.name == "WHEEL"}
    compressed = "-".join(".".join(dict.fromkeys(part)) for part in zip(*tags, strict=True))
    with zipfile.ZipFile(
        folder / f"{info.removesuffix('.dist-info')}-{compressed}.whl", "w"
    ) as wheel:
        for path in names:
            if path.suffix != ".pyc":
                wheel.writestr(
                    zipfile.ZipInfo(path.as_posix()), Path(str(path.locate())).read_bytes()
                )
