"""`inspect`: the features of a dataset or of TFRecord files, their counts, and some records."""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from beam_tfr import storage
from beam_tfr.console.display import Progress
from beam_tfr.console.terminal import Printable, counted, printable
from beam_tfr.dataset.conditions import features_named, fits_conditions, parse_conditions
from beam_tfr.dataset.history import describe_updates
from beam_tfr.dataset.manifest import Manifest, check_shard_files
from beam_tfr.dataset.reader_arguments import check_integer
from beam_tfr.dataset.splits import ShardPart
from beam_tfr.inspection import pictures
from beam_tfr.inspection.records import StoredRecord, describe_record, find_files, read
from beam_tfr.records.tfrecords import RecordError
from beam_tfr.schema.dataset import sort_splits
from beam_tfr.schema.errors import DataError, UsageError, without_traceback

if TYPE_CHECKING:
    from PIL.Image import Image

RECORDS = 3  # shown as text
SHEET = 40  # records of a contact sheet
PROGRESS_RECORDS = 100  # between two reports of progress
SAMPLE = 100  # records of files without a manifest, which show their features
_KINDS = {bytes: "bytes", int: "int64", float: "float"}
MAX_KEPT_BYTES = 512 << 20  # 512 MiB of records in memory
Report = Callable[[Progress], object]


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Inspection(Printable):
    """The contents of a dataset or of TFRecord files.

    Attributes:
        path: path of the dataset, the file, or a pattern of files.
        manifest: manifest of the dataset; None for files.
        features: name -> dtype and shape, as text: "int64", "bytes [3]", "float [any]".
        num_files: TFRecord files.
        num_records: records in all files; in damaged ones, those before the damage.
        records: the requested records.
        split: the split that was asked for; None for all.
        problem: describes damage, or what is missing to a complete dataset; empty if there is
            nothing.
    """

    path: str
    manifest: Manifest | None
    features: Mapping[str, str]
    num_files: int
    num_records: int
    records: tuple[StoredRecord, ...]
    split: str | None = None
    problem: str = ""

    def contact_sheet(self, columns: int = pictures.COLUMNS) -> Image:
        """The records as a grid of thumbnails, each with its number and class, `columns` in a
        row."""
        return pictures.contact_sheet(self.records, columns=check_integer("columns", columns, 1))

    def lines(self, most: int = RECORDS) -> Iterator[str]:
        """Yields the inspection as lines, with at most so many records."""
        splits = self.manifest.splits if self.manifest else {}
        yield f"{self.path}: {counted(self.num_records, 'record')} in {counted(self.num_files, 'file')}"
        for name in [self.split] if self.split else sort_splits(splits):
            first_classes = itertools.islice(splits[name].class_counts.items(), 20)
            classes = ", ".join(f"{label} {count:,}" for label, count in first_classes)
            yield f"  {name}: {counted(splits[name].num_examples, 'record')}{classes and f' ({classes})'}"
        if self.manifest:
            yield from (f"  {line}" for line in describe_updates(self.manifest.folder))
        if self.features:
            yield "features:"
        for name, description in self.features.items():
            yield f"  {_inline(name):24} {description}"
        for record in self.records[:most]:
            yield f"record {record.number}: {record.file}, byte {record.offset:,}, {len(record.data):,} bytes"
            yield from (f"  {_inline(name):24} {shown}" for name, shown in describe_record(record))
        yield from self.problem_lines()

    def problem_lines(self) -> list[str]:
        """A line on the problem, if there is one."""
        return [f"problem: {self.problem}"] if self.problem else []

    def _repr_html_(self) -> str:
        """The lines and the thumbnails, for notebooks."""
        return super()._repr_html_() + (
            pictures.html_image(self.contact_sheet()) if self.records else ""
        )


@without_traceback
def inspect(
    path: str | os.PathLike[str],
    *,
    split: str | None = None,
    record: int | None = None,
    where: str | Mapping[str, object] | None = None,
    records: int | None = None,
    progress: Report | None = None,
) -> Inspection:
    """Inspects a dataset or any TFRecord files, uncompressed or gzip.

    Files without a manifest are read completely to count their records; the first 100 determine the
    features. In a dataset, only the shard of `record` is opened, and read from its beginning:
    `Records` is faster. `where` reads until enough are found; `Records.where` finds rare ones
    faster.

    Args:
        path: folder of a dataset, a file, or a pattern of files ("train.tfrecord-*"), local or
            gs://.
        split: reads only this split of a dataset.
        record: number of the first record to return, from 0, over all files that are read.
        where: returns only records with this value of a feature: {"label": "hat"} or "label=hat".
            The last part of the feature's name is enough.
        records: number of records to return; 1 if `record` is given. None: the first 40.
        progress: called for each file and every hundred records, with `done`, `total`, `shards`
            (files), `num_shards` and `num_bytes`.

    Raises:
        UsageError: there is no such split, record or feature, or the records asked for take more
            than 512 MiB.
        NotFoundError: there is nothing at the path; also a FileNotFoundError.
        DataError: the folder holds neither a dataset nor TFRecord files.
    """
    place = storage.check_path(path, option="path")
    start = 0 if record is None else check_integer("record", record, 0, bits=63)
    if record is not None:
        most = 1
    else:
        most = SHEET if records is None else check_integer("records", records, 1)
    wanted = parse_conditions(where)
    dataset, files, problem = find_files(place, split)
    if split is not None and dataset is None:
        raise UsageError("needs a complete dataset", option="split", value=split)
    if dataset is not None:
        _check_known(dataset.features, wanted)
        try:
            check_shard_files(dataset, dataset.splits.values())
        except DataError as error:
            problem = str(error)
    report = progress or (lambda _: None)
    found, features, done, damage = _search(
        files, wanted, start, most, report, is_dataset=dataset is not None
    )
    number = sum(file.records for file in files) if dataset else done
    if record is not None and record >= number and not damage:
        raise UsageError(
            f"there are {number:,} records, numbered from 0", option="record", value=record
        )
    if features and not found:
        _check_known(features, wanted)
    return Inspection(
        path=place,
        manifest=dataset,
        features=_features_of(dataset) if dataset else features,
        num_files=len(files),
        num_records=number,
        records=tuple(found),
        split=split,
        problem="; ".join(filter(None, (problem, damage))),
    )


def _search(
    files: Sequence[ShardPart],
    where: Mapping[str, str],
    start: int,
    most: int,
    progress: Report,
    *,
    is_dataset: bool,
) -> tuple[list[StoredRecord], dict[str, str], int, str]:
    """Reads all records of files without a manifest, and of a dataset until enough are found.

    Returns:
        The records that are wanted, the features of the first ones, the number of records read, and
        what is wrong.
    """
    kept = list[StoredRecord]()
    done = 0
    num_bytes = 0
    kept_bytes = 0
    current = -1
    problem = ""
    features: dict[str, tuple[str, set[int]]] = {}  # dtype and lengths
    total = sum(file.records for file in files)
    try:
        for index, record in read(files, start):
            done = record.number + 1
            num_bytes = num_bytes + len(record.data)
            if record.number % PROGRESS_RECORDS == 0 or index != current:
                current = index
                progress(Progress("reading", done, total, index, len(files), num_bytes))
            if record.number < SAMPLE or not features:
                for name, values in record.values.items():
                    dtype, lengths = features.get(name, ("", set()))
                    features[name] = (
                        dtype or (_KINDS[type(values[0])] if values else ""),
                        lengths | {len(values)},
                    )
            if (
                len(kept) < most
                and record.number >= start
                and fits_conditions(record.values, where)
            ):
                kept.append(record)
                kept_bytes += len(record.data)
                if kept_bytes > MAX_KEPT_BYTES:
                    raise UsageError(
                        f"the records have more than {MAX_KEPT_BYTES:,} bytes; choose fewer"
                    )
                if is_dataset and len(kept) == most:
                    break
    except RecordError as error:
        if error.record == 0 and not is_dataset:
            problem = f"{error}; is it a TFRecord file?"
        else:
            problem = str(error)
    except OSError as error:
        problem = f"{error.filename or ''}: {error.strerror or error}"
    described = {}
    for name, (dtype, lengths) in sorted(features.items()):
        shape = f" [{'any' if len(lengths) > 1 else min(lengths)}]"
        described[name] = f"{dtype}{'' if lengths == {1} else shape}".lstrip()
    return kept, described, done, problem


def _check_known(features: Iterable[str], where: Mapping[str, str]) -> None:
    """Checks that some features, or the ends of their names, exist.

    Raises:
        UsageError: one does not.
    """
    for name in where:
        if not features_named(features, name):
            known = ", ".join(itertools.islice(sorted(features), 20))
            raise UsageError(f"unknown feature; known are {known}", option="where", value=name)


def _features_of(dataset: Manifest) -> dict[str, str]:
    return {
        name: feature["dtype"]
        + (f" {feature['shape']}".replace("-1", "any") if feature["shape"] else "")
        for name, feature in sorted(dataset.features.items())
    }


def _inline(name: str) -> str:
    return printable(name).replace("\n", "\\n")[:80]
