"""Reads a dataset as a `tf.data.Dataset`, in a reproducible order.

This package never imports Beam. `open` works without TensorFlow, which is imported on first access
to a function that needs TensorFlow.
"""

import importlib
import os
from typing import TYPE_CHECKING, Any

from beam_tfr.dataset.class_weights import class_weights
from beam_tfr.dataset.manifest import Manifest, read_manifest
from beam_tfr.dataset.reader_arguments import check_folder
from beam_tfr.schema.errors import NotInstalledError

if TYPE_CHECKING:
    from beam_tfr.reader.files import load_records
    from beam_tfr.reader.loading import load
    from beam_tfr.reader.training import fit

__all__ = ["class_weights", "feature_spec", "fit", "load", "load_records", "open"]

_LATER = {"fit": "training", "load": "loading", "load_records": "files"}


def open(path: str | os.PathLike[str]) -> Manifest:  # noqa: A001 - always `reader.open`
    """Opens the manifest of a dataset: class names, counts, splits, features, digest and more.

    Args:
        path: the folder that `convert` wrote, local or gs://.

    Raises:
        UsageError: the path is malformed.
        DataError: the folder holds no complete dataset, or its dataset has a newer format.
    """
    return read_manifest(check_folder(path))


def feature_spec(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Returns the features of a dataset's records, for `tf.io.parse_example`.

    `tf.data.experimental.make_batched_features_dataset` accepts them too.

    Returns:
        Feature name -> `tf.io.FixedLenFeature` with the feature's shape, or `tf.io.RaggedFeature`
        for lists of any length.

    Raises:
        DataError: the folder holds no complete dataset.
    """
    from beam_tfr.reader.decode import feature_spec_of

    return feature_spec_of(open(path).feature_specs)


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = importlib.import_module(f"{__name__}.{_LATER[name]}")
        return getattr(module, name)
    except ModuleNotFoundError as error:
        if error.name not in ("tensorflow", "keras"):
            raise
        raise NotInstalledError(
            f"beam_tfr.reader.{name} needs TensorFlow: pip install 'beam_tfr[reader]'"
        ) from error
