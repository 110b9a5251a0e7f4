"""What references cost before and after their images: listing, planning, and publishing many.

A server in another process lists so many objects, in pages, and has one photo for all of them. `list` lists them and
counts; `plan` runs the real MatchImages, PlanShards and WriteManifest on Beam's FnApiRunner, with one thread, and
instead of reading images pretends what they would have been. Each runs in a process of its own.
"""

from __future__ import annotations

import argparse
import base64
import functools
import http.server
import json
import sys
import tempfile
import urllib.parse
import uuid
from collections.abc import Iterator
from typing import Any

from benchmarks.measuring import Cost, Table, measure, python, served

PATTERN = "gs://scale/**/*.jpg"
PAGE = 5000
COLUMNS = {
    "": "",
    "images": ",",
    "seconds": ".1f",
    "images/s": ",.0f",
    "CPU µs an image": ".1f",
    "peak MB": ",.0f",
    "bytes an image": ",.0f",
}


def name(number: int) -> str:
    return f"photos/{number % 1000:03}/IMG_{number:012}.jpg"


class Listing(http.server.BaseHTTPRequestHandler):
    """Just enough of Cloud Storage's JSON API."""

    protocol_version = "HTTP/1.1"
    images = 0

    def do_GET(self) -> None:
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        if query.get("alt") == "media":
            self.answer(photo(), "image/jpeg")
        elif url.path.endswith("/o"):
            start = int(query.get("pageToken", 0))
            numbers = range(start, min(start + PAGE, self.images))
            items = [{"name": name(i), "size": str(100_000 + i % 977), "generation": str(1 + i)} for i in numbers]
            page: dict[str, Any] = {"items": items}
            if numbers.stop < self.images:
                page["nextPageToken"] = str(numbers.stop)
            self.answer(json.dumps(page).encode(), "application/json")
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


def serve(images: int) -> None:
    Listing.images = images
    server = http.server.ThreadingHTTPServer(("localhost", 0), Listing)
    print(f"http://localhost:{server.server_port}", flush=True)
    server.serve_forever()


def list_names() -> None:
    from beam_tfr.inputs.listing import list_all
    from beam_tfr.inputs.patterns import order_patterns

    found = sum(1 for _ in list_all(order_patterns([PATTERN])))
    print(f"{found} listed")


def plan(shards: int) -> None:
    import apache_beam as beam

    from beam_tfr import lock, manifest
    from beam_tfr.launch.flags import choose_runner, parse_beam_flags
    from beam_tfr.options import ConvertOptions
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
        with lock.held(output, run_id), beam.Pipeline(runner, options=beam_options) as pipeline:
            the_plan, work = pipeline | MatchImages(options.input, source.origin) | step.plan_shards()
            infos = work | "Pretend" >> beam.Map(pretend)
            infos | WriteManifest(output, plan=the_plan, run_id=run_id, max_rejects=0)
        print(f"{manifest.read(output).counts['written']} in the manifest")


def pretend(work: Any) -> Any:
    """The counts of a shard whose images all became records of 3 x 1 pixels."""
    from beam_tfr import naming, shards
    from beam_tfr.schema import Image, ImageRef, Record

    counter = shards.ShardCounter(work.shard)
    image = Image(b"", "jpeg", 1, 3, 3, "RGB", 400, 500, "jpeg", "0" * 64, (9, 9, 9), (27, 27, 27))
    for encoded in work.refs:
        ref = ImageRef.decode(encoded)
        counter.count_record(Record(ref.key.encode(), image), ref.label_ids or ())
    info = counter.close("", None)
    info.file = naming.file_name("scale", work.shard.name, ".tfrecord.gz")
    info.sha256 = info.records_sha256 = "0" * 64
    return info


def cost(what: str, images: int, shards: int) -> Cost:
    program = python("-m", "benchmarks.references", what, shards)
    with served("-m", "benchmarks.references", "serve", images) as (address, _):
        return measure(["env", f"STORAGE_EMULATOR_HOST={address}", *program])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--images", type=int, nargs="+", default=[100_000, 1_000_000], help="(default: %(default)s)")
    parser.add_argument("--shards", type=int, default=1000, help="files (default: 1000)")


def run(arguments: argparse.Namespace) -> Iterator[Table]:
    sizes, shards = ([12_000], 20) if arguments.quick else (arguments.images, arguments.shards)
    empty = {what: cost(what, 2 * PAGE, shards).peak_bytes for what in ("list", "plan")}
    rows = []
    for images in sizes:
        for what in empty:
            done = cost(what, images, shards)
            each = max(0, done.peak_bytes - empty[what]) / images
            cpu_us = done.cpu_s / images * 1e6
            rows.append([what, images, done.wall_s, images / done.wall_s, cpu_us, done.peak_bytes / 1e6, each])
    yield Table(f"references: {shards} shards", COLUMNS, rows)


if __name__ == "__main__":
    what, number = sys.argv[1], int(sys.argv[2])
    if what == "list":
        list_names()
    else:
        (serve if what == "serve" else plan)(number)
