"""The features of the records of a dataset, by its options."""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from beam_tfr.schema.columns import ColumnType, typed
from beam_tfr.schema.encodings import FEATURES, IMAGE_ENCODINGS, encoding_features
from beam_tfr.schema.feature_names import (
    BOXES,
    CLASS_LABEL,
    CLASS_TEXT,
    FILE_NAME,
    FILE_SHA256,
    FILENAME,
    LABEL,
    MASK,
    OBJECT_LABEL,
    OBJECT_MASK,
    OBJECT_TEXT,
    POINTS,
    RAW,
    ROW_KEY,
    SHA256,
    SIDES,
    SOURCE_DAMAGED,
    SOURCE_SIDES,
    TEXT,
    VISIBLE,
    FeatureSpec,
)

MASK_KEY = "mask"  # of the pixels of `MASK`, in what readers return
_COMPANION = re.compile(r"(\w+)=(.*?)(?:\[([0-9]{1,3})\])?\Z", re.DOTALL)  # key, path, outside
DICT_NAMES = ("image", "weight")  # keys that the readers add to the features of a record
PAIR_RESERVED = (
    *DICT_NAMES,
    MASK_KEY,
    *sorted({name.split("/")[1] for name in (*FEATURES, RAW, LABEL, BOXES, MASK)}),
)


class Names(NamedTuple):
    """The names of the key and label features, and companions; `sha256` is empty if no file is
    read."""

    key: str
    sha256: str
    label: str
    text: str
    companions: tuple["Companion", ...] = ()


def names_of(encoding: str) -> Names:
    """The names of the key and label features of an encoding."""
    if encoding in IMAGE_ENCODINGS:
        return Names(FILENAME, SHA256, LABEL, TEXT)
    return Names(
        *((ROW_KEY, "") if encoding == "row" else (FILE_NAME, FILE_SHA256)), CLASS_LABEL, CLASS_TEXT
    )


def names_in(options: Mapping[str, Any]) -> Names:
    """The names of a dataset, given its options."""
    return names_of(options["encoding"])._replace(companions=companions_of(options))


def features_of(options: Mapping[str, Any], *, labelled: bool) -> dict[str, FeatureSpec]:
    """name -> (dtype, shape) of the records of a dataset, given its options.

    Raises:
        ValueError: a column has an unknown type, or the name of another feature.
    """
    encoding = options["encoding"]
    features = encoding_features(encoding)
    if encoding in IMAGE_ENCODINGS and options.get("damaged") == "keep":
        features[SOURCE_DAMAGED] = FeatureSpec("int64")
    if labelled:
        names = names_of(encoding)
        shape = (-1,) if options.get("multi_label") else ()
        features |= {
            names.label: FeatureSpec("int64", shape),
            names.text: FeatureSpec("bytes", shape),
        }
    compared = SOURCE_SIDES if has_boxes(options) else ()  # and not stored
    if compared and labelled:
        features |= {
            OBJECT_LABEL: FeatureSpec("int64", (-1,)),
            OBJECT_TEXT: FeatureSpec("bytes", (-1,)),
        }
    features |= {
        companion.feature: FeatureSpec("bytes")
        for companion in companions_of(options)
        if companion.path
    }
    for name, column in typed(options.get("feature_columns")).items():
        own = {} if name in compared else column_features(name, column)
        if features.keys() & own:
            raise ValueError(f"{name!r} is there twice")
        features |= own
    return features


def column_features(name: str, column: ColumnType) -> dict[str, FeatureSpec]:
    """The features of a record that a column becomes; if it has `each_box`, the last has a value
    for each box."""
    if column.boxes:
        return dict.fromkeys((*SIDES, VISIBLE), FeatureSpec("float", (-1,)))
    if column.points:
        ends = [end for end in POINTS if end != "visibility" or column.points.endswith("v")]
        return {f"image/object/{name}/{end}": FeatureSpec(POINTS[end], (-1,)) for end in ends}
    return {
        column_feature(name, column): FeatureSpec(column.dtype, (-1,) if column.is_list else ())
    }


def column_feature(name: str, column: ColumnType) -> str:
    """The feature of a record that a column of anything but boxes and points becomes."""
    if column.beside:
        return companion_in(name, column).feature
    return OBJECT_MASK if column.is_box_mask else name


def has_boxes(options: Mapping[str, Any]) -> bool:
    """Whether the images of a dataset have boxes, given its options."""
    return any(column.boxes for column in typed(options.get("feature_columns")).values())


class Companion(NamedTuple):
    """An image that is stored beside each image of a dataset, and follows its pixels: a mask, or
    another of a pair.

    Attributes:
        key: what readers call it.
        path: its path, with {stem} or {path}, from the folder that keys are relative to; empty if a
            table names it.
        outside: the value where a padded image has no pixels.
    """

    key: str
    path: str
    outside: int

    @property
    def feature(self) -> str:
        """Its feature: bytes, a PNG of the size of the stored image; in references its file."""
        return MASK if self.key == MASK_KEY else f"image/{self.key}/encoded"

    @property
    def glob(self) -> str:
        """The pattern of its files."""
        return self.path.replace("{path}", "**/*").replace("{stem}", "*")


def companions_of(options: Mapping[str, Any]) -> tuple[Companion, ...]:
    """The companions of the images of a dataset, given its options."""
    masks = [f"{MASK_KEY}={options['masks']}"] if options.get("masks") else []
    named = [
        found
        for text in [*masks, *(options.get("pair") or ())]
        for found in _COMPANION.findall(text)
    ]
    columns = typed(options.get("feature_columns")).items()
    return (
        *(Companion(key, path, min(int(outside or 0), 255)) for key, path, outside in named),
        *(companion_in(name, column) for name, column in columns if column.beside),
    )


def companion_in(name: str, column: ColumnType) -> Companion:
    """The companion in a column of a table."""
    return Companion(MASK_KEY if column.beside == "mask" else name, "", column.outside)
