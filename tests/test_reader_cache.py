"""What is remembered is not read again."""

from __future__ import annotations

import itertools
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


def test_second_epoch_reads_nothing(dataset: Path, tmp_path: Path) -> None:
    options = {"split": "train", "batch_size": 64, "shuffle": True, "seed": 3, "remainder": "pad", "streams": 2}
    expected = [simplejpeg.decode_jpeg(encode(photo(number, 4, 4), "jpeg")) for number in range(COUNT)]
    elements = load(dataset, cache=tmp_path / "cache", **options)
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
    options = {"split": "train", "batch_size": 24, "shuffle": True, "streams": 2}
    elements = iter(load(dataset, repeat=True, cache="memory", cache_decoded=True, **options))
    expected = [simplejpeg.decode_jpeg(encode(photo(number, 4, 4), "jpeg")) for number in range(COUNT)]
    for _ in range(3):
        epoch = []
        for images, labels in itertools.islice(elements, 25):
            np.testing.assert_array_equal(images, [expected[number] for number in labels.numpy()])
            epoch += labels.numpy().tolist()
        assert sorted(epoch) == list(range(COUNT))
        without_shards(dataset)


def test_hosts_remember_their_own_and_a_resumed_epoch_goes_on_in_the_same_order(dataset: Path) -> None:
    start_step = 11
    options = {
        "split": "train",
        "batch_size": 24,
        "shuffle": True,
        "seed": 4,
        "repeat": 2,
        "num_hosts": 2,
        "host_index": 0,
    }
    options |= {"host_index": 1, "cache": "memory", "streams": 2, "output": "encoded"}
    whole = [labels.numpy().tolist() for _, labels in load(dataset, **options)]
    epochs = [[number for batch in half for number in batch] for half in (whole[:25], whole[25:])]
    assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(300, COUNT))
    assert epochs[0] != epochs[1]
    elements = iter(load(dataset, start_step=start_step, **options))
    found = [next(elements)[1].numpy().tolist() for _ in range(27 - start_step)]
    without_shards(dataset)
    found += [labels.numpy().tolist() for _, labels in elements]
    assert found == whole[start_step:]


def test_another_dataset_never_takes_its_files(tmp_path: Path) -> None:
    for name, count in (("a", 16), ("b", 24)):
        folder = write_dataset(tmp_path / name, {"train": [count]}, image_size=(2, 2))
        elements = load(folder, split="train", cache=tmp_path / "cache", output="encoded", streams=1)
        assert [int(label) for _, label in elements] == list(range(count))


def test_what_iterates_while_another_fills_it_reads_for_itself(dataset: Path, tmp_path: Path) -> None:
    options = {"split": "train", "batch_size": 24, "cache": tmp_path / "cache", "cache_decoded": True, "streams": 1}
    elements = load(dataset, **options)
    whole = np.arange(COUNT).reshape(-1, 24).tolist()
    first = iter(elements)
    found = [next(first)[1].numpy().tolist()]
    assert [labels.numpy().tolist() for _, labels in load(dataset, **options)] == whole
    assert [*(tmp_path / "cache").glob("*.lockfile")]
    assert found + [labels.numpy().tolist() for _, labels in first] == whole
    without_shards(dataset)
    assert [labels.numpy().tolist() for _, labels in elements] == whole


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cache": True}, '`cache=True`: must be False, "memory" or a folder on a local disk'),
        ({"cache": "gs://bucket/d"}, "`cache=gs://bucket/d`: must be on a local disk"),
        ({"cache_decoded": True}, "`cache_decoded=True`: has no effect without `cache="),
        (
            {"cache": "memory", "cache_decoded": True, "output": "encoded"},
            '`cache_decoded=True`: `output="encoded"` decodes nothing',
        ),
        (
            {"cache": "memory", "cache_decoded": True, "image_size": (2, 2), "crop": "random"},
            "would get the same random crops",
        ),
    ],
    ids=str,
)
def test_wrong_calls(written: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        load(written, split="train", **options)


KILLED = """
import os, sys
from beam_tfr.reader import load
for _ in load(sys.argv[1], split="train", batch_size=40, cache=sys.argv[2], streams=2):
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
