"""BuildExamples writes with protobuf alone what TensorFlow writes.

Neither gets into the other's way.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import os
import subprocess
import sys
import tracemalloc
import weakref
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.internal.encoder import _VarintBytes
from hypothesis import given
from hypothesis import strategies as st

from beam_tfr.images import convert_image
from beam_tfr.records import examples
from beam_tfr.records.examples import example_class, parse_example
from beam_tfr.records.tfrecords import frame
from beam_tfr.schema.encodings import FEATURES, LABEL_FEATURES
from beam_tfr.schema.feature_names import MAX_FEATURES
from beam_tfr.schema.items import Image, ImageRef
from tests.cpu_limit import bounded_cpu
from tests.fixtures import build_example

IMAGE = Image(
    encoded=b"\xff\xd8\xff\xd9",
    format="jpeg",
    height=2,
    width=300,
    channels=3,
    colorspace="RGB",
    source_height=4,
    source_width=600,
    source_format="png",
    source_sha256="ab" * 32,
    channel_sums=(1, 2, 3),
    channel_squares=(1, 4, 9),
)
REF = ImageRef("train/hat/1.jpg", 99, 7, "train", ("hat",), (1,))

# Written by TensorFlow 2.21.0:
#   print(tensorflow_example(REF, IMAGE).SerializeToString(deterministic=True).hex())
GOLDEN = bytes.fromhex(
    "0aaf030a170a0e696d6167652f6368616e6e656c7312051a030a01030a1a0a11696d6167652f636c6173732f6c6162656c12051a030a0101"
    "0a1b0a10696d6167652f636c6173732f7465787412070a050a036861740a1b0a10696d6167652f636f6c6f72737061636512070a050a0352"
    "47420a190a0d696d6167652f656e636f64656412080a060a04ffd8ffd90a250a0e696d6167652f66696c656e616d6512130a110a0f747261"
    "696e2f6861742f312e6a70670a180a0c696d6167652f666f726d617412080a060a046a7065670a150a0c696d6167652f6865696768741205"
    "1a030a01020a580a10696d6167652f6b65792f73686132353612440a420a4061626162616261626162616261626162616261626162616261"
    "6261626162616261626162616261626162616261626162616261626162616261626162616261620a1e0a13696d6167652f736f757263652f"
    "666f726d617412070a050a03706e670a1c0a13696d6167652f736f757263652f68656967687412051a030a01040a1c0a12696d6167652f73"
    "6f757263652f776964746812061a040a02d8040a150a0b696d6167652f776964746812061a040a02ac02"
)


def tensorflow_example(ref: ImageRef, image: Image):
    """The same record, with TensorFlow's own classes."""
    tf = pytest.importorskip(
        "tensorflow", reason="TensorFlow is missing: pip install 'beam_tfr[reader]'"
    )

    def of_bytes(*values: bytes) -> object:
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))

    def of_int(*values: int) -> object:
        return tf.train.Feature(int64_list=tf.train.Int64List(value=values))

    feature = {
        "image/raw" if image.format == "raw" else "image/encoded": of_bytes(image.encoded),
        "image/format": of_bytes(image.format.encode()),
        "image/height": of_int(image.height),
        "image/width": of_int(image.width),
        "image/channels": of_int(image.channels),
        "image/colorspace": of_bytes(image.colorspace.encode()),
        "image/filename": of_bytes(os.fsencode(ref.key)),
        "image/key/sha256": of_bytes(image.source_sha256.encode()),
        "image/source/height": of_int(image.source_height),
        "image/source/width": of_int(image.source_width),
        "image/source/format": of_bytes(image.source_format.encode()),
    }
    if ref.label_ids is not None:
        feature["image/class/label"] = of_int(*ref.label_ids)
        feature["image/class/text"] = of_bytes(*(label.encode() for label in ref.labels))
    return tf.train.Example(features=tf.train.Features(feature=feature))


def test_golden_bytes() -> None:
    assert build_example(REF, IMAGE) == GOLDEN


@pytest.mark.parametrize(
    "ref",
    [
        REF,
        REF._replace(labels=(), label_ids=None),
        REF._replace(labels=("",), label_ids=(-1,)),
        REF._replace(labels=(), label_ids=()),
        REF._replace(labels=("naïve café", "x"), label_ids=(1 << 40, 0)),
        REF._replace(key=os.fsdecode(b"caf\xe9\xff.jpg"), label_ids=(0,)),
    ],
)
def test_the_bytes_are_those_of_tensorflow(ref: ImageRef, sample: Path) -> None:
    photo = convert_image(next(sample.rglob("*.jpg")).read_bytes(), image_size=(20, 30))
    for image in (IMAGE, photo, dataclasses.replace(IMAGE, format="raw")):
        assert build_example(ref, image) == tensorflow_example(ref, image).SerializeToString(
            deterministic=True
        )


def test_tensorflow_parses_a_record(sample: Path) -> None:
    tf = pytest.importorskip(
        "tensorflow", reason="TensorFlow is missing: pip install 'beam_tfr[reader]'"
    )
    image = convert_image(
        next(sample.rglob("*.jpg")).read_bytes(), image_size=(20, 30), encoding="png"
    )
    dtypes = {"bytes": tf.string, "int64": tf.int64}
    spec = {
        name: tf.io.FixedLenFeature(shape, dtypes[dtype])
        for name, (dtype, shape) in (FEATURES | LABEL_FEATURES).items()
    }
    parsed = tf.io.parse_single_example(build_example(REF, image), spec)
    assert {name: value.numpy() for name, value in parsed.items()} == {
        "image/encoded": image.encoded,
        "image/format": b"png",
        "image/height": 20,
        "image/width": 30,
        "image/channels": 3,
        "image/colorspace": b"RGB",
        "image/filename": b"train/hat/1.jpg",
        "image/key/sha256": image.source_sha256.encode(),
        "image/source/height": image.source_height,
        "image/source/width": image.source_width,
        "image/source/format": b"jpeg",
        "image/class/label": 1,
        "image/class/text": b"hat",
    }
    assert tf.io.decode_png(parsed["image/encoded"]).shape == (20, 30, 3)


def test_the_features_are_those_that_the_schema_names() -> None:
    assert parse_example(GOLDEN).keys() == FEATURES.keys() | LABEL_FEATURES.keys()
    unlabelled = parse_example(build_example(REF._replace(label_ids=None), IMAGE))
    assert unlabelled.keys() == FEATURES.keys()
    kinds = {"bytes": bytes, "int64": int}
    for name, (dtype, shape) in FEATURES.items():
        assert shape == ()
        assert [type(value) for value in unlabelled[name]] == [kinds[dtype]]


BOTH = """
from beam_tfr.records.examples import example_class, parse_example
record = bytes.fromhex({record!r})
def ours():
    assert len(parse_example(record)) == 13
    return example_class().FromString(record)
def theirs():
    import tensorflow as tf
    return tf.train.Example.FromString(record)
messages = [step() for step in ({first}, {second})]
for message in messages:
    assert message.SerializeToString(deterministic=True) == record
assert messages[0].DESCRIPTOR.full_name == messages[1].DESCRIPTOR.full_name == "tensorflow.Example"
assert type(messages[0]) is not type(messages[1])
"""


@pytest.mark.slow
@pytest.mark.parametrize(("first", "second"), [("ours", "theirs"), ("theirs", "ours")])
def test_ours_and_tensorflows_live_in_one_process_in_either_order(first: str, second: str) -> None:
    pytest.importorskip(
        "tensorflow", reason="TensorFlow is missing: pip install 'beam_tfr[reader]'"
    )
    code = BOTH.format(record=GOLDEN.hex(), first=first, second=second)
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parents[1]
    )
    assert run.returncode == 0, run.stderr


def test_every_kind_of_feature_is_read() -> None:
    example = example_class()()
    example.features.feature["f"].float_list.value.extend([0.5, -2.0])
    example.features.feature["i"].int64_list.value.extend([-1, (1 << 63) - 1])
    example.features.feature["b"].bytes_list.value.extend([b"", b"\xff"])
    example.features.feature["none"].SetInParent()
    assert parse_example(example.SerializeToString()) == {
        "f": [0.5, -2.0],
        "i": [-1, (1 << 63) - 1],
        "b": [b"", b"\xff"],
        "none": [],
    }
    assert parse_example(b"") == {}


@given(st.binary(max_size=200) | st.integers(0, len(GOLDEN) - 1).map(lambda end: GOLDEN[:end]))
def test_garbage_is_a_value_error_or_some_example(data: bytes) -> None:
    try:
        features = parse_example(data)
    except ValueError as error:
        assert str(error).startswith("not a tf.train.Example")  # noqa: PT017 - both ends are right
    else:
        assert all(isinstance(values, list) for values in features.values())


def test_truncated_record_is_not_an_example() -> None:
    for end in (1, 100, len(GOLDEN) - 1):
        with pytest.raises(ValueError, match=r"not a tf\.train\.Example"):
            parse_example(GOLDEN[:end])
    with pytest.raises(ValueError, match=r"not a tf\.train\.Example"):
        parse_example(b"\x0a\xff\xff\xff\xff\x07")


# Records of many values


FEATURES_OF = st.dictionaries(
    st.text(max_size=3),
    st.one_of(
        st.tuples(st.just("int64"), st.lists(st.integers(-(2**63), 2**63 - 1), max_size=9)),
        st.tuples(st.just("float"), st.lists(st.floats(width=32), max_size=9)),
        st.tuples(st.just("bytes"), st.lists(st.binary(max_size=9), max_size=9)),
    ),
    max_size=9,
)


def refused(record: bytes, *, most_features: int, most_values: int) -> str:
    """The message for a record of any length, with other limits."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (
            ("MAX_FEATURES", most_features),
            ("MAX_VALUES", most_values),
            ("_FEW_BYTES", -1),
        ):
            patch.setattr(examples, name, value)
        try:
            examples.parse_example(record)
        except examples.TooManyValuesError as error:
            return str(error)
    return ""


@given(FEATURES_OF, st.integers(0, 20), st.integers(0, 20))
def test_features_and_values_are_counted_exactly(
    values: dict[str, Any], features: int, most: int
) -> None:
    record = examples.serialize(values)
    number = sum(len(of) for _, of in values.values())
    told = refused(record, most_features=features, most_values=most)
    assert bool(told) is (len(values) > features or number > most), told


@given(
    st.binary(max_size=200)
    | st.integers(0, len(GOLDEN)).map(lambda end: GOLDEN[end:] + GOLDEN[:end])
)
def test_nothing_that_is_parsed_is_not_counted(data: bytes) -> None:
    with contextlib.suppress(ValueError):
        found = examples.parse_example(data)
        assert not found or refused(data, most_features=len(found) - 1, most_values=1000)


def field(number: int, content: bytes) -> bytes:
    return (
        bytes([number << 3 | 2, 0x80 | len(content) & 127, 0x80 | len(content) >> 7, 0]) + content
    )  # not the shortest


@pytest.mark.parametrize(
    "group", [b"", b"\x1b\x1c", b"\x1b\x0a\x00\x1c", b"\x19" + bytes(8), b"\x18\x05"]
)
def test_features_behind_other_fields_are_counted(group: bytes) -> None:
    feature = field(1, field(1, b"a") + field(2, field(3, field(1, b"\x01\x80\x01") + b"\x08\x05")))
    features = field(1, feature)
    assert examples.parse_example(group + features) == {"a": [1, 128, 5]}
    assert not refused(group + features, most_features=1, most_values=3)
    assert "more than 2 values" in refused(group + features, most_features=1, most_values=2)
    assert "more than 0 features" in refused(group + features, most_features=0, most_values=3)


def test_a_record_of_a_million_features_is_refused_before_it_is_parsed(
    beam_tfr: Any, tmp_path: Path
) -> None:
    entries = (
        b"\x0a\x0c\x0a\x06%06x\x12\x02\x1a\x00" % number for number in range(MAX_FEATURES + 1)
    )
    features = b"".join(entries)
    record = b"\x0a" + _VarintBytes(len(features)) + features
    tracemalloc.start()
    with pytest.raises(
        examples.TooManyValuesError, match="it has more than 100,000 features, so it was not parsed"
    ):
        parse_example(record)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000
    (tmp_path / "many.tfrecord").write_bytes(frame(record))
    run = beam_tfr("inspect", tmp_path / "many.tfrecord")
    assert (run.code, "record 0 at byte 0: it has more than 100,000 features" in run.out) == (
        1,
        True,
    )


@pytest.mark.slow
def test_a_record_of_empty_messages_is_refused_in_bounded_memory() -> None:
    """A list of them took 200 times the bytes of the record."""
    record = b"\x0a\x00" * 10_000_000
    tracemalloc.start()
    with bounded_cpu(), pytest.raises(examples.TooManyValuesError, match="more than 1,000,000 fie"):
        parse_example(record)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000


def test_the_garbage_collector_leaves_the_classes_of_nested_messages() -> None:
    """The process crashed when a thread collected such a class.

    Another one got it from protobuf at that time.
    """

    def classes() -> list[weakref.ref[type]]:
        example = example_class()()
        feature = example.features.feature["a"]
        messages = (
            example,
            example.features,
            feature,
            feature.bytes_list,
            feature.int64_list,
            feature.float_list,
        )
        return [weakref.ref(type(message)) for message in messages]

    found = classes()
    gc.collect()
    assert all(kept() is not None for kept in found)
