"""Compares what the records of all shards add up to with the numbers of the manifest."""

import collections
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from beam_tfr.dataset.manifest import Manifest, dataset_digest
from beam_tfr.records.box_counts import DROPPED, statistics
from beam_tfr.schema.dataset import MANIFEST_FILE
from beam_tfr.schema.plan import Counts
from beam_tfr.verification.report import Problem, ProblemKind, TaskResult, quote


class _Total(NamedTuple):
    """A field of the manifest, its value there, and what the records add up to."""

    field: str
    stated: Any
    actual: Any


def find_wrong_totals(manifest: Manifest, results: Sequence[TaskResult]) -> Iterator[Problem]:
    """Yields the fields of a manifest that contradict the records.

    Yields nothing if a shard is damaged, which would only repeat other problems.
    """
    if not all(result.records_sha256 for result in results):
        return
    for total in _add_up(manifest, results):
        if total.actual != total.stated:
            stated = quote(total.stated)
            message = f"{total.field} is {stated}, but the records have {quote(total.actual)}"
            yield Problem(ProblemKind.MANIFEST, MANIFEST_FILE, message)


def _add_up(manifest: Manifest, results: Sequence[TaskResult]) -> Iterator[_Total]:
    if manifest.names.label in manifest.features:
        yield from _count_classes(manifest, results)
    yield _count_source_sizes(manifest, results)
    yield _digest_records(manifest, results)
    if "boxes" in manifest.statistics:
        yield from _count_boxes(manifest, results)
    yield from _count_pixels(manifest, results)


def _count_classes(manifest: Manifest, results: Sequence[TaskResult]) -> Iterator[_Total]:
    labels = {split_name: collections.Counter[int]() for split_name in manifest.splits}
    for result in results:
        labels[result.task.split].update(result.labels)
    for split_name, split in manifest.splits.items():
        for label, class_name in enumerate(manifest.class_names):
            stated = split.class_counts.get(class_name, 0)
            yield _Total(
                f"split {quote(split_name)}: the number of records of class {quote(class_name)}",
                stated,
                labels[split_name][label],
            )


def _count_source_sizes(manifest: Manifest, results: Sequence[TaskResult]) -> _Total:
    sizes = collections.Counter[int]()
    for result in results:
        sizes.update(result.source_sizes)
    actual = {str(size): number for size, number in sorted(sizes.items())}
    return _Total("statistics.source_sizes", manifest.statistics["source_sizes"], actual)


def _digest_records(manifest: Manifest, results: Sequence[TaskResult]) -> _Total:
    records: dict[str, list[str]] = {split_name: [] for split_name in manifest.splits}
    for result in results:
        records[result.task.split].append(result.records_sha256)
    actual = dataset_digest(manifest.fields, records)
    return _Total("dataset_digest", manifest.dataset_digest, actual)


def _count_boxes(manifest: Manifest, results: Sequence[TaskResult]) -> Iterator[_Total]:
    boxes = Counts()
    for result in results:
        boxes.add(result.boxes)
    actual = statistics(boxes)
    del actual[DROPPED]  # which no record holds
    for name, value in actual.items():
        yield _Total(f"statistics.boxes.{name}", manifest.statistics["boxes"][name], value)


def _count_pixels(manifest: Manifest, results: Sequence[TaskResult]) -> Iterator[_Total]:
    stated = manifest.statistics["pixels"]
    actual = sum(result.pixels for result in results)
    is_sample = manifest.image_options.encoding == "keep" and stated <= actual
    if not is_sample:
        yield _Total("statistics.pixels", stated, actual)
