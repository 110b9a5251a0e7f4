"""Copies records of the dataset being updated, instead of reading their sources."""

from collections.abc import Iterable, Iterator, Sequence

import google_crc32c

from beam_tfr import storage
from beam_tfr.dataset.base import BaseDataset, RecordBoxes
from beam_tfr.features.features_dict import FeaturesDict
from beam_tfr.output.known_records import KnownRecord, KnownRecords
from beam_tfr.records import examples
from beam_tfr.records.contents import MADE
from beam_tfr.schema.errors import DataError
from beam_tfr.schema.feature_names import ENCODED
from beam_tfr.schema.items import (
    Change,
    CopiedRecords,
    CopiedRow,
    ImageRef,
    KnownImage,
    Record,
    ShardWork,
)
from beam_tfr.schema.plan import Shard
from beam_tfr.transforms.values import in_sample

AT_ONCE = 256
AHEAD_BYTES = 8 << 20  # 8 MiB of records to read in one go from gs://
CACHED_BYTES = 1 << 20  # 1 MiB of records from a disk, which fits into the processor's cache


class Copier:
    """Copies records of a dataset.

    Args:
        base: the dataset; to copy its records, the update must have the same image options.
    """

    def __init__(self, base: BaseDataset) -> None:
        dataset = base.read_manifest()
        self._records = KnownRecords(base)
        self._rows_stay = base.rows_stay
        self._copies = base.copies
        self._boxes = base.boxes
        self._renames = dict(base.renames)
        self._is_sampled = dataset.image_options.encoding == "keep"
        self._names = dataset.names
        images = {name: dataset.options.get(name) for name in ("encoding", "damaged")}
        self._features_of_images = frozenset(FeaturesDict.from_options(images).specs)
        self._bytes_at_once = AHEAD_BYTES if storage.is_remote(base.folder) else CACHED_BYTES
        self._at_once = AT_ONCE

    def find_stable(self, work: ShardWork) -> set[int]:
        """Finds the positions of images whose records stay, whatever happens to their neighbors.

        With `encoding=keep`, the statistics of an image depend on its neighbors.
        """
        if not self._rows_stay or self._is_sampled or self._boxes:
            return set()
        return {position for position, image in work.known_images.items() if image.is_stable}

    def copy_stretch(self, work: ShardWork, begin: int, end: int) -> Iterator[CopiedRecords]:
        """Yields the records between two positions of a shard; all of these records stay.

        Raises:
            RecordError: a record is damaged.
        """
        while begin < end:
            positions = range(begin, min(begin + self._at_once, end))
            numbers = [work.known_images[position].number for position in positions]
            frames, sizes, rows, sums = self._records.read_frames(numbers)
            self._pace(len(frames), len(sizes))
            refs = work.refs[begin : begin + len(sizes)]
            yield CopiedRecords(refs, frames, sizes, rows, sums)
            begin += len(sizes)

    def read_records(
        self, known_images: Iterable[KnownImage | None]
    ) -> Iterator[KnownRecord | None]:
        """Reads records of images that may be copied, in order; yields None for damaged records."""
        numbers = [image.number for image in known_images if image and image.may_be_copied]
        while numbers:
            at_once = self._at_once  # other threads may change the attribute
            records = self._read_some(numbers[:at_once])
            numbers = numbers[at_once:]
            sizes = [len(record.serialized) for record in records if record]
            self._pace(sum(sizes), len(records))
            yield from records

    def _read_some(self, numbers: Sequence[int]) -> list[KnownRecord | None]:
        """Reads some records; None stands for one that is damaged, or missing but not needed."""
        try:
            return self._records.read_records(numbers)
        except (DataError, OSError):
            if self._copies:
                raise
            return [None] * len(numbers)

    def _pace(self, num_bytes: int, records: int) -> None:
        """Sets how many records to read next, based on the size of the last records."""
        at_once = self._bytes_at_once * records // (num_bytes + 1)
        self._at_once = max(1, min(AT_ONCE, at_once))

    def can_copy(self, record: KnownRecord, image: KnownImage, shard: Shard, position: int) -> bool:
        """Whether a conversion would make the same record and statistics.

        With `encoding=keep`, it would not if an image enters or leaves the sample for statistics:
        see `ResizeImages`. Nor would it if boxes may have changed: a record does not show how its
        boxes changed.
        """
        if self._boxes is RecordBoxes.MAY_CHANGE and not image.state.same_reference:
            return False
        if not self._is_sampled:
            return True
        return bool(record.sums) == in_sample(shard, position)

    def copy_record(
        self, record: KnownRecord, ref: ImageRef, image: KnownImage
    ) -> tuple[Record, Change]:
        """Copies a record for a reference to the same source; also returns how the record changed.

        The counts and the contents are computed from the copy.
        """
        stored = record.serialized
        renamed = stored
        if self._renames:
            renamed = examples.with_renamed_classes(stored, self._names, self._renames)
        serialized = renamed
        if not image.state.same_reference:
            serialized = self._relabel(renamed, ref)
        change = Change.KEPT
        if serialized != renamed:
            change = Change.RELABELLED
        elif serialized != stored:
            change = Change.RENAMED
        label_ids = None
        if self._boxes:
            label_ids = examples.parse_example(serialized).get(self._names.label)
        if self._rows_stay and change is Change.KEPT:
            values = CopiedRow(record.row)
            made = {}
        else:
            values = None
            made = {name: record.row[name] for name in record.row.keys() & MADE}
        copy = Record(
            serialized, None, values, made, copied=True, sums=record.sums, label_ids=label_ids
        )
        return copy, change

    def _relabel(self, serialized: bytes, ref: ImageRef) -> bytes:
        """Returns a record with the labels and columns of a reference."""
        if self._boxes:
            return examples.with_label_ids(serialized, ref, self._names)
        return examples.with_names(serialized, ref, self._names, self._features_of_images)

    def change_of(self, image: KnownImage) -> Change:
        """Returns how the new record differs from the old, for an image with the same source."""
        if self._boxes and not image.state.same_reference:
            return Change.RELABELLED
        return Change.KEPT


def is_source(data: bytes, record: KnownRecord) -> bool:
    """Whether a record was made from these bytes, judging by their size and CRC-32C."""
    crc32c = google_crc32c.value(data)
    return (len(data), crc32c) == (record.row["source_bytes"], record.row["source_crc32c"])


def stored_source(record: KnownRecord) -> bytes | None:
    """Returns the source of a record if the record holds its exact bytes, otherwise None."""
    encoded = examples.parse_example(record.serialized).get(ENCODED)
    if encoded and is_source(encoded[0], record):
        return encoded[0]  # type: ignore[no-any-return]
    return None
