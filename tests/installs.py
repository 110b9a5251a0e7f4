"""Installs of the package in environments of their own."""

from __future__ import annotations

import shutil
from pathlib import Path

ROOT = Path(__file__).parents[1]


def copy_sources(folder: Path) -> Path:
    """What a wheel is built from, so that building leaves nothing in the checkout."""
    folder.mkdir(parents=True)
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    shutil.copytree(
        ROOT / "beam_tfr", folder / "beam_tfr", ignore=shutil.ignore_patterns("__pycache__")
    )
    return folder


def site_packages(python: Path) -> Path:
    (folder,) = python.parents[1].glob("lib/python*/site-packages")
    return folder
