"""Orders the images of a split, and surveys all references: counts, classes, digests, a sample."""

import array
import collections
import dataclasses
import hashlib
import heapq
import operator
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from beam_tfr.layouts.split_names import split_within
from beam_tfr.schema.dataset import NO_SPLIT
from beam_tfr.schema.encoded_ref import (
    EncodedRef,
    split_columns,
    split_labels,
    to_bytes,
    to_text,
)
from beam_tfr.schema.items import DUPLICATE, ImageRef

SAMPLE_IMAGES = 32  # images read to estimate the size of a record
ORDER_BYTES = 16
_ORDER = b"beam_tfr order"
MAX_FOLDERS = 100_000  # they take about 20 MB
MODULUS = 1 << 256  # for sums of SHA-256 hashes
_NO_SPLIT = NO_SPLIT.encode()
_DUPLICATE = DUPLICATE.encode()
_SPLIT_AND_LABELS = operator.attrgetter("split", "labels")
# of the histogram: at most a tenth of the buckets contain one of the cuts between `MOST_SHARDS`
BUCKET_BITS = 20


def order_key(seed: int, key: str) -> bytes:
    """Returns the order key of an image, by which the images of a split are ordered.

    This is the BLAKE2b hash, in 16 bytes, of the seed and the image's key.
    """
    return order_keys(seed, [to_bytes(key)])[0]


def order_keys(seed: int, keys: Iterable[bytes], purpose: bytes = _ORDER) -> list[bytes]:
    """Returns the `order_key` of each key; a different purpose results in a different order."""
    orders = list[bytes]()
    begun = hashlib.blake2b(b"%d\0" % seed, digest_size=ORDER_BYTES, person=purpose)
    for key in keys:
        order = begun.copy()  # takes half the time of a new one
        order.update(key)
        orders.append(order.digest())
    return orders


def buckets_of(orders: Sequence[bytes], bits: int = BUCKET_BITS) -> list[int]:
    """Returns the histogram buckets of order keys, which are their first bits."""
    first = np.frombuffer(b"".join(orders), ">u4")[:: ORDER_BYTES // 4]
    buckets: list[int] = (first >> (32 - bits)).tolist()
    return buckets


class Histogram:
    """The number of images in each bucket of an order.

    Takes 4 bytes per image, and at most 8 bytes per bucket: 8 MB for the order of a split.

    Args:
        bits: number of leading bits of an order key that form its bucket number.
    """

    def __init__(self, bits: int = BUCKET_BITS) -> None:
        self._bits = bits
        self._few = array.array("I")  # buckets of images that are not in `_counts`
        self._counts: NDArray[np.uint32] | None = None

    def add(self, buckets: Iterable[int]) -> None:
        """Counts images."""
        self._few.extend(buckets)
        if len(self._few) >> self._bits:
            self._counts = self.counts()
            self._few = array.array("I")

    def merge(self, other: "Histogram") -> None:
        """Adds the images of another histogram."""
        if other._counts is not None:
            self._counts = self.counts() + other._counts
            self._few = array.array("I")
        self.add(other._few)

    def counts(self) -> NDArray[np.uint32]:
        """Returns the number of images in each bucket: uint32 [1 << bits]."""
        counts = np.bincount(self._few, minlength=1 << self._bits).astype(np.uint32)
        return counts if self._counts is None else counts + self._counts

    def locate(self, ranks: Sequence[int]) -> list[tuple[int, int]]:
        """Returns the bucket, and the rank in it, of the images with these ranks in the order.

        Args:
            ranks: sorted, and counted from 0; ranks beyond the last image are left out.
        """
        buckets, counts = self.occupied()
        ends = np.cumsum(counts)
        places = np.searchsorted(ends, ranks, side="right").tolist()
        located = list[tuple[int, int]]()
        for place, rank in zip(places, ranks, strict=True):
            if place < len(buckets):
                first = int(ends[place] - counts[place])
                located.append((int(buckets[place]), rank - first))
        return located

    def occupied(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns the buckets that hold images, in order, and the number of images in each."""
        if self._counts is None:  # few images, which need no array of all buckets
            buckets, counts = np.unique(np.asarray(self._few, np.int64), return_counts=True)
            return buckets, counts
        counts = self.counts().astype(np.int64)
        buckets = np.flatnonzero(counts)
        return buckets, counts[buckets]


@dataclasses.dataclass(slots=True)
class Survey:
    """The summary of one pass over all references.

    Its size depends on buckets and classes, not on images.

    Attributes:
        seed: seed for the order.
        sample_size: maximum number of references in the sample.
        gives_splits: whether the splits of table rows are part of the input digest; False with
            `stratify`.
        counts: split -> number of images.
        classes: (split, class) -> number of images.
        buckets: split -> number of images in each bucket of the order.
        digest: sum, modulo 2^256, of a hash of each (key, size) or table row; the sum does not
            depend on their order.
        generations: the same sum, of hashes that include generations.
        first_unfit: the smallest key without a split, or an empty string.
        unfit_detail: why this key has no split.
        folders: folder -> number of its images, for the first `MAX_FOLDERS`; empty for a table.
        split_folders: for a table: split that a folder above images is named after, or an empty
            string -> number of images.
        sample: the usable references with the smallest hashes: a heap of (negative hash, encoded
            reference).
    """

    seed: int
    sample_size: int = SAMPLE_IMAGES
    gives_splits: bool = True
    counts: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    classes: collections.Counter[tuple[str, str]] = dataclasses.field(
        default_factory=collections.Counter
    )
    buckets: dict[str, Histogram] = dataclasses.field(
        default_factory=lambda: collections.defaultdict(Histogram)
    )
    digest: int = 0
    generations: int = 0
    first_unfit: str = ""
    unfit_detail: str = ""
    folders: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    split_folders: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    sample: list[tuple[int, bytes]] = dataclasses.field(default_factory=list)

    def add(self, refs: Sequence[bytes]) -> None:
        """Counts encoded references; decodes only the parts that differ between them."""
        parsed = EncodedRef.parse_all(refs)
        self._count_classes(parsed)
        self._count_buckets(parsed)
        unfit = [ref for ref in parsed if ref.split == _NO_SPLIT]
        if unfit:
            first = min(unfit)
            self._note_unfit(to_text(first.key), to_text(split_columns(first.rest)[0]))
        folders = collections.Counter[bytes]()
        table_folders = collections.Counter[bytes]()
        for encoded, ref in zip(refs, parsed, strict=True):
            _, columns = split_columns(ref.rest)
            identity = ref.key + b"\0" + ref.size_bytes
            if columns is not None:
                listed = ref if self.gives_splits else ref._replace(split=b"")
                identity += _row_identity(listed, columns)
            digest = hashlib.sha256(identity).digest()
            number = int.from_bytes(digest, "big")
            with_generation = hashlib.sha256(digest + ref.generation).digest()
            self.digest += number
            self.generations += int.from_bytes(with_generation, "big")
            if not ref.reason:
                self._offer((-(number >> 192), encoded))
                folder = ref.key.rpartition(b"/")[0]
                if columns is not None:
                    table_folders[folder] += 1
                else:
                    folders[folder] += 1
        self.digest %= MODULUS
        self.generations %= MODULUS
        for folder, images in folders.items():
            self._count_folder(to_text(folder), images)
        for folder, images in table_folders.items():
            self.split_folders[split_within(to_text(folder))] += images

    def _count_classes(self, refs: Sequence[EncodedRef]) -> None:
        """Counts images by split, and by split and class."""
        split_and_labels = collections.Counter(map(_SPLIT_AND_LABELS, refs))
        for (split, labels), images in split_and_labels.items():
            self.counts[split.decode()] += images
            for label in filter(None, split_labels(labels)):
                self.classes[split.decode(), label] += images

    def _count_buckets(self, refs: Sequence[EncodedRef]) -> None:
        """Counts images by split and by bucket of the order."""
        orders = order_keys(self.seed, [ref.key for ref in refs])
        buckets = collections.defaultdict[bytes, list[int]](list)
        for ref, bucket in zip(refs, buckets_of(orders), strict=True):
            buckets[ref.split].append(bucket)
        for split, split_buckets in buckets.items():
            self.buckets[split.decode()].add(split_buckets)

    def _note_unfit(self, key: str, detail: str) -> None:
        """Updates the smallest key without a split; ignores an empty key."""
        if key and (not self.first_unfit or key < self.first_unfit):
            self.first_unfit = key
            self.unfit_detail = detail

    def _count_folder(self, folder: str, images: int) -> None:
        """Counts images in a folder, if it is one of the first `MAX_FOLDERS` folders."""
        if folder in self.folders or len(self.folders) < MAX_FOLDERS:
            self.folders[folder] += images

    def _offer(self, candidate: tuple[int, bytes]) -> None:
        """Adds a reference to the sample if its hash is small enough."""
        if len(self.sample) < self.sample_size:
            heapq.heappush(self.sample, candidate)
        elif candidate > self.sample[0]:
            heapq.heapreplace(self.sample, candidate)

    def merge(self, other: "Survey") -> None:
        """Adds the survey of other references."""
        self.counts.update(other.counts)
        self.classes.update(other.classes)
        for split, buckets in other.buckets.items():
            self.buckets[split].merge(buckets)
        self.digest = (self.digest + other.digest) % MODULUS
        self.generations = (self.generations + other.generations) % MODULUS
        self._note_unfit(other.first_unfit, other.unfit_detail)
        for folder, images in other.folders.items():
            self._count_folder(folder, images)
        self.split_folders.update(other.split_folders)
        for candidate in other.sample:
            self._offer(candidate)

    def sample_refs(self) -> list[ImageRef]:
        """Returns the sample, in the order of its hashes."""
        return [ImageRef.decode(encoded) for _, encoded in sorted(self.sample, reverse=True)]


def _row_identity(ref: EncodedRef, columns: bytes) -> bytes:
    """Returns the part of a table row that the input digest covers besides key and size.

    This part stays the same if the row's image is dropped as a copy.
    """
    reason = b"" if ref.reason == _DUPLICATE else ref.reason
    identity = b"\0" + ref.split + ref.labels.replace(b"\n", b"\0") + b"\0" + reason
    return identity + b"\0" + columns if columns else identity
