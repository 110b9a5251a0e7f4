"""Decodes records to what `load` returns; names or replaces a record or image that cannot be decoded."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from beam_tfr.manifest import Manifest
from beam_tfr.options.image import VARIABLE_SIZES
from beam_tfr.reader.images import ImageDecoder
from beam_tfr.schema.features import CHANNELS, COLORSPACE, ENCODED, FORMAT, HEIGHT, IMAGE_ENCODINGS, RAW, WIDTH
from beam_tfr.splits import Selection

IMAGE, WEIGHT = "image", "weight"  # what a dict holds besides the features of the manifest
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
        dataset, selection: where the records come from.
        image: decodes one image.
        output: "pair", "dict", "image", "encoded"; "raw_record" decodes nothing.
        dtype: of the images.
        sizes: how to batch images of different sizes: "padded" or "ragged"; None: not at all.
        one_hot, multi_hot: labels, one or several an image, become float32 [n, classes].
        weighted: elements have a weight, 0 for fillers.
        max_skipped: how many undecodable records to replace by black images of weight 0; None raises at the first.
    """

    dataset: Manifest
    selection: Selection
    image: ImageDecoder
    output: str
    dtype: Any
    sizes: str | None
    one_hot: bool
    multi_hot: bool
    weighted: bool
    max_skipped: int | None

    @functools.cached_property
    def labelled(self) -> bool:
        return self._label in self.dataset.features

    @property
    def _label(self) -> str:
        return self.dataset.names.label

    @property
    def holds_images(self) -> bool:
        """Whether the records are images, rather than files, arrays or rows of a table."""
        return self.image.options.encoding in IMAGE_ENCODINGS

    @property
    def _unlabelled(self) -> bool:
        """Whether examples of a labelled dataset may lack a label: it is -1 then."""
        return bool(self.dataset.options.get("label_column"))

    @functools.cached_property
    def _spec(self) -> dict[str, Any]:
        spec = feature_spec_of(self.dataset.features)
        if self.output == "dict":
            return spec
        names = {RAW, ENCODED} | ({FORMAT} if self._has_formats else set()) | {self._label}
        return {name: feature for name, feature in spec.items() if name in names}

    @property
    def several_labels(self) -> bool:
        return self.labelled and bool(self.dataset.features[self._label]["shape"])

    @property
    def ragged(self) -> bool:
        """Whether an element holds lists of any length."""
        names = {name for name, feature in self._spec.items() if isinstance(feature, tf.io.RaggedFeature)}
        return self.output != "raw_record" and bool(names - ({self._label} if self.multi_hot else set()))

    @property
    def variable(self) -> bool:
        """Whether the images of a batch may differ in size."""
        return self.holds_images and self.output not in ("encoded", "raw_record") and None in self.image.shape

    @property
    def _has_formats(self) -> bool:
        return self.image.options.encoding == "keep"

    @functools.cached_property
    def _skipped(self) -> Any:
        return tf.Variable(0, dtype=tf.int64, trainable=False)

    @functools.cached_property
    def padding(self) -> bytes:
        """A serialized filler: a black image, label 0, empty features."""
        height, width, channels = (side or 1 for side in self.image.shape)
        options = self.image.options
        if options.resize not in VARIABLE_SIZES:
            height, width = options.image_size
        black = np.zeros((height, width, channels), np.uint8)
        name, data = "", b""
        if options.encoding == "raw":
            name, data = RAW, tf.io.serialize_tensor(black).numpy()
        elif self.holds_images:
            name, data = ENCODED, _encode(black, options.encoding)
        values: dict[str, Any] = {name: data, FORMAT: options.encoding.replace("keep", "jpeg").encode()}
        values |= {HEIGHT: height, WIDTH: width, CHANNELS: channels, COLORSPACE: b"RGB" if channels == 3 else b"Gray"}
        if self.dataset.class_names:
            values[self.dataset.names.text] = self.dataset.class_names[0].encode()
        features = {}
        for feature, about in self.dataset.features.items():
            size = int(np.prod(about["shape"])) if all(side >= 0 for side in about["shape"]) else 0
            if about["dtype"] == "bytes":
                kind = {"bytes_list": tf.train.BytesList(value=[values.get(feature, b"")] * size)}
            elif about["dtype"] == "int64":
                kind = {"int64_list": tf.train.Int64List(value=[values.get(feature, 0)] * size)}
            else:
                kind = {"float_list": tf.train.FloatList(value=[0.0] * size)}
            features[feature] = tf.train.Feature(**kind)
        return bytes(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())

    def decode(self, records: Any, places: Any) -> Any:
        """Features by name, with the pixels as `image`; and bool [n] or scalar: which were not replaced."""

        def features() -> tuple[dict[str, Any], Any]:
            return self._decoded(records, places), tf.ones(tf.shape(records), tf.bool)

        if self.max_skipped is not None:
            return _first_that_works(features, lambda: self._replace(records, places))
        spec = (
            self._decoded.get_concrete_function(records, places).structured_outputs,
            tf.TensorSpec(records.shape, tf.bool),
        )
        return _first_that_works(features, lambda: self._refuse(records, places, spec))

    @functools.cached_property
    def _decoded(self) -> Any:
        """`_features` as a function that is traced once for each shape of its arguments."""
        return tf.function(self._features, autograph=False)

    def _features(self, records: Any, places: Any) -> dict[str, Any]:
        features = tf.io.parse_example(records, self._spec)
        if self.labelled:
            label = features[self._label]
            with tf.control_dependencies([self._check(label)]):
                features[self._label] = tf.nest.map_structure(tf.identity, label, expand_composites=True)
            if self.multi_hot:
                features[self._label] = _multi_hot(features[self._label], len(self.dataset.class_names))
        if not self.holds_images:
            return dict(features)
        data = features.pop(RAW if self.image.options.encoding == "raw" else ENCODED)
        if self.output == "encoded":
            return {**features, IMAGE: data}
        encoded = (data, features[FORMAT] if self._has_formats else tf.zeros_like(data), places)

        def decode(data: Any, image_format: Any, place: Any) -> Any:
            return self.image(data, image_format if self._has_formats else None, place)

        if records.shape.rank == 0:
            image = decode(*encoded)
        elif self.sizes:
            images = tf.data.Dataset.from_tensor_slices(encoded).map(decode)
            size = tf.size(records, tf.int64)
            if self.sizes == "padded":
                image = images.padded_batch(size).get_single_element()
                image = tf.ensure_shape(image, [records.shape[0], *self.image.shape])
            else:
                image = images.ragged_batch(size).get_single_element()
        else:
            image = tf.map_fn(lambda one: decode(*one), encoded, fn_output_signature=tf.uint8)
        return {**features, IMAGE: image}

    def _check(self, label: Any) -> Any:
        values = label.flat_values if isinstance(label, tf.RaggedTensor) else label
        known = tf.reduce_all((values >= (-1 if self._unlabelled else 0)) & (values < len(self.dataset.class_names)))
        return tf.raw_ops.Assert(condition=known, data=["a label outside the class list"])

    def _replace(self, records: Any, places: Any) -> Any:
        """The features of all records, with `padding` for what does not decode; and which did decode."""

        def one(record: Any, place: Any) -> Any:
            return _first_that_works(
                lambda: (self._features(record, place), True),
                lambda: self._skip(record, place),
            )

        if records.shape.rank == 0:
            return one(records, places)
        size = tf.size(records, tf.int64)
        # `take` keeps tf.data from fusing `map` and `batch`, which fails on a `map` that prints.
        singles = tf.data.Dataset.from_tensor_slices((records, places)).map(one).take(size)
        if not (self.sizes or self.ragged):
            return singles.batch(size).get_single_element()
        features, sound = singles.ragged_batch(size).get_single_element()
        if self.sizes == "padded":
            features[IMAGE] = tf.ensure_shape(features[IMAGE].to_tensor(), [records.shape[0], *self.image.shape])
        return features, sound

    def _skip(self, record: Any, place: Any) -> tuple[dict[str, Any], Any]:
        count = self._skipped.assign_add(1)
        message = self._message(record, place)
        allowed = tf.raw_ops.Assert(
            condition=count <= self.max_skipped,
            data=[tf.strings.join([message, f"; `max_skipped={self.max_skipped}` allows no more"])],
        )
        say = tf.print("beam_tfr:", message, "- skipped,", count, f"of at most {self.max_skipped}")
        with tf.control_dependencies([allowed, say]):
            return self._features(tf.constant(self.padding), place), False

    def _refuse(self, records: Any, places: Any, spec: Any) -> Any:
        """Raises an error that names the first record that does not decode; an op of the form of `spec`."""
        singles = tf.data.Dataset.from_tensor_slices((tf.reshape(records, [-1]), tf.reshape(places, [-1, 2])))
        message = singles.map(self._message).filter(lambda text: text != "").take(1).get_single_element()
        with tf.control_dependencies([tf.raw_ops.Assert(condition=False, data=[message])]):
            nothing = [
                tf.zeros([1 if size is None else size for size in one.shape], one.dtype)
                for one in tf.nest.flatten(spec, True)
            ]
        return tf.nest.pack_sequence_as(spec, nothing, expand_composites=True)

    def _message(self, record: Any, place: Any) -> Any:
        """What is wrong with a record, with its file and number; empty if nothing is."""
        parts = self.selection.parts
        ends = np.cumsum([part.take for part in parts])
        part = tf.searchsorted(tf.constant(ends), place[1:], side="right")[0]
        file = tf.gather([part.file for part in parts], part)
        first = [part.begin + part.take - end for part, end in zip(parts, ends, strict=True)]
        number = tf.gather(tf.constant(first, tf.int64), part) + place[1]
        where = tf.strings.join([file, ": record ", tf.strings.as_string(number), " (counted from 0) "])

        def label_or_image(features: dict[str, Any]) -> Any:
            if not self.labelled:
                return tf.strings.join([where, "holds an image that does not decode"])
            labels, classes = tf.reshape(features[self._label], [-1]), len(self.dataset.class_names)
            wrong = tf.boolean_mask(labels, (labels < (-1 if self._unlabelled else 0)) | (labels >= classes))
            first = tf.strings.as_string(tf.concat([wrong, [0]], 0)[0])
            outside = tf.strings.join([where, "has label ", first, f", outside the class list (0 to {classes - 1})"])
            undecoded = tf.strings.join([where, "holds an image that does not decode"])
            return tf.where(tf.equal(tf.size(wrong), 0), undecoded, outside)

        # Each stage is a separate dataset: within one function, TensorFlow would prune results that nothing uses.
        one = tf.data.Dataset.from_tensors(record)
        sound = one.map(lambda record: self._decoded(record, place)).map(lambda _: "")
        parsed = one.map(lambda record: tf.io.parse_example(record, self._spec)).map(label_or_image)
        unread = tf.strings.join([where, "cannot be read, or is no tf.train.Example with the manifest's features"])
        found = sound.ignore_errors().concatenate(parsed.ignore_errors()).concatenate(one.map(lambda _: unread))
        return found.take(1).get_single_element()

    def element(self, features: dict[str, Any], real: Any) -> Any:
        """What `load` gives, from decoded features and bool [n] or scalar: which are examples."""
        weight = tf.cast(real, tf.float32)
        if self.labelled and self.one_hot:
            features[self._label] = tf.one_hot(features[self._label], len(self.dataset.class_names))
        if self.holds_images and self.output != "encoded":
            features[IMAGE] = scaled(features[IMAGE], self.dtype)
        if self.output == "dict":
            return {**features, **({WEIGHT: weight} if self.weighted else {})}
        image = features[IMAGE]
        if self.output == "image" or not self.labelled:
            return image
        return (image, features[self._label], weight) if self.weighted else (image, features[self._label])


def scaled(image: Any, dtype: Any) -> Any:
    """Pixels as `dtype`: uint8 unchanged, other types in [0, 1]."""
    return image if dtype == tf.uint8 else tf.cast(tf.cast(image, tf.float32) / 255, dtype)


def _multi_hot(labels: Any, classes: int) -> Any:
    """Labels as float32 [n, classes] from ragged [n, labels], or [classes] from [labels]."""
    if not isinstance(labels, tf.RaggedTensor):
        return _multi_hot(tf.RaggedTensor.from_tensor(labels[None]), classes)[0]
    places = tf.stack([labels.value_rowids(), labels.values], axis=1)
    counts = tf.scatter_nd(places, tf.ones([tf.shape(places)[0]]), tf.stack([labels.nrows(), classes]))
    return tf.ensure_shape(tf.minimum(counts, 1), [labels.shape[0], classes])


def _first_that_works(way: Callable[[], Any], other: Callable[[], Any]) -> Any:
    """What a function returns, or another one if that raises an error.

    Costs a small iterator: microseconds for a batch, half the time of decoding for a single image.
    """
    first, second = (tf.data.Dataset.from_tensors(0).map(lambda _, way=way: way()) for way in (way, other))
    return first.ignore_errors().concatenate(second).take(1).get_single_element()


def _encode(image: np.ndarray, encoding: str) -> bytes:
    import io

    import PIL.Image

    buffer = io.BytesIO()
    pixels = PIL.Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image)
    options = {"lossless": True} if encoding == "webp" else {}
    pixels.save(buffer, {"png": "PNG", "webp": "WEBP"}.get(encoding, "JPEG"), **options)
    return buffer.getvalue()
