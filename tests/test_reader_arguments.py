"""Both readers check the arguments that they share, and say what is allowed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from beam_tfr.reader import load
from beam_tfr.schema.dataset import MANIFEST_FILE
from beam_tfr.schema.errors import DataError, UsageError
from beam_tfr.torch import ImageDataset
from tests.reader_fixtures import write_dataset


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dataset(
        tmp_path_factory.mktemp("data") / "d", {"train": [20, 17], "test": [4]}, image_size=(2, 2)
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"split": "trian"}, r"`split=trian`: is not in .*; the splits are: test, train$"),
        (
            {"split": None},
            r'`split=None`: must be a string: specify one split \("train"\), .* or '
            r"a slice",
        ),
        ({"split": ["train"]}, r"`split=\['train'\]`: must be a string: specify one split"),
        ({"batch_size": 0}, "`batch_size=0`: must be a whole number from 1 to 2147483647"),
        (
            {"batch_size": 40, "remainder": "drop"},
            "`remainder=drop`: leaves no complete step of 40 from 37 examples",
        ),
        (
            {"batch_size": 8, "remainder": "fill"},
            '''`remainder='fill'`: must be None, "keep", "drop" or "pad"''',
        ),
        ({"shuffle": 1024}, "`shuffle=1024`: must be True or False: there is no shuffle buffer"),
        ({"seed": -1}, "`seed=-1`: must be a whole number from 0 to 9223372036854775807"),
        ({"seed": 1 << 63}, "`seed=9223372036854775808`: must be a whole number from 0"),
        ({"epoch": "1"}, "`epoch='1'`: must be a whole number from 0 to 2147483647"),
        ({"start_step": -1}, "`start_step=-1`: must be a whole number from 0"),
        ({"streams": 0}, "`streams=0`: must be a whole number from 1"),
        ({"output": "pairs"}, '`output=\'pairs\'`: must be "pair", "dict", "image"'),
        ({"one_hot": 1}, "`one_hot=1`: must be True or False"),
    ],
    ids=str,
)
@pytest.mark.parametrize("read", [load, ImageDataset])
def test_wrong_calls_say_what_is_allowed(
    folder: Path, read: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError) as error:
        read(folder, **{"split": "train", **options})
    assert re.search(message, str(error.value)), error.value


@pytest.mark.parametrize("read", [load, ImageDataset])
@pytest.mark.parametrize(
    ("arguments", "named"),
    [(["d", "train"], {}), (["d"], {}), (["d"], {"split": "train", "batchsize": 8})],
)
def test_calls_that_do_not_fit_are_pythons_own_errors(
    read: Any, arguments: list[str], named: dict[str, Any]
) -> None:
    with pytest.raises(
        TypeError, match=r"positional arguments? but|required keyword-only|unexpected keyword"
    ):
        read(*arguments, **named)


@pytest.mark.parametrize("read", [load, ImageDataset])
def test_incomplete_datasets(tmp_path: Path, read: Any) -> None:
    with pytest.raises(
        UsageError, match=r"s3://bucket/d.*: only local paths and gs:// are supported"
    ):
        read("s3://bucket/d", split="train")
    folder = write_dataset(tmp_path / "d", {"train": [3, 3], "test": [1]}, image_size=(2, 2))
    shard = folder / "d-train-00001-of-00002.tfrecord.gz"
    data = shard.read_bytes()
    shard.write_bytes(data[:-1])
    with pytest.raises(
        DataError,
        match=rf"{shard} has {len(data) - 1} bytes instead of {len(data)}: run `beam-tfr repair` "
        rf"on its folder, with",
    ):
        read(folder, split="train")
    shard.unlink()
    with pytest.raises(
        DataError, match=rf"{shard} is missing: run `beam-tfr repair` on its folder, with"
    ):
        read(folder, split="train")
    read(folder, split="test")  # its own shards are all there
    (folder / MANIFEST_FILE).unlink()
    with pytest.raises(DataError, match=r"is not a complete dataset: .*manifest\.json is missing"):
        read(folder, split="test")


@pytest.mark.slow
def test_the_number_of_steps_is_that_of_both(folder: Path) -> None:
    for batch_size, remainder, num_hosts, steps in (
        (None, None, 1, 37),
        (None, None, 2, 18),
        (None, "pad", 2, 19),
        (10, None, 1, 4),
        (10, None, 2, 3),
        (10, "pad", 2, 4),
        (10, "keep", 2, 4),
        (37, "drop", 1, 1),
    ):
        options: dict[str, Any] = {
            "split": "train",
            "batch_size": batch_size,
            "remainder": remainder,
        }
        assert len(load(folder, num_hosts=num_hosts, host_index=0, **options)) == steps
        dataset = ImageDataset(folder, rank=num_hosts - 1, world_size=num_hosts, **options)
        assert len(dataset) == dataset.steps_per_epoch == steps
    elements = load(
        folder,
        split="train",
        batch_size=np.int64(10),
        num_hosts=2,
        host_index=0,
        seed=np.uint8(3),
        repeat=3,
    )
    assert elements.cardinality() == 9
    for options, message in (
        ({"batch_size": 0}, "`batch_size=0`"),
        ({"remainder": "fill"}, "`remainder='fill'`"),
    ):
        with pytest.raises(UsageError, match=message):
            load(folder, split="train", **options)


@pytest.mark.parametrize("reader", [load, ImageDataset])
def test_links_are_followed_as_in_the_caches_of_hubs(reader: Any, tmp_path: Path) -> None:
    folder = write_dataset(tmp_path / "there", {"train": (6, 2)})
    (tmp_path / "link").symlink_to("there")
    reader(str(tmp_path / "link"), split="train", batch_size=2)
    for name in ("d-train-00001-of-00002.tfrecord.gz", MANIFEST_FILE):
        (folder / name).rename(tmp_path / name)
        (folder / name).symlink_to(f"../{name}")
    assert len(list(reader(str(folder), split="train", batch_size=2))) == 4


@pytest.mark.parametrize("reader", [load, ImageDataset])
def test_what_a_terminal_would_obey_is_escaped_in_errors(reader: Any, tmp_path: Path) -> None:
    folder = write_dataset(tmp_path / "\u202egpj", {"train": (6, 2)})
    with pytest.raises(UsageError) as error:
        reader(str(folder), split="tr\x1b[2J\u200bain\n", batch_size=2)
    assert str(error.value).startswith("`split=tr\\x1b[2J\\u200bain\\n`: is not in ")
    assert str(error.value).isprintable()
