"""Both readers follow `beam_tfr.order`.

Equal arguments give equal examples at every step. test_order.py proves the law.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_tfr import order
from beam_tfr.order import FILLER, Epoch
from beam_tfr.reader import load, streams
from beam_tfr.schema.errors import UsageError
from beam_tfr.torch import ImageDataset
from tests.expected_order import expected_steps
from tests.reader_fixtures import write_dataset

COUNTS = [400, 1, 0, 299, 300]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """train: photos 0 to 999 in 5 shards, one of them empty; test: 1000 to 1006."""
    return write_dataset(
        tmp_path_factory.mktemp("data") / "d", {"train": COUNTS, "test": [7]}, image_size=(2, 2)
    )


def flat(steps: list[list[int]]) -> list[int]:
    return list(itertools.chain(*steps))


def numbers(elements: Any) -> list[list[int]]:
    """The number of each example of each step; `FILLER` for what only fills up a batch."""
    found = []
    for _, labels, *weights in elements:
        real = np.ravel(weights[0]) if weights else np.ones(np.size(labels))
        found.append(
            [
                int(label) if one else FILLER
                for label, one in zip(np.ravel(labels), real, strict=True)
            ]
        )
    return found


def by_tensorflow(folder: Path, **options: Any) -> list[list[int]]:
    elements = load(folder, **{"split": "train", "output": "encoded", **options})
    found = numbers(elements.as_numpy_iterator())
    assert elements.cardinality() == len(found)
    return found


def by_torch(folder: Path, **options: Any) -> list[list[int]]:
    names = {"num_hosts": "world_size", "host_index": "rank"}
    options = {names.get(name, name): value for name, value in options.items()}
    dataset = ImageDataset(folder, **{"split": "train", "output": "encoded", **options})
    found = numbers(dataset)
    assert len(dataset) == len(found)
    return found


CASES: list[dict[str, Any]] = [
    {
        "batch_size": 64,
        "shuffle": True,
        "num_hosts": 4,
        "host_index": 3,
        "remainder": "pad",
        "start_step": 14,
        "seed": 1 << 62,
        "epoch": 5,
    },
    {
        "batch_size": 300,
        "split": "train[95%:]+test",
        "shuffle": True,
        "num_hosts": 3,
        "host_index": 2,
        "remainder": "pad",
    },
    {
        "batch_size": None,
        "split": "train[:80%]",
        "shuffle": True,
        "num_hosts": 2,
        "host_index": 0,
        "streams": 3,
        "start_step": 300,
    },
]


@pytest.mark.parametrize("options", CASES, ids=str)
def test_equal_arguments_give_equal_examples(folder: Path, options: dict[str, Any]) -> None:
    arguments = {"split": "train", **options}
    expected = expected_steps(folder, **arguments)
    # Labels are numbered over all splits, and the slice of the last shards begins at 950.
    if options.get("split") == "train[95%:]+test":
        expected = [
            [950 + number if number >= 0 else number for number in step] for step in expected
        ]
    assert len(expected) > 0
    assert by_torch(folder, **arguments) == expected
    assert by_tensorflow(folder, **arguments) == expected


@pytest.mark.parametrize("remainder", ["keep", "drop", "pad"])
@pytest.mark.parametrize("batch_size", [1, 50, 64])
def test_torch_follows_the_law(folder: Path, batch_size: int, remainder: str) -> None:
    for num_hosts in (1, 2, 3, 4):
        options: dict[str, Any] = {"shuffle": num_hosts != 2, "epoch": 3, "num_hosts": num_hosts}
        options |= {
            "host_index": num_hosts - 1,
            "batch_size": batch_size,
            "remainder": remainder,
            "start_step": 2,
        }
        if batch_size % num_hosts:
            with pytest.raises(
                UsageError,
                match=f"`batch_size={batch_size}`: is not a multiple of the {num_hosts} hos",
            ):
                by_torch(folder, **options)
        elif remainder == "keep" and 0 < 1000 % batch_size < num_hosts:
            with pytest.raises(
                UsageError, match="`remainder=keep`: 1000 examples would give some of the"
            ):
                by_torch(folder, **options)
        else:
            assert by_torch(folder, **options) == expected_steps(folder, **options)


@pytest.mark.parametrize(
    ("options", "start"),
    [
        ({"batch_size": 200, "split": "train[:900]", "remainder": "keep"}, 1),
        ({"batch_size": 10, "split": "train[:99]", "remainder": "pad"}, 19),
    ],
    ids=str,
)
def test_epochs_in_a_row(folder: Path, options: dict[str, Any], start: int) -> None:
    options = {"shuffle": True, "seed": 5, "epoch": 1, **options}
    expected = expected_steps(folder, epochs=2, start_step=start, **options)
    assert by_tensorflow(folder, repeat=2, start_step=start, **options) == expected


def test_fewer_examples_than_streams(tmp_path: Path) -> None:
    folder = write_dataset(tmp_path / "d", {"train": [1, 2]}, image_size=(2, 2))
    expected = expected_steps(folder, batch_size=2, remainder="pad", shuffle=True)
    assert sorted(flat(expected)) == [FILLER, 0, 1, 2]
    assert by_tensorflow(folder, batch_size=2, remainder="pad", shuffle=True) == expected
    assert by_torch(folder, batch_size=2, remainder="pad", shuffle=True) == expected


def test_start_step_in_a_later_epoch_of_one_of_two_hosts(folder: Path) -> None:
    options: dict[str, Any] = {"batch_size": 64, "shuffle": True, "remainder": "pad"}
    expected = expected_steps(
        folder, epoch=2, start_step=10, num_hosts=2, host_index=1, **options
    )  # of 16 steps
    assert by_tensorflow(folder, start_step=42, num_hosts=2, host_index=1, **options) == expected
    assert by_torch(folder, start_step=42, num_hosts=2, host_index=1, **options) == expected
    with pytest.raises(
        UsageError, match=r"`num_hosts=2`: needs `host_index=`, the number of this host, 0 to 1"
    ):
        load(folder, split="train", num_hosts=2)
    elements = load(
        folder, split="train", batch_size=64, repeat=3, start_step=48, output="raw_record"
    )
    assert (elements.cardinality(), list(elements)) == (0, [])
    with pytest.raises(UsageError, match="`start_step=49`: is beyond the 48 steps of 3 epochs"):
        load(folder, split="train", batch_size=64, repeat=3, start_step=49)


def test_what_is_skipped_is_not_opened(tmp_path: Path) -> None:
    counts = [order.WINDOW] * 8
    folder = write_dataset(tmp_path / "d", {"train": counts}, photos=[b"any"] * sum(counts))
    options: dict[str, Any] = {
        "streams": 1,
        "batch_size": 64,
        "shuffle": True,
        "seed": 2,
        "start_step": 26,
    }
    expected = expected_steps(folder, **options)
    elements = load(folder, split="train", output="encoded", **options)
    dataset = ImageDataset(folder, split="train", output="encoded", **options)
    needed = {
        run.part for run in Epoch(counts, seed=2, number=0).runs(6 * order.WINDOW, 8 * order.WINDOW)
    }
    assert len(needed) < 4
    for index, shard in enumerate(sorted(folder.glob("*.tfrecord.gz"))):
        if index not in needed:
            shard.unlink()
    assert numbers(elements.as_numpy_iterator()) == numbers(dataset) == expected


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, (1 << 63) - 1), min_size=1, max_size=4), st.integers(0, 600))
def test_tensorflow_draws_as_numpy_does(key: list[int], size: int) -> None:
    tensors = [tf.constant(word, tf.int64) for word in key]
    np.testing.assert_array_equal(
        order.hash_numbers(*tensors, ops=streams.TENSORFLOW), order.hash_numbers(*key)
    )
    np.testing.assert_array_equal(
        order.permutation(size, *tensors, ops=streams.TENSORFLOW), order.permutation(size, *key)
    )
