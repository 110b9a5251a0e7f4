"""PlanShards: which image goes into which file, decided before any image is read.

The order of a split is that of `order_key(seed, key)`: a global shuffle that is the same everywhere. A shard is a run
of that order. All shards of a split have the same number of images (give or take one), because the cuts between them
are exact: a histogram of key prefixes says in which buckets they lie, and of those few buckets all keys are looked at.
"""

from __future__ import annotations

import bisect
import dataclasses
import hashlib
import heapq
import json
import math
import re
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

from beam_tfr.schema import (
    NO_SPLIT,
    ImageRef,
    Plan,
    RunError,
    Shard,
    SplitPlan,
    UsageError,
    canonical_json,
    shard_name,
)

ORDER_BYTES = 16
BUCKET_BITS = 16  # of the histogram; cuts are exact whatever it is, finer buckets leave fewer keys to look at
SAMPLE_IMAGES = 32  # read to estimate the encoded size
DEFAULT_TARGET_BYTES = 100 << 20  # 100 MiB
FLOOR_IMAGES = 256  # a split gets at least one shard per so many images …
MOST_EMPTY_SHARDS = 10_000  # files of a split; more only where it has more images
FLOOR_SHARDS = 32  # … up to so many, so that small datasets are written and read in parallel too
REJECTS_PER_SHARD = 10_000  # of images that fit no split
FRAME_BYTES = 16  # of a TFRecord: length, its CRC, CRC of the data


def order_key(seed: int, key: str) -> bytes:
    """Where an image stands in the order of its split: 16 bytes, BLAKE2b of seed and key."""
    return _order_key(seed, key.encode("utf-8", "surrogateescape"))


def _order_key(seed: int, key: bytes) -> bytes:
    return hashlib.blake2b(b"%d\0%b" % (seed, key), digest_size=ORDER_BYTES, person=b"beam_tfr order").digest()


def _bucket(order: bytes) -> int:
    return int.from_bytes(order[:4], "big") >> (32 - BUCKET_BITS)


@dataclasses.dataclass(slots=True)
class Survey:
    """What one pass over all references finds out; bounded by buckets and classes, not by images.

    Attributes:
        seed: of the order.
        counts: split -> images.
        classes: (split, class) -> images.
        buckets: (split, bucket of the order) -> images.
        digest: sum of a hash of each (key, size) or row of a table, modulo 2^256: the same for every order of the
            references.
        generations: the same sum with the generation of each.
        misfit: the first key, in their order, that has no split; empty when all have one.
        sample: the usable references with the smallest sample hashes, as (hash, encoded reference), a heap by largest.
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
        bucket = (ref.split, _bucket(order))
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
    """What of a reference is input: of a row of a table also what stands in it."""
    parts = [ref.key, str(ref.size_bytes)]
    if ref.columns is not None:
        parts += [ref.split, *ref.labels, ref.reason]
    return "\0".join(parts).encode("utf-8", "surrogateescape") + (b"\0" + ref.columns if ref.columns else b"")


def count_shards(images: int, record_bytes: float, options: Mapping[str, Any], split: str) -> int:
    """How many files a split gets; depends on the data and the options alone, never on the machine.

    3,000 images of 15 kB come to 45 MB: one file by the target size, 12 by the floor of one per 256 images, so 12.
    """
    if split == NO_SPLIT:
        return math.ceil(images / REJECTS_PER_SHARD)
    num_shards = options["num_shards"]
    if isinstance(num_shards, dict) and split in num_shards:
        return int(num_shards[split])
    if isinstance(num_shards, int):
        return num_shards
    most: int | None = options["examples_per_shard"]
    if most is not None:
        return math.ceil(images / most)
    target: int | None = options["target_shard_bytes"]
    if target is not None:
        return max(1, math.ceil(images * record_bytes / target))
    by_size = math.ceil(images * record_bytes / DEFAULT_TARGET_BYTES)
    return max(1, by_size, min(FLOOR_SHARDS, math.ceil(images / FLOOR_IMAGES)))


def draft_plan(
    survey: Survey,
    record_bytes: float,
    *,
    name: str,
    suffix: str,
    options: Mapping[str, Any],
    labelled: bool,
    codecs: Mapping[str, str],
) -> Plan:
    """The plan without its cuts.

    Args:
        survey: of all references.
        record_bytes: mean size of a serialized record, from the sample.
        name, suffix: of the shard files.
        options: `ConvertOptions.data_options`.
        labelled: whether the layout names a label.
        codecs: `images.codec_versions`.

    Raises:
        UsageError: no file fits --layout, --num_shards names a split that the data does not have, or --splits one
            that gets no image.
    """
    counts = dict(sorted(survey.counts.items()))
    usable = [split for split in counts if split != NO_SPLIT]
    if not counts:
        raise UsageError("--exclude: leaves out all files that --input matches")
    if not usable:
        _refuse_misfits(sum(counts.values()), survey.misfit, options)
    if empty := sorted((options.get("splits") or {}).keys() - set(usable)):
        raise UsageError(
            f"--splits: none of the {sum(counts.values())} images falls into {empty[0]}; give it a larger share, or "
            "leave it out"
        )
    if isinstance(options["num_shards"], dict) and (unknown := sorted(options["num_shards"].keys() - set(usable))):
        raise UsageError(f"--num_shards: there is no split {unknown[0]}; the data has: {', '.join(usable)}")
    given = options["num_shards"]
    for split in usable:
        count = given.get(split, 0) if isinstance(given, dict) else given or 0
        if count > max(MOST_EMPTY_SHARDS, counts[split]):
            raise UsageError(
                f"--num_shards {count}: split {split} has {counts[split]} images; at most {MOST_EMPTY_SHARDS} files, "
                "or one for each image"
            )
    labels = None
    if labelled:
        found = {label for split, label in survey.classes if split != NO_SPLIT}
        labels = list(options["classes"] or _in_order(found, numbers=bool(options.get("label_column"))))
    return Plan(
        name=name,
        suffix=suffix,
        options=dict(options),
        input_digest=f"{survey.digest:064x}",
        labels=labels,
        splits={
            split: SplitPlan(
                matched=images,
                num_shards=count_shards(images, record_bytes + FRAME_BYTES, options, split),
                cuts=[],
                class_counts={label: n for (of, label), n in sorted(survey.classes.items()) if of == split},
            )
            for split, images in counts.items()
        },
        codecs=dict(codecs),
        generations=f"{survey.generations:064x}",
    )


def _refuse_misfits(number: int, first: str, options: Mapping[str, Any]) -> NoReturn:
    if "layout" not in options:
        raise UsageError(
            f"--table: none of the {number} rows has all that is needed of it ("
            f"{', '.join(f'--{name} {options[name]}' for name in options if name.endswith('_column'))}), the first is "
            f"{first}"
        )
    raise UsageError(
        f"--layout {options['layout']}: none of the {number} files has such a path below the folder "
        f"that all patterns share, the first is {first!r}; write a layout of as many parts, such as "
        f"{'/'.join(['{label}'] * min(1, first.count('/')) + ['*'])}"
    )


def _in_order(labels: Iterable[str], *, numbers: bool) -> list[str]:
    """Sorted as texts; `numbers`: as numbers where all are, so that 0 to n - 1 are their own ids."""
    found = sorted(labels)
    if numbers and all(re.fullmatch(r"-?[0-9]{1,18}", label) for label in found):
        found.sort(key=int)
    return found


@dataclasses.dataclass(frozen=True, slots=True)
class CutBuckets:
    """The buckets of the histogram in which cuts lie: for each (split, bucket) the ranks wanted of its sorted keys."""

    seed: int
    ranks: dict[tuple[str, int], list[int]]

    def find(self, encoded: bytes) -> list[tuple[str, bytes]]:
        """[(name of the bucket, order key)] of a reference in such a bucket, else []."""
        ref = ImageRef.decode(encoded)
        order = order_key(self.seed, ref.key)
        bucket = _bucket(order)
        return [(_bucket_name(ref.split, bucket), order)] if (ref.split, bucket) in self.ranks else []

    def pick(self, name: str, orders: Iterable[bytes]) -> list[bytes]:
        """The cuts in a bucket: of all its order keys, in any order, those at the ranks wanted.

        Raises:
            RunError: the runner lost some of them.
        """
        split, _, bucket = name.rpartition("/")
        ranks, found = self.ranks[split, int(bucket)], sorted(orders)
        if ranks[-1] >= len(found):
            raise RunError("a bucket of the order came without some of its keys: this runner lost elements")
        return [found[rank] for rank in ranks]


def _bucket_name(split: str, bucket: int) -> str:
    return f"{split}/{bucket}"


def find_cut_buckets(survey: Survey, plan: Plan) -> CutBuckets:
    """Where the first image of each shard but the first lies."""
    ranks: dict[tuple[str, int], list[int]] = {}
    for split, of in plan.splits.items():
        wanted = [_first_rank(of, i) for i in range(1, of.num_shards)]
        passed = 0
        buckets = iter(sorted((bucket, n) for (name, bucket), n in survey.buckets.items() if name == split))
        bucket, n = next(buckets)
        for rank in wanted:
            while rank >= passed + n:
                passed += n
                bucket, n = next(buckets)
            ranks.setdefault((split, bucket), []).append(rank - passed)
    return CutBuckets(survey.seed, ranks)


def cut(plan: Plan, wanted: CutBuckets, picked: Iterable[tuple[str, Sequence[bytes]]]) -> Plan:
    """The plan with its cuts, from those picked in the buckets where they lie, by the buckets' names.

    Raises:
        RunError: the runner lost a bucket.
    """
    by_name = dict(picked)
    cuts: dict[str, list[str]] = {split: [] for split in plan.splits}
    for split, bucket in sorted(wanted.ranks):
        orders = by_name.get(_bucket_name(split, bucket))
        if orders is None:
            raise RunError("a bucket of the order did not come: this runner lost elements. Nothing is written")
        cuts[split] += [order.hex() for order in orders]
    return dataclasses.replace(
        plan, splits={split: dataclasses.replace(of, cuts=cuts[split]) for split, of in plan.splits.items()}
    )


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
    return shard, sorted(refs, key=lambda ref: _order_key(seed, ref.partition(b"\0")[0]))


def planned_shard(value: bytes) -> Shard:
    """The shard itself, of what `every_shard` says of it.

    Raises:
        RunError: the runner lost that.
    """
    if value[:1] != _PLANNED:
        raise RunError("a shard came without its plan: this runner lost elements. Nothing is published")
    return Shard(*json.loads(value[1:]))


def planned_total(of: SplitPlan, index: int) -> int:
    """Images of the `index`-th shard of a split."""
    return _first_rank(of, index + 1) - _first_rank(of, index)


def _first_rank(of: SplitPlan, index: int) -> int:
    """Place in the order of its split of the first image of the `index`-th shard."""
    return index * of.matched // of.num_shards
