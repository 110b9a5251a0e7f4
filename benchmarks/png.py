"""Converting PNGs to PNGs of 224x224, beside a Pillow loop; makes the PNGs of the photos first."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from benchmarks import measuring
from benchmarks.measuring import Table, python
from benchmarks.turns import add_contest, run_contest

add_arguments = add_contest


def commands(pattern: str, folder: str) -> dict[str, list[str]]:
    return {
        "beam_tfr": measuring.convert(pattern, f"{folder}/beam_tfr", "--encoding", "png"),
        "Pillow loop": python(
            "-m", "benchmarks.contestants", "pillow_png_loop", pattern, f"{folder}/pillow"
        ),
    }


def run(arguments: argparse.Namespace) -> Iterator[Table]:
    return run_contest("png", arguments, commands, form="png")
