"""The transforms that `beam_tfr.yaml` offers to Beam YAML, whose elements are rows."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import apache_beam as beam

from beam_tfr.dataset import manifest
from beam_tfr.options import ConvertOptions, from_values
from beam_tfr.pipeline import Convert
from beam_tfr.schema import Reject
from beam_tfr.transforms import ReadRejects


class Dataset(NamedTuple):
    """A complete dataset: its folder, digest and counts, and manifest.json as text."""

    output: str
    dataset_digest: str
    matched: int
    written: int
    rejected: int
    manifest: str


def convert_images(**options: Any) -> beam.PTransform:
    """Converts images with the options of `beam-tfr convert`. Output: one `Dataset`."""
    return Convert(from_values(options, ConvertOptions)) | beam.Map(_row).with_output_types(Dataset)


convert_images._yaml_requires_inputs = False  # type: ignore[attr-defined]


def read_rejects() -> beam.PTransform:
    """Reads the rejects of each `Dataset`. Output: `Reject`."""
    return beam.Map(lambda row: manifest.read(row.output)) | ReadRejects().with_output_types(Reject)


def _row(made: manifest.Manifest) -> Dataset:
    counts = made.counts
    rejected = sum(counts["rejected"].values())
    return Dataset(
        made.folder, made.dataset_digest, counts["matched"], counts["written"], rejected, json.dumps(made.fields)
    )
