"""`Records` in the loaders of others: grain, Keras. PyTorch is in test_torch_dataloader.py."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import beam_tfr
from tests.converted import converted_photos
from tests.pages import ROOT, blocks

STORED = "--num_shards 3"
PAGE = ROOT / "docs" / "contents.md"
GRAIN = """
import sys
import grain
from absl import flags
import beam_tfr

flags.FLAGS.mark_as_parsed()  # in every process
if __name__ == "__main__":
    records = beam_tfr.Records(sys.argv[1], split="train", output="pair")
    expected = sorted((image.sum(), label) for image, label in records)
    data = grain.MapDataset.source(records).seed(7).shuffle()
    assert len(data) == 12
    plain = [(image.sum(), label) for image, label in data]
    assert sorted(plain) == expected != plain
    workers = grain.MultiprocessingOptions(num_workers=2)
    loaded = [*data.batch(4).to_iter_dataset().mp_prefetch(workers)]
    assert [images.shape for images, _ in loaded] == [(4, 224, 224, 3)] * 3
    assert [(i.sum(), n) for images, numbers in loaded for i, n in zip(images, numbers)] == plain
"""


@pytest.mark.slow
def test_grain_with_workers(tmp_path: Path) -> None:
    script = tmp_path / "train.py"  # workers import it
    script.write_text(GRAIN)
    command = [sys.executable, script, converted_photos(STORED)]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
    assert run.returncode == 0, run.stderr[-3000:]


def test_the_blocks_of_the_page(tmp_path: Path) -> None:
    """Those with packages that tests have; PyTorch and DuckDB are tried by hand."""
    folder = str(converted_photos(STORED))
    left_out = []
    names: dict[str, Any] = {}
    for code in blocks(PAGE, "python"):
        of_boxes = "/data/street" in code  # in tests/test_bad_boxes.py
        others = ("torch", "duckdb", "grain")
        if of_boxes or any(f"import {name}" in code or f"from {name}" in code for name in others):
            left_out.append(code)
            continue
        exec(
            code.replace("/data/photos", folder).replace("/tmp/hats", str(tmp_path / "hats")), names
        )
    assert len(left_out) == 4
    assert len(names["hats"]) == len([*(tmp_path / "hats").iterdir()]) == 4
    assert names["train"].class_names == ("hat", "shoes", "t-shirt")


def test_keras_trains_on_records() -> None:
    pytest.importorskip("keras", reason="needs TensorFlow: pip install 'beam_tfr[reader]'")
    import keras

    records = beam_tfr.Records(converted_photos(STORED), split="train")
    names: dict[str, Any] = {"train": records}
    (code,) = (block for block in blocks(PAGE, "python") if "PyDataset" in block)
    exec(code, names)
    batches = names["Batches"](records, batch_size=5)
    assert [len(labels) for _, labels in (batches[i] for i in range(len(batches)))] == [5, 5, 2]
    model = keras.Sequential(
        [keras.layers.Rescaling(1 / 255), keras.layers.Flatten(), keras.layers.Dense(3)]
    )
    model.compile(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(batches, epochs=1, verbose=0)
