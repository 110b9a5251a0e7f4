"""Searches TFRecord files for the records to show."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from beam_tfr.console.display import Progress
from beam_tfr.dataset.conditions import fits_conditions
from beam_tfr.inspection.record_files import InspectedFiles, read_records
from beam_tfr.inspection.records import InspectedRecord
from beam_tfr.records.tfrecords import RecordError
from beam_tfr.schema.errors import UsageError

PROGRESS_RECORDS = 100  # records between two reports of progress
SAMPLE_RECORDS = 100  # records read to find the features of files without a manifest
MAX_KEPT_BYTES = 512 << 20  # 512 MiB of records in memory
_VALUE_BYTES = 40  # maximum memory for a value in addition to its bytes
_DTYPES = {bytes: "bytes", int: "int64", float: "float"}


class FeatureSample:
    """The features of some records, with the types and numbers of their values."""

    def __init__(self) -> None:
        self._dtypes = dict[str, str]()
        self._lengths = dict[str, set[int]]()

    @property
    def is_empty(self) -> bool:
        return not self._lengths

    def add(self, features: Mapping[str, Sequence[Any]]) -> None:
        """Adds the features of a record."""
        for name, values in features.items():
            self._lengths.setdefault(name, set()).add(len(values))
            if values:
                self._dtypes.setdefault(name, _DTYPES[type(values[0])])

    def describe(self) -> dict[str, str]:
        """Returns name -> type and number of values: "int64", "bytes [3]", "float [any]"."""
        return {name: self._describe_feature(name) for name in sorted(self._lengths)}

    def _describe_feature(self, name: str) -> str:
        dtype = self._dtypes.get(name, "")
        lengths = self._lengths[name]
        if lengths == {1}:
            return dtype
        if len(lengths) > 1:
            return f"{dtype} [any]".lstrip()
        return f"{dtype} [{min(lengths)}]".lstrip()


@dataclasses.dataclass
class RecordSearch:
    """A search in files.

    Files in a dataset are read until enough records are found, other files to their end.

    Attributes:
        where: values of features that the records must have.
        start: number of the first record that may be kept.
        most: number of records to keep.
        is_dataset: whether the files belong to a dataset.
        on_progress: called for each file and every hundred records.
        records: the records kept so far.
        num_read: number of records read, or skipped before `start`.
        sample: features of the first records.
        damage: why the remaining records were not read; otherwise empty.
    """

    where: Mapping[str, str]
    start: int
    most: int
    is_dataset: bool
    on_progress: Callable[[Progress], object]
    records: list[InspectedRecord] = dataclasses.field(default_factory=list)
    num_read: int = 0
    sample: FeatureSample = dataclasses.field(default_factory=FeatureSample)
    damage: str = ""
    _bytes_read: int = 0
    _bytes_kept: int = 0

    def run(self, inspected: InspectedFiles) -> None:
        """Reads the files, until one is damaged.

        Raises:
            UsageError: the records to keep are too large.
        """
        try:
            self._read(inspected)
        except RecordError as error:
            self.damage = str(error)
            if error.record == 0 and not self.is_dataset:
                self.damage += "; is it a TFRecord file?"
        except OSError as error:
            self.damage = f"{error.filename or ''}: {error.strerror or error}"

    def _read(self, inspected: InspectedFiles) -> None:
        total = inspected.num_records
        num_files = len(inspected.files)
        last_file = -1
        for index, record in read_records(inspected.files, self.start):
            self.num_read = record.number + 1
            self._bytes_read += len(record.data)
            if record.number % PROGRESS_RECORDS == 0 or index != last_file:
                last_file = index
                self.on_progress(
                    Progress("reading", self.num_read, total, index, num_files, self._bytes_read)
                )
            self._consider(record)
            if self.is_dataset and len(self.records) == self.most:
                return

    def _consider(self, record: InspectedRecord) -> None:
        """Adds a record to the sample if it is one of the first, and keeps it if it is wanted."""
        if record.number < SAMPLE_RECORDS or self.sample.is_empty:
            self.sample.add(record.values)
        is_full = len(self.records) == self.most
        if is_full or record.number < self.start:
            return
        if fits_conditions(record.values, self.where):
            self._keep(record)

    def _keep(self, record: InspectedRecord) -> None:
        self.records.append(record)
        num_values = sum(map(len, record.values.values()))
        self._bytes_kept += len(record.data) + _VALUE_BYTES * num_values
        if self._bytes_kept > MAX_KEPT_BYTES:
            raise UsageError(
                f"the records take more than {MAX_KEPT_BYTES:,} bytes of memory; choose fewer"
            )
