"""The laws of the order: by key, over whole epochs, for every number of hosts, and wherever an iteration begins."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from beam_tfr.reader import load, steps_per_epoch
from beam_tfr.reader.streams import WINDOW
from beam_tfr.schema import UsageError
from tests.reader_fixtures import write_dataset

HOSTS = (1, 2, 4, 8)
COUNTS = {"one shard": [1003], "97 shards": [8 + number % 7 for number in range(97)]}  # 1064


@pytest.fixture(scope="module", params=COUNTS)
def dataset(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    counts = COUNTS[request.param]
    folder = write_dataset(tmp_path_factory.mktemp("data") / "d", {"train": counts}, image_size=(2, 2))
    return folder, sum(counts)


def numbers(folder: Path, **options: Any) -> list[list[int]]:
    """The number of each example of each batch; None for what only fills up."""
    elements = load(folder, **{"split": "train", "output": "encoded", **options}).as_numpy_iterator()
    return [
        [int(label) for label, real in zip(labels, weight[0] if weight else [1] * len(labels), strict=True) if real]
        for _, labels, *weight in elements
    ]


@pytest.mark.parametrize(("remainder", "shuffle"), [("drop", False), ("pad", True)])
def test_hosts_share_an_epoch(dataset: tuple[Path, int], remainder: str, shuffle: bool) -> None:
    folder, total = dataset
    steps = []
    for hosts in HOSTS:
        shares = [
            numbers(folder, batch_size=48, remainder=remainder, shuffle=shuffle, num_hosts=hosts, host_index=host)
            for host in range(hosts)
        ]
        assert {len(share) for share in shares} == {total // 48 if remainder == "drop" else -(-total // 48)}
        seen = [number for share in shares for batch in share for number in batch]
        assert len(seen) == len(set(seen)) == (total // 48 * 48 if remainder == "drop" else total)
        steps.append([set().union(*batches) for batches in zip(*shares, strict=True)])
    assert all(other == steps[0] for other in steps)


def test_hosts_that_keep_the_remainder(tmp_path: Path) -> None:
    folder = write_dataset(tmp_path / "d", {"train": [48 * 4 + 40], "test": [48 * 4 + 2]}, image_size=(2, 2))
    shares = [
        numbers(folder, batch_size=48, remainder="keep", shuffle=True, num_hosts=4, host_index=host)
        for host in range(4)
    ]
    assert [len(share) for share in shares] == [5] * 4
    assert sorted(itertools.chain(*itertools.chain(*shares))) == list(range(232))
    with pytest.raises(UsageError, match=r'remainder="keep": 194 examples give the 4 hosts 4 to 5 batches'):
        load(folder, split="test", batch_size=48, remainder="keep", num_hosts=4)


@pytest.mark.parametrize("remainder", [None, "pad"])
def test_single_examples_of_several_hosts(dataset: tuple[Path, int], remainder: str | None) -> None:
    folder, total = dataset
    shares = []
    for host in range(4):
        options = {"shuffle": True, "num_hosts": 4, "host_index": host, "remainder": remainder, "output": "encoded"}
        elements = load(folder, split="train", **options)
        share = [int(label) for _, label, *weight in elements if not weight or weight[0]]
        assert elements.cardinality() == (total // 8 if remainder is None else -(-total // 8)) * 2
        shares.append(share)
    seen = [number for share in shares for number in share]
    assert len(seen) == len(set(seen)) == (total // 8 * 8 if remainder is None else total)


def test_input_context_names_the_host(dataset: tuple[Path, int]) -> None:
    folder, _ = dataset
    context = tf.distribute.InputContext(num_input_pipelines=2, input_pipeline_id=1)
    assert numbers(folder, batch_size=48, input_context=context) == numbers(
        folder, batch_size=48, num_hosts=2, host_index=1
    )


def test_order_does_not_depend_on_the_batch_size(dataset: tuple[Path, int]) -> None:
    folder, total = dataset
    orders = [list(itertools.chain(*numbers(folder, batch_size=size, shuffle=True, seed=3))) for size in (8, 400)]
    orders.append([int(label) for _, label in load(folder, split="train", shuffle=True, seed=3, output="encoded")])
    assert sorted(orders[0]) == list(range(total))
    assert orders[1:] == [orders[0]] * 2


@pytest.mark.parametrize(
    ("options", "starts"),
    [
        ({"remainder": "keep"}, lambda epoch: (1, 2 * epoch - 1)),
        ({"remainder": "pad"}, lambda epoch: (epoch, epoch + 3)),
        ({"num_hosts": 2, "host_index": 1}, lambda epoch: (2 * epoch + 7,)),
    ],
    ids=["keep", "pad", "second host"],
)
def test_start_step_goes_on_where_it_stopped(dataset: tuple[Path, int], options: dict[str, Any], starts: Any) -> None:
    options = {"batch_size": 48, "shuffle": True, "seed": 5, "epoch": 1, **options}
    whole = numbers(dataset[0], repeat=3, **options)
    epoch = len(whole) // 3
    for start in starts(epoch):
        elements = load(dataset[0], split="train", repeat=3, start_step=start, **options)
        assert elements.cardinality() == len(whole) - start
        assert numbers(dataset[0], repeat=3, start_step=start, **options) == whole[start:]
        rest = whole[start : (start // epoch + 1) * epoch]  # without repeat: of its epoch
        assert numbers(dataset[0], start_step=start, **options) == rest


def test_start_step_at_the_end_of_the_last_epoch_leaves_nothing(dataset: tuple[Path, int]) -> None:
    for options in ({"batch_size": 48}, {"batch_size": None}):
        steps = steps_per_epoch(dataset[0], split="train", **options)
        elements = load(dataset[0], split="train", repeat=3, start_step=3 * steps, **options)
        assert (elements.cardinality(), list(elements)) == (0, [])


def test_start_step_of_single_examples(tmp_path: Path) -> None:
    folder = write_dataset(tmp_path / "d", {"train": [29, 14]}, image_size=(2, 2))
    options = {"split": "train", "shuffle": True, "output": "encoded", "repeat": 2}
    whole = [int(label) for _, label in load(folder, **options)]
    assert len(whole) == 86
    for start in (7, 8, 42, 44, 85, 86):
        assert [int(label) for _, label in load(folder, start_step=start, **options)] == whole[start:]


def test_what_is_skipped_is_neither_opened_nor_decoded(tmp_path: Path) -> None:
    folder = write_dataset(tmp_path / "d", {"train": [WINDOW] * 8}, image_size=(2, 2))
    options = {"split": "train", "streams": 1, "batch_size": 64, "shuffle": True, "seed": 2}
    expected = [labels.tolist() for _, labels in load(folder, **options).as_numpy_iterator()][26:]
    elements = load(folder, start_step=26, **options)  # in the seventh shard of eight
    kept = {number // WINDOW for batch in expected for number in batch}
    for shard in sorted(folder.glob("*.tfrecord.gz")):
        if int(re.search(r"-(\d+)-of", shard.name)[1]) not in kept:
            shard.unlink()
    assert len(list(folder.glob("*.tfrecord.gz"))) == 2
    assert [labels.tolist() for _, labels in elements.as_numpy_iterator()] == expected


def test_streams_are_part_of_the_order(dataset: tuple[Path, int]) -> None:
    orders = {tuple(itertools.chain(*numbers(dataset[0], batch_size=48, streams=v, shuffle=True))) for v in (1, 8, 48)}
    assert len(orders) == 3
    assert all(sorted(order) == list(range(dataset[1])) for order in orders)


@pytest.mark.parametrize("counts", [[100], [3] * 33 + [1]], ids=["one shard", "34 shards"])
def test_slices_are_exact(tmp_path: Path, counts: list[int]) -> None:
    folder = write_dataset(tmp_path / "d", {"train": counts, "validation": [7]}, image_size=(2, 2))

    def of(split: str) -> list[int]:
        return sorted(itertools.chain(*numbers(folder, split=split, batch_size=8, shuffle=True)))

    assert of("train[:80%]") == list(range(80))
    assert of("train[80%:]") == list(range(80, 100))
    assert of("train[33%:66.5%]") == list(range(33, 66))
    assert of("train[-30:-20]") == of("train[-30%:80%]") == list(range(70, 80))
    assert of("validation[5:] + train[:3] + train[50:51]") == [0, 1, 2, 50, 105, 106]
    for split, message in {
        "train[:50%]+train[49:]": "has examples 49 to 49 of train twice",
        "train[50:50]": r"train\[50:50\] holds no example; train has 100",
        "train[:101]": "101 lies outside the 100 examples",
        "train[:x]": "'x' is neither a number of examples nor a percentage",
        "train[5]": r"there are: train, validation; write a name",
        "train+dev": "is not in .*; there are: train, validation$",
        "train[:0.4%]": "holds no example",
    }.items():
        with pytest.raises(UsageError, match=message):
            load(folder, split=split)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 50}, r"batch_size 50 is not a multiple of streams 8.* fits: 48 or 56, or give streams=5"),
        ({"batch_size": 1}, r"The nearest that fits: 8, or give streams=1"),
        ({"num_hosts": 3}, "num_hosts 3 does not divide streams 8, .* give streams=9"),
        ({"num_hosts": 2, "host_index": 2}, "host_index 2 must be below num_hosts, which is 2"),
        ({"num_hosts": 0}, "num_hosts must be a whole number from 1"),
        ({"streams": 0}, "streams must be a whole number from 1"),
        ({"start_step": -1}, "start_step must be a whole number from 0"),
        ({"repeat": 2, "batch_size": 8, "start_step": 13}, "start_step 13 lies behind the 10 steps of 2 epochs"),
        ({"remainder": "pad"}, 'remainder="pad" has no effect without batch_size'),
        (
            {"input_context": tf.distribute.InputContext(2, 0), "num_hosts": 2},
            "leave host_index and num_hosts out",
        ),
    ],
)
def test_wrong_shares_say_what_fits(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    folder = write_dataset(tmp_path / "d", {"train": [37]}, image_size=(2, 2))
    with pytest.raises(UsageError, match=message):
        load(folder, split="train", **options)
