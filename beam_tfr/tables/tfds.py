"""Reads a dataset of TensorFlow Datasets as a table, given its dataset_info.json, without that
package.

`features.json` beside it says which feature is the image and which its class, and
`FEATURE.labels.txt` names the classes. See https://www.tensorflow.org/datasets/external_tfrecord.
"""

import dataclasses
import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from beam_tfr import storage
from beam_tfr.inputs.labels import read_classes
from beam_tfr.options import ConvertOptions
from beam_tfr.schema.errors import DataError
from beam_tfr.tables.content import SPLIT, Content, known
from beam_tfr.tables.formats import Row, read_columns, read_rows, table_error

_TEMPLATE = "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"
_WRONG = (
    LookupError,
    TypeError,
    AttributeError,
    ValueError,
    RecursionError,
)  # of JSON with other types


def open_tfds(options: ConvertOptions, path: str) -> Content:
    """The content of a dataset, given the path of its dataset_info.json.

    Raises:
        DataError: the files that describe it are damaged, or it holds no images in TFRecords.
        UsageError: one cannot be read.
    """
    folder = path.rpartition("/")[0]
    try:
        texts = [
            storage.read_bytes(file, max_bytes=32 << 20)
            for file in (path, f"{folder}/features.json")
        ]
        info = json.loads(texts[0])
        features = json.loads(texts[1])["featuresDict"]["features"]
        shards = {f"{folder}/{name}": about for name, *about in _shards(info)}
        found = sorted(
            features,
            key=lambda name: json.dumps(name) not in json.dumps(info.get("supervisedKeys")),
        )
        images, labels = (
            [name for name in found if kind in features[name]] for kind in ("image", "classLabel")
        )
        if not images or not shards:
            raise ValueError(
                "there are no records"
                if images
                else f"there is no Image in {', '.join(found)[:300]}"
            )
        label = labels[0] if labels else ""
        names = f"{folder}/{label.replace('/', '.')}.labels.txt"
        number = 0
        if label:
            number = min(int(features[label]["classLabel"]["numClasses"]), 1_000_000)
        classes = read_classes(names) if storage.find(names) else [*map(str, range(number))]
    except OSError as error:
        raise table_error(
            path, f"cannot be read: {error.filename or ''} {error.strerror or error}"
        ) from error
    except _WRONG as error:
        problem = (
            f"does not describe images in TFRecords as TensorFlow Datasets does: {str(error)[:500]}"
        )
        raise DataError(problem, option="table", value=path) from None
    implied = {"uri_column": images[0], "label_column": label, "split_column": SPLIT}
    options = dataclasses.replace(options, **known(options, implied))
    columns = [*read_columns(next(iter(shards)), 1), SPLIT]
    read = functools.partial(_read, shards, options.uri_column, label, classes)
    return Content(
        options, tuple(shards), columns, read, classes if options.label_column == label else ()
    )


def _shards(info: Any) -> Iterator[tuple[str, str, int]]:
    """Yields file name, split and number of records of each shard that has any; raises one of
    `_WRONG`."""
    form = info.get("fileFormat", "tfrecord")
    for split in info["splits"]:
        name = split.get("filepathTemplate") or _TEMPLATE
        lengths = [*map(int, split["shardLengths"])]
        for part, text in (
            ("DATASET", info["name"]),
            ("SPLIT", split["name"]),
            ("FILEFORMAT", form),
        ):
            name = name.replace(f"{{{part}}}", text)
        if "/" in name or form != "tfrecord":
            raise ValueError(f"{name} is no name of TFRecord files in its folder")
        for number, records in enumerate(lengths):
            if records:
                yield (
                    name.replace("{SHARD_X_OF_Y}", f"{number:05d}-of-{len(lengths):05d}"),
                    split["name"],
                    records,
                )


def _read(
    shards: Mapping[str, Any],
    image: str,
    label: str,
    classes: Sequence[str],
    path: str,
    wanted: Sequence[str],
) -> Iterator[Row]:
    """Yields the rows of a shard, with the names of its split and of their classes.

    Raises:
        DataError: it has more or fewer records than dataset_info.json says.
    """
    (split, records) = shards[path]
    number = 0
    ids = {"-1": "", "None": "", **{str(at): name for at, name in enumerate(classes)}}
    for number, cells in read_rows(path, wanted, images=[image]):
        row = dict(zip(wanted, cells, strict=True)) | {SPLIT: split}
        if label in row:
            row[label] = ids.get(
                str(row[label]), ValueError(f"{row[label]!a:.60} is not the id of a class")
            )
        yield number, [row[name] for name in wanted]
    if number != records:
        problem = f"has {number:,} records, but dataset_info.json says {records:,}; copy the dataset again"
        raise DataError(problem, option="table", value=path)
