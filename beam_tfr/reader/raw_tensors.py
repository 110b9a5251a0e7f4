"""Parses the tensors of `encoding=raw`, as part of TensorFlow's graph."""

from typing import Any

import tensorflow as tf

from beam_tfr.records.tensors import DTYPES

_MOST_SHAPE_BYTES = 40  # of a serialized shape [height, width, channels]


def parse_pixels(data: Any) -> Any:
    """The uint8 tensor [height, width, channels] of a serialized TensorProto, a scalar string.

    It has no more bytes than the proto. `tf.io.parse_tensor` makes gigabytes of zeros of a proto of
    20 bytes, which states a shape and has no content.
    """
    types = {"dtype": tf.int32, "tensor_shape": tf.string, "tensor_content": tf.string}
    dtypes, shapes, contents = _read_fields(data, "TensorProto", types)
    shape = tf.strings.substr(shapes[0], 0, _MOST_SHAPE_BYTES)
    (dims,) = _read_fields(shape, "TensorShapeProto", {"dim": tf.string})
    (sizes,) = _read_fields(dims, "TensorShapeProto.Dim", {"size": tf.int64})
    check = tf.raw_ops.Assert(
        condition=tf.equal(dtypes[0], DTYPES["uint8"]), data=["a tensor is not of uint8"]
    )
    with tf.control_dependencies([check]):
        content = tf.io.decode_raw(contents[0], tf.uint8)
    return tf.reshape(content, tf.ensure_shape(sizes[:, 0], [3]))


def _read_fields(protos: Any, message: str, types: dict[str, Any]) -> list[Any]:
    """The values of some fields of serialized protos: tensors [..., values].

    Args:
        protos: string, of any shape.
        message: the type of the protos.
        types: names of the fields -> dtype of their values.
    """
    names = [*types]
    fields = tf.io.decode_proto(protos, f"tensorflow.{message}", names, [*types.values()])
    values: list[Any] = fields.values
    return values
