"""Reads the columns of the contents that are used to compare images."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from beam_tfr.console.display import Progress
from beam_tfr.console.terminal import printable
from beam_tfr.copies.hashes import HASH_BYTES, Rows
from beam_tfr.dataset.base import PlannedShard, planned_shards
from beam_tfr.dataset.lookup import read_all_contents, read_shard_contents
from beam_tfr.dataset.manifest import Manifest, ShardEntry
from beam_tfr.records.contents import need_pyarrow
from beam_tfr.schema.feature_names import HEIGHT, SOURCE_HEIGHT, SOURCE_WIDTH, WIDTH
from beam_tfr.schema.items import Appearance

# An image's hash says little if the image has less contrast than this (in values from 0 to 255), or
# if nearly all bits are equal: hashes of photos have 90 to 170 of 256 bits set, tiny images none.
_LEAST_CONTRAST = 4.0
_FEWEST_BITS = 64
NO_LABEL = -1  # for an image without a class
_KEY = "key"
_SPLIT = "split"
_LABEL = "label"
_SOURCE = "source_sha256"
_HASH = "phash"
_CONTRAST = "std"


class HashedImages(NamedTuple):
    """The hashes that are used to compare images.

    Attributes:
        sources: SHA-256 of the sources: uint8 [images, 32].
        has_source: whether the SHA-256 is known: bool [images].
        hashes: perceptual hashes: uint8 [images, 32].
        has_hash: whether the perceptual hash is known: bool [images].
        is_flat: whether the image is nearly flat, or tiny: bool [images].
    """

    sources: npt.NDArray[np.uint8]
    has_source: npt.NDArray[np.bool_]
    hashes: npt.NDArray[np.uint8]
    has_hash: npt.NDArray[np.bool_]
    is_flat: npt.NDArray[np.bool_]

    @classmethod
    def from_table(cls, table: Any) -> Self:
        """Reads the hashes from a `pyarrow.Table` of contents."""
        sources, has_source = _read_hashes(table, _SOURCE)
        hashes, has_hash = _read_hashes(table, _HASH)
        return cls(sources, has_source, hashes, has_hash, _find_flat(table, hashes))

    @property
    def number(self) -> int:
        return len(self.hashes)

    @property
    def is_compared(self) -> npt.NDArray[np.bool_]:
        """Whether the perceptual hash of each image is compared with others: bool [images]."""
        return self.has_hash & ~self.is_flat


class ComparedImages(NamedTuple):
    """The images of a dataset that are compared, in the order of the records.

    Attributes:
        keys: `pyarrow.ChunkedArray` of the keys; null for a key that is too long for contents.
        split_names: names of the splits.
        splits: number of the split of each image: int64 [images].
        label_names: the class, or classes, that each number represents.
        labels: number of the class, or classes, of each image: int64 [images]; `NO_LABEL` for an
            image without a class.
        pixels: number of pixels of the sources: int64 [images].
        hashed: the hashes of the images.
    """

    keys: Any
    split_names: Sequence[str]
    splits: Rows
    label_names: Sequence[str]
    labels: Rows
    pixels: Rows
    hashed: HashedImages

    @property
    def number(self) -> int:
        return len(self.splits)


def read_images(
    dataset: Manifest, progress: Callable[[Progress], object] | None = None
) -> ComparedImages:
    """Reads the images of a dataset from its contents.

    Args:
        dataset: manifest of the dataset.
        progress: called for each shard.

    Raises:
        DataError: contents are missing or damaged, or another dataset has replaced this one.
        NotInstalledError: pyarrow is missing.
    """
    tables = list[Any]()
    done = 0
    for table in read_all_contents(dataset, choose_columns(dataset)):
        tables.append(table)
        done += len(table)
        if progress:
            progress(Progress("reading", done, dataset.counts["written"]))
    return join_images(dataset, tables)


def read_some_images(dataset: Manifest, rows: Rows) -> ComparedImages:
    """Reads some images of a dataset from its contents.

    Args:
        dataset: manifest of the dataset.
        rows: numbers of the images' records, sorted.

    Raises:
        DataError: as for `read_images`.
    """
    parts = [*divide_rows(dataset, rows)]
    shards = [shard.entry for shard, _ in parts if shard.entry]
    tables = read_all_contents(dataset, choose_columns(dataset), shards)
    chosen = [
        table.take(rows_in_shard) for table, (_, rows_in_shard) in zip(tables, parts, strict=True)
    ]
    return join_images(dataset, chosen)


def divide_rows(dataset: Manifest, rows: Rows) -> Iterator[tuple[PlannedShard, Rows]]:
    """Yields each shard that holds some of the records, and the numbers of these in the shard.

    Args:
        dataset: manifest of the dataset.
        rows: numbers of the records, sorted.
    """
    for shard in planned_shards(dataset):
        if shard.entry:
            ends = [shard.first, shard.first + shard.entry.num_examples]
            begin, end = np.searchsorted(rows, ends).tolist()
            if begin < end:
                yield shard, rows[begin:end] - shard.first


def read_hashed_images(dataset: Manifest, shard: ShardEntry) -> HashedImages:
    """Reads the hashes of the images in a shard.

    Raises:
        DataError: see `read_images`.
    """
    wanted = {_SOURCE, _HASH, _CONTRAST}
    columns = [name for name in dataset.contents_schema().names if name in wanted]
    table = read_shard_contents(dataset, shard, columns)
    return HashedImages.from_table(table)


def choose_columns(dataset: Manifest) -> list[str]:
    """Returns the columns of the contents that are needed to compare images."""
    wanted = {_KEY, _SPLIT, _LABEL, _SOURCE, _HASH, _CONTRAST, *_side_columns(dataset)}
    return [name for name in dataset.contents_schema().names if name in wanted]


def _side_columns(dataset: Manifest) -> list[str]:
    """Returns the columns with the sides of the sources or, failing that, of the stored images."""
    columns = dataset.contents_columns
    for sides in ((SOURCE_HEIGHT, SOURCE_WIDTH), (HEIGHT, WIDTH)):
        if columns.keys() >= {*sides}:
            return [columns[side].name for side in sides]
    return []


def join_images(dataset: Manifest, tables: Iterable[Any]) -> ComparedImages:
    """Joins the images in the contents of several shards.

    Args:
        dataset: the dataset.
        tables: a `pyarrow.Table` for each shard, with the columns of `choose_columns`.
    """
    pa = need_pyarrow()
    columns = choose_columns(dataset)
    empty = dataset.contents_schema().empty_table()
    table = pa.concat_tables([empty.select(columns), *(part.select(columns) for part in tables)])
    split_names = [*dataset.splits]
    labels, label_names = _number_labels(table, dataset.class_names)
    return ComparedImages(
        keys=table.column(_KEY).cast(pa.large_string()),
        split_names=split_names,
        splits=_number_splits(table, split_names),
        label_names=label_names,
        labels=labels,
        pixels=_count_pixels(table, _side_columns(dataset)),
        hashed=HashedImages.from_table(table),
    )


def _read_hashes(table: Any, name: str) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.bool_]]:
    """Returns a column of hashes as uint8 [rows, 32], and whether each row has a hash."""
    if name not in table.column_names:
        return np.zeros((len(table), HASH_BYTES), np.uint8), np.zeros(len(table), bool)
    column = table.column(name)
    parts = [np.zeros((0, HASH_BYTES), np.uint8)]
    for chunk in column.chunks:
        if len(chunk):
            filled = chunk.fill_null(bytes(HASH_BYTES)) if chunk.null_count else chunk
            parts.append(_as_bytes(filled))
    return np.concatenate(parts), np.asarray(column.is_valid())


def _as_bytes(chunk: Any) -> npt.NDArray[np.uint8]:
    """Returns the bytes of an Arrow array with 32 bytes per value: uint8 [rows, 32]."""
    _, data = chunk.buffers()
    rows = np.frombuffer(data, np.uint8).reshape(-1, HASH_BYTES)
    return rows[chunk.offset : chunk.offset + len(chunk)]


def _number_splits(table: Any, names: Sequence[str]) -> Rows:
    """Returns the number of the split of each row."""
    pa = need_pyarrow()
    from pyarrow import compute

    numbers = compute.index_in(table.column(_SPLIT), pa.array(names, pa.string()))
    return np.asarray(numbers).astype(np.int64)


def _number_labels(table: Any, class_names: Sequence[str]) -> tuple[Rows, Sequence[str]]:
    """Numbers the class, or classes, of each row; also returns what each number represents."""
    pa = need_pyarrow()
    if _LABEL not in table.column_names:
        return np.full(len(table), NO_LABEL), ()
    column = table.column(_LABEL)
    if not pa.types.is_list(column.type):
        return np.asarray(column.fill_null(NO_LABEL)).astype(np.int64), class_names
    texts = list[str | None]()
    for labels in column.to_pylist():
        names = [class_names[label] for label in sorted(set(labels or ()))]
        texts.append(", ".join(names) or None)
    encoded = pa.array(texts, pa.string()).dictionary_encode()
    numbers = np.asarray(encoded.indices.fill_null(NO_LABEL)).astype(np.int64)
    return numbers, encoded.dictionary.to_pylist()


def _count_pixels(table: Any, sides: Sequence[str]) -> Rows:
    """Returns the number of pixels of the image in each row; 0 if the number is unknown."""
    pixels = np.ones(len(table), np.int64) if sides else np.zeros(len(table), np.int64)
    for side in sides:
        pixels *= np.asarray(table.column(side).fill_null(0)).astype(np.int64)
    return pixels


def _find_flat(table: Any, hashes: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
    """Whether the image of each row is nearly flat, tiny, or a pattern of stripes."""
    bits = np.bitwise_count(hashes).sum(axis=1, dtype=np.int64)
    flat: npt.NDArray[np.bool_] = np.minimum(bits, 8 * HASH_BYTES - bits) < _FEWEST_BITS
    if _CONTRAST in table.column_names:
        contrast = np.asarray(table.column(_CONTRAST).fill_null(0.0))
        flat |= contrast < _LEAST_CONTRAST
    return flat


class SampledImage(NamedTuple):
    """An image of a sample that is not in a dataset yet.

    Attributes:
        key, split, classes: those of the image's reference.
        pixels: number of pixels of the source.
        sha256: SHA-256 of the source, in hex.
        appearance: the appearance of the stored image.
    """

    key: str
    split: str
    classes: Sequence[str]
    pixels: int
    sha256: str
    appearance: Appearance


def join_sample(sample: Sequence[SampledImage]) -> ComparedImages:
    """Joins the images of a sample."""
    pa = need_pyarrow()
    splits = sorted({image.split for image in sample})
    texts = [", ".join(sorted(set(image.classes))) for image in sample]
    classes = sorted({*texts} - {""})
    numbers = {name: number for number, name in enumerate(classes)} | {"": NO_LABEL}
    hashes = _join_bytes([image.appearance.phash for image in sample])
    contrasts = pa.array([image.appearance.std for image in sample], pa.float32())
    hashed = HashedImages(
        sources=_join_bytes([bytes.fromhex(image.sha256) for image in sample]),
        has_source=np.ones(len(sample), bool),
        hashes=hashes,
        has_hash=np.ones(len(sample), bool),
        is_flat=_find_flat(pa.table({_CONTRAST: contrasts}), hashes),
    )
    return ComparedImages(
        keys=pa.chunked_array([pa.array([printable(image.key) for image in sample], pa.string())]),
        split_names=splits,
        splits=np.array([splits.index(image.split) for image in sample], np.int64),
        label_names=classes,
        labels=np.array([numbers[text] for text in texts], np.int64),
        pixels=np.array([image.pixels for image in sample], np.int64),
        hashed=hashed,
    )


def _join_bytes(values: Sequence[bytes]) -> npt.NDArray[np.uint8]:
    """Joins hashes: uint8 [hashes, 32]."""
    return np.frombuffer(b"".join(values), np.uint8).reshape(-1, HASH_BYTES)


def take_keys(images: ComparedImages, rows: Rows) -> Iterator[str | None]:
    """Yields the keys of some images."""
    yield from images.keys.take(rows).to_pylist()
