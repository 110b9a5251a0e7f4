"""Finds copies of the images that are taken down from a dataset."""

from collections.abc import Iterator, Set

import numpy as np

from beam_tfr.copies.clusters import find_clusters
from beam_tfr.copies.images import read_images
from beam_tfr.copies.search import check_distance
from beam_tfr.copies.summary import is_summarized
from beam_tfr.dataset.base import planned_shards
from beam_tfr.dataset.manifest import Manifest
from beam_tfr.output.copied_images import read_keys
from beam_tfr.output.copy_details import list_kept
from beam_tfr.output.known import require_sources
from beam_tfr.schema.encoded_ref import to_bytes
from beam_tfr.schema.items import DUPLICATE, Reject


def find_dropped_copies(dataset: Manifest, keys: Set[bytes]) -> set[bytes]:
    """Finds the keys of rejects that are copies of some images.

    Raises:
        DataError: sidecars are missing.
    """
    copies = set[bytes]()
    for reject in _list_dropped(dataset):
        kept = {*map(to_bytes, list_kept(reject))}
        if not kept.isdisjoint(keys):
            copies.add(to_bytes(reject.key))
    return copies


def find_copies_that_stay(dataset: Manifest, keys: Set[bytes]) -> list[bytes]:
    """Returns the sorted keys of other images that are copies of these images.

    Returns no keys if the dataset has so many images that its manifest does not count copies.

    Raises:
        DataError: contents or sidecars are missing or damaged.
    """
    copies = _find_in_clusters(dataset, keys)
    for reject in _list_dropped(dataset):
        if to_bytes(reject.key) in keys:
            copies.add(to_bytes(list_kept(reject)[0]))
    return sorted(copies - keys)


def _find_in_clusters(dataset: Manifest, keys: Set[bytes]) -> set[bytes]:
    """Finds the keys of all images in the clusters that contain some images."""
    if not dataset.duplicates or not is_summarized(dataset):
        return set()
    clusters = find_clusters(read_images(dataset), check_distance(dataset, None)).trusted
    if not clusters:
        return set()
    rows = np.sort(np.concatenate([cluster.images for cluster in clusters]))
    key_of_row = dict(zip(rows.tolist(), read_keys(dataset, rows), strict=True))
    found = set[bytes]()
    for cluster in clusters:
        members = {key_of_row[row] for row in cluster.images.tolist()}
        if not members.isdisjoint(keys):
            found |= members
    return found


def _list_dropped(dataset: Manifest) -> Iterator[Reject]:
    """Yields the rejects of a dataset that are copies of other images."""
    if not dataset.counts["rejected"].get(DUPLICATE):
        return
    for shard in planned_shards(dataset):
        for source in require_sources(dataset.folder, shard):
            if source.reject and source.reject.reason == DUPLICATE:
                yield source.reject
