"""Complete datasets for the reader's tests, written without the pipeline."""

from __future__ import annotations

import hashlib
import io
import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import PIL.Image
import simplejpeg
import tensorflow as tf

from beam_tfr import books, manifest
from beam_tfr.examples import build_example
from beam_tfr.schema import MANIFEST_FILE, NO_SPLIT, Image, ImageRef, Plan, Shard, ShardInfo, SplitPlan


def photo(number: int, height: int = 8, width: int = 12) -> np.ndarray:
    """Pixels that tell which photo it is: uint8 [height, width, 3], smooth with some noise."""
    random = np.random.default_rng(number)
    return (random.integers(0, 200, 3) + random.integers(0, 56, (height, width, 3))).astype(np.uint8)


def encode(pixels: np.ndarray, encoding: str) -> bytes:
    if encoding == "jpeg":
        return simplejpeg.encode_jpeg(
            np.ascontiguousarray(pixels), quality=90, colorspace="RGB", colorsubsampling="420"
        )
    buffer = io.BytesIO()
    PIL.Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def write_dataset(
    folder: Path,
    splits: dict[str, Sequence[int]],
    *,
    labelled: bool = True,
    encoding: str = "jpeg",
    compression: str = "gzip",
    image_size: tuple[int, int] = (8, 12),
    photos: Sequence[bytes] = (),
) -> Path:
    """Writes photos 0, 1, 2, … split by split, shard by shard; the label of a photo is its number.

    Args:
        splits: split -> records of each of its shards.
        photos: encoded images of this size, instead of made ones.
    """
    folder.mkdir(parents=True)
    total = sum(sum(counts) for counts in splits.values())
    ledger: dict[str, list[ShardInfo]] = {NO_SPLIT: [ShardInfo(shard=Shard(NO_SPLIT, 0, 1, 0, ""))]}
    suffix = ".tfrecord.gz" if compression == "gzip" else ".tfrecord"
    names = [f"class{number:05d}" for number in range(total)] if labelled else None
    numbers = itertools.count()
    for split, counts in splits.items():
        ledger[split] = []
        for index, count in enumerate(counts):
            shard = Shard(split, index, len(counts), count, "")
            path = folder / f"d-{shard.name}{suffix}"
            with tf.io.TFRecordWriter(str(path), "GZIP" if compression == "gzip" else "") as writer:
                for number in itertools.islice(numbers, count):
                    encoded = photos[number] if photos else encode(photo(number, *image_size), encoding)
                    image = Image(encoded, encoding, *image_size, 3, "RGB", *image_size, "0" * 64, (0,) * 3, (0,) * 3)
                    ref = ImageRef(f"{number}.jpg", len(encoded), 0, split, *((names[number], number) if names else ()))
                    writer.write(build_example(ref, image))
            data = path.read_bytes()
            ledger[split].append(
                ShardInfo(
                    shard=shard,
                    file=path.name,
                    num_examples=count,
                    num_bytes=len(data),
                    sha256=hashlib.sha256(data).hexdigest(),
                )
            )
    plan = Plan(
        name="d",
        suffix=suffix,
        options={"image_size": list(image_size), "resize": "stretch", "encoding": encoding, "compression": compression},
        input_digest="",
        labels=names,
        splits={
            split: SplitPlan(matched=sum(splits.get(split, ())), num_shards=len(infos), cuts=[], class_counts={})
            for split, infos in ledger.items()
        },
        codecs={},
    )
    fields = books.build(plan, ledger, rejects_sha256="")
    (folder / MANIFEST_FILE).write_bytes(manifest.to_bytes(fields))
    return folder
