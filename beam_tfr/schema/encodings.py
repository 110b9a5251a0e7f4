"""Encodings: what is converted, and which features records have."""

from typing import NamedTuple

from beam_tfr.schema import feature_names
from beam_tfr.schema.feature_names import FeatureSpec

_BYTES = FeatureSpec("bytes")
_INT64 = FeatureSpec("int64")

# Those of an image, but for its labels and columns; `RAW` instead of `ENCODED` with --encoding raw.
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
OTHER_ENCODINGS = tuple(_OTHER_FEATURES)  # of whole files, arrays, rows of a table


def encoding_features(encoding: str) -> dict[str, FeatureSpec]:
    """The features that every record of an encoding has, whatever else it holds."""
    if encoding not in IMAGE_ENCODINGS:
        return dict(_OTHER_FEATURES[encoding])
    features = dict(FEATURES)
    if encoding == "raw":
        features[feature_names.RAW] = features.pop(feature_names.ENCODED)
    return features


class RecordNames(NamedTuple):
    """The names of the features that every record has under another name, by encoding.

    Attributes:
        key: that of the key.
        sha256: that of the hex digest of the source; empty if no file is read.
        label, text: those of the id and the name of the class, if there are classes.
        sizes: features of which the contents hold the size only: masks, and other images beside
            images.
    """

    key: str
    sha256: str
    label: str
    text: str
    sizes: tuple[str, ...] = ()


def names_of(encoding: str) -> RecordNames:
    """The names of the key and label features of an encoding."""
    if encoding in IMAGE_ENCODINGS:
        return RecordNames(
            feature_names.FILENAME, feature_names.SHA256, feature_names.LABEL, feature_names.TEXT
        )
    labels = (feature_names.CLASS_LABEL, feature_names.CLASS_TEXT)
    if encoding == "row":
        return RecordNames(feature_names.ROW_KEY, "", *labels)
    return RecordNames(feature_names.FILE_NAME, feature_names.FILE_SHA256, *labels)


def noun_of(encoding: str) -> str:
    """The plural noun for what is converted: "images", "files" or "rows"."""
    if encoding in IMAGE_ENCODINGS:
        return "images"
    return "rows" if encoding == "row" else "files"
