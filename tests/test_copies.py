"""Copies of images: distances of hashes, near pairs, clusters, and what is told of them."""

from __future__ import annotations

import collections
from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_tfr.copies import near
from beam_tfr.copies.clusters import MOST_IN_CLUSTER, Clusters, cluster_pairs, find_clusters
from beam_tfr.copies.components import Components
from beam_tfr.copies.hashes import HASH_BYTES, Hashes
from beam_tfr.copies.images import NO_LABEL, ComparedImages, HashedImages
from beam_tfr.copies.near import MOST_DISTANCE, choose_bands, link_near
from beam_tfr.copies.parts import Pairs, Parts
from beam_tfr.copies.summary import summarize_clusters
from beam_tfr.images.appearance import perceptual_hash

MIRROR = np.tile(np.array([1, 0], bool), 128)  # the bits that a mirrored image has inverted


def random_bits(number: int, seed: int = 0) -> np.ndarray:
    """Hashes as bits: bool [number, 256]."""
    return np.random.default_rng(seed).integers(0, 2, (number, 256)).astype(bool)


def flip(bits: np.ndarray, number: int, generator: np.random.Generator) -> np.ndarray:
    """A hash with so many bits inverted."""
    flipped = bits.copy()
    flipped[generator.choice(256, number, replace=False)] ^= True
    return flipped


def as_bytes(bits: np.ndarray) -> np.ndarray:
    return np.packbits(bits, axis=1)


def as_hashes(bits: np.ndarray) -> Hashes:
    return Hashes.from_bytes(as_bytes(bits))


def all_distances(bits: np.ndarray) -> np.ndarray:
    """The distances of all pairs, by comparing all of their bits."""
    plain = (bits[:, None] != bits[None]).sum(axis=2)
    mirrored = (bits[:, None] != (bits ^ MIRROR)[None]).sum(axis=2)
    return np.minimum(plain, mirrored)


def components_of(are_linked: np.ndarray) -> list[int]:
    """The smallest member of the component of each, by following all links."""
    first = [*range(len(are_linked))]
    for _ in first:
        for left, right in np.argwhere(are_linked):
            first[left] = first[right] = min(first[left], first[right])
    return first


def test_a_hash_and_that_of_the_mirrored_image_are_the_same() -> None:
    generator = np.random.default_rng(3)
    coarse = generator.integers(0, 256, (8, 24, 36, 3), np.uint8)
    images = [cv2.resize(image, (300, 200), interpolation=cv2.INTER_CUBIC) for image in coarse]
    mirrored = [np.ascontiguousarray(image[:, ::-1]) for image in images]
    hashes = [np.frombuffer(perceptual_hash(image), np.uint8) for image in images + mirrored]
    own = np.arange(8)
    distances = Hashes.from_bytes(np.array(hashes)).distances(own, own + 8)
    assert distances.max() <= 2  # a coefficient may be 0


def test_distances_are_numbers_of_bits() -> None:
    bits = random_bits(20)
    bits[10:] = bits[:10] ^ MIRROR
    bits[10:, :5] ^= True
    left, right = np.divmod(np.arange(400), 20)
    distances = as_hashes(bits).distances(left, right)
    assert distances.tolist() == all_distances(bits)[left, right].tolist()
    for distance in (0, 5, 100):
        are_near = as_hashes(bits).are_near(left, right, distance)
        assert are_near.tolist() == (distances <= distance).tolist()


@given(
    st.integers(1, 12).flatmap(
        lambda n: st.lists(
            st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=6),
            max_size=4,
        ).map(lambda batches: (n, batches))
    )
)
def test_components_are_those_of_all_links(
    case: tuple[int, list[list[tuple[int, int]]]],
) -> None:
    number, batches = case
    components = Components(number)
    are_linked = np.zeros((number, number), bool)
    for batch in batches:
        pairs = np.array(batch, np.int64).reshape(-1, 2)
        components.link(pairs[:, 0], pairs[:, 1])
        are_linked[pairs[:, 0], pairs[:, 1]] = True
    assert components.first.tolist() == components_of(are_linked)


@given(st.integers(0, MOST_DISTANCE), st.integers(0, 2**32))
def test_two_hashes_at_a_distance_share_a_bucket(distance: int, seed: int) -> None:
    """However the bits that differ are spread over the bands."""
    generator = np.random.default_rng(seed)
    bands = choose_bands(distance)
    assert sorted(bit for band in bands for bit in band) == sorted(
        (turns, word, number) for turns in (False, True) for word in (0, 1) for number in range(64)
    )
    weights = generator.random(len(bands)) ** 4
    of_band = np.repeat(weights, [len(band) for band in bands])
    chosen = generator.choice(256, distance, replace=False, p=of_band / of_band.sum())
    numbers = np.repeat(np.arange(len(bands)), [len(band) for band in bands])
    assert np.bincount(numbers[chosen], minlength=len(bands)).min() <= 2


@pytest.mark.parametrize("distance", [0, 5, 16, 24, 31, 40, MOST_DISTANCE])
def test_no_near_pair_is_missed(distance: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(near, "_TASK_KEYS", 1000)  # several parts
    generator = np.random.default_rng(distance)
    bits = random_bits(300, seed=distance)
    for place in range(0, 300, 3):
        bits[place + 1] = flip(bits[place], distance, generator)
        bits[place + 2] = flip(bits[place], distance + 1, generator)
        if place % 2:
            bits[place + 1] ^= MIRROR
    linked = link_near(as_hashes(bits), distance)
    assert linked.first.tolist() == components_of(all_distances(bits) <= distance)
    assert len(np.unique(linked.first)) < 201


def test_many_copies_of_few_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chains of them, as of a film."""
    monkeypatch.setattr(near, "_TASK_KEYS", 3000)
    generator = np.random.default_rng(1)
    rows = [*random_bits(3)]
    for number in range(200):
        rows.append(flip(rows[number], 20, generator))
    bits = np.array(rows)[generator.permutation(len(rows))]
    linked = link_near(as_hashes(bits), 31)
    assert linked.first.tolist() == components_of(all_distances(bits) <= 31)


def columns_of(band: Sequence[Any]) -> list[int]:
    """Which bits of a hash are in a band."""
    columns = dict[Any, int]()
    for column, (staying, turning) in enumerate(
        zip(*as_hashes(np.eye(256, dtype=bool)), strict=True)
    ):
        for turns, words in enumerate((staying, turning)):
            for word, value in enumerate(words.tolist()):
                if value:
                    columns[bool(turns), word, value.bit_length() - 1] = column
    return [columns[bit] for bit in band]


def flip_some(bits: np.ndarray) -> np.ndarray:
    """Each hash with eight bits inverted."""
    generator = np.random.default_rng(0)
    return np.array([flip(row, 8, generator) for row in bits])


def sharing_bands(number: int, bands: int) -> np.ndarray:
    """Hashes that are equal in the first bands, as bits."""
    bits = random_bits(number)
    for band in choose_bands(31)[:bands]:
        bits[:, columns_of(band)] = False
    return bits


def sharing_a_band(number: int) -> np.ndarray:
    """Hashes that share a band, of which every tenth has a copy that shares only that band.

    It is as far as near copies are: three bits in each of the other bands.
    """
    bits = sharing_bands(number, 1)
    bits[1:-1:10] = bits[0:-1:10]
    for band in choose_bands(31)[1:]:
        bits[1:-1:10, columns_of(band)[:3]] ^= True
    return bits


@pytest.mark.parametrize("task_keys", [near._TASK_KEYS, 20_000])
def test_no_near_pair_is_missed_where_all_share_a_band(
    task_keys: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(near, "_TASK_KEYS", task_keys)
    monkeypatch.setattr(near, "MOST_IN_BUCKET", 50)
    hashes = as_hashes(sharing_a_band(1000))
    expected = np.arange(1000)
    expected[1:-1:10] -= 1
    linked = link_near(hashes, 31)
    assert linked.first.tolist() == expected.tolist()
    assert not linked.is_crowded.any()
    number_of_parts = near.count_parts(1000, 31)
    components = Components(1000)
    for part in range(number_of_parts):
        in_part = near.link_in_part(hashes, 31, 0, number_of_parts, part)
        components.link(np.arange(1000), in_part.first)
        assert not in_part.is_crowded.any()
    assert components.first.tolist() == expected.tolist()


def test_the_pairs_that_are_compared_grow_with_the_images(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However many bands are the same in all hashes."""
    monkeypatch.setattr(near, "MOST_IN_BUCKET", 3)
    compared_pairs = collections.Counter[int]()
    link = near._Comparison.link

    def count_and_link(comparison: Any, images: Any, left: Any, right: Any) -> None:
        compared_pairs[number] += len(left)
        link(comparison, images, left, right)

    monkeypatch.setattr(near._Comparison, "link", count_and_link)
    for number in (500, 2000):
        linked = link_near(as_hashes(sharing_bands(number, 6)), 31)
        assert linked.is_crowded.any()
    assert compared_pairs[2000] < 6 * compared_pairs[500]


def test_crowded_images_are_told_unless_their_cluster_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(near, "MOST_IN_BUCKET", 5)
    alike = flip_some(random_bits(1).repeat(MOST_IN_CLUSTER + 1, axis=0))
    images = compared(np.concatenate([sharing_bands(200, 7), alike]))
    clusters = find_clusters(images, 31)
    assert len(clusters.too_large[0].images) == MOST_IN_CLUSTER + 1
    assert 100 < len(clusters.crowded) <= 200
    assert max(clusters.crowded) < 200
    assert summarize_clusters(images, clusters)["crowded"] == len(clusters.crowded)
    assert len(find_in_parts(images, 31, 4).crowded) > 100


def compared(
    bits: np.ndarray,
    *,
    keys: Sequence[str | None] | None = None,
    splits: Sequence[int] | None = None,
    labels: Sequence[int] | None = None,
    pixels: Sequence[int] | None = None,
    sources: Sequence[int] | None = None,
    **others: Any,
) -> ComparedImages:
    """Images with these hashes; a source is a number, and 0 none."""
    number = len(bits)
    source_numbers = np.array([*range(1, number + 1)] if sources is None else sources)
    source_bytes = np.zeros((number, HASH_BYTES), np.uint8)
    source_bytes[:, 0] = source_numbers % 256
    source_bytes[:, 1] = source_numbers // 256
    hashed = HashedImages(
        sources=source_bytes,
        has_source=source_numbers > 0,
        hashes=as_bytes(bits),
        has_hash=np.ones(number, bool),
        is_flat=np.zeros(number, bool),
    )
    return ComparedImages(
        keys=pa.chunked_array([pa.array(keys or [f"k{i:04}" for i in range(number)])]),
        split_names=["test", "train"],
        splits=np.array([0] * number if splits is None else splits),
        label_names=["a", "b"],
        labels=np.array([NO_LABEL] * number if labels is None else labels),
        pixels=np.array([1] * number if pixels is None else pixels),
        hashed=hashed._replace(**others),
    )


def find_in_parts(images: ComparedImages, distance: int | None, number_of_parts: int) -> Clusters:
    """Finds the clusters part by part, as workers do, with the images in three shards."""
    parts = Parts(distance, number_of_parts)
    packs = collections.defaultdict[int, list[bytes]](list)
    for begin in range(0, images.number, 1 + images.number // 3):
        end = begin + 1 + images.number // 3
        shard = HashedImages(*(column[begin:end] for column in images.hashed))
        for part, packed in parts.divide(shard, begin):
            packs[part].insert(0, packed)
    pairs = Pairs.join(parts.link(part, of_part) for part, of_part in packs.items())
    rows = pairs.list_rows()
    some = images._replace(
        keys=images.keys.take(pa.array(rows)),
        splits=images.splits[rows],
        labels=images.labels[rows],
        pixels=images.pixels[rows],
        hashed=HashedImages(*(column[rows] for column in images.hashed)),
    )
    equal, nearby, crowded = (np.searchsorted(rows, places) for places in pairs)
    found = cluster_pairs(some, equal, nearby, crowded)
    trusted, too_large = (
        [cluster._replace(images=rows[cluster.images]) for cluster in clusters]
        for clusters in (found.trusted, found.too_large)
    )
    return Clusters(trusted, too_large, tuple(rows[np.array(found.crowded, np.int64)].tolist()))


@settings(max_examples=15)
@given(
    st.integers(0, 2**32),
    st.sampled_from([None, 0, 16, 31, MOST_DISTANCE]),
    st.sampled_from([1, 4, 32]),
)
def test_parts_find_the_same_clusters(
    seed: int, distance: int | None, number_of_parts: int
) -> None:
    """Of photos with copies of copies, mirrored, flat, unhashed and of equal bytes."""
    generator = np.random.default_rng(seed)
    rows = [*random_bits(20, seed)]
    while len(rows) < 120:
        copied = flip(rows[generator.integers(len(rows))], generator.integers(0, 40), generator)
        rows.append(copied ^ MIRROR if generator.integers(2) else copied)
    images = compared(
        np.array(rows),
        splits=generator.integers(0, 2, 120).tolist(),
        labels=generator.integers(-1, 2, 120).tolist(),
        pixels=generator.integers(1, 4, 120).tolist(),
        sources=generator.integers(0, 100, 120).tolist(),
        is_flat=generator.random(120) < 0.1,
        has_hash=generator.random(120) < 0.9,
    )
    expected = find_clusters(images, distance)
    found = find_in_parts(images, distance, number_of_parts)
    assert found.crowded == expected.crowded == ()
    for expected_clusters, found_clusters in zip(expected[:2], found[:2], strict=True):
        as_lists = [(c.images.tolist(), *c[1:]) for c in found_clusters]
        assert as_lists == [(c.images.tolist(), *c[1:]) for c in expected_clusters]


def members(clusters: Clusters) -> list[list[int]]:
    return [cluster.images.tolist() for cluster in clusters.trusted]


def test_the_image_with_most_pixels_comes_first_then_the_smallest_key() -> None:
    bits = random_bits(5)[[0, 0, 0, 0, 1]]
    images = compared(bits, keys=["d", "c", "b", "a", "e"], pixels=[5, 9, 9, 1, 99])
    assert members(find_clusters(images, 31)) == [[2, 1, 0, 3]]


def test_clusters_across_splits_come_first_then_those_across_classes() -> None:
    bits = np.repeat(random_bits(4), 3, axis=0)
    images = compared(
        bits,
        splits=[0, 0, 0, 1, 1, 1, 0, 1, 1, 1, 1, 1],
        labels=[0, 0, 0, 0, 1, -1, 0, 0, 0, -1, -1, 1],
    )
    clusters = find_clusters(images, 31)
    assert members(clusters) == [[6, 7, 8], [3, 4, 5], [0, 1, 2], [9, 10, 11]]
    summary = summarize_clusters(images, clusters)
    assert summary == {
        "images": 12,
        "clusters": 4,
        "across_splits": 1,
        "across_classes": 1,
        "too_large": 0,
        "examples": [["k0006", "k0007"], ["k0003", "k0004"], ["k0000", "k0001"]],
    }


def test_equal_bytes_are_copies_whatever_the_hashes_are() -> None:
    bits = random_bits(6)
    bits[5] = bits[4]
    images = compared(bits, sources=[1, 2, 1, 0, 0, 3])
    assert members(find_clusters(images, 0)) == [[0, 2], [4, 5]]
    assert members(find_clusters(images, None)) == [[0, 2]]


def test_flat_images_and_those_without_a_hash_are_compared_by_bytes_only() -> None:
    bits = np.zeros((6, 256), bool)
    flat = np.array([1, 1, 0, 0, 0, 0], bool)
    hashed = np.array([1, 1, 0, 0, 1, 1], bool)
    images = compared(bits, sources=[1, 1, 2, 3, 4, 5], is_flat=flat, has_hash=hashed)
    assert members(find_clusters(images, 31)) == [[0, 1], [4, 5]]


def test_of_too_many_alike_only_equal_bytes_count() -> None:
    number = MOST_IN_CLUSTER + 1
    bits = np.concatenate([random_bits(1).repeat(number, axis=0), random_bits(2, 1)[[0, 0]]])
    sources = [7, 7, *range(8, number + 8)]
    images = compared(bits, sources=sources[: len(bits)])
    clusters = find_clusters(images, 31)
    assert members(clusters) == [[0, 1], [number, number + 1]]
    assert [cluster.images.tolist() for cluster in clusters.too_large] == [[*range(number)]]
    equal = compared(bits, sources=[7] * number + [8, 9])
    assert len(find_clusters(equal, None).trusted[0].images) == number


def test_nothing_to_compare() -> None:
    for number in (0, 1):
        images = compared(random_bits(number))
        assert find_clusters(images, 31) == Clusters([], [])
        assert summarize_clusters(images, Clusters([], [])) == {}
