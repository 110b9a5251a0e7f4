"""ReadImages, for an update: takes records from the existing dataset instead of reading their
sources."""

from collections.abc import Iterable, Iterator

import google_crc32c

from beam_tfr import storage
from beam_tfr.dataset.base import BaseDataset, RecordBoxes
from beam_tfr.output.known_records import KnownRecord, KnownRecords
from beam_tfr.records import examples
from beam_tfr.records.contents import MADE
from beam_tfr.schema.feature_names import ENCODED
from beam_tfr.schema.features import features_of
from beam_tfr.schema.items import Copied, ImageRef, Known, KnownState, Record, ShardWork
from beam_tfr.transforms.values import in_sample

AT_ONCE = 256
AHEAD_BYTES = 8 << 20
CACHED_BYTES = 1 << 20  # records to read at a time


class Copier:
    """Copies records of a dataset.

    Args:
        base: the dataset, whose image options are those of the update too.
    """

    def __init__(self, base: BaseDataset) -> None:
        self._copies = KnownRecords(base)
        self._rows_stay = base.rows_stay
        self._boxes = base.boxes
        self._ahead = (
            AHEAD_BYTES if storage.is_gcs(base.folder) else CACHED_BYTES
        )  # the processor's cache holds these
        dataset = base.read_manifest()
        self._at_once = AT_ONCE
        self._encoding = dataset.image_options.encoding
        self._names = dataset.names
        images = {name: dataset.options.get(name) for name in ("encoding", "damaged")}
        self._own = frozenset(features_of(images, labelled=False))

    def stays(self, work: ShardWork) -> set[int]:
        """The positions of the images of a shard whose records stay as they are, whatever their
        neighbors do.

        With `encoding=keep`, the statistics of an image depend on its neighbors.
        """
        if not self._rows_stay or self._encoding == "keep" or self._boxes:
            return set()
        return {
            at
            for at, known in work.known.items()
            if known.state is KnownState.SAME and not known.reject
        }

    def unchanged(self, work: ShardWork, begin: int, end: int) -> Iterator[Copied]:
        """Yields the records of images of a shard, all of which stay as they are.

        Raises:
            RecordError: one is damaged.
        """
        while begin < end:
            numbers = [
                work.known[at].number for at in range(begin, min(begin + self._at_once, end))
            ]
            frames, sizes, rows, sums = self._copies.read_frames(numbers)
            self._pace(len(frames), len(sizes))
            refs = work.refs[begin : begin + len(sizes)]
            yield Copied(refs, frames, sizes, rows, sums)
            begin += len(sizes)

    def copies(self, work: ShardWork, positions: Iterable[int]) -> Iterator[KnownRecord | None]:
        """Yields the record of each known image of a shard whose source did not change, in order;
        None if damaged."""
        found = [known for at in positions if (known := work.known.get(at))]
        numbers = [
            known.number
            for known in found
            if not known.reject and known.state is not KnownState.CHANGED
        ]
        while numbers:
            at_once = self._at_once  # other threads may set it
            batch = numbers[:at_once]
            numbers = numbers[at_once:]
            copies = self._copies.read_records(batch)
            self._pace(sum(len(copy.serialized) for copy in copies if copy), len(copies))
            yield from copies

    def _pace(self, num_bytes: int, records: int) -> None:
        """Sets how many records to read next, given the last ones."""
        self._at_once = max(1, min(AT_ONCE, self._ahead * records // (num_bytes + 1)))

    def can_copy(self, copy: KnownRecord, work: ShardWork, position: int) -> bool:
        """Whether a record and its statistics are those that a conversion would make.

        With `encoding=keep`, those of images that come into the sample for statistics, or leave it,
        are not: see `ResizeImages`. What changes of boxes cannot be seen in a record.
        """
        if self._boxes is RecordBoxes.MAY_CHANGE and not work.known[position].state.same_reference:
            return False
        return self._encoding != "keep" or bool(copy.sums) == in_sample(work.shard, position)

    def record(self, copy: KnownRecord, ref: ImageRef, known: Known) -> Record:
        """The record for a reference to the same source, with what the counts and the contents take
        from it."""
        serialized = copy.serialized
        row = copy.row
        if not known.state.same_reference and self._boxes:
            serialized = examples.with_label_ids(serialized, ref, self._names)
        elif not known.state.same_reference:
            serialized = examples.with_names(serialized, ref, self._names, self._own)
        label_ids = (
            examples.parse_example(serialized).get(self._names.label) if self._boxes else None
        )
        if self._rows_stay and serialized == copy.serialized:
            return Record(
                serialized, None, {}, row, copied=True, sums=copy.sums, label_ids=label_ids
            )
        cells = {name: row[name] for name in MADE if name in row}
        return Record(
            serialized, None, None, cells, copied=True, sums=copy.sums, label_ids=label_ids
        )


def is_source(data: bytes, copy: KnownRecord) -> bool:
    """Whether these are the bytes that a record was made from, by size and CRC-32C."""
    return (len(data), google_crc32c.value(data)) == (
        copy.row["source_bytes"],
        copy.row["source_crc32c"],
    )


def stored_source(copy: KnownRecord) -> bytes | None:
    """The source, if the record holds its very bytes."""
    values = examples.parse_example(copy.serialized).get(ENCODED)
    return values[0] if values and is_source(values[0], copy) else None
