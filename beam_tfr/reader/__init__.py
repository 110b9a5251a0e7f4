"""Reads a converted dataset as a `tf.data.Dataset`, in a reproducible order. Never imports Beam.

`open` works without TensorFlow, which is imported with the first name that needs it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from beam_tfr.reader.info import feature_spec, open  # noqa: A004
from beam_tfr.schema import NotInstalledError

if TYPE_CHECKING:
    from beam_tfr.reader.files import load_records
    from beam_tfr.reader.loading import load

__all__ = ["feature_spec", "load", "load_records", "open"]

_LATER = {"load": "loading", "load_records": "files"}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(f"{__name__}.{_LATER[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name != "tensorflow":
            raise
        raise NotInstalledError(f"beam_tfr.reader.{name} needs TensorFlow: pip install 'beam_tfr[reader]'") from error
