"""What the benchmarks compare with; none of it checks anything.

python -m benchmarks.contestants NAME PATTERN OUTPUT
"""

from __future__ import annotations

import glob
import hashlib
import io
import os
import sys
import time
import zlib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

SIDE = 224  # pixels
QUALITY = 90
IMAGES_PER_SHARD = 256
MAX_SHARDS = 32
READ_AHEAD = 256  # files


def tutorial(
    paths: list[str], output: str, *, compression: str = "", method: str = "nearest"
) -> None:
    """The way of the TensorFlow tutorials.

    tf.data converts on all cores, a loop builds and writes each Example.
    """
    import tensorflow as tf

    label_of = {
        name: label for label, name in enumerate(sorted({os.path.dirname(path) for path in paths}))
    }
    labels = [label_of[os.path.dirname(path)] for path in paths]

    def convert(path: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        image = tf.io.decode_jpeg(tf.io.read_file(path), channels=3)
        image = tf.image.resize(
            image, (SIDE, SIDE), method=method, antialias=True
        )  # nearest ignores antialias
        image = tf.saturate_cast(tf.round(image) if image.dtype.is_floating else image, tf.uint8)
        return tf.io.encode_jpeg(image, quality=QUALITY), label

    images = tf.data.Dataset.from_tensor_slices((paths, labels)).map(
        convert, num_parallel_calls=tf.data.AUTOTUNE
    )
    with tf.io.TFRecordWriter(f"{output}/images.tfrecord", compression) as writer:
        for image, label in images:
            feature = {
                "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[image.numpy()])),
                "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label.numpy()])),
            }
            writer.write(
                tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()
            )


def tutorial_gzip(paths: list[str], output: str) -> None:
    tutorial(paths, output, compression="GZIP")


def tutorial_lanczos(paths: list[str], output: str) -> None:
    """As near to the photo as we are: an antialiased Lanczos filter."""
    tutorial(paths, output, compression="GZIP", method="lanczos3")


def floor(paths: list[str], _: str) -> None:
    """libjpeg-turbo alone, in one thread: decodes as stored, encodes a photo of the right size.

    Each photo once, however many links lead to it. Prints the CPU seconds of decoding and encoding
    for a photo; reading and resizing do not count.
    """
    import cv2
    import simplejpeg

    files = sorted({os.path.realpath(path) for path in paths})
    spent_s = 0.0
    for path in files:
        with open(path, "rb") as file:
            data = file.read()
        started = time.thread_time()
        pixels = simplejpeg.decode_jpeg(data, "RGB")
        spent_s += time.thread_time() - started
        small = cv2.resize(pixels, (SIDE, SIDE), interpolation=cv2.INTER_AREA)
        started = time.thread_time()
        simplejpeg.encode_jpeg(small, QUALITY, "RGB", "420")
        spent_s += time.thread_time() - started
    print(spent_s / len(files))


def copy(paths: list[str], output: str) -> None:
    """Reads and hashes on all cores, and writes the bytes behind each other."""

    def read(path: str) -> bytes:
        with open(path, "rb") as file:
            data = file.read()
        hashlib.sha256(data)
        return data

    with ThreadPoolExecutor() as pool, open(f"{output}/images", "wb") as out:
        for start in range(0, len(paths), READ_AHEAD):
            out.writelines(pool.map(read, paths[start : start + READ_AHEAD]))


def hash_path(path: str) -> bytes:
    return hashlib.blake2b(path.encode(), digest_size=8).digest()


def planned_shards(paths: list[str], output: str) -> None:
    """The least that a Beam pipeline can do.

    Paths to shards by their hash, each shard read, converted and written.

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

    def assign(path: str) -> tuple[int, str]:
        return int.from_bytes(hash_path(path), "big") % num_shards, path

    def read(shard: tuple[int, Iterable[str]]) -> Iterator[tuple[int, bytes]]:
        for path in sorted(shard[1], key=hash_path):
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
                self._files[shard] = _GzipFile(
                    f"{output}/peer-{shard:05d}-of-{num_shards:05d}.tfrecord.gz"
                )
            _TFRecordUtil.write_record(self._files[shard], record)

        def finish_bundle(self) -> None:
            for file in self._files.values():
                file.close()

    options = PipelineOptions(
        runner="FnApiRunner",
        direct_running_mode="multi_threading",
        direct_num_workers=default_threads(),
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


def pillow_loop(paths: list[str], output: str, *, form: str = "JPEG") -> None:
    """What one writes first: Pillow in a loop.

    It has one thread, and writes one file of encoded images behind each other.
    """
    from PIL import Image

    options = {"quality": QUALITY} if form == "JPEG" else {}
    with open(f"{output}/images", "wb") as out:
        for path in paths:
            buffer = io.BytesIO()
            with Image.open(path) as image:
                image.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BILINEAR).save(
                    buffer, form, **options
                )
            out.write(buffer.getvalue())


def pillow_png_loop(paths: list[str], output: str) -> None:
    pillow_loop(paths, output, form="PNG")


if __name__ == "__main__":
    name, pattern, folder = sys.argv[1:]
    os.makedirs(folder)
    globals()[name](sorted(glob.glob(pattern, recursive=True)), folder)
