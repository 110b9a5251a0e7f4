"""Builds the content of manifest.json from a run's plan and the totals of its shards."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from beam_tfr.dataset.manifest import dataset_digest, labels_text, manifest_digest
from beam_tfr.features.features_dict import FeaturesDict
from beam_tfr.output.shard_totals import CommittedShard, SplitTotals
from beam_tfr.schema.dataset import FORMAT_VERSION, NO_SPLIT, json_digest, sha256_hex
from beam_tfr.schema.plan import Counts, Plan, sum_counts
from beam_tfr.version import __version__

_NO_DUPLICATES: Mapping[str, Any] = {}


def build_manifest_fields(
    plan: Plan,
    totals: Mapping[str, SplitTotals],
    *,
    rejects_sha256: str,
    duplicates: Mapping[str, Any] = _NO_DUPLICATES,
) -> dict[str, Any]:
    """Builds the content of manifest.json.

    Args:
        plan: the plan of the run.
        totals: totals from `shard_totals.merge_totals`.
        rejects_sha256: SHA-256 of rejects.jsonl.
        duplicates: result of `copies.summary`; empty if there are no copies, or none known yet.
    """
    counts = sum_counts(split.counts for split in totals.values())
    splits = {name: _split_fields(plan, name, split) for name, split in totals.items()}
    fields: dict[str, Any] = {
        "format_version": FORMAT_VERSION,
        "name": plan.name,
        "tool_version": __version__,
        "options": plan.options,
        "options_digest": json_digest(plan.options),
        "input_digest": plan.input_digest,
        "labels": _label_fields(plan.classes),
        "features": _feature_fields(plan),
        "counts": _count_fields(plan.matched, counts),
        "rejects": {"count": counts.num_rejected, "sha256": rejects_sha256},
        "splits": splits,
        "statistics": compute_statistics(counts, plan.options),
    }
    fields["dataset_digest"] = dataset_digest(fields, _records_digests(totals))
    return add_duplicates(fields, duplicates)


def add_duplicates(fields: Mapping[str, Any], duplicates: Mapping[str, Any]) -> dict[str, Any]:
    """Adds the facts about copies, and then the digest, to the content of manifest.json.

    The dataset's digest does not cover copies.

    Args:
        fields: the content, with or without these facts and digest.
        duplicates: result of `copies.summary`; empty if there are no copies.
    """
    completed = {**fields}
    if duplicates:
        completed["duplicates"] = duplicates
    completed["manifest_digest"] = manifest_digest(completed)
    return completed


def _label_fields(labels: Sequence[str]) -> dict[str, Any]:
    return {"names": labels, "digest": sha256_hex(labels_text(labels))}


def _feature_fields(plan: Plan) -> dict[str, Any]:
    features = FeaturesDict.from_options(plan.options, labelled=plan.labels is not None).specs
    fields = dict[str, Any]()
    for name, (dtype, shape) in features.items():
        fields[name] = {"dtype": dtype, "shape": list(shape)}
    return fields


def _count_fields(matched: int, counts: Counts) -> dict[str, Any]:
    rejected = sorted(counts.rejected.items())
    adjusted = sorted(counts.adjusted.items())
    return {
        "matched": matched,
        "written": counts.num_examples,
        "rejected": dict(rejected),
        "adjusted": dict(adjusted),
    }


def _split_fields(plan: Plan, name: str, totals: SplitTotals) -> dict[str, Any]:
    counts = totals.counts
    class_counts = dict[str, int]()
    if name != NO_SPLIT:
        for label_id, label in enumerate(plan.classes):
            class_counts[label] = counts.class_counts.get(label_id, 0)
    shards = [_shard_fields(shard) for shard in totals.shards_with_file]
    return {
        "matched": plan.splits[name].matched,
        "rejected": counts.num_rejected,
        "num_examples": counts.num_examples,
        "num_bytes": counts.num_bytes,
        "class_counts": class_counts,
        "shards": shards,
    }


def _shard_fields(shard: CommittedShard) -> dict[str, Any]:
    return {
        "file": shard.file,
        "num_examples": shard.num_examples,
        "num_bytes": shard.num_bytes,
        "sha256": shard.sha256,
    }


def _records_digests(totals: Mapping[str, SplitTotals]) -> dict[str, list[str]]:
    """Returns split -> the digest of the records of each shard."""
    digests = dict[str, list[str]]()
    for name, split in totals.items():
        digests[name] = [shard.records_sha256 for shard in split.shards_with_file]
    return digests


def compute_statistics(counts: Counts, options: Mapping[str, Any]) -> dict[str, Any]:
    """Computes the statistics of a dataset.

    The statistics are the mean and standard deviation of stored pixels before encoding, the sizes
    of source images, the fraction that crops cut off, and the numbers of boxes. All statistics are
    computed from integers up to the last division, so they are the same on every machine and for
    every order of the shards.
    """
    pixels = counts.pixels
    channels = zip(counts.channel_sums, counts.channel_squares, strict=True)
    means = [round(total / pixels, 6) for total in counts.channel_sums]
    deviations = [_standard_deviation(pixels, total, squares) for total, squares in channels]
    sizes = sorted(counts.source_sizes.items())
    statistics: dict[str, Any] = {
        "pixels": pixels,
        "channel_mean": means,
        "channel_std": deviations,
        "source_sizes": {str(size): number for size, number in sizes},
    }
    if options.get("resize") == "crop":
        cut_off = counts.cut_ppm / 1e6
        statistics["cropped"] = round(cut_off / max(counts.num_examples, 1), 4)
    return statistics | FeaturesDict.from_options(options).statistics(counts)


def _standard_deviation(number: int, total: int, squares: int) -> float:
    """Computes the standard deviation of numbers from their sum and sum of squares."""
    variance = (squares * number - total * total) / (number * number)
    return round(math.sqrt(variance), 6)
