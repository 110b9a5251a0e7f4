"""How other programs convert photos: the contestants of `python -m benchmarks others`.

PYTHON -m benchmarks.other_programs NAME PATTERN OUTPUT

Each does what its documentation shows for a folder of photos, with the choices that make it
fastest here. None of them imports beam_tfr.
"""

from __future__ import annotations

import csv
import glob
import os
import pathlib
import sys
from collections.abc import Iterator

SIDE = 224  # pixels
QUALITY = 90
CORES = os.cpu_count() or 1


def image2dataset(paths: list[str], output: str) -> None:
    """img2dataset reads a table of addresses, here of files, and writes tars of WebDataset."""
    from img2dataset import download

    table = f"{output}/photos.csv"
    with open(table, "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["url", "label"])
        rows.writerows(
            [pathlib.Path(path).as_uri(), os.path.basename(os.path.dirname(path))] for path in paths
        )
    download(
        url_list=table,
        input_format="csv",
        url_col="url",
        save_additional_columns=["label"],
        output_folder=f"{output}/tars",
        output_format="webdataset",
        image_size=SIDE,
        resize_mode="border",
        resize_only_if_bigger=False,
        encode_quality=QUALITY,
        processes_count=CORES,
        thread_count=16,
        number_sample_per_shard=1000,
        enable_wandb=False,
        compute_hash=None,
    )


def tensorflow_datasets(paths: list[str], output: str) -> None:
    """TensorFlow Datasets stores a generator's examples as TFRecords, without compression."""
    import numpy as np
    import tensorflow_datasets as tfds
    from PIL import Image

    def label_of(path: str) -> str:
        return os.path.basename(os.path.dirname(path))

    def examples() -> Iterator[tuple[str, dict[str, object]]]:
        for path in paths:
            with Image.open(path) as photo:
                pixels = photo.convert("RGB").resize((SIDE, SIDE), Image.Resampling.LANCZOS)
            yield path, {"image": np.asarray(pixels), "label": label_of(path)}

    image = tfds.features.Image(shape=(SIDE, SIDE, 3), encoding_format="jpeg")
    label = tfds.features.ClassLabel(names=sorted({*map(label_of, paths)}))
    tfds.dataset_builders.store_as_tfds_dataset(
        name="photos",
        version="1.0.0",
        data_dir=output,
        features=tfds.features.FeaturesDict({"image": image, "label": label}),
        split_datasets={"train": examples()},
    )


def beam_tutorial(paths: list[str], output: str) -> None:
    """The pipeline that tutorials on Beam show: each photo a record, then WriteToTFRecord."""
    import io

    import apache_beam as beam
    import tensorflow as tf
    from apache_beam.options.pipeline_options import PipelineOptions
    from PIL import Image

    names = sorted({os.path.basename(os.path.dirname(path)) for path in paths})

    def record(path: str) -> bytes:
        buffer = io.BytesIO()
        with Image.open(path) as photo:
            small = photo.convert("RGB").resize((SIDE, SIDE), Image.Resampling.LANCZOS)
        small.save(buffer, "JPEG", quality=QUALITY)
        label = names.index(os.path.basename(os.path.dirname(path)))
        feature = {
            "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[buffer.getvalue()])),
            "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
        }
        example = tf.train.Example(features=tf.train.Features(feature=feature))
        return bytes(example.SerializeToString())

    options = PipelineOptions(
        runner="FnApiRunner",
        direct_running_mode="multi_threading",
        direct_num_workers=CORES,
    )
    with beam.Pipeline(options=options) as pipeline:
        (
            pipeline
            | beam.Create(paths)
            | beam.Reshuffle()
            | beam.Map(record)
            | beam.io.WriteToTFRecord(
                f"{output}/photos", file_name_suffix=".tfrecord.gz", num_shards=8
            )
        )


if __name__ == "__main__":
    program, photos, folder = sys.argv[1:]
    os.makedirs(folder)
    globals()[program](sorted(glob.glob(photos, recursive=True)), folder)
