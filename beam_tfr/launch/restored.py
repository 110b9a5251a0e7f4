"""The options that a dataset was made with, from its manifest."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

from beam_tfr.dataset import manifest as manifests
from beam_tfr.dataset.manifest import Manifest
from beam_tfr.options import ConvertOptions, from_values
from beam_tfr.options.table import options_of

_SIZES = {"num_shards", "target_shard_bytes", "examples_per_shard"}  # of which only one can be given


@contextlib.contextmanager
def restored(
    dataset: Manifest, given: Mapping[str, Any], more: Mapping[str, Any] | None = None
) -> Iterator[ConvertOptions]:
    """The options of a dataset, combined with those given, which take precedence, and more.

    Raises:
        UsageError: a value is not allowed, or two options exclude each other.
    """
    values = {name: dataset.options[name] for name in options_of(ConvertOptions).keys() & dataset.options.keys()}
    if (level := dataset.options.get("gzip_level", "auto")) != "auto":
        values["compression"] = f"gzip:{level}"
    present = {name: value for name, value in given.items() if value not in (None, "", ())}
    if _SIZES & present.keys():
        values = {name: value for name, value in values.items() if name not in _SIZES}
    with tempfile.TemporaryDirectory(prefix="beam_tfr-") as place:
        if classes := values.pop("classes", None):
            values["classes"] = os.path.join(place, "classes.txt")
            with open(values["classes"], "wb") as file:
                file.write(manifests.labels_text(classes))
        fixed = {"output": dataset.folder, "name": dataset.name}
        yield from_values({**values, **(more or {}), **present, **fixed}, ConvertOptions)
