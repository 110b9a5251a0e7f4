"""Compares the totals of all shards' records with the manifest."""

import collections
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from beam_tfr.dataset.manifest import Manifest, dataset_digest
from beam_tfr.features.box_counts import DROPPED, box_statistics
from beam_tfr.features.mask_counts import mask_statistics
from beam_tfr.schema.dataset import MANIFEST_FILE
from beam_tfr.schema.plan import Counts
from beam_tfr.schema.untrusted import quote
from beam_tfr.verification.report import Problem, ProblemKind, TaskResult


class _Field(NamedTuple):
    """A field of the manifest, its value there, and its value according to the records."""

    name: str
    stated: Any
    actual: Any


class _Totals:
    """The totals of all shards' records.

    Attributes:
        records_sha256: split -> the digests of its shards, in order.
        labels: split -> class id -> number of records.
        source_sizes, counted, pixels: see `TaskResult`.
    """

    def __init__(self, results: Sequence[TaskResult]) -> None:
        self.records_sha256 = collections.defaultdict[str, list[str]](list)
        self.labels = collections.defaultdict[str, collections.Counter[int]](collections.Counter)
        self.source_sizes = collections.Counter[int]()
        self.counted = Counts()
        self.pixels = 0
        for result in results:
            self.records_sha256[result.task.split].append(result.records_sha256)
            self.labels[result.task.split].update(result.labels)
            self.source_sizes.update(result.source_sizes)
            self.counted.add(result.counted)
            self.pixels += result.pixels


def find_wrong_totals(manifest: Manifest, results: Sequence[TaskResult]) -> Iterator[Problem]:
    """Yields the fields of a manifest that contradict the records.

    Yields no fields if a shard is damaged, since wrong totals would only repeat other problems.
    """
    if not all(result.records_sha256 for result in results):
        return
    for field in _compare_fields(manifest, _Totals(results)):
        if field.actual != field.stated:
            stated = quote(field.stated)
            message = f"{field.name} is {stated}, but the records have {quote(field.actual)}"
            yield Problem(ProblemKind.MANIFEST, MANIFEST_FILE, message)


def _compare_fields(manifest: Manifest, totals: _Totals) -> Iterator[_Field]:
    if manifest.names.label in manifest.features:
        yield from _compare_classes(manifest, totals)
    source_sizes = {str(size): number for size, number in sorted(totals.source_sizes.items())}
    stated_sizes = manifest.statistics["source_sizes"]
    yield _Field("statistics.source_sizes", stated_sizes, source_sizes)
    digest = dataset_digest(manifest.fields, totals.records_sha256)
    yield _Field("dataset_digest", manifest.dataset_digest, digest)
    if "boxes" in manifest.statistics:
        yield from _compare_boxes(manifest, totals)
    if "masks" in manifest.statistics:
        stated_masks = manifest.statistics["masks"]
        yield _Field("statistics.masks", stated_masks, mask_statistics(totals.counted))
    stated_pixels = manifest.statistics["pixels"]
    is_sample = manifest.image_options.encoding == "keep" and stated_pixels <= totals.pixels
    if not is_sample:
        yield _Field("statistics.pixels", stated_pixels, totals.pixels)


def _compare_classes(manifest: Manifest, totals: _Totals) -> Iterator[_Field]:
    for split_name, split in manifest.splits.items():
        for label, class_name in enumerate(manifest.class_names):
            name = f"split {quote(split_name)}: the number of records of class {quote(class_name)}"
            stated = split.class_counts.get(class_name, 0)
            yield _Field(name, stated, totals.labels[split_name][label])


def _compare_boxes(manifest: Manifest, totals: _Totals) -> Iterator[_Field]:
    actual = box_statistics(totals.counted)
    del actual[DROPPED]  # records do not hold dropped boxes
    for name, value in actual.items():
        yield _Field(f"statistics.boxes.{name}", manifest.statistics["boxes"][name], value)
