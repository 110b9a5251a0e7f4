"""Keeping photos as they are, beside a copy that reads, hashes and writes the same bytes."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from benchmarks import measuring
from benchmarks.measuring import Table, python
from benchmarks.turns import add_contest, run_contest

add_arguments = add_contest


def commands(pattern: str, folder: str) -> dict[str, list[str]]:
    return {
        "copy": python("-m", "benchmarks.contestants", "copy", pattern, f"{folder}/copy"),
        "beam_tfr keep": measuring.convert(
            pattern, f"{folder}/keep", "--encoding", "keep", "--resize", "none"
        ),
    }


def run(arguments: argparse.Namespace) -> Iterator[Table]:
    return run_contest("keep", arguments, commands)
