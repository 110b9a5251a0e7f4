"""Information for training from the manifest alone. Only `feature_spec` imports TensorFlow."""

from __future__ import annotations

import os
from typing import Any

from beam_tfr.dataset import manifest, reader_arguments
from beam_tfr.dataset.manifest import Manifest
from beam_tfr.dataset.splits import select
from beam_tfr.schema import UsageError, without_traceback


def open(path: str | os.PathLike[str]) -> Manifest:  # noqa: A001 - always behind the name of its module
    """The manifest of a dataset: class names, counts, splits, features, statistics, digest, options.

    Args:
        path: the folder that `convert` wrote, local or gs://.

    Raises:
        UsageError: the path is malformed.
        DataError: the folder holds no complete dataset, or one of a newer format.
    """
    return manifest.read(reader_arguments.folder(path))


@without_traceback
def class_weights(path: str | os.PathLike[str], split: str) -> dict[int, float]:
    """Weights that balance the classes, as Keras' `fit(class_weight=…)` takes them.

    The weight of a class is examples / (classes * examples of the class), counting only classes that occur in the
    split, so the mean weight of an example is 1. A class that does not occur has weight 0. In a multi-label dataset an
    example counts once for each of its labels; Keras takes no class_weight there, a loss may.

    Args:
        path: the folder that `convert` wrote, local or gs://.
        split: a split, or several ("train+validation"); not a slice, whose classes the manifest does not count.

    Returns:
        Class id -> weight, of every class of the dataset.

    Raises:
        UsageError: the split is wrong or a slice, or the dataset has no labels.
        DataError: the folder holds no complete dataset.
    """
    dataset = open(path)
    if dataset.names.label not in dataset.features:
        raise UsageError(f"class_weights: {dataset.folder} has no labels")
    selection = select(dataset, split)
    if selection.total < sum(part.num_examples for part in selection.splits):
        raise UsageError("is a slice, whose classes are not counted; give whole splits", option="split", value=split)
    counts = [sum(part.class_counts.get(name, 0) for part in selection.splits) for name in dataset.class_names]
    total, classes = sum(counts), sum(map(bool, counts))
    return {label: total / (classes * count) if count else 0.0 for label, count in enumerate(counts)}


def feature_spec(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The features of a dataset's records, for `tf.io.parse_example` and `make_batched_features_dataset`.

    Returns:
        Feature -> `tf.io.FixedLenFeature` of its shape, or `tf.io.RaggedFeature` for lists of any length.

    Raises:
        DataError: the folder holds no complete dataset.
    """
    from beam_tfr.reader.decode import feature_spec_of

    return feature_spec_of(open(path).features)
