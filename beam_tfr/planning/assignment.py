"""References to the shards of a plan: what is grouped under the name of each, and what comes of that."""

from __future__ import annotations

import bisect
import json
import struct
import zlib
from collections.abc import Iterable, Iterator

from beam_tfr.naming import shard_name
from beam_tfr.planning.ordering import order_key, order_key_of, planned_total
from beam_tfr.schema import ImageRef, Plan, RunError, Shard, canonical_json

_PLANNED, _IMAGES = b"\0", b"\1"  # first byte of what is grouped under the name of a shard
_LENGTH = struct.Struct("<I")


def assign(encoded: bytes, plan: Plan) -> tuple[str, bytes]:
    """(name of the shard, the reference with its class id) of a reference."""
    ref = ImageRef.decode(encoded)
    of = plan.splits[ref.split]
    order = order_key(plan.options["seed"], ref.key)
    name = shard_name(ref.split, bisect.bisect_right(of.cuts, order.hex()), of.num_shards)
    if plan.labels is not None and not ref.reason:
        label_ids = tuple(plan.label_ids[label] if label else -1 for label in ref.labels)
        encoded = ref._replace(label_ids=label_ids).encode()
    return name, encoded


class Assigned:
    """Assigned references, packed by shard before they are grouped: fewer elements, and a third of the bytes.

    Args:
        max_bytes: held at a time.
    """

    def __init__(self, max_bytes: int = 8 << 20) -> None:
        self._max_bytes, self._held = max_bytes, 0
        self._shards: dict[str, list[bytes]] = {}

    def add(self, name: str, value: bytes) -> list[tuple[str, bytes]]:
        """
        Args:
            name, value: of `assign`.

        Returns:
            What is to be grouped now: often nothing.
        """
        self._shards.setdefault(name, []).append(value)
        self._held += len(value)
        return self.flush() if self._held >= self._max_bytes else []

    def flush(self) -> list[tuple[str, bytes]]:
        shards, self._shards, self._held = self._shards, {}, 0
        return [(name, _IMAGES + zlib.compress(join(values), 1)) for name, values in shards.items()]


def join(values: Iterable[bytes]) -> bytes:
    """Values as one: the length of each (uint32, little-endian), its bytes."""
    return b"".join(_LENGTH.pack(len(value)) + value for value in values)


def split(joined: bytes) -> Iterator[bytes]:
    """
    Raises:
        ValueError: they end early.
    """
    start = 0
    while start < len(joined):
        end = start + _LENGTH.size
        if end <= len(joined):
            start, end = end, end + _LENGTH.unpack_from(joined, start)[0]
        if end > len(joined):
            raise ValueError("the references end early")
        yield joined[start:end]
        start = end


def every_shard(plan: Plan) -> Iterator[tuple[str, bytes]]:
    """The same for each planned shard itself, so that none is missing where no reference falls into it."""
    digest = plan.digest
    for split, of in plan.splits.items():
        for index in range(of.num_shards):
            shard = Shard(split, index, of.num_shards, planned_total(of, index), digest)
            yield shard.name, _PLANNED + canonical_json(shard)


def order(values: Iterable[bytes], seed: int) -> tuple[Shard, list[bytes]]:
    """What was grouped under one shard: the shard, and its references (encoded) in their order.

    Args:
        values: in any order.
        seed: of the order.

    Raises:
        RunError: the runner lost or repeated some of them.
    """
    planned, *rest = sorted(values)
    shard = planned_shard(planned)
    refs = [ref for value in rest if value != planned for ref in split(zlib.decompress(value[1:]))]
    different = len(set(refs))
    if not len(refs) == different == shard.total:
        raise RunError(
            f"shard {shard.name} came with {different} of {shard.total} references, {len(refs)} with those that came "
            "twice: this runner lost or repeated some. Nothing is published"
        )
    return shard, sorted(refs, key=lambda ref: order_key_of(seed, ref.partition(b"\0")[0]))


def planned_shard(value: bytes) -> Shard:
    """The shard itself, of what `every_shard` says of it.

    Raises:
        RunError: the runner lost that.
    """
    if value[:1] != _PLANNED:
        raise RunError("a shard came without its plan: this runner lost elements. Nothing is published")
    return Shard(*json.loads(value[1:]))
