"""Finds clusters: images that are copies of each other."""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from beam_tfr.copies.components import Components
from beam_tfr.copies.hashes import Hashes, Rows
from beam_tfr.copies.images import NO_LABEL, ComparedImages, take_keys
from beam_tfr.copies.near import Linked, link_near

MOST_IN_CLUSTER = 100  # images; in larger clusters, most are probably not copies


class Cluster(NamedTuple):
    """Images that are copies of each other.

    Attributes:
        images: rows of the images; the first is the image to keep, whose source has the most
            pixels.
        crosses_splits: whether the images are in several splits.
        crosses_classes: whether the images have different classes.
    """

    images: Rows
    crosses_splits: bool
    crosses_classes: bool


class Clusters(NamedTuple):
    """The clusters of a dataset.

    Attributes:
        trusted: the clusters to act on: first those that cross splits, then those that cross
            classes, then the others; larger clusters come first in each of these groups.
        too_large: the clusters of more than `MOST_IN_CLUSTER` images, in which only images with
            equal bytes are trusted to be copies.
        crowded: images that are not in `too_large`, but may have more copies, because too many
            other images look like them.
    """

    trusted: list[Cluster]
    too_large: list[Cluster]
    crowded: Sequence[int] = ()


def find_clusters(images: ComparedImages, distance: int | None) -> Clusters:
    """Finds the clusters among images.

    Args:
        images: the images of the dataset.
        distance: number of bits by which the hashes of near copies may differ; None to compare
            only bytes.
    """
    hashed = images.hashed
    equal = Components(images.number)
    with_source = np.flatnonzero(hashed.has_source)
    equal.link_equal(number_equal(hashed.sources[with_source]), with_source)
    near = equal.copy()
    is_crowded = np.zeros(images.number, bool)
    if distance is not None:
        compared = np.flatnonzero(hashed.is_compared)
        link = functools.partial(link_near, distance=distance)
        linked = link_different(hashed.hashes[compared], link)
        near.link(compared, compared[linked.first])
        is_crowded[compared] = linked.is_crowded
    return _cluster_linked(images, equal, near, np.flatnonzero(is_crowded))


def cluster_pairs(
    images: ComparedImages, equal_pairs: Rows, near_pairs: Rows, crowded: Rows
) -> Clusters:
    """Makes clusters from pairs of rows of `images`: int64 [pairs, 2].

    Args:
        images: the images in all pairs, in the order of their records.
        equal_pairs: pairs of images with equal bytes.
        near_pairs: pairs of images with similar hashes.
        crowded: the rows of images that may have more copies.
    """
    equal = Components(images.number)
    equal.link(equal_pairs[:, 0], equal_pairs[:, 1])
    near = equal.copy()
    near.link(near_pairs[:, 0], near_pairs[:, 1])
    return _cluster_linked(images, equal, near, crowded)


def _cluster_linked(
    images: ComparedImages, equal: Components, near: Components, crowded: Rows
) -> Clusters:
    """Makes clusters from linked images.

    Args:
        equal: components of images with equal bytes.
        near: components of images with equal bytes or similar hashes.
        crowded: the images that may have more copies.
    """
    sizes = np.bincount(near.first, minlength=images.number)
    is_too_large = sizes[near.first] > MOST_IN_CLUSTER
    trusted = np.where(is_too_large, equal.first, near.first)
    too_large = np.where(is_too_large, near.first, np.arange(images.number))
    return Clusters(
        _make_clusters(images, trusted),
        _make_clusters(images, too_large),
        tuple(crowded[~is_too_large[crowded]].tolist()),
    )


def number_equal(hashes: "np.typing.NDArray[np.uint8]") -> Rows:
    """Numbers hashes, uint8 [rows, 32]; equal hashes get equal numbers: int64 [rows]."""
    words = np.ascontiguousarray(hashes).view(np.uint64)
    order = np.lexsort(words.T)
    ordered = words[order]
    is_other = (ordered[1:] != ordered[:-1]).any(axis=1)
    numbers = np.zeros(len(words), np.int64)
    numbers[order[1:]] = np.cumsum(is_other)
    return numbers


def link_different(
    hashes: "np.typing.NDArray[np.uint8]", link: Callable[[Hashes], Linked]
) -> Linked:
    """Links images, some of which may have equal hashes.

    Args:
        hashes: the hashes of the images: uint8 [images, 32].
        link: a function such as `link_near`, which links images with different hashes.
    """
    numbers = number_equal(hashes)
    components = Components(len(hashes))
    components.link_equal(numbers, np.arange(len(hashes)))
    # From here on, one image for each hash is enough.
    different = np.zeros(numbers.max(initial=-1) + 1, np.int64)
    different[numbers[::-1]] = np.arange(len(numbers))[::-1]
    linked = link(Hashes.from_bytes(hashes[different]))
    components.link(different, different[linked.first])
    return Linked(components.first, linked.is_crowded[numbers])


def _make_clusters(images: ComparedImages, first: Rows) -> list[Cluster]:
    """Makes clusters of more than one image, given the first image of each image's cluster."""
    sizes = np.bincount(first, minlength=len(first))
    rows = np.flatnonzero(sizes[first] > 1)
    keys = [key or "" for key in take_keys(images, rows)]
    in_order = sorted(
        zip(first[rows].tolist(), (-images.pixels[rows]).tolist(), keys, rows.tolist(), strict=True)
    )
    ordered = np.array([row for *_, row in in_order], np.int64)
    ends = np.flatnonzero(np.diff(first[ordered])) + 1
    clusters = list[tuple[tuple[bool, bool, int, str], Cluster]]()
    begin = 0
    for end in [*ends.tolist(), len(ordered)]:
        if begin == end:  # there are no clusters
            break
        cluster = _make_cluster(images, ordered[begin:end])
        key = in_order[begin][2]
        rank = (not cluster.crosses_splits, not cluster.crosses_classes, begin - end, key)
        clusters.append((rank, cluster))
        begin = end
    clusters.sort(key=lambda ranked: ranked[0])
    return [cluster for _, cluster in clusters]


def _make_cluster(images: ComparedImages, rows: Rows) -> Cluster:
    splits = images.splits[rows]
    labels = images.labels[rows]
    known = labels[labels != NO_LABEL]
    return Cluster(
        rows,
        crosses_splits=bool((splits != splits[0]).any()),
        crosses_classes=bool((known != known[:1]).any()),
    )
