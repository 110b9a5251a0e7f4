"""Writes croissant.json, which describes a dataset in MLCommons' Croissant format."""

import json
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

from beam_tfr.dataset.manifest import Manifest
from beam_tfr.dataset.metadata.summary import (
    LICENSE_ID,
    describe_dataset,
    given_texts,
    splits_with_records,
)
from beam_tfr.records.contents import PLACE
from beam_tfr.schema.naming import contents_name

_CONTEXT = pathlib.Path(__file__).with_name("croissant.context.json")
_TYPES = {"int64": "sc:Integer", "float": "sc:Float", "string": "sc:Text"}
_NAMES = {"description": "description", "license": "license", "citation": "citeAs"}  # of options


def croissant_metadata(dataset: Manifest) -> dict[str, Any]:
    """Returns the content of croissant.json."""
    contents = _node(
        "FileSet",
        "contents",
        encodingFormat="application/x-parquet",
        includes=contents_name(f"{dataset.name}-*.tfrecord"),
    )
    return {
        "@context": json.loads(_CONTEXT.read_text()),
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": dataset.name,
        "description": describe_dataset(dataset),
        **_texts(dataset),
        "distribution": [*_shard_files(dataset), contents],
        "recordSet": _record_sets(dataset),
    }


def _texts(dataset: Manifest) -> dict[str, str]:
    """Returns the user's texts about the dataset, by the names of their properties in Croissant."""
    texts = given_texts(dataset)
    license_text = texts.get("license", "")
    if LICENSE_ID.fullmatch(license_text):  # where the Hub links to
        texts["license"] = f"https://choosealicense.com/licenses/{license_text}/"
    return {_NAMES[option]: text for option, text in texts.items()}


def _shard_files(dataset: Manifest) -> list[dict[str, Any]]:
    files = []
    for split in splits_with_records(dataset).values():
        for shard in split.shards:
            node = _node(
                "FileObject",
                shard.file,
                contentUrl=shard.file,
                contentSize=f"{shard.num_bytes} B",
                sha256=shard.sha256,
                encodingFormat="application/octet-stream",
            )
            files.append(node)
    return files


def _record_sets(dataset: Manifest) -> list[dict[str, Any]]:
    """Returns the record sets for the splits, the labels, and the rows of the contents."""
    record_sets = []
    splits = splits_with_records(dataset)
    if splits:
        rows = [(name, split.num_examples) for name, split in splits.items()]
        fields = {"name": "sc:Text", "examples": "sc:Integer"}
        record_sets.append(_inline_record_set("splits", "cr:Split", fields, rows))
    if dataset.class_names:
        fields = {"id": "sc:Integer", "name": "sc:Text"}
        classes = enumerate(dataset.class_names)
        record_sets.append(_inline_record_set("labels", "sc:Enumeration", fields, classes))
    record_sets.append(
        _node(
            "RecordSet",
            "records",
            description="A row for each record, without its image",
            field=_contents_fields(dataset),
        )
    )
    return record_sets


def _contents_fields(dataset: Manifest) -> list[dict[str, Any]]:
    """Lists the columns of the contents that hold a single value."""
    columns = {**PLACE}
    columns |= {column.name: column for column in dataset.contents_columns.values()}
    del columns["restart"]  # null but for compressed shards
    fields = []
    for name, column in columns.items():
        if column.kind in _TYPES and not column.several:
            source = {"fileSet": {"@id": "contents"}, "extract": {"column": name}}
            fields.append(_field("records", name, _TYPES[column.kind], source=source))
    return fields


def _inline_record_set(
    name: str, kind: str, fields: Mapping[str, str], rows: Iterable[tuple[Any, ...]]
) -> dict[str, Any]:
    """Returns a record set that contains its data; the first of the fields is the key."""
    nodes = [_field(name, field, field_type) for field, field_type in fields.items()]
    keys = [node["@id"] for node in nodes]
    data = [dict(zip(keys, row, strict=True)) for row in rows]
    key = {"@id": keys[0]}
    return _node("RecordSet", name, dataType=kind, key=key, field=nodes, data=data)


def _field(record_set: str, name: str, kind: str, **fields: Any) -> dict[str, Any]:
    return _node("Field", f"{record_set}/{name}", dataType=kind, **fields)


def _node(kind: str, name: str, **fields: Any) -> dict[str, Any]:
    return {"@type": f"cr:{kind}", "@id": name, "name": name, **fields}
