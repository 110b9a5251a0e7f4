"""What an update would do: compares a listing with what a finished dataset was made from."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

from beam_tfr.dataset import manifest
from beam_tfr.dataset.base import shards_of
from beam_tfr.output.known import sources_of
from beam_tfr.schema import DataError, ImageRef

COPY_SHARE = 0.1  # of the CPU time of a conversion: see docs/performance.md


class Comparison:
    """Counts the references of a listing that a dataset has; takes about 200 bytes of memory for each of its images.

    Args:
        folder: folder of the dataset.

    Attributes:
        there: whether there is a dataset, with all of its sidecars.
        new, changed, kept: references so far.
    """

    def __init__(self, folder: str | None) -> None:
        self.new = self.changed = self.kept = 0
        self._keys, self._files = set[int](), set[int]()
        try:
            dataset = manifest.find(folder) if folder else None
        except DataError:
            dataset = None
        found = [sources_of(dataset.folder, shard) for shard in shards_of(dataset)] if dataset else [None]
        self.there = None not in found
        for source in (source for sources in found for source in sources or ()):
            ref = ImageRef.decode(source.ref)
            self._keys.add(_hash(ref.key))
            self._files.add(_hash(ref.key, ref.size_bytes, ref.crc32c or ref.generation))

    def watch(self, refs: Iterable[ImageRef]) -> Iterator[ImageRef]:
        """Yields references, and counts them."""
        for ref in refs:
            self.kept += (is_kept := _hash(ref.key, ref.size_bytes, ref.crc32c or ref.generation) in self._files)
            is_new = not is_kept and _hash(ref.key) not in self._keys
            self.new, self.changed = self.new + is_new, self.changed + (not is_kept and not is_new)
            yield ref

    @property
    def share(self) -> float:
        """The CPU time of an update as a share of that of a conversion."""
        converted = self.new + self.changed
        return (converted + COPY_SHARE * self.kept) / max(1, converted + self.kept)

    def __str__(self) -> str:
        """What `update` would do, if no option changes all images."""
        removed = len(self._keys) - self.kept - self.changed
        told = f"add {self.new:,}, drop {removed:,}, look at {self.changed:,} that seem changed, and copy {self.kept:,}"
        return f"would {told}, in about {self.share:.0%} of the time"


def _hash(*of: object) -> int:
    data = "\0".join(map(str, of)).encode("utf-8", "surrogateescape")
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "big")
