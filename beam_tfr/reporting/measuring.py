"""Measures all records for the page, in one pass over the contents of the shards."""

import collections
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from beam_tfr.console.display import Progress
from beam_tfr.dataset.class_samples import NO_CLASS, ClassSamples, find_classes, mix
from beam_tfr.dataset.lookup import read_all_contents
from beam_tfr.dataset.manifest import Manifest
from beam_tfr.records.contents import need_pyarrow
from beam_tfr.reporting import histograms, unlike_looks
from beam_tfr.reporting.equal_rows import MOST_ROWS, EqualRows, RowComparison
from beam_tfr.reporting.finding import MOST_EVIDENCE
from beam_tfr.reporting.histograms import Extremes, Floats, HeatMap, Histogram, Rows
from beam_tfr.reporting.neighbors import MOST_COMPARED
from beam_tfr.schema.feature_names import (
    HEIGHT,
    OBJECT_LABEL,
    SIDES,
    SOURCE_HEIGHT,
    SOURCE_WIDTH,
    WIDTH,
)

_MOST_SHARDS = 16  # shards whose images are compared by their looks
MOST_OF_CLASS = 12  # samples shown of a class
_TABLE_ROWS = 20_000  # rows from which the columns of a table are described
# Means and standard deviations of pixels, 0 to 255.
_FLAT = 4
_BLACK = 12
_WHITE = 243


class LabelledRows(NamedTuple):
    """Numbers of records and of their classes; `NO_CLASS` for records without exactly one class."""

    records: Rows
    labels: Rows


@dataclasses.dataclass
class MissingValues:
    """The records without a value in a column of a table.

    Attributes:
        name: name of the column.
        rows: split -> number of records.
        counts: split -> number of records without a value.
        records: the first records without a value.
    """

    name: str
    rows: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    counts: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    records: list[int] = dataclasses.field(default_factory=list)

    def add(self, split: str, is_missing: NDArray[np.bool_], records: Rows) -> None:
        """Adds records of a split."""
        self.rows[split] += len(records)
        self.counts[split] += int(np.count_nonzero(is_missing))
        room = MOST_EVIDENCE - len(self.records)
        self.records += records[is_missing][:room].tolist()

    @property
    def number(self) -> int:
        """The number of records without a value, in all splits."""
        return self.counts.total()

    def share_of(self, split: str) -> float:
        """Returns the fraction of a split's records that have no value."""
        return self.counts[split] / self.rows[split]


@dataclasses.dataclass(frozen=True)
class Measures:
    """The measures of a dataset.

    Attributes:
        number: number of records.
        sizes: name of a measure, such as "stored height" or "source bytes" -> its histogram.
        extremes: name -> the records with the lowest values; values of "brightest" are negated.
        adjusted: member of `schema.dataset.ADJUSTMENTS` -> some records to which it applies.
        samples: some records of each class.
        compared: further records of each class, from few shards, as reading from many takes long.
        looks: a property such as "nearly flat" -> number of images that have it; some of these are
            in the extremes of the same name.
        boxes: number of a class -> number of its boxes, if the contents list them.
        centers: the centers of boxes.
        table: columns of the table that the dataset was made from, for some of the rows: a
            `pyarrow.Table`.
        table_rows: records and classes of these rows.
        missing: for each column, the records without a value.
        equal_rows: equal rows of a dataset without images.
        box_sizes: logarithms of the width and height of some boxes [boxes, 2].
        box_rows: records and classes of these boxes.
    """

    number: int
    sizes: dict[str, Histogram]
    extremes: dict[str, Extremes]
    adjusted: dict[str, list[int]]
    samples: ClassSamples
    compared: ClassSamples
    looks: dict[str, int]
    boxes: dict[int, int]
    centers: HeatMap
    table: Any
    table_rows: LabelledRows
    missing: list[MissingValues]
    equal_rows: EqualRows
    box_sizes: Floats
    box_rows: LabelledRows


def measure(dataset: Manifest, progress: Callable[[Progress], object] | None = None) -> Measures:
    """Measures the records of a dataset, given its contents.

    Args:
        dataset: the manifest of the dataset.
        progress: called for each shard.

    Raises:
        DataError: contents are missing or damaged, or another dataset has replaced this one.
        NotInstalledError: pyarrow is missing.
    """
    meter = _Meter(dataset)
    total = dataset.counts["written"]
    for table in read_all_contents(dataset, _choose_columns(dataset)):
        meter.add(table)
        if progress:
            progress(Progress("measuring", meter.number, total))
    return meter.finish()


def _choose_columns(dataset: Manifest) -> list[str]:
    """Lists the columns of the contents to measure, including those that come from a table."""
    own = {"shard", "key", "offset", "length", "restart", "phash", "source_sha256"}
    return [name for name in dataset.contents_schema().names if name not in own]


class _Meter:
    """Accumulates measures over the contents of shards."""

    def __init__(self, dataset: Manifest) -> None:
        self.number = 0
        self._dataset = dataset
        self._columns = {
            feature: column.name for feature, column in dataset.contents_columns.items()
        }
        self._sizes = dict[str, Histogram]()
        self._extremes = collections.defaultdict[str, Extremes](lambda: Extremes(MOST_EVIDENCE))
        self._adjusted = dict[str, Extremes]()
        self._samples = ClassSamples(MOST_OF_CLASS)
        most = unlike_looks.MOST_COMPARED // max(len(dataset.class_names), 1)
        self._compared = ClassSamples(most)
        self._num_shards = 0
        self._shard_step = 1 + len(dataset.shards) // _MOST_SHARDS
        self._looks = collections.Counter[str]()
        self._boxes = np.zeros(0, np.int64)
        self._centers = HeatMap()
        self._table_columns = _find_table_columns(dataset)
        self._tables = list[Any]()
        self._table_rows = list[LabelledRows]()
        self._missing = [*map(MissingValues, self._table_columns)]
        self._comparison = RowComparison()
        self._compares_rows = _can_compare_rows(dataset, self._table_columns)
        self._box_sizes = [np.zeros((0, 2), np.float64)]
        self._box_rows = list[LabelledRows]()

    def add(self, table: Any) -> None:
        """Adds the contents of the next shard."""
        records = self.number + np.arange(len(table))
        self.number += len(table)
        labels, places = find_classes(self._dataset, table)
        self._samples.add(labels, records[places])
        if self._num_shards % self._shard_step == 0:
            self._compared.add(labels, records[places])
        self._num_shards += 1
        row_labels = _keep_single(labels, places, len(table))
        self._add_sizes(table, records)
        self._add_looks(table, records)
        self._add_adjusted(table, records)
        self._add_boxes(table, records)
        if len(table):
            self._add_table(table, records, row_labels)

    def finish(self) -> Measures:
        """Returns the measures of all records."""
        pa = need_pyarrow()
        table = pa.concat_tables(self._tables) if self._tables else pa.table({})
        present = np.flatnonzero(self._boxes).tolist()
        return Measures(
            number=self.number,
            sizes=self._sizes,
            extremes=self._extremes,
            adjusted={
                kind: [record for record, _ in chosen] for kind, chosen in self._adjusted.items()
            },
            samples=self._samples,
            compared=self._compared,
            looks=self._looks,
            boxes={label: int(self._boxes[label]) for label in present},
            centers=self._centers,
            table=table,
            table_rows=_join_rows(self._table_rows),
            missing=self._missing,
            equal_rows=self._comparison.find(),
            box_sizes=np.concatenate(self._box_sizes),
            box_rows=_join_rows(self._box_rows),
        )

    def _add_sizes(self, table: Any, records: Rows) -> None:
        height = self._read(table, HEIGHT)
        width = self._read(table, WIDTH)
        source_height = self._read(table, SOURCE_HEIGHT)
        source_width = self._read(table, SOURCE_WIDTH)
        self._histogram("source height", histograms.SIDES, source_height)
        self._histogram("source width", histograms.SIDES, source_width)
        self._histogram("source aspect", histograms.ASPECTS, source_width / source_height)
        self._histogram("stored height", histograms.SIDES, height)
        self._histogram("stored width", histograms.SIDES, width)
        self._histogram("source bytes", histograms.BYTES, _numbers(table, "source_bytes"))
        self._histogram("stored bytes", histograms.BYTES, _numbers(table, "bytes"))
        before = source_width / source_height
        after = width / height
        kept = np.minimum(before, after) / np.maximum(before, after)
        kept[np.isclose(kept, 1, atol=0.01)] = np.nan  # the sides were merely rounded
        self._extreme("aspect", kept, records)
        self._extreme("smallest", source_height * source_width, records)

    def _add_looks(self, table: Any, records: Rows) -> None:
        means = _numbers(table, "mean")
        deviations = _numbers(table, "std")
        self._histogram("brightness", histograms.SHADES, means)
        self._histogram("contrast", histograms.SHADES, deviations)
        self._extreme("darkest", means, records)
        self._extreme("brightest", -means, records)
        self._extreme("flattest", deviations, records)
        is_black = means < _BLACK
        is_white = means > _WHITE
        is_flat = (deviations < _FLAT) & ~is_black & ~is_white
        looks = {"nearly black": is_black, "nearly white": is_white, "nearly flat": is_flat}
        for name, has_look in looks.items():
            self._looks[name] += int(np.count_nonzero(has_look))
            self._extreme(name, deviations[has_look], records[has_look])

    def _add_adjusted(self, table: Any, records: Rows) -> None:
        """Keeps some records for each adjustment, chosen pseudo-randomly."""
        if "adjusted" not in table.column_names:
            return
        texts = table.column("adjusted").combine_chunks().fill_null("").dictionary_encode()
        numbers = texts.indices.to_numpy(zero_copy_only=False)
        order = mix(records).astype(np.float64)
        for number, text in enumerate(texts.dictionary.to_pylist()):
            chosen = numbers == number
            for kind in filter(None, text.split(",")):
                extremes = self._adjusted.setdefault(kind, Extremes(MOST_EVIDENCE))
                extremes.add(order[chosen], records[chosen])

    def _add_boxes(self, table: Any, records: Rows) -> None:
        if not self._columns.keys() >= {*SIDES}:
            return
        need_pyarrow()
        from pyarrow import compute

        lists = [table.column(self._columns[side]).combine_chunks() for side in SIDES]
        numbers = compute.list_value_length(lists[0]).fill_null(histograms.COUNTS[-1])
        self._histogram("boxes of an image", histograms.COUNTS, numbers.to_numpy())
        left, top, right, bottom = (_flatten(one).astype(np.float64) for one in lists)
        self._centers.add((left + right) / 2, (top + bottom) / 2)
        side = np.sqrt(np.maximum(right - left, 0) * np.maximum(bottom - top, 0))
        self._histogram("size of boxes", histograms.SHARES, side)
        if OBJECT_LABEL in self._columns:
            labels = table.column(self._columns[OBJECT_LABEL]).combine_chunks()
            self._add_box_classes(_flatten(labels))
            rows = compute.list_parent_indices(labels).to_numpy()
            sizes = np.log(np.maximum(np.stack([right - left, bottom - top], axis=1), 1e-4))
            self._add_box_sizes(sizes, LabelledRows(records[rows], _flatten(labels)))

    def _add_box_sizes(self, sizes: Floats, boxes: LabelledRows) -> None:
        """Keeps the sizes of the boxes in some images, chosen pseudo-randomly."""
        statistics = self._dataset.statistics.get("boxes", {})
        mean = statistics.get("per_image", {}).get("mean", 0)
        total = mean * self._dataset.counts["written"]
        chosen = _choose_share(boxes.records, MOST_COMPARED, total)
        self._box_sizes.append(sizes[chosen])
        self._box_rows.append(LabelledRows(boxes.records[chosen], boxes.labels[chosen]))

    def _add_box_classes(self, labels: Rows) -> None:
        counts = np.bincount(labels[labels >= 0], minlength=len(self._boxes))
        counts[: len(self._boxes)] += self._boxes
        self._boxes = counts

    def _add_table(self, table: Any, records: Rows, labels: Rows) -> None:
        for missing in self._missing:
            is_missing = _find_missing(table.column(missing.name))
            missing.add(table.column("split")[0].as_py(), is_missing, records)
        if self._compares_rows:
            columns = {name: table.column(name) for name in self._table_columns}
            splits = table.column("split").to_numpy().astype(np.str_)
            self._comparison.add(columns, labels, splits)
        chosen = _choose_share(records, _TABLE_ROWS, self._dataset.counts["written"])
        if self._table_columns and chosen.any():
            mask = need_pyarrow().array(chosen)
            self._tables.append(table.select(self._table_columns).filter(mask))
            self._table_rows.append(LabelledRows(records[chosen], labels[chosen]))

    def _histogram(self, name: str, edges: Floats, values: Floats) -> None:
        self._sizes.setdefault(name, Histogram(edges)).add(values)

    def _extreme(self, name: str, values: Floats, records: Rows) -> None:
        self._extremes[name].add(values, records)

    def _read(self, table: Any, feature: str) -> Floats:
        return _numbers(table, self._columns.get(feature, ""))


def _can_compare_rows(dataset: Manifest, columns: Sequence[str]) -> bool:
    """Whether rows without images are few enough to compare, and these columns suffice to do so."""
    if dataset.names.sha256 or dataset.counts["written"] > MOST_ROWS:
        return False
    declared = dataset.options.get("feature_columns", {})
    return bool(columns) and len(columns) == len(declared)


def _choose_share(records: Rows, most: int, total: float) -> NDArray[np.bool_]:
    """Chooses pseudo-randomly about `most` of all records: bool [records]."""
    limit = int(min(most / max(total, 1), 1) * (2**64 - 1))
    return mix(records) <= np.uint64(limit)


def _keep_single(labels: Rows, rows: Rows, number: int) -> Rows:
    """Returns the class of each row; `NO_CLASS` for rows with no class or several.

    Args:
        labels: classes, as from `find_classes`.
        rows: the row of each class.
    """
    single = np.full(number, NO_CLASS)
    is_single = np.bincount(rows, minlength=number)[rows] == 1
    single[rows[is_single]] = labels[is_single]
    return single


def _join_rows(parts: Sequence[LabelledRows]) -> LabelledRows:
    nothing = np.zeros(0, np.int64)
    records = [nothing, *(part.records for part in parts)]
    labels = [nothing, *(part.labels for part in parts)]
    return LabelledRows(np.concatenate(records), np.concatenate(labels))


def _find_table_columns(dataset: Manifest) -> list[str]:
    """Lists the columns of the contents that come from a table and hold one value per row."""
    columns = []
    for feature in dataset.options.get("feature_columns", {}):
        column = dataset.contents_columns.get(feature)
        if column and not column.several and column.kind in ("string", "int64", "float"):
            columns.append(column.name)
    return columns


def _numbers(table: Any, column: str) -> Floats:
    """Returns the numbers in a column, with NaN where there are none."""
    if column not in table.column_names:
        return np.full(len(table), np.nan)
    values: Floats = table.column(column).cast(need_pyarrow().float64()).to_numpy()
    return values.copy()


def _find_missing(values: Any) -> NDArray[np.bool_]:
    """Returns which values of a column are null or NaN."""
    need_pyarrow()
    from pyarrow import compute

    is_missing: NDArray[np.bool_] = compute.is_null(values, nan_is_null=True).to_numpy()
    return is_missing


def _flatten(lists: Any) -> Any:
    """Returns the members of all lists as an array."""
    return lists.flatten().to_numpy(zero_copy_only=False)
