"""Finds the copies among the images of a dataset, by the keys of their references."""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from beam_tfr.copies.clusters import Cluster, find_clusters
from beam_tfr.copies.components import Components
from beam_tfr.copies.images import NO_LABEL, ComparedImages, read_images
from beam_tfr.copies.search import check_distance
from beam_tfr.dataset.base import BaseDataset, planned_shards
from beam_tfr.dataset.manifest import Manifest
from beam_tfr.layouts.parsing import parse_layout
from beam_tfr.output.known import require_sources
from beam_tfr.schema.encoded_ref import key_of, to_text


@dataclasses.dataclass(frozen=True)
class CopiedImages:
    """The copies in a dataset.

    Attributes:
        dataset: its manifest.
        images: all of its images.
        clusters: those of copies.
        keys: of the images, by their rows; empty if there are no clusters.
    """

    dataset: Manifest
    images: ComparedImages
    clusters: Sequence[Cluster]
    keys: Sequence[bytes]

    @classmethod
    def find(cls, base: BaseDataset) -> "CopiedImages":
        """Finds the copies in a dataset.

        Raises:
            DataError: contents or sidecars are missing or damaged.
        """
        dataset = base.read_manifest()
        images = read_images(dataset)
        clusters = find_clusters(images, check_distance(dataset, None)).trusted
        keys = [*_read_keys(dataset)] if clusters else []
        return cls(dataset, images, clusters, keys)

    def list_groups(self) -> Iterator[bytes]:
        """Yields images that have to share their split, and do not: key, NUL, name of the group.

        The name is the smallest key in it. Groups of the layout that share a copy are one.
        """
        if not self.clusters:
            return
        components = Components(len(self.keys))
        copies = [cluster.images[1:] for cluster in self.clusters]
        kept = [np.repeat(cluster.images[0], len(cluster.images) - 1) for cluster in self.clusters]
        components.link(np.concatenate(kept), np.concatenate(copies))
        self._link_groups(components)
        splits = self.images.splits
        is_elsewhere = splits != splits[components.first]
        first_of_torn = np.unique(components.first[is_elsewhere])
        members = dict[int, list[bytes]]()
        for row in np.flatnonzero(np.isin(components.first, first_of_torn)).tolist():
            members.setdefault(int(components.first[row]), []).append(self.keys[row])
        for keys in members.values():
            name = min(keys)
            yield from (key + b"\0" + name for key in keys)

    def _link_groups(self, components: Components) -> None:
        """Links the images of each group of the layout, if it has any."""
        layout = parse_layout(str(self.dataset.options.get("layout", "*")))
        first = dict[str, int]()
        left = list[int]()
        right = list[int]()
        for row, key in enumerate(self.keys):
            group = (layout.parse_key(to_text(key)) or {}).get("group")
            if group is not None:
                left.append(first.setdefault(group, row))
                right.append(row)
        components.link(np.array(left, np.int64), np.array(right, np.int64))

    def list_rejects(self) -> Iterator[bytes]:
        """Yields images that are copies of one that is kept: key, NUL, a sentence about it."""
        for cluster in self.clusters:
            kept, *others = cluster.images.tolist()
            for row in others:
                detail = f"a copy of {to_text(self.keys[kept])}{self._describe_classes(row, kept)}"
                yield self.keys[row] + b"\0" + detail.encode("utf-8", "surrogateescape")

    def _describe_classes(self, row: int, kept: int) -> str:
        """A note about a copy of another class than the image that is kept."""
        labels = self.images.labels
        if NO_LABEL in (labels[row], labels[kept]) or labels[row] == labels[kept]:
            return ""
        names = self.images.label_names
        return f", which has another class: {names[labels[kept]]} there, {names[labels[row]]} here"


def _read_keys(dataset: Manifest) -> Iterator[bytes]:
    """Yields the keys of all records, in their order."""
    for shard in planned_shards(dataset):
        for source in require_sources(dataset.folder, shard):
            if source.reject is None:
                yield key_of(source.ref)
