"""`shuffle="global"` permutes the whole split for each epoch.

Records are read by themselves.
"""

from __future__ import annotations

import functools
import shutil
from pathlib import Path
from typing import Any

import pytest

import beam_tfr
from beam_tfr import order
from beam_tfr.reader import load
from beam_tfr.records.tfrecords import RecordFile
from beam_tfr.schema.errors import DataError, UsageError
from beam_tfr.torch import ImageDataset
from tests.converted import converted_sample
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
        image: number
        for number, (image, _) in enumerate(
            beam_tfr.Records(folder, split="train", output="encoded")
        )
    }


def flat(steps: list[list[int]]) -> list[int]:
    return [number for step in steps for number in step]


def by_torch(
    folder: Path, *, num_hosts: int = 1, host_index: int = 0, **options: Any
) -> list[list[int]]:
    options = {"split": "train", "shuffle": "global", "output": "encoded", **options}
    dataset = ImageDataset(folder, world_size=num_hosts, rank=host_index, **options)
    return [
        [
            numbers_of(folder)[image] if not weights or weights[0][at] else order.FILLER
            for at, image in enumerate(images if isinstance(images, list) else [images])
        ]
        for images, _, *weights in dataset
    ]


def expected(
    folder: Path, *, seed: int, epoch: int, size: int, remainder: str = "keep"
) -> list[list[int]]:
    """The law, in three lines."""
    total = len(numbers_of(folder))
    positions = order.permutation(total, seed, epoch, order.WHOLE_SPLIT).tolist()
    steps = [positions[at : at + size] for at in range(0, total, size)]
    if remainder == "pad":
        steps[-1] += [order.FILLER] * (size - len(steps[-1]))
    return steps[: total // size] if remainder == "drop" else steps


def test_each_example_once_in_the_order_of_the_law(folder: Path) -> None:
    total = len(numbers_of(folder))
    assert total > 40
    orders = []
    for seed, epoch in ((0, 0), (0, 1), (1, 0)):
        steps = by_torch(folder, batch_size=8, seed=seed, epoch=epoch)
        assert steps == expected(folder, seed=seed, epoch=epoch, size=8)
        assert sorted(flat(steps)) == [*range(total)]
        orders.append(flat(steps))
        assert flat(by_torch(folder, seed=seed, epoch=epoch)) == flat(steps)  # single examples
        assert flat(by_torch(folder, batch_size=37, seed=seed, epoch=epoch)) == flat(steps)
    assert orders[0] != orders[1] != orders[2] != orders[0]


@pytest.mark.parametrize("remainder", ["drop", "pad"])
def test_two_hosts_share_the_steps_of_one(folder: Path, remainder: str) -> None:
    steps = expected(folder, seed=3, epoch=2, size=16, remainder=remainder)
    options = {"batch_size": 16, "seed": 3, "epoch": 2, "remainder": remainder}
    assert len(steps) == len(load(folder, split="train", batch_size=16, remainder=remainder))
    assert by_torch(folder, **options) == steps
    for host in (0, 1):
        assert by_torch(folder, num_hosts=2, host_index=host, **options) == [
            step[host::2] for step in steps
        ]


def test_resumes_at_a_step(folder: Path) -> None:
    steps = expected(folder, seed=5, epoch=1, size=8)
    following = expected(folder, seed=5, epoch=2, size=8)
    assert by_torch(folder, batch_size=8, seed=5, epoch=1, start_step=3) == steps[3:]
    assert (
        by_torch(folder, batch_size=8, seed=5, epoch=1, start_step=len(steps) + 2) == following[2:]
    )


def test_what_does_not_go_with_it(folder: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"split": "train", "shuffle": "global"}
    with pytest.raises(
        UsageError,
        match='`streams=4`: has no effect with `shuffle="global"`, which reads records',
    ):
        ImageDataset(folder, streams=4, **options)
    older = write_dataset(tmp_path / "d", {"train": [2, 3]}, image_size=(2, 2))
    with pytest.raises(DataError, match="copy contents/ too, or run `beam-tfr repair"):
        ImageDataset(older, **options)


def test_damage_is_named(folder: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(folder, tmp_path / "d"))
    shard = sorted(copy.glob("d-train-*.gz"))[2]
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    with pytest.raises(DataError, match=rf"{shard.name}: record \d+ at byte \d+: "):
        list(ImageDataset(copy, split="train", shuffle="global", batch_size=8))


def test_numbers_are_those_of_records(folder: Path) -> None:
    every = [
        record for path in sorted(folder.glob("d-train-*.gz")) for record in RecordFile(str(path))
    ]
    assert list(beam_tfr.Records(folder, split="train", output="raw_record")) == every


def test_load_says_who_reads_in_this_order(folder: Path) -> None:
    with pytest.raises(UsageError, match=r"True or False: .*, and only `ImageDataset` accepts"):
        load(folder, split="train", shuffle="global")  # type: ignore[arg-type]
