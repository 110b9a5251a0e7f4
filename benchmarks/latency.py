"""How much of its speed from the local disk `beam-tfr convert` keeps when the photos lie on Cloud Storage.

    python benchmarks/latency.py PHOTOS [--pairs 3] [--latencies 0 50 200]

A server in another process holds the photos and answers each request after the latency, as many at a time as come. Each
conversion is a process of its own, from its start to the published dataset on the local disk. Machines drift, so they
take turns, and the ratios to the local disk are taken within a turn; the medians of those are what to compare.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence

from convert import ROOT, SUFFIX, Cost, measure


@contextlib.contextmanager
def served(photos: pathlib.Path, latency_ms: float) -> Iterator[str]:
    """The address of a server with the photos in gs://photos."""
    command = [sys.executable, "-m", "tests.fake_gcs", "--latency_ms", str(latency_ms)]
    command += ["--photos", f"photos={photos.resolve()}"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()


def convert(pattern: str) -> Cost:
    with tempfile.TemporaryDirectory(prefix="beam_tfr-benchmark-") as folder:
        command = ["-m", "beam_tfr", "convert", "--input", pattern, "--output", f"{folder}/images"]
        return measure([sys.executable, *command, "--layout", "*", "--max_rejects", "0"])


def run(photos: pathlib.Path, *, latencies: Sequence[float], pairs: int) -> tuple[int, dict[str, list[Cost]]]:
    """The number of photos, and what each way's runs cost, in the order of the turns."""
    images = len(list(photos.glob(SUFFIX)))
    if not images:
        raise SystemExit(f"{photos}: there is no {SUFFIX} in it")
    costs: dict[str, list[Cost]] = {}
    with contextlib.ExitStack() as stack:
        addresses = {f"{ms:g} ms": stack.enter_context(served(photos, ms)) for ms in latencies}
        for _ in range(pairs):
            costs.setdefault("local disk", []).append(convert(f"{photos}/{SUFFIX}"))
            for name, address in addresses.items():
                os.environ["STORAGE_EMULATOR_HOST"] = address
                costs.setdefault(name, []).append(convert(f"gs://photos/{SUFFIX}"))
            del os.environ["STORAGE_EMULATOR_HOST"]
    return images, costs


def report(images: int, costs: dict[str, list[Cost]]) -> str:
    """A table in Markdown."""
    lines = [
        f"{images:,} photos, {len(costs['local disk'])} runs each, {os.cpu_count()} cores, shared with the server",
        "",
        "| | images/s | of the local disk's rate | CPU ms per image | peak memory MB |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, runs in costs.items():
        rate = statistics.median(images / cost.wall_s for cost in runs)
        share = statistics.median(
            local.wall_s / cost.wall_s for local, cost in zip(costs["local disk"], runs, strict=True)
        )
        cpu = statistics.median(cost.cpu_s / images * 1e3 for cost in runs)
        peak = statistics.median(cost.peak_bytes for cost in runs) / 1e6
        lines.append(f"| {name} | {rate:,.0f} | {share:.0%} | {cpu:.2f} | {peak:,.0f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description="How fast beam-tfr convert is far from the photos.", allow_abbrev=False
    )
    parser.add_argument("photos", type=pathlib.Path, help="folder of JPEGs, in any folders below it")
    parser.add_argument("--pairs", type=int, default=3, help="runs of each (default: 3)")
    parser.add_argument("--latencies", type=float, nargs="+", default=[0, 50, 200], help="in ms (default: 0 50 200)")
    arguments = parser.parse_args()
    print(report(*run(arguments.photos, latencies=arguments.latencies, pairs=arguments.pairs)))


if __name__ == "__main__":
    main()
