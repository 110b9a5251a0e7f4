"""Writes dataset_info.json and features.json for TensorFlow Datasets."""

from typing import Any

from beam_tfr.dataset.manifest import Manifest
from beam_tfr.dataset.metadata.summary import describe_dataset, splits_with_records
from beam_tfr.schema.feature_names import ENCODED

_DTYPES = {"int64": "int64", "float": "float32"}
_CHANNELS = {"rgb": 3, "gray": 1}  # any number with --color keep


def tfds_info(dataset: Manifest) -> dict[str, Any]:
    """Returns the content of dataset_info.json."""
    splits = []
    for name, split in splits_with_records(dataset).items():
        lengths = [str(shard.num_examples) for shard in split.shards]
        splits.append(
            {
                "name": name,
                "numBytes": str(split.num_bytes),
                "shardLengths": lengths,
                "filepathTemplate": "{DATASET}-{SPLIT}-{SHARD_X_OF_Y}.tfrecord",
            }
        )
    info: dict[str, Any] = {
        "name": dataset.name,
        "version": "1.0.0",
        "description": describe_dataset(dataset),
        "fileFormat": "tfrecord",
        "splits": splits,
    }
    supervised = (ENCODED, dataset.names.label)
    if dataset.features.keys() >= {*supervised}:
        items = [{"featureKey": name} for name in supervised]
        info["supervisedKeys"] = {"tuple": {"items": items}}
    return info


def tfds_features(dataset: Manifest) -> dict[str, Any]:
    """Returns the content of features.json."""
    features = {}
    for name, (dtype, shape) in dataset.feature_specs.items():
        feature = _feature(dataset, name, dtype)
        if shape:
            sequence = {"feature": feature, "length": "-1"}
            feature = _node("sequence_feature.Sequence", sequence=sequence)
        features[name] = feature
    return _node("features_dict.FeaturesDict", featuresDict={"features": features})


def _feature(dataset: Manifest, name: str, dtype: str) -> dict[str, Any]:
    """Describes a feature, or the elements of a feature that holds lists."""
    options = dataset.image_options
    if name == ENCODED and options.encoding != "webp":  # which TensorFlow decodes to another rank
        height, width = options.stored_size or (-1, -1)
        size = [height, width, _CHANNELS.get(options.color, -1)]
        shape = {"dimensions": [str(side) for side in size]}
        return _node("image_feature.Image", image={"dtype": "uint8", "shape": shape})
    if name == dataset.names.label:
        classes = {"numClasses": str(len(dataset.class_names))}
        return _node("class_label_feature.ClassLabel", classLabel=classes)
    if dtype == "bytes":
        return _node("text_feature.Text", text={})
    tensor = {"shape": {}, "dtype": _DTYPES[dtype], "encoding": "none"}
    return _node("tensor_feature.Tensor", tensor=tensor)


def _node(kind: str, **fields: Any) -> dict[str, Any]:
    return {"pythonClassName": f"tensorflow_datasets.core.features.{kind}", **fields}
