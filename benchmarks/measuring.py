"""Measures programs that take turns, and prints tables: what all benchmarks share."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import importlib.metadata
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

ROOT = pathlib.Path(__file__).parents[1]
MAXRSS_BYTES = 1 if sys.platform == "darwin" else 1024  # the unit of ru_maxrss


@dataclasses.dataclass(frozen=True)
class Cost:
    """What a process took.

    Attributes:
        wall_s: seconds from its start to its end.
        cpu_s: seconds of CPU of all its threads.
        peak_bytes: its largest resident size.
        started_s: when, as time.monotonic.
        output: what it printed to standard output.
    """

    wall_s: float
    cpu_s: float
    peak_bytes: float = 0
    started_s: float = 0
    output: str = ""

    def without(self, other: Cost) -> Cost:
        """What it took more than another process."""
        return dataclasses.replace(
            self, wall_s=self.wall_s - other.wall_s, cpu_s=self.cpu_s - other.cpu_s
        )


def python(*arguments: object) -> list[str]:
    """The command that runs this Python with the arguments."""
    return [sys.executable, *map(str, arguments)]


def convert(pattern: str, output: str, *flags: str) -> list[str]:
    """The command that converts files without a reject, and without a crop.

    The contestants do so too.
    """
    command = python("-m", "beam_tfr", "convert", "--input", pattern, "--output", output)
    command += ["--max_rejects", "0", "--layout", "{label}/*", *flags]
    if "--resize" not in flags:
        command += ["--resize", "stretch"]
    return command


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}


def measure(command: Sequence[str]) -> Cost:
    """Runs a command.

    Raises:
        SystemExit: the command fails; with what it said.
    """
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        started_s = time.monotonic()
        process = subprocess.Popen(
            command, env=environment(), stdin=subprocess.DEVNULL, stdout=out, stderr=err
        )
        _, status, usage = os.wait4(process.pid, 0)
        wall_s = time.monotonic() - started_s
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        if process.returncode:
            raise SystemExit(
                f"exit code {process.returncode}: {' '.join(command)}\n{out.read()}{err.read()}"
            )
        cpu_s = usage.ru_utime + usage.ru_stime
        return Cost(wall_s, cpu_s, usage.ru_maxrss * MAXRSS_BYTES, started_s, out.read())


@contextlib.contextmanager
def served(*arguments: object) -> Iterator[tuple[str, Callable[[], float]]]:
    """Runs a Python program that prints its address and serves.

    Yields the address, and a function: its CPU seconds.
    """
    with subprocess.Popen(
        python(*arguments), cwd=ROOT, env=environment(), stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None

        def cpu_s() -> float:
            fields = pathlib.Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

        try:
            yield server.stdout.readline().strip(), cpu_s
        finally:
            server.kill()


def median_of(runs: Iterable[Any], value: Callable[[Any], float]) -> float:
    return statistics.median(map(value, runs))


def ratio(runs: Sequence[Any], others: Sequence[Any], value: Callable[[Any], float]) -> float:
    """The median of the ratios to another contestant, each within a turn."""
    return statistics.median(
        value(run) / value(other) for run, other in zip(runs, others, strict=True)
    )


def format_cell(cell: Any, style: str) -> str:
    return "" if cell is None else format(cell, style)


@dataclasses.dataclass(frozen=True)
class Table:
    """Prints as Markdown.

    Attributes:
        title: a line before it.
        columns: heading and format of each; the first holds names.
        rows: a cell for each column; None stays empty.
        notes: lines below it.
    """

    title: str
    columns: dict[str, str]
    rows: list[Sequence[Any]]
    notes: Sequence[str] = ()

    def __str__(self) -> str:
        lines = [f"| {' | '.join(self.columns)} |", "| --- |" + " ---: |" * (len(self.columns) - 1)]
        for row in self.rows:
            cells = [
                format_cell(cell, style)
                for cell, style in zip(row, self.columns.values(), strict=True)
            ]
            lines.append(f"| {' | '.join(cells)} |")
        if self.notes:
            lines += ["", *self.notes]
        return "\n".join([self.title, "", *lines])


def machine() -> str:
    """A line of facts that the figures depend on."""
    model = platform.processor() or platform.machine()
    with contextlib.suppress(OSError, StopIteration):
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
        model = (
            next(line for line in lines if line.startswith("model name")).partition(":")[2].strip()
        )
    facts = [f"{os.cpu_count()} cores", model, f"Python {platform.python_version()}"]
    for name, package in (("Beam", "apache-beam"), ("TensorFlow", "tensorflow")):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            facts.append(f"{name} {importlib.metadata.version(package)}")
    return ", ".join([*facts, f"{datetime.date.today()}"])
