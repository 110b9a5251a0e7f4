"""Measures how fast files are converted, finds the bottleneck, and predicts how long many would take."""

from __future__ import annotations

import cProfile
import itertools
import os
import pathlib
import posixpath
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from beam_tfr import storage
from beam_tfr.bench.sampling import MAX_LISTED, forget, sample_files
from beam_tfr.display import MEASURING, SAMPLING, State, duration
from beam_tfr.images import convert_image
from beam_tfr.options import ConvertOptions, ImageOptions, default_threads
from beam_tfr.schema import DataError, RejectError

SECONDS = 12.0  # that the measurement takes on an idle machine
_Progress = Callable[[State], object]
SAMPLE = 256  # files
READ_THREADS = 32
MAX_CONVERTED = 50_000
MAX_CONVERTED_BYTES = 512 << 20  # 512 MiB of files
MANY = 1_000_000  # images, if neither the user nor the listing says how many there are
CURES = {
    "reading": "the files arrive too slowly; convert closer to them, or on more machines",
    "decoding": "only more cores help",
    "resizing": "more cores help",
    "encoding": "more cores help; --encoding jpeg is the fastest",
    "the rest of an image": "more cores help",
    "Beam, reading, writing": "more cores help",
    "start and end": "a run of so few images takes that long on any machine",
}


def bench_convert(
    patterns: Sequence[str],
    options: ImageOptions,
    *,
    images: int | None = None,
    cores: int | None = None,
    progress: _Progress = lambda _: None,
) -> dict[str, Any]:
    """Converts a sample of the files; returns JSON values for `describe_convert`.

    Args:
        patterns: patterns of the files, local or gs://.
        options: how to convert them.
        images: number to predict the time for; None for all that match, or a million if there are many.
        cores: number to predict the time for; None for those of this machine.
        progress: called while the sample, and then copies of it, are converted.

    Raises:
        UsageError: a pattern or an option is wrong.
        DataError: no file of the sample can be converted.
    """
    here = default_threads()
    progress(State("listing", 0))
    paths, listed = sample_files(patterns, SAMPLE)
    contents, reading_s = _read(paths)
    accepted, tried, stages = _measure_stages(contents, options, SECONDS / 4, progress)
    alone_s = sum(stages.values())
    pace = measure_pace(accepted, options, alone_s=alone_s, progress=progress)
    costs = {**stages, "Beam, reading, writing": max(0.0, pace.each_cpu_s - alone_s)}
    shares = {name: cost / sum(costs.values()) for name, cost in costs.items()}
    rate = 1 / max(pace.each_s, reading_s)
    images = images or (listed if listed < MAX_LISTED else MANY)
    cores = cores or here
    converting_s = images / rate * here / cores
    limit = "reading" if reading_s > pace.each_s else max(shares, key=lambda name: shares[name])
    return {
        "sample": len(paths),
        "tried": tried,
        "rejected": tried - len(accepted),
        "sample_bytes": sum(map(len, contents.values())),
        "files_read_per_s": 1 / reading_s,
        "converted": pace.converted,
        "images_per_s": rate,
        "cores_here": here,
        "busy_cores": pace.each_cpu_s / pace.each_s,
        "ends_s": pace.ends_s,
        "cpu_ms_per_image": {name: cost * 1e3 for name, cost in costs.items()},
        "cpu_shares": shares,
        "limit": limit if converting_s > pace.ends_s else "start and end",
        "images": images,
        "cores": cores,
        "seconds": pace.ends_s + converting_s,
    }


class Pace(NamedTuple):
    """The measured rate of real conversions.

    Attributes:
        converted: number of images.
        each_s, each_cpu_s: seconds and CPU seconds per image.
        ends_s: seconds to start and to end.
    """

    converted: int
    each_s: float
    each_cpu_s: float
    ends_s: float


def measure_pace(
    files: Sequence[tuple[str, bytes]],
    options: ImageOptions,
    *,
    alone_s: float,
    most: int = MAX_CONVERTED,
    progress: _Progress = lambda _: None,
    **more: Any,
) -> Pace:
    """Converts a few copies of files, then more, then many; the difference in time gives the rate.

    The first turn measures the start; later ones are faster, because modules are loaded.

    Args:
        files: (extension, content) of images that can be converted.
        options: how to convert them.
        alone_s: CPU seconds of one in `convert_image` alone.
        most: maximum number of images to convert.
        progress: called while they are converted.
        more: other options of the conversion.
    """
    here = default_threads()
    each_bytes = sum(len(data) for _, data in files) / len(files)
    wanted = min(most, MAX_CONVERTED, MAX_CONVERTED_BYTES / each_bytes, SECONDS / 2 * here / alone_s)
    count = int(max(8 * here, wanted))
    few = here + max(1, count // 10)
    with tempfile.TemporaryDirectory(prefix="beam_tfr-bench-") as folder:

        def run(turn: int, number: int) -> tuple[float, float]:
            def tell(done: int) -> None:  # no total where most of the time is still to come
                progress(State(f"{MEASURING}, turn {turn} of 3", done, number if turn == 3 else 0))

            tell(0)
            return _convert(folder, files, number, options, tell, more)

        first_s, _ = run(1, here)
        few_s, few_cpu_s = run(2, few)
        wall_s, cpu_s = run(3, count)
    # Not faster than without Beam; a short run is full of noise.
    each_s = max((wall_s - few_s) / (count - few), alone_s / here)
    return Pace(count, each_s, max(alone_s, (cpu_s - few_cpu_s) / (count - few)), max(0.0, first_s - here * each_s))


def _read(paths: Sequence[str]) -> tuple[dict[str, bytes], float]:
    """The contents of files, and the seconds per file when read in parallel, as by a conversion."""
    for path in paths:
        forget(path)
    started = time.perf_counter()
    with ThreadPoolExecutor(READ_THREADS) as pool:
        contents = dict(zip(paths, pool.map(storage.read_bytes, paths), strict=True))
    return contents, (time.perf_counter() - started) / len(paths)


def _measure_stages(
    contents: dict[str, bytes], options: ImageOptions, seconds: float, progress: _Progress = lambda _: None
) -> tuple[list[tuple[str, bytes]], int, dict[str, float]]:
    """Converts files, until `seconds` have passed.

    Returns:
        [(extension, content)] of those that can be converted; how many were tried; and stage -> CPU seconds for each.

    Raises:
        DataError: none can be converted.
    """
    accepted: list[tuple[str, bytes]] = []
    tried, spent_s, why = 0, 0.0, ""
    until = time.monotonic() + seconds
    profile = cProfile.Profile(time.thread_time)
    for path, data in contents.items():
        if accepted and time.monotonic() > until:
            break
        tried += 1
        progress(State(SAMPLING, tried, len(contents)))
        started = time.thread_time()
        try:
            convert_image(data, options, name=path)
        except RejectError as error:
            why = f"{path}: {error}"
            continue
        spent_s += time.thread_time() - started
        accepted.append((posixpath.splitext(path)[1], data))
        profile.runcall(convert_image, data, options, name=path)
    if not accepted:
        raise DataError(f"no file of the sample can be converted; {why}")
    profiled = dict.fromkeys(("decoding", "resizing", "encoding"), 0.0)
    total_s = 0.0
    for code, seconds_of, called in _calls(profile):
        if code.co_name == "convert_image":
            total_s += seconds_of
        for function, part_s in called:
            if stage := _stage(function):
                profiled[stage] += part_s
    each_s = spent_s / len(accepted)
    stages = {name: each_s * part_s / total_s for name, part_s in profiled.items()}
    return accepted, tried, stages | {"the rest of an image": each_s - sum(stages.values())}


def _calls(profile: cProfile.Profile) -> Iterator[tuple[Any, float, list[tuple[Any, float]]]]:
    """The functions that call the stages: code, seconds, and [(code, seconds)] of what each calls itself."""
    for entry in profile.getstats():
        if getattr(entry.code, "co_name", "") in ("convert_image", "_rendered"):
            calls = [(call.code, call.totaltime) for call in entry.calls or () if hasattr(call.code, "co_name")]
            yield entry.code, entry.totaltime, calls


def _stage(function: Any) -> str:
    if pathlib.PurePath(function.co_filename).parent.name == "formats":
        return "decoding"
    return {"resample": "resizing", "encode": "encoding"}.get(function.co_name, "")


def _convert(
    folder: str,
    files: Sequence[tuple[str, bytes]],
    count: int,
    options: ImageOptions,
    progress: Callable[[int], object],
    more: Mapping[str, Any],
) -> tuple[float, float]:
    """Seconds and CPU seconds of a real conversion of `count` files, made of links to the given ones."""
    from beam_tfr import launch  # Beam

    source = pathlib.Path(folder) / f"{count}"
    source.mkdir()
    for number, (extension, data) in zip(range(count), itertools.cycle(files), strict=False):
        path = source / f"{number:06d}{extension}"
        if number < len(files):
            path.write_bytes(data)
        else:
            os.link(source / f"{number % len(files):06d}{extension}", path)
    given = {**vars(options), **more}
    convert = ConvertOptions(input=(f"{source}/*",), output=f"{folder}/out-{count}", layout="*", **given)
    started = time.process_time()
    seconds = launch.convert(convert, progress=lambda at: progress(at.finished_images)).seconds
    return seconds, time.process_time() - started


def describe_convert(found: dict[str, Any]) -> str:
    """The result of `bench_convert` as text."""
    megabytes, costs = found["sample_bytes"] / 1e6, found["cpu_ms_per_image"]
    lines = [
        f"sample:     {found['sample']:,} files, {megabytes:,.1f} MB, read at {found['files_read_per_s']:,.0f} files/s",
        f"rejected:   {found['rejected']:,} of {found['tried']:,} tried",
        f"converted:  {found['converted']:,} images: {found['images_per_s']:,.0f} images/s with "
        f"{found['busy_cores']:.1f} of {found['cores_here']} cores, and {found['ends_s']:.1f} s to start and finish",
        "",
        f"{'':<24}{'CPU ms per image':>16}{'share':>8}",
        *(f"{name:<24}{cost:>16.2f}{found['cpu_shares'][name]:>8.0%}" for name, cost in costs.items()),
        "",
        f"limit:      {found['limit']}: {CURES[found['limit']]}",
        f"prediction: {found['images']:,} images on {found['cores']:,} cores like these: {duration(found['seconds'])}",
    ]
    if found["cores"] != found["cores_here"]:
        lines[-1] += (
            f", if they are {found['cores'] / found['cores_here']:g} times as fast as the {found['cores_here']} here"
        )
    return "\n".join(lines)
