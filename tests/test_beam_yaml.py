"""The provider for Beam YAML, in the pipeline of the docs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from beam_tfr import reader
from tests.test_docs import DOCS, ROOT, blocks


@pytest.mark.slow  # Beam YAML imports all that its own transforms could need
def test_the_pipeline_of_the_docs(photos: Path, tmp_path: Path) -> None:
    (photos / "train" / "hat" / "broken.jpg").write_bytes(b"no image")
    (block,) = blocks(DOCS / "pipeline.md", "yaml")
    block = block.replace("photos/**", f"{photos}/**").replace("/data/", f"{tmp_path}/")
    path = tmp_path / "convert.yaml"
    path.write_text(block.replace("beam_tfr/beam_tfr.yaml", str(ROOT / "beam_tfr" / "beam_tfr.yaml")))
    from apache_beam.yaml import main

    main.run(["--yaml_pipeline_file", str(path)])
    made = reader.open(tmp_path / "small")
    assert made.counts == {**made.counts, "matched": 19, "written": 18, "rejected": {"not-an-image": 1}}
    (rejects,) = tmp_path.glob("rejects*")
    row = json.loads(rejects.read_text())
    assert (row["key"], row["stage"], row["reason"]) == ("train/hat/broken.jpg", "ResizeImages", "not-an-image")
