"""Assigns references to the shards of a plan, and orders the references of each shard."""

import bisect
import itertools
import json
import os
from collections.abc import Iterable, Iterator

from beam_tfr.planning import packing
from beam_tfr.planning.survey import order_key_of, planned_total
from beam_tfr.schema.dataset import canonical_json
from beam_tfr.schema.errors import DataError, RunError
from beam_tfr.schema.items import LABEL_IDS, LABELS, REASON, SPLIT
from beam_tfr.schema.naming import shard_name
from beam_tfr.schema.plan import Plan, Shard

_PLANNED, _IMAGES, _KNOWN = b"\0", b"\1", b"\2"  # first byte of the values grouped for a shard
WORTH_BYTES = 1024  # of the references of a shard that are packed together; fewer hardly compress


def assign(encoded: bytes, plan: Plan) -> tuple[str, bytes]:
    """Returns the name of the shard of a reference, and the reference with its class ids."""
    fields = encoded.split(b"\0", REASON + 1)  # decoding and encoding all of it takes three times as long
    split_name = fields[SPLIT].decode()
    split = plan.splits[split_name]
    order = order_key_of(plan.options["seed"], fields[0])
    name = shard_name(split_name, bisect.bisect_right(split.cuts, order.hex()), split.num_shards)
    if plan.labels is not None and not fields[REASON]:
        labels = fields[LABELS].decode("utf-8", "surrogateescape").split("\n")[1:]
        fields[LABEL_IDS] = b",".join(b"%d" % (plan.label_ids[label] if label else -1) for label in labels)
        encoded = b"\0".join(fields)
    return name, encoded


def assign_known(encoded: bytes, plan: Plan, splits: Iterable[str]) -> Iterator[tuple[str, bytes]]:
    """Yields each shard in which the reference of a known image may be, and the image.

    Args:
        encoded: its key, and what is known of it after a NUL.
        plan: the plan.
        splits: those that the image may be in now.
    """
    order = order_key_of(plan.options["seed"], encoded.partition(b"\0")[0]).hex()
    for name in splits:
        if split := plan.splits.get(name):
            yield shard_name(name, bisect.bisect_right(split.cuts, order), split.num_shards), encoded


class Assigned:
    """Packs assigned references by shard before they are grouped: fewer elements, and a third of the bytes.

    Args:
        max_bytes: maximum to hold; eight times as many while a shard has less than `WORTH_BYTES`.
        known: whether they are results of `assign_known`.
    """

    def __init__(self, max_bytes: int = 8 << 20, *, known: bool = False) -> None:
        self._max_bytes, self._held = max_bytes, 0
        self._shards: dict[str, list[bytes]] = {}
        self._kind = _KNOWN if known else _IMAGES

    def add(self, name: str, value: bytes) -> list[tuple[str, bytes]]:
        """Adds a result of `assign`; returns the packed values that are ready, often none."""
        self._shards.setdefault(name, []).append(value)
        self._held += len(value)
        enough = min(8 * self._max_bytes, max(self._max_bytes, WORTH_BYTES * len(self._shards)))
        return self.flush() if self._held >= enough else []

    def flush(self) -> list[tuple[str, bytes]]:
        """Returns all packed values that are left."""
        shards, self._shards, self._held = self._shards, {}, 0
        return [(name, self._kind + packing.pack(values)) for name, values in shards.items()]


def every_shard(plan: Plan) -> Iterator[tuple[str, bytes]]:
    """Yields the name of each planned shard and a value to group with its references, so that none is missing."""
    digest, recipe, codecs = plan.digest, plan.recipe, canonical_json(plan.codecs).decode()
    for split, planned in plan.splits.items():
        for index in range(planned.num_shards):
            shard = Shard(split, index, planned.num_shards, planned_total(planned, index), digest, recipe, codecs)
            yield shard.name, _PLANNED + canonical_json(shard)


def order(values: Iterable[bytes], seed: int) -> tuple[Shard, list[bytes], dict[bytes, bytes]]:
    """Returns a shard, its encoded references in order, and known images by key, from the values grouped for it.

    Args:
        values: in any order.
        seed: seed for the order.

    Raises:
        RunError: the runner lost or repeated values.
        DataError: two images have the same key.
    """
    planned, *rest = sorted(values)
    shard = Shard(*json.loads(planned[1:]))
    packed = [value for value in rest if value != planned]
    refs = [ref for value in packed if value.startswith(_IMAGES) for ref in packing.unpack(value[1:])]
    different = len(set(refs))
    if not len(refs) == different == shard.total:
        raise RunError(
            f"the runner lost or repeated references: shard {shard.name} got {len(refs)} ({different} "
            f"different ones) instead of {shard.total}. Nothing is published"
        )
    images = (of for value in packed if value.startswith(_KNOWN) for of in packing.unpack(value[1:]))
    known = {of.partition(b"\0")[0]: of for of in images}
    refs.sort(key=lambda ref: order_key_of(seed, ref.partition(b"\0")[0]))
    keys = (ref.partition(b"\0")[0] for ref in refs)
    if repeated := next((one for one, other in itertools.pairwise(keys) if one == other), None):
        raise DataError(
            f"two images have the key {os.fsdecode(repeated)}: an archive counts as the folder of the same name, and "
            "only one of both can be in `input=`"
        )
    return shard, refs, known
