"""Converting to JPEGs of 224x224, beside img2dataset, TensorFlow Datasets and a Beam tutorial.

The other programs run in an environment of their own.
"""

from __future__ import annotations

import argparse
import pathlib
import subprocess
import sys
from collections.abc import Iterator

from benchmarks import measuring
from benchmarks.measuring import Table, python
from benchmarks.turns import add_contest, run_contest

PACKAGES = (
    "img2dataset",
    "tensorflow-datasets",
    "importlib_resources",  # which it imports and does not install
    "tensorflow",
    "apache-beam",
    "google-crc32c",
)
PROGRAMS = {  # name -> function of other_programs.py
    "img2dataset": "image2dataset",
    "TensorFlow Datasets": "tensorflow_datasets",
    "Beam tutorial": "beam_tutorial",
}
QUICK = ["beam_tfr", "Beam tutorial"]  # what every environment of the tests can run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_contest(parser)
    parser.add_argument(
        "--environment",
        type=pathlib.Path,
        metavar="DIR",
        help=f"a virtual environment with {', '.join(PACKAGES)}",
    )


def find_python(environment: pathlib.Path | None) -> str:
    """The interpreter for the other programs.

    Raises:
        SystemExit: it lacks one of their packages.
    """
    interpreter = f"{environment.absolute()}/bin/python" if environment else sys.executable
    imports = "import img2dataset, tensorflow_datasets, tensorflow, apache_beam"
    if subprocess.run([interpreter, "-c", imports], capture_output=True, check=False).returncode:
        install = f"python -m venv DIR && DIR/bin/pip install {' '.join(PACKAGES)}"
        raise SystemExit(f"--environment must name one with the other programs: {install}")
    return interpreter


def run(arguments: argparse.Namespace) -> Iterator[Table]:
    interpreter = sys.executable
    if arguments.quick:
        arguments.only = QUICK
    else:
        interpreter = find_python(arguments.environment)

    def commands(pattern: str, folder: str) -> dict[str, list[str]]:
        contest = {
            "beam_tfr": measuring.convert(pattern, f"{folder}/beam_tfr"),
            "TensorFlow tutorial": python(
                "-m", "benchmarks.contestants", "tutorial_gzip", pattern, f"{folder}/tutorial"
            ),
        }
        for name, function in PROGRAMS.items():
            program = ["-m", "benchmarks.other_programs", function, pattern, f"{folder}/{function}"]
            contest[name] = [interpreter, *program]
        return contest

    return run_contest("others", arguments, commands)
