"""Names, dtypes and shapes of the features of a record."""

import os
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from beam_tfr.schema.columns import ColumnType, typed
from beam_tfr.schema.dataset import MANIFEST_FILE, TFDS_FILES

# The names used by TensorFlow's own image models.
ENCODED = "image/encoded"  # bytes: the encoded image
# bytes, instead with --encoding raw: a serialized TensorProto, uint8 [height, width, channels]
RAW = "image/raw"
FORMAT = "image/format"  # bytes: "jpeg", "png", "webp", "raw"
HEIGHT = "image/height"  # int64, pixels, of the stored image
WIDTH = "image/width"  # int64, pixels, of the stored image
CHANNELS = "image/channels"  # int64
COLORSPACE = "image/colorspace"  # bytes: "RGB", "Gray"
SOURCE_HEIGHT = "image/source/height"  # int64, pixels, of the source, upright
SOURCE_WIDTH = "image/source/width"  # int64, pixels, of the source, upright
SOURCE_SIDES = (
    SOURCE_WIDTH,
    SOURCE_HEIGHT,
)  # beside boxes also columns, which are compared with the image
SOURCE_FORMAT = "image/source/format"  # bytes: "jpeg", "heic", …
SOURCE_DAMAGED = (
    "image/source/damaged"  # int64, only with --damaged keep: 1 if the source is damaged, else 0
)
FILENAME = "image/filename"  # bytes: the key
SHA256 = "image/key/sha256"  # bytes: hex digest of the source file
LABEL = "image/class/label"  # int64, 0-based line number in labels.txt
TEXT = "image/class/text"  # bytes: the class name

# Boxes of a column of type bbox, as TensorFlow's object detection API names them: one value a box.
# float, only in references: xmin, ymin, xmax, ymax of each box of the source
BOXES = "image/object/bbox"
# bytes, only in references: names of boxes that were dropped, or are outside
BAD_BOXES = "image/object/bbox/bad"
SIDES = tuple(
    f"{BOXES}/{side}" for side in ("xmin", "ymin", "xmax", "ymax")
)  # float, shares of the stored image
VISIBLE = "image/object/visible"  # float: share of the box that the stored image shows
OBJECT_LABEL = "image/object/class/label"  # int64, as `LABEL`
OBJECT_TEXT = "image/object/class/text"  # bytes, as `TEXT`
BOX_NAMES = (BOXES, BAD_BOXES, *SIDES, VISIBLE, OBJECT_LABEL, OBJECT_TEXT)
# A column NAME of type points becomes image/object/NAME/x, …, as that API has keypoints: one value
# a point; and the number of points of each box. In references, x and y are those of the source.
POINTS = {"x": "float", "y": "float", "visibility": "int64", "num": "int64"}

# The mask of a column of type mask, as TensorFlow's DeepLab names it.
# bytes: a gray PNG of the size of the stored image; in references its file
MASK = "image/segmentation/class/encoded"

# That of an image of --pair, or of a column of type pair, is image/NAME/encoded: see `Companion`.

# The masks of a column of type mask[box], as TensorFlow's object detection API names them.
# bytes, for each box: a PNG of 0 and 1 of that size; in references as in the table
OBJECT_MASK = "image/object/mask"

# Records without an image: see `OTHER_ENCODINGS`.
FILE_BYTES = "file/bytes"  # bytes: --encoding bytes: the file
FILE_NAME = "file/name"  # bytes: the key
FILE_SHA256 = "file/sha256"  # bytes: hex digest of the source file
ARRAY_RAW = "array/raw"  # bytes: --encoding array: a serialized TensorProto
ARRAY_SHAPE = "array/shape"  # int64, one for each dimension
ARRAY_DTYPE = "array/dtype"  # bytes: "float32", "bool", "string", …
ROW_KEY = "row/key"  # bytes: --encoding row: the key
CLASS_LABEL = "class/label"  # int64, as `LABEL`
CLASS_TEXT = "class/text"  # bytes, as `TEXT`

Feature = tuple[str, tuple[int, ...]]  # dtype, shape; [-1] is a list of any length
_BYTES: Feature = ("bytes", ())
_INT64: Feature = ("int64", ())

# name -> (dtype, shape) of one record; `RAW` instead of `ENCODED` with --encoding raw, see
# `features_of`.
FEATURES: dict[str, Feature] = {
    **dict.fromkeys((ENCODED, FORMAT, COLORSPACE, FILENAME, SHA256, SOURCE_FORMAT), _BYTES),
    **dict.fromkeys((HEIGHT, WIDTH, CHANNELS, SOURCE_HEIGHT, SOURCE_WIDTH), _INT64),
}
LABEL_FEATURES: dict[str, Feature] = {LABEL: _INT64, TEXT: _BYTES}
_OTHER_FEATURES: dict[str, dict[str, Feature]] = {
    "bytes": dict.fromkeys((FILE_BYTES, FILE_NAME, FILE_SHA256), _BYTES),
    "array": {
        ARRAY_SHAPE: ("int64", (-1,)),
        **dict.fromkeys((ARRAY_RAW, ARRAY_DTYPE, FILE_NAME, FILE_SHA256), _BYTES),
    },
    "row": {ROW_KEY: _BYTES},
}
MASK_KEY = "mask"  # of the pixels of `MASK`, in what readers return
_COMPANION = re.compile(r"(\w+)=(.*?)(?:\[([0-9]{1,3})\])?\Z", re.DOTALL)  # key, path, outside
DICT_NAMES = ("image", "weight")  # keys that the readers add to the features of a record
PAIR_RESERVED = (
    *DICT_NAMES,
    MASK_KEY,
    *sorted({name.split("/")[1] for name in (*FEATURES, RAW, LABEL, BOXES, MASK)}),
)
IMAGE_ENCODINGS = ("jpeg", "png", "webp", "raw", "keep")
OTHER_ENCODINGS = tuple(_OTHER_FEATURES)  # of whole files, arrays, rows of a table


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


def noun_of(encoding: str) -> str:
    """The plural noun for what is converted: "images", "files" or "rows"."""
    if encoding in IMAGE_ENCODINGS:
        return "images"
    return "rows" if encoding == "row" else "files"


def features_of(options: Mapping[str, Any], *, labelled: bool) -> dict[str, Feature]:
    """name -> (dtype, shape) of the records of a dataset, given its options.

    Raises:
        ValueError: a column has an unknown type, or the name of another feature.
    """
    encoding = options["encoding"]
    if encoding in IMAGE_ENCODINGS:
        features = {
            RAW if encoding == "raw" and name == ENCODED else name: about
            for name, about in FEATURES.items()
        }
        if options.get("damaged") == "keep":
            features[SOURCE_DAMAGED] = _INT64
    else:
        features = dict(_OTHER_FEATURES[encoding])
    if labelled:
        names = names_of(encoding)
        shape = (-1,) if options.get("multi_label") else ()
        features |= {names.label: ("int64", shape), names.text: ("bytes", shape)}
    compared = SOURCE_SIDES if has_boxes(options) else ()  # and not stored
    if compared and labelled:
        features |= {OBJECT_LABEL: ("int64", (-1,)), OBJECT_TEXT: ("bytes", (-1,))}
    features |= {
        companion.feature: _BYTES for companion in companions_of(options) if companion.path
    }
    for name, column in typed(options.get("feature_columns")).items():
        own = {} if name in compared else column_features(name, column)
        if features.keys() & own:
            raise ValueError(f"{name!r} is there twice")
        features |= own
    return features


def column_features(name: str, column: ColumnType) -> dict[str, Feature]:
    """The features of a record that a column becomes; if it has `each_box`, the last has a value
    for each box."""
    if column.boxes:
        return dict.fromkeys((*SIDES, VISIBLE), ("float", (-1,)))
    if column.points:
        ends = [end for end in POINTS if end != "visibility" or column.points.endswith("v")]
        return {f"image/object/{name}/{end}": (POINTS[end], (-1,)) for end in ends}
    return {column_feature(name, column): (column.dtype, (-1,) if column.is_list else ())}


def column_feature(name: str, column: ColumnType) -> str:
    """The feature of a record that a column of anything but boxes and points becomes."""
    if column.beside:
        return companion_in(name, column).feature
    return OBJECT_MASK if column.is_box_mask else name


_ROLES = {"uri_column": "file", "label_column": "class"}
_SIZED = {"image/source_id": "bytes", **dict.fromkeys(SOURCE_SIDES, "int64=0")}
_COCO = dict.fromkeys(("image/object/category_id", "image/object/is_crowd"), "int64[box]")
_VOC = {"image/object/difficult": "int64[box]", "image/object/truncated": "int64[box]"}
_COCO |= {"image/object/area": "float[box]", "keypoint": "points[xyv]", "polygon": "points[xy]"}
_YOLO = {"box": "bbox[rel_center_xywh]", "keypoint": "points[rel_xyv]", "polygon": "points[rel_xy]"}
_YOLO |= {"image/source_id": "bytes"}
# The options that tables of annotations imply, by extension; see `tables.annotations`.
ANNOTATIONS: dict[str, dict[str, Any]] = {
    ".json": {**_ROLES, "feature_columns": {"box": "bbox[xywh]", **_SIZED, **_COCO}},
    ".xml": {**_ROLES, "feature_columns": {"box": "bbox[xyxy]", **_SIZED, **_VOC}},
    **{
        extension: {**_ROLES, "split_column": "split", "feature_columns": _YOLO}
        for extension in (".yaml", ".yml")
    },
}


KNOWN = "*"  # stands for a column that the content of a table shows; see `tables.content`
_KNOWN_ROLES: dict[str, Any] = {"uri_column": KNOWN, "label_column": KNOWN}
_WITH_IMAGES = re.compile(
    r"(?i).*\.(?:tar|tfrec|tfrecords?)(?:[-*?\[{][^/]*)?"
)  # names and patterns of tables
# Files that describe a dataset, one of ours and one of TensorFlow Datasets.
_OF_TFDS = _KNOWN_ROLES | {"split_column": KNOWN}
_DATASETS = {MANIFEST_FILE: _OF_TFDS | {"feature_columns": {KNOWN: ""}}, TFDS_FILES[0]: _OF_TFDS}


def is_dataset(table: str) -> bool:
    """Whether a table is a dataset, by its name."""
    return table.rpartition("/")[2] in _DATASETS


def implied_options(table: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The options that a table implies, by its name or pattern: one of annotations, or one that
    holds its images.

    Args:
        table: the table.
        given: the options of the conversion. One that holds its images implies nothing if
            `uri_column` is given; nor do TFRecords and tars if others say that their rows become
            the records.
    """
    if is_dataset(table):
        return {} if given["uri_column"] else _DATASETS[table.rpartition("/")[2]]
    if _WITH_IMAGES.fullmatch(table):
        named = given["uri_column"] or given["key_column"] or given["feature_columns"] is not None
        return {} if named or given["encoding"] == "row" else _KNOWN_ROLES
    return ANNOTATIONS.get(os.path.splitext(table)[1].lower(), {})


def optional_columns(table: str) -> list[str]:
    """The columns of a table that `*` leaves out, by its name: masks of annotations, which cost
    time and bytes."""
    if _WITH_IMAGES.fullmatch(table):
        return [BOXES]  # whose sides are columns too
    return ["segment"] if "polygon" in implied_options(table, {}).get("feature_columns", ()) else []


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
