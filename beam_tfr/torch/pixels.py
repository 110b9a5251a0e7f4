"""From a record to its image and label, without TensorFlow, with the pixels that `beam_tfr.reader` gives."""

from __future__ import annotations

import contextlib
import io
import math
from collections.abc import Sequence
from typing import Any, cast

import cv2
import numpy as np
import simplejpeg
from google.protobuf.message import DecodeError
from numpy.typing import NDArray
from PIL import Image as PillowImage

from beam_tfr.examples import example_class
from beam_tfr.manifest import Manifest
from beam_tfr.options.image import VARIABLE_SIZES
from beam_tfr.schema import CHANNELS, ENCODED, FORMAT, HEIGHT, LABEL, RAW, WIDTH

Pixels = NDArray[np.uint8]


class ExampleDecoder:
    """Reads serialized Examples of one dataset.

    Attributes:
        labelled: whether its records have labels.
        channels: 1 after --color gray, else 3, as in `beam_tfr.reader.load`.
        image_size: (height, width) of all images in pixels, or None where they differ.
    """

    def __init__(self, dataset: Manifest, *, decode: bool) -> None:
        options = dataset.image_options
        self.labelled = LABEL in dataset.features
        self.channels = 1 if options.color == "gray" else 3
        self.image_size = None if options.resize in VARIABLE_SIZES else options.image_size
        self._encoding = options.encoding
        self._num_classes = len(dataset.class_names)
        self._decode = decode

    def __call__(self, record: bytes) -> tuple[Any, int]:
        """(image, label): uint8 [height, width, channels], or the encoded bytes without `decode`; 0 without labels.

        Raises:
            ValueError: the record is not what the manifest says of it.
        """
        try:
            features = example_class().FromString(record).features.feature
        except DecodeError as error:
            raise ValueError(f"not a tf.train.Example: {error}") from error
        label = _value(features, LABEL, "int64_list") if self.labelled else 0
        if self.labelled and not 0 <= label < self._num_classes:
            raise ValueError(f"{LABEL} is {label}, but there are {self._num_classes} classes")
        name = RAW if self._encoding == "raw" else ENCODED
        data = _value(features, name, "bytes_list")
        if not self._decode:
            return data, label
        if name == RAW:
            image = _raw_pixels(data, *(_value(features, side, "int64_list") for side in (HEIGHT, WIDTH, CHANNELS)))
        else:
            form = _value(features, FORMAT, "bytes_list") if self._encoding == "keep" else self._encoding.encode()
            image = decode_image(data, form.decode("latin-1"), self.channels)
        if image.shape[2] != self.channels:  # a gray tensor in a dataset of both
            image = np.repeat(image, self.channels, axis=2)
        if self.image_size is not None and image.shape[:2] != self.image_size:
            raise ValueError(f"the image has (height, width) {image.shape[:2]} instead of {self.image_size}")
        return image, label

    def filler(self) -> Any:
        """What stands for an image in the place of a missing one: black, of 1x1 pixels where sizes differ."""
        return np.zeros((*(self.image_size or (1, 1)), self.channels), np.uint8) if self._decode else b""


def _value(features: Any, name: str, kind: str) -> Any:
    values: Sequence[Any] = getattr(features[name], kind).value if name in features else ()
    if len(values) != 1:
        raise ValueError(f"feature {name} has {len(values)} values instead of 1")
    return values[0]


def _raw_pixels(tensor: bytes, height: int, width: int, channels: int) -> Pixels:
    """The content of a serialized TensorProto: its last field, as tf.io.serialize_tensor and `convert` write it."""
    shape = (height, width, channels)
    size = math.prod(shape)
    if min(shape) < 0 or not size < len(tensor) < size + 64:
        raise ValueError(f"{RAW} has {len(tensor)} bytes, which does not fit {height}x{width}x{channels}")
    return np.frombuffer(bytearray(tensor[len(tensor) - size :]), np.uint8).reshape(shape)  # writable


def decode_image(data: bytes, form: str, channels: int) -> Pixels:
    """uint8 [height, width, channels] of an encoded image: of the first frame, if it has several; never turned.

    Args:
        form: one of `manifest.KEPT_FORMATS`.
        channels: 1 or 3.

    Raises:
        ValueError: it does not decode.
    """
    if form == "jpeg":
        # libjpeg-turbo with its own defaults. Not strict: convert lets JPEGs with harmless oddities through.
        with contextlib.suppress(ValueError):  # samplings that TurboJPEG has no name for: Pillow reads them
            if simplejpeg.decode_jpeg_header(data, strict=False)[2] not in ("CMYK", "YCCK"):
                return cast(Pixels, simplejpeg.decode_jpeg(data, "GRAY" if channels == 1 else "RGB", strict=False))
    elif form in ("png", "webp"):  # twice as fast as by Pillow
        kind = cv2.IMREAD_GRAYSCALE if channels == 1 else cv2.IMREAD_COLOR
        pixels = cv2.imdecode(np.frombuffer(data, np.uint8), kind | cv2.IMREAD_IGNORE_ORIENTATION)
        if pixels is None:
            raise ValueError(f"the image is no {form} that decodes")
        return cast(Pixels, pixels[:, :, None] if channels == 1 else cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB))
    try:
        with PillowImage.open(io.BytesIO(data), formats=(form,)) as image:
            if image.mode == "CMYK" and channels == 3:
                return _from_cmyk(np.asarray(image), adobe="adobe" in image.info)
            return np.array(image.convert("L" if channels == 1 else "RGB")).reshape(image.height, image.width, channels)
    except Exception as error:
        raise ValueError(f"the image is no {form} that decodes: {type(error).__name__}: {error}") from error


def _from_cmyk(pixels: Pixels, *, adobe: bool) -> Pixels:
    """As tf.io.decode_jpeg does it (tensorflow/core/lib/jpeg/jpeg_mem.cc): no profile, each colour times black.

    Args:
        pixels: uint8 [height, width, 4], as Pillow gives them, which takes any CMYK for Adobe's: inverted.
        adobe: whether the file says so.
    """
    light = (255 - pixels if adobe else pixels).astype(np.uint16)
    return (light[:, :, :3] * light[:, :, 3:] // 255).astype(np.uint8)
