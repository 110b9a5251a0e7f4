"""Finds copies among the images of a dataset, and the keys of these images."""

import collections
import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from beam_tfr.copies.clusters import Cluster, cluster_pairs
from beam_tfr.copies.components import Components
from beam_tfr.copies.hashes import Rows
from beam_tfr.copies.images import NO_LABEL, ComparedImages, divide_rows, read_some_images
from beam_tfr.copies.parts import Pairs
from beam_tfr.dataset.base import BaseDataset, PlannedShard, planned_shards
from beam_tfr.dataset.manifest import Manifest
from beam_tfr.layouts.parsing import Layout, parse_layout
from beam_tfr.output.copy_details import describe_copy
from beam_tfr.output.known import require_sources
from beam_tfr.schema.encoded_ref import key_of, to_text


class _Member(NamedTuple):
    """An image in a group of images that must share a split.

    Attributes:
        key: key of the image.
        split: present split of the image.
    """

    key: bytes
    split: str


@dataclasses.dataclass(frozen=True)
class CopiedImages:
    """The copies in a dataset; only images that have or may have copies are in memory.

    Attributes:
        dataset: manifest of the dataset.
        images: the images that have copies.
        clusters: the clusters of these images.
        keys: the keys of these images.
        crowded: number of images that may have more copies than were found, because too many others
            look like them.
    """

    dataset: Manifest
    images: ComparedImages
    clusters: Sequence[Cluster]
    keys: Sequence[bytes]
    crowded: int

    @classmethod
    def find(cls, base: BaseDataset, pairs: Pairs) -> "CopiedImages":
        """Finds the copies in a dataset from all pairs of copies.

        Raises:
            DataError: contents or sidecars are missing or damaged.
        """
        dataset = base.read_manifest()
        rows = pairs.list_rows()
        images = read_some_images(dataset, rows)
        equal = np.searchsorted(rows, pairs.equal)
        near = np.searchsorted(rows, pairs.near)
        crowded = np.searchsorted(rows, pairs.crowded)
        clusters = cluster_pairs(images, equal, near, crowded)
        keys = [*read_keys(dataset, rows)]
        return cls(dataset, images, clusters.trusted, keys, len(clusters.crowded))

    def list_groups(self, *, only_torn: bool = True) -> Iterator[bytes]:
        """Yields "key NUL name" for each image that must share a split with other images.

        The name of a group is the smallest key in it. Groups of the layout that contain copies of
        the same image become one group.

        Args:
            only_torn: whether to leave out groups whose images are already in the same split.
        """
        for members in self._list_members().values():
            is_torn = len({member.split for member in members}) > 1
            if is_torn or not only_torn:
                name = min(member.key for member in members)
                yield from (member.key + b"\0" + name for member in members)

    def _list_members(self) -> Mapping[int, Sequence[_Member]]:
        """Lists the images that must share a split, by the first image of each group."""
        if not self.clusters:
            return {}
        in_clusters = np.concatenate([cluster.images for cluster in self.clusters])
        kept = [np.repeat(cluster.images[:1], len(cluster.images)) for cluster in self.clusters]
        components = Components(len(self.keys))
        components.link(np.concatenate(kept), in_clusters)
        rows_of_groups = self._link_groups(components, in_clusters)
        members = collections.defaultdict[int, list[_Member]](list)
        for row in in_clusters.tolist():
            split = self.images.split_names[self.images.splits[row]]
            members[int(components.first[row])].append(_Member(self.keys[row], split))
        keys_in_clusters = {self.keys[row] for row in in_clusters.tolist()}
        for row, member in self._list_grouped(rows_of_groups):
            if member.key not in keys_in_clusters:
                members[int(components.first[row])].append(member)
        return members

    def _link_groups(self, components: Components, rows: Rows) -> Mapping[str, int]:
        """Links images in the same group of the layout; returns group -> one of its images."""
        first = dict[str, int]()
        left = list[int]()
        right = list[int]()
        for row in rows.tolist():
            group = self._group_of(self.keys[row])
            if group is not None:
                left.append(first.setdefault(group, row))
                right.append(row)
        components.link(np.array(left, np.int64), np.array(right, np.int64))
        return first

    def _list_grouped(self, rows_of_groups: Mapping[str, int]) -> Iterator[tuple[int, _Member]]:
        """Yields all images in some groups of the layout, with the first image of each group."""
        if not rows_of_groups:
            return
        for shard in planned_shards(self.dataset):
            for key in _read_keys_of_shard(self.dataset, shard):
                group = self._group_of(key)
                if group is not None and group in rows_of_groups:
                    yield rows_of_groups[group], _Member(key, shard.split)

    def _group_of(self, key: bytes) -> str | None:
        """Returns the group of the layout that contains an image."""
        return self._layout.group_of(to_text(key))

    @functools.cached_property
    def _layout(self) -> Layout:
        return parse_layout(str(self.dataset.options.get("layout", "*")))

    def list_rejects(self) -> Iterator[bytes]:
        """Yields "key NUL sentence" for each image that is a copy of an image that is kept."""
        for cluster in self.clusters:
            kept, *others = cluster.images.tolist()
            for row in others:
                detail = self._describe_copy(row, kept)
                yield self.keys[row] + b"\0" + detail.encode("utf-8", "surrogateescape")

    def _describe_copy(self, row: int, kept: int) -> str:
        """Describes a copy of an image that is kept, and the classes of the two images."""
        labels = self.images.labels
        key = to_text(self.keys[kept])
        if NO_LABEL in (labels[row], labels[kept]):
            return describe_copy(key, "", "")
        names = self.images.label_names
        return describe_copy(key, names[labels[kept]], names[labels[row]])


def read_keys(dataset: Manifest, rows: Rows) -> Iterator[bytes]:
    """Yields the keys of records with these sorted numbers."""
    for shard, rows_in_shard in divide_rows(dataset, rows):
        keys = [*_read_keys_of_shard(dataset, shard)]
        yield from (keys[row] for row in rows_in_shard.tolist())


def _read_keys_of_shard(dataset: Manifest, shard: PlannedShard) -> Iterator[bytes]:
    """Yields the keys of the records of a shard, in order."""
    for source in require_sources(dataset.folder, shard):
        if source.reject is None:
            yield key_of(source.ref)
