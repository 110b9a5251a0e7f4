"""Shows the copies in a dataset as Python objects, JSON and text."""

import dataclasses
import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from beam_tfr import storage
from beam_tfr.console.display import Progress
from beam_tfr.console.terminal import Printable, counted, printable
from beam_tfr.copies.clusters import MOST_IN_CLUSTER, Cluster, Clusters, find_clusters
from beam_tfr.copies.hashes import Hashes
from beam_tfr.copies.images import NO_LABEL, ComparedImages, read_images, take_keys
from beam_tfr.copies.near import MOST_DISTANCE
from beam_tfr.dataset.manifest import Manifest, read_manifest
from beam_tfr.dataset.reader_arguments import check_integer
from beam_tfr.schema.arguments import public
from beam_tfr.schema.encodings import IMAGE_ENCODINGS, noun_of
from beam_tfr.schema.errors import UsageError
from beam_tfr.schema.spelling import spell_option
from beam_tfr.schema.untrusted import quote

DISTANCE = 31  # the default
_SHOWN_CLUSTERS = 10  # in the text
_SHOWN_IMAGES = 8  # per cluster, in the text


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Duplicates(Printable):
    """The copies in a dataset.

    `str()` returns the text that `beam-tfr duplicates` prints.

    Attributes:
        manifest: manifest of the dataset.
        distance: number of bits, of 256, by which the hashes of near copies may differ; None if
            only bytes were compared, as for arrays.
    """

    manifest: Manifest
    distance: int | None
    _images: ComparedImages
    _clusters: Clusters

    @property
    def counts(self) -> dict[str, int]:
        """The numbers of images and clusters.

        "images" counts all images; "copies", images in clusters; "clusters", all clusters;
        "across_splits" and "across_classes", clusters that cross splits or classes; "too_large",
        clusters that are not trusted; "crowded", images that look like thousands of others, so some
        of their copies may be missed; "flat", nearly flat or tiny images, for which only bytes were
        compared; "unhashed", images without a hash in the contents.
        """
        trusted = self._clusters.trusted
        images = self._images
        hashed = images.hashed
        is_compared = self.distance is not None
        return {
            "images": images.number,
            "copies": sum(len(cluster.images) for cluster in trusted),
            "clusters": len(trusted),
            "across_splits": sum(cluster.crosses_splits for cluster in trusted),
            "across_classes": sum(cluster.crosses_classes for cluster in trusted),
            "too_large": len(self._clusters.too_large),
            "crowded": len(self._clusters.crowded),
            "flat": int(np.count_nonzero(hashed.has_hash & hashed.is_flat)) * is_compared,
            "unhashed": int(np.count_nonzero(~hashed.has_hash)) * is_compared,
        }

    def clusters(self) -> Iterator[dict[str, Any]]:
        """Yields the clusters: those across splits, then those across classes, then the others.

        Within each of these groups, larger clusters come first. Each cluster is
        {"across_splits": bool, "across_classes": bool, "images": list}. Each image is a dict with
        "record", the number of the record in the order of the manifest; "key" (None if it has more
        than 1,000 characters); "split"; "class" (None without a label); "pixels", the number of
        pixels of the source; and "distance", the number of bits by which its hash differs from that
        of the first image (None without a hash). The first image has the most pixels, and is the
        image that `duplicates=drop` keeps.
        """
        yield from map(self._show, self._clusters.trusted)

    def too_large(self) -> Iterator[dict[str, Any]]:
        """Yields the clusters that are too large to be trusted, in the form of `clusters`."""
        yield from map(self._show, self._clusters.too_large)

    def _show(self, cluster: Cluster) -> dict[str, Any]:
        return {
            "across_splits": cluster.crosses_splits,
            "across_classes": cluster.crosses_classes,
            "images": [*self._show_images(cluster.images)],
        }

    def _show_images(self, rows: np.typing.NDArray[np.int64]) -> Iterator[dict[str, Any]]:
        images = self._images
        hashes = Hashes.from_bytes(images.hashed.hashes[rows])
        places = np.arange(len(rows))
        distances = hashes.distances(np.zeros_like(places), places).tolist()
        has_hash = images.hashed.has_hash
        has_distance = has_hash[rows] & has_hash[rows[0]]
        keys = take_keys(images, rows)
        for place, (row, key) in enumerate(zip(rows.tolist(), keys, strict=True)):
            label = images.labels[row]
            yield {
                "record": row,
                "key": key,
                "split": images.split_names[images.splits[row]],
                "class": None if label == NO_LABEL else images.label_names[label],
                "pixels": int(images.pixels[row]),
                "distance": distances[place] if has_distance[place] else None,
            }

    def as_json(self) -> dict[str, Any]:
        """Returns the copies as a JSON object with counts and all clusters."""
        return {
            "dataset": self.manifest.folder,
            "digest": self.manifest.dataset_digest,
            "distance": self.distance,
            "counts": self.counts,
            "clusters": [*self.clusters()],
            "too_large": [*self.too_large()],
        }

    def lines(self) -> Iterator[str]:
        """Yields the lines of the text."""
        counts = self.counts
        noun = noun_of(self.manifest.options["encoding"])[:-1]
        yield f"{self.manifest.folder}: {counted(counts['images'], noun)}"
        clusters = counted(counts["clusters"], "cluster")
        yield (
            f"{counted(counts['copies'], noun)} in {clusters}: {counts['across_splits']:,} across "
            f"splits, {counts['across_classes']:,} across classes"
        )
        yield from self._describe_limits(noun)
        for number, cluster in enumerate(self._clusters.trusted[:_SHOWN_CLUSTERS], start=1):
            yield from self._describe_cluster(number, cluster)
        more = counts["clusters"] - _SHOWN_CLUSTERS
        if more > 0:
            yield f"and {counted(more, 'more cluster')}: `json=` lists all"

    def _describe_limits(self, noun: str) -> Iterator[str]:
        """Yields lines about images that were not compared, or are not trusted."""
        counts = self.counts
        if self.distance is None:
            yield f"only the bytes of {noun}s were compared: they have no perceptual hashes"
        if counts["flat"]:
            flat = counted(counts["flat"], f"nearly flat or tiny {noun}")
            yield f"{flat}: only their bytes were compared"
        if counts["unhashed"]:
            yield (
                f"{counted(counts['unhashed'], noun)} without a hash in the contents: only their "
                "bytes were compared; to add hashes, delete the folder contents and run "
                "`beam-tfr repair` with the input"
            )
        for cluster in self._clusters.too_large:
            first = self._show(cluster)["images"][0]["key"]
            yield (
                f"{counted(len(cluster.images), f'similar {noun}')}, such as "
                f"{printable(str(first))}: more than {MOST_IN_CLUSTER} are unlikely to be copies, "
                "so only those with equal bytes count"
            )
        yield from describe_crowded(counts["crowded"], noun)

    def _describe_cluster(self, number: int, cluster: Cluster) -> Iterator[str]:
        """Yields the lines of a cluster."""
        shown = self._show(cluster)
        places = [place for place in ("splits", "classes") if shown[f"across_{place}"]]
        across = f", across {' and '.join(places)}" if places else ""
        yield f"cluster {number}: {len(shown['images']):,}{across}"
        for image in shown["images"][:_SHOWN_IMAGES]:
            texts = [image["split"], image["class"] or "", f"{image['pixels']:,} pixels"]
            if image["distance"] is not None:
                texts.append(counted(image["distance"], "bit"))
            described = ", ".join(filter(None, texts))
            yield f"  {image['key']} ({described})"
        more = len(shown["images"]) - _SHOWN_IMAGES
        if more > 0:
            yield f"  and {more:,} more"


def describe_crowded(number: int, noun: str) -> Iterator[str]:
    """Yields a sentence about crowded images; `noun` is the noun for a record."""
    if number:
        yield (
            f"{counted(number, noun)} {'looks' if number == 1 else 'look'} like thousands of "
            "others: not all pairs were compared, so some near copies may be missing"
        )


@public
def duplicates(
    path: str | os.PathLike[str],
    *,
    distance: int | None = None,
    progress: Callable[[Progress], object] | None = None,
) -> Duplicates:
    """Finds the copies in a dataset from its contents; reads no shard.

    Copies have sources with equal bytes, or perceptual hashes that differ by at most `distance` of
    256 bits, even if one image is mirrored.

    Args:
        path: folder of the dataset, local or gs://.
        distance: number of bits, at most 48; None for the default, 31.
        progress: called with a `Progress` for each shard whose contents are read.

    Raises:
        UsageError: an argument is wrong, or the dataset has neither checksums nor hashes.
        NotFoundError: there is no such folder.
        DataError: the folder holds no complete dataset, or its contents are missing or damaged.
        NotInstalledError: pyarrow is missing.
    """
    dataset = read_manifest(storage.check_path(path))
    checked = check_distance(dataset, distance)
    images = read_images(dataset, progress)
    return find_duplicates(dataset, images, checked)


def check_distance(dataset: Manifest, distance: int | None) -> int | None:
    """Returns the distance for a dataset, or None if only bytes of its records can be compared.

    Raises:
        UsageError: the distance is not a number of bits, or does not apply to the dataset.
    """
    if distance is not None:
        distance = check_integer("distance", distance, 0)
        if distance > MOST_DISTANCE:
            raise UsageError(
                f"must be 0 to {MOST_DISTANCE}: beyond that, different images count as copies",
                option="distance",
                value=quote(distance),
            )
    encoding = dataset.options["encoding"]
    if not dataset.names.sha256:
        raise UsageError(
            f"{dataset.folder} holds table rows, which have no checksums or hashes to compare: "
            "look for equal rows in the table"
        )
    if encoding in IMAGE_ENCODINGS:
        return DISTANCE if distance is None else distance
    if distance is not None:
        raise UsageError(
            f"has no effect on {noun_of(encoding)} with {spell_option('encoding', encoding)}, "
            "which have no perceptual hashes: omit it to compare bytes",
            option="distance",
            value=quote(distance),
        )
    return None


def find_duplicates(dataset: Manifest, images: ComparedImages, distance: int | None) -> Duplicates:
    """Finds the copies among the images of a dataset; `distance` comes from `check_distance`."""
    clusters = find_clusters(images, distance)
    return Duplicates(manifest=dataset, distance=distance, _images=images, _clusters=clusters)
