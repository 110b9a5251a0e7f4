"""ReadImages, for an update: takes records from the dataset that is there instead of reading their sources."""

from __future__ import annotations

import collections
import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import google_crc32c
import numpy as np

from beam_tfr import storage
from beam_tfr.dataset.base import Base
from beam_tfr.images import geometry
from beam_tfr.options import ImageOptions
from beam_tfr.output.known import Copies, Copy
from beam_tfr.records import examples
from beam_tfr.records.contents import MADE
from beam_tfr.schema.features import ENCODED, IMAGE_ENCODINGS, features_of, names_of
from beam_tfr.schema.items import Copied, Image, ImageRef, Known, Record, ShardWork, label_ids_of
from beam_tfr.schema.plan import Counts, size_bucket
from beam_tfr.transforms.values import in_sample

SAME = ("same", "reread")  # states of images with the same reference
# Columns of the contents that are fields of an `Image`.
_OF_IMAGE = ("format", "height", "width", "channels", "colorspace", "source_height", "source_width", "source_format")
AT_ONCE, AHEAD_BYTES, CACHED_BYTES = 256, 8 << 20, 1 << 20  # records to read at a time


class Copier:
    """Copies records of a dataset.

    Args:
        base: the dataset.
        options: its image options, which are those of the update too.
    """

    def __init__(self, base: Base, options: ImageOptions) -> None:
        self._copies, self._options, self._rows_stay = Copies(base), options, base.rows_stay
        self._boxes = base.boxes
        self._ahead = AHEAD_BYTES if storage.is_gcs(base.folder) else CACHED_BYTES  # the processor's cache holds these
        self._names, self._at_once = names_of(options.encoding), AT_ONCE
        self._own = frozenset(features_of({"encoding": options.encoding, "damaged": options.damaged}, labelled=False))

    def stays(self, work: ShardWork) -> set[int]:
        """The positions of the images of a shard whose records stay as they are, whatever their neighbors do.

        With `encoding=keep`, the statistics of an image depend on its neighbors.
        """
        if not self._rows_stay or self._options.encoding == "keep" or self._boxes:
            return set()
        return {at for at, known in work.known.items() if known.state == "same" and not known.reject}

    def unchanged(self, work: ShardWork, begin: int, end: int) -> Iterator[Copied]:
        """Yields the records of images of a shard, all of which stay as they are.

        Raises:
            RecordError: one is damaged.
        """
        while begin < end:
            numbers = [work.known[at].number for at in range(begin, min(begin + self._at_once, end))]
            frames, sizes, rows, sums = self._copies.read_as_they_are(numbers)
            self._pace(len(frames), len(sizes))
            refs = work.refs[begin : begin + len(sizes)]
            yield Copied(refs, frames, sizes, rows, sums, self._counts(refs, rows, sums))
            begin += len(sizes)

    def _counts(self, refs: Sequence[bytes], rows: Any, sums: Sequence[bytes]) -> Counts:
        counts = Counts(num_examples=len(refs), before={"kept": len(refs)})
        label_ids = collections.Counter(itertools.chain.from_iterable(map(label_ids_of, refs)))
        counts.class_counts.update({label_id: number for label_id, number in label_ids.items() if label_id >= 0})
        if self._options.encoding not in IMAGE_ENCODINGS:
            return counts
        kinds = ",".join(rows["adjusted"].to_pylist()).split(",")
        counts.adjusted.update(collections.Counter(filter(None, kinds)))
        counts.pixels = int(rows["height"].to_numpy() @ rows["width"].to_numpy())
        totals = np.fromstring(b" ".join(sums), np.int64, sep=" ").reshape(len(sums), -1).sum(axis=0).tolist()
        counts.channel_sums, counts.channel_squares = totals[: len(totals) // 2], totals[len(totals) // 2 :]
        sides = zip(*(rows[name].to_numpy().tolist() for name in ("source_height", "source_width")), strict=True)
        for (height, width), number in collections.Counter(sides).items():
            bucket = size_bucket(height, width)
            counts.source_sizes[bucket] = counts.source_sizes.get(bucket, 0) + number
            counts.cut_ppm += number * _cut_ppm(height, width, self._options.image_size, self._options.resize)
        return counts

    def copies(self, work: ShardWork, positions: Iterable[int]) -> Iterator[Copy | None]:
        """Yields the record of each known image of a shard whose source did not change, in order; None if damaged."""
        found = [known for at in positions if (known := work.known.get(at))]
        numbers = [known.number for known in found if not known.reject and known.state != "changed"]
        while numbers:
            at_once = self._at_once  # other threads may set it
            some, numbers = numbers[:at_once], numbers[at_once:]
            copies = self._copies.read(some)
            self._pace(sum(len(copy.serialized) for copy in copies if copy), len(copies))
            yield from copies

    def _pace(self, num_bytes: int, records: int) -> None:
        """Sets how many records to read next, given the last ones."""
        self._at_once = max(1, min(AT_ONCE, self._ahead * records // (num_bytes + 1)))

    def can_copy(self, copy: Copy, work: ShardWork, position: int) -> bool:
        """Whether a record and its statistics are those that a conversion would make.

        With `encoding=keep`, those of images that come into the sample for statistics, or leave it, are not: see
        `ResizeImages`. What changes of boxes cannot be seen in a record.
        """
        if self._boxes == "may change" and work.known[position].state not in SAME:
            return False
        return self._options.encoding != "keep" or bool(copy.sums) == in_sample(work.shard, position)

    def record(self, copy: Copy, ref: ImageRef, known: Known) -> Record:
        """The record for a reference to the same source, with what the counts and the contents take from it."""
        image = self._image(copy) if self._options.encoding in IMAGE_ENCODINGS else None
        serialized, row = copy.serialized, copy.row
        if known.state not in SAME and self._boxes:
            serialized = examples.with_label_ids(serialized, ref, self._names)
        elif known.state not in SAME:
            serialized = examples.with_names(serialized, ref, self._names, self._own)
        label_ids = examples.parse_example(serialized).get(self._names.label) if self._boxes else None
        if self._rows_stay and serialized == copy.serialized:
            return Record(serialized, image, {}, row, copied=True, label_ids=label_ids)
        made = {name: row[name] for name in MADE if name in row}
        return Record(serialized, image, None, made, copied=True, label_ids=label_ids)

    def _image(self, copy: Copy) -> Image:
        row, of = copy.row, self._options
        channels = len(copy.sums) // 2
        cut = _cut_ppm(row["source_height"], row["source_width"], of.image_size, of.resize)
        return Image(
            encoded=b"",
            **{name: row[name] for name in _OF_IMAGE},
            source_sha256=row["source_sha256"].hex(),
            channel_sums=copy.sums[:channels],
            channel_squares=copy.sums[channels:],
            adjusted=tuple(filter(None, row["adjusted"].split(","))),
            cut_ppm=cut,
        )


@functools.lru_cache(maxsize=1 << 12)
def _cut_ppm(height: int, width: int, image_size: tuple[int, int], resize: str) -> int:
    return geometry.cut_ppm(geometry.place(height, width, image_size, resize), height, width)


def is_source(data: bytes, copy: Copy) -> bool:
    """Whether these are the bytes that a record was made from, by size and CRC-32C."""
    return (len(data), google_crc32c.value(data)) == (copy.row["source_bytes"], copy.row["source_crc32c"])


def stored_source(copy: Copy) -> bytes | None:
    """The source, if the record holds its very bytes."""
    values = examples.parse_example(copy.serialized).get(ENCODED)
    return values[0] if values and is_source(values[0], copy) else None
