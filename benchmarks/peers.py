"""What the benchmark compares with: a Beam pipeline of planned shards, and a bare loop. Neither checks anything.

python benchmarks/peers.py planned_shards|pillow_loop PATTERN OUTPUT
"""

from __future__ import annotations

import glob
import hashlib
import io
import os
import sys
import zlib
from collections.abc import Iterable, Iterator

SIDE = 224  # pixels
QUALITY = 90
IMAGES_PER_SHARD = 256
MAX_SHARDS = 32


def planned_shards(paths: list[str], output: str) -> None:
    """The least that a Beam pipeline can do: paths to shards by their hash, each shard read, converted and written.

    No list of classes, no rejects, no statistics, no checksums of its own, no manifest, no retry.
    """
    import apache_beam as beam
    import cv2
    import simplejpeg
    from apache_beam.io.tfrecordio import _TFRecordUtil
    from apache_beam.options.pipeline_options import PipelineOptions

    from beam_tfr.options import default_threads

    cv2.setNumThreads(1)
    num_shards = max(1, min(MAX_SHARDS, -(-len(paths) // IMAGES_PER_SHARD)))

    def order(path: str) -> bytes:
        return hashlib.blake2b(path.encode(), digest_size=8).digest()

    def assign(path: str) -> tuple[int, str]:
        return int.from_bytes(order(path), "big") % num_shards, path

    def read(shard: tuple[int, Iterable[str]]) -> Iterator[tuple[int, bytes]]:
        for path in sorted(shard[1], key=order):
            with open(path, "rb") as file:
                yield shard[0], file.read()

    def convert(shard: int, data: bytes) -> tuple[int, bytes]:
        pixels = simplejpeg.decode_jpeg(data, "RGB", min_height=SIDE, min_width=SIDE, min_factor=2)
        pixels = cv2.resize(pixels, (SIDE, SIDE), interpolation=cv2.INTER_AREA)
        return shard, simplejpeg.encode_jpeg(pixels, QUALITY, "RGB", "420")

    class Write(beam.DoFn):
        def start_bundle(self) -> None:
            self._files: dict[int, _GzipFile] = {}

        def process(self, element: tuple[int, bytes]) -> None:
            shard, record = element
            if shard not in self._files:
                self._files[shard] = _GzipFile(f"{output}/peer-{shard:05d}-of-{num_shards:05d}.tfrecord.gz")
            _TFRecordUtil.write_record(self._files[shard], record)

        def finish_bundle(self) -> None:
            for file in self._files.values():
                file.close()

    options = PipelineOptions(
        runner="FnApiRunner", direct_running_mode="multi_threading", direct_num_workers=default_threads()
    )
    with beam.Pipeline(options=options) as pipeline:
        (
            pipeline
            | beam.Create(paths)
            | beam.Map(assign)
            | beam.GroupByKey()
            | beam.FlatMap(read)
            | beam.MapTuple(convert)
            | beam.ParDo(Write())
        )


class _GzipFile:
    """Stored, as beam_tfr does for JPEG: its bytes do not compress."""

    def __init__(self, path: str) -> None:
        self._file = open(path, "wb")  # noqa: SIM115 - closed by close
        self._deflate = zlib.compressobj(0, zlib.DEFLATED, 16 + zlib.MAX_WBITS)

    def write(self, data: bytes) -> None:
        self._file.write(self._deflate.compress(data))

    def close(self) -> None:
        self._file.write(self._deflate.flush())
        self._file.close()


def pillow_loop(paths: list[str], output: str) -> None:
    """What one writes first: Pillow in a loop, one thread, one file of encoded images behind each other."""
    from PIL import Image

    with open(f"{output}/images", "wb") as out:
        for path in paths:
            buffer = io.BytesIO()
            with Image.open(path) as image:
                small = image.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BILINEAR)
                small.save(buffer, "JPEG", quality=QUALITY)
            out.write(buffer.getvalue())


if __name__ == "__main__":
    name, pattern, folder = sys.argv[1:]
    os.makedirs(folder)
    {"planned_shards": planned_shards, "pillow_loop": pillow_loop}[name](
        sorted(glob.glob(pattern, recursive=True)), folder
    )
