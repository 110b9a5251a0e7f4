"""What is remembered is not read again."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import simplejpeg

from beam_tfr.reader import load
from beam_tfr.schema import UsageError
from tests.reader_fixtures import encode, photo, write_dataset

COUNT = 600


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dataset(tmp_path_factory.mktemp("data") / "d", {"train": [40] * 15}, image_size=(4, 4))


@pytest.fixture
def dataset(written: Path, tmp_path: Path) -> Path:
    """Photos 0 to 599, to take away."""
    return Path(shutil.copytree(written, tmp_path / "d"))


def without_shards(folder: Path) -> None:
    for shard in folder.glob("*.tfrecord.gz"):
        shard.unlink()


@pytest.mark.parametrize(("where", "decoded"), [("memory", True), ("folder", False)])
def test_second_epoch_reads_nothing(dataset: Path, tmp_path: Path, where: str, decoded: bool) -> None:
    cache = "memory" if where == "memory" else tmp_path / "cache"
    options = {"split": "train", "batch_size": 64, "shuffle": True, "seed": 3, "remainder": "pad", "streams": 2}
    expected = [simplejpeg.decode_jpeg(encode(photo(number, 4, 4), "jpeg")) for number in range(COUNT)]
    elements = load(dataset, cache=cache, cache_decoded=decoded, **options)
    orders = []
    for _ in range(2):
        order = []
        for images, labels, weights in elements.as_numpy_iterator():
            real = labels[weights == 1].tolist()
            np.testing.assert_array_equal(images[weights == 1], [expected[number] for number in real])
            order += real
        assert sorted(order) == list(range(COUNT))
        orders.append(order)
        without_shards(dataset)
    assert orders[0] != orders[1]


def test_repeated_epochs_read_nothing(dataset: Path) -> None:
    elements = iter(
        load(
            dataset,
            split="train",
            batch_size=24,
            shuffle=True,
            cache="memory",
            repeat=True,
            streams=2,
            output="encoded",
        )
    )
    for _ in range(3):
        epoch = [number for _ in range(25) for number in next(elements)[1].numpy().tolist()]
        assert sorted(epoch) == list(range(COUNT))
        without_shards(dataset)


def test_resumed_epoch_fills_it_and_goes_on_in_the_same_order(dataset: Path) -> None:
    start_step = 11
    options = {"split": "train", "batch_size": 32, "remainder": "drop", "shuffle": True, "seed": 4}
    options |= {"cache": "memory", "streams": 2, "output": "encoded"}
    whole = [labels.numpy().tolist() for _, labels in load(dataset, repeat=2, **options)]
    assert len(whole) == 36
    elements = iter(load(dataset, repeat=2, start_step=start_step, **options))
    found = [next(elements)[1].numpy().tolist() for _ in range(20 - start_step)]
    without_shards(dataset)
    found += [labels.numpy().tolist() for _, labels in elements]
    assert found == whole[start_step:]


def test_hosts_remember_their_own(dataset: Path) -> None:
    options = {"split": "train", "batch_size": 24, "shuffle": True, "cache": "memory", "repeat": 2, "streams": 2}
    elements = load(dataset, num_hosts=2, host_index=1, output="encoded", **options)
    seen = [number for _, labels in elements for number in labels.numpy().tolist()]
    assert sorted(seen[:300]) == sorted(seen[300:]) == list(range(300, COUNT))
    assert seen[:300] != seen[300:]


def test_another_dataset_never_takes_its_files(tmp_path: Path) -> None:
    for name, count in (("a", 16), ("b", 24)):
        folder = write_dataset(tmp_path / name, {"train": [count]}, image_size=(2, 2))
        elements = load(folder, split="train", cache=tmp_path / "cache", output="encoded", streams=1)
        for _ in range(2):
            assert sorted(int(label) for _, label in elements) == list(range(count))


def test_what_iterates_while_another_fills_it_reads_for_itself(dataset: Path, tmp_path: Path) -> None:
    options = {"split": "train", "batch_size": 24, "cache": tmp_path / "cache", "cache_decoded": True, "streams": 1}
    elements = load(dataset, **options)
    whole = [labels.numpy().tolist() for _, labels in load(dataset, **options | {"cache": "memory"})]
    first = iter(elements)
    found = [next(first)[1].numpy().tolist()]
    for other in (elements, load(dataset, **options)):
        assert [labels.numpy().tolist() for _, labels in other] == whole
    assert [*(tmp_path / "cache").glob("*.lockfile")]
    assert found + [labels.numpy().tolist() for _, labels in first] == whole
    without_shards(dataset)
    assert [labels.numpy().tolist() for _, labels in elements] == whole


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cache": True}, '`cache=True`: must be False, "memory" or a folder on a local disk'),
        ({"cache": "gs://bucket/d"}, "`cache=gs://bucket/d`: only a local disk is faster"),
        ({"cache_decoded": True}, "`cache_decoded=True`: has no effect without `cache="),
        (
            {"cache": "memory", "cache_decoded": True, "output": "encoded"},
            '`cache_decoded=True`: `output="encoded"` decodes nothing',
        ),
        (
            {"cache": "memory", "cache_decoded": True, "image_size": (2, 2), "crop": "random"},
            "would have the same parts of `crop=",
        ),
    ],
    ids=str,
)
def test_wrong_calls(dataset: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        load(dataset, split="train", **options)


KILLED = """
import os, sys
from beam_tfr.reader import load
for number, _ in enumerate(load(sys.argv[1], split="train", batch_size=40, cache=sys.argv[2], streams=2)):
    if number == 3:
        os._exit(9)
"""


@pytest.mark.slow
def test_what_a_killed_process_left_does_no_harm(dataset: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    command = [sys.executable, "-c", KILLED, str(dataset), str(cache)]
    run = subprocess.run(command, stderr=subprocess.DEVNULL, timeout=120, check=False)
    assert run.returncode == 9
    assert [*cache.glob("*.lockfile")]
    elements = load(dataset, split="train", batch_size=40, cache=cache, streams=2)
    for _ in range(2):
        assert sorted(number for _, labels in elements for number in labels.numpy()) == list(range(COUNT))
        without_shards(dataset)
