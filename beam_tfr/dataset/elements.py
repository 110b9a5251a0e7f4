"""Decodes a record to its image and features, and makes batches of several."""

import contextlib
import importlib
import io
import math
import struct
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, NamedTuple, cast

import cv2
import numpy as np
import simplejpeg
from numpy.typing import NDArray
from PIL import Image as PillowImage

from beam_tfr.dataset.manifest import Manifest
from beam_tfr.records.examples import read_message
from beam_tfr.records.tensors import parse_tensor
from beam_tfr.schema import feature_names
from beam_tfr.schema.boxes import BOXES, CLASSES, MASKS, RELATIVE, in_format
from beam_tfr.schema.errors import UsageError

Pixels = NDArray[np.uint8]
_DTYPES = {"int64": np.int64, "float": np.float32, "bytes": object}


class Column(NamedTuple):
    """A feature of an element. The dtype `object` is bytes; the shape [-1] is a list of any
    length."""

    dtype: Any
    shape: Sequence[int]

    def value(self, values: Sequence[Any]) -> Any:
        """The value of one example: a scalar as int, float or bytes, numbers as an array, several
        bytes as a list."""
        if not self.shape:
            return values[0]
        array = np.array(values, self.dtype).reshape(self.shape)
        return array.tolist() if self.dtype is object else array

    def filler(self) -> Any:
        return self.value(
            [b"" if self.dtype is object else self.dtype(0).item()] * max(0, math.prod(self.shape))
        )

    def stack(self, values: list[Any]) -> Any:
        """The value of a batch: an array, or a list if it holds bytes or lists of any length."""
        return values if self.dtype is object or -1 in self.shape else np.array(values, self.dtype)


class ExampleDecoder:
    """Decodes serialized Examples of one dataset.

    Args:
        output: see `ImageDataset`.
        multi_hot: labels become float32 [classes].
        boxes: format of the boxes; None: elements have none.
        transform: function that is called with each image; if there are boxes, masks or pairs, with
            image and features.

    Attributes:
        columns: the features besides the image, by name.
        companions: of the images, which they hold.
        channels: 1 after --color gray, else 3, as in `beam_tfr.reader.load`.
        image_size: (height, width) of all images in pixels, or None where they differ.
    """

    def __init__(
        self,
        dataset: Manifest,
        *,
        output: str,
        multi_hot: bool = False,
        boxes: str | None = None,
        transform: Callable[..., Any] | None = None,
    ) -> None:
        options = dataset.image_options
        self.channels = options.channels
        self.image_size = options.stored_size
        self._points = dataset.points if boxes and output == "dict" else {}
        self._has_masks = (
            bool(boxes) and output == "dict" and feature_names.OBJECT_MASK in dataset.features
        )
        hidden = {feature_names.ENCODED, feature_names.RAW, *chain(*self._points.values())}
        hidden |= (
            {*feature_names.SIDES, feature_names.OBJECT_LABEL, feature_names.OBJECT_MASK}
            if boxes
            else set()
        )
        hidden |= {companion.feature for companion in dataset.names.companions}
        self._features = {
            name: feature
            for name, feature in dataset.features.items()
            if (
                name not in hidden
                if output == "dict"
                else name == feature_names.LABEL and not boxes
            )
        }
        self.columns = {
            name: Column(_DTYPES[about["dtype"]], about["shape"])
            for name, about in self._features.items()
        }
        if boxes:
            self.columns |= {BOXES: Column(np.float32, [-1, 4]), CLASSES: Column(np.int64, [-1])}
            self.columns |= dict.fromkeys(self._points, Column(object, [-1]))
        if self._has_masks:
            self.columns[MASKS] = Column(np.uint8, [-1, *(self.image_size or (1, 1))])
        self.companions = dataset.names.companions if output == "dict" else ()
        for companion in self.companions:
            self.columns[companion.key] = Column(np.int32, self.image_size or [-1, -1])
        self._boxes = boxes
        self._has_classes = feature_names.OBJECT_LABEL in dataset.features
        self._num_classes = len(dataset.class_names)
        self._lowest = (
            -1 if dataset.options.get("label_column") else 0
        )  # -1: a table named no class for it
        if multi_hot:
            self.columns[feature_names.LABEL] = Column(np.float32, [self._num_classes])
        self._multi_hot = multi_hot
        self._encoding = options.encoding
        self._output = output
        self._transform = transform

    def __call__(self, record: bytes) -> tuple[Any, dict[str, Any]]:
        """(image, features): uint8 [height, width, channels], or the encoded bytes; and the
        `columns`.

        Raises:
            ValueError: the record does not match the manifest.
        """
        found = read_message(record).features.feature
        features = {}
        for name, about in self._features.items():
            values = _values(found, name, f"{about['dtype']}_list", math.prod(about["shape"]))
            if name == feature_names.LABEL:
                values = self._labels(values)
            features[name] = self.columns[name].value(values)
        if self._boxes:
            features |= self._objects(found, self._boxes)
        image = self._image(found)
        for companion in self.companions:
            (data,) = _values(found, companion.feature, "bytes_list", 1)
            features[companion.key] = decode_mask(data, image.shape[:2])
        if self._has_masks:
            masks = _values(found, feature_names.OBJECT_MASK, "bytes_list", len(features[CLASSES]))
            features[MASKS] = np.zeros((len(masks), *image.shape[:2]), np.uint8)
            for at, mask in enumerate(masks):
                features[MASKS][at] = decode_mask(mask, image.shape[:2])
        return image, features

    def _objects(self, found: Any, form: str) -> dict[str, Any]:
        """The boxes and classes of an image's objects; without labels, all have class 0."""
        number = len(_values(found, feature_names.SIDES[0], "float_list", -1))
        sides = np.array(
            [_values(found, side, "float_list", number) for side in feature_names.SIDES], np.float32
        )
        if self._has_classes:
            classes = _values(found, feature_names.OBJECT_LABEL, "int64_list", number)
        else:
            classes = [0] * number
        if self._has_classes:
            self._check_labels(feature_names.OBJECT_LABEL, classes)
        size = [1, 1]
        if not form.startswith(RELATIVE):
            size = [
                _values(found, name, "int64_list", 1)[0]
                for name in (feature_names.WIDTH, feature_names.HEIGHT)
            ]
        boxes = in_format(form, sides * np.array(size * 2, np.float32)[:, None])
        points = {
            name: _points(found, features, number, size) for name, features in self._points.items()
        }
        return {BOXES: np.stack(boxes, axis=1), CLASSES: np.array(classes, np.int64), **points}

    def _check_labels(self, name: str, labels: Sequence[int]) -> None:
        for label in labels:
            if not self._lowest <= label < self._num_classes:
                raise ValueError(f"{name} is {label}, but there are {self._num_classes} classes")

    def _labels(self, labels: Sequence[int]) -> Any:
        self._check_labels(feature_names.LABEL, labels)
        if not self._multi_hot:
            return labels
        hot = np.zeros(self._num_classes, np.float32)
        hot[list(labels)] = 1
        return hot

    def _image(self, found: Any) -> Any:
        name = feature_names.RAW if self._encoding == "raw" else feature_names.ENCODED
        (data,) = _values(found, name, "bytes_list", 1)
        if self._output == "encoded":
            return data
        if name == feature_names.RAW:
            image = _raw_pixels(data)
        else:
            kept = self._encoding == "keep"
            if kept:
                form = _values(found, feature_names.FORMAT, "bytes_list", 1)[0].decode("latin-1")
            else:
                form = self._encoding
            image = decode_image(data, form, self.channels)
        if image.shape[2] != self.channels:  # a gray tensor in a dataset of both
            image = np.repeat(image, self.channels, axis=2)
        if self.image_size is not None and image.shape[:2] != self.image_size:
            raise ValueError(
                f"the image has (height, width) {image.shape[:2]} instead of {self.image_size}"
            )
        return image

    def filler(self) -> tuple[Any, dict[str, Any]]:
        """The replacement of a missing example: a black image (1x1 if sizes differ), 0, empty bytes
        and lists."""
        if self._output == "encoded":
            image: Any = b""
        else:
            image = np.zeros((*(self.image_size or (1, 1)), self.channels), np.uint8)
        return image, {name: column.filler() for name, column in self.columns.items()}

    def parts(self, image: Any, features: Any) -> dict[str, Any]:
        """The parts of an element, by name, in order, after `transform`.

        Raises:
            UsageError: it does not return both image and features, though it has to.
        """
        if self._transform is not None and not (self._boxes or self.companions):
            image = self._transform(image)
        elif self._transform is not None:
            found = self._transform(image, features)
            if not isinstance(found, tuple) or len(found) != 2 or not isinstance(found[1], dict):
                why = "must return image and dict with `boxes=` or `masks=`, as it is called with both"
                raise UsageError(why, option="transform", value=type(found).__name__)
            image, features = found
        has_target = self._boxes and self._output != "dict"
        return {"image": image, "target": features} if has_target else {"image": image, **features}

    def element(self, parts: dict[str, Any]) -> Any:
        """What the readers return, given its parts."""
        if self._output == "dict":
            return parts
        if self._output == "image":
            parts.pop(feature_names.LABEL, None)
        values = tuple(parts.values())
        return values if len(values) > 1 else values[0]


def _values(found: Any, name: str, kind: str, size: int) -> Sequence[Any]:
    """The values of a feature, `size` of them, or any number if it is negative."""
    values: Sequence[Any] = getattr(found[name], kind).value if name in found else ()
    if len(values) != size >= 0:
        raise ValueError(f"feature {name} has {len(values)} values instead of {size}")
    return values


def _points(
    found: Any, features: Sequence[str], boxes: int, size: Sequence[Any]
) -> list[NDArray[np.float32]]:
    """The points of each box, [n, 2 or 3], their places in units of a size (width, height) of the
    image."""
    *parts, num = features
    numbers = np.array(_values(found, num, "int64_list", boxes), np.int64)
    kinds = ("float_list", "float_list", "int64_list")
    total = max(0, int(numbers.sum()))
    values = [_values(found, part, kind, total) for part, kind in zip(parts, kinds, strict=False)]
    points = np.array(values, np.float32).T * np.array((*size, 1)[: len(parts)], np.float32)
    return [
        points[end - number : end] for number, end in zip(numbers, numbers.cumsum(), strict=True)
    ]


def decode_mask(data: bytes, size: tuple[int, int]) -> NDArray[np.int32]:
    """Decodes a mask, or another companion, to int32 of a size (height, width).

    Raises:
        ValueError: it is no PNG of one channel that decodes, or has another size.
    """
    stated = data[16:24] == struct.pack(
        ">2I", *size[::-1]
    )  # in the header, before anything is decoded
    values = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED) if stated else None
    if values is None or values.shape != size:
        raise ValueError(f"no gray PNG of (height, width) {size} that decodes")
    return values.astype(np.int32)


def _raw_pixels(tensor: bytes) -> Pixels:
    """The content of a serialized TensorProto."""
    dtype, shape, content = parse_tensor(tensor) or ("", [], b"")
    if dtype != "uint8" or len(shape) != 3:
        raise ValueError(f"{feature_names.RAW} is not a uint8 tensor [height, width, channels]")
    return np.array(np.frombuffer(content, np.uint8).reshape(shape))  # type: ignore[arg-type]  # writable


def stack_images(images: list[Any]) -> Any:
    """Batches images, or what a transform made of them: stacks arrays, lists bytes, lets PyTorch
    collate the rest.

    Raises:
        UsageError: arrays have different shapes.
    """
    if isinstance(images[0], bytes):
        return images
    if len(shapes := {tuple(getattr(image, "shape", ())) for image in images}) > 1:
        first, second, *_ = sorted(shapes)
        why = f"returned images of the shapes {first} and {second}, and a batch takes equal ones; resize them there"
        raise UsageError(why, option="transform")
    if isinstance(images[0], np.ndarray):
        return np.stack(images)
    return importlib.import_module("torch.utils.data").default_collate(images)


def decode_image(data: bytes, form: str, channels: int) -> Pixels:
    """Decodes an image, or its first frame, to uint8 [height, width, channels]; EXIF orientation is
    ignored.

    The pixels equal those of `beam_tfr.reader`.

    Args:
        form: one of `manifest.KEPT_FORMATS`.
        channels: 1 or 3.

    Raises:
        ValueError: the image does not decode.
    """
    if form == "jpeg":
        # libjpeg-turbo with its own defaults. Not strict, as convert allows JPEGs with harmless
        # oddities.
        with contextlib.suppress(
            ValueError
        ):  # for samplings unknown to TurboJPEG, which Pillow reads
            return cast(
                Pixels,
                simplejpeg.decode_jpeg(data, "GRAY" if channels == 1 else "RGB", strict=False),
            )
    elif form in ("png", "webp"):  # twice as fast as Pillow
        color = cv2.IMREAD_GRAYSCALE if channels == 1 else cv2.IMREAD_COLOR
        pixels = cv2.imdecode(np.frombuffer(data, np.uint8), color | cv2.IMREAD_IGNORE_ORIENTATION)
        if pixels is None:
            raise ValueError(f"the image is not a {form} that decodes")
        return cast(
            Pixels, pixels[:, :, None] if channels == 1 else cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB)
        )
    try:
        with PillowImage.open(io.BytesIO(data), formats=(form,)) as image:
            return np.array(image.convert("L" if channels == 1 else "RGB")).reshape(
                image.height, image.width, channels
            )
    except Exception as error:
        raise ValueError(
            f"the image is not a {form} that decodes: {type(error).__name__}: {error}"
        ) from error
