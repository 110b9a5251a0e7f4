"""Reads the rows of a shard of a dataset that serves as a table.

Rows come from the contents files, or from the records if a contents file lacks part of a value. The
place of an image begins with a slash and the file name of the shard, and ends with the number of
the record and the name of the feature.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from beam_tfr import storage
from beam_tfr.dataset.lookup import RecordLookup
from beam_tfr.dataset.manifest import Manifest
from beam_tfr.dataset.splits import ShardPart
from beam_tfr.features.cells import members_of
from beam_tfr.inputs.parquet_process import BATCH_ROWS
from beam_tfr.records.examples import parse_example
from beam_tfr.records.tfrecords import RecordError
from beam_tfr.schema.feature_names import ENCODED, RAW, TEXT
from beam_tfr.tables.content import SPLIT


class DatasetRows:
    """The rows of a shard.

    Args:
        dataset: the dataset that contains the shard.
        split: the split of the shard.
        part: the whole shard.
    """

    def __init__(self, dataset: Manifest, split: str, part: ShardPart) -> None:
        features = dataset.feature_kinds
        self._split = split
        self._part = part
        self._names = dataset.names
        self._has_label_lists = bool(dataset.options.get("multi_label"))
        self._columns = features.as_columns()
        # Column of images -> the feature that holds them.
        self._image_features = {
            companion.key: companion.feature for companion in features.companions
        }
        self._image_features[ENCODED] = RAW if RAW in features.specs else ENCODED
        self._contents = dataset.contents_columns
        self._lookup = RecordLookup(dataset, [part])

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yields column -> cell for each record, in order."""
        table = self._lookup.open_shard(self._part)
        for first in range(0, self._part.records, BATCH_ROWS):
            rows = table.slice(first, BATCH_ROWS).to_pylist()
            numbers = range(first, first + len(rows))
            partial = [
                number
                for number, row in zip(numbers, rows, strict=True)
                if not self._has_all_values(row)
            ]
            records = dict(zip(partial, _read_records(self._lookup, partial), strict=True))
            for number, row in zip(numbers, rows, strict=True):
                yield self._make_cells(number, row, records.get(number))

    def _has_all_values(self, row: Mapping[str, Any]) -> bool:
        """Whether a row of the contents has every value of its record in full."""
        return all(_is_whole(row[column.name]) for column in self._contents.values())

    def _make_cells(
        self, number: int, row: Mapping[str, Any], record: bytes | None
    ) -> dict[str, Any]:
        """Returns column -> cell for a record.

        Args:
            number: the number of the record in the shard.
            row: the record's row of the contents.
            record: the record, if the row lacks part of the record.
        """
        folder, _, file = self._part.file.rpartition("/")
        key = str(row["key"])
        cells = dict[str, Any]()
        problem = ""
        try:
            values = self._values_in(row) if record is None else parse_example(record)
            key = _to_text(*values[self._names.key])
            cells = self._value_cells(values)
        except (LookupError, TypeError, ValueError):
            problem = f"its record in {file} is damaged, or does not match the manifest"
        generation = self._lookup.generation(self._part)
        for name, feature in self._image_features.items():
            size = row[self._contents[feature].name]
            place = f"/{file}:{len(key)}:{number}:{feature}"
            path = f"{folder}/{key}"
            cells[name] = storage.Entry(path, size, generation, place=place, problem=problem)
        return cells

    def _values_in(self, row: Mapping[str, Any]) -> dict[str, Sequence[Any]]:
        """Returns feature -> values, from a row of the contents."""
        values = dict[str, Sequence[Any]]()
        for feature, column in self._contents.items():
            cell = row[column.name]
            values[feature] = cell if column.several else [cell]
        return values

    def _value_cells(self, values: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
        """Returns column -> cell, except for the columns of images.

        Raises:
            LookupError, TypeError, ValueError: the record does not match the manifest.
        """
        cells = {name: column.to_cell(values) for name, column in self._columns.items()}
        labels = [_to_text(label) for label in values.get(self._names.text, ())]
        cells[TEXT] = labels if self._has_label_lists else "".join(labels)
        cells[SPLIT] = self._split
        return cells


def _read_records(lookup: RecordLookup, numbers: Sequence[int]) -> list[bytes]:
    """Returns the records with these numbers; an empty record stands for a damaged record."""
    try:
        return lookup.read_records(numbers)
    except RecordError:
        if len(numbers) == 1:
            return [b""]
    return [_read_records(lookup, [number])[0] for number in numbers]


def _is_whole(cell: Any) -> bool:
    """Whether a cell of the contents holds a value in full.

    Contents leave out long values, and escape values that are not text.
    """
    parts = members_of(cell)
    return not any(map(_is_partial, parts))


def _is_partial(part: Any) -> bool:
    return part is None or (isinstance(part, str) and "\\" in part)


def _to_text(value: str | bytes) -> str:
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value
