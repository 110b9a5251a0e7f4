"""What tables, files and arrays become, read by tf.data."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from beam_tfr.dataset.manifest import read_manifest
from beam_tfr.schema.errors import UsageError
from tests.conftest import Run

tf = pytest.importorskip("tensorflow", reason="needs TensorFlow: pip install 'beam_tfr[reader]'")
from beam_tfr.reader import feature_spec, load  # noqa: E402

Command = Callable[..., Run]


def convert(beam_tfr: Command, output: Path, *options: str) -> Path:
    run = beam_tfr("convert", "--output", str(output), "--num_shards", "2", *options)
    assert run.code == 0, run.err
    return output


def test_rows_of_a_table(beam_tfr: Command, tmp_path: Path) -> None:
    rows = [
        {"age": i, "score": i / 4, "name": f"n{i}", "marks": [i, 2.0][: i % 3], "kind": "ab"[i % 2]}
        for i in range(20)
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    folder = convert(
        *(
            beam_tfr,
            tmp_path / "out",
            "--table",
            str(tmp_path / "rows.jsonl"),
            "--label_column",
            "kind",
        ),
        *("--feature_columns", "age:int64,score:float,name:bytes,marks:float[]"),
    )
    found = {}
    for batch in load(
        folder, split="train", batch_size=8, output="dict", shuffle=True, remainder="pad"
    ):
        assert batch["marks"].shape.as_list() == [8, None]
        for i in np.flatnonzero(batch["weight"]):
            key = batch["row/key"][i].numpy()
            found[key] = (
                *(batch[name][i].numpy() for name in ("age", "score", "name")),
                batch["marks"][i].numpy().tolist(),
                int(batch["class/label"][i]),
            )
    assert sorted(found.values()) == [
        (row["age"], row["score"], row["name"].encode(), row["marks"], i % 2)
        for i, row in enumerate(rows)
    ]
    for output in ("pair", "image", "encoded"):
        with pytest.raises(
            UsageError,
            match=rf'^`output={output}`: .* holds no images \(`encoding=row`\): use "dict"',
        ):
            load(folder, split="train", output=output)
    with pytest.raises(
        UsageError, match=r"^`image_size=\(8, 8\)`: has no effect: .* holds no images"
    ):
        load(folder, split="train", output="dict", image_size=(8, 8))


def test_files_and_arrays(beam_tfr: Command, tmp_path: Path) -> None:
    contents: dict[str, Any] = {}
    for i in range(12):
        path = tmp_path / "in" / "ab"[i % 2] / f"{i}.npy"
        path.parent.mkdir(parents=True, exist_ok=True)
        contents[f"{'ab'[i % 2]}/{i}.npy"] = array = np.arange(i * 3, dtype=np.float32).reshape(
            i, 3
        )
        np.save(path, array)
    folder = convert(
        beam_tfr, tmp_path / "arrays", "--input", f"{tmp_path}/in/*/*.npy", "--encoding", "array"
    )
    read = {}
    for element in load(folder, split="train", output="dict"):
        array = tf.io.parse_tensor(element["array/raw"], tf.float32).numpy()
        assert element["array/shape"].numpy().tolist() == list(array.shape)
        assert element["array/dtype"].numpy() == b"float32"
        read[element["file/name"].numpy().decode()] = array
    assert read.keys() == contents.keys()
    for name, array in contents.items():
        np.testing.assert_array_equal(read[name], array)

    folder = convert(
        beam_tfr, tmp_path / "files", "--input", f"{tmp_path}/in/*/*.npy", "--encoding", "bytes"
    )
    (batch,) = load(folder, split="train", output="dict", batch_size=12, streams=1)
    files = dict(zip(batch["file/name"].numpy(), batch["file/bytes"].numpy(), strict=True))
    assert files == {name.encode(): (tmp_path / "in" / name).read_bytes() for name in contents}
    assert set(feature_spec(folder)) == set(read_manifest(str(folder)).features)
    (hot,) = load(folder, split="train", output="dict", batch_size=12, streams=1, one_hot=True)
    expected = np.eye(hot["class/label"].shape[1], dtype=np.float32)[batch["class/label"]]
    np.testing.assert_array_equal(hot["class/label"], expected)


def test_labels_of_a_table(beam_tfr: Command, photos: Path, tmp_path: Path) -> None:
    paths = sorted(photos.rglob("*.jpg"))[:8]
    texts = ["a", "b", "", "a"] * 2
    lines = [f"{path},{text}" for path, text in zip(paths, texts, strict=True)]
    (tmp_path / "t.csv").write_text("file,kind\n" + "\n".join(lines) + "\n")
    options = ["--table", str(tmp_path / "t.csv"), "--uri_column", "file", "--label_column", "kind"]
    folder = convert(beam_tfr, tmp_path / "out", *options)
    found = {}
    for element in load(folder, split="train", output="dict"):
        label = element["image/class/label"].numpy()
        found[element["image/filename"].numpy().decode().rsplit("/", 1)[-1]] = label.tolist()
    expected = {"a": 0, "b": 1, "": -1}
    assert found == {path.name: expected[text] for path, text in zip(paths, texts, strict=True)}
