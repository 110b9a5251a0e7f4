"""The command line in a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from beam_tfr import cli
from tests.conftest import Run

REPOSITORY = Path(cli.__file__).parent.parent
ENVIRONMENT = os.environ | {"PYTHONPATH": str(REPOSITORY)}


def start(*arguments: object, **settings: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "beam_tfr", *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": ENVIRONMENT}
    return subprocess.Popen(command, **{**pipes, **settings})  # type: ignore[call-overload, no-any-return]


def finish(process: subprocess.Popen[str]) -> Run:
    """What it did, but for the progress that it reports every ten seconds."""
    out, err = process.communicate(timeout=240)
    return Run(
        process.returncode,
        out,
        re.sub(r"convert: (starting|listing|converting|publishing)\b.*\n", "", err),
    )
