"""The Python of docs/reader.md runs as it stands."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import pytest
import tensorflow as tf

from beam_tfr.reader import load
from tests.box_fixtures import some_images, write_boxes
from tests.conftest import Run
from tests.masks import write_masks

DOCS = Path(__file__).parents[1] / "docs" / "reader.md"


@pytest.mark.slow
def test_blocks(tmp_path: Path, sample: Path, beam_tfr: Callable[..., Run]) -> None:
    folder = tmp_path / "clothing"
    command = ["--input", f"{sample}/**/*.jpg", "--output", folder, "--layout", "{split}/{label}/*"]
    assert beam_tfr("convert", *command, "--image_size", "16").code == 0
    written: dict[str, object] = {
        "/tmp/backup": tmp_path / "backup",
        "/data/street": write_boxes(tmp_path / "boxes", some_images()),
        "/data/rooms": write_masks(tmp_path / "masks"),
    }
    folds = tmp_path / "folds"
    command = ["--input", f"{sample}/**/*.jpg", "--output", folds, "--layout", "*/{label}/*"]
    command += ["--image_size", "16", "--folds", "2", "--stratify"]
    assert beam_tfr("convert", *command).code == 0
    written["/data/folds"] = folds
    written["range(5)"] = "range(2)"  # folds, each of which is another model to train
    total = len(list(sample.glob("train/*/*.jpg")))

    def make_model() -> keras.Model:
        layers = [keras.Input((16, 16, 3)), keras.layers.Flatten(), keras.layers.Dense(10)]
        model = keras.Sequential(layers)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("sgd", loss, metrics=["accuracy"], jit_compile=False)
        return model

    model = make_model()
    names: dict[str, Any] = {"folder": str(folder), "model": model, "epochs": 2, "load": load}
    names["make_model"] = make_model
    names["strategy"] = tf.distribute.get_strategy()
    blocks = re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    found = []
    for block in blocks:
        for old, new in written.items():
            block = block.replace(old, str(new))
        names.pop("train", None)
        exec(block, names)
        found.append(names.get("train"))
    started, torch, boxed, mirrored, masked, folded, weighted, resumed, distributed = found
    assert len(started) == -(-total // 32)
    assert len(names["scores"]) == 2
    assert torch is mirrored is folded is weighted is resumed is None
    assert masked.element_spec[1] == tf.TensorSpec((None, 128, 128), tf.int32)
    assert boxed.element_spec[1]["boxes"].shape == (None, 20, 4)
    assert [box.shape[1] for box in (objects["boxes"] for objects in names["objects"])] == [4] * 8
    assert int(model.optimizer.iterations.numpy()) == 2 * -(-total // 64)
    assert next(iter(distributed))[0].shape[1:] == (16, 16, 3)
    images, labels = next(iter(names["dataset"]))
    assert (images.shape, labels.shape) == ((64, 16, 16, 3), (64,))
