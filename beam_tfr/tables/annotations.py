"""Reads annotations of objects as tables: COCO and Create ML (.json), Pascal VOC (.xml), YOLO
(.yaml).

A row is an image with the boxes and classes of its objects; `options.implied.ANNOTATIONS` names the
columns. Formats:

    COCO        https://cocodataset.org/#format-data; an image without objects has none, and is a
    row Create ML   a list of images, whose boxes have the center x, y, and width and height in
    pixels Pascal VOC  the PASCAL VOC devkit: pixels count from 1, and the last belongs to its box
    YOLO        https://docs.ultralytics.com/datasets/detect: `data.yaml` names folders of images;
    beside each "images"
                is a folder "labels", with a text file for each image that has objects
"""

import codecs
import collections
import contextlib
import math
import os
import posixpath
from collections.abc import Iterator, Sequence
from typing import IO, Any, Literal
from xml.etree import ElementTree  # nosec B405  # a document with entities is refused

import msgspec
import yaml

from beam_tfr import storage
from beam_tfr.inputs.listing import list_files
from beam_tfr.inputs.patterns import escape_pattern
from beam_tfr.inputs.pool import Pool
from beam_tfr.schema.columns import Box
from beam_tfr.schema.errors import DataError, UsageError
from beam_tfr.schema.feature_names import SOURCE_HEIGHT, SOURCE_WIDTH

MAX_TEXT_BYTES = 1 << 20  # 1 MiB, of an XML, YAML or label file; so much YAML takes half a minute
READ_AT_A_TIME = 256  # label files


def read_annotations(path: str, file: IO[bytes]) -> Iterator[dict[str, Any]]:
    """Yields column -> cell for each image, in the order of the file; a ValueError as a cell says
    why there is none.

    JSON is held in memory: its bytes, and then 400 bytes for each box.

    Raises:
        DataError: it is not such a file; says what is wrong and where.
    """
    form = {".json": "COCO or Create ML", ".xml": "Pascal VOC"}.get(
        os.path.splitext(path)[1].lower(), "YOLO"
    )
    try:
        if form == "COCO or Create ML":
            size = file.seek(0, os.SEEK_END)
            file.seek(0)
            content = _JSON.decode(
                file.read(size).removeprefix(codecs.BOM_UTF8)
            )  # read() would need twice the memory
            yield from _coco(content) if isinstance(content, _Coco) else map(_create_ml, content)
        else:
            text = _text(file.read(MAX_TEXT_BYTES + 1))
            yield from _yolo(path, text) if form == "YOLO" else [_voc(text)]
    except (
        ValueError,
        RecursionError,
        msgspec.MsgspecError,
        yaml.YAMLError,
        ElementTree.ParseError,
    ) as error:
        problem = " ".join(str(error).split())
        if isinstance(error, UnicodeDecodeError):
            problem = f"{error.object[max(error.start - 30, 0) : error.start + 30]!r} is not UTF-8"
        raise DataError(
            f"cannot be read as {form}: {problem}", option="table", value=path
        ) from None


def _text(data: bytes) -> str:
    """The text of a small file, which is UTF-8 whatever it declares."""
    if len(data) > MAX_TEXT_BYTES:
        raise ValueError(f"has more than {MAX_TEXT_BYTES >> 20} MiB")
    return data.decode("utf-8-sig")


_NONE = msgspec.Raw(
    b"[]"
)  # a part of the file, read when its image is, so that it takes little memory until then


class _Image(msgspec.Struct, gc=False):
    id: int | str
    file_name: str
    width: int | None = None
    height: int | None = None


class _Object(msgspec.Struct, gc=False):
    image_id: int | str
    category_id: int
    bbox: list[float] = []
    area: float | None = None
    iscrowd: int | bool = 0
    keypoints: msgspec.Raw = _NONE
    segmentation: msgspec.Raw = _NONE
    id: Any = None  # for messages


class _Category(msgspec.Struct):
    id: int
    name: str


class _Coco(msgspec.Struct):
    images: list[_Image]
    categories: list[_Category]
    annotations: list[_Object]


class _Labelled(msgspec.Struct):
    label: str
    coordinates: dict[str, float]


class _Picture(msgspec.Struct):
    image: str
    annotations: list[_Labelled]


_JSON = msgspec.json.Decoder(_Coco | list[_Picture], strict=False)  # then "7" and 7.0 are the id 7


def _coco(content: _Coco) -> Iterator[dict[str, Any]]:
    categories = _by_id("categories", content.categories)
    images = _by_id("images", content.images)
    classes = {number: category.name for number, category in categories.items()}
    objects = collections.defaultdict[int | str, list[_Object]](list)
    for annotation in content.annotations:
        objects[annotation.image_id].append(annotation)
    for number, image in images.items():
        mine = objects.pop(number, [])
        kinds = [annotation.category_id for annotation in mine]
        yield _row(
            image,
            mine,
            [classes.get(kind, ValueError(f"no category has the id {kind}")) for kind in kinds],
        )
    for number in objects:
        yield {"file": ValueError(f"annotations have the image_id {number!r}, which no image has")}


def _create_ml(picture: _Picture) -> dict[str, Any]:
    classes = [annotation.label for annotation in picture.annotations]
    places = [annotation.coordinates for annotation in picture.annotations]
    sides = [
        [place.get(side, math.nan) for side in ("x", "y", "width", "height")] for place in places
    ]
    boxes = [[x - width / 2, y - height / 2, width, height] for x, y, width, height in sides]
    return _row(
        _Image(picture.image, picture.image),
        [_Object(picture.image, -1, box) for box in boxes],
        classes,
    )


def _row(
    image: _Image, objects: Sequence[_Object], classes: Sequence[str | ValueError]
) -> dict[str, Any]:
    segments = [msgspec.json.decode(obj.segmentation) for obj in objects]
    return {
        "file": image.file_name,
        "class": classes,
        "box": [obj.bbox if obj.id is None else Box(obj.bbox, obj.id) for obj in objects],
        "image/source_id": str(image.id),
        SOURCE_WIDTH: image.width,
        SOURCE_HEIGHT: image.height,
        "image/object/category_id": [obj.category_id for obj in objects],
        "image/object/is_crowd": [obj.iscrowd for obj in objects],
        "keypoint": [msgspec.json.decode(obj.keypoints) for obj in objects],
        "polygon": [
            [] if isinstance(segment, dict) else segment for segment in segments
        ],  # no run lengths
        "segment": segments,
        "image/object/area": [
            math.prod(obj.bbox[2:]) if obj.area is None else obj.area for obj in objects
        ],
    }


def _by_id(key: str, members: Sequence[Any]) -> dict[Any, Any]:
    by_id: dict[Any, Any] = {}
    for number, member in enumerate(members):
        if by_id.setdefault(member.id, member) is not member:
            raise ValueError(f"$.{key}[{number}] has the id {member.id!r}, as one before it has")
    return by_id


def _voc(text: str) -> dict[str, Any]:
    if "<!" in text.replace("<!--", ""):
        raise ValueError("has a DOCTYPE or an entity, which no such file needs")
    root = ElementTree.fromstring(text)  # noqa: S314  # nosec B314
    objects = root.findall("object")
    name = root.findtext("filename")
    sides = [
        [obj.findtext(f"bndbox/{side}", "") for side in ("xmin", "ymin", "xmax", "ymax")]
        for obj in objects
    ]
    return {
        "file": name,
        "class": [obj.findtext("name") for obj in objects],
        "box": [
            [left - 1, top - 1, right, bottom] for left, top, right, bottom in map(_floats, sides)
        ],
        "image/source_id": name,
        SOURCE_WIDTH: root.findtext("size/width"),
        SOURCE_HEIGHT: root.findtext("size/height"),
        "image/object/difficult": [obj.findtext("difficult") or 0 for obj in objects],
        "image/object/truncated": [obj.findtext("truncated") or 0 for obj in objects],
    }


def _floats(numbers: Sequence[str]) -> Sequence[float]:
    """Numbers of texts; all NaN, which are no box, if one is none."""
    try:
        return [float(number) for number in numbers]
    except ValueError:
        return [math.nan] * len(numbers)


class _Yolo(msgspec.Struct):
    names: list[str] | dict[str, str]
    kpt_shape: tuple[str, Literal["2", "3"]] | None = None
    path: str = ""
    train: str | list[str] = ""
    val: str | list[str] = ""
    test: str | list[str] = ""


def _yolo(path: str, text: str) -> Iterator[dict[str, Any]]:
    data = msgspec.convert(yaml.load(text, yaml.BaseLoader), _Yolo)  # noqa: S506  # nosec B506  # takes all as text
    if isinstance(data.names, dict):
        classes = data.names
    else:
        classes = {str(at): name for at, name in enumerate(data.names)}
    base = posixpath.join(posixpath.dirname(path), data.path)
    splits = {"train": data.train, "validation": data.val, "test": data.test}
    sets = [
        (name, folder)
        for name, item in splits.items()
        for folder in ([item] if isinstance(item, str) else item)
    ]
    files = [
        (file, name)
        for name, folder in sets
        if folder not in ("", "null", "~")
        for file in _images(base, folder)
    ]
    with contextlib.closing(Pool(storage.READ_AHEAD, "beam_tfr-labels")) as pool:
        for begin in range(0, len(files), READ_AT_A_TIME):
            batch = files[begin : begin + READ_AT_A_TIME]
            for (file, split), lines in zip(
                batch, pool.map(_read_labels, [file for file, _ in batch]), strict=True
            ):
                yield {
                    "file": file,
                    "image/source_id": posixpath.relpath(file, base),
                    "split": split,
                    "class": [
                        classes.get(number, ValueError(f"{number} is not in `names`"))
                        for number, *_ in lines
                    ],
                    **_shapes([_floats(numbers) for _, *numbers in lines], data.kpt_shape),
                }


def _images(base: str, folder: str) -> list[str]:
    for below in (
        folder,
        folder.removeprefix("../"),
    ):  # Roboflow writes ../train/images for train/images
        path = posixpath.normpath(posixpath.join(base, below))
        path = path.replace("gs:/", storage.GCS) if path.startswith("gs:/") else path
        with contextlib.suppress(UsageError):
            return sorted(entry.path for entry in list_files([(f"{escape_pattern(path)}/", ())]))
    raise ValueError(
        f"there are no images in {path}; name folders, relative to that of the file and its `path`"
    )


def _read_labels(image: str) -> list[list[str]]:
    """The fields of each line of the labels of an image; none without a file."""
    path = "/labels/".join(f"{os.path.splitext(image)[0]}.txt".rsplit("/images/", 1))
    try:
        text = _text(storage.read_bytes(path, max_bytes=MAX_TEXT_BYTES))
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from None
    return [fields for line in text.splitlines() if (fields := line.split())]


def _shapes(
    objects: Sequence[Sequence[float]], kpt_shape: tuple[str, str] | None
) -> dict[str, Any]:
    """The columns of objects, given their numbers: of a box, of the corners of a polygon, or of a
    box and keypoints."""
    empty: list[list[float]] = [[]] * len(objects)
    if kpt_shape:
        keypoints = [_keypoints(numbers[4:], *kpt_shape) for numbers in objects]
        return {
            "box": [numbers[:4] for numbers in objects],
            "keypoint": keypoints,
            "polygon": empty,
            "segment": empty,
        }
    polygons = [
        [*numbers] if len(numbers) >= 6 and len(numbers) % 2 == 0 else [] for numbers in objects
    ]
    boxes = [
        _enclosing(polygon) if polygon else numbers
        for numbers, polygon in zip(objects, polygons, strict=True)
    ]
    return {"box": boxes, "keypoint": empty, "polygon": polygons, "segment": polygons}


def _keypoints(numbers: Sequence[float], number: str, size: str) -> Sequence[Any] | ValueError:
    if len(numbers) != int(number) * int(size):
        return ValueError(
            f"{len(numbers)} numbers, but `kpt_shape` says {number} keypoints of {size}"
        )
    if size == "3":
        return numbers
    return [
        [x, y, 0 if min(x, y) < 0 else 2] for x, y in zip(numbers[::2], numbers[1::2], strict=True)
    ]


def _enclosing(numbers: Sequence[float]) -> Sequence[float]:
    """The box around the corners of a polygon."""
    (left, right), (top, bottom) = (
        (min(side), max(side)) for side in (numbers[::2], numbers[1::2])
    )
    return [(left + right) / 2, (top + bottom) / 2, right - left, bottom - top]
