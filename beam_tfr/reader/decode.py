"""Decodes records to elements of `load`, and names those that cannot be decoded."""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from beam_tfr.dataset.manifest import REPAIR_OR_COPY, Manifest
from beam_tfr.order import FILLER
from beam_tfr.reader import boxes
from beam_tfr.reader.images import ImageDecoder
from beam_tfr.reader.streams import PartTensors, first_that_works
from beam_tfr.records.examples import serialize
from beam_tfr.schema import feature_names
from beam_tfr.schema.boxes import BOXES, CLASSES, MASKS, RELATIVE
from beam_tfr.schema.encodings import IMAGE_ENCODINGS

IMAGE = "image"
WEIGHT = "weight"  # what a dict holds besides the features of the manifest
_UNDECODED = (
    " (counted from 0) does not decode: it is no example as the manifest describes them, or has a damaged image or a "
    f"label outside the class list; `beam-tfr verify` names the cause; {REPAIR_OR_COPY}"
)
_DTYPES = {"bytes": tf.string, "int64": tf.int64, "float": tf.float32}


def feature_spec_of(features: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The features for `tf.io.parse_example`: dense where the shape is known, else ragged."""
    return {
        name: tf.io.FixedLenFeature(feature["shape"], _DTYPES[feature["dtype"]])
        if all(size >= 0 for size in feature["shape"])
        else tf.io.RaggedFeature(_DTYPES[feature["dtype"]], row_splits_dtype=tf.int64)
        for name, feature in features.items()
    }


@dataclasses.dataclass(frozen=True, kw_only=True)
class Decoder:
    """Turns records, string [n] or scalar, with their places, int64 [n, 2] or [2], into elements.

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
    def labelled(self) -> bool:
        """True if there are labels, or boxes in their place."""
        return bool(self.boxes) or self._label in self.dataset.features

    @property
    def _label(self) -> str:
        return self.dataset.names.label

    @property
    def holds_images(self) -> bool:
        """True if the records are images, rather than files, arrays or rows of a table."""
        return self.image.options.encoding in IMAGE_ENCODINGS

    @functools.cached_property
    def _spec(self) -> dict[str, Any]:
        spec = feature_spec_of(self.dataset.features)
        if self.output == "dict":
            return spec
        wanted = {feature_names.RAW, feature_names.ENCODED, feature_names.FORMAT}
        wanted |= (
            {
                feature_names.HEIGHT,
                feature_names.WIDTH,
                *feature_names.SIDES,
                feature_names.OBJECT_LABEL,
            }
            if self.boxes
            else {self._label}
        )
        return {name: feature for name, feature in spec.items() if name in wanted}

    @property
    def ragged(self) -> bool:
        """True if an element holds lists of any length."""
        lists = {
            name for name, feature in self._spec.items() if isinstance(feature, tf.io.RaggedFeature)
        }
        dense = {self._label} if self.multi_hot else set()
        dense |= self.dataset.box_features if self.max_boxes else set()
        return self.output != "raw_record" and bool(lists - dense)

    @property
    def variable(self) -> bool:
        """True if the images of a batch may differ in size."""
        return (
            self.holds_images
            and self.output not in ("encoded", "raw_record")
            and None in self.image.shape
        )

    @functools.cached_property
    def padding(self) -> bytes:
        """A serialized filler: a black image; other features are 0 or empty."""
        from beam_tfr.images.encode import encode

        options = self.image.options
        height, width = options.stored_size or self.image.image_size or (1, 1)
        form = options.encoding.replace("keep", "jpeg")
        values: dict[str, Any] = {feature_names.FORMAT: form.encode()}
        if self.holds_images:
            payload = feature_names.RAW if form == "raw" else feature_names.ENCODED
            values[payload] = encode(np.zeros((height, width, options.channels), np.uint8), form)
            for companion in self.dataset.names.companions:
                values[companion.feature] = encode(np.zeros((height, width, 1), np.uint8), "png")
        filler = {}
        for name, feature in self.dataset.features.items():
            value = values.get(name, b"" if feature["dtype"] == "bytes" else 0)
            filler[name] = (
                feature["dtype"],
                [value] * max(0, math.prod(feature["shape"])),
            )  # [-1], any length, is empty
        return serialize(filler)

    @functools.cached_property
    def _decoded(self) -> Any:
        """`_features` as a function that is traced once for each shape of its arguments."""
        return tf.function(self._features, autograph=False)

    def _features(self, records: Any, places: Any) -> dict[str, Any]:
        if self.boxes and records.shape.rank == 0:  # boxes are those of a batch
            batch = self._features(records[None], places[None])
            return {name: values[0] for name, values in batch.items()}
        features = tf.io.parse_example(records, self._spec)
        for name in (
            {self._label, feature_names.OBJECT_LABEL} if self.boxes else {self._label}
        ) & features.keys():
            label = features[name]
            flat = getattr(label, "flat_values", label)
            lowest = (
                -1 if self.dataset.options.get("label_column") else 0
            )  # -1: a table named no class for it
            outside = tf.reduce_any((flat < lowest) | (flat >= len(self.dataset.class_names)))
            known = tf.raw_ops.Assert(condition=~outside, data=["a label outside the class list"])
            with tf.control_dependencies([known]):
                features[name] = tf.nest.map_structure(tf.identity, label, expand_composites=True)
        if self.multi_hot:
            label = features[self._label]
            classes = len(self.dataset.class_names)
            counts = tf.reduce_sum(tf.one_hot(label, classes), axis=label.shape.rank - 1)
            features[self._label] = tf.ensure_shape(
                tf.minimum(counts, 1), [*label.shape[:-1], classes]
            )
        if not self.holds_images:
            return dict(features)
        data = features.pop(
            feature_names.RAW if self.image.options.encoding == "raw" else feature_names.ENCODED
        )
        if self.output == "encoded":
            return self._with_boxes({**features, IMAGE: data}, places)
        encoded = (data, features.get(feature_names.FORMAT, tf.zeros_like(data)), places)
        features[IMAGE] = self._each(self.image, encoded, self.image.shape, tf.uint8)
        for companion in self.dataset.names.companions if self.output == "dict" else ():
            inputs = (features.pop(companion.feature), places)
            features[companion.key] = self._each(
                self.image.mask, inputs, self.image.shape[:2], tf.int32
            )
        return self._with_boxes(features, places)

    def _each(
        self,
        decode: Callable[..., Any],
        inputs: tuple[Any, ...],
        shape: Sequence[int | None],
        dtype: Any,
    ) -> Any:
        """What a function makes of each example of a batch, or of the one."""
        if inputs[0].shape.rank == 0:
            return decode(*inputs)
        if not self.sizes:
            return tf.map_fn(lambda example: decode(*example), inputs, fn_output_signature=dtype)
        decoded = tf.data.Dataset.from_tensor_slices(inputs).map(decode)
        size = tf.size(inputs[0], tf.int64)
        if self.sizes == "ragged":
            return decoded.ragged_batch(size).get_single_element()
        return tf.ensure_shape(
            decoded.padded_batch(size).get_single_element(), [inputs[0].shape[0], *shape]
        )

    def _with_boxes(self, features: dict[str, Any], places: Any) -> dict[str, Any]:
        """The features with boxes in place of those that they are made of, moved as `IMAGE` is."""
        if not self.boxes:
            return features
        points = self.dataset.points if self.output == "dict" else {}
        own = self.dataset.box_features.union(*points.values()) & features.keys()
        objects = boxes.collect({name: features.pop(name) for name in own}, points)
        size = tf.cast(
            tf.stack([features[feature_names.WIDTH], features[feature_names.HEIGHT]], axis=1),
            tf.int32,
        )
        views = tf.tile([[0.0, 0.0, 1.0, 1.0]], [tf.shape(size)[0], 1])
        if self.image.crop:
            views = tf.map_fn(
                lambda example: self.image.view(*example),
                (size, places),
                fn_output_signature=tf.float32,
            )
            objects = boxes.crop(objects, views)
        if self.image.image_size:
            size = tf.ones_like(size) * self.image.image_size[::-1]
        if self.boxes.startswith(RELATIVE):
            size = size / (tf.shape(features[IMAGE])[2:0:-1] if self.sizes == "padded" else size)
        size = tf.cast(size, tf.float32)
        objects[BOXES] = boxes.convert(objects[BOXES], self.boxes, size)
        if self.output == "dict" and feature_names.OBJECT_MASK in objects:
            objects[MASKS] = self._masks(
                objects.pop(feature_names.OBJECT_MASK), places, features[IMAGE]
            )
        objects |= {name: boxes.move_points(objects[name], views, size) for name in points}
        if self.max_boxes:
            objects = boxes.pad(objects, self.max_boxes)
        return {**features, **objects}

    def _masks(self, masks: Any, places: Any, images: Any) -> Any:
        """The masks of boxes, uint8 [images, boxes, height, width], of PNGs [images, boxes]."""
        inputs = (masks.flat_values, tf.gather(places, masks.value_rowids()))
        shape = self.image.shape[:2]

        def decoded() -> Any:
            found = tf.cast(self._each(self.image.mask, inputs, shape, tf.int32), tf.uint8)
            if self.sizes != "padded":
                return found
            rest = tf.shape(images)[1:3] - tf.shape(found)[1:]
            return tf.pad(found, [[0, 0], [0, rest[0]], [0, rest[1]]])

        def nothing() -> Any:
            if self.sizes == "ragged":
                return tf.RaggedTensor.from_tensor(tf.zeros([0, 0, 0], tf.uint8), ragged_rank=2)
            return tf.zeros([0, *tf.unstack(tf.shape(images)[1:3])], tf.uint8)

        found = tf.cond(tf.size(inputs[0]) > 0, decoded, nothing)
        return masks.with_values(
            found if self.sizes == "ragged" else tf.ensure_shape(found, [None, *shape])
        )

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
        found = singles.flat_map(problems).concatenate(tf.data.Dataset.from_tensors(""))
        problem = found.take(1).get_single_element()
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
            return {**features, **({WEIGHT: weight} if self.weighted else {})}
        image = features[IMAGE]
        if self.output == "image" or not self.labelled:
            return image
        if self.boxes:
            target = {name: features[name] for name in (BOXES, CLASSES)}
        else:
            target = features[self._label]
        return (image, target, weight) if self.weighted else (image, target)
