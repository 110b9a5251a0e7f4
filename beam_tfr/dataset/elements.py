"""Decodes records into images and features, and makes batches."""

import contextlib
import importlib
import io
import math
import sys
from collections.abc import Callable, Iterator
from typing import Any, cast

import cv2
import numpy as np
import simplejpeg
from numpy.typing import NDArray
from PIL import Image as PillowImage

from beam_tfr.dataset.image_sides import count_pixels
from beam_tfr.dataset.manifest import Manifest
from beam_tfr.features.elements import ElementSpec, Request, StoredExample
from beam_tfr.features.png_chunks import keep_pixels
from beam_tfr.records.examples import read_message
from beam_tfr.records.tensors import parse_tensor
from beam_tfr.schema.errors import UsageError
from beam_tfr.schema.feature_names import ENCODED, FORMAT, LABEL, RAW, FeatureSpec

Pixels = NDArray[np.uint8]


class ExampleDecoder:
    """Decodes the serialized Examples of one dataset.

    Args:
        output: see `ImageDataset`.
        one_hot: whether labels are returned as float32 [classes].
        boxes: format of the boxes; None for elements without boxes.
        target: the column to return instead of the labels; None to return the labels.
        transform: function that is called with each image, or with the image and its features if
            `boxes` is set or the dataset has masks or paired images.

    Attributes:
        columns: the features besides the image, by name.
        channels: 1 if the dataset was made with --color gray, otherwise 3, as in
            `beam_tfr.reader.load`.
        image_size: (height, width) of all images in pixels, or None if sizes differ.
    """

    def __init__(
        self,
        dataset: Manifest,
        *,
        output: str,
        one_hot: bool = False,
        boxes: str | None = None,
        target: str | None = None,
        transform: Callable[..., Any] | None = None,
    ) -> None:
        options = dataset.image_options
        self.channels = options.channels
        self.image_size = options.stored_size
        self._encoding = options.encoding
        self._most_pixels = max(options.max_pixels, math.prod(options.image_size))
        self._transform = transform
        self._request = Request(output, boxes, one_hot, self.image_size)
        kinds = dataset.feature_kinds
        decoded = kinds.decoded(self._request)
        self._kinds = [kind for kind in decoded if not target or kind is not kinds.label]
        self._moves_pixels = any(kind.follows_pixels for kind in self._kinds)
        self._stored = dict[str, FeatureSpec]()  # features that are returned as they are
        if output == "dict":
            replaced = {ENCODED, RAW}
            for kind in self._kinds:
                replaced.update(kind.replaced)
            for name, spec in dataset.feature_specs.items():
                if name not in replaced:
                    self._stored[name] = spec
        if target:
            self._stored[target] = dataset.feature_specs[target]
        self.columns = {name: ElementSpec.of_feature(spec) for name, spec in self._stored.items()}
        for kind in self._kinds:
            self.columns |= kind.elements(self._request)

    def __call__(self, record: bytes) -> tuple[Any, dict[str, Any]]:
        """Decodes a record to (image, features).

        The image is an array, uint8 [height, width, channels], or the encoded bytes. The features
        are those in `columns`.

        Raises:
            ValueError: the record does not match the manifest.
        """
        example = StoredExample(read_message(record).features.feature)
        features = dict[str, Any]()
        for name, spec in self._stored.items():
            values = example.values(name, spec.dtype, math.prod(spec.shape))
            features[name] = self.columns[name].value(values)
        image = self._image(example)
        size = (0, 0)  # unknown for an image that stays encoded
        if not isinstance(image, bytes):
            size = image.shape[:2]
        for kind in self._kinds:
            features |= kind.decode(example, size, self._request)
        return image, features

    def _image(self, example: StoredExample) -> Any:
        """Returns the pixels of an example's image, or its bytes if images stay encoded."""
        if self._encoding == "raw":
            data = example.value(RAW, "bytes")
        else:
            data = example.value(ENCODED, "bytes")
        if self._request.output == "encoded":
            return data
        image = self._decode_image(example, data)
        if image.shape[2] != self.channels:  # a gray tensor in a dataset that has both kinds
            image = np.repeat(image, self.channels, axis=2)
        if self.image_size is not None and image.shape[:2] != self.image_size:
            raise ValueError(
                f"the image has (height, width) {image.shape[:2]} instead of {self.image_size}"
            )
        return image

    def _decode_image(self, example: StoredExample, data: bytes) -> Pixels:
        """Decodes an image to pixels.

        A raw image may have one channel even if other images in the dataset have three.
        """
        if self._encoding == "raw":
            return _raw_pixels(data)
        form = self._encoding
        if form == "keep":
            form = example.value(FORMAT, "bytes").decode("latin-1")
        return decode_image(data, form, self.channels, self._most_pixels)

    def filler(self) -> tuple[Any, dict[str, Any]]:
        """Returns the element that replaces a missing example.

        Its image is black, with 1x1 pixels if image sizes differ; its features are 0, empty bytes
        or empty lists.
        """
        if self._request.output == "encoded":
            image: Any = b""
        else:
            image = np.zeros((*(self.image_size or (1, 1)), self.channels), np.uint8)
        return image, {name: column.filler() for name, column in self.columns.items()}

    def parts(self, image: Any, features: Any) -> dict[str, Any]:
        """Applies `transform` and returns the parts of an element, by name, in order.

        Raises:
            UsageError: `transform` must return an image and features, but returned something else.
        """
        if self._transform is not None:
            image, features = self._transformed(self._transform, image, features)
        if self._request.boxes and self._request.output != "dict":
            return {"image": image, "target": features}
        return {"image": image, **features}

    def _transformed(
        self, transform: Callable[..., Any], image: Any, features: Any
    ) -> tuple[Any, Any]:
        if not self._moves_pixels:
            return transform(image), features
        result = transform(image, features)
        is_pair = isinstance(result, tuple) and len(result) == 2
        if not is_pair or not isinstance(result[1], dict):
            raise UsageError(
                "must return an image and a dict, because it is called with both if `boxes=` "
                "is set or the dataset has masks or paired images",
                option="transform",
                value=type(result).__name__,
            )
        return result[0], result[1]

    def element(self, parts: dict[str, Any]) -> Any:
        """Returns the element made of these parts."""
        if self._request.output == "dict":
            return parts
        if self._request.output == "image":
            parts.pop(LABEL, None)
        values = tuple(parts.values())
        return values if len(values) > 1 else values[0]


def _raw_pixels(tensor: bytes) -> Pixels:
    """Returns the pixels in a serialized TensorProto.

    Raises:
        ValueError: the tensor is not uint8 [height, width, channels].
    """
    dtype, shape, content = parse_tensor(tensor) or ("", [], b"")
    if dtype != "uint8" or len(shape) != 3:
        raise ValueError(f"{RAW} is not a uint8 tensor [height, width, channels]")
    pixels = np.frombuffer(content, np.uint8).reshape(shape)  # type: ignore[arg-type]
    return pixels.copy()  # the buffer cannot be written to


def stack_images(images: list[Any]) -> Any:
    """Makes a batch of images, or of the results of a transform.

    Arrays are stacked, bytes become a list, and PyTorch collates everything else.

    Raises:
        UsageError: the arrays have different shapes.
    """
    if isinstance(images[0], bytes):
        return images
    shapes = {tuple(getattr(image, "shape", ())) for image in images}
    if len(shapes) > 1:
        first, second, *_ = sorted(shapes)
        raise UsageError(
            f"returned images with the shapes {first} and {second}, but all images in a batch "
            "need the same shape; resize them in this function",
            option="transform",
        )
    if isinstance(images[0], np.ndarray):
        return np.stack(images)
    return importlib.import_module("torch.utils.data").default_collate(images)


def decode_image(data: bytes, form: str, channels: int, most_pixels: int = sys.maxsize) -> Pixels:
    """Decodes an image, or its first frame, to uint8 [height, width, channels].

    EXIF orientation is ignored. The pixels equal those that `beam_tfr.reader` returns.

    Args:
        data: the bytes of the image.
        form: one of `manifest.KEPT_FORMATS`.
        channels: 1 or 3.
        most_pixels: the maximum number of pixels of an image in the dataset.

    Raises:
        ValueError: the image cannot be decoded, or has more than `most_pixels` pixels.
    """
    check_pixels(count_pixels(data, form), most_pixels)
    if form == "jpeg":
        color = "GRAY" if channels == 1 else "RGB"
        # Not strict, as convert allows JPEGs with harmless oddities. Pillow reads samplings that
        # TurboJPEG does not know.
        with contextlib.suppress(ValueError):
            return cast(Pixels, simplejpeg.decode_jpeg(data, color, strict=False))
    elif form in ("png", "webp"):
        return _decode_by_opencv(data, form, channels)
    return _decode_by_pillow(data, form, channels, most_pixels)


def check_pixels(pixels: int, most_pixels: int) -> None:
    """Checks the number of pixels of an image.

    Raises:
        ValueError: the image has more pixels than an image in the dataset can have.
    """
    if pixels > most_pixels:
        raise ValueError(
            f"the image has {pixels:,} pixels, but images in this dataset have at most "
            f"{most_pixels:,}"
        )


def _decode_by_opencv(data: bytes, form: str, channels: int) -> Pixels:
    """Decodes a PNG or WebP with OpenCV, which is twice as fast as Pillow."""
    color = cv2.IMREAD_GRAYSCALE if channels == 1 else cv2.IMREAD_COLOR
    if form == "png":
        data = keep_pixels(data)
    pixels = cv2.imdecode(np.frombuffer(data, np.uint8), color | cv2.IMREAD_IGNORE_ORIENTATION)
    if pixels is None:
        raise ValueError(f"the image cannot be decoded as {form}")
    if channels == 1:
        return cast(Pixels, pixels[:, :, None])
    return cast(Pixels, cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB))


def _decode_by_pillow(data: bytes, form: str, channels: int, most_pixels: int) -> Pixels:
    mode = "L" if channels == 1 else "RGB"
    with _pillow_errors(form):
        image = PillowImage.open(io.BytesIO(data), formats=(form,))
    with image:
        check_pixels(image.height * image.width, most_pixels)
        with _pillow_errors(form):
            return np.array(image.convert(mode)).reshape(image.height, image.width, channels)


@contextlib.contextmanager
def _pillow_errors(form: str) -> Iterator[None]:
    """Turns Pillow's errors about an image into ValueErrors."""
    try:
        yield
    except Exception as error:  # Pillow raises many
        raise ValueError(
            f"the image cannot be decoded as {form}: {type(error).__name__}: {error}"
        ) from error
