"""Orders the images of a split, and surveys all references: counts, classes, digests and a sample."""

import array
import collections
import dataclasses
import hashlib
import heapq

import numpy as np
from numpy.typing import NDArray

from beam_tfr.layouts.folders import Folders
from beam_tfr.schema.dataset import NO_SPLIT
from beam_tfr.schema.items import ImageRef
from beam_tfr.schema.plan import SplitPlan

SAMPLE_IMAGES = 32  # images read to estimate the size of a record
ORDER_BYTES = 16
MODULUS = 1 << 256  # of sums of SHA-256
BUCKET_BITS = 20  # of the histogram: at most a tenth of the buckets contain one of the cuts between `MOST_SHARDS`


def order_key(seed: int, key: str) -> bytes:
    """The place of an image in the order of its split: 16 bytes, BLAKE2b of seed and key."""
    return order_key_of(seed, key.encode("utf-8", "surrogateescape"))


def order_key_of(seed: int, key: bytes) -> bytes:
    """`order_key` of an encoded key."""
    return hashlib.blake2b(b"%d\0%b" % (seed, key), digest_size=ORDER_BYTES, person=b"beam_tfr order").digest()


def bucket_of(order: bytes) -> int:
    """The histogram bucket of an order key: its first bits."""
    return int.from_bytes(order[:4], "big") >> (32 - BUCKET_BITS)


def planned_total(split: SplitPlan, index: int) -> int:
    """Number of images in the `index`-th shard of a split."""
    return first_rank(split, index + 1) - first_rank(split, index)


def first_rank(split: SplitPlan, index: int) -> int:
    """Rank in the order of the split of the first image of the `index`-th shard."""
    return index * split.matched // split.num_shards


class Histogram:
    """The number of images in each bucket of a split's order: 4 bytes for an image, and at most 8 MB."""

    def __init__(self) -> None:
        self._few = array.array("I")  # buckets of images that are not in `_counts`
        self._counts: NDArray[np.uint32] | None = None

    def add(self, bucket: int) -> None:
        """Counts an image."""
        self._few.append(bucket)
        if len(self._few) >> BUCKET_BITS:
            self._counts, self._few = self.counts(), array.array("I")

    def merge(self, other: "Histogram") -> None:
        """Adds the images of another histogram."""
        if other._counts is not None:
            self._counts = other._counts if self._counts is None else self._counts + other._counts
        for bucket in other._few:
            self.add(bucket)

    def counts(self) -> NDArray[np.uint32]:
        """The number of images in each bucket: uint32 [1 << BUCKET_BITS]."""
        counts = np.bincount(self._few, minlength=1 << BUCKET_BITS).astype(np.uint32)
        return counts if self._counts is None else counts + self._counts


@dataclasses.dataclass(slots=True)
class Survey:
    """The result of one pass over all references; its size depends on buckets and classes, not on images.

    Attributes:
        seed: seed for the order.
        counts: split -> images.
        classes: (split, class) -> images.
        buckets: split -> images by bucket of the order.
        digest: sum of a hash of each (key, size) or table row, modulo 2^256, which does not depend on their order.
        generations: the same sum with generations.
        first_unfit: the smallest key that has no split, or empty.
        folders: the folders of classes and splits; of a table, none.
        sample: the usable references with the smallest hashes: a heap of (negative hash, encoded reference).
    """

    seed: int
    counts: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    classes: collections.Counter[tuple[str, str]] = dataclasses.field(default_factory=collections.Counter)
    buckets: dict[str, Histogram] = dataclasses.field(default_factory=lambda: collections.defaultdict(Histogram))
    digest: int = 0
    generations: int = 0
    first_unfit: str = ""
    folders: Folders = dataclasses.field(default_factory=Folders)
    sample: list[tuple[int, bytes]] = dataclasses.field(default_factory=list)

    def add(self, encoded: bytes) -> None:
        """Counts an encoded reference."""
        ref = ImageRef.decode(encoded)
        self.counts[ref.split] += 1
        for label in filter(None, ref.labels):
            self.classes[ref.split, label] += 1
        self.buckets[ref.split].add(bucket_of(order_key(self.seed, ref.key)))
        identity = hashlib.sha256(_identity(ref)).digest()
        self.digest = (self.digest + int.from_bytes(identity, "big")) % MODULUS
        listed = hashlib.sha256(identity + str(ref.generation).encode()).digest()
        self.generations = (self.generations + int.from_bytes(listed, "big")) % MODULUS
        if ref.split == NO_SPLIT:
            self.first_unfit = min(self.first_unfit or ref.key, ref.key)
        if not ref.reason:
            if ref.labels and ref.columns is None:
                self.folders.add(ref.key, ref.labels[0])
            self._offer((-int.from_bytes(identity[:8], "big"), encoded))

    def _offer(self, candidate: tuple[int, bytes]) -> None:
        if len(self.sample) < SAMPLE_IMAGES:
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
        self.first_unfit = min(filter(None, (self.first_unfit, other.first_unfit)), default="")
        self.folders.merge(other.folders)
        for candidate in other.sample:
            self._offer(candidate)

    def sample_refs(self) -> list[ImageRef]:
        """The sample, in the order of its hashes."""
        return [ImageRef.decode(encoded) for _, encoded in sorted(self.sample, reverse=True)]


def _identity(ref: ImageRef) -> bytes:
    """The part of a reference that is input; for a table row, also its values."""
    parts = [ref.key, str(ref.size_bytes)]
    if ref.columns is not None:
        parts += [ref.split, *ref.labels, ref.reason]
    return "\0".join(parts).encode("utf-8", "surrogateescape") + (b"\0" + ref.columns if ref.columns else b"")
