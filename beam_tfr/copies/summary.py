"""Summarizes the copies in a dataset, for its manifest and for messages."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from beam_tfr.console.terminal import counted, printable
from beam_tfr.copies.clusters import MOST_IN_CLUSTER, Cluster, Clusters, find_clusters
from beam_tfr.copies.images import ComparedImages, SampledImage, join_sample, read_images, take_keys
from beam_tfr.copies.search import DISTANCE, check_distance, describe_crowded
from beam_tfr.dataset.manifest import Manifest
from beam_tfr.schema.encodings import noun_of

# More images are not compared while a dataset is made or verified: that would take seconds, and
# more time per image than with fewer.
MOST_IMAGES = 200_000
_EXAMPLES = 3
_HINT = ": see `beam-tfr duplicates`"


def is_summarized(dataset: Manifest) -> bool:
    """Whether copies are searched for while a dataset is made or verified."""
    return bool(dataset.names.sha256) and dataset.counts["written"] <= MOST_IMAGES


def summarize_images(dataset: Manifest, images: ComparedImages) -> dict[str, Any]:
    """Returns the field `duplicates` of a dataset's manifest, which is empty without copies."""
    clusters = find_clusters(images, check_distance(dataset, None))
    return summarize_clusters(images, clusters)


def summarize_clusters(images: ComparedImages, clusters: Clusters) -> dict[str, Any]:
    """Summarizes clusters for a manifest; returns an empty dict if there are none."""
    trusted = clusters.trusted
    if clusters == Clusters([], []):
        return {}
    crowded = {"crowded": len(clusters.crowded)} if clusters.crowded else {}
    return {
        "images": sum(len(cluster.images) for cluster in trusted),
        "clusters": len(trusted),
        "across_splits": sum(cluster.crosses_splits for cluster in trusted),
        "across_classes": sum(cluster.crosses_classes for cluster in trusted),
        "too_large": len(clusters.too_large),
        **crowded,
        "examples": [_choose_pair(images, cluster) for cluster in trusted[:_EXAMPLES]],
    }


def _choose_pair(images: ComparedImages, cluster: Cluster) -> list[str]:
    """Returns the keys of two images in a cluster, from different splits or classes if possible."""
    rows = cluster.images
    differs = np.zeros(len(rows), bool)
    if cluster.crosses_splits:
        differs = images.splits[rows] != images.splits[rows[0]]
    elif cluster.crosses_classes:
        differs = images.labels[rows] != images.labels[rows[0]]
    other = int(np.argmax(differs)) or 1
    return [key or "" for key in take_keys(images, rows[[0, other]])]


def describe_duplicates(dataset: Manifest) -> Iterator[str]:
    """Yields sentences about the copies in a dataset, according to its manifest."""
    yield from _describe_limit(dataset)
    yield from _describe_summary(dataset.duplicates, _noun_of(dataset), _HINT)


def describe_copies(dataset: Manifest) -> Iterator[str]:
    """Yields sentences about the copies in a dataset, according to its contents.

    Raises:
        DataError: contents are missing or damaged.
    """
    yield from _describe_limit(dataset)
    if is_summarized(dataset):
        summary = summarize_images(dataset, read_images(dataset))
        yield from _describe_summary(summary, _noun_of(dataset), _HINT)


def _noun_of(dataset: Manifest) -> str:
    return noun_of(dataset.options["encoding"])[:-1]


def _describe_limit(dataset: Manifest) -> Iterator[str]:
    """Yields a sentence if a dataset has too many images."""
    if dataset.names.sha256 and not is_summarized(dataset):
        yield (
            f"{counted(dataset.counts['written'], _noun_of(dataset))} are too many to search for "
            "copies here; run `beam-tfr duplicates`"
        )


def describe_sample(sample: Sequence[SampledImage], noun: str) -> Iterator[str]:
    """Yields sentences about the copies in a sample; `noun` is the noun for a record."""
    images = join_sample(sample)
    summary = summarize_clusters(images, find_clusters(images, DISTANCE))
    yield from _describe_summary(summary, noun)


def _describe_summary(summary: Mapping[str, Any], noun: str, hint: str = "") -> Iterator[str]:
    """Yields sentences about copies.

    Args:
        summary: result of `summarize_clusters`.
        noun: noun for what a record is made from, such as "image".
        hint: the end of the first sentence.
    """
    if not summary:
        return
    if summary["clusters"]:
        places = list[str]()
        for place in ("splits", "classes"):
            number = summary[f"across_{place}"]
            if number:
                places.append(f"{number:,} across {place}")
        clusters = counted(summary["clusters"], "cluster")
        named = [pair for pair in summary["examples"] if all(pair)]  # contents omit long keys
        pairs = [" and ".join(map(printable, pair)) for pair in named]
        examples = f", such as {'; '.join(pairs)}" if pairs else ""
        yield (
            f"{counted(summary['images'], noun)} are copies of others, in {clusters}"
            f"{_in_brackets(places)}{examples}{hint}"
        )
    if summary["too_large"]:
        yield (
            f"{counted(summary['too_large'], 'cluster')} of more than {MOST_IN_CLUSTER} similar "
            f"{noun}s: most are probably not copies, so only those with equal bytes count"
        )
    yield from describe_crowded(summary.get("crowded", 0), noun)


def _in_brackets(texts: list[str]) -> str:
    return f" ({', '.join(texts)})" if texts else ""
