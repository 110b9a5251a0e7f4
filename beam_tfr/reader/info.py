"""Information for training from the manifest alone. Only `feature_spec` imports TensorFlow."""

from __future__ import annotations

import os
from typing import Any

from beam_tfr.dataset import manifest, reader_arguments
from beam_tfr.dataset.manifest import Manifest


def open(path: str | os.PathLike[str]) -> Manifest:  # noqa: A001 - always behind the name of its module
    """The manifest of a dataset: class names, counts, splits, features, statistics, digest, options.

    Args:
        path: the folder that `convert` wrote, local or gs://.

    Raises:
        UsageError: the path is malformed.
        DataError: the folder holds no complete dataset, or one of a newer format.
    """
    return manifest.read(reader_arguments.folder(path))


def feature_spec(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The features of a dataset's records, for `tf.io.parse_example` and `make_batched_features_dataset`.

    Returns:
        Feature -> `tf.io.FixedLenFeature` of its shape, or `tf.io.RaggedFeature` for lists of any length.

    Raises:
        DataError: the folder holds no complete dataset.
    """
    from beam_tfr.reader.decode import feature_spec_of

    return feature_spec_of(open(path).features)
