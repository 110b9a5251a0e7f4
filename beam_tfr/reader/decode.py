"""Decodes records into elements of `load`, and reports records that cannot be decoded."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from beam_tfr.dataset.manifest import REPAIR_OR_COPY, Manifest
from beam_tfr.features.base import FeatureKind
from beam_tfr.features.box_formats import is_relative
from beam_tfr.features.box_masks import MOST_WHOLE_PIXELS
from beam_tfr.features.boxes import BOXES_KEY, CLASSES_KEY
from beam_tfr.features.elements import Request
from beam_tfr.features.objects import check_lengths, crop_objects, pad_objects
from beam_tfr.order import FILLER
from beam_tfr.reader.images import ImageDecoder
from beam_tfr.reader.streams import PartTensors, first_that_works
from beam_tfr.records.examples import serialize
from beam_tfr.schema.encodings import IMAGE_ENCODINGS
from beam_tfr.schema.feature_names import ENCODED, FORMAT, HEIGHT, RAW, WIDTH, FeatureSpec

IMAGE = "image"
WEIGHT = "weight"  # the key in a dict, in addition to the features of the manifest
_UNDECODED = (
    " (counted from 0) cannot be decoded: it does not match the manifest, or has a damaged image "
    "or a label outside the class list; `beam-tfr verify` names the cause; "
    f"{REPAIR_OR_COPY}. Another possible cause is that the masks of its boxes have more than "
    f"{MOST_WHOLE_PIXELS:,} pixels in total: in that case, specify `image_size=`, or read the "
    "dataset with `Records`"
)
_DTYPES = {"bytes": tf.string, "int64": tf.int64, "float": tf.float32}
_ZEROS: dict[str, Any] = {"bytes": b"", "int64": 0, "float": 0}
_WHOLE = [[0.0, 0.0, 1.0, 1.0]]  # the view of a whole image


def feature_spec_of(specs: Mapping[str, FeatureSpec]) -> dict[str, Any]:
    """Returns features for `tf.io.parse_example`: dense if the shape is known, otherwise ragged."""
    return {name: _tensor_spec(spec) for name, spec in specs.items()}


def _tensor_spec(spec: FeatureSpec) -> Any:
    dtype = _DTYPES[spec.dtype]
    if -1 in spec.shape:
        return tf.io.RaggedFeature(dtype, row_splits_dtype=tf.int64)
    return tf.io.FixedLenFeature(list(spec.shape), dtype)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Decoder:
    """A decoder that turns records and their places into elements.

    Records are string [n] or scalar; places are int64 [n, 2] or [2].

    Attributes:
        dataset: the dataset.
        parts: where the records of the dataset are stored.
        image: decodes one image.
        output: "pair", "dict", "image", "encoded"; "raw_record" decodes nothing.
        sizes: how to batch images of different sizes: "padded" or "ragged"; None if they cannot be
            batched.
        one_hot: whether labels become float32 [n, classes].
        weighted: whether elements have a weight, which is 0 for fillers.
        boxes: format of the boxes; None if elements have no boxes.
        max_boxes: number of boxes for each image; None for any number.
        target: the column to return instead of the labels; None for the labels.
    """

    dataset: Manifest
    parts: PartTensors
    image: ImageDecoder
    output: str
    sizes: str | None
    one_hot: bool
    weighted: bool
    boxes: str | None = None
    max_boxes: int | None = None
    target: str | None = None

    @functools.cached_property
    def request(self) -> Request:
        """The contents of the elements, as a request."""
        return Request(self.output, self.boxes, self.one_hot)

    @functools.cached_property
    def labelled(self) -> bool:
        """Whether elements have labels, or boxes or a column instead."""
        return bool(self.boxes or self.target) or self.dataset.feature_kinds.label is not None

    @property
    def holds_images(self) -> bool:
        """Whether the records hold images, rather than files, arrays or table rows."""
        return self.image.options.encoding in IMAGE_ENCODINGS

    @functools.cached_property
    def _kinds(self) -> list[FeatureKind]:
        """The features that are not returned as stored."""
        kinds = self.dataset.feature_kinds
        decoded = kinds.decoded(self.request)
        return [kind for kind in decoded if not self.target or kind is not kinds.label]

    @functools.cached_property
    def _spec(self) -> dict[str, Any]:
        spec = feature_spec_of(self.dataset.feature_specs)
        if self.output == "dict":
            return spec
        parsed = {RAW, ENCODED, FORMAT}
        if self.boxes:
            parsed |= {HEIGHT, WIDTH}
        if self.target:
            parsed.add(self.target)
        for kind in self._kinds:
            parsed.update(kind.replaced)
        return {name: feature for name, feature in spec.items() if name in parsed}

    @property
    def ragged(self) -> bool:
        """Whether an element holds lists of any length."""
        if self.output == "raw_record":
            return False
        dense = set[str]()
        if self.one_hot:
            dense.add(self.dataset.names.label)
        if self.max_boxes:
            dense |= self.dataset.feature_kinds.box_features
        shown = self._spec.keys() - dense
        return any(isinstance(self._spec[name], tf.io.RaggedFeature) for name in shown)

    @property
    def variable(self) -> bool:
        """Whether the images in a batch may differ in size."""
        is_decoded = self.holds_images and self.output not in ("encoded", "raw_record")
        return is_decoded and None in self.image.shape

    @functools.cached_property
    def padding(self) -> bytes:
        """A serialized filler: a black image, or features that are 0 or empty."""
        values = self._black_image() if self.holds_images else {}
        filler = {}
        for name, (dtype, shape) in self.dataset.feature_specs.items():
            value = values.get(name, _ZEROS[dtype])
            is_list = bool(shape)
            filler[name] = (dtype, [] if is_list else [value])
        return serialize(filler)

    def _black_image(self) -> dict[str, bytes]:
        """Makes the features of a black image."""
        from beam_tfr.images.encode import encode

        options = self.image.options
        size = options.stored_size or self.image.image_size or (1, 1)
        form = options.encoding.replace("keep", "jpeg")
        pixels = np.zeros((*size, options.channels), np.uint8)
        payload = RAW if form == "raw" else ENCODED
        features = {FORMAT: form.encode(), payload: encode(pixels, form)}
        for kind in self.dataset.feature_kinds.kinds:
            features |= kind.filler(size)
        return features

    @functools.cached_property
    def _decoded(self) -> Any:
        """The function `_features`, traced once for each shape of its arguments."""
        return tf.function(self._features, autograph=False)

    def _features(self, records: Any, places: Any) -> dict[str, Any]:
        if self.boxes and records.shape.rank == 0:  # boxes need a batch
            of_one = self._features(records[None], places[None])
            return {name: values[0] for name, values in of_one.items()}
        features = tf.io.parse_example(records, self._spec)
        if self.holds_images:
            self._decode_images(features, places)
        batch = Batch(self, places, features)
        objects = dict[str, Any]()
        tensors = dict[str, Any]()  # all other features
        for kind in self._kinds:
            collected = objects if kind.per_box else tensors
            collected |= kind.collect_tensors(features)
        if objects:
            tensors |= self._show_objects(objects, batch)
        for kind in self._kinds:
            tensors |= kind.decode_tensors(tensors, batch)
        if self.max_boxes:
            shown = {key: tensors[key] for key in objects}
            tensors |= pad_objects(shown, self.max_boxes)
        return {**features, **tensors}

    def _decode_images(self, features: dict[str, Any], places: Any) -> None:
        """Decodes the images in a batch, which become the feature `IMAGE`."""
        payload = RAW if RAW in self._spec else ENCODED
        data = features.pop(payload)
        if self.output == "encoded":
            features[IMAGE] = data
            return
        forms = features.get(FORMAT, tf.zeros_like(data))
        inputs = (data, forms, places)
        features[IMAGE] = self.decode_each(self.image, inputs, self.image.shape, tf.uint8)

    def _show_objects(self, objects: Mapping[str, Any], batch: "Batch") -> dict[str, Any]:
        """Returns the objects that are visible in the images of a batch."""
        checked = check_lengths(objects)
        return crop_objects(checked, batch.views) if self.image.crop else checked

    def decode_each(
        self,
        decode: Callable[..., Any],
        inputs: tuple[Any, ...],
        shape: Sequence[int | None],
        dtype: Any,
    ) -> Any:
        """Calls a function for each example of a batch, and batches the results.

        For a single example that is not in a batch, calls the function once.

        Args:
            decode: the function.
            inputs: arguments of the function, tensors with a row for each example of the batch.
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
        """Fails with a message about the first record that cannot be decoded."""
        examples = (tf.reshape(records, [-1]), tf.reshape(places, [-1, 2]))
        singles = tf.data.Dataset.from_tensor_slices(examples)
        nothing = tf.data.Dataset.from_tensors("")
        problems = singles.flat_map(self._find_problems).concatenate(nothing)
        problem = problems.take(1).get_single_element()
        is_sound = tf.equal(problem, "")
        check = tf.raw_ops.Assert(condition=is_sound, data=[problem])
        with tf.control_dependencies([check]):
            return self._decoded(tf.identity(records), places)

    def _find_problems(self, record: Any, place: Any) -> Any:
        """Returns a dataset with a message if a record cannot be decoded, or an empty dataset."""

        def describe(_: Any, place: Any) -> Any:
            file, number = self.parts.locate(place[1])
            return tf.strings.join([file, ": record ", number, _UNDECODED])

        example = tf.data.Dataset.from_tensors((record, place))
        decoded = example.map(self._decoded).ignore_errors()
        outcomes = decoded.map(lambda _: tf.constant("")).concatenate(example.map(describe))
        return outcomes.take(1).filter(lambda message: message != "")

    def element(self, records: Any, places: Any) -> Any:
        """Returns an element of `load`; the place of a filler is `FILLER`."""
        if self.output == "raw_record":
            return records
        features = first_that_works(
            lambda: self._decoded(records, places), lambda: self._refuse(records, places)
        )
        is_example = places[..., 1] != FILLER
        weight = tf.cast(is_example, tf.float32)
        if self.output == "dict":
            weights = {WEIGHT: weight} if self.weighted else {}
            return {**features, **weights}
        image = features[IMAGE]
        if self.output == "image" or not self.labelled:
            return image
        target = self._target(features)
        return (image, target, weight) if self.weighted else (image, target)

    def _target(self, features: Mapping[str, Any]) -> Any:
        """Returns the target of training: boxes, a column, or labels."""
        if self.boxes:
            return {key: features[key] for key in (BOXES_KEY, CLASSES_KEY)}
        return features[self.target or self.dataset.names.label]


class Batch:
    """A batch of images that is being decoded: a `features.base.TensorReading`.

    Args:
        decoder: decodes the batch.
        places: int64 [images, 2], or [2] for a single image.
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
        sides = [self._features[WIDTH], self._features[HEIGHT]]
        sizes = tf.stack(sides, axis=1)
        return tf.cast(sizes, tf.int32)

    @property
    def _shown_size(self) -> Any:
        """The (height, width) of the returned images, int32 [2]."""
        return tf.shape(self._features[IMAGE])[1:3]

    @functools.cached_property
    def views(self) -> Any:
        """The part of each stored image that is returned."""
        image = self._decoder.image
        if not image.crop:
            number = tf.shape(self._sizes)[0]
            return tf.tile(_WHOLE, [number, 1])
        inputs = (self._sizes, self._places)
        return tf.map_fn(
            lambda example: image.view(*example), inputs, fn_output_signature=tf.float32
        )

    @functools.cached_property
    def units(self) -> Any:
        """The width and height of an image in the unit of the requested boxes."""
        sizes = self._sizes
        if self._decoder.image.image_size:
            height, width = self._decoder.image.image_size
            sizes = tf.ones_like(sizes) * (width, height)
        if is_relative(self.request.boxes or ""):
            is_padded = self._decoder.sizes == "padded"
            whole = self._shown_size[::-1] if is_padded else sizes
            sizes = sizes / whole
        return tf.cast(sizes, tf.float32)

    def decode_pixels(self, pngs: Any) -> Any:
        """Decodes the pixels of the second image that is stored with each image, such as a mask."""
        image = self._decoder.image
        inputs = (image.check_header(pngs, "png"), self._places)
        return self._decoder.decode_each(image.mask, inputs, image.shape[:2], tf.int32)

    def decode_box_pixels(self, pngs: Any) -> Any:
        """Decodes the pixels of the image that is stored for each box.

        Fails if the masks of an image have more than `MOST_WHOLE_PIXELS` pixels.
        """
        with tf.control_dependencies([self._check_box_pixels(pngs)]):
            checked = tf.nest.map_structure(tf.identity, pngs, expand_composites=True)
        return self._decode_checked(checked)

    def _check_box_pixels(self, pngs: Any) -> Any:
        """Checks the number of pixels in each image's masks, at the size that is returned."""
        sizes = self._sizes
        if self._decoder.image.image_size:
            sizes = tf.ones_like(sizes) * self._decoder.image.image_size
        pixels = tf.reduce_prod(tf.cast(sizes, tf.int64), axis=1)
        most = tf.reduce_max(pngs.row_lengths() * pixels)
        return tf.raw_ops.Assert(
            condition=most <= MOST_WHOLE_PIXELS, data=["the masks have too many pixels"]
        )

    def _decode_checked(self, pngs: Any) -> Any:
        number = tf.size(pngs.flat_values)
        pixels = tf.cond(
            tf.equal(number, 0), self._no_box_pixels, lambda: self._decode_box_pixels(pngs)
        )
        if self._decoder.sizes != "ragged":
            height, width = self._decoder.image.shape[:2]
            pixels = tf.ensure_shape(pixels, [None, height, width])
        return pngs.with_values(pixels)

    def _no_box_pixels(self) -> Any:
        """Returns the masks of an image without boxes, since no decoder can stack an empty list."""
        if self._decoder.sizes == "ragged":
            nothing = tf.zeros([0, 0, 0], tf.uint8)
            return tf.RaggedTensor.from_tensor(nothing, ragged_rank=2)
        height, width = tf.unstack(self._shown_size)
        return tf.zeros([0, height, width], tf.uint8)

    def _decode_box_pixels(self, pngs: Any) -> Any:
        places = tf.gather(self._places, pngs.value_rowids())
        image = self._decoder.image
        inputs = (image.check_header(pngs.flat_values, "png"), places)
        pixels = self._decoder.decode_each(image.box_mask, inputs, image.shape[:2], tf.uint8)
        if self._decoder.sizes != "padded":
            return pixels
        missing = self._shown_size - tf.shape(pixels)[1:]
        rows, columns = tf.unstack(missing)
        return tf.pad(pixels, [[0, 0], [0, rows], [0, columns]])
