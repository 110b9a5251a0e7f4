"""Reads one of our datasets as a table, with a row for each record and its image.

`tables.dataset_rows` reads the rows. `read_embedded` reads an image later, by its place, along with
the other images of the shard.
"""

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence

from beam_tfr import storage
from beam_tfr.dataset.base import BaseDataset
from beam_tfr.dataset.lookup import RecordLookup
from beam_tfr.dataset.manifest import Manifest, read_manifest, replaced_message
from beam_tfr.dataset.splits import ShardPart, select_examples
from beam_tfr.features.base import ColumnKind
from beam_tfr.inputs import reading
from beam_tfr.inputs.archives import archive_of
from beam_tfr.inputs.skipped import SkippedFiles
from beam_tfr.options import ConvertOptions
from beam_tfr.options.implied import KNOWN
from beam_tfr.records.examples import parse_example
from beam_tfr.records.tensors import parse_tensor
from beam_tfr.records.tfrecords import RecordError
from beam_tfr.schema.dataset import NO_SPLIT
from beam_tfr.schema.encodings import IMAGE_ENCODINGS, noun_of
from beam_tfr.schema.errors import RejectError, RunError
from beam_tfr.schema.feature_names import ENCODED, RAW, TEXT
from beam_tfr.tables.base import Row, table_error
from beam_tfr.tables.content import SPLIT, TableContent, select_implied
from beam_tfr.tables.dataset_rows import DatasetRows

_PNM_TYPES = {1: 5, 3: 6}  # number of channels -> number of the format


def open_dataset(options: ConvertOptions, path: str) -> TableContent:
    """Returns the content of a dataset, given the path of its manifest.

    Raises:
        DataError: the dataset is incomplete.
        UsageError: the dataset holds no images.
    """
    dataset = read_manifest(path.rpartition("/")[0])
    number = dataset.counts["written"]
    if dataset.image_options.encoding not in IMAGE_ENCODINGS or not number:
        noun = noun_of(dataset.image_options.encoding)
        raise table_error(path, f"is a dataset of {number} {noun}, not of images")
    label = TEXT if dataset.feature_kinds.label else ""
    columns = dataset.feature_kinds.as_columns()
    implied = {
        "uri_column": ENCODED,
        "label_column": label,
        "split_column": SPLIT,
        "feature_columns": _declare_columns(columns, options.feature_columns or {}),
    }
    options = dataclasses.replace(options, **select_implied(options, implied))
    base = BaseDataset.of(dataset)
    roles = [ENCODED, label, SPLIT] if label else [ENCODED, SPLIT]
    return TableContent(
        options,
        tuple(_shards(base)),
        [*roles, *columns],
        functools.partial(_read_rows, base),
        dataset.class_names if options.label_column == label else (),
        tuple(_warn_of_losses(dataset, options)),
    )


def _declare_columns(
    columns: Mapping[str, ColumnKind], chosen: Mapping[str, str]
) -> dict[str, str]:
    """Returns column -> declaration for columns that become features.

    Args:
        columns: the columns of the dataset.
        chosen: the chosen columns, with declarations that may be empty; may include `KNOWN`.
    """
    declarations = dict[str, str]()
    if KNOWN in chosen:
        declarations |= {name: column.text for name, column in columns.items()}
    for name, declaration in chosen.items():
        if declaration or name not in columns:
            declarations[name] = declaration
        else:
            declarations[name] = columns[name].text
    declarations.pop(KNOWN, None)
    return declarations


def _warn_of_losses(dataset: Manifest, options: ConvertOptions) -> Iterator[str]:
    """Yields warnings about data that is lost when a dataset is converted."""
    is_lossy = {dataset.options["encoding"], options.encoding} <= {"jpeg", "webp", "keep"}
    if is_lossy and (options.encoding, options.resize) != ("keep", "none"):
        yield (
            "the images in this dataset are encoded a second time, which loses some more detail "
            "in JPEG and WebP"
        )
    for noun in dataset.feature_kinds.left_out:
        yield f"the {noun} in this dataset are left out"


@functools.lru_cache(maxsize=2)
def _shards(base: BaseDataset) -> dict[str, tuple[str, ShardPart]]:
    """Returns path -> the split and the whole shard, for each shard with records."""
    dataset = base.read_manifest()
    shards = dict[str, tuple[str, ShardPart]]()
    for name, split in dataset.splits.items():
        if name != NO_SPLIT and split.num_examples:
            parts = select_examples(dataset, name).parts
            shards |= {part.file: (name, part) for part in parts}
    return shards


def _read_rows(
    base: BaseDataset, path: str, columns: Sequence[str], _skipped: SkippedFiles
) -> Iterator[Row]:
    """Yields the rows of a shard.

    Raises:
        DataError, RunError: the contents are damaged, or another dataset replaced this dataset.
        UsageError: the shard cannot be read.
    """
    dataset = base.read_manifest()
    (split, part) = _shards(base)[path]
    try:
        for number, row in enumerate(DatasetRows(dataset, split, part), 1):
            yield number, [row.get(name) for name in columns]
    except OSError as error:
        raise table_error(path, f"cannot be read: {error.strerror or error}") from error


def read_embedded(image: storage.Entry, max_bytes: int, copies: str = "") -> bytes:
    """Reads an image of a dataset, or another image with a place in a file.

    Raw pixels are returned as a PNM file. See `reading.read_embedded`.

    Raises:
        RejectError: `unusable-file`: the record or the archive with the image is damaged.
        DataError, RunError: another dataset has replaced the dataset in which the image was listed.
        OSError: see `storage.read_part`.
    """
    if not image.place.startswith("/"):
        return reading.read_embedded(image, max_bytes, copies)
    path = archive_of(image.path, image.place)
    number, feature = image.place.split(":")[2:]
    lookup = _lookup(path, image.generation)
    try:
        (record,) = lookup.read_records([int(number)])
        (value,) = parse_example(record)[feature]
        return _as_pnm(value) if feature == RAW else b"".join([value])
    except (RecordError, LookupError, TypeError, ValueError):
        file = path.rpartition("/")[2]
        raise RejectError("unusable-file", f"its record in {file} is damaged") from None


@functools.lru_cache(maxsize=256)  # each record takes 16 bytes
def _lookup(path: str, generation: int) -> RecordLookup:
    """Returns the records of a shard, provided that its file still has this generation."""
    dataset = read_manifest(path.rpartition("/")[0])
    base = BaseDataset.of(dataset)
    shards = _shards(base)
    if path in shards:
        _, part = shards[path]
        lookup = RecordLookup(dataset, [part])
        if lookup.generation(part) == generation:
            return lookup
    raise RunError(f"{replaced_message(dataset.folder)}, with the same command")


def _as_pnm(tensor: bytes) -> bytes:
    """Returns a PNM file from a serialized tensor of pixels.

    Raises:
        TypeError, ValueError: the bytes are not such a tensor.
    """
    dtype, (height, width, channels), content = parse_tensor(tensor) or ("", (0, 0, 0), b"")
    if not isinstance(content, bytes) or dtype != "uint8" or channels not in _PNM_TYPES:
        raise ValueError("holds no pixels")
    return b"P%d %d %d 255\n%b" % (_PNM_TYPES[channels], width, height, content)
