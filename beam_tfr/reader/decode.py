"""Decodes records to elements of `load`, and names those that cannot be decoded."""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from beam_tfr.dataset.manifest import REPAIR_OR_COPY, Manifest
from beam_tfr.features.base import FeatureKind
from beam_tfr.features.box_formats import is_relative
from beam_tfr.features.boxes import BOXES_KEY, CLASSES_KEY
from beam_tfr.features.elements import Request
from beam_tfr.features.objects import check_lengths, crop_objects, pad_objects
from beam_tfr.order import FILLER
from beam_tfr.reader.images import ImageDecoder
from beam_tfr.reader.streams import PartTensors, first_that_works
from beam_tfr.records.examples import serialize
from beam_tfr.schema.encodings import IMAGE_ENCODINGS
from beam_tfr.schema.feature_names import ENCODED, FORMAT, HEIGHT, RAW, WIDTH

IMAGE = "image"
WEIGHT = "weight"  # what a dict holds besides the features of the manifest
_UNDECODED = (
    " (counted from 0) does not decode: it is no example as the manifest describes them, or has a "
    "damaged image or a label outside the class list; `beam-tfr verify` names the cause; "
    f"{REPAIR_OR_COPY}"
)
_DTYPES = {"bytes": tf.string, "int64": tf.int64, "float": tf.float32}
_WHOLE = [[0.0, 0.0, 1.0, 1.0]]  # the view of an image of which all is shown


def feature_spec_of(features: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The features for `tf.io.parse_example`.

    They are dense where the shape is known, else ragged.
    """
    return {
        name: _tensor_spec(_DTYPES[feature["dtype"]], feature["shape"])
        for name, feature in features.items()
    }


def _tensor_spec(dtype: Any, shape: Sequence[int]) -> Any:
    if min(shape, default=0) < 0:
        return tf.io.RaggedFeature(dtype, row_splits_dtype=tf.int64)
    return tf.io.FixedLenFeature(shape, dtype)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Decoder:
    """Turns records with their places into elements.

    Records are string [n] or scalar; places are int64 [n, 2] or [2].

    Attributes:
        dataset: the dataset.
        parts: where its records lie.
        image: decodes one image.
        output: "pair", "dict", "image", "encoded"; "raw_record" decodes nothing.
        sizes: how to batch images of different sizes: "padded" or "ragged"; None: not at all.
        multi_hot: labels, several an image, become float32 [n, classes].
        weighted: elements have a weight, 0 for fillers.
        boxes: format of the boxes; None: elements have none.
        max_boxes: boxes of each image; None: any number.
    """

    dataset: Manifest
    parts: PartTensors
    image: ImageDecoder
    output: str
    sizes: str | None
    multi_hot: bool
    weighted: bool
    boxes: str | None = None
    max_boxes: int | None = None

    @functools.cached_property
    def request(self) -> Request:
        """What the elements hold."""
        return Request(self.output, self.boxes, self.multi_hot)

    @functools.cached_property
    def labelled(self) -> bool:
        """True if there are labels, or boxes in their place."""
        return bool(self.boxes) or self.dataset.feature_kinds.label is not None

    @property
    def holds_images(self) -> bool:
        """True if the records are images, rather than files, arrays or rows of a table."""
        return self.image.options.encoding in IMAGE_ENCODINGS

    @functools.cached_property
    def _kinds(self) -> list[FeatureKind]:
        """The features that are not returned as they are stored."""
        return self.dataset.feature_kinds.decoded(self.request)

    @functools.cached_property
    def _spec(self) -> dict[str, Any]:
        spec = feature_spec_of(self.dataset.features)
        if self.output == "dict":
            return spec
        parsed = {RAW, ENCODED, FORMAT}
        if self.boxes:
            parsed |= {HEIGHT, WIDTH}
        for kind in self._kinds:
            parsed.update(kind.replaced)
        return {name: feature for name, feature in spec.items() if name in parsed}

    @property
    def ragged(self) -> bool:
        """True if an element holds lists of any length."""
        if self.output == "raw_record":
            return False
        dense = set[str]()
        if self.multi_hot:
            dense.add(self.dataset.names.label)
        if self.max_boxes:
            dense |= self.dataset.feature_kinds.box_features
        return any(
            isinstance(feature, tf.io.RaggedFeature) and name not in dense
            for name, feature in self._spec.items()
        )

    @property
    def variable(self) -> bool:
        """True if the images of a batch may differ in size."""
        is_decoded = self.holds_images and self.output not in ("encoded", "raw_record")
        return is_decoded and None in self.image.shape

    @functools.cached_property
    def padding(self) -> bytes:
        """A serialized filler: a black image; other features are 0 or empty."""
        values = dict[str, Any]()
        if self.holds_images:
            values = self._black_image()
        filler = {}
        for name, (dtype, shape) in self.dataset.feature_specs.items():
            value = values.get(name, b"" if dtype == "bytes" else 0)
            number = max(0, math.prod(shape))  # none of any length
            filler[name] = (dtype, [value] * number)
        return serialize(filler)

    def _black_image(self) -> dict[str, bytes]:
        """The features of a black image."""
        from beam_tfr.images.encode import encode

        options = self.image.options
        size = options.stored_size or self.image.image_size or (1, 1)
        form = options.encoding.replace("keep", "jpeg")
        features = {FORMAT: form.encode()}
        payload = RAW if form == "raw" else ENCODED
        features[payload] = encode(np.zeros((*size, options.channels), np.uint8), form)
        for kind in self.dataset.feature_kinds.kinds:
            features |= kind.filler(size)
        return features

    @functools.cached_property
    def _decoded(self) -> Any:
        """`_features` as a function that is traced once for each shape of its arguments."""
        return tf.function(self._features, autograph=False)

    def _features(self, records: Any, places: Any) -> dict[str, Any]:
        if self.boxes and records.shape.rank == 0:  # boxes are those of a batch
            of_one = self._features(records[None], places[None])
            return {name: values[0] for name, values in of_one.items()}
        features = tf.io.parse_example(records, self._spec)
        if self.holds_images:
            self._decode_images(features, places)
        batch = Batch(self, places, features)
        tensors = dict[str, Any]()
        objects = dict[str, Any]()
        for kind in self._kinds:
            collected = objects if kind.per_box else tensors
            collected |= kind.collect_tensors(features)
        if objects:
            tensors |= self._show_objects(objects, batch)
        for kind in self._kinds:
            tensors |= kind.decode_tensors(tensors, batch)
        if self.max_boxes:
            tensors |= pad_objects({key: tensors[key] for key in objects}, self.max_boxes)
        return {**features, **tensors}

    def _decode_images(self, features: dict[str, Any], places: Any) -> None:
        """Decodes the images of a batch, which become `IMAGE`."""
        data = features.pop(RAW if self.image.options.encoding == "raw" else ENCODED)
        if self.output == "encoded":
            features[IMAGE] = data
            return
        encoded = (data, features.get(FORMAT, tf.zeros_like(data)), places)
        features[IMAGE] = self.decode_each(self.image, encoded, self.image.shape, tf.uint8)

    def _show_objects(self, objects: Mapping[str, Any], batch: "Batch") -> dict[str, Any]:
        """The objects that the images of a batch show."""
        checked = check_lengths(objects)
        return crop_objects(checked, batch.views) if self.image.crop else checked

    def decode_each(
        self,
        decode: Callable[..., Any],
        inputs: tuple[Any, ...],
        shape: Sequence[int | None],
        dtype: Any,
    ) -> Any:
        """Calls a function for each example of a batch, and batches its results.

        Without batches, calls it once, for the only example.

        Args:
            decode: the function.
            inputs: its arguments: tensors with a row for each example of the batch.
            shape: shape of a result; None where sizes differ.
            dtype: dtype of a result.
        """
        if inputs[0].shape.rank == 0:
            return decode(*inputs)
        if not self.sizes:
            return tf.map_fn(lambda example: decode(*example), inputs, fn_output_signature=dtype)
        decoded = tf.data.Dataset.from_tensor_slices(inputs).map(decode)
        size = tf.size(inputs[0], tf.int64)
        if self.sizes == "ragged":
            return decoded.ragged_batch(size).get_single_element()
        padded = decoded.padded_batch(size).get_single_element()
        return tf.ensure_shape(padded, [inputs[0].shape[0], *shape])

    def _refuse(self, records: Any, places: Any) -> Any:
        """Fails with the message about the first record that does not decode."""

        def message(_: Any, place: Any) -> Any:
            file, number = self.parts.locate(place[1])
            return tf.strings.join([file, ": record ", number, _UNDECODED])

        def problems(record: Any, place: Any) -> Any:
            example = tf.data.Dataset.from_tensors((record, place))
            sound = example.map(self._decoded).ignore_errors().map(lambda _: tf.constant(""))
            return (
                sound.concatenate(example.map(message))
                .take(1)
                .filter(lambda message: message != "")
            )

        singles = tf.data.Dataset.from_tensor_slices(
            (tf.reshape(records, [-1]), tf.reshape(places, [-1, 2]))
        )
        messages = singles.flat_map(problems).concatenate(tf.data.Dataset.from_tensors(""))
        problem = messages.take(1).get_single_element()
        with tf.control_dependencies(
            [tf.raw_ops.Assert(condition=tf.equal(problem, ""), data=[problem])]
        ):
            return self._decoded(tf.identity(records), places)

    def element(self, records: Any, places: Any) -> Any:
        """An element of `load`; fillers have a place of `FILLER`."""
        if self.output == "raw_record":
            return records
        features = first_that_works(
            lambda: self._decoded(records, places), lambda: self._refuse(records, places)
        )
        weight = tf.cast(places[..., 1] != FILLER, tf.float32)
        if self.output == "dict":
            return {**features, WEIGHT: weight} if self.weighted else features
        image = features[IMAGE]
        if self.output == "image" or not self.labelled:
            return image
        if self.boxes:
            target = {key: features[key] for key in (BOXES_KEY, CLASSES_KEY)}
        else:
            target = features[self.dataset.names.label]
        return (image, target, weight) if self.weighted else (image, target)


class Batch:
    """What is known of a batch of images that is decoded.

    A `features.base.TensorReading`.

    Args:
        decoder: decodes it.
        places: int64 [images, 2], or [2] of the one.
        features: the features of the batch, with the images.
    """

    def __init__(self, decoder: Decoder, places: Any, features: Mapping[str, Any]) -> None:
        self.request = decoder.request
        self._decoder = decoder
        self._places = places
        self._features = {**features}

    @functools.cached_property
    def _sizes(self) -> Any:
        """The (width, height) of the stored images, int32 [images, 2]."""
        sizes = [self._features[WIDTH], self._features[HEIGHT]]
        return tf.cast(tf.stack(sizes, axis=1), tf.int32)

    @functools.cached_property
    def views(self) -> Any:
        """The part of each stored image that is returned."""
        sizes = self._sizes
        if not self._decoder.image.crop:
            return tf.tile(_WHOLE, [tf.shape(sizes)[0], 1])
        return tf.map_fn(
            lambda example: self._decoder.image.view(*example),
            (sizes, self._places),
            fn_output_signature=tf.float32,
        )

    @functools.cached_property
    def units(self) -> Any:
        """What a width and a height of 1 become in the unit of the boxes."""
        sizes = self._sizes
        if self._decoder.image.image_size:
            sizes = tf.ones_like(sizes) * self._decoder.image.image_size[::-1]
        if is_relative(self.request.boxes or ""):
            whole = sizes
            if self._decoder.sizes == "padded":
                whole = tf.shape(self._features[IMAGE])[2:0:-1]
            sizes = sizes / whole
        return tf.cast(sizes, tf.float32)

    def decode_pixels(self, pngs: Any) -> Any:
        """The pixels of an image beside each image."""
        image = self._decoder.image
        inputs = (pngs, self._places)
        return self._decoder.decode_each(image.mask, inputs, image.shape[:2], tf.int32)

    def decode_box_pixels(self, pngs: Any) -> Any:
        """The pixels of an image for each box."""
        shape = self._decoder.image.shape[:2]
        is_empty = tf.equal(tf.size(pngs.flat_values), 0)
        pixels = tf.cond(is_empty, self._no_box_pixels, lambda: self._decode_box_pixels(pngs))
        if self._decoder.sizes != "ragged":
            pixels = tf.ensure_shape(pixels, [None, *shape])
        return pngs.with_values(pixels)

    def _no_box_pixels(self) -> Any:
        """Those of no box, which no decoder can stack."""
        if self._decoder.sizes == "ragged":
            return tf.RaggedTensor.from_tensor(tf.zeros([0, 0, 0], tf.uint8), ragged_rank=2)
        sides = tf.unstack(tf.shape(self._features[IMAGE])[1:3])
        return tf.zeros([0, *sides], tf.uint8)

    def _decode_box_pixels(self, pngs: Any) -> Any:
        image = self._decoder.image
        inputs = (pngs.flat_values, tf.gather(self._places, pngs.value_rowids()))
        decoded = self._decoder.decode_each(image.mask, inputs, image.shape[:2], tf.int32)
        pixels = tf.cast(decoded, tf.uint8)
        if self._decoder.sizes != "padded":
            return pixels
        missing = tf.shape(self._features[IMAGE])[1:3] - tf.shape(pixels)[1:]
        return tf.pad(pixels, [[0, 0], [0, missing[0]], [0, missing[1]]])
