"""Fixtures for all tests: real photos, real runs. In CI (BEAM_TFR_NO_SKIP=1) a test that skips is a failure."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from apache_beam.internal.gcp import auth

from beam_tfr import cli

SAMPLE = Path(cli.__file__).parent / "sample"

auth._Credentials._credentials_init = True  # nobody looks for credentials: that takes 20 seconds


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    outcome = yield
    report = outcome.get_result()
    if report.skipped and os.environ.get("BEAM_TFR_NO_SKIP"):
        report.outcome = "failed"
        report.longrepr = f"skipped, which must not happen here: {report.longrepr}"


class Run(NamedTuple):
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        return json.loads(self.out)


@pytest.fixture
def beam_tfr(capsys: pytest.CaptureFixture[str]) -> Callable[..., Run]:
    """Runs a command of the command line in this process."""

    def run(*arguments: object) -> Run:
        capsys.readouterr()
        code = cli.main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        sys.stdout.write(captured.out)  # shown when the test fails
        sys.stderr.write(captured.err)
        return Run(code, captured.out, captured.err)

    return run


@pytest.fixture(scope="session")
def sample() -> Path:
    """The bundled photos: {train,validation,test}/{class}/*.jpg."""
    return SAMPLE


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """A folder of 24 photos to change at will: 4 each of 3 classes in train, 2 each in test."""
    folder = tmp_path / "photos"
    for split, each in (("train", 4), ("test", 2)):
        for label in ("hat", "shoes", "t-shirt"):
            target = folder / split / label
            target.mkdir(parents=True)
            found = sorted((SAMPLE / "train" / label).iterdir())
            for file in found[:each] if split == "train" else found[-each:]:
                shutil.copy(file, target / file.name)
    return folder


def files_of(folder: Path) -> dict[str, bytes]:
    """Name -> bytes of every file in a dataset's folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
