"""Verifying a dataset, beside the conversion that made it."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from benchmarks import measuring
from benchmarks.measuring import Table, python
from benchmarks.turns import add_contest, run_contest

add_arguments = add_contest


def commands(pattern: str, folder: str) -> dict[str, list[str]]:
    return {
        "convert": measuring.convert(pattern, f"{folder}/dataset"),
        "verify": python("-m", "beam_tfr", "verify", f"{folder}/dataset"),
    }


def run(arguments: argparse.Namespace) -> Iterator[Table]:
    return run_contest("verify", arguments, commands)
