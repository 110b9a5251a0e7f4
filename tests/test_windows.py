"""How many records the readers shuffle together, and how much memory these may take."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from beam_tfr.dataset import windows
from beam_tfr.dataset.manifest import read_manifest
from beam_tfr.dataset.splits import select_examples
from beam_tfr.dataset.windows import choose_window
from beam_tfr.reader import load, streams
from beam_tfr.schema.errors import DataError
from beam_tfr.torch import ImageDataset
from beam_tfr.torch import streams as torch_streams
from tests.reader_fixtures import encode, photo, write_dataset

KILOBYTE = bytes(1 << 10)


def window_of(folder: Path, *, num_streams: int = 8) -> int:
    dataset = read_manifest(str(folder))
    return choose_window(dataset, select_examples(dataset, "train").parts, num_streams)


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """300 records of 2.2 kB in two shards, without compression."""
    photos = [encode(photo(number), "jpeg") + KILOBYTE for number in range(300)]
    folder = tmp_path_factory.mktemp("few") / "d"
    return write_dataset(folder, {"train": [200, 100]}, photos=photos, compression="none")


@pytest.fixture(scope="module")
def deflated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """64 records of 103 kB in one file of 30 kB, although its manifest states stored blocks."""
    photos = [encode(photo(number), "jpeg") + KILOBYTE * 100 for number in range(64)]
    return write_dataset(tmp_path_factory.mktemp("f") / "d", {"train": [64]}, photos=photos)


@pytest.mark.parametrize(
    ("room", "num_streams", "window"),
    [
        (512 << 20, 8, 256),
        (700_000, 8, 256),  # there are only 300 records
        (300_000, 8, 16),  # 128 x 2.2 kB
        (300_000, 2, 64),
        (100, 8, 1),
    ],
)
def test_large_records_are_shuffled_in_smaller_windows(
    few: Path,
    room: int,
    num_streams: int,
    window: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(windows, "WINDOW_BYTES", room)
    caplog.set_level(logging.INFO, windows.__name__)
    assert window_of(few, num_streams=num_streams) == window
    told = f"so {window * num_streams} instead of {256 * num_streams} are shuffled together"
    assert [told in record.message for record in caplog.records] == [True] * (window < 256)


def test_the_end_of_a_compressed_shard_shows_the_memory(
    deflated: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(windows, "WINDOW_BYTES", 1 << 20)
    assert window_of(deflated) == 256  # stored blocks are as long as the records
    dataset = read_manifest(str(deflated))
    monkeypatch.setitem(dataset.options, "gzip_level", 3)  # type: ignore[arg-type]
    parts = select_examples(dataset, "train").parts
    assert choose_window(dataset, parts, 8) == 1  # 8 x 103 kB
    gone = [part._replace(file=f"{deflated}/gone") for part in parts]
    assert choose_window(dataset, gone, 8) == 256  # reading them reports the damage


def test_both_readers_have_the_same_order_in_small_windows(
    few: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def labels(elements: Any) -> list[int]:
        return [int(label) for _, batch in elements for label in np.ravel(batch)]

    options: dict[str, Any] = {"split": "train", "batch_size": 10, "shuffle": True, "seed": 3}
    orders = [labels(ImageDataset(few, **options))]
    for room in (300_000, 40_000, 5_000):  # windows of 16, 2 and 1
        monkeypatch.setattr(windows, "WINDOW_BYTES", room)
        order = labels(ImageDataset(few, **options))
        assert sorted(order) == [*range(300)]
        assert labels(load(few, **options, epoch=0)) == order
        assert labels(load(few, **options, start_step=20)) == order[200:]
        assert labels(load(few, **options, host_index=1, num_hosts=2)) == order[1::2]
        assert order not in orders
        orders.append(order)


@pytest.mark.parametrize("shuffle", [False, True])
def test_records_that_take_too_much_memory_are_refused(
    deflated: Path, shuffle: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "MOST_WINDOW_BYTES", 3 << 20)
    monkeypatch.setattr(torch_streams, "MOST_WINDOW_BYTES", 3 << 20)
    refused = f"{deflated}/d-train-00000-of-00001.tfrecord.gz: the records around number [0-9]+ "
    refused += "are too large: .* more than 1 GiB of memory"
    with pytest.raises(DataError, match=refused):
        list(ImageDataset(deflated, split="train", shuffle=shuffle, output="encoded"))
    with pytest.raises(tf.errors.InvalidArgumentError, match=refused):
        list(load(deflated, split="train", shuffle=shuffle, output="encoded"))
