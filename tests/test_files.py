"""Files that are no images: any bytes, and .npy arrays as tensors."""

from __future__ import annotations

import hashlib
import io
import json
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_tfr.dataset.manifest import manifest_bytes, manifest_digest, read_manifest
from beam_tfr.images import convert_image
from beam_tfr.records.arrays import MAX_TEXTS, parse_array
from beam_tfr.records.examples import build_record, parse_example
from beam_tfr.schema.errors import RejectError, UsageError
from beam_tfr.schema.items import Array, ImageRef
from beam_tfr.verification import verify
from beam_tfr.verification.payload_check import file_problems, tensor_problems
from tests.conftest import Run, files_of
from tests.table_rows import as_csv, records_of

tf = pytest.importorskip(
    "tensorflow", reason="TensorFlow is missing: pip install 'beam_tfr[reader]'"
)
Command = Callable[..., Run]


def npy(array: Any, **how: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array, **how)
    return file.getvalue()


def with_header(header: str, content: bytes = b"", version: bytes = b"\x01\x00") -> bytes:
    text = header.encode() + b"\n"
    length = struct.pack("<H" if version == b"\x01\x00" else "<I", len(text))
    return b"\x93NUMPY" + version + length + text + content


ARRAYS = {
    "scalar": np.float32(1.5),
    "empty": np.zeros((0, 3), np.int32),
    "wide": np.arange(24, dtype=np.int16).reshape(1, 2, 3, 4),
    "fortran": np.asfortranarray(np.arange(6, dtype=np.float64).reshape(2, 3)),
    "big": np.arange(4, dtype=">u8"),
    "half": np.array([1.5, -2], np.float16),
    "complex": np.array([1 + 2j], np.complex128),
    "bool": np.array([[True, False]]),
    "bytes": np.array([b"ab", b"", b"\xff"]),
    "texts": np.array(["naïve", "x"]),
}


def test_any_files_are_packed_as_they_are(beam_tfr: Command, tmp_path: Path) -> None:
    files = {"a/1.wav": b"RIFF" * 100, "a/2.txt": "grün".encode(), "b/3": b"\0", "b/empty": b""}
    for name, data in files.items():
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_bytes(data)
    flags = ["--encoding", "bytes", "--name", "d", "--max_rejects", "1", "--json"]
    output = tmp_path / "o"
    run = beam_tfr("convert", "--input", tmp_path / "in/**/*", *flags, "--output", output)
    assert (run.code, run.json["rejected"]) == (0, {"empty-file": 1}), run.err
    assert records_of(output) == {
        name: {
            "file/bytes": [data],
            "file/name": [name.encode()],
            "file/sha256": [hashlib.sha256(data).hexdigest().encode()],
            "class/label": ["ab".index(name[0])],
            "class/text": [name[:1].encode()],
        }
        for name, data in files.items()
        if data
    }
    assert verify(str(output)).problems == ()
    rows = [{"file": name, "class": name[0], "n": i} for i, name in enumerate(files)]
    (tmp_path / "in" / "t.csv").write_bytes(as_csv(rows))
    table = ["--table", tmp_path / "in/t.csv", "--uri_column", "file", "--label_column", "class"]
    more = ["--feature_columns", "n", "--output", tmp_path / "p"]
    assert beam_tfr("convert", *table, *flags, *more).code == 0
    assert files_of(output).keys() == files_of(tmp_path / "p").keys()
    numbers = {"a/1.wav": [0], "a/2.txt": [1], "b/3": [2]}
    assert records_of(tmp_path / "p") == {
        key: of | {"n": numbers[key]} for key, of in records_of(output).items()
    }
    too_large = beam_tfr(
        "convert",
        *table,
        *flags,
        "--max_file_bytes",
        "5",
        "--max_rejects",
        "2",
        *more,
        "--overwrite",
    )
    assert too_large.json["rejected"] == {"empty-file": 1, "file-too-large": 1}


def test_arrays_become_tensors(beam_tfr: Command, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for name, array in ARRAYS.items():
        np.save(folder / f"{name}.npy", array)
    (folder / "photo.npy").write_bytes(b"\xff\xd8\xff")
    (folder / "cut.npy").write_bytes(npy(np.arange(9))[:-1])
    output = tmp_path / "o"
    flags = ["--encoding", "array", "--layout", "*", "--max_rejects", "2", "--json"]
    run = beam_tfr("convert", "--input", folder / "*", "--output", output, *flags)
    assert (run.code, run.json["rejected"]) == (0, {"not-an-array": 1, "damaged-array": 1}), run.err
    assert verify(str(output)).problems == ()
    records = records_of(output)
    for name, array in ARRAYS.items():
        record = records[f"{name}.npy"]
        tensor = tf.io.parse_tensor(
            record["array/raw"][0], tf.as_dtype(record["array/dtype"][0].decode())
        )
        assert record["array/shape"] == list(array.shape) == tensor.shape.as_list()
        expected = np.char.encode(array, "utf-8") if array.dtype.kind == "U" else array
        assert np.array_equal(np.asarray(tensor.numpy()), expected)
        assert tf.io.serialize_tensor(tensor).numpy() == record["array/raw"][0]
    assert read_manifest(str(output)).features["array/shape"] == {"dtype": "int64", "shape": [-1]}


class Dangerous:
    def __reduce__(self) -> Any:
        return exec, ("raise SystemExit('unpickled')",)


HUGE = (1 << 62, 1 << 62)


@pytest.mark.parametrize(
    ("data", "reason", "detail"),
    [
        (b"no array", "not-an-array", "begins with 6e 6f 20 61 72 72 61 79, expected a .npy file"),
        (
            npy(np.array([Dangerous()], object), allow_pickle=True),
            "not-an-array",
            "cannot have the type object",
        ),
        (npy(np.array(["2020"], "M8[D]")), "not-an-array", "cannot have the type datetime64[D]"),
        (npy(np.zeros(2, [("a", "i4")])), "not-an-array", "cannot have the type [('a', '<i4')]"),
        (
            with_header(f"{{'descr': '<f8', 'fortran_order': False, 'shape': {HUGE}}}"),
            "damaged-array",
            "the impossible shape",
        ),
        (
            with_header("{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,)}"),
            "damaged-array",
            "8000000",
        ),
        (
            with_header("{'descr': '<f8', 'fortran_order': False, 'shape': (-1,)}"),
            "damaged-array",
            "the impossible shape (-1,)",
        ),
        (
            with_header("{'descr': '|u1', 'fortran_order': False, 'shape': (True,)}", b"1"),
            "damaged-array",
            "(True,)",
        ),
        (
            with_header(
                f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({'1, ' * 300})}}", b"1"
            ),
            "damaged-array",
            "the impossible shape (1, 1, ",
        ),
        (
            with_header("{'descr': '<f8', 'fortran_order': False, 'shape': (1,)}", b"12345678x"),
            "damaged-array",
            "has 9",
        ),
        (
            with_header("{'descr': '|S0', 'fortran_order': False, 'shape': (1000000000000,)}"),
            "not-an-array",
            "strings",
        ),
        (
            with_header("{'descr': '|b1', 'fortran_order': False, 'shape': (1,)}", b"\2"),
            "damaged-array",
            "neither 0",
        ),
        (
            with_header("{'descr': '<U1', 'fortran_order': False, 'shape': (1,)}", b"\xff" * 4),
            "damaged-array",
            "invalid Unicode text",
        ),
        (
            with_header("__import__('os').system('false')"),
            "damaged-array",
            "its header: malformed node",
        ),
        (with_header("(" * 5000), "damaged-array", "its header: "),
        (with_header(" " * 60_000), "damaged-array", "its header: "),
        (with_header("{}", version=b"\x03\x00"), "not-an-array", "version (3, 0)"),
        (
            with_header("{'descr': (), 'fortran_order': False, 'shape': (1,)}"),
            "damaged-array",
            "its header: tuple index out of range",
        ),
        (
            with_header("{'descr': '<T', 'fortran_order': False, 'shape': (1,)}", bytes(16)),
            "not-an-array",
            "cannot have the type StringDType",
        ),
        (b"\x93NUMPY\x01\x00\xff\xff{", "damaged-array", "its header: EOF"),
        (
            npy(np.zeros(MAX_TEXTS + 1, "S1")),
            "not-an-array",
            "strings of 1 bytes, more than allowed",
        ),
    ],
)
def test_a_hostile_array_is_a_reject_and_costs_nothing(
    data: bytes, reason: str, detail: str
) -> None:
    tracemalloc.start()
    with pytest.raises(RejectError) as caught:
        parse_array(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (caught.value.reason, detail in caught.value.detail) == (reason, True), (
        caught.value.detail
    )
    assert peak < 8 << 20
    assert len(caught.value.detail) < 300


@given(st.binary(max_size=300) | st.integers(0, 200).map(lambda end: npy(np.arange(12))[:end]))
def test_garbage_is_a_reject_or_an_array(data: bytes) -> None:
    for start in (b"", b"\x93NUMPY\x01\x00"):
        try:
            parse_array(start + data)
        except RejectError as error:
            # Both ends are right.
            assert error.reason in ("not-an-array", "damaged-array")  # noqa: PT017


def test_array_problems() -> None:
    ref = ImageRef("a.npy", 1, 0, "train")
    array = parse_array(npy(np.arange(6, dtype=np.int32).reshape(2, 3)))

    def told(**changes: Any) -> list[str]:
        changed = Array(
            **{name: changes.get(name, getattr(array, name)) for name in Array.__dataclass_fields__}
        )
        record = parse_example(build_record("array", changed, ref).serialized)
        (data,), (dtype,) = record["array/raw"], record["array/dtype"]
        return list(tensor_problems("array/raw", data, dtype.decode(), record["array/shape"]))

    def wrong(dtype: str, shape: list[int]) -> list[str]:
        return [f"array/raw is not a serialized {dtype!r} tensor of shape {shape}"]

    assert told() == []
    assert told(shape=(3, 2)) == wrong("int32", [3, 2])
    assert told(shape=()) == wrong("int32", [])
    assert told(shape=(-1,)) == wrong("int32", [-1])
    assert told(shape=(1 << 62, 1 << 62)) == wrong("int32", [1 << 62, 1 << 62])
    assert told(dtype="int64") == wrong("int64", [2, 3])
    assert told(dtype="object") == wrong("object", [2, 3])
    (problem,) = told(shape=(1,) * 65)
    assert problem.startswith("array/raw is not a serialized 'int32' tensor of shape [1, 1")
    assert told(tensor=array.tensor[:-1]) == wrong("int32", [2, 3])
    texts = {"tensor": parse_array(npy(np.array(["a", "b" * 300]))).tensor, "dtype": "string"}
    assert told(**texts, shape=(2,)) == []
    assert told(**texts, shape=(3,)) == wrong("string", [3])
    for end in range(len(texts["tensor"])):
        assert told(tensor=texts["tensor"][:end], dtype="string", shape=(2,)) == wrong(
            "string", [2]
        )
    assert told(
        tensor=texts["tensor"] + b"\x42" + b"\xff" * 10, dtype="string", shape=(2,)
    ) == wrong("string", [2])


def test_file_problems() -> None:
    record = parse_example(build_record("bytes", b"data", ImageRef("a", 1, 0, "train")).serialized)
    assert list(file_problems(record)) == []
    (problem,) = file_problems({**record, "file/bytes": [b"date"]})
    assert problem.startswith("file/bytes has the SHA-256 ")


def test_convert_image_refuses_other_encodings() -> None:
    for encoding in ("bytes", "array", "row"):
        with pytest.raises(UsageError, match=f"^`encoding={encoding}`: is not for images"):
            convert_image(b"", encoding=encoding)


def test_manifest_with_wrong_columns_is_refused(beam_tfr: Command, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("age,name\n1,x\n")
    assert beam_tfr("convert", "--table", tmp_path / "t.csv", "--output", tmp_path / "o").code == 0
    path = tmp_path / "o" / "manifest.json"
    fields = json.loads(path.read_text())
    for change in (
        {"age": "int32", "name": "bytes"},
        {"age": "int64[]", "name": "bytes"},
        {"age": "int64", "name": "bytes", "row/key": "int64"},
        {"age": 1},
        ["age"],
    ):
        fields["options"]["feature_columns"] = change
        fields["manifest_digest"] = manifest_digest(fields)
        path.write_bytes(manifest_bytes(fields))
        run = beam_tfr("verify", tmp_path / "o")
        assert (run.code, "is not a manifest: " in run.err) == (1, True), run.err
