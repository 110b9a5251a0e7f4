"""Assigns references to the shards of a plan, and orders the references of each shard."""

import bisect
import functools
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence

from beam_tfr.planning import packing
from beam_tfr.planning.survey import order_keys
from beam_tfr.schema.dataset import canonical_json
from beam_tfr.schema.encoded_ref import EncodedRef, key_of, split_labels, to_text
from beam_tfr.schema.errors import DataError, RunError
from beam_tfr.schema.naming import shard_name
from beam_tfr.schema.plan import Plan, Shard

_PLANNED = b"\0"
_IMAGES = b"\1"
_KNOWN = b"\2"  # first byte of the values grouped for a shard
WORTH_BYTES = 1024  # of the references of a shard that are packed together; fewer hardly compress


Shards = dict[tuple[str, int], list[bytes]]  # split and number of a shard -> what is in it


def assign_refs(refs: Sequence[bytes], plan: Plan) -> Shards:
    """Divides encoded references by shard, and gives them their class ids."""
    shards = Shards()
    label_ids_of = functools.cache(functools.partial(_encode_label_ids, plan=plan))
    parsed = [EncodedRef.parse(ref) for ref in refs]
    orders = order_keys(plan.options["seed"], [ref.key for ref in parsed])
    for encoded, ref, order in zip(refs, parsed, orders, strict=True):
        if plan.labels is not None and not ref.reason:
            encoded = ref.encode_with(label_ids_of(ref.labels))
        split = ref.split.decode()
        shard = split, bisect.bisect_right(plan.splits[split].cuts, order.hex())
        shards.setdefault(shard, []).append(encoded)
    return shards


def _encode_label_ids(labels: bytes, plan: Plan) -> bytes:
    """The ids of the labels of an encoded reference; -1 for a row without a label."""
    label_ids = [plan.label_ids[label] if label else -1 for label in split_labels(labels)]
    return b",".join(b"%d" % label_id for label_id in label_ids)


def assign_known_images(images: Sequence[bytes], plan: Plan) -> Shards:
    """Divides known images by the shards in which their references may be.

    Args:
        images: the split that each is in now, empty if it may be in any; a NUL, its key, a NUL,
            what is known about it.
        plan: the plan.
    """
    found = Shards()
    entries = [image.partition(b"\0")[2] for image in images]
    orders = order_keys(plan.options["seed"], map(key_of, entries))
    for image, entry, order in zip(images, entries, orders, strict=True):
        split = key_of(image).decode()
        for name in [split] if split else plan.splits:
            planned = plan.splits.get(name)
            if planned:
                found.setdefault((name, bisect.bisect_right(planned.cuts, order.hex())), []).append(
                    entry
                )
    return found


class AssignmentPacker:
    """Packs assigned references by shard before they are grouped: fewer elements, and a third of
    the bytes.

    Args:
        max_bytes: maximum to hold, and once packed references; eight times as many while a shard
            has less than `WORTH_BYTES`.
        known: whether they are known images.
    """

    def __init__(self, max_bytes: int = 8 << 20, *, known: bool = False) -> None:
        self._max_bytes = max_bytes
        self._held = 0
        self._shards: dict[str, list[bytes]] = {}
        self._known = known

    def add(self, values: Sequence[bytes], plan: Plan) -> list[tuple[str, bytes]]:
        """Adds encoded references, or known images; returns the packed values that are ready, often
        none."""
        assigned = assign_known_images(values, plan) if self._known else assign_refs(values, plan)
        for (split, number), found in assigned.items():
            name = shard_name(split, number, plan.splits[split].num_shards)
            self._shards.setdefault(name, []).extend(found)
            self._held += sum(map(len, found))
        enough = min(8 * self._max_bytes, max(self._max_bytes, WORTH_BYTES * len(self._shards)))
        return self.flush() if self._held >= enough else []

    def flush(self) -> list[tuple[str, bytes]]:
        """Returns all packed values that are left."""
        shards = self._shards
        self._shards = {}
        self._held = 0
        kind = _KNOWN if self._known else _IMAGES
        return [(name, kind + packing.pack_values(values)) for name, values in shards.items()]


def list_planned_shards(plan: Plan) -> Iterator[tuple[str, bytes]]:
    """Yields the name of each planned shard and a value to group with its references, so that none
    is missing."""
    digest = plan.digest
    recipe = plan.recipe
    codecs = canonical_json(plan.codecs).decode()
    for split, planned in plan.splits.items():
        for index in range(planned.num_shards):
            shard = Shard(
                split,
                index,
                planned.num_shards,
                planned.shard_size(index),
                digest,
                recipe,
                codecs,
            )
            yield shard.name, _PLANNED + canonical_json(shard)


def order_shard(
    values: Iterable[bytes], seed: int
) -> tuple[Shard, list[bytes], dict[bytes, bytes]]:
    """Returns a shard, its encoded references in order, and known images by key, from the values
    grouped for it.

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
    refs = [
        ref
        for value in packed
        if value.startswith(_IMAGES)
        for ref in packing.unpack_values(value[1:])
    ]
    different = len(set(refs))
    if not len(refs) == different == shard.total:
        got = f"shard {shard.name} got {len(refs)} ({different} different ones) instead of {shard.total}"
        raise RunError(f"the runner lost or repeated references: {got}. Nothing is published")
    images = (
        image
        for value in packed
        if value.startswith(_KNOWN)
        for image in packing.unpack_values(value[1:])
    )
    known = {key_of(image): image for image in images}
    ordered = sorted(zip(order_keys(seed, map(key_of, refs)), refs, strict=True))
    repeated = next(
        (ref for (key, ref), (other, _) in itertools.pairwise(ordered) if key == other), None
    )
    if repeated:
        key = to_text(key_of(repeated))
        why = "an archive counts as the folder of the same name, and only one of both can be in `input=`"
        raise DataError(f"two images have the key {key}: {why}")
    return shard, [ref for _, ref in ordered], known
