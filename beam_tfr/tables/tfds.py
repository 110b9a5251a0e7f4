"""Reads a dataset of TensorFlow Datasets as a table, given its dataset_info.json, without that package.

`features.json` beside it says which feature is the image and which its class, and `FEATURE.labels.txt` names the
classes. See https://www.tensorflow.org/datasets/external_tfrecord.
"""

import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from beam_tfr import storage
from beam_tfr.inputs.labels import read_classes
from beam_tfr.options import ConvertOptions
from beam_tfr.schema.errors import DataError
from beam_tfr.tables.content import SPLIT, Content, with_known
from beam_tfr.tables.formats import Row, read_columns, read_rows, table_error

_MAX_BYTES = 32 << 20  # 32 MiB, as of our own manifests
_TEMPLATE = "{DATASET}-{SPLIT}.tfrecord-{SHARD_X_OF_Y}"
_WRONG = (LookupError, TypeError, AttributeError, ValueError, RecursionError)  # of JSON with other types


def open_tfds(options: ConvertOptions, path: str) -> Content:
    """The content of a dataset, given the path of its dataset_info.json.

    Raises:
        DataError: the files that describe it are damaged, or it holds no images in TFRecords.
        UsageError: one cannot be read.
    """
    folder = path.rpartition("/")[0]
    try:
        texts = [storage.read_bytes(file, max_bytes=_MAX_BYTES) for file in (path, f"{folder}/features.json")]
        info, features = json.loads(texts[0]), json.loads(texts[1])["featuresDict"]["features"]
        shards = {f"{folder}/{name}": (split, records) for name, split, records in _shards(info) if records}
        supervised = json.dumps(info.get("supervisedKeys"))  # the others come last
        found = sorted(features, key=lambda name: json.dumps(name) not in supervised)
        images, labels = ([name for name in found if kind in features[name]] for kind in ("image", "classLabel"))
        if not images or not shards:
            raise ValueError("there are no records" if images else f"there is no Image in {', '.join(found)[:300]}")
        label = labels[0] if labels else ""
        names = f"{folder}/{label.replace('/', '.')}.labels.txt"
        classes: Sequence[str] = read_classes(names) if storage.find(names) else ()
        if label and not classes:
            classes = [*map(str, range(int(features[label]["classLabel"]["numClasses"])))]
    except OSError as error:
        raise table_error(path, f"cannot be read: {error.filename or ''} {error.strerror or error}") from error
    except _WRONG as error:
        problem = f"does not describe images in TFRecords as TensorFlow Datasets does: {str(error)[:500]}"
        raise DataError(problem, option="table", value=path) from None
    options = with_known(options, {"uri_column": images[0], "label_column": label, "split_column": SPLIT}, {})
    return Content(
        options=options,
        files=tuple(shards),
        columns=(*read_columns(next(iter(shards)), 1), SPLIT),
        read=functools.partial(_read, shards, label, classes),
        class_names=classes if options.label_column == label else (),
    )


def _shards(info: Any) -> Iterator[tuple[str, str, int]]:
    """Yields file name, split and number of records of each shard; raises one of `_WRONG`."""
    for split in info["splits"]:
        for number, records in enumerate(split["shardLengths"]):
            name = split.get("filepathTemplate") or _TEMPLATE
            parts = {"DATASET": info["name"], "SPLIT": split["name"], "FILEFORMAT": info.get("fileFormat", "tfrecord")}
            parts["SHARD_X_OF_Y"] = f"{number:05d}-of-{len(split['shardLengths']):05d}"
            for part, text in parts.items():
                name = name.replace(f"{{{part}}}", text)
            if "/" in name or parts["FILEFORMAT"] != "tfrecord":
                raise ValueError(f"{name} is no TFRecord file in its folder")
            yield name, split["name"], int(records)


def _read(
    shards: Mapping[str, tuple[str, int]], label: str, classes: Sequence[str], path: str, wanted: Sequence[str]
) -> Iterator[Row]:
    """Yields the rows of a shard; raises a DataError if it has more or fewer than it should."""
    (split, records), number = shards[path], 0
    ids = {"-1": "", "None": "", **{str(at): name for at, name in enumerate(classes)}}
    for number, cells in read_rows(path, wanted):
        row = dict(zip(wanted, cells, strict=True))
        if SPLIT in row:
            row[SPLIT] = split
        if label in row:
            row[label] = ids.get(str(row[label]), ValueError(f"{row[label]!a:.60} is not the id of a class"))
        yield number, [*row.values()]
    if number != records:
        problem = f"has {number:,} records, but dataset_info.json says {records:,}; copy the dataset again"
        raise DataError(problem, option="table", value=path)
