"""Defines the elements that readers without TensorFlow return, and the parsed records they read."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from beam_tfr.schema.feature_names import HEIGHT, SIDES, WIDTH, FeatureSpec

ANY_SIZE = (-1, -1)  # the shape of an image
NUMPY_TYPES: dict[str, Any] = {"int64": np.int64, "float": np.float32, "bytes": object}


class Request(NamedTuple):
    """A request to a reader.

    Attributes:
        output: "pair", "dict", "image" or "encoded".
        boxes: the format of boxes; None for elements without boxes.
        one_hot: whether labels become one number for each class.
        image_size: (height, width) of all images in pixels; None if they differ.
    """

    output: str
    boxes: str | None = None
    one_hot: bool = False
    image_size: tuple[int, int] | None = None

    @property
    def has_objects(self) -> bool:
        """Whether elements hold the boxes, with all their labels and values."""
        return bool(self.boxes) and self.output == "dict"


class ElementSpec(NamedTuple):
    """A value of an element.

    The dtype `object` is bytes; the shape [-1] is a list of any length.
    """

    dtype: Any
    shape: Sequence[int]

    @classmethod
    def of_feature(cls, spec: FeatureSpec) -> "ElementSpec":
        """Returns the value that a feature has as stored."""
        return cls(NUMPY_TYPES[spec.dtype], spec.shape)

    def value(self, values: Sequence[Any]) -> Any:
        """Returns the value for one example.

        A scalar is an int, a float or bytes; several numbers are an array; several bytes are a
        list.
        """
        if not self.shape:
            return values[0]
        array = np.array(values, self.dtype).reshape(self.shape)
        return array.tolist() if self.dtype is object else array

    def filler(self) -> Any:
        """Returns the value for a missing example: 0, nothing, or one pixel if sizes vary."""
        if not self.shape:
            return b"" if self.dtype is object else self.dtype(0).item()
        if self.dtype is object:
            return []
        sides = (1, 1) if (*self.shape,) == ANY_SIZE else [max(0, side) for side in self.shape]
        return np.zeros(sides, self.dtype)

    def stack(self, values: list[Any]) -> Any:
        """Stacks the values of a batch into an array.

        Returns a list if the values are bytes or lists of any length.
        """
        if self.dtype is object or -1 in self.shape:
            return values
        return np.array(values, self.dtype)


class StoredExample:
    """A parsed record whose features are checked as they are read.

    Args:
        features: the features of a `tf.train.Example` message, by name.
    """

    def __init__(self, features: Any) -> None:
        self._features = features

    def values(self, name: str, dtype: str, number: int = -1) -> Sequence[Any]:
        """Returns the values of a feature.

        Args:
            name: the feature.
            dtype: "bytes", "int64" or "float".
            number: how many values the feature must have; if negative, it may have any number of
                values.

        Raises:
            ValueError: the feature has fewer or more values.
        """
        values: Sequence[Any] = ()
        if name in self._features:
            values = getattr(self._features[name], f"{dtype}_list").value
        if number >= 0 and len(values) != number:
            raise ValueError(f"feature {name} has {len(values)} values instead of {number}")
        return values

    def value(self, name: str, dtype: str) -> Any:
        """Returns the single value of a feature; raises the errors of `values`."""
        return self.values(name, dtype, 1)[0]

    @property
    def size(self) -> tuple[int, int]:
        """The (width, height) of the image, as stated in the record."""
        return self.value(WIDTH, "int64"), self.value(HEIGHT, "int64")


def count_stored(example: StoredExample) -> int:
    """Counts the boxes in a record."""
    return len(example.values(SIDES[0], "float"))
