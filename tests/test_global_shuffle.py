"""`shuffle="global"`: a permutation of the whole split for each epoch, of records that are read by themselves."""

from __future__ import annotations

import functools
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import beam_tfr
from beam_tfr import order
from beam_tfr.reader import load
from beam_tfr.records.tfrecords import RecordFile
from beam_tfr.schema.errors import DataError, UsageError
from beam_tfr.torch import ImageDataset
from tests.converted import converted, converted_sample
from tests.reader_fixtures import write_dataset

FLAGS = "--layout {split}/{label}/* --num_shards train=7,test=3,validation=2"
Numbers = dict[bytes, int]


@pytest.fixture(scope="module")
def folder() -> Path:
    return converted_sample(FLAGS)


@functools.cache
def numbers_of(folder: Path) -> Numbers:
    """Encoded image -> its number in train, in the order on disk."""
    return {
        image: number for number, (image, _) in enumerate(beam_tfr.Records(folder, split="train", output="encoded"))
    }


def flat(steps: list[list[int]]) -> list[int]:
    return [number for step in steps for number in step]


def by_tensorflow(folder: Path, **options: Any) -> list[list[int]]:
    """The number of each example of each step; `order.FILLER` for what only fills up a batch."""
    elements = load(folder, **{"split": "train", "shuffle": "global", "output": "encoded", **options})
    found = [
        [numbers_of(folder).get(image, order.FILLER) for image in np.ravel(images)]
        for images, *_ in elements.as_numpy_iterator()
    ]
    assert elements.cardinality() in (len(found), tf.data.INFINITE_CARDINALITY)
    return found


def by_torch(folder: Path, *, num_hosts: int = 1, host_index: int = 0, **options: Any) -> list[list[int]]:
    options = {"split": "train", "shuffle": "global", "output": "encoded", **options}
    dataset = ImageDataset(folder, world_size=num_hosts, rank=host_index, **options)
    return [
        [
            numbers_of(folder)[image] if not weights or weights[0][at] else order.FILLER
            for at, image in enumerate(images if isinstance(images, list) else [images])
        ]
        for images, _, *weights in dataset
    ]


def expected(folder: Path, *, seed: int, epoch: int, size: int, remainder: str = "keep") -> list[list[int]]:
    """The law, in three lines."""
    total = len(numbers_of(folder))
    positions = order.permutation(total, seed, epoch, order.GLOBAL).tolist()
    steps = [positions[at : at + size] for at in range(0, total, size)]
    if remainder == "pad":
        steps[-1] += [order.FILLER] * (size - len(steps[-1]))
    return steps[: total // size] if remainder == "drop" else steps


@pytest.mark.parametrize("read", [pytest.param(by_tensorflow, marks=pytest.mark.slow), by_torch])
def test_each_example_once_in_the_order_of_the_law(folder: Path, read: Any) -> None:
    total = len(numbers_of(folder))
    assert total > 40
    orders = []
    for seed, epoch in ((0, 0), (0, 1), (1, 0)):
        steps = read(folder, batch_size=8, seed=seed, epoch=epoch)
        assert steps == expected(folder, seed=seed, epoch=epoch, size=8)
        assert sorted(flat(steps)) == [*range(total)]
        orders.append(flat(steps))
        assert flat(read(folder, seed=seed, epoch=epoch)) == flat(steps)  # single examples
        assert flat(read(folder, batch_size=37, seed=seed, epoch=epoch)) == flat(steps)
    assert orders[0] != orders[1] != orders[2] != orders[0]


@pytest.mark.parametrize("read", [by_tensorflow, by_torch])
@pytest.mark.parametrize("remainder", ["drop", "pad"])
def test_two_hosts_share_the_steps_of_one(folder: Path, read: Any, remainder: str) -> None:
    steps = expected(folder, seed=3, epoch=2, size=16, remainder=remainder)
    options = {"batch_size": 16, "seed": 3, "epoch": 2, "remainder": remainder}
    assert len(steps) == len(load(folder, split="train", batch_size=16, remainder=remainder))
    assert read(folder, **options) == steps
    for host in (0, 1):
        assert read(folder, num_hosts=2, host_index=host, **options) == [step[host::2] for step in steps]


@pytest.mark.parametrize("read", [by_tensorflow, by_torch])
def test_resumes_at_a_step(folder: Path, read: Any) -> None:
    steps = expected(folder, seed=5, epoch=1, size=8)
    following = expected(folder, seed=5, epoch=2, size=8)
    assert read(folder, batch_size=8, seed=5, epoch=1, start_step=3) == steps[3:]
    assert read(folder, batch_size=8, seed=5, epoch=1, start_step=len(steps) + 2) == following[2:]


def test_epochs_in_a_row(folder: Path) -> None:
    epochs = [expected(folder, seed=5, epoch=epoch, size=8) for epoch in (0, 1, 2)]
    assert (
        by_tensorflow(folder, batch_size=8, seed=5, repeat=3, start_step=2) == [*epochs[0], *epochs[1], *epochs[2]][2:]
    )
    elements = load(folder, split="train", batch_size=8, seed=5, shuffle="global", output="encoded")
    for steps in epochs[:2]:  # without `repeat`, each iteration is the next epoch
        images = [image for batch, _ in elements.as_numpy_iterator() for image in batch]
        assert [numbers_of(folder)[image] for image in images] == flat(steps)


@pytest.mark.parametrize(
    "flags", [pytest.param("--encoding raw --resize stretch", marks=pytest.mark.slow), "--encoding webp --resize none"]
)
def test_gives_what_the_streams_give(flags: str) -> None:
    options: dict[str, Any] = {"split": "train", "output": "dict"}
    folder = converted(flags)
    by_key = [
        {element["image/filename"]: element["image"] for element in load(folder, shuffle=shuffle, **options)
         .as_numpy_iterator()}
        for shuffle in (True, "global")
    ]  # fmt: skip
    assert by_key[0].keys() == by_key[1].keys()
    for key, image in by_key[0].items():
        np.testing.assert_array_equal(by_key[1][key], image)


@pytest.mark.parametrize("read", [load, ImageDataset])
def test_what_does_not_go_with_it(folder: Path, tmp_path: Path, read: Any) -> None:
    options: dict[str, Any] = {"split": "train", "shuffle": "global"}
    with pytest.raises(UsageError, match='`streams=4`: has no effect with `shuffle="global"`, which reads each record'):
        read(folder, streams=4, **options)
    older = write_dataset(tmp_path / "d", {"train": [2, 3]}, image_size=(2, 2))
    with pytest.raises(DataError, match="copy contents/ too, or run `beam-tfr repair"):
        read(older, **options)


def test_damage_is_named(folder: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(folder, tmp_path / "d"))
    shard = sorted(copy.glob("d-train-*.gz"))[2]
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    with pytest.raises(tf.errors.InvalidArgumentError, match=rf"{shard.name}: record \d+ at byte \d+: "):
        list(load(copy, split="train", shuffle="global", batch_size=8))
    with pytest.raises(DataError, match=rf"{shard.name}: record \d+ at byte \d+: "):
        list(ImageDataset(copy, split="train", shuffle="global", batch_size=8))


def test_a_shard_that_changes_while_it_is_read_is_named(folder: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(folder, tmp_path / "d"))
    elements = load(copy, split="train", shuffle="global")
    shard = sorted(copy.glob("d-train-*.gz"))[-1]
    shard.unlink()
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"{shard.name} is missing"):
        list(elements)


@pytest.mark.slow
def test_a_process_that_stops_in_an_epoch_ends(folder: Path) -> None:
    program = (
        "import sys, time; from beam_tfr.dataset.lookup import Lookup; from beam_tfr.reader import load\n"
        "read = Lookup.read; Lookup.read = lambda *of: (time.sleep(0.1), read(*of))[1]  # some are running at the end\n"
        "batches = iter(load(sys.argv[1], split='train', batch_size=8, shuffle='global', repeat=True))\n"
        "print(len([next(batches) for _ in range(20)]))\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", program, folder], capture_output=True, text=True, timeout=120, check=False
    )
    assert (run.returncode, run.stdout) == (0, "20\n"), run.stderr


def test_numbers_are_those_of_records(folder: Path) -> None:
    every = [record for path in sorted(folder.glob("d-train-*.gz")) for record in RecordFile(str(path))]
    assert list(beam_tfr.Records(folder, split="train", output="raw_record")) == every
    positions = order.permutation(len(every), 9, 0, order.GLOBAL)
    found = load(folder, split="train", shuffle="global", seed=9, output="raw_record").as_numpy_iterator()
    assert list(found) == [every[number] for number in positions]
