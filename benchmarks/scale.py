"""What names cost before and after their images are converted.

Listing, planning, and publishing many.

A server in another process makes up objects by arithmetic, and lists them in pages. `list` lists
them and counts. `plan` runs the real MatchImages, PlanShards and WriteManifest on Beam's
FnApiRunner, with one thread, and instead of reading images pretends what they would have been. Each
runs in a process of its own; the memory that a few names take is subtracted.
"""

from __future__ import annotations

import argparse
import base64
import bisect
import collections
import functools
import http.server
import itertools
import pathlib
import sys
import tempfile
import time
import urllib.parse
import uuid
from collections.abc import Iterator
from typing import Any

from benchmarks.measuring import Cost, Table, measure, python, served

PATTERN = "gs://scale/**/*.jpg"
PAGE = 1000
COLUMNS = {
    "": "",
    "names": ",",
    "seconds": ".1f",
    "names/s": ",.0f",
    "CPU µs a name": ".1f",
    "peak MB": ",.0f",
    "bytes a name": ",.0f",
}


class Listing(http.server.BaseHTTPRequestHandler):
    """Just enough of Cloud Storage's JSON API."""

    protocol_version = "HTTP/1.1"
    names = 0
    latency_s = 0.0

    def name(self, number: int) -> str:
        return f"photos/{number * 1000 // self.names:03}/IMG_{number:012}.jpg"  # in order

    def place(self, name: str) -> int:
        return bisect.bisect_left(range(self.names), name, key=self.name)

    def do_GET(self) -> None:
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        if query.get("alt") == "media":
            self.answer(photo(), "image/jpeg")
        elif url.path.endswith("/o"):
            time.sleep(self.latency_s)
            start = int(query.get("pageToken") or self.place(query.get("startOffset", "")))
            end = self.place(query["endOffset"]) if "endOffset" in query else self.names
            numbers = range(start, min(start + min(PAGE, int(query.get("maxResults", PAGE))), end))
            if "size" not in query["fields"]:
                form = '{"name":"%s"}'
            else:
                form = '{"name":"%s","size":"%d","generation":"%d"}'
            items = [
                form % (self.name(i), 100_000 + i % 977, 1 + i)[: form.count("%")] for i in numbers
            ]
            more = f',"nextPageToken":"{numbers.stop}"' if numbers.stop < end else ""
            self.answer(f'{{"items":[{",".join(items)}]{more}}}'.encode(), "application/json")
        else:
            self.answer(b"{}", "application/json")

    def answer(self, body: bytes, kind: str) -> None:
        import google_crc32c

        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        checksum = base64.b64encode(google_crc32c.Checksum(body).digest()).decode()
        self.send_header("X-Goog-Hash", f"crc32c={checksum}")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@functools.cache
def photo() -> bytes:
    import io

    import PIL.Image

    buffer = io.BytesIO()
    PIL.Image.effect_noise((64, 64), 60).convert("RGB").save(buffer, "JPEG")
    return buffer.getvalue()


def serve(names: int, latency_ms: int) -> None:
    Listing.names = names
    Listing.latency_s = latency_ms / 1000
    server = http.server.ThreadingHTTPServer(("localhost", 0), Listing)
    print(f"http://localhost:{server.server_port}", flush=True)
    server.serve_forever()


def list_names() -> None:
    from beam_tfr.inputs.listing import match_files
    from beam_tfr.inputs.patterns import order_patterns

    found = sum(1 for _ in match_files(order_patterns([PATTERN])))
    print(f"{found} listed")


def plan(shards: int) -> None:
    import apache_beam as beam

    from beam_tfr.dataset.manifest import read_manifest
    from beam_tfr.launch.flags import choose_runner, parse_beam_flags
    from beam_tfr.options import ConvertOptions
    from beam_tfr.output import lock
    from beam_tfr.pipeline import Convert
    from beam_tfr.sources import open_source
    from beam_tfr.transforms import MatchImages, WriteManifest

    with tempfile.TemporaryDirectory(prefix="beam_tfr-scale-") as output:
        options = ConvertOptions(input=(PATTERN,), output=output, name="scale", num_shards=shards)
        run_id = uuid.uuid4().hex
        source = open_source(options)
        step = Convert(options, source, run_id=run_id)
        beam_options = parse_beam_flags(flags := ["--direct_num_workers=1"])
        runner = choose_runner(beam_options, flags)
        with (
            lock.hold_lock(output, run_id),
            beam.Pipeline(runner, options=beam_options) as pipeline,
        ):
            refs = pipeline | MatchImages(options.input, source.origin)
            the_plan, work = refs | step.plan_shards()
            infos = work | "Pretend" >> beam.Map(pretend, output)
            infos | WriteManifest(output, plan=the_plan, run_id=run_id, max_rejects=0)
        print(f"{read_manifest(output).counts['written']} in the manifest")


def pretend(work: Any, output: str) -> Any:
    """The counts of a shard whose images all became records of 3 x 1 pixels.

    It also writes an empty file for it.
    """
    from beam_tfr import storage
    from beam_tfr.output import sidecars
    from beam_tfr.schema import naming
    from beam_tfr.schema.encoded_ref import label_ids_of
    from beam_tfr.schema.plan import ShardInfo

    images = len(work.refs)
    info = ShardInfo(
        shard=work.shard, num_examples=images, pixels=3 * images, source_sizes={512: images}
    )
    info.channel_sums = [9 * images] * 3
    info.channel_squares = [27 * images] * 3
    info.class_counts.update(
        collections.Counter(itertools.chain.from_iterable(map(label_ids_of, work.refs)))
    )
    info.file = naming.file_name("scale", work.shard.name, ".tfrecord.gz")
    info.sha256 = info.records_sha256 = "0" * 64
    info.built = sidecars.unique_name(work.shard.name)
    path = pathlib.Path(storage.work_path(output, info.built))
    path.touch()
    info.generation = path.stat().st_mtime_ns
    return info


@functools.cache
def cost(what: str, names: int, shards: int) -> Cost:
    program = python("-m", "benchmarks.scale", what, shards)
    with served("-m", "benchmarks.scale", "serve", names, 0) as (address, _):
        return measure(["env", f"STORAGE_EMULATOR_HOST={address}", *program])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--names", type=int, nargs="+", default=[1_000_000], help="(default: 1000000)"
    )
    parser.add_argument("--shards", type=int, default=1500, help="files (default: 1500)")
    parser.add_argument("--only", choices=("list", "plan"), nargs="+", default=["list", "plan"])


def run(arguments: argparse.Namespace) -> Iterator[Table]:
    sizes = arguments.names
    shards = arguments.shards
    if arguments.quick:
        sizes = [2 * PAGE]
        shards = 5
    rows = []
    for what in arguments.only:
        few = cost(what, 2 * PAGE, min(shards, 2 * PAGE)).peak_bytes
        for names in sizes:
            done = cost(what, names, shards)
            each = max(0, done.peak_bytes - few) / names
            cpu_us = done.cpu_s / names * 1e6
            rows.append(
                [what, names, done.wall_s, names / done.wall_s, cpu_us, done.peak_bytes / 1e6, each]
            )
    yield Table(f"scale: {shards} shards", COLUMNS, rows)


if __name__ == "__main__":
    what, *numbers = sys.argv[1:]
    {"list": lambda _: list_names(), "plan": plan, "serve": serve}[what](*map(int, numbers))
