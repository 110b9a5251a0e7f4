"""Reads the exported records of a shard, and parses them."""

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple

from beam_tfr import storage
from beam_tfr.dataset.conditions import rows_that_fit
from beam_tfr.dataset.lookup import RecordLookup
from beam_tfr.dataset.manifest import REPAIR_OR_COPY, Manifest
from beam_tfr.dataset.splits import ShardPart
from beam_tfr.engine import interrupt
from beam_tfr.features.instance_masks import MASKS_KEY
from beam_tfr.features.run_lengths import MOST_RUNS, TooManyRunsError
from beam_tfr.records.examples import parse_example
from beam_tfr.schema.errors import DataError
from beam_tfr.schema.extensions import EXTENSIONS
from beam_tfr.schema.feature_names import ENCODED, FILENAME, FORMAT
from beam_tfr.schema.naming import parse_shard_names


class ExportedSample(NamedTuple):
    """A record.

    Attributes:
        values: feature -> values.
        about: everything except images: `key`, `split`, `class`, `label`, `boxes` and columns.
        image: the encoded image.
        extension: extension of the image's format: "jpg", "png" or "webp".
        files: the exported companions of the image: key -> PNG.
    """

    values: Mapping[str, list[Any]]
    about: dict[str, Any]
    image: bytes
    extension: str
    files: Mapping[str, bytes]


@dataclasses.dataclass
class ExportedShard:
    """A shard of a dataset to export; its records are found using its contents.

    Attributes:
        dataset: the dataset.
        part: the whole shard.
        where: conditions that the records must meet.
        output: folder of the export.
        report: called with the size in bytes of the records that were read.
        keypoints: number of keypoints per object, for formats that need this number.
        shared_stems: stems that several keys have, for formats that name files after keys.
        left_out: columns that the format cannot store, which are not even decoded.
        table: contents of the shard.
        wanted: the numbers of the exported records, in order.

    Raises:
        UsageError: a condition is about a column that does not exist.
        DataError: the contents are missing or damaged, or do not match the file.
    """

    dataset: Manifest
    part: ShardPart
    where: Mapping[str, str]
    output: str = ""
    report: Callable[[int], object] = lambda _: None
    keypoints: int = 0
    shared_stems: frozenset[str] = frozenset()
    left_out: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        self._lookup = RecordLookup(self.dataset, [self.part])
        self.table = self._lookup.open_shard(self.part)
        self.wanted = rows_that_fit(self.dataset, self.table, self.where)

    def records(self) -> Iterator[list[bytes]]:
        """Yields the wanted records in order, several at a time.

        Raises:
            DataError: the shard is damaged, or another dataset has replaced this one.
            OSError: the shard cannot be read.
            InterruptedRunError: Ctrl-C was pressed.
        """
        for begin in range(0, len(self.wanted), storage.READ_AHEAD):
            numbers = self.wanted[begin : begin + storage.READ_AHEAD]
            records = self._lookup.read_records(numbers)
            interrupt.check_interrupt()
            self.report(sum(map(len, records)))
            yield records

    def samples(self) -> Iterator[list[ExportedSample]]:
        """Yields the results of `records`, parsed; raises the same errors, and `DataError`."""
        split = parse_shard_names(self.part.file).split
        keys = self.table.column("key").to_pylist()
        stated_keys = (keys[number] for number in self.wanted)
        for records in self.records():
            samples = list[ExportedSample]()
            num_runs = 0
            for record in records:
                samples.append(self._parse(split, record, next(stated_keys)))
                num_runs += _count_runs(samples[-1].about)
                if num_runs > MOST_RUNS:
                    yield samples
                    samples = []
                    num_runs = 0
            yield samples

    def _parse(self, split: str, record: bytes, stated_key: str | None) -> ExportedSample:
        """Parses a record, whose key must be that of the contents unless these omit it."""
        values = dict[str, list[Any]]()
        try:
            values = parse_example(record)
            sample = sample_of(self.dataset, split, values, self.left_out)
        except TooManyRunsError as error:
            key = values[FILENAME][0].decode("utf-8", "backslashreplace")
            raise DataError(
                f"{self.part.file}: the masks of {key} have {error}: use `format=tfds`, which "
                "exports them as stored"
            ) from None
        except (ValueError, LookupError, AttributeError) as error:
            raise DataError(
                f"{self.part.file}: a record does not match the manifest: {error}; {REPAIR_OR_COPY}"
            ) from None
        if stated_key not in (None, sample.about["key"]):  # names were checked with this key
            raise DataError(
                f"{self.part.file}: the record listed as {stated_key} has a different key; "
                f"{REPAIR_OR_COPY}"
            )
        return sample


def _count_runs(about: Mapping[str, Any]) -> int:
    """Counts the run lengths in the masks of a record."""
    return sum(len(mask["counts"]) for mask in about.get(MASKS_KEY, ()))


def sample_of(
    dataset: Manifest,
    split: str,
    values: dict[str, list[Any]],
    left_out: Collection[str] = (),
) -> ExportedSample:
    """Returns the sample for a parsed record, without the columns `left_out`."""
    features = dataset.feature_kinds
    key = values[FILENAME][0].decode("utf-8", "backslashreplace")
    about = {"key": key, "split": split, **features.export(values, left_out)}
    (image,) = values[ENCODED]
    (form,) = values[FORMAT]
    extension = EXTENSIONS[form.decode()][0]
    return ExportedSample(values, about, image, extension, features.export_files(values))
