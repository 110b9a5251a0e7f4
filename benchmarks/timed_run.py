"""Runs beam-tfr and prints, last, when its images were converted, in whichever processes.

python -m benchmarks.timed_run [--sleep PHOTO] convert …

Each process of the run imports this module by sitecustomize.py, and notes in a file of its own when
it converted its first image and its last. The run adds up the CPU time of all its processes.

With --sleep, decoding, resizing and encoding sleep for as long as they take with that photo, and
return what they returned for it; all photos must be equal to it.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.abc
import importlib.util
import json
import mmap
import os
import pathlib
import statistics
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any

MODULE = "beam_tfr.images.convert"
FOLDER = "BEAM_TFR_MARKS"  # variable of the environment: where processes note their times
TIMES = struct.Struct("dd")  # time.monotonic after the first image and after the last
EVERY_S = 0.02  # CPU time is added up
TRIES = 21


class Marks:
    """The times of this process, in a file; of a process that was forked in another one."""

    def __init__(self) -> None:
        self._process = 0
        self._memory = bytearray()

    def note(self) -> None:
        """Notes that an image was converted."""
        now = time.monotonic()
        if self._process != os.getpid():
            self._process = os.getpid()
            path = pathlib.Path(os.environ[FOLDER]) / str(self._process)
            path.write_bytes(TIMES.pack(now, now))
            with path.open("r+b") as file:
                self._memory = mmap.mmap(file.fileno(), TIMES.size)
        first, _ = TIMES.unpack(self._memory[:])
        self._memory[:] = TIMES.pack(first, now)


def read_marks(folder: pathlib.Path) -> tuple[float, float]:
    """When the first and the last image were converted in any process."""
    times = [TIMES.unpack(path.read_bytes()) for path in folder.iterdir()]
    return min(first for first, _ in times), max(last for _, last in times)


class CpuClock(threading.Thread):
    """Adds up the CPU time of this process and of those below it, again and again."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._samples = [(time.monotonic(), time.process_time())]

    def run(self) -> None:
        import psutil

        this = psutil.Process()
        while True:
            total = 0.0
            for process in (this, *this.children(recursive=True)):
                with contextlib.suppress(psutil.NoSuchProcess):
                    total += sum(process.cpu_times()[:4])  # with those of processes that ended
            self._samples.append((time.monotonic(), total))
            time.sleep(EVERY_S)

    def read(self, when: float) -> float:
        """The CPU seconds at a time."""
        samples = [cpu for time, cpu in self._samples if time <= when]
        return max(samples, default=0.0)


def watched(function: Callable[..., Any]) -> Callable[..., Any]:
    marks = Marks()

    @functools.wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        result = function(*arguments, **options)
        marks.note()
        return result

    return call


class WatchModule(importlib.abc.MetaPathFinder):
    """Replaces `convert_image` when its module is imported.

    So nothing is imported earlier than otherwise.
    """

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        load = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            load(module)
            module.convert_image = watched(module.convert_image)

        spec.loader.exec_module = exec_module
        return spec


def sleeping(module: Any, name: str) -> None:
    """A function that sleeps for as long as its first call took.

    It returns the same as then.
    """
    function = getattr(module, name)
    known: list[tuple[float, Any]] = []

    def call(*arguments: Any, **options: Any) -> Any:
        if not known:
            spent = []
            for _ in range(TRIES):
                started = time.perf_counter()
                result = function(*arguments, **options)
                spent.append(time.perf_counter() - started)
            known.append((statistics.median(spent), result))
        time.sleep(known[0][0])
        return known[0][1]

    setattr(module, name, call)


def sleep_in_codecs(photo: str) -> None:
    import simplejpeg

    from beam_tfr.images import convert_image, geometry

    for module, name in (
        (simplejpeg, "decode_jpeg"),
        (geometry, "resize"),
        (simplejpeg, "encode_jpeg"),
    ):
        sleeping(module, name)
    with open(photo, "rb") as file:
        convert_image.__wrapped__(file.read())  # which is not watched


def watch() -> None:
    """Watches the conversions of this process."""
    sys.meta_path.insert(0, WatchModule())


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="beam_tfr-benchmark-") as folder:
        os.environ[FOLDER] = folder
        here = pathlib.Path(__file__).parent
        os.environ["PYTHONPATH"] = f"{here / 'watched'}:{os.environ['PYTHONPATH']}"
        watch()
        if sys.argv[1] == "--sleep":
            sleep_in_codecs(sys.argv[2])
            del sys.argv[1:3]
        run_watched(pathlib.Path(folder))


def run_watched(folder: pathlib.Path) -> None:
    """Runs the command line, and prints the times and CPU seconds at its marks and its end."""
    from beam_tfr import cli

    clock = CpuClock()
    clock.start()
    run = cli.main

    def report(*arguments: Any) -> int:
        code = run(*arguments)
        times = [*read_marks(folder), time.monotonic()]
        print(f"\n{json.dumps([(when, clock.read(when)) for when in times])}", flush=True)
        return code

    cli.main = report
    cli.run()


if __name__ == "__main__":
    main()
