"""The files beside a manifest that describe its dataset to other programs, or let them open it.

    schema.pbtxt      the features, for tensorflow-metadata: TFDV, TFX, TensorFlow Transform
    croissant.json    shards with checksums, splits, labels, and the rows of the contents, for
    Croissant README.md         the dataset card, with the front matter of the Hugging Face Hub;
    from card.md beside this module dataset_info.json, features.json, *.labels.txt    for TensorFlow
    Datasets, unless the shards are GZIP

All follow from the manifest, and none is in a digest. docs/interoperability.md says how to use
them.
"""

import json
import pathlib
import re
import string
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from beam_tfr.dataset.manifest import Manifest, Split, labels_text
from beam_tfr.dataset.tallies import count_rows
from beam_tfr.records.contents import PLACE
from beam_tfr.schema.dataset import CARD_FILE, CROISSANT_FILE, SCHEMA_FILE, TFDS_FILES, sort_splits
from beam_tfr.schema.encodings import noun_of
from beam_tfr.schema.feature_names import ENCODED
from beam_tfr.schema.naming import contents_name

_CARD = pathlib.Path(__file__).with_name("card.md")
_CONTEXT = pathlib.Path(__file__).with_name("croissant.context.json")
_OTHERS = "TensorFlow Datasets, DALI, grain and FiftyOne"
_NOT_GIVEN = (
    "License, source and citation are not stated here: they are those of the source images."
)
_TFDS = (
    "\nTensorFlow Datasets reads it by `tfds.builder_from_directory(DIR).as_dataset(split={!r})`.\n"
)
_GIVEN = {
    "description": "description",
    "license": "license",
    "citeAs": "citation",
}  # Croissant's name -> option
_LICENSE_ID = re.compile(r"[a-z0-9.-]+")  # of the Hub
_IN_SCHEMA = {"int64": "INT", "float": "FLOAT", "bytes": "BYTES"}
_IN_TFDS = {"int64": "int64", "float": "float32"}
_IN_CROISSANT = {"int64": "sc:Integer", "float": "sc:Float", "string": "sc:Text"}


def metadata_files(dataset: Manifest) -> dict[str, bytes]:
    """Name -> content of the files for other programs, given the manifest of a dataset."""
    files = {
        SCHEMA_FILE: "".join(_schema(dataset)).encode(),
        CROISSANT_FILE: _json(_croissant(dataset)),
        CARD_FILE: _card(dataset).encode(),
    }
    if dataset.compression == "none":
        label = dataset.names.label
        files |= zip(
            TFDS_FILES, (_json(_tfds_info(dataset)), _json(_tfds_features(dataset))), strict=False
        )
        if label in dataset.features:
            files[f"{label.replace('/', '.')}.labels.txt"] = labels_text(dataset.class_names)
    return files


def is_own_card(data: bytes) -> bool:
    """True if beam-tfr wrote a README.md, and nobody has taken it over."""
    return b"<!-- beam-tfr writes this file anew" in data


def describe_other_readers(options: Mapping[str, Any]) -> str:
    """Says that other programs open a dataset with these options, or what would let them."""
    if options["compression"] == "none":
        return f"{_OTHERS} open it too; README.md there says how"
    if options["encoding"] in ("jpeg", "png", "webp", "keep"):
        free = ", and takes no more space"
    else:
        free = ""
    return f"`compression=none` lets {_OTHERS} open it too{free}"


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=1) + "\n").encode("ascii")


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)  # as protobuf's text format and YAML have it too


def _splits(dataset: Manifest) -> dict[str, Split]:
    """The splits with records."""
    return {
        name: dataset.splits[name]
        for name in sort_splits(dataset.splits)
        if dataset.splits[name].shards
    }


def _about(dataset: Manifest) -> str:
    classes = f" of {len(dataset.class_names):,} classes" if dataset.class_names else ""
    held = f"{dataset.counts['written']:,} {noun_of(dataset.options['encoding'])}{classes}"
    return f"{held} in TFRecords; dataset digest {dataset.dataset_digest}"


def _schema(dataset: Manifest) -> Iterator[str]:
    no_class = bool(
        dataset.options.get("label_column")
    )  # then records without one have the label -1, and no text
    for name, feature in sorted(dataset.features.items()):
        lines = [f"name: {_text(name)}", f"type: {_IN_SCHEMA[feature['dtype']]}"]
        lines += (
            ["value_count { }"]
            if feature["shape"]
            else ["presence { min_fraction: 1 min_count: 1 }", "shape { }"]
        )
        if name == ENCODED:
            lines.append("image_domain { }")
        elif name == dataset.names.label:
            last = len(dataset.class_names) - 1
            lines.append(f"int_domain {{ min: {-no_class} max: {last} is_categorical: true }}")
        elif name == dataset.names.text:
            values = [f"value: {_text(text)} " for text in [*dataset.class_names, *[""] * no_class]]
            lines.append(f"string_domain {{ {''.join(values)}}}")
        yield "feature {\n" + "".join(f"  {line}\n" for line in lines) + "}\n"


def _tfds_info(dataset: Manifest) -> dict[str, Any]:
    supervised = [
        {"featureKey": name} for name in (ENCODED, dataset.names.label) if name in dataset.features
    ]
    splits = [
        {
            "name": name,
            "numBytes": str(split.num_bytes),
            "shardLengths": [str(shard.num_examples) for shard in split.shards],
            "filepathTemplate": "{DATASET}-{SPLIT}-{SHARD_X_OF_Y}.tfrecord",
        }
        for name, split in _splits(dataset).items()
    ]
    info = {
        "name": dataset.name,
        "version": "1.0.0",
        "description": _about(dataset),
        "fileFormat": "tfrecord",
    }
    keys = {"supervisedKeys": {"tuple": {"items": supervised}}} if len(supervised) == 2 else {}
    return {**info, "splits": splits, **keys}


def _tfds_features(dataset: Manifest) -> dict[str, Any]:
    options = dataset.image_options
    features = {}
    sides = options.stored_size or (-1, -1)
    size = [str(side) for side in (*sides, {"rgb": 3, "gray": 1}.get(options.color, -1))]
    for name, (dtype, shape) in dataset.feature_specs.items():
        if (
            name == ENCODED and options.encoding != "webp"
        ):  # which TensorFlow decodes to another rank
            feature = _tfds(
                "image_feature.Image", image={"dtype": "uint8", "shape": {"dimensions": size}}
            )
        elif name == dataset.names.label:
            feature = _tfds(
                "class_label_feature.ClassLabel",
                classLabel={"numClasses": str(len(dataset.class_names))},
            )
        elif dtype == "bytes":
            feature = _tfds("text_feature.Text", text={})
        else:
            feature = _tfds(
                "tensor_feature.Tensor",
                tensor={"shape": {}, "dtype": _IN_TFDS[dtype], "encoding": "none"},
            )
        several = {"feature": feature, "length": "-1"}
        features[name] = _tfds("sequence_feature.Sequence", sequence=several) if shape else feature
    return _tfds("features_dict.FeaturesDict", featuresDict={"features": features})


def _tfds(kind: str, **fields: Any) -> dict[str, Any]:
    return {"pythonClassName": f"tensorflow_datasets.core.features.{kind}", **fields}


def _croissant(dataset: Manifest) -> dict[str, Any]:
    splits = _splits(dataset)
    examples = {name: split.num_examples for name, split in splits.items()}
    stored = dataset.contents_columns.values()
    plain = {column.name: column.kind for column in stored if not column.several}
    columns = {
        name: _IN_CROISSANT[kind] for name, kind in (PLACE | plain).items() if kind in _IN_CROISSANT
    }
    del columns["restart"]  # null but for compressed shards
    rows = [
        _field(
            "records",
            name,
            kind,
            source={"fileSet": {"@id": "contents"}, "extract": {"column": name}},
        )
        for name, kind in columns.items()
    ]
    sets = [
        _inline(
            "splits", "cr:Split", {"name": "sc:Text", "examples": "sc:Integer"}, examples.items()
        ),
        _inline(
            "labels",
            "sc:Enumeration",
            {"id": "sc:Integer", "name": "sc:Text"},
            enumerate(dataset.class_names),
        ),
        _node(
            "RecordSet",
            "records",
            description="A row for each record, without its image",
            field=rows,
        ),
    ]
    files = [
        _node(
            "FileObject",
            shard.file,
            contentUrl=shard.file,
            contentSize=f"{shard.num_bytes} B",
            sha256=shard.sha256,
        )
        | {"encodingFormat": "application/octet-stream"}
        for split in splits.values()
        for shard in split.shards
    ]
    given = {name: dataset.options.get(option, "") for name, option in _GIVEN.items()}
    if _LICENSE_ID.fullmatch(given["license"]):
        given["license"] = (
            f"https://choosealicense.com/licenses/{given['license']}/"  # where the Hub links to
        )
    contents = {
        "encodingFormat": "application/x-parquet",
        "includes": contents_name(f"{dataset.name}-*.tfrecord"),
    }
    return {
        "@context": json.loads(_CONTEXT.read_text()),
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": dataset.name,
        "description": _about(dataset),
        **{name: text for name, text in given.items() if text},
        "distribution": [*files, _node("FileSet", "contents", **contents)],
        "recordSet": [record_set for record_set in sets if record_set.get("data", True)],
    }


def _node(kind: str, name: str, **fields: Any) -> dict[str, Any]:
    return {"@type": f"cr:{kind}", "@id": name, "name": name, **fields}


def _field(record_set: str, name: str, kind: str, **fields: Any) -> dict[str, Any]:
    return _node("Field", f"{record_set}/{name}", dataType=kind, **fields)


def _inline(
    record_set: str, kind: str, fields: Mapping[str, str], rows: Iterable[tuple[Any, ...]]
) -> dict[str, Any]:
    keys = [f"{record_set}/{name}" for name in fields]
    data = [dict(zip(keys, row, strict=True)) for row in rows]
    own = [_field(record_set, name, kind) for name, kind in fields.items()]
    return _node("RecordSet", record_set, dataType=kind, key={"@id": keys[0]}, field=own, data=data)


def _card(dataset: Manifest) -> str:
    splits = _splits(dataset)
    patterns = {name: contents_name(f"{dataset.name}-{name}-*.tfrecord") for name in splits}
    rows = [
        [_plain(title.strip()), *cells]
        for title, cells in count_rows(dataset.splits, dataset.class_names)
    ]
    rows.insert(1, ["---", *["---:"] * (len(dataset.splits) + 1)])
    given = {name: dataset.options.get(name, "") for name in _GIVEN.values()}
    options = {
        name: value
        for name, value in sorted(dataset.options.items())
        if name not in {"classes", *given}
    }
    split = next(iter(splits), "train")
    license_lines = (
        f"license: other\nlicense_link: {_text(given['license'])}\n" if given["license"] else ""
    )
    if _LICENSE_ID.fullmatch(given["license"]):
        license_lines = f"license: {given['license']}\n"
    return string.Template(_CARD.read_text()).substitute(
        name=dataset.name,
        patterns="\n".join(
            f'  - split: "{name}"\n    path: {path}' for name, path in patterns.items()
        ),
        license=license_lines,
        title=_plain(dataset.name),
        given="\n\n".join(
            f"{name.capitalize()}: {_plain(text)}" for name, text in given.items() if text
        )
        or _NOT_GIVEN,
        about=_about(dataset),
        counts="\n".join(f"| {' | '.join(cells)} |" for cells in rows),
        split=split,
        others=_TFDS.format(split) if dataset.compression == "none" else "",
        version=dataset.fields["tool_version"],
        options="\n".join(f"    {name} = {json.dumps(value)}" for name, value in options.items()),
    )


def _plain(text: str) -> str:
    """A text without Markdown."""
    return re.sub(r"[^\w .,-]", lambda match: f"&#{ord(match[0])};", text)
