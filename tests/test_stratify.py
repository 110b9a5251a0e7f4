"""Splits by class: the laws of `stratify=`, for random classes, groups and shares."""

from __future__ import annotations

import collections
import random
from collections.abc import Iterable, Mapping
from fractions import Fraction

import apache_beam as beam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_tfr.layouts.parsing import parse_layout
from beam_tfr.planning import dividing, packing, strata
from beam_tfr.planning.shares import Divider, fill_empty, round_shares, share_out
from beam_tfr.schema.dataset import NO_SPLIT, name_folds, shares_of
from beam_tfr.schema.encoded_ref import SplitField, open_split
from beam_tfr.schema.items import ImageRef
from beam_tfr.transforms.splitting import ChooseSplits
from tests import local_pipeline

THREE = shares_of({"splits": {"train": "0.8", "validation": "0.1", "test": "0.1"}})
SHARES = st.sampled_from(
    [
        THREE,
        shares_of({"folds": 5}),
        shares_of({"splits": {"train": "0.97", "test": "0.03"}}),
        shares_of({"splits": {"train": "0.333333", "test": "0.333333", "other": "0.333333"}}),
        shares_of({"splits": {"train": "1"}}),
    ]
)
CLASS_SIZES = st.dictionaries(st.sampled_from("abcdefgh"), st.integers(1, 90), min_size=1)


def make_ref(
    key: str, labels: Iterable[str] = (), split: str = "", group: str = "", reason: str = ""
) -> ImageRef:
    return ImageRef(key, 1, 1, split or open_split(group), tuple(labels), reason=reason)


def list_refs(sizes: Mapping[str, int]) -> list[ImageRef]:
    return [
        make_ref(f"{name}/{number}", [name])
        for name, images in sizes.items()
        for number in range(images)
    ]


def choose(
    refs: Iterable[ImageRef], shares: Mapping[str, Fraction], seed: int = 0
) -> dict[str, str]:
    """Key -> the split that is chosen."""
    encoded = [ref.encode() for ref in refs]
    placed = [*map(ImageRef.decode, dividing.choose_splits(encoded, shares, seed))]
    assert sorted(ref.key for ref in placed) == sorted(ref.key for ref in refs)
    return {ref.key: ref.split for ref in placed}


def count(refs: Iterable[ImageRef], splits: Mapping[str, str]) -> dict[str, dict[str, int]]:
    """Class -> split -> images."""
    counts = collections.defaultdict[str, collections.Counter[str]](collections.Counter)
    for ref in refs:
        for name in set(ref.labels):
            counts[name][splits[ref.key]] += 1
    return dict(counts)


def ideals(images: int, shares: Mapping[str, Fraction]) -> dict[str, Fraction]:
    total = sum(shares.values(), Fraction(0))
    return {split: images * share / total for split, share in shares.items()}


@given(
    st.integers(0, 100),
    st.lists(st.tuples(st.integers(0, 50), st.integers(1, 9)), min_size=1, max_size=6),
)
def test_what_is_short_is_filled_to_one_level(images: int, splits: list[tuple[int, int]]) -> None:
    placed = [has for has, _ in splits]
    total = sum(weight for _, weight in splits)
    shares = [Fraction(weight, total) for _, weight in splits]
    wanted = share_out(images, placed, shares)
    assert sum(wanted) == images
    assert min(wanted) >= 0
    levels = [(has + more) / share for has, more, share in zip(placed, wanted, shares, strict=True)]
    for more, level in zip(wanted, levels, strict=True):
        assert not more or level == min(levels)
    rounded = round_shares(wanted, [Fraction(0)] * len(shares))
    assert sum(rounded) == images
    assert all(abs(a - b) < 1 for a, b in zip(rounded, wanted, strict=True))


def test_a_class_with_as_many_images_as_splits_is_in_each() -> None:
    shares = [Fraction(98, 100), Fraction(1, 100), Fraction(1, 100)]
    assert fill_empty([3, 0, 0], [0, 0, 0], shares) == [1, 1, 1]
    assert fill_empty([2, 0, 0], [0, 0, 0], shares) == [2, 0, 0]
    assert fill_empty([3, 0, 0], [9, 0, 0], shares) == [1, 1, 1]
    assert fill_empty([0, 0, 0], [9, 0, 0], shares) == [0, 0, 0]  # none is left to move


def test_rounding_in_many_classes_does_not_favor_a_split() -> None:
    divider = Divider(THREE)
    none = dict.fromkeys(THREE, 0)
    numbers = [divider.divide(14, none) for _ in range(1000)]
    assert [sum(column) for column in zip(*numbers, strict=True)] == [11_200, 1_400, 1_400]


@settings(max_examples=50)
@given(CLASS_SIZES, SHARES, st.integers(0, 3))
def test_each_class_has_its_share_in_each_split(
    sizes: dict[str, int], shares: Mapping[str, Fraction], seed: int
) -> None:
    refs = list_refs(sizes)
    splits = choose(refs, shares, seed)
    for name, numbers in count(refs, splits).items():
        wanted = ideals(sizes[name], shares)
        forced = sum(ideal < 1 for ideal in wanted.values())
        assert set(numbers) <= set(shares)
        if sizes[name] >= len(shares):
            assert set(numbers) == set(shares)  # in each
        for split, ideal in wanted.items():
            allowed = 1 + (forced if ideal >= 1 and sizes[name] >= len(shares) else 0)
            assert abs(numbers.get(split, 0) - ideal) <= allowed
            if not forced:
                assert abs(numbers.get(split, 0) - ideal) < 1
    assert splits == choose(refs[::-1], shares, seed)


def test_large_classes_are_divided_exactly() -> None:
    refs = list_refs({"many": 20_000, "some": 4_999, "few": 11})
    numbers = count(refs, choose(refs, THREE))
    assert numbers["many"] == {"train": 16_000, "validation": 2_000, "test": 2_000}
    assert sorted(numbers["some"].values()) in ([499, 500, 4_000], [500, 500, 3_999])
    assert sorted(numbers["few"].values()) in ([1, 1, 9], [1, 2, 8])


@settings(max_examples=50)
@given(
    CLASS_SIZES,
    st.dictionaries(st.sampled_from("abcdefgh"), st.integers(1, 60), min_size=1),
    SHARES,
    st.data(),
)
def test_images_stay_and_new_ones_go_where_shares_are_short(
    sizes: dict[str, int],
    more: dict[str, int],
    shares: Mapping[str, Fraction],
    data: st.DataObject,
) -> None:
    old = list_refs(sizes)
    before = choose(old, shares)
    removed = data.draw(st.sets(st.sampled_from([ref.key for ref in old])))
    stay = [ref._replace(split=before[ref.key]) for ref in old if ref.key not in removed]
    new = [
        make_ref(f"{name}/new{n}", [name]) for name, images in more.items() for n in range(images)
    ]
    after = choose([*stay, *new], shares)
    assert all(after[ref.key] == ref.split for ref in stay)
    placed = count(stay, before)
    total = sum(shares.values(), Fraction(0))
    for name, numbers in count([*stay, *new], after).items():
        for split, number in numbers.items():
            added = number - placed.get(name, {}).get(split, 0)
            level = min(
                (numbers.get(other, 0) + 1) / (share / total) for other, share in shares.items()
            )
            assert added <= 1 or (number - 1) * total / shares[split] <= level


@settings(max_examples=50)
@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 9)), min_size=1, max_size=60),
    st.dictionaries(st.sampled_from("abc"), st.integers(1, 60)),
    SHARES,
)
def test_groups_are_on_one_side_and_shares_hold_within_the_largest(
    groups: list[tuple[str, int]], single: dict[str, int], shares: Mapping[str, Fraction]
) -> None:
    refs = list_refs(single)
    for number, (name, images) in enumerate(groups):
        refs += [make_ref(f"g{number}/{i}", [name], group=f"g{number}") for i in range(images)]
    splits = choose(refs, shares)
    for number in range(len(groups)):
        assert len({split for key, split in splits.items() if key.startswith(f"g{number}/")}) == 1
    for name, numbers in count(refs, splits).items():
        sizes = [images for of_class, images in groups if of_class == name]
        images = sum(sizes) + single.get(name, 0)
        units = len(sizes) + single.get(name, 0)
        forced = sum(ideal < 1 for ideal in ideals(images, shares).values())
        if units >= len(shares) and len(sizes) < 60:
            assert set(numbers) == set(shares), (name, numbers)
        if single.get(name, 0) >= len(shares) or units < len(shares):
            for split, ideal in ideals(images, shares).items():
                gap = abs(numbers.get(split, 0) - ideal)
                assert gap <= max(sizes, default=1) + 1 + forced


MIXED_GROUPS = st.lists(st.dictionaries(st.sampled_from("abcd"), st.integers(1, 6), min_size=1))


def list_mixed(groups: Iterable[Mapping[str, int]]) -> list[ImageRef]:
    """Images of groups, each with so many images of each class."""
    refs = []
    for number, classes in enumerate(groups):
        for name, images in classes.items():
            refs += [
                make_ref(f"g{number}/{name}{i}", [name], group=f"g{number}") for i in range(images)
            ]
    return refs


def find_gaps(refs: list[ImageRef], splits: Mapping[str, str]) -> dict[str, Fraction]:
    """Class -> how far the split that is farthest off is from its share."""
    gaps = {}
    for name, numbers in count(refs, splits).items():
        wanted = ideals(sum(numbers.values()), THREE)
        gaps[name] = max(abs(numbers.get(split, 0) - ideal) for split, ideal in wanted.items())
    return gaps


@settings(max_examples=50)
@given(MIXED_GROUPS, CLASS_SIZES, SHARES, st.integers(0, 3), st.booleans())
def test_groups_of_several_classes_are_on_one_side_and_every_class_is_in_each_split(
    groups: list[dict[str, int]],
    single: dict[str, int],
    shares: Mapping[str, Fraction],
    seed: int,
    are_many: bool,
) -> None:
    refs = [*list_mixed(groups), *list_refs(single)]
    with pytest.MonkeyPatch.context() as patched:
        if are_many:
            patched.setattr(strata, "MOST_KINDS", 1)
        splits = choose(refs, shares, seed)
        assert splits == choose(refs[::-1], shares, seed)
    for number in range(len(groups)):
        assert len({splits[ref.key] for ref in refs if ref.key.startswith(f"g{number}/")}) <= 1
    for name, numbers in count(refs, splits).items():
        if single.get(name, 0) >= len(shares):
            assert set(numbers) == set(shares)


def test_classes_in_mixed_groups_are_near_their_shares() -> None:
    """60 patients of 1 to 12 images in four classes, of which the rarest has 3 % of them."""
    chance = random.Random(0)
    groups = []
    for _ in range(60):
        names = chance.choices("abcd", (60, 25, 12, 3), k=chance.randint(1, 12))
        groups.append(collections.Counter(names))
    refs = list_mixed(groups)
    for seed in range(5):
        assert max(find_gaps(refs, choose(refs, THREE, seed)).values()) <= 2


def test_large_and_small_groups_are_in_every_split() -> None:
    refs = list_mixed([{"a": 1 + number % 10} for number in range(200)])
    splits = choose(refs, THREE)
    largest = dict.fromkeys(THREE, 0)
    smallest = dict.fromkeys(THREE, 99)
    for ref in refs:
        number = int(ref.key[1 : ref.key.index("/")])
        split = splits[ref.key]
        largest[split] = max(largest[split], 1 + number % 10)
        smallest[split] = min(smallest[split], 1 + number % 10)
    assert min(largest.values()) >= 8
    assert max(smallest.values()) <= 3
    assert find_gaps(refs, splits)["a"] <= 1


def test_many_groups_of_a_kind_are_divided_exactly() -> None:
    refs = list_mixed([{"a": 2, "b": 1}] * 5_000 + [{"a": 1}] * 3_000)
    numbers = count(refs, choose(refs, THREE))
    assert numbers["b"] == {"train": 4_000, "validation": 500, "test": 500}
    assert numbers["a"] == {"train": 10_400, "validation": 1_300, "test": 1_300}


def test_groups_of_which_images_are_in_splits_go_to_most_of_them() -> None:
    refs = [
        make_ref("1", ["a"], "train?g"),
        make_ref("2", ["a"], "test?g"),
        make_ref("3", ["a"], "test?g"),
        make_ref("4", ["b"], group="g"),
        make_ref("5", ["a"], NO_SPLIT),
    ]
    splits = choose(refs, THREE)
    assert splits == {"1": "test", "2": "test", "3": "test", "4": "test", "5": NO_SPLIT}


def pair_up(refs: list[ImageRef], splits: tuple[str, str], pairs: int) -> list[ImageRef]:
    """Makes groups of two images of a class that are in two splits, from those in none yet."""
    single = [[ref for ref in refs if ref.split == split] for split in splits]
    grouped = dict[str, ImageRef]()
    for number, pair in zip(range(pairs), zip(*single, strict=False), strict=False):
        for ref in pair:
            name = f"{ref.split}?{'-'.join(splits)}{number}"
            grouped[ref.key] = ref._replace(split=name)
    return [grouped.get(ref.key, ref) for ref in refs]


@given(st.integers(3, 400), st.integers(0, 60), st.integers(0, 60), st.integers(0, 3))
def test_copies_in_two_splits_go_where_shares_are_short(
    images: int, pairs: int, others: int, seed: int
) -> None:
    refs = list_refs({"a": images})
    before = choose(refs, THREE, seed)
    refs = [ref._replace(split=before[ref.key]) for ref in refs]
    refs = pair_up(refs, ("train", "test"), pairs)
    refs = pair_up(refs, ("train", "validation"), others)
    after = choose(refs, THREE, seed)
    assert all(after[ref.key] == ref.split for ref in refs if "?" not in ref.split)
    assert all(after[ref.key] in ref.split.replace("?", "-") for ref in refs)
    numbers = count(refs, after)["a"]
    for split, ideal in ideals(images, THREE).items():
        assert abs(numbers.get(split, 0) - ideal) <= 4


def test_clusters_of_copies_do_not_drift_to_the_largest_split() -> None:
    refs = list_refs({"a": 300})
    before = choose(refs, THREE)
    in_split = {ref.key: f"{before[ref.key]}?{number % 70}" for number, ref in enumerate(refs)}
    single = {ref.key: before[ref.key] for ref in refs[210:]}
    refs = [ref._replace(split=(in_split | single)[ref.key]) for ref in refs]
    after = choose(refs, THREE)
    for number in range(70):
        cluster = {after[ref.key] for ref in refs[number:210:70]}
        assert len(cluster) == 1
        assert cluster <= {before[ref.key] for ref in refs[number:210:70]}
    assert all(after[key] == split for key, split in single.items())
    assert find_gaps(refs, after)["a"] <= 3  # images of a cluster


def test_images_of_several_classes_count_as_one_of_the_rarest() -> None:
    both = [make_ref(f"both{n}", ["common", "rare"]) for n in range(10)]
    refs = [*both, *(make_ref(f"common{n}", ["common"]) for n in range(100))]
    numbers = count(refs, choose(refs, THREE))
    assert numbers["rare"] == {"train": 8, "validation": 1, "test": 1}
    assert numbers["common"] == {"train": 88, "validation": 11, "test": 11}


def test_rejects_take_no_part_in_the_shares_of_their_class() -> None:
    refs = list_refs({"a": 10})
    refs += [make_ref(f"bad{n}", ["a"], reason="unusable-file") for n in range(50)]
    numbers = count(refs[:10], choose(refs, THREE))
    assert numbers["a"] == {"train": 8, "validation": 1, "test": 1}


def test_images_without_classes_have_exact_shares() -> None:
    refs = [make_ref(str(number)) for number in range(50)]
    splits = collections.Counter(choose(refs, shares_of({"folds": 5})).values())
    assert splits == {f"fold{number}": 10 for number in range(5)}


def test_folds_have_names_that_sort() -> None:
    assert name_folds(5) == [f"fold{number}" for number in range(5)]
    assert name_folds(11)[9:] == ["fold09", "fold10"]


GROUPED = [
    make_ref(f"{name}{number}/{i}", [name], group=f"{name}{number}" if number % 3 else "")
    for name in "abc"
    for number in range(40)
    for i in range(1 + number % 4)
]


@pytest.mark.parametrize("with_groups", [False, True])
@pytest.mark.parametrize("most_kinds", [strata.MOST_KINDS, 5])
def test_an_engine_chooses_the_same_splits_in_any_order(
    with_groups: bool, most_kinds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(strata, "MOST_KINDS", most_kinds)
    refs = [ref if with_groups else ref._replace(split=open_split()) for ref in GROUPED]
    random.Random(1).shuffle(refs)
    encoded = [ref.encode() for ref in refs]
    packs = [packing.pack_values(encoded[i : i + 17]) for i in range(0, len(refs), 17)]
    choosing = ChooseSplits(THREE, seed=5, grouped=with_groups)
    chosen = local_pipeline.run(lambda pipeline: pipeline | beam.Create(packs) | choosing)
    placed = [ImageRef.decode(ref) for packed in chosen for ref in packing.unpack_values(packed)]
    assert {ref.key: ref.split for ref in placed} == choose(refs, THREE, seed=5)


def list_splits(packs: Iterable[bytes]) -> dict[str, str]:
    """Key -> split of packed references."""
    refs = [ImageRef.decode(ref) for packed in packs for ref in packing.unpack_values(packed)]
    return {ref.key: ref.split for ref in refs}


def test_known_splits_and_groups_are_joined_by_key() -> None:
    refs = [make_ref(f"a{number}", ["a"]) for number in range(20)]
    splits = [f"a{number}\0test".encode() for number in range(4)]
    groups = [b"a0\0g", b"a10\0g", b"a11\0h", b"a12\0h"]

    def build(pipeline: beam.Pipeline) -> beam.PCollection[bytes]:
        packed = pipeline | beam.Create([packing.pack_values([ref.encode() for ref in refs])])
        choosing = ChooseSplits(
            THREE,
            seed=0,
            known_splits=pipeline | "S" >> beam.Create([packing.pack_values(splits)]),
            groups=pipeline | "G" >> beam.Create([packing.pack_values(groups)]),
            known_images=20_000,
        )
        return packed | choosing

    chosen = list_splits(local_pipeline.run(build))
    assert [chosen[f"a{number}"] for number in (0, 1, 2, 3, 10)] == ["test"] * 5
    assert chosen["a11"] == chosen["a12"]
    assert collections.Counter(chosen.values()) == {"train": 13, "validation": 2, "test": 5}


def add_images(
    refs: list[ImageRef], known: Mapping[str, str], groups: Mapping[str, str], layout: str = ""
) -> dict[str, str]:
    """Key -> split of images that were all placed once, when only some are known to stay."""

    def pack(values: Mapping[str, str]) -> beam.Create:
        pairs = [f"{key}\0{value}".encode() for key, value in values.items()]
        return beam.Create([*packing.pack_batches(pairs)])

    def build(pipeline: beam.Pipeline) -> beam.PCollection[bytes]:
        packs = packing.pack_batches(ref.encode() for ref in refs)
        choosing = ChooseSplits(
            THREE,
            seed=0,
            known_splits=pipeline | "S" >> pack(known),
            groups=pipeline | "G" >> pack(groups),
            grouped=bool(layout),
            layout=parse_layout(layout) if layout else None,
        )
        return pipeline | beam.Create([*packs]) | choosing

    return list_splits(local_pipeline.run(build))


@settings(max_examples=6)
@given(st.integers(3, 120), st.integers(0, 40), st.integers(0, 60), st.integers(0, 12))
def test_new_images_make_up_for_copies_of_old_ones(
    old: int, copied: int, free: int, pairs: int
) -> None:
    """Copies follow; then new clusters, and then single images, fill what is short."""
    refs = list_refs({"a": old})
    before = choose(refs, THREE)
    in_train = [key for key, split in before.items() if split == "train"][:copied]
    groups = {}
    for key in in_train:
        refs.append(make_ref(f"copy/{key}", ["a"]))
        groups |= {key: key, f"copy/{key}": key}
    for number in range(pairs):
        refs += [make_ref(f"pair/{number}/{i}", ["a"]) for i in range(2)]
        groups |= {f"pair/{number}/{i}": f"pair/{number}/0" for i in range(2)}
    refs += [make_ref(f"free/{number}", ["a"]) for number in range(free)]
    placed_once = choose(refs, THREE) | before
    refs = [ref._replace(split=placed_once[ref.key]) for ref in refs]
    after = add_images(refs, before, groups)
    assert before.items() <= after.items()
    assert all(after[f"copy/{key}"] == before[key] for key in in_train)
    assert all(after[f"pair/{n}/0"] == after[f"pair/{n}/1"] for n in range(pairs))
    numbers = count(refs, after)["a"]
    levels = {split: numbers.get(split, 0) / share for split, share in THREE.items()}
    singles = collections.Counter(split for key, split in after.items() if key.startswith("free/"))
    for split, added in singles.items():
        lowest = min((numbers.get(other, 0) + 1) / share for other, share in THREE.items())
        assert added <= 1 or levels[split] - 1 / THREE[split] <= lowest


def test_groups_of_the_layout_stay_together_when_images_are_added() -> None:
    refs = list_mixed([{"a": 3}] * 30)
    placed_once = choose([ref._replace(split=open_split()) for ref in refs], THREE)
    refs = [ref._replace(split=placed_once[ref.key]) for ref in refs]
    known = {ref.key: "test" for ref in refs if ref.key in ("g0/a0", "g0/a1")}
    groups = {f"g{n}/a{i}": "g1/a0" for n in (1, 2) for i in range(3)}
    after = add_images(refs, known, groups, layout="{group}/*")
    sides = [{after[f"g{number}/a{i}"] for i in range(3)} for number in range(30)]
    assert sides[0] == {"test"}
    assert sides[1] == sides[2]
    assert all(len(side) == 1 for side in sides)
    assert collections.Counter(after.values()) == {"train": 72, "validation": 9, "test": 9}


def test_images_of_a_group_follow_those_that_are_there_before_copies() -> None:
    """What only a copy was in counts where no image of the group has a split of its own."""
    borrowed = SplitField(b"test", b"g", is_final=False, is_borrowed=True).encode().decode()
    refs = [make_ref(f"new{number}", split=borrowed).encode() for number in range(3)]
    group = strata.Group.gather(b"g", refs)
    assert group.find_split(shares=(), seed=0) == "test"
    assert group.count_borrowed() == {"test": 3}
    old = make_ref("old", split="train?g").encode()
    assert strata.Group.gather(b"g", [*refs, old]).find_split(shares=(), seed=0) == "train"
