"""Reads tables and archives, each in a child process with limits of memory and time.

    python -m tests.faults.reading

reads paths, one a line, and answers each with a line of JSON, a `Reading`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import resource
import signal
import subprocess
import sys
import traceback
from pathlib import Path

from beam_tfr.inputs.listing import match_files
from beam_tfr.inputs.patterns import ARCHIVE, mark_folders, order_patterns
from beam_tfr.inputs.reading import read_image
from beam_tfr.options import ConvertOptions
from beam_tfr.schema.errors import BeamTfrError, RejectError
from beam_tfr.tables.finding import find_content
from beam_tfr.tables.opening import open_tables

ROOT = Path(__file__).parents[2]
MOST_BYTES = 2 << 30  # 2 GiB of addresses
MOST_S = 60


@dataclasses.dataclass(frozen=True)
class Reading:
    """What came of reading a file.

    Attributes:
        rows: images that were read, or rows.
        rejects: those of them that could not be.
        said: the message of the error that ended it; empty without one.
        problem: what must not be: a traceback, a signal; empty if nothing.
        seconds: CPU time.
        peak_bytes: memory that it took, above that of an idle process.
    """

    rows: int = 0
    rejects: int = 0
    said: str = ""
    problem: str = ""
    seconds: float = 0.0
    peak_bytes: int = 0


class Reader(contextlib.AbstractContextManager["Reader"]):
    """A process that reads files."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.reading"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def read(self, path: Path) -> Reading:
        """Reads a table, or the images in an archive or a folder."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{path}\n")
        self._process.stdin.flush()
        return Reading(**json.loads(self._process.stdout.readline()))

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def read_file(path: str) -> Reading:
    """Reads a file in this process."""
    reading = Reading()
    try:
        reads_images = ARCHIVE.search(path) and not path.endswith(".samples.tar")
        if reads_images or os.path.isdir(path):
            return _read_images(path)
        return _read_table(path)
    except BeamTfrError as error:
        problem = "" if path in str(error) else "the message does not name the file"
        return dataclasses.replace(reading, said=str(error)[:2_000], problem=problem)
    except BaseException:
        return dataclasses.replace(reading, problem=traceback.format_exc(limit=-12)[-3_000:])


def _read_images(path: str) -> Reading:
    rows = rejects = 0
    for entry in match_files(order_patterns(mark_folders([path]))):
        rows += 1
        try:
            if entry.problem:
                raise RejectError("unusable-file", entry.problem)
            read_image(entry)
        except RejectError:
            rejects += 1
    return Reading(rows, rejects)


def _read_table(path: str) -> Reading:
    options = ConvertOptions(table=(path,), output="/nowhere", **_options_of(path))
    tables = open_tables(find_content(options))
    rows = rejects = 0
    for file in tables.files:
        for ref in tables.read(file):
            rows += 1
            rejects += bool(ref.reason)
            ref.encode()
    return Reading(rows, rejects)


def _options_of(path: str) -> dict[str, str]:
    """Options of a table that its content does not imply, by its name: a.KIND.csv."""
    stem = Path(path).name
    if ".images." in stem:
        return {"uri_column": "path", "label_column": "class"}
    if ".boxes." in stem:
        return {"uri_column": "path", "label_column": "class", "feature_columns": "box:bbox[xyxy]"}
    if ".rows." in stem:
        return {"encoding": "row"}
    return {}


def _read_in_child(path: str) -> Reading:
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        signal.alarm(2 * MOST_S)
        resource.setrlimit(resource.RLIMIT_CPU, (MOST_S, MOST_S))
        resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        answer = json.dumps(dataclasses.asdict(read_file(path)))
        with os.fdopen(writer, "w") as file:
            file.write(answer)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as file:
        answer = file.read()
    _, status, usage = os.wait4(child, 0)
    reading = Reading(**json.loads(answer)) if answer else Reading()
    problem = reading.problem
    if os.WIFSIGNALED(status):
        problem = f"killed by {signal.Signals(os.WTERMSIG(status)).name}"
    seconds = usage.ru_utime + usage.ru_stime
    peak = usage.ru_maxrss << 10
    return dataclasses.replace(reading, problem=problem, seconds=seconds, peak_bytes=peak)


def main() -> None:
    """Reads the files that standard input names."""
    idle = _read_in_child("/nowhere/none.csv").peak_bytes
    for line in sys.stdin:
        reading = _read_in_child(line.rstrip("\n"))
        above = max(0, reading.peak_bytes - idle)
        reading = dataclasses.replace(reading, peak_bytes=above)
        print(json.dumps(dataclasses.asdict(reading)), flush=True)


if __name__ == "__main__":
    main()
