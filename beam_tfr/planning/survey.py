"""One pass over all references: counts, classes, digests and a sample."""

from __future__ import annotations

import dataclasses
import hashlib
import heapq

from beam_tfr.planning.ordering import bucket_of, order_key
from beam_tfr.schema import NO_SPLIT, ImageRef

SAMPLE_IMAGES = 32  # images read to estimate the size of a record


@dataclasses.dataclass(slots=True)
class Survey:
    """The result of one pass over all references; its size depends on buckets and classes, not on images.

    Attributes:
        seed: of the order.
        counts: split -> images.
        classes: (split, class) -> images.
        buckets: (split, bucket of the order) -> images.
        digest: sum of a hash of each (key, size) or table row, modulo 2^256, which does not depend on their order.
        generations: the same sum with generations.
        misfit: the smallest key that has no split, or empty.
        sample: the usable references with the smallest hashes: a heap of (negative hash, encoded reference).
    """

    seed: int
    counts: dict[str, int] = dataclasses.field(default_factory=dict)
    classes: dict[tuple[str, str], int] = dataclasses.field(default_factory=dict)
    buckets: dict[tuple[str, int], int] = dataclasses.field(default_factory=dict)
    digest: int = 0
    generations: int = 0
    misfit: str = ""
    sample: list[tuple[int, bytes]] = dataclasses.field(default_factory=list)

    def add(self, encoded: bytes) -> None:
        ref = ImageRef.decode(encoded)
        self.counts[ref.split] = self.counts.get(ref.split, 0) + 1
        for label in ref.labels:
            if label:
                self.classes[ref.split, label] = self.classes.get((ref.split, label), 0) + 1
        order = order_key(self.seed, ref.key)
        bucket = (ref.split, bucket_of(order))
        self.buckets[bucket] = self.buckets.get(bucket, 0) + 1
        identity = hashlib.sha256(_identity(ref)).digest()
        self.digest = (self.digest + int.from_bytes(identity, "big")) % (1 << 256)
        listed = hashlib.sha256(identity + str(ref.generation).encode()).digest()
        self.generations = (self.generations + int.from_bytes(listed, "big")) % (1 << 256)
        if ref.split == NO_SPLIT:
            self._note_misfit(ref.key)
        if not ref.reason:
            self._offer((-int.from_bytes(identity[:8], "big"), encoded))

    def _offer(self, one: tuple[int, bytes]) -> None:
        if len(self.sample) < SAMPLE_IMAGES:
            heapq.heappush(self.sample, one)
        elif one > self.sample[0]:
            heapq.heapreplace(self.sample, one)

    def _note_misfit(self, key: str) -> None:
        if key:
            self.misfit = min(self.misfit or key, key)

    def merge(self, other: Survey) -> None:
        for split, n in other.counts.items():
            self.counts[split] = self.counts.get(split, 0) + n
        for group, n in other.classes.items():
            self.classes[group] = self.classes.get(group, 0) + n
        for bucket, n in other.buckets.items():
            self.buckets[bucket] = self.buckets.get(bucket, 0) + n
        self.digest = (self.digest + other.digest) % (1 << 256)
        self.generations = (self.generations + other.generations) % (1 << 256)
        self._note_misfit(other.misfit)
        for one in other.sample:
            self._offer(one)

    def sample_refs(self) -> list[ImageRef]:
        return [ImageRef.decode(encoded) for _, encoded in sorted(self.sample, reverse=True)]


def _identity(ref: ImageRef) -> bytes:
    """The part of a reference that is input; for a table row, also its values."""
    parts = [ref.key, str(ref.size_bytes)]
    if ref.columns is not None:
        parts += [ref.split, *ref.labels, ref.reason]
    return "\0".join(parts).encode("utf-8", "surrogateescape") + (b"\0" + ref.columns if ref.columns else b"")
