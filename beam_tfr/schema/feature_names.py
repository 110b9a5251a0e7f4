"""Names the features of a record."""

from typing import NamedTuple

MAX_FEATURES = 100_000  # of a record


class FeatureSpec(NamedTuple):
    """The type and shape of a feature's values.

    The type is "bytes", "int64" or "float". The shape () is a single value, (-1,) a list of any
    length.
    """

    dtype: str
    shape: tuple[int, ...] = ()


# The names used by TensorFlow's own image models.
ENCODED = "image/encoded"  # bytes: the encoded image
# bytes, replaces it with --encoding raw: a serialized TensorProto, uint8 [height, width, channels]
RAW = "image/raw"
FORMAT = "image/format"  # bytes: "jpeg", "png", "webp", "raw"
HEIGHT = "image/height"  # int64, pixels, of the stored image
WIDTH = "image/width"  # int64, pixels, of the stored image
CHANNELS = "image/channels"  # int64
COLORSPACE = "image/colorspace"  # bytes: "RGB", "Gray"
SOURCE_HEIGHT = "image/source/height"  # int64, pixels, of the source, upright
SOURCE_WIDTH = "image/source/width"  # int64, pixels, of the source, upright
# With boxes, the table may also have these columns, which are compared with the image.
SOURCE_SIDES = (SOURCE_WIDTH, SOURCE_HEIGHT)
SOURCE_FORMAT = "image/source/format"  # bytes: "jpeg", "heic", …
# int64, only with --damaged keep: 1 if the source is damaged, else 0
SOURCE_DAMAGED = "image/source/damaged"
FILENAME = "image/filename"  # bytes: the key
SHA256 = "image/key/sha256"  # bytes: hex digest of the source file
LABEL = "image/class/label"  # int64, 0-based line number in labels.txt
TEXT = "image/class/text"  # bytes: the class name

# Boxes of a column of type bbox, named as in TensorFlow's object detection API: one value per box.
# float, only in references: xmin, ymin, xmax, ymax of each box of the source
BOXES = "image/object/bbox"
# bytes, only in references: names of boxes that were dropped or are outside
BAD_BOXES = "image/object/bbox/bad"
# float, fractions of the stored image
SIDES = tuple(f"{BOXES}/{side}" for side in ("xmin", "ymin", "xmax", "ymax"))
VISIBLE = "image/object/visible"  # float: fraction of the box that the stored image shows
OBJECT_LABEL = "image/object/class/label"  # int64, as `LABEL`
OBJECT_TEXT = "image/object/class/text"  # bytes, as `TEXT`
BOX_NAMES = (BOXES, BAD_BOXES, *SIDES, VISIBLE, OBJECT_LABEL, OBJECT_TEXT)
# A column NAME of type points becomes image/object/NAME/x, …, like keypoints in that API, with one
# value per point, and the number of points of each box. In references, x and y are in the source.
POINTS = {"x": "float", "y": "float", "visibility": "int64", "num": "int64"}

# The mask of a column of type mask, named as in TensorFlow's DeepLab.
# bytes: a gray PNG of the size of the stored image; in references its file
MASK = "image/segmentation/class/encoded"

# An image of --pair, or of a column of type pair, is in image/NAME/encoded: see `Companion`.

# The masks of a column of type mask[box], named as in TensorFlow's object detection API.
# bytes, for each box: a PNG of 0 and 1 of that size; in references as in the table
OBJECT_MASK = "image/object/mask"

# Records without an image: see `encodings.OTHER_ENCODINGS`.
FILE_BYTES = "file/bytes"  # bytes: --encoding bytes: the file
FILE_NAME = "file/name"  # bytes: the key
FILE_SHA256 = "file/sha256"  # bytes: hex digest of the source file
ARRAY_RAW = "array/raw"  # bytes: --encoding array: a serialized TensorProto
ARRAY_SHAPE = "array/shape"  # int64, one for each dimension
ARRAY_DTYPE = "array/dtype"  # bytes: "float32", "bool", "string", …
ROW_KEY = "row/key"  # bytes: --encoding row: the key
CLASS_LABEL = "class/label"  # int64, as `LABEL`
CLASS_TEXT = "class/text"  # bytes, as `TEXT`
