"""Creates the files next to a manifest that describe the dataset to other programs.

Some programs can use these files to open the dataset.

    schema.pbtxt         the features, for tensorflow-metadata: TFDV, TFX, TensorFlow Transform
    croissant.json       shards with checksums, splits, labels, and the rows of the contents
    README.md            the dataset card, with the front matter of the Hugging Face Hub
    dataset_info.json, features.json, *.labels.txt    for TensorFlow Datasets, unless the shards
                         are GZIP

All of these files are derived from the manifest, and no digest covers them.
docs/interoperability.md says how to use them.
"""

import json
from typing import Any

from beam_tfr.dataset.manifest import Manifest, labels_text
from beam_tfr.dataset.metadata.card import dataset_card
from beam_tfr.dataset.metadata.croissant import croissant_metadata
from beam_tfr.dataset.metadata.tf_schema import schema_text
from beam_tfr.dataset.metadata.tfds import tfds_features, tfds_info
from beam_tfr.schema.dataset import CARD_FILE, CROISSANT_FILE, SCHEMA_FILE, TFDS_FILES


def metadata_files(dataset: Manifest) -> dict[str, bytes]:
    """Creates the files for other programs from a manifest; returns name -> content."""
    files = {
        SCHEMA_FILE: schema_text(dataset).encode(),
        CROISSANT_FILE: _to_json(croissant_metadata(dataset)),
        CARD_FILE: dataset_card(dataset).encode(),
    }
    if dataset.compression == "none":
        files |= _tfds_files(dataset)
    return files


def _tfds_files(dataset: Manifest) -> dict[str, bytes]:
    info_file, features_file, *_ = TFDS_FILES
    files = {
        info_file: _to_json(tfds_info(dataset)),
        features_file: _to_json(tfds_features(dataset)),
    }
    label = dataset.names.label
    if label in dataset.features:
        files[f"{label.replace('/', '.')}.labels.txt"] = labels_text(dataset.class_names)
    return files


def _to_json(value: Any) -> bytes:
    return (json.dumps(value, indent=1) + "\n").encode("ascii")
