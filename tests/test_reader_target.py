"""A column in place of the labels: a number to predict."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from beam_tfr import Records
from beam_tfr.reader import load
from beam_tfr.schema.errors import UsageError
from beam_tfr.torch import ImageDataset
from tests.conftest import Run


@pytest.fixture
def priced(beam_tfr: Callable[..., Run], photos: Path, tmp_path: Path) -> str:
    """A dataset of five photos with a class, a price, and the number of rooms."""
    names = sorted(str(path.relative_to(photos)) for path in photos.rglob("*.jpg"))[:5]
    rows = [f"{name},hat,{number * 1.25},{number}" for number, name in enumerate(names)]
    (photos / "t.csv").write_text("\n".join(["path,class,price,rooms", *rows, ""]))
    flags = ["--uri_column", "path", "--label_column", "class", "--feature_columns", "price,rooms"]
    output = str(tmp_path / "o")
    run = beam_tfr("convert", "--table", photos / "t.csv", *flags, "--output", output)
    assert run.code == 0, run.err
    return output


@pytest.mark.slow
def test_a_column_takes_the_place_of_the_labels(priced: str) -> None:
    prices = [0.0, 1.25, 2.5, 3.75, 5.0]
    batches = [*load(priced, split="train", batch_size=2, target="price", remainder="pad")]
    assert [len(batch) for batch in batches] == [3, 3, 3]
    assert batches[0][1].dtype == "float32"
    values = np.concatenate([batch[1] for batch in batches])
    assert sorted(values[:5].tolist()) == prices
    singles = [target for _, target in load(priced, split="train", target="rooms")]
    assert sorted(int(target) for target in singles) == [0, 1, 2, 3, 4]
    records = Records(priced, split="train", target="price")
    assert sorted(records[number][1] for number in range(5)) == prices
    dataset = ImageDataset(priced, split="train", batch_size=5, target="price")
    (batch,) = dataset
    assert sorted(batch[1].tolist()) == prices
    assert len(batch) == 2


def test_a_target_that_has_no_effect_is_refused(priced: str) -> None:
    with pytest.raises(UsageError, match="price, rooms"):
        load(priced, split="train", target="cost")
    with pytest.raises(UsageError, match="has no effect"):
        load(priced, split="train", target="price", output="dict")
    with pytest.raises(UsageError, match="cannot be combined"):
        Records(priced, split="train", target="price", one_hot=True)
