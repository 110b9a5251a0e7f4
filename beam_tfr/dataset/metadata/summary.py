"""Describes a dataset in words that several metadata files share."""

import json
import re

from beam_tfr.dataset.manifest import Manifest, Split
from beam_tfr.schema.dataset import sort_splits
from beam_tfr.schema.encodings import noun_of

GIVEN_OPTIONS = ("description", "license", "citation")
LICENSE_ID = re.compile(r"[a-z0-9.-]+")  # of the Hugging Face Hub


def splits_with_records(dataset: Manifest) -> dict[str, Split]:
    """Returns name -> split for the splits that have records, in their usual order."""
    names = [name for name in sort_splits(dataset.splits) if dataset.splits[name].shards]
    return {name: dataset.splits[name] for name in names}


def describe_size(dataset: Manifest) -> str:
    """Describes the size of a dataset: "886 images of 10 classes in TFRecords"."""
    noun = noun_of(dataset.options["encoding"])
    size = f"{dataset.counts['written']:,} {noun}"
    if dataset.class_names:
        size += f" of {len(dataset.class_names):,} classes"
    return f"{size} in TFRecords"


def describe_dataset(dataset: Manifest) -> str:
    """Describes a dataset in one line: its size, classes and digest."""
    return f"{describe_size(dataset)}; dataset digest {dataset.dataset_digest}"


def given_texts(dataset: Manifest) -> dict[str, str]:
    """Returns option -> the user's text about the dataset."""
    names = [option for option in GIVEN_OPTIONS if dataset.options.get(option)]
    return {option: dataset.options[option] for option in names}


def quote(text: str) -> str:
    """Quotes a string so that it is valid in JSON, YAML and protobuf's text format."""
    return json.dumps(text, ensure_ascii=False)
