"""What the manifest alone tells a training run: no TensorFlow, but for `feature_spec`, and no shard is opened."""

from __future__ import annotations

import os
from typing import Any

from beam_tfr import checks, manifest
from beam_tfr.checks import REMAINDERS, choice, integer
from beam_tfr.manifest import Manifest
from beam_tfr.reader.layout import Layout
from beam_tfr.schema import DataError, UsageError
from beam_tfr.selection import select


def open(path: str | os.PathLike[str]) -> Manifest:  # noqa: A001 - always behind the name of its module
    """The manifest of a dataset: class names, counts, splits, features, statistics, digest, options.

    Args:
        path: the folder that `convert` wrote, local or gs://.

    Raises:
        UsageError: a path that is none.
        DataError: the folder holds no complete dataset, or one of a newer format.
    """
    return manifest.read(checks.folder(path))


def class_weights(path: str | os.PathLike[str], split: str) -> dict[int, float]:
    """Weights that make all classes count alike, as Keras' `fit(class_weight=…)` takes them.

    The weight of a class is examples / (classes * examples of the class), where only classes that occur in the split
    count: so the mean weight of its examples is 1. A class that does not occur there has weight 0. Of a multi-label
    dataset examples are counted once for each of their labels; Keras takes no class_weight there, a loss may.

    Args:
        path: the folder that `convert` wrote, local or gs://.
        split: a split, or several ("train+validation"); not a slice, whose classes the manifest does not count.

    Returns:
        Class id -> weight, of every class of the dataset.

    Raises:
        UsageError: a wrong split, a slice, or a dataset without labels.
        DataError: the folder holds no complete dataset, or its classes are not counted.
    """
    dataset = open(path)
    if dataset.names.label not in dataset.features:
        raise UsageError(f"class_weights: {dataset.folder} has no labels")
    selection = select(dataset, split)
    if selection.total < sum(part.num_examples for part in selection.splits):
        raise UsageError(
            f"class_weights: split {split!r} is a slice, whose classes the manifest does not count; give whole splits"
        )
    counts = [sum(part.class_counts.get(name, 0) for part in selection.splits) for name in dataset.class_names]
    total, classes = sum(counts), sum(map(bool, counts))
    uncertain = dataset.features[dataset.names.label]["shape"] == [-1] or dataset.options.get("label_column")
    if not total or (total != selection.total and not uncertain):
        raise DataError(
            f"class_weights: the class_counts in the manifest of {dataset.folder} have {total} labels for the "
            f"{selection.total} examples of {split}; beam-tfr verify says what is wrong"
        )
    return {label: total / (classes * count) if count else 0.0 for label, count in enumerate(counts)}


def steps_per_epoch(
    path: str | os.PathLike[str],
    *,
    split: str,
    batch_size: int | None = None,
    remainder: str | None = None,
    streams: int = 8,
    num_hosts: int = 1,
) -> int:
    """Elements of an epoch on every host: how many `load` gives with these of its arguments, whatever the others.

    Raises:
        UsageError, DataError: as `load` does.
    """
    layout = Layout(
        total=select(open(path), split).total,
        streams=integer("streams", streams, 1),
        num_hosts=integer("num_hosts", num_hosts, 1),
        host_index=0,
        batch_size=batch_size if batch_size is None else integer("batch_size", batch_size, 1),
        remainder=choice("remainder", remainder, REMAINDERS),
    )
    return layout.steps


def feature_spec(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What `tf.io.parse_example` and `make_batched_features_dataset` take for the records of a dataset.

    Returns:
        Feature -> `tf.io.FixedLenFeature` of its shape, or `tf.io.RaggedFeature` where examples differ in it.

    Raises:
        DataError: the folder holds no complete dataset.
    """
    from beam_tfr.reader.decode import feature_spec_of

    return feature_spec_of(open(path).features)
