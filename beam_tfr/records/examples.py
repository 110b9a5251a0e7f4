"""Serializes images, arrays, files and rows as tf.train.Example messages, and parses these."""

import contextlib
import functools
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

import google_crc32c
from google.protobuf.message import DecodeError

from beam_tfr.features.base import Values
from beam_tfr.records.contents import made_cells
from beam_tfr.records.tensors import message_class
from beam_tfr.records.varints import read_varint
from beam_tfr.schema import feature_names
from beam_tfr.schema.dataset import sha256_hex
from beam_tfr.schema.encodings import RecordNames, names_of
from beam_tfr.schema.feature_names import MAX_FEATURES
from beam_tfr.schema.items import Array, Image, ImageRef, MadeValues, Record

# Parsing takes up to 80 MB for `MAX_FEATURES`, and 500 MB for this many values in a record.
MAX_VALUES = 10_000_000
_MAX_OTHERS = 1_000_000  # fields without a value; each feature has four, and reading one takes 2 µs
_FEW_BYTES = 1 << 20  # shorter records cannot hold too many
_VARINT = 0
_DELIMITED = 2  # wire types of protobuf
_SIZES = {1: 8, 5: 4}  # sizes in bytes of the other types
_CONTINUED = bytes(range(128, 256))  # all bytes of a varint except the last
# The fields that count in an Example, in its Features, in an entry of their map, in its Feature,
# and in its list of values.
_PATH = ((1,), (1,), (2,), (1, 2, 3), (1,))
_FEATURE_DEPTH = 1
_VALUE_DEPTH = 4
_BYTES_LIST = 1
_FLOAT_LIST = 2

# A SequenceExample has its features in field 1, and lists of features in field 2; in a message with
# a number in field 1, such as a tensor, field 2 is something else.
_FEATURE_LISTS = 2
_BEGINS_OF_SEQUENCES = (b"\x0a", b"\x12")

example_class = functools.partial(message_class, "Example")


def build_record(
    encoding: str, value: Any, ref: ImageRef, columns: Mapping[str, tuple[str, Sequence[Any]]] = {}
) -> Record:
    """Builds the record of an image, array, file or row.

    Args:
        encoding: option of `ConvertOptions`.
        value: what earlier steps made from the source: an `Image`, an `Array`, bytes, or None.
        ref: the reference to the source, with the features that a table adds to the record.
        columns: the features to add, if they differ from the columns of the reference.
    """
    image = None
    made = dict[str, Any]()  # cells of the contents
    values: Values = {}
    sha256 = ""
    if encoding == "row":
        pass  # the reference has all of its columns
    elif encoding == "bytes":
        values = {feature_names.FILE_BYTES: ("bytes", [value])}
        sha256 = sha256_hex(value)
        made = {"source_bytes": len(value), "source_crc32c": google_crc32c.value(value)}
    elif encoding == "array":
        values = _array_values(value)
        sha256 = value.source_sha256
        made = made_cells(value)
    else:
        image = value
        values = _image_values(value)
        sha256 = value.source_sha256
        made = made_cells(value)
    _add_names(values, ref, names_of(encoding), sha256)
    values = {**columns, **values}
    made_values = MadeValues({name: members for name, (_, members) in values.items()})
    serialized = serialize(values, ref.columns or b"")
    return Record(serialized, image, made_values, made, label_ids=ref.label_ids)


def _array_values(array: Array) -> Values:
    return {
        feature_names.ARRAY_RAW: ("bytes", [array.tensor]),
        feature_names.ARRAY_SHAPE: ("int64", array.shape),
        feature_names.ARRAY_DTYPE: ("bytes", [array.dtype.encode()]),
    }


def _image_values(image: Image) -> Values:
    payload = feature_names.RAW if image.format == "raw" else feature_names.ENCODED
    values: Values = {
        payload: ("bytes", [image.encoded]),
        feature_names.FORMAT: ("bytes", [image.format.encode()]),
        feature_names.HEIGHT: ("int64", [image.height]),
        feature_names.WIDTH: ("int64", [image.width]),
        feature_names.CHANNELS: ("int64", [image.channels]),
        feature_names.COLORSPACE: ("bytes", [image.colorspace.encode()]),
        feature_names.SOURCE_HEIGHT: ("int64", [image.source_height]),
        feature_names.SOURCE_WIDTH: ("int64", [image.source_width]),
        feature_names.SOURCE_FORMAT: ("bytes", [image.source_format.encode()]),
    }
    for feature, png in image.companions.items():
        values[feature] = ("bytes", [png])
    if image.damaged is not None:
        values[feature_names.SOURCE_DAMAGED] = ("int64", [int(image.damaged)])
    return values


def _add_names(values: Values, ref: ImageRef, names: RecordNames, sha256: str) -> None:
    """Adds the features that identify a record and its source, and its labels."""
    values[names.key] = ("bytes", [ref.key.encode("utf-8", "surrogateescape")])
    if names.sha256:
        values[names.sha256] = ("bytes", [sha256.encode()])
    if ref.label_ids is not None:
        values[names.label] = ("int64", ref.label_ids)
        values[names.text] = ("bytes", [label.encode() for label in ref.labels])


def serialize(values: Mapping[str, tuple[str, Sequence[Any]]], columns: bytes = b"") -> bytes:
    """Serializes a tf.train.Example; the bytes do not depend on the order of the features.

    Args:
        values: feature name -> (dtype, values); an empty list keeps its dtype.
        columns: a serialized Example with features to add.
    """
    example = example_class().FromString(columns)
    feature = example.features.feature
    for name, (dtype, members) in values.items():
        _set(getattr(feature[name], f"{dtype}_list"), members)
    return example.SerializeToString(deterministic=True)  # type: ignore[no-any-return]


def with_names(
    serialized: bytes, ref: ImageRef, names: RecordNames, features: Container[str]
) -> bytes:
    """Returns a record with the labels and columns of a reference; everything else stays.

    Args:
        serialized: the record.
        ref: a reference to the same source; if it has no `columns`, the record keeps its own.
        names: names of the label features.
        features: names of the features that are neither labels nor columns.
    """
    example = example_class().FromString(serialized)
    feature = example.features.feature
    for name in [*feature]:
        if name in (names.label, names.text) or (ref.columns is not None and name not in features):
            del feature[name]
    example.MergeFromString(ref.columns or b"")
    if ref.label_ids is not None:
        _set(feature[names.label].int64_list, ref.label_ids)
        _set(feature[names.text].bytes_list, [label.encode() for label in ref.labels])
    return example.SerializeToString(deterministic=True)  # type: ignore[no-any-return]


def with_renamed_classes(
    serialized: bytes, names: RecordNames, renames: Mapping[str, str]
) -> bytes:
    """Returns a record with renamed classes; the ids of the classes stay.

    Args:
        serialized: the record.
        names: names of the label features.
        renames: class -> its new name.
    """
    example = example_class().FromString(serialized)
    feature = example.features.feature
    for name in (names.text, feature_names.OBJECT_TEXT):
        if name in feature:
            texts = feature[name].bytes_list.value
            labels = [text.decode() for text in texts]
            texts[:] = [renames.get(label, label).encode() for label in labels]
    return example.SerializeToString(deterministic=True)  # type: ignore[no-any-return]


def with_label_ids(serialized: bytes, ref: ImageRef, names: RecordNames) -> bytes:
    """Returns a record whose boxes have the class ids of a reference.

    The reference may have labels for more boxes.
    """
    example = example_class().FromString(serialized)
    if ref.label_ids:
        feature = example.features.feature
        id_of = dict(zip(ref.labels, ref.label_ids, strict=True))
        label_ids = [id_of[text.decode()] for text in feature[names.text].bytes_list.value]
        for name in (names.label, feature_names.OBJECT_LABEL):
            feature[name].int64_list.value[:] = label_ids
    return example.SerializeToString(deterministic=True)  # type: ignore[no-any-return]


def _set(target: Any, values: Iterable[Any]) -> None:
    target.SetInParent()
    target.value[:] = values


class TooManyValuesError(ValueError):
    """A record with too many features or values to parse.

    Parsing a record needs up to 100 times its size in memory.
    """


def read_message(serialized: bytes) -> Any:
    """Parses a tf.train.Example.

    Raises:
        TooManyValuesError: the bytes exceed `MAX_FEATURES`, `MAX_VALUES` or `_MAX_OTHERS`.
        ValueError: the bytes are not a tf.train.Example.
    """
    if len(serialized) > _FEW_BYTES:
        _Counter(serialized).count(0, 0, 0, len(serialized))
    try:
        return example_class().FromString(serialized)
    except DecodeError as error:
        raise ValueError(f"not a tf.train.Example: {error}") from error


def parse_example(serialized: bytes) -> dict[str, list[Any]]:
    """Parses any serialized tf.train.Example: feature name -> values (bytes, float or int).

    Raises:
        ValueError: see `read_message`.
    """
    values = dict[str, list[Any]]()
    for name, feature in read_message(serialized).features.feature.items():
        kind = feature.WhichOneof("kind")
        values[name] = list(getattr(feature, kind).value) if kind else []
    return values


def check_example(serialized: bytes, features: Mapping[str, Any]) -> None:
    """Checks that a record that was parsed as a tf.train.Example really is one.

    Other messages can also be parsed as an Example, with no features or only some of their
    features.

    Raises:
        ValueError: the record is another message.
    """
    numbers = {number for number, _, _ in _fields(serialized, 0, len(serialized))}
    if _FEATURE_LISTS in numbers and serialized[:1] in _BEGINS_OF_SEQUENCES:
        raise ValueError("is a tf.train.SequenceExample, but only tf.train.Example can be read")
    if numbers - {1} and not features:
        raise ValueError("is not a tf.train.Example: it has no features")


def parse_values(serialized: bytes) -> Values:
    """Parses the features that `serialize` has written: name -> (dtype, values)."""
    values: Values = {}
    for name, feature in example_class().FromString(serialized).features.feature.items():
        kind = feature.WhichOneof("kind")
        values[name] = (kind.removesuffix("_list"), list(getattr(feature, kind).value))
    return values


class _Counter:
    """Counts the features and values of a record, without parsing it.

    Args:
        data: the record.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._features = 0
        self._values = 0
        self._others = 0  # fields that hold no value, of which a message may have any number

    def count(self, depth: int, kind: int, start: int, end: int) -> None:
        """Counts the features and values in a message.

        Args:
            depth: depth of the message in `_PATH`.
            kind: number of the field that holds the message.
            start, end: where the message begins and ends.

        Raises:
            TooManyValuesError: there are too many to parse.
        """
        for number, begin, stop in _fields(self._data, start, end):
            is_counted = number in _PATH[depth]
            num_values = 0
            if is_counted and depth == _VALUE_DEPTH:
                num_values = self._count_values(kind, begin, stop)
            self._values += num_values
            self._others += not num_values
            self._features += is_counted and depth == _FEATURE_DEPTH
            self._check()
            # A value takes at least a byte, so a short record cannot hold too many.
            has_more = depth < _FEATURE_DEPTH or len(self._data) > MAX_VALUES
            if is_counted and depth < _VALUE_DEPTH and has_more:
                self.count(depth + 1, number, begin, stop)

    def _count_values(self, kind: int, begin: int, stop: int) -> int:
        """Counts the values in a field of a list of values; numbers may be packed."""
        if kind == _BYTES_LIST:
            return 1
        if kind == _FLOAT_LIST:
            return -(-(stop - begin) // 4)
        return len(self._data[begin:stop].translate(None, _CONTINUED))

    def _check(self) -> None:
        if self._features > MAX_FEATURES:
            limit = f"{MAX_FEATURES:,} features"
        elif self._values > MAX_VALUES:
            limit = f"{MAX_VALUES:,} values"
        elif self._others > _MAX_OTHERS:
            limit = f"{_MAX_OTHERS:,} fields without a value"
        else:
            return
        raise TooManyValuesError(f"it has more than {limit}, so it was not parsed")


def _fields(data: bytes, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yields the number, the start and the end of each field in a message.

    Ends at the first field that no parser accepts.

    Args:
        data: bytes that contain the message.
        start, end: where the message begins and ends.
    """
    position = start
    with contextlib.suppress(IndexError, ValueError):
        while position < end:
            tag, begin = read_varint(data, position)
            if tag & 7 in (_VARINT, _DELIMITED):
                number, position = read_varint(data, begin)
            else:
                number = _SIZES.get(tag & 7, 0)
                position = begin
            if tag & 7 != _VARINT:
                begin = position
                position += number
            if position > end:
                return
            yield tag >> 3, begin, position
