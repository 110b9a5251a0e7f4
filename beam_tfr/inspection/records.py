"""Reads records from TFRecord files, and describes their values as text."""

import collections
import contextlib
import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beam_tfr.dataset.conditions import features_named, value_text
from beam_tfr.dataset.lookup import RecordLookup
from beam_tfr.images import formats
from beam_tfr.images.source import Source
from beam_tfr.records.examples import TooManyValuesError, parse_example
from beam_tfr.records.tensors import STRING, parse_tensor
from beam_tfr.records.tfrecords import RecordError
from beam_tfr.schema.errors import RejectError
from beam_tfr.schema.feature_names import ARRAY_RAW, RAW

Values = dict[str, list[Any]]  # feature -> values: bytes, int or float
MAX_VALUES = 8  # values shown from a list
MAX_TEXT = 80  # characters shown from a string
_TENSORS = (RAW, ARRAY_RAW)


@dataclasses.dataclass(frozen=True)
class InspectedRecord:
    """A record in a file.

    Attributes:
        number: number of the record, from 0, counted across all files.
        file: path of the file.
        offset: where the record begins in the uncompressed file, in bytes.
        data: the stored bytes of the record.
    """

    number: int
    file: str
    offset: int
    data: bytes = dataclasses.field(repr=False)

    @functools.cached_property
    def values(self) -> Values:
        """Feature -> its values, bytes, int or float; None if the record is not a tf.train.Example.

        Raises:
            RecordError: the record has too many values.
        """
        try:
            return parse_example(self.data)
        except TooManyValuesError as error:
            raise RecordError(self.file, self.number, self.offset, str(error)) from None
        except ValueError:
            return {}


def read_records(lookup: RecordLookup, numbers: Sequence[int]) -> Iterator[InspectedRecord]:
    """Yields the records with the given numbers.

    Raises:
        DataError: a record is damaged, or the dataset was replaced.
    """
    for number, data in zip(numbers, lookup.read_records(numbers), strict=True):
        part, _ = lookup.locate(number)
        yield InspectedRecord(number, part.file, 0, data)


def describe_record(record: InspectedRecord) -> Iterator[tuple[str, str]]:
    """Yields the features of a record, each with its values in a printable line."""
    if not record.values:
        yield "", f"not a tf.train.Example: {describe_values('', [record.data])}"
    for name, values in sorted(record.values.items()):
        yield name, describe_values(name, values)


def describe_values(name: str, values: Sequence[Any]) -> str:
    """Describes the values of a feature in one printable line.

    Examples are "png image, height 20, width 30, 99 bytes", "'hat'", and "1, 2".
    """
    if not values:
        return "no values"
    text = ", ".join(_describe_value(name, value) for value in values[:MAX_VALUES])
    if len(values) > MAX_VALUES:
        text += f", … {len(values):,} values"
    return text


def _describe_value(name: str, value: Any) -> str:
    if isinstance(value, bytes):
        return _describe_bytes(name, value)
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value)


def _describe_bytes(name: str, data: bytes) -> str:
    size = f"{len(data):,} bytes"
    array = tensor_of(data) if name in _TENSORS else None
    if array is not None:
        return f"{array.dtype.name} tensor {[*array.shape]}, {size}"
    image = open_image(data)
    if image:
        return f"{image.format} image, height {image.height}, width {image.width}, {size}"
    try:
        text = data.decode()
    except UnicodeDecodeError:
        more = " …" if len(data) > 8 else ""
        return f"{size}: {data[:8].hex(' ')}{more}"
    if len(text) > MAX_TEXT:
        return f"{text[:MAX_TEXT]!r} … {size}"
    return repr(text)


def open_image(data: bytes) -> Source | None:
    """Opens an image and reads its header; returns None if the data is not an image."""
    with contextlib.suppress(RejectError):
        return formats.FORMATS[formats.identify(data)].open(data)
    return None


def tensor_of(data: bytes) -> NDArray[Any] | None:
    """Returns the array of a serialized tensor of numbers; None for anything else."""
    parsed = parse_tensor(data)
    # NumPy 1 allows no more dimensions
    if parsed is None or parsed[0] == STRING or len(parsed[1]) > 32:
        return None
    dtype, shape, content = parsed
    array: NDArray[Any] = np.frombuffer(content, dtype).reshape(shape)  # type: ignore[arg-type]
    return array


def label_of(values: Values) -> str:
    """Returns the class of a record as text, or its labels as numbers, or "" if it has neither.

    Several classes, such as those of boxes, are each named once, with a number: "7 RBC, WBC".
    """
    names = sorted(features_named(values, "label"), key=lambda name: not name.endswith("text"))
    labels = next((values[name] for name in names if values[name]), [])
    counts = collections.Counter(map(value_text, labels))
    return ", ".join(f"{number} {text}" if number > 1 else text for text, number in counts.items())
