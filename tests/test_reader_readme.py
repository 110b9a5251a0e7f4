"""The examples of the README's reader section run as they are written."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.conftest import Run

README = Path(__file__).parents[1] / "README.md"
FOLDER = "/tmp/clothing"


def test_reading(tmp_path: Path, sample: Path, beam_tfr: Callable[..., Run]) -> None:
    output = tmp_path / "clothing"
    command = ["--input", f"{sample}/**/*.jpg", "--output", output, "--layout", "{split}/{label}/*"]
    assert beam_tfr("convert", *command, "--image_size", "96").code == 0
    section = README.read_text().split("\n## Reading\n")[1].split("\n## ")[0]
    blocks = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    assert len(blocks) >= 1
    for block in blocks:
        assert FOLDER in block
        names: dict[str, Any] = {}
        exec(block.replace(FOLDER, str(output)), names)
        images, labels = next(iter(names["train"]))
        assert (images.shape, labels.shape) == ((32, 96, 96, 3), (32,))
        crops, _ = next(iter(names["crops"]))
        assert crops.shape[1:] == (96, 96, 3)
        total = sum(float(sum(batch["weight"])) for batch in names["test"])
        assert total == len(list(sample.glob("test/*/*.jpg")))
