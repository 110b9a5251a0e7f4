"""Reading through a tf.data service: a dispatcher and two workers, in a process of their own."""

from __future__ import annotations

import collections
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from beam_tfr.reader import load
from beam_tfr.schema import UsageError
from tests.reader_fixtures import add_lists, write_dataset

pytestmark = pytest.mark.slow

SERVERS = """
from tensorflow.data.experimental import service
dispatcher = service.DispatchServer(service.DispatcherConfig(port=0))
there = dispatcher.target.removeprefix("grpc://")
workers = [service.WorkerServer(service.WorkerConfig(there, heartbeat_interval_ms=100)) for _ in range(2)]
print(dispatcher.target, len({worker._address for worker in workers}), flush=True)
dispatcher.join()
"""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Of the dispatcher: grpc://localhost:PORT."""
    command = [sys.executable, "-c", SERVERS]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        target, workers = process.stdout.readline().split()
        assert target.startswith("grpc://")
        assert workers == "2"
        yield target
    finally:
        process.kill()
        process.wait(10)


def batches(folder: Path, address: str, **options: Any) -> list[list[int]]:
    """The numbers of the examples of each batch."""
    elements = load(folder, split="train", service=address, deterministic=False, **options)
    found = [labels.tolist() for _, labels in elements.as_numpy_iterator()]
    assert elements.cardinality() == len(found)
    return found


@pytest.mark.parametrize("counts", [[1003], [8 + number % 7 for number in range(20)]], ids=len)
def test_only_the_remainder_of_an_epoch_is_missing(tmp_path: Path, address: str, counts: list[int]) -> None:
    folder, total = write_dataset(tmp_path / "d", {"train": counts}, image_size=(2, 2)), sum(counts)
    steps = -(-total // 40)
    assert total % 40
    kept = batches(folder, address, batch_size=40, repeat=2, shuffle=True)
    assert [len(batch) for batch in kept] == [*[40] * (steps - 1), total % 40] * 2
    for epoch in (kept[:steps], kept[steps:]):
        assert sorted(number for batch in epoch for number in batch) == list(range(total))


def test_a_remainder_is_dropped(tmp_path: Path, address: str) -> None:
    folder = write_dataset(tmp_path / "d", {"train": [20, 31]}, image_size=(2, 2))
    dropped = [number for batch in batches(folder, address, batch_size=10, remainder="drop") for number in batch]
    assert len(dropped) == len(set(dropped)) == 50


def test_single_examples_are_the_same_as_without(tmp_path: Path, address: str) -> None:
    folder = write_dataset(tmp_path / "d", {"train": [20, 3]})
    with_service = load(folder, split="train", service=address, deterministic=False)
    expected = {int(label): image for image, label in load(folder, split="train").as_numpy_iterator()}
    seen = collections.Counter()
    for image, label in with_service.as_numpy_iterator():
        np.testing.assert_array_equal(image, expected[int(label)])
        seen[int(label)] += 1
    assert seen == dict.fromkeys(range(23), 1)


@pytest.mark.parametrize("options", [{"output": "dict"}, {"image_size": (4, 4), "crop": "random"}], ids=str)
def test_outputs(tmp_path: Path, address: str, options: dict[str, Any]) -> None:
    folder = write_dataset(tmp_path / "d", {"train": [10]})
    options = {"split": "train", "batch_size": 10, **options}
    (with_service,) = load(folder, service=address, deterministic=False, **options)
    (without,) = load(folder, **options)

    def lines(element: Any) -> list[bytes]:
        columns = [column.numpy() for column in tf.nest.flatten(element)]
        return sorted(
            b"".join(
                np.asarray(cell).tobytes() if cell.ndim else bytes(str(cell), "utf8") for cell in map(np.asarray, row)
            )
            for row in zip(*columns, strict=True)
        )

    assert lines(with_service) == lines(without)


def test_damage_is_named(tmp_path: Path, address: str) -> None:
    folder = write_dataset(tmp_path / "d", {"train": [10]}, compression="none")
    elements = load(folder, split="train", batch_size=8, service=address, deterministic=False)
    (shard,) = folder.glob("*.tfrecord")
    shard.write_bytes(shard.read_bytes()[:-1])
    with pytest.raises(tf.errors.InvalidArgumentError, match=rf"{shard} is damaged from record 9"):
        list(elements)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"service": "localhost:5000"},
            '`service=.*: must be the address of a dispatcher, such as "grpc://localhost:5000"',
        ),
        ({"deterministic": True}, "`deterministic=True`: cannot be combined with `service=`: .* give False"),
        ({"start_step": 3}, "`start_step=.*`: cannot be combined with `service=`"),
        ({"repeat": True}, "`repeat=True`: cannot be combined with `service=`: give a number of epochs"),
        ({"remainder": "pad", "batch_size": 8}, "`remainder=pad`: cannot be combined with `service=`"),
        ({"on_error": "skip"}, "`on_error=skip`: cannot be combined with `service=`"),
        ({"num_hosts": 2, "host_index": 0}, "`num_hosts=.*`: cannot be combined with `service=`"),
        ({"cache": "memory"}, "`cache=.*`: cannot be combined with `service=`"),
        ({"sizes": "ragged"}, "`sizes=ragged`: cannot be combined with `service=`"),
    ],
    ids=str,
)
def test_what_cannot_be_had(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    folder = write_dataset(tmp_path / "d", {"train": [10]})
    with pytest.raises(UsageError, match=message):
        load(folder, split="train", **{"service": "grpc://localhost:1", "deterministic": False, **options})


def test_lists_cannot_be_had(tmp_path: Path) -> None:
    folder = write_dataset(tmp_path / "d", {"train": [10]})
    add_lists(folder, {"ids": lambda number: [number]})
    with pytest.raises(UsageError, match="`service=` cannot batch lists of varying length"):
        load(folder, split="train", output="dict", service="grpc://localhost:1", deterministic=False)
