"""Defines class labels: of an image, and of each of its boxes."""

import dataclasses
import functools
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import Any

import numpy as np

from beam_tfr.features.base import FeatureKind, Stored, TensorReading, Values
from beam_tfr.features.boxes import CLASSES_KEY
from beam_tfr.features.elements import ElementSpec, Request, StoredExample, count_stored
from beam_tfr.schema.feature_names import OBJECT_LABEL, OBJECT_TEXT, FeatureSpec
from beam_tfr.schema.untrusted import quote


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassLabel(FeatureKind):
    """The class of an image, file or row; or any number of its classes.

    Its name is the name of its feature.

    Attributes:
        text_name: the feature that holds the names of the classes.
        is_list: whether there may be any number of classes.
        of_boxes: whether these are the classes of the boxes, one for each.
        may_lack: whether a class may be missing; it then has the id -1 and no name.
        class_names: the names of the dataset's classes, in the order of their ids; empty while they
            are not known.
    """

    export_order = -1

    text_name: str
    is_list: bool = False
    of_boxes: bool = False
    may_lack: bool = False
    class_names: tuple[str, ...] = ()

    @functools.cached_property
    def specs(self) -> Mapping[str, FeatureSpec]:
        shape = (-1,) if self.is_list else ()
        return {self.name: FeatureSpec("int64", shape), self.text_name: FeatureSpec("bytes", shape)}

    @property
    def compared(self) -> tuple[str, ...]:
        return ()  # compared by the names of the classes

    @property
    def lowest(self) -> int:
        """The lowest id that a label can have."""
        return -1 if self.may_lack else 0

    def fits_boxes(self, stored: Stored, number: int) -> bool:
        return len(stored[self.name]) == number

    def problems(self, stored: Stored, size: tuple[int, int]) -> Iterator[str]:
        labels = [*stored[self.name]]
        texts = stored[self.text_name]
        ids = [self._ids.get(text) for text in texts]
        is_repeated = len({*ids}) < len(ids)
        if ids != labels or (is_repeated and not self.of_boxes):
            names = [text.decode("utf-8", "replace") for text in texts]
            yield (
                f"its labels are {quote(labels)}, {quote(names)}, which do not match "
                "the manifest, or are repeated"
            )

    @functools.cached_property
    def _ids(self) -> Mapping[bytes, int]:
        """The id of each class, by its name as stored in records."""
        ids = {b"": -1} if self.may_lack and not self.is_list else {}
        for label, name in enumerate(self.class_names):
            ids[name.encode("utf-8", "surrogatepass")] = label
        return ids

    # Readers

    def is_decoded(self, request: Request) -> bool:
        return request.output == "dict" or not request.boxes

    @property
    def replaced(self) -> tuple[str, ...]:
        return (self.name,)

    def elements(self, request: Request) -> dict[str, ElementSpec]:
        if request.one_hot:
            return {self.name: ElementSpec(np.float32, [len(self.class_names)])}
        return {self.name: ElementSpec.of_feature(self.specs[self.name])}

    def decode(
        self, example: StoredExample, size: tuple[int, int], request: Request
    ) -> dict[str, Any]:
        labels = example.values(self.name, "int64", -1 if self.is_list else 1)
        self.check_ids(self.name, labels)
        if request.one_hot:
            hot = np.zeros(len(self.class_names), np.float32)
            hot[[label for label in labels if label >= 0]] = 1
            return {self.name: hot}
        return {self.name: self.elements(request)[self.name].value(labels)}

    def check_ids(self, feature: str, labels: Sequence[int]) -> None:
        """Checks that the labels in a feature are ids of classes.

        Raises:
            ValueError: a label is not the id of a class.
        """
        number = len(self.class_names)
        for label in labels:
            if not self.lowest <= label < number:
                raise ValueError(f"{feature} is {label}, but there are {number} classes")

    def check_tensor(self, labels: Any) -> Any:
        """Returns the labels as a tensor that fails if one of them is not the id of a class."""
        import tensorflow as tf

        flat = getattr(labels, "flat_values", labels)
        is_outside = (flat < self.lowest) | (flat >= len(self.class_names))
        is_sound = ~tf.reduce_any(is_outside)
        check = tf.raw_ops.Assert(condition=is_sound, data=["a label outside the class list"])
        with tf.control_dependencies([check]):
            return tf.nest.map_structure(tf.identity, labels, expand_composites=True)

    def decode_tensors(self, tensors: Mapping[str, Any], reading: TensorReading) -> dict[str, Any]:
        import tensorflow as tf

        labels = self.check_tensor(tensors[self.name])
        if not reading.request.one_hot:
            return {self.name: labels}
        number = len(self.class_names)
        is_label = tf.one_hot(labels, number)  # -1 stands for no class
        if not self.is_list:
            return {self.name: is_label}
        counts = tf.reduce_sum(is_label, axis=labels.shape.rank - 1)
        shape = [*labels.shape[:-1], number]
        return {self.name: tf.ensure_shape(tf.minimum(counts, 1), shape)}

    # Exports

    def export(self, stored: Stored) -> dict[str, Any]:
        names = [text.decode() or None for text in stored[self.text_name]]
        labels = stored[self.name]
        if self.is_list:
            return {"class": names, "label": labels}
        return {"class": names[0], "label": labels[0]}

    def arrow_types(self) -> dict[str, Any]:
        import pyarrow as pa

        name = pa.string()
        label = pa.int64()
        if self.is_list:
            return {"class": pa.list_(name), "label": pa.list_(label)}
        return {"class": name, "label": label}

    def hub_types(self) -> dict[str, Any]:
        label: dict[str, Any] = {"_type": "ClassLabel", "names": self.class_names}
        if self.is_list:
            label = {"_type": "List", "feature": label}
        return {"label": label}


@dataclasses.dataclass(frozen=True, kw_only=True)
class BoxLabels(FeatureKind):
    """The class of each box, under the feature names of TensorFlow's object detection API.

    Attributes:
        label: the classes.
    """

    label: ClassLabel
    follows_pixels = True
    export_order = 0

    @property
    def per_box(self) -> bool:
        return True

    @functools.cached_property
    def specs(self) -> Mapping[str, FeatureSpec]:
        labels = FeatureSpec("int64", (-1,))
        return {OBJECT_LABEL: labels, OBJECT_TEXT: FeatureSpec("bytes", (-1,))}

    @property
    def compared(self) -> tuple[str, ...]:
        return ()

    def is_decoded(self, request: Request) -> bool:
        return bool(request.boxes)

    @property
    def replaced(self) -> tuple[str, ...]:
        return (OBJECT_LABEL,)

    def elements(self, request: Request) -> dict[str, ElementSpec]:
        return {CLASSES_KEY: ElementSpec(np.int64, [-1])}

    def decode(
        self, example: StoredExample, size: tuple[int, int], request: Request
    ) -> dict[str, Any]:
        classes = example.values(OBJECT_LABEL, "int64", count_stored(example))
        self.label.check_ids(OBJECT_LABEL, classes)
        return {CLASSES_KEY: np.array(classes, np.int64)}

    def collect_tensors(self, features: MutableMapping[str, Any]) -> dict[str, Any]:
        tensors = super().collect_tensors(features)
        return {CLASSES_KEY: self.label.check_tensor(tensors.pop(OBJECT_LABEL)), **tensors}

    def annotations(
        self, stored: Stored, about: Mapping[str, Any], size: tuple[int, int]
    ) -> Sequence[dict[str, Any]]:
        return [{"category_id": label} for label in stored[OBJECT_LABEL]]


def encode_box_labels(labels: Sequence[str], label_ids: Sequence[int]) -> Values:
    """Returns the features that hold the class of each box."""
    return {
        OBJECT_LABEL: ("int64", label_ids),
        OBJECT_TEXT: ("bytes", [label.encode() for label in labels]),
    }
