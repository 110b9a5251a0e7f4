"""The format `parquet`: Hugging Face's Image and ClassLabel, in a file for each shard."""

import itertools
import json
import tempfile
from typing import Any

from beam_tfr.dataset.manifest import Manifest
from beam_tfr.schema import features as names
from examples.export.shard import BOXES, MASKS, Sample, Shard, column_name, create, own_columns

ROWS = 100  # in a row group, as Hugging Face's own files have, and written at a time
_TYPES = {"int64": "int64", "float": "float32", "bytes": "string"}


def write_parquet(shard: Shard, path: str) -> None:
    """Writes a shard as a Parquet file."""
    import pyarrow as pa
    from pyarrow import parquet

    schema, samples = _schema(shard.dataset), shard.samples()
    with create(shard.output, path) as file, tempfile.TemporaryFile() as whole:
        with parquet.ParquetWriter(whole, schema, compression="none") as writer:
            while group := [*itertools.islice(samples, ROWS)]:
                writer.write_table(pa.Table.from_pylist([_row(sample, shard.dataset) for sample in group], schema))
        whole.seek(0)
        while chunk := whole.read(1 << 20):
            file.write(chunk)


def _row(sample: Sample, dataset: Manifest) -> dict[str, Any]:
    row = {"image": {"bytes": sample.image, "path": sample.about["key"]}, **sample.about}
    labels = sample.values.get(names.LABEL)
    if labels is not None:
        row["label"] = labels if dataset.features[names.LABEL]["shape"] else labels[0]
    if sample.mask is not None:
        row["mask"] = {"bytes": sample.mask, "path": None}
    return row


def _schema(dataset: Manifest) -> Any:
    import pyarrow as pa

    image = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    columns = {"image": image, "key": pa.string(), "split": pa.string()}
    about: dict[str, Any] = {"image": {"_type": "Image"}}
    if names.MASK in dataset.features:
        columns["mask"], about["mask"] = image, about["image"]
    if names.SIDES[0] in dataset.features:
        columns[BOXES] = pa.list_(pa.list_(pa.float32(), 4))
    if names.OBJECT_MASK in dataset.features:
        numbers = pa.list_(pa.int64())
        columns[MASKS] = pa.list_(pa.struct([("size", numbers), ("counts", numbers)]))
    if label := dataset.features.get(names.LABEL):
        classes = {"_type": "ClassLabel", "names": dataset.class_names}
        columns["class"] = pa.list_(pa.string()) if label["shape"] else pa.string()
        columns["label"] = pa.list_(pa.int64()) if label["shape"] else pa.int64()
        about["label"] = {"_type": "List", "feature": classes} if label["shape"] else classes
    for name, parts in dataset.points.items():
        numbers = pa.list_(pa.list_(pa.float32()))
        columns[column_name(name)] = numbers if len(parts) > 3 else pa.list_(numbers)
    for name in own_columns(dataset):
        kind = pa.type_for_alias(_TYPES[dataset.features[name]["dtype"]])
        columns[column_name(name)] = pa.list_(kind) if dataset.features[name]["shape"] else kind
    return pa.schema([*columns.items()], {"huggingface": json.dumps({"info": {"features": about}})})
