"""Assigns references to the shards in a plan, and orders the references in each shard."""

import collections
import functools
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from beam_tfr.planning import packing
from beam_tfr.planning.survey import order_keys
from beam_tfr.schema.dataset import NO_SPLIT, canonical_json
from beam_tfr.schema.encoded_ref import EncodedRef, key_of, parse_pairs, split_labels, to_text
from beam_tfr.schema.errors import DataError, RunError
from beam_tfr.schema.naming import shard_name
from beam_tfr.schema.plan import Plan, Shard

# First byte of the values grouped for a shard.
_PLANNED = b"\0"
IMAGES = b"\1"  # references
KNOWN = b"\2"  # known images
EARLIER = b"\3"  # splits of earlier records
WORTH_BYTES = 1024  # size of a shard's references from which packing them is worthwhile

# Split and number of a shard -> encoded references in it, or facts about known images.
Assigned = collections.defaultdict[tuple[str, int], list[bytes]]


def assign_refs(refs: Sequence[bytes], plan: Plan) -> Assigned:
    """Groups encoded references by shard, and adds their class ids."""
    assigned = Assigned(list)
    label_ids_of = functools.cache(functools.partial(_encode_label_ids, plan=plan))
    parsed = EncodedRef.parse_all(refs)
    orders = order_keys(plan.options["seed"], [ref.key for ref in parsed])
    for encoded, ref, order in zip(refs, parsed, orders, strict=True):
        if plan.labels is not None and not ref.reason:
            encoded = ref.encode_with(label_ids_of(ref.labels))
        split = ref.split.decode()
        number = plan.splits[split].find_shard(order)
        assigned[split, number].append(encoded)
    return assigned


def _encode_label_ids(labels: bytes, plan: Plan) -> bytes:
    """Returns the label ids of an encoded reference; the id is -1 for a row without a label."""
    label_ids = [plan.label_ids[label] if label else -1 for label in split_labels(labels)]
    return b",".join(b"%d" % label_id for label_id in label_ids)


def assign_known_images(images: Sequence[bytes], plan: Plan) -> Assigned:
    """Groups known images by the shards that may hold their references.

    Args:
        images: for each image, its current split (empty if the image may be in any split), a NUL,
            its key, a NUL, and facts about the image, such as its previous split.
        plan: the plan.
    """
    assigned = Assigned(list)
    entries = [image.partition(b"\0")[2] for image in images]
    orders = order_keys(plan.options["seed"], map(key_of, entries))
    for image, entry, order in zip(images, entries, orders, strict=True):
        for split in _possible_splits(key_of(image).decode(), plan):
            number = plan.splits[split].find_shard(order)
            assigned[split, number].append(entry)
    return assigned


def _possible_splits(split: str, plan: Plan) -> Iterable[str]:
    """Returns the planned splits that may hold an image: `split`, or all if `split` is empty."""
    return plan.splits.keys() & {split} if split else plan.splits


class AssignmentPacker:
    """Packs assigned references by shard before they are grouped.

    This leads to fewer elements, which take a third of the bytes.

    Args:
        max_bytes: the values are packed once they have this many bytes, or up to eight times as
            many if there are less than `WORTH_BYTES` for each shard.
        kind: the kind of packed values: `IMAGES`, `KNOWN` or `EARLIER`.
    """

    def __init__(self, max_bytes: int = 8 << 20, *, kind: bytes = IMAGES) -> None:
        self._max_bytes = max_bytes
        self._held = 0
        self._shards: dict[str, list[bytes]] = {}
        self._kind = kind

    def add(self, values: Sequence[bytes], plan: Plan) -> list[tuple[str, bytes]]:
        """Adds encoded references, or facts about known images.

        Returns the packed values that are ready, which are often none.
        """
        assign = assign_refs if self._kind == IMAGES else assign_known_images
        assigned = assign(values, plan)
        for (split, number), shard_values in assigned.items():
            name = shard_name(split, number, plan.splits[split].num_shards)
            self._shards.setdefault(name, []).extend(shard_values)
            self._held += sum(map(len, shard_values))
        worth_packing = WORTH_BYTES * len(self._shards)
        enough = min(max(self._max_bytes, worth_packing), 8 * self._max_bytes)
        return self.flush() if self._held >= enough else []

    def flush(self) -> list[tuple[str, bytes]]:
        """Returns all remaining packed values."""
        shards = self._shards
        self._shards = {}
        self._held = 0
        return [(name, self._kind + packing.pack_values(values)) for name, values in shards.items()]


def list_planned_shards(plan: Plan) -> Iterator[tuple[str, bytes]]:
    """Yields the name of each planned shard, with a value to be grouped with its references.

    Because of these values, shards without references are not missing.
    """
    digest = plan.digest
    recipe = plan.recipe
    codecs = canonical_json(plan.codecs).decode()
    for split, planned in plan.splits.items():
        for number in range(planned.num_shards):
            shard = Shard(
                split=split,
                number=number,
                num_shards=planned.num_shards,
                total=planned.shard_size(number),
                plan_digest=digest,
                recipe=recipe,
                codecs=codecs,
            )
            yield shard.name, _PLANNED + canonical_json(shard)


class OrderedShard(NamedTuple):
    """The images in a shard.

    Attributes:
        shard: the shard.
        refs: encoded references of the images, in order.
        known_images: key -> facts about an image.
        earlier_splits: key -> the split that held the record of an image before.
    """

    shard: Shard
    refs: list[bytes]
    known_images: dict[bytes, bytes]
    earlier_splits: dict[bytes, bytes]

    def count_moved(self) -> int:
        """Counts the images that have moved from another split."""
        if self.shard.split == NO_SPLIT:
            return 0
        here = self.shard.split.encode()
        earlier = (self.earlier_splits.get(key_of(ref), here) for ref in self.refs)
        return sum(split != here for split in earlier)


def order_shard(values: Iterable[bytes], seed: int) -> OrderedShard:
    """Orders the images in a shard, given the values grouped for that shard.

    Args:
        values: the values in any order.
        seed: seed for the order.

    Raises:
        RunError: the runner lost or repeated values.
        DataError: two images have the same key.
    """
    planned, *packed = sorted(values)  # the planned shard comes first
    shard = Shard(*json.loads(planned.removeprefix(_PLANNED)))
    refs = _unpack(packed, IMAGES)
    _check_complete(shard, refs)
    orders = order_keys(seed, map(key_of, refs))
    ordered = sorted(zip(orders, refs, strict=True))
    _check_different(ordered)
    known_images = {key_of(image): image for image in _unpack(packed, KNOWN)}
    earlier_splits = parse_pairs(_unpack(packed, EARLIER))
    return OrderedShard(shard, [ref for _, ref in ordered], known_images, earlier_splits)


def _unpack(packed: Iterable[bytes], kind: bytes) -> list[bytes]:
    """Unpacks the values of one kind from the values grouped for a shard."""
    unpacked = list[bytes]()
    for value in packed:
        if value.startswith(kind):
            unpacked += packing.unpack_values(value.removeprefix(kind))
    return unpacked


def _check_complete(shard: Shard, refs: Sequence[bytes]) -> None:
    """Checks that a shard has as many references as planned, and no duplicates.

    Raises:
        RunError: the shard has more or fewer references, or duplicates.
    """
    different = len(set(refs))
    if not len(refs) == different == shard.total:
        raise RunError(
            f"the runner lost or repeated references: shard {shard.name} got {len(refs)} "
            f"({different} different ones) instead of {shard.total}. Nothing is published"
        )


def _check_different(ordered: Sequence[tuple[bytes, bytes]]) -> None:
    """Checks that no two images have the same key.

    Args:
        ordered: (order key, encoded reference) of each image, sorted.

    Raises:
        DataError: two images have the same key.
    """
    for (order, ref), (next_order, _) in itertools.pairwise(ordered):
        if order == next_order:
            raise DataError(
                f"two images have the key {to_text(key_of(ref))}: an archive counts as the folder "
                "of the same name, and only one of the two can be in `input=`"
            )
