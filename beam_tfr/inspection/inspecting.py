"""Inspects a dataset or TFRecord files: features, counts and some records."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from beam_tfr import storage
from beam_tfr.console.display import Progress
from beam_tfr.console.terminal import Printable, counted, printable
from beam_tfr.dataset.class_samples import choose_of_each_class
from beam_tfr.dataset.conditions import Where, features_named, parse_conditions
from beam_tfr.dataset.history import describe_updates
from beam_tfr.dataset.lookup import RecordLookup
from beam_tfr.dataset.manifest import Manifest, check_shard_files
from beam_tfr.dataset.reader_arguments import check_integer
from beam_tfr.dataset.splits import ShardPart, choose_splits
from beam_tfr.inspection import pictures, sheets
from beam_tfr.inspection.record_files import find_files
from beam_tfr.inspection.records import InspectedRecord, describe_record, read_records
from beam_tfr.inspection.searching import RecordSearch
from beam_tfr.schema.arguments import public
from beam_tfr.schema.dataset import sort_splits
from beam_tfr.schema.errors import DataError, NotInstalledError, UsageError

if TYPE_CHECKING:
    from PIL.Image import Image

TEXT_RECORDS = 3  # records shown as text
SHEET_RECORDS = 40  # records on a contact sheet
_SHOWN_CLASSES = 20  # classes shown for each split
_SHOWN_FEATURES = 20  # features named in an error


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Inspection(Printable):
    """The contents of a dataset or of TFRecord files.

    Attributes:
        path: path of the dataset, the file, or a pattern of files.
        manifest: manifest of the dataset; None for files.
        features: name -> dtype and shape, as text: "int64", "bytes [3]", "float [any]".
        num_files: number of TFRecord files.
        num_records: number of records in all files; in damaged files, only those before the damage.
        records: the requested records.
        split: the requested split; None for all.
        problem: describes damage, or the missing parts of an incomplete dataset; otherwise empty.
        is_chosen: whether `record` or `where` chose the records.
    """

    path: str
    manifest: Manifest | None
    features: Mapping[str, str]
    num_files: int
    num_records: int
    records: tuple[InspectedRecord, ...]
    split: str | None = None
    problem: str = ""
    is_chosen: bool = False

    def contact_sheet(self, columns: int = sheets.COLUMNS, *, names: bool = False) -> Image:
        """Draws a grid of `records` thumbnails, with some of each class.

        Draws the records themselves if `record` or `where` chose them, or if the files are not a
        dataset with contents.

        Args:
            columns: thumbnails per row.
            names: whether to show the key of each image below its number and class.
        """
        return sheets.contact_sheet(
            self.sheet_records,
            columns=check_integer("columns", columns, 1),
            names=names,
            dataset=self.manifest,
        )

    @property
    def sheet_records(self) -> tuple[InspectedRecord, ...]:
        """The records that `contact_sheet` shows."""
        records, _ = self._sheet
        return records

    @property
    def sheet_note(self) -> str:
        """A note that explains why `contact_sheet` lacks some of the classes, or ""."""
        _, note = self._sheet
        return note

    @functools.cached_property
    def _sheet(self) -> tuple[tuple[InspectedRecord, ...], str]:
        """The records of the contact sheet, and a note about them."""
        if self.manifest is None or self.is_chosen or self.problem:
            return self.records, ""
        number = len(self.records)
        try:
            return tuple(_read_of_each_class(self.manifest, self.split, number)), ""
        except (DataError, NotInstalledError) as error:
            return self.records, f"these are the first records, not some of each class: {error}"

    def lines(self, most: int = TEXT_RECORDS) -> Iterator[str]:
        """Yields the inspection as lines, with a maximum number of records."""
        check_integer("most", most, 0)
        records = counted(self.num_records, "record")
        yield f"{self.path}: {records} in {counted(self.num_files, 'file')}"
        if self.manifest:
            yield from self._dataset_lines(self.manifest)
        if self.features:
            yield "features:"
        for name, description in self.features.items():
            yield f"  {_inline(name):24} {description}"
        for record in self.records[:most]:
            yield (
                f"record {record.number}: {record.file}, byte {record.offset:,}, "
                f"{len(record.data):,} bytes"
            )
            for name, text in describe_record(record):
                yield f"  {_inline(name):24} {text}"
        yield from self.problem_lines()

    def _dataset_lines(self, manifest: Manifest) -> Iterator[str]:
        """Yields a line for each split, with its classes, and for each of the latest updates."""
        names = choose_splits(manifest, self.split, sort_splits(manifest.splits))
        for name in names:
            split = manifest.splits[name]
            line = f"  {name}: {counted(split.num_examples, 'record')}"
            class_counts = itertools.islice(split.class_counts.items(), _SHOWN_CLASSES)
            classes = ", ".join(f"{class_name} {count:,}" for class_name, count in class_counts)
            if classes:
                line += f" ({classes})"
            yield line
        for update in describe_updates(manifest.folder):
            yield f"  {update}"

    def problem_lines(self) -> list[str]:
        """Yields a line about the problem, if there is one."""
        return [f"problem: {self.problem}"] if self.problem else []

    def _repr_html_(self) -> str:
        """Returns the lines and the thumbnails, for notebooks."""
        html = super()._repr_html_()
        if self.records:
            html += pictures.html_image(self.contact_sheet())
        return html


@public
def inspect(
    path: str | os.PathLike[str],
    *,
    split: str | None = None,
    record: int | None = None,
    where: Where = None,
    records: int | None = None,
    progress: Callable[[Progress], object] | None = None,
) -> Inspection:
    """Inspects a dataset or any TFRecord files, uncompressed or gzip.

    Files without a manifest are read completely to count their records; the first 100 determine the
    features. In a dataset, only the shard with `record` is opened, and read from its beginning:
    `Records` is faster. `where` reads until enough records are found; `Records.where` finds rare
    records faster.

    Args:
        path: folder of a dataset, a file, or a pattern of files (`train.tfrecord-*`), local or
            gs://.
        split: reads only this split of a dataset.
        record: number of the first record to return, from 0, counted across all files.
        where: returns only records with this value of a feature: {"label": "hat"} or "label=hat".
            The last part of the feature's name is enough.
        records: number of records to return; by default 1 if `record` is set, else 40.
        progress: called for each file and every hundred records, with `done`, `total`, `shards`
            (files), `num_shards` and `num_bytes`.

    Raises:
        UsageError: there is no such split, record or feature, or the requested records take more
            than 512 MiB.
        NotFoundError: there is nothing at the path; the error is also a FileNotFoundError.
        DataError: the folder holds neither a dataset nor TFRecord files.
    """
    location = storage.check_path(path, option="path")
    start, most = _choose_range(record, records)
    conditions = parse_conditions(where)
    inspected = find_files(location, split)
    dataset = inspected.manifest
    if split is not None and dataset is None:
        raise UsageError("needs a complete dataset", option="split", value=split)
    problems = [inspected.problem]
    if dataset is not None:
        _check_known(dataset.features, conditions)
        problems.append(_find_wrong_shard(dataset))
    search = RecordSearch(conditions, start, most, dataset is not None, progress or _ignore)
    search.run(inspected)
    problems.append(search.damage)
    features = search.sample.describe()
    num_records = search.num_read
    if dataset is not None:
        features = _describe_features(dataset)
        num_records = inspected.num_records
    if record is not None and record >= num_records and not search.damage:
        raise UsageError(
            f"there are {num_records:,} records, numbered from 0", option="record", value=record
        )
    if features and not search.records:
        _check_known(features, conditions)
    return Inspection(
        path=location,
        manifest=dataset,
        features=features,
        num_files=len(inspected.files),
        num_records=num_records,
        records=tuple(search.records),
        split=split,
        problem="; ".join(filter(None, problems)),
        is_chosen=record is not None or bool(conditions),
    )


def _read_of_each_class(
    dataset: Manifest, split: str | None, number: int
) -> Iterator[InspectedRecord]:
    """Reads the given number of records, including some of each class.

    Raises:
        DataError: contents or records are missing or damaged.
        NotInstalledError: pyarrow is missing.
    """
    names = choose_splits(dataset, split, sort_splits(dataset.splits))
    shards = [shard for name in names for shard in dataset.splits[name].shards]
    chosen = choose_of_each_class(dataset, shards, number)
    numbers = [record for records in chosen.values() for record in records]
    lookup = RecordLookup(dataset, [ShardPart.whole(dataset.folder, shard) for shard in shards])
    return read_records(lookup, numbers)


def _choose_range(record: int | None, records: int | None) -> tuple[int, int]:
    """Returns the number of the first record to return, and the maximum number of records."""
    if record is not None:
        return check_integer("record", record, 0, bits=63), 1
    if records is None:
        return 0, SHEET_RECORDS
    return 0, check_integer("records", records, 1)


def _ignore(progress: Progress) -> None:
    """Shows no progress."""


def _find_wrong_shard(dataset: Manifest) -> str:
    """Returns what is wrong with the first shard that is missing or has the wrong size, if any."""
    try:
        check_shard_files(dataset, dataset.splits.values())
    except DataError as error:
        return str(error)
    return ""


def _check_known(features: Iterable[str], conditions: Mapping[str, str]) -> None:
    """Checks that the features of conditions, or the ends of their names, exist.

    Raises:
        UsageError: a feature does not exist.
    """
    for name in conditions:
        if not features_named(features, name):
            names = ", ".join(itertools.islice(sorted(features), _SHOWN_FEATURES))
            raise UsageError(f"unknown feature; known are {names}", option="where", value=name)


def _describe_features(dataset: Manifest) -> dict[str, str]:
    """Returns name -> type and shape as text, sorted."""
    features = {}
    for name, feature in sorted(dataset.features.items()):
        features[name] = feature["dtype"]
        if feature["shape"]:
            features[name] += f" {feature['shape']}".replace("-1", "any")
    return features


def _inline(name: str) -> str:
    return printable(name)[:80]
