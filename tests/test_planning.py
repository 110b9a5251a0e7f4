"""PlanShards: a plan is a partition of the images into even shards.

It has one order, however the references came.
"""

from __future__ import annotations

import itertools
import math
import os
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_tfr.planning import assignment, drafts
from beam_tfr.planning.drafts import Bucket, Draft, PlanSettings, find_cut_buckets
from beam_tfr.planning.survey import (
    BUCKET_BITS,
    SAMPLE_IMAGES,
    Histogram,
    Survey,
    order_key,
)
from beam_tfr.schema.dataset import MOST_SHARDS, NO_SPLIT
from beam_tfr.schema.errors import DataError, RunError, UsageError
from beam_tfr.schema.items import ImageRef
from beam_tfr.schema.plan import REJECTS_PER_SHARD, Plan, Shard, SplitPlan
from tests.conftest import calls_of

OPTIONS: dict[str, Any] = {
    "seed": 0,
    "encoding": "jpeg",
    "layout": "{label}/*",
    "classes": None,
    "num_shards": None,
    "examples_per_shard": None,
    "target_shard_bytes": None,
}
SPLITS = ["train", "test", "a_3"]
KEYS = st.binary(min_size=1, max_size=12).filter(lambda raw: b"\0" not in raw).map(os.fsdecode)
REFS = st.lists(
    st.builds(
        lambda key, split, label, size, reason: ImageRef(
            key,
            size,
            1,
            split if label else NO_SPLIT,
            (label,) if label else (),
            None,
            reason if label else "layout-mismatch",
        ),
        KEYS,
        st.sampled_from(SPLITS),
        st.sampled_from(["", "hat", "shoes", "t-shirt"]),
        st.integers(0, 1 << 40),
        st.sampled_from(["", "", "", "unknown-class"]),
    ),
    unique_by=lambda ref: ref.key,
    min_size=1,
    max_size=120,
)
SHARDS = (
    st.none()
    | st.integers(1, 40)
    | st.fixed_dictionaries({}, optional={name: st.integers(1, 40) for name in SPLITS})
)


def survey(refs: Iterable[ImageRef], seed: int = 0) -> Survey:
    found = Survey(seed)
    for ref in refs:
        found.add([ref.encode()])
    return found


def draft(found: Survey, record_bytes: float = 1000.0, **options: Any) -> Plan:
    return drafts.draft_plan(
        found,
        record_bytes,
        PlanSettings(
            name="d",
            suffix=".tfrecord.gz",
            options=OPTIONS | {"seed": found.seed} | options,
            labelled=True,
        ),
        codecs={},
    )


def make_plan(
    refs: Sequence[ImageRef], seed: int = 0, record_bytes: float = 1000.0, **options: Any
) -> Plan:
    """What PlanShards does, one function after the other."""
    found = survey(refs, seed)
    drafted = draft(found, record_bytes, **options)
    near = find_cut_buckets(found, drafted)
    return near.finish_plan(picked(near, [ref.encode() for ref in refs]))


def picked(near: Draft, encoded: Sequence[bytes]) -> list[tuple[Bucket, list[bytes]]]:
    """The cuts of each bucket, by the functions around the grouping by bucket."""
    buckets: dict[Bucket, list[bytes]] = {}
    for bucket, order in near.find_candidates(encoded):
        buckets.setdefault(bucket, []).append(order)
    return [
        (bucket, near.pick_cuts(bucket, reversed(orders))) for bucket, orders in buckets.items()
    ]


def fill(
    refs: Sequence[ImageRef], plan: Plan, max_bytes: int = 1000
) -> dict[Shard, list[ImageRef]]:
    """Shard -> its references in order, by the functions around the GroupByKey."""
    groups: dict[str, list[bytes]] = {}
    assigned = assignment.AssignmentPacker(max_bytes)
    joined = [pair for ref in refs for pair in assigned.add([ref.encode()], plan)]
    for name, value in [*joined, *assigned.flush(), *assignment.list_planned_shards(plan)]:
        groups.setdefault(name, []).append(value)
    shards = dict(
        assignment.order_shard(values, plan.options["seed"])[:2] for values in groups.values()
    )
    assert sorted(groups) == sorted(shard.name for shard in shards) == sorted(plan.shards())
    return {shard: [ImageRef.decode(ref) for ref in found] for shard, found in shards.items()}


@settings(max_examples=60, deadline=None)
@given(
    refs=REFS,
    seed=st.integers(0, 1 << 70),
    num_shards=SHARDS,
    most=st.none() | st.integers(1, 20),
    data=st.data(),
)
def test_a_plan_is_a_partition_in_order_whatever_the_references_are(
    refs: list[ImageRef], seed: int, num_shards: Any, most: int | None, data: st.DataObject
) -> None:
    splits = {ref.split for ref in refs} - {NO_SPLIT}
    if not splits:
        with pytest.raises(UsageError):
            make_plan(refs)
        images = [ref._replace(key=f"{number}.jpg") for number, ref in enumerate(refs)]
        with pytest.raises(
            UsageError,
            match=r"^`layout=.*`: no file fits: below the common folder the first one is ",
        ):
            make_plan(images)
        return
    if isinstance(num_shards, dict):
        num_shards = {split: number for split, number in num_shards.items() if split in splits}
    options = {"num_shards": num_shards, "examples_per_shard": None if num_shards else most}
    plan = make_plan(refs, seed, **options)
    shards = fill(refs, plan)

    placed = [ref for found in shards.values() for ref in found]
    assert sorted(ref.key for ref in placed) == sorted(ref.key for ref in refs)
    for split, of in plan.splits.items():
        mine = [
            shards[shard]
            for shard in sorted(shards, key=lambda s: s.number)
            if shard.split == split
        ]
        sizes = [len(found) for found in mine]
        assert sizes == [of.shard_size(index) for index in range(of.num_shards)]
        assert sum(sizes) == of.matched == sum(ref.split == split for ref in refs)
        assert max(sizes) - min(sizes) <= 1
        if split != NO_SPLIT and options["examples_per_shard"]:
            assert max(sizes) <= options["examples_per_shard"]
        if isinstance(num_shards, int) and split != NO_SPLIT:
            assert len(sizes) == num_shards
        in_order = [order_key(seed, ref.key) for found in mine for ref in found]
        assert in_order == sorted(in_order)
    labels = plan.labels or []
    assert labels == sorted({ref.labels[0] for ref in refs if ref.split != NO_SPLIT})
    before = {ref.key: ref for ref in refs}
    for ref in placed:
        assert ref == before[ref.key]._replace(
            label_ids=None if ref.reason else (labels.index(ref.labels[0]),)
        )

    shuffled = data.draw(st.permutations(refs))
    assert make_plan(shuffled, seed, **options) == plan
    assert fill(shuffled, plan) == shards


@settings(max_examples=60, deadline=None)
@given(
    refs=REFS,
    cuts=st.lists(st.integers(0, 120), max_size=6),
    chance=st.randoms(use_true_random=False),
)
def test_surveys_merge_in_any_bundles_and_any_order(
    refs: list[ImageRef], cuts: list[int], chance: random.Random
) -> None:
    whole = survey(refs, 3)
    mixed = list(refs)
    chance.shuffle(mixed)
    borders = sorted([0, *cuts, len(mixed)])
    bundles = [survey(mixed[a:b], 3) for a, b in itertools.pairwise(borders)]
    while len(bundles) > 1:  # as a tree, as runners do
        one = bundles.pop(chance.randrange(len(bundles)))
        bundles[chance.randrange(len(bundles))].merge(one)
    total = Survey(3)
    total.merge(bundles[0])
    assert (total.counts, total.digest, [*total.buckets]) == (
        whole.counts,
        whole.digest,
        [*total.buckets],
    )
    assert all(
        (total.buckets[split].counts() == whole.buckets[split].counts()).all()
        for split in whole.buckets
    )
    assert (total.first_unfit, total.generations) == (whole.first_unfit, whole.generations)
    assert total.sample_refs() == whole.sample_refs()
    assert total.classes == whole.classes


@pytest.mark.parametrize("images", [0, 5, 16, 100])
def test_a_histogram_knows_its_occupied_buckets(images: int) -> None:
    histogram = Histogram(4)
    histogram.add(number * number % 16 for number in range(images))
    buckets, counts = histogram.occupied()
    whole = histogram.counts()
    assert buckets.tolist() == np.flatnonzero(whole).tolist()
    assert counts.tolist() == whole[buckets].tolist()


def refs_of(count: int, split: str = "train") -> list[ImageRef]:
    return [
        ImageRef(f"{split}/{i % 10}/{i}.jpg", 28_000 + i, 1, split, (str(i % 10),))
        for i in range(count)
    ]


def test_the_sample_is_the_same_few_usable_references_in_every_order() -> None:
    refs = refs_of(500)
    broken = [ref._replace(key=f"broken/{ref.key}", reason="unknown-class") for ref in refs]
    sample = survey(refs + broken).sample_refs()
    assert len(sample) == SAMPLE_IMAGES
    assert len(set(sample)) == len(sample)
    assert survey(reversed(broken + refs)).sample_refs() == sample
    assert not any(ref.reason for ref in sample)
    # the size of records does not hang on the order
    assert survey(refs, seed=9).sample_refs() == sample
    assert survey(refs[:5]).sample_refs() == survey(reversed(refs[:5])).sample_refs()


def test_the_input_digest_covers_keys_and_sizes_and_nothing_else() -> None:
    refs = refs_of(20)
    digest = survey(refs).digest
    assert (
        survey(
            [
                ref._replace(generation=77, split="test", labels=("x",), label_ids=(3,))
                for ref in refs
            ],
            5,
        ).digest
        == digest
    )
    for change in ({"key": "other"}, {"size_bytes": 1}):
        assert survey([refs[0]._replace(**change), *refs[1:]]).digest != digest
    assert survey(refs[1:]).digest != digest
    assert survey([*refs, refs[0]]).digest != digest
    # A digit may not move from one field into the other.
    assert (
        survey([ImageRef("a1", 2, 0, "train")]).digest
        != survey([ImageRef("a", 12, 0, "train")]).digest
    )


def test_the_seed_changes_the_order_and_nothing_else() -> None:
    refs = refs_of(300)
    plans = [make_plan(refs, seed, num_shards=4) for seed in (0, 1)]
    orders = [
        [ref.key for shard in sorted(found) for ref in found[shard]]
        for found in (fill(refs, p) for p in plans)
    ]
    assert orders[0] != orders[1]
    assert sorted(orders[0]) == sorted(orders[1])
    assert plans[0].input_digest == plans[1].input_digest
    assert plans[0].digest != plans[1].digest


def test_order_is_stable_across_versions() -> None:
    # python -c "import hashlib; print(hashlib.blake2b(b'7\0train/a.jpg', digest_size=16,
    #            person=b'beam_tfr order').hexdigest())"
    assert order_key(7, "train/a.jpg").hex() == "82dc90024641c91b5e7251a9e410d27b"
    assert order_key(0, os.fsdecode(b"\xff.jpg")) != order_key(0, os.fsdecode(b"\xfe.jpg"))


def test_the_order_mixes_classes() -> None:
    refs = [
        ImageRef(f"{label}/{i:05d}.jpg", 1, 1, "train", (label,))
        for label in ("a", "b")
        for i in range(2000)
    ]
    for found in fill(refs, make_plan(refs, num_shards=8)).values():
        assert 0.4 < sum(ref.labels == ("a",) for ref in found) / len(found) < 0.6


# How many files

MIB, GIB, PIB = 1 << 20, 1 << 30, 1 << 50


def shards_for(images: int, record_bytes: float, split: str = "train", **options: Any) -> int:
    return drafts.count_shards(images, record_bytes, OPTIONS | options, split)


@pytest.mark.parametrize(
    ("images", "total_bytes", "expected"),
    [
        (1, 15_000, 1),
        (256, 256 * 15_000, 1),
        (257, 257 * 15_000, 2),
        (3_068, 3_068 * 15_000, 12),  # the floor of one per 256 images
        (8_192, 8_192 * 15_000, 32),
        (1_000_000, 32 * 100 * MIB, 32),  # the floor ends at 32
        (1_000_000, 32 * 100 * MIB + 1_000_000, 33),
        (1_281_167, 137 * GIB, 1_403),  # ImageNet: 137 GiB in files of 100 MiB
        (10**11, 10 * PIB, 107_374_183),
        (1, 10 * GIB, 103),
    ],
)
def test_files_are_counted_by_their_size_with_a_floor(
    images: int, total_bytes: int, expected: int
) -> None:
    assert shards_for(images, total_bytes / images) == expected


def test_shard_floor_applies_only_without_shard_options() -> None:
    assert shards_for(3_000, 15_000, target_shard_bytes=100 * MIB) == 1
    assert shards_for(3_000, 15_000, target_shard_bytes=1_000_000) == 45
    assert shards_for(3_000, 15_000, examples_per_shard=1_024) == 3
    assert shards_for(3_072, 15_000, examples_per_shard=1_024) == 3
    assert shards_for(3_073, 15_000, examples_per_shard=1_024) == 4
    assert shards_for(1_281_167, 115_000, examples_per_shard=1) == 1_281_167
    assert shards_for(3_000, 15_000, num_shards=7) == 7
    assert shards_for(3_000, 15_000, num_shards={"train": 7}) == 7
    assert shards_for(3_000, 15_000, num_shards={"train": 7}, split="test") == 12
    assert shards_for(3_000, 0.0) == 12  # a sample of which no image can be used
    assert shards_for(3_000, 0.0, target_shard_bytes=1000) == 1


def test_images_without_a_split_need_no_files_of_their_size() -> None:
    for options in ({}, {"num_shards": 7}, {"examples_per_shard": 1}, {"target_shard_bytes": 1}):
        assert shards_for(1, 15_000, NO_SPLIT, **options) == 1
        assert shards_for(REJECTS_PER_SHARD, 15_000, NO_SPLIT, **options) == 1
        assert shards_for(REJECTS_PER_SHARD + 1, 15_000, NO_SPLIT, **options) == 2


@given(images=st.integers(1, 10**12), most=st.integers(1, 10**6))
def test_no_planned_shard_exceeds_the_number_asked_for(images: int, most: int) -> None:
    number = shards_for(images, 1.0, examples_per_shard=most)
    of = SplitPlan(matched=images, num_shards=number, cuts=[], class_counts={})
    assert max(of.shard_size(index) for index in (0, 1 % number, number // 2, number - 1)) <= most
    assert number == -(-images // most)


# Drafts


def test_draft_errors() -> None:
    refs = refs_of(3)
    with pytest.raises(
        UsageError, match="`num_shards=`: there is no split test; the data has: train"
    ):
        draft(survey(refs), num_shards={"test": 2})
    with pytest.raises(
        UsageError, match="`splits=`: none of the 3 images falls into test; increase its fraction"
    ):
        draft(survey(refs), splits={"train": "4/5", "test": "1/5"})
    shares = {"train": "4/5", "test": "1/5"}
    with pytest.raises(UsageError, match="groups stay together; use `stratify=`"):
        draft(survey(refs), splits=shares, group_column="patient")
    with pytest.raises(
        UsageError, match="there are too few groups, or they are too large; increase"
    ):
        draft(survey(refs), splits=shares, group_column="patient", stratify=True)
    loose = [ref._replace(split=NO_SPLIT, labels=(), reason="layout-mismatch") for ref in refs]
    with pytest.raises(UsageError, match="`num_shards=`: there is no split none"):
        draft(survey(refs + loose[:1]), num_shards={NO_SPLIT: 2})
    with pytest.raises(
        UsageError,
        match=r"no file fits: .* 'train/0/0.jpg', which has 3 parts; use `layout='{label}/\*'`",
    ):
        draft(survey(loose))


@pytest.mark.parametrize(
    ("option", "value", "shards"),
    [
        ("target_shard_bytes", None, "143,204"),
        ("target_shard_bytes", 100_000_000, "150,160"),
        ("examples_per_shard", 1000, "1,000,000"),
        ("num_shards", {"a": 60_000, "b": 60_000}, "120,000"),
    ],
)
def test_more_shards_than_a_manifest_can_list_are_refused_with_a_cure(
    option: str, value: Any, shards: str
) -> None:
    found = survey(refs_of(1, "a") + refs_of(1, "b"))
    found.counts.update(dict.fromkeys("ab", 499_999_999))
    said = (
        f"1,000,000,000 images of about 15,000 bytes would be {shards} shards, but a "
        f"dataset has at most 100,000"
    )
    with pytest.raises(UsageError, match=f"`{option}=.*`: {said}; use larger shards"):
        draft(found, 15_000.0, **{option: value})


def test_the_classes_of_a_plan_are_those_of_the_file_or_of_the_data() -> None:
    refs = [*refs_of(3), ImageRef("x", 1, 1, NO_SPLIT, (), None, "layout-mismatch")]
    plan = draft(survey(refs))
    assert plan.labels == ["0", "1", "2"]
    assert plan.splits["train"].class_counts == {"0": 1, "1": 1, "2": 1}
    assert plan.splits[NO_SPLIT].class_counts == {}
    assert draft(survey(refs), classes=["2", "unused", "0", "1"]).labels == [
        "2",
        "unused",
        "0",
        "1",
    ]


def test_two_spellings_of_a_class_are_refused_before_the_work() -> None:
    refs = [
        ImageRef(f"{split}{name}/1.jpg", 1, 1, split, (name,))
        for name in ("\xe9", "e\u0301")
        for split in "ab"
    ]
    with pytest.raises(
        DataError, match=r"the classes 'e\\u0301' and '\\xe9' are one name in two spellings"
    ):
        draft(survey(refs))
    assert draft(survey(refs[:2])).labels == ["\xe9"]


def test_few_images_in_many_shards_leave_empty_ones_that_are_planned_too() -> None:
    refs = refs_of(3)
    shards = fill(refs, make_plan(refs, num_shards=97))
    assert sorted(len(found) for found in shards.values()) == [0] * 94 + [1] * 3
    assert {shard.total for shard in shards} == {0, 1}


# What a runner could do wrong


def grouped(refs: Sequence[ImageRef]) -> list[bytes]:
    plan = make_plan(refs, num_shards=1)
    assigned = assignment.AssignmentPacker(1)  # each alone
    joined = [pair for ref in refs for pair in assigned.add([ref.encode()], plan)]
    return [value for _, value in [*joined, *assignment.list_planned_shards(plan)]]


def without(values: list[bytes], index: int) -> list[bytes]:
    return values[:index] + values[index + 1 :]


FAULTS: Mapping[str, Any] = {
    "a reference is lost": lambda values: without(values, 0),
    "a reference comes twice": lambda values: [*values, values[0]],
    "one is lost and another comes twice": lambda values: [*without(values, 0), values[1]],
    "one is lost and the plan comes twice": lambda values: [*without(values, 0), values[-1]],
}


@pytest.mark.parametrize("fault", FAULTS)
def test_runner_that_loses_or_repeats_references_is_an_error(fault: str) -> None:
    values = grouped(refs_of(5))
    assert len(assignment.order_shard(values, 0)[1]) == 5
    with pytest.raises(RunError, match="Nothing is published"):
        assignment.order_shard(FAULTS[fault](values), 0)


# Cost


def test_planning_costs_a_few_calls_per_reference_and_looks_at_few_again() -> None:
    refs = refs_of(10_000)
    encoded = [ref.encode() for ref in refs]
    found = Survey(0)

    assert calls_of(lambda: found.add(encoded)) < 20 * len(refs)
    drafted = draft(found, num_shards=100)
    near = find_cut_buckets(found, drafted)
    plan = near.finish_plan(picked(near, encoded))
    assert len(plan.splits["train"].cuts) == 99
    # Few references have to be looked at again, not all.
    assert len([*near.find_candidates(encoded)]) < 200


def test_few_keys_are_looked_at_again_whatever_the_number_of_shards() -> None:
    found = Survey(0)
    histogram = found.buckets["train"]
    histogram.add(range(1 << BUCKET_BITS))  # an image in each bucket, as many as there are buckets
    found.counts["train"] = 1 << BUCKET_BITS
    near = find_cut_buckets(found, draft(found, num_shards={"train": MOST_SHARDS}))
    assert len(near.ranks) == MOST_SHARDS - 1 < 0.1 * (1 << BUCKET_BITS)


@pytest.mark.parametrize(
    ("shards", "most_bytes", "least_each"), [(10, 1 << 16, 50), (600, 1 << 19, 7)]
)
def test_references_of_many_shards_are_packed_together_too(
    shards: int, most_bytes: int, least_each: int
) -> None:
    refs = refs_of(20_000)
    plan = make_plan(refs, num_shards=shards)
    assigned = assignment.AssignmentPacker(1 << 16)
    packed, held = [], 0
    for ref in refs:
        held += len(ref.encode())
        if ready := assigned.add([ref.encode()], plan):
            assert held < most_bytes + 1000
            packed, held = packed + ready, 0
    packed += assigned.flush()
    assert len(refs) / len(packed) > least_each
    assert sum(len(name) + len(value) for name, value in packed) < 0.6 * sum(
        len(ref.encode()) for ref in refs
    )


def test_the_cost_of_many_shards_is_linear() -> None:
    refs = refs_of(2_000)

    def plan_and_fill() -> None:
        shards = fill(refs, make_plan(refs, num_shards=5_000))
        assert len(shards) == 5_000
        assert math.fsum(shard.total for shard in shards) == 2_000

    assert calls_of(plan_and_fill) < 200 * (2_000 + 5_000)
