"""Runs beam-tfr and prints, last, when its images were converted.

python -m benchmarks.timed_run [--sleep PHOTO] convert …

With --sleep, decoding, resizing and encoding sleep for as long as they take with that photo, and
return what they returned for it; all photos must be equal to it.
"""

from __future__ import annotations

import functools
import importlib.abc
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

MODULE = "beam_tfr.images.convert"
TRIES = 21
marks: list[
    tuple[float, float]
] = []  # (time.monotonic, CPU seconds): after the first image and after the last


def watched(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        result = function(*arguments, **options)
        marks[1:] = [(time.monotonic(), time.process_time())]
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
        convert_image(file.read())
    marks.clear()


def main() -> None:
    sys.meta_path.insert(0, WatchModule())
    if sys.argv[1] == "--sleep":
        sleep_in_codecs(sys.argv[2])
        del sys.argv[1:3]
    from beam_tfr import cli

    run = cli.main

    def report(*arguments: Any) -> int:
        code = run(*arguments)
        print(f"\n{json.dumps([*marks, (time.monotonic(), time.process_time())])}", flush=True)
        return code

    cli.main = report
    cli.run()


if __name__ == "__main__":
    main()
