"""Weights of classes, and what cannot be trained."""

from __future__ import annotations

import pathlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_tfr import reader
from beam_tfr.dataset.class_weights import _weigh
from beam_tfr.schema.errors import UsageError
from tests.converted import converted_photos
from tests.reader_fixtures import write_dataset


@given(
    st.lists(st.integers(0, 1000), min_size=1, max_size=9).filter(any),
    st.one_of(st.none(), st.floats(1, 100)),
)
def test_the_mean_weight_is_1_and_none_is_above_the_cap(
    counts: list[int], cap: float | None
) -> None:
    weights = _weigh(counts, cap)
    total = sum(weight * count for weight, count in zip(weights, counts, strict=True))
    assert total == pytest.approx(sum(counts))
    assert max(weights) <= (cap or float("inf"))
    assert all(bool(weight) == bool(count) for weight, count in zip(weights, counts, strict=True))
    below = {
        round(weight * count, 6)
        for weight, count in zip(weights, counts, strict=True)
        if count and weight != cap
    }
    assert len(below) <= 1  # classes below the cap have equal shares


def test_weights_of_a_dataset() -> None:
    folder = converted_photos()
    assert reader.class_weights(folder, "train") == {0: 1.0, 1: 1.0, 2: 1.0}
    assert reader.class_weights(folder, "all") == reader.class_weights(folder, "train+test")
    assert reader.class_weights(folder, "all-test", cap=3) == {0: 1.0, 1: 1.0, 2: 1.0}
    assert _weigh([90, 10], 2.0) == [pytest.approx(80 / 90), 2.0]


def test_wrong_calls(tmp_path: pathlib.Path) -> None:
    folder = converted_photos()
    for cap in (0.5, True, "2", float("nan")):
        with pytest.raises(UsageError, match="1 or more"):
            reader.class_weights(folder, "train", cap=cap)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="the splits are: test, train"):
        reader.class_weights(folder, "val")
    plain = write_dataset(tmp_path / "d", {"train": [3]}, image_size=(2, 2))
    assert reader.class_weights(plain, "train")
