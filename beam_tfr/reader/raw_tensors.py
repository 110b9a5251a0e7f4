"""Parses the tensors that `encoding=raw` stores, as part of TensorFlow's graph."""

from typing import Any

import tensorflow as tf

from beam_tfr.records.tensors import DTYPES

_MOST_SHAPE_BYTES = 40  # in a serialized shape [height, width, channels]


def parse_pixels(data: Any) -> Any:
    """Parses a serialized TensorProto, a scalar string: uint8 [height, width, channels].

    The tensor has no more bytes than the proto, whereas `tf.io.parse_tensor` may turn a proto of 20
    bytes, which states a shape but has no content, into gigabytes of zeros.
    """
    types = {"dtype": tf.int32, "tensor_shape": tf.string, "tensor_content": tf.string}
    dtypes, shapes, contents = _read_fields(data, "TensorProto", types)
    shape = tf.strings.substr(shapes[0], 0, _MOST_SHAPE_BYTES)
    (dims,) = _read_fields(shape, "TensorShapeProto", {"dim": tf.string})
    (sizes,) = _read_fields(dims, "TensorShapeProto.Dim", {"size": tf.int64})
    check = tf.raw_ops.Assert(
        condition=tf.equal(dtypes[0], DTYPES["uint8"]), data=["the dtype of a tensor is not uint8"]
    )
    with tf.control_dependencies([check]):
        content = tf.io.decode_raw(contents[0], tf.uint8)
    return tf.reshape(content, tf.ensure_shape(sizes[:, 0], [3]))


def _read_fields(protos: Any, message: str, types: dict[str, Any]) -> list[Any]:
    """Reads some fields of serialized protos: tensors [..., values].

    Args:
        protos: string, of any shape.
        message: the type of the protos.
        types: name of each field to read -> dtype of its values.
    """
    names = [*types]
    fields = tf.io.decode_proto(protos, f"tensorflow.{message}", names, [*types.values()])
    values: list[Any] = fields.values
    return values
