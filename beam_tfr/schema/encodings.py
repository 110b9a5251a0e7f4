"""Describes what each encoding converts, and which features its records have."""

from typing import NamedTuple

from beam_tfr.schema import feature_names
from beam_tfr.schema.feature_names import FeatureSpec

_BYTES = FeatureSpec("bytes")
_INT64 = FeatureSpec("int64")

# Features of an image except labels and columns; with --encoding raw, `RAW` replaces `ENCODED`.
FEATURES: dict[str, FeatureSpec] = {
    feature_names.ENCODED: _BYTES,
    feature_names.FORMAT: _BYTES,
    feature_names.COLORSPACE: _BYTES,
    feature_names.FILENAME: _BYTES,
    feature_names.SHA256: _BYTES,
    feature_names.SOURCE_FORMAT: _BYTES,
    feature_names.HEIGHT: _INT64,
    feature_names.WIDTH: _INT64,
    feature_names.CHANNELS: _INT64,
    feature_names.SOURCE_HEIGHT: _INT64,
    feature_names.SOURCE_WIDTH: _INT64,
}
LABEL_FEATURES: dict[str, FeatureSpec] = {feature_names.LABEL: _INT64, feature_names.TEXT: _BYTES}
_FILE = {feature_names.FILE_NAME: _BYTES, feature_names.FILE_SHA256: _BYTES}
_OTHER_FEATURES: dict[str, dict[str, FeatureSpec]] = {
    "bytes": {feature_names.FILE_BYTES: _BYTES, **_FILE},
    "array": {
        feature_names.ARRAY_RAW: _BYTES,
        feature_names.ARRAY_SHAPE: FeatureSpec("int64", (-1,)),
        feature_names.ARRAY_DTYPE: _BYTES,
        **_FILE,
    },
    "row": {feature_names.ROW_KEY: _BYTES},
}
IMAGE_ENCODINGS = ("jpeg", "png", "webp", "raw", "keep")
OTHER_ENCODINGS = tuple(_OTHER_FEATURES)  # for whole files, arrays, rows of a table


def encoding_features(encoding: str) -> dict[str, FeatureSpec]:
    """Returns the features that every record in an encoding has, besides classes and columns."""
    if encoding not in IMAGE_ENCODINGS:
        return dict(_OTHER_FEATURES[encoding])
    features = dict(FEATURES)
    if encoding == "raw":
        features[feature_names.RAW] = features.pop(feature_names.ENCODED)
    return features


class RecordNames(NamedTuple):
    """The names of features that every record has, but whose names depend on the encoding.

    Attributes:
        key: feature with the key.
        sha256: feature with the hex digest of the source; empty if no file is read.
        label, text: features with the id and the name of the class, if there are classes.
        sizes: features for which the contents hold only sizes: masks, and the other images of
            pairs.
    """

    key: str
    sha256: str
    label: str
    text: str
    sizes: tuple[str, ...] = ()


def names_of(encoding: str) -> RecordNames:
    """Returns the names of the key and label features of an encoding."""
    if encoding in IMAGE_ENCODINGS:
        return RecordNames(
            feature_names.FILENAME, feature_names.SHA256, feature_names.LABEL, feature_names.TEXT
        )
    labels = (feature_names.CLASS_LABEL, feature_names.CLASS_TEXT)
    if encoding == "row":
        return RecordNames(feature_names.ROW_KEY, "", *labels)
    return RecordNames(feature_names.FILE_NAME, feature_names.FILE_SHA256, *labels)


def noun_of(encoding: str) -> str:
    """Returns the plural noun for the converted objects: "images", "files" or "rows"."""
    if encoding in IMAGE_ENCODINGS:
        return "images"
    return "rows" if encoding == "row" else "files"
