"""A dataset with rejects, and its sources, as fixtures."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.converted import converted_spoiled_photos, spoil

TEST_0, TEST_1 = (f"d-test-0000{i}-of-00002.tfrecord.gz" for i in range(2))
TRAIN = [f"d-train-0000{i}-of-00003.tfrecord.gz" for i in range(3)]


def flip(shard: Path) -> None:
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """12 records in train, in 3 shards, 6 in test, in 2, and 7 rejects."""
    return Path(shutil.copytree(converted_spoiled_photos(), tmp_path / "dataset"))


@pytest.fixture
def sources(photos: Path) -> Path:
    """What `dataset` was made from."""
    spoil(photos)
    return photos
