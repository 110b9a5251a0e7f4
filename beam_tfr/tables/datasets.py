"""Reads a dataset of ours as a table: a record is a row, which holds its image.

Rows come from the contents, and from the records themselves where these do not hold the whole of a
value. The place of an image begins with a slash and the name of the shard's file, and ends with the
number of its record and the feature; `read_embedded` reads it later, with the other images of its
shard.
"""

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
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
from beam_tfr.schema.dataset import NO_SPLIT
from beam_tfr.schema.encodings import IMAGE_ENCODINGS, noun_of
from beam_tfr.schema.errors import RejectError, RunError
from beam_tfr.schema.feature_names import ENCODED
from beam_tfr.tables.base import Row, table_error
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
    roles = {"uri_column": ENCODED, "label_column": label, "split_column": SPLIT}
    columns = {name: column.text for name, column in dataset.feature_kinds.as_columns().items()}
    chosen = dict(options.feature_columns or {})
    declarations = dict[str, str]()
    if KNOWN in chosen:
        del chosen[KNOWN]
        declarations |= columns
    for name, declaration in chosen.items():
        declarations[name] = declaration or columns.get(name, "")
    implied = {**roles, "feature_columns": declarations}
    options = dataclasses.replace(options, **select_implied(options, implied))
    base = BaseDataset(dataset.folder, dataset.fields["manifest_digest"])
    return TableContent(
        options,
        tuple(_shards(base)),
        [*filter(None, roles.values()), *columns],
        functools.partial(_read, base),
        dataset.class_names if options.label_column == label else (),
        tuple(_warn_of_losses(dataset, options)),
    )


def _warn_of_losses(dataset: Manifest, options: ConvertOptions) -> Iterator[str]:
    """Yields warnings about what the records of a dataset lose when it is converted."""
    is_lossy = {dataset.options["encoding"], options.encoding} <= {"jpeg", "webp", "keep"}
    if is_lossy and (options.encoding, options.resize) != ("keep", "none"):
        yield (
            "the images of this dataset are encoded a second time: JPEG and WebP lose some "
            "detail again"
        )
    for noun in dataset.feature_kinds.left_out:
        yield f"the {noun} of this dataset are left out"


@functools.lru_cache(maxsize=2)
def _shards(base: BaseDataset) -> dict[str, tuple[str, ShardPart]]:
    """The path of each shard with records -> its split, and the part that is all of it."""
    dataset = base.read_manifest()
    shards = dict[str, tuple[str, ShardPart]]()
    for name, split in dataset.splits.items():
        if name != NO_SPLIT and split.num_examples:
            parts = select_examples(dataset, name).parts
            shards |= {part.file: (name, part) for part in parts}
    return shards


def _read(base: BaseDataset, path: str, wanted: Sequence[str]) -> Iterator[Row]:
    """Yields the rows of a shard.

    Raises:
        DataError, RunError: its contents are damaged, or another dataset has replaced this one.
        UsageError: it cannot be read.
    """
    dataset = base.read_manifest()
    (split, part) = _shards(base)[path]
    try:
        for number, row in enumerate(_ShardRows(dataset, split, part), 1):
            yield number, [row.get(name) for name in wanted]
    except OSError as error:
        raise table_error(path, f"cannot be read: {error.strerror or error}") from error


class _ShardRows:
    """The rows of a shard.

    Args:
        dataset: its dataset.
        split: its split.
        part: all of the shard.
    """

    def __init__(self, dataset: Manifest, split: str, part: ShardPart) -> None:
        features = dataset.feature_kinds
        self._dataset = dataset
        self._split = split
        self._part = part
        self._columns = features.as_columns()
        payload = feature_names.RAW if feature_names.RAW in features.specs else ENCODED
        self._images = {ENCODED: payload}  # column of images -> the feature that holds them
        for companion in features.companions:
            self._images[companion.key] = companion.feature
        self._stored = dataset.contents_columns
        self._lookup = RecordLookup(dataset, [part])

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yields column -> cell for each record, in order."""
        table = self._lookup.open_shard(self._part)
        for first in range(0, self._part.records, BATCH_ROWS):
            rows = table.slice(first, BATCH_ROWS).to_pylist()
            partial = [number for number, row in enumerate(rows, first) if not self._is_whole(row)]
            records = dict(zip(partial, _read_records(self._lookup, partial), strict=True))
            for number, row in enumerate(rows, first):
                yield self._cells(number, row, records.get(number))

    def _is_whole(self, row: Mapping[str, Any]) -> bool:
        """Whether a row of the contents has all values of its record."""
        return all(_is_whole_cell(row[column.name]) for column in self._stored.values())

    def _cells(self, number: int, row: Mapping[str, Any], record: bytes | None) -> dict[str, Any]:
        """Column -> cell of a record.

        Args:
            number: of the record in the shard.
            row: its row of the contents.
            record: the record, where the row does not have all of it.
        """
        key = str(row["key"])
        folder, _, file = self._part.file.rpartition("/")
        cells = dict[str, Any]()
        problem = ""
        try:
            values = self._row_values(row) if record is None else parse_example(record)
            key = _to_text(*values[self._dataset.names.key])
            cells = self._value_cells(values)
        except (LookupError, TypeError, ValueError):
            problem = f"its record in {file} is damaged, or does not fit the manifest"
        for name, feature in self._images.items():
            cells[name] = storage.Entry(
                f"{folder}/{key}",
                row[self._stored[feature].name],
                self._lookup.generation(self._part),
                place=f"/{file}:{len(key)}:{number}:{feature}",
                problem=problem,
            )
        return cells

    def _row_values(self, row: Mapping[str, Any]) -> dict[str, Sequence[Any]]:
        """Feature -> values, as a row of the contents has them."""
        return {
            feature: row[column.name] if column.several else [row[column.name]]
            for feature, column in self._stored.items()
        }

    def _value_cells(self, values: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
        """Column -> cell, without the columns of images."""
        cells = {name: column.to_cell(values) for name, column in self._columns.items()}
        labels = [_to_text(label) for label in values.get(self._dataset.names.text, ())]
        cells[SPLIT] = self._split
        cells[feature_names.TEXT] = labels
        if not self._dataset.options.get("multi_label"):
            cells[feature_names.TEXT] = "".join(labels)
        return cells


def _read_records(lookup: RecordLookup, numbers: Sequence[int]) -> list[bytes]:
    """The records of these numbers; empty for one that is damaged."""
    try:
        return lookup.read_records(numbers)
    except RecordError:
        if len(numbers) == 1:
            return [b""]
        return [_read_records(lookup, [number])[0] for number in numbers]


def _is_whole_cell(cell: Any) -> bool:
    """Whether a cell of the contents is all of a value: these leave out what is long, and escape
    what is no text."""
    parts = cell if isinstance(cell, list) else [cell]
    return not any(map(_is_partial, parts))


def _is_partial(part: Any) -> bool:
    return part is None or (isinstance(part, str) and "\\" in part)


def _to_text(value: str | bytes) -> str:
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value


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
