"""Reads a dataset of ours as a table: a record is a row, which holds its image.

Rows come from the contents, and from the records themselves where these do not hold the whole of a
value. The place of an image begins with a slash and the name of the shard's file, and ends with the
number of its record and the feature; `read_embedded` reads it later, with the other images of its
shard.
"""

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import Any

from beam_tfr import storage
from beam_tfr.dataset.base import BaseDataset
from beam_tfr.dataset.lookup import RecordLookup
from beam_tfr.dataset.manifest import Manifest, read_manifest, replaced_message
from beam_tfr.dataset.splits import ShardPart, select_examples
from beam_tfr.inputs import reading
from beam_tfr.inputs.archives import archive_of
from beam_tfr.inputs.parquet import BATCH_ROWS
from beam_tfr.options import ConvertOptions
from beam_tfr.options.implied import KNOWN
from beam_tfr.records.examples import parse_example
from beam_tfr.records.tensors import parse_tensor
from beam_tfr.records.tfrecords import RecordError
from beam_tfr.schema import feature_names
from beam_tfr.schema.boxes import RELATIVE
from beam_tfr.schema.columns import ColumnType, parse_type, points_of, typed
from beam_tfr.schema.dataset import NO_SPLIT
from beam_tfr.schema.encodings import IMAGE_ENCODINGS, noun_of
from beam_tfr.schema.errors import RejectError, RunError
from beam_tfr.schema.features import MASK_KEY
from beam_tfr.tables.checks import Row, table_error
from beam_tfr.tables.content import SPLIT, TableContent, select_implied


def open_dataset(options: ConvertOptions, path: str) -> TableContent:
    """The content of a dataset, given the path of its manifest.

    Raises:
        DataError: it is not a complete dataset.
        UsageError: it holds no images.
    """
    dataset = read_manifest(path.rpartition("/")[0])
    encoding = dataset.options["encoding"]
    number = dataset.counts["written"]
    if encoding not in IMAGE_ENCODINGS or not number:
        raise table_error(path, f"is a dataset of {number} {noun_of(encoding)}, not of images")
    label = feature_names.TEXT if feature_names.TEXT in dataset.features else ""
    roles = {"uri_column": feature_names.ENCODED, "label_column": label, "split_column": SPLIT}
    columns = {name: of.text for name, (of, _) in _columns(dataset).items()}
    given = dict(options.feature_columns or {})
    types = columns if given.pop(KNOWN, None) is not None else {}
    types |= {name: kind or columns.get(name, "") for name, kind in given.items()}
    options = dataclasses.replace(
        options, **select_implied(options, {**roles, "feature_columns": types})
    )
    lossy = {encoding, options.encoding} <= {"jpeg", "webp", "keep"}
    again = lossy and (options.encoding, options.resize) != ("keep", "none")
    warnings = [
        "the images of this dataset are encoded a second time: JPEG and WebP lose some detail again"
    ] * again
    warnings += ["the masks of boxes of this dataset are left out"] * (
        feature_names.OBJECT_MASK in dataset.features
    )
    base = BaseDataset(dataset.folder, dataset.fields["manifest_digest"])
    present = [*filter(None, roles.values()), *columns]
    classes = dataset.class_names if options.label_column == label else ()
    return TableContent(
        options,
        tuple(_shards(base)),
        present,
        functools.partial(_read, base),
        classes,
        tuple(warnings),
    )


@functools.lru_cache(maxsize=2)
def _shards(base: BaseDataset) -> dict[str, tuple[str, ShardPart]]:
    """The path of each shard with records -> its split, and the part that is all of it."""
    dataset = base.read_manifest()
    splits = [
        name for name, split in dataset.splits.items() if name != NO_SPLIT and split.num_examples
    ]
    return {
        part.file: (name, part) for name in splits for part in select_examples(dataset, name).parts
    }


def _columns(dataset: Manifest) -> dict[str, tuple[ColumnType, list[str]]]:
    """Column -> its type, and the features that hold it; places are shares of the stored images."""
    found = dict[str, tuple[ColumnType, list[str]]]()
    for name, of in typed(dataset.options.get("feature_columns")).items():
        if of.boxes:
            found[name] = parse_type(f"bbox[{RELATIVE}xyxy]"), [*feature_names.SIDES]
        elif of.points:
            found[name] = (
                parse_type(f"points[{RELATIVE}{of.points.removeprefix(RELATIVE)}]"),
                dataset.points[name],
            )
        elif (
            name in dataset.features
            and name not in feature_names.SOURCE_SIDES
            and not of.is_box_mask
        ):
            found[name] = of, [name]
    for one in dataset.names.companions:
        kind = "mask" if one.key == MASK_KEY else "pair"
        found[one.key] = parse_type(f"{kind}[{one.outside}]"), [one.feature]
    return found


def _read(base: BaseDataset, path: str, wanted: Sequence[str]) -> Iterator[Row]:
    """Yields the rows of a shard.

    Raises:
        DataError, RunError: its contents are damaged, or another dataset has replaced this one.
        UsageError: it cannot be read.
    """
    dataset = base.read_manifest()
    (split, part) = _shards(base)[path]
    try:
        for number, row in enumerate(_rows(dataset, split, part), 1):
            yield number, [row.get(name) for name in wanted]
    except OSError as error:
        raise table_error(path, f"cannot be read: {error.strerror or error}") from error


def _rows(dataset: Manifest, split: str, part: ShardPart) -> Iterator[dict[str, Any]]:
    """Yields column -> cell for each record of a shard."""
    own = _columns(dataset)
    columns = dataset.contents_columns
    images = {name: features[0] for name, (of, features) in own.items() if of.beside}
    images[feature_names.ENCODED] = (
        feature_names.RAW if feature_names.RAW in dataset.features else feature_names.ENCODED
    )
    lookup = RecordLookup(dataset, [part])
    (folder, _, file) = part.file.rpartition("/")
    table = lookup.open_shard(part)
    for first in range(0, part.records, BATCH_ROWS):
        rows = dict(enumerate(table.slice(first, BATCH_ROWS).to_pylist(), first))
        partial = [
            at
            for at, row in rows.items()
            if not all(_is_whole(row[to.name]) for to in columns.values())
        ]
        records = dict(zip(partial, _records(lookup, partial), strict=True))
        for number, row in rows.items():
            key = str(row["key"])
            problem = ""
            cells = dict[str, Any]()
            values = {
                of: row[to.name] if to.several else [row[to.name]] for of, to in columns.items()
            }
            try:
                values = parse_example(records[number]) if number in records else values
                key, *labels = map(
                    _text, (*values[dataset.names.key], *values.get(dataset.names.text, ()))
                )
                cells = {
                    name: _cell(of, [values[one] for one in features])
                    for name, (of, features) in own.items()
                }
                cells |= {
                    SPLIT: split,
                    feature_names.TEXT: labels
                    if dataset.options.get("multi_label")
                    else "".join(labels),
                }
            except (LookupError, TypeError, ValueError):
                problem = f"its record in {file} is damaged, or does not fit the manifest"
            for name, feature in images.items():
                place = f"/{file}:{len(key)}:{number}:{feature}"
                size = row[columns[feature].name]
                generation = lookup.generation(part)
                cells[name] = storage.Entry(f"{folder}/{key}", size, generation, 0, place, problem)
            yield cells


def _records(lookup: RecordLookup, numbers: Sequence[int]) -> list[bytes]:
    """The records of these numbers; empty for one that is damaged."""
    try:
        return lookup.read_records(numbers)
    except RecordError:
        return [b""] if len(numbers) == 1 else [_records(lookup, [number])[0] for number in numbers]


def _is_whole(cell: Any) -> bool:
    """Whether a cell of the contents is all of a value: these leave out what is long, and escape
    what is no text."""
    parts = cell if isinstance(cell, list) else [cell]
    return not any(part is None or (isinstance(part, str) and "\\" in part) for part in parts)


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value


def _cell(of: ColumnType, found: Sequence[Sequence[Any]]) -> Any:
    """The cell of a column, given the values of its features; of an image beside the image
    anything."""
    if of.boxes:
        return [[*sides] for sides in zip(*found, strict=True)]
    if of.points:
        return points_of(found)
    values = [of.members[value] for value in found[0]] if of.members else found[0]
    return values if of.is_list else values[0]


def read_embedded(image: storage.Entry, max_bytes: int, copies: str = "") -> bytes:
    """Reads an image of a dataset, of raw pixels as a PNM, or another with a place; see
    `reading.read_embedded`.

    Raises:
        RejectError: `unusable-file`: its record, or its bytes in the archive, are damaged.
        DataError, RunError: another dataset has replaced the one in which it was listed.
        OSError: as `storage.read_part`.
    """
    if not image.place.startswith("/"):
        return reading.read_embedded(image, max_bytes, copies)
    path = archive_of(image.path, image.place)
    number, feature = image.place.split(":")[2:]
    lookup = _lookup(path, image.generation)
    try:
        (value,) = parse_example(*lookup.read_records([int(number)]))[feature]
        return _as_pnm(value) if feature == feature_names.RAW else b"".join([value])
    except (RecordError, LookupError, TypeError, ValueError):
        raise RejectError(
            "unusable-file", f"its record in {path.rpartition('/')[2]} is damaged"
        ) from None


@functools.lru_cache(maxsize=256)  # it takes 16 bytes for each record
def _lookup(path: str, generation: int) -> RecordLookup:
    """The records of a shard, if its file still has this generation."""
    dataset = read_manifest(path.rpartition("/")[0])
    _, part = _shards(BaseDataset(dataset.folder, dataset.fields["manifest_digest"])).get(
        path, ("", None)
    )
    lookup = RecordLookup(dataset, [part] if part else [])
    if part is None or lookup.generation(part) != generation:
        raise RunError(f"{replaced_message(dataset.folder)}, with the same command")
    return lookup


def _as_pnm(tensor: bytes) -> bytes:
    """The file of a serialized tensor of pixels.

    Raises:
        ValueError: it is none.
    """
    dtype, (height, width, channels), content = parse_tensor(tensor) or ("", (0, 0, 0), b"")
    if not isinstance(content, bytes) or dtype != "uint8" or channels not in (1, 3):
        raise ValueError("holds no pixels")
    return b"P%d %d %d 255\n%b" % (5 if channels == 1 else 6, width, height, content)
