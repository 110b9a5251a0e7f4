"""Damage: named with file and record; never short in silence."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from beam_tfr.reader import load
from beam_tfr.reader.streams import COMPRESSIONS, read_part
from beam_tfr.records.tfrecords import RecordFile
from beam_tfr.schema.errors import UsageError
from beam_tfr.schema.feature_names import ENCODED, LABEL
from tests.reader_fixtures import edit_records, write_dataset

COUNT = 5


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """Records 0 to 39 in two shards.

    In the second, 24 is cut off within the image, 31 has a label beyond the list.
    """
    folder = write_dataset(tmp_path / "d", {"train": [20, 20]})

    def damage(number: int, example: tf.train.Example) -> None:
        if number == 4:
            image = example.features.feature[ENCODED].bytes_list.value
            image[0] = image[0][:200]
        elif number == 11:
            example.features.feature[LABEL].int64_list.value[0] = 40

    edit_records(folder / "d-train-00001-of-00002.tfrecord.gz", damage)
    return folder


@pytest.mark.parametrize("compression", ["gzip", "none"])
def test_no_truncation_reads_short(tmp_path: Path, compression: str) -> None:
    whole_file = tmp_path / "whole"
    records = [bytes([number]) * (5 + 7 * number) for number in range(COUNT)]
    with tf.io.TFRecordWriter(str(whole_file), COMPRESSIONS[compression]) as writer:
        for record in records:
            writer.write(record)
    data = whole_file.read_bytes()
    copies = []
    for length in range(len(data)):
        copies.append(tmp_path / f"{length:05d}")
        copies[-1].write_bytes(data[:length])
    whole = [count_of(copy) for copy in copies]
    # then only the trailer is missing
    assert set(whole) == set(range(COUNT + (compression == "gzip")))
    files = tf.data.Dataset.from_tensor_slices([str(copy) for copy in copies])
    for skip in (0, 2):
        read = functools.partial(
            read_part, skip=skip, take=COUNT - skip, compression=COMPRESSIONS[compression]
        )
        found = list(files.flat_map(read).as_numpy_iterator())
        assert len(found) == len(copies) * (COUNT - skip)
        for number, (length, count) in enumerate(zip(range(len(data)), whole, strict=True)):
            expected = [record if index < count else b"" for index, record in enumerate(records)][
                skip:
            ]
            assert found[number * (COUNT - skip) : (number + 1) * (COUNT - skip)] == expected, (
                length
            )


def test_shard_that_reads_short_or_has_gone_is_named(tmp_path: Path) -> None:
    folder = write_dataset(tmp_path / "d", {"train": [10, 10]}, compression="none")
    elements = load(folder, split="train", batch_size=8)
    shard = folder / "d-train-00001-of-00002.tfrecord"
    data = shard.read_bytes()
    # the first record and its frame
    shard.write_bytes(data[: int.from_bytes(data[:8], "little") + 16])
    message = (
        rf"{shard} is damaged from record 1 on \(counted from 0\); .*verify` names the "
        rf"cause; run `beam-tfr repair"
    )
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        list(elements)
    shard.unlink()
    with pytest.raises(tf.errors.NotFoundError, match=shard.name):
        list(elements)


def count_of(shard: Path) -> int:
    """How many records can be read of a file that is cut off."""
    records = RecordFile(str(shard))
    found = 0
    try:
        for _ in records:
            found += 1
    except Exception:
        return found
    return found


@pytest.mark.slow
def test_what_does_not_decode_is_named(damaged: Path) -> None:
    shard = damaged / "d-train-00001-of-00002.tfrecord.gz"
    with pytest.raises(tf.errors.InvalidArgumentError) as error:
        list(load(damaged, split="train[:25]", batch_size=8, image_size=(4, 4)))
    assert f"{shard}: record 4 (counted from 0) cannot be decoded: it does not match" in str(
        error.value
    )
    with pytest.raises(tf.errors.InvalidArgumentError) as error:
        list(load(damaged, split="train[25:]", shuffle=True))
    assert f"{shard}: record 11 (counted from 0) cannot be decoded" in str(error.value)
    assert "outside the class list; `beam-tfr verify` names the cause; run `beam-tfr repair" in str(
        error.value
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"remainder": "pad", "batch_size": 8, "output": "image"},
            'but `output="image"` has no labels: use',
        ),
        (
            {"remainder": "pad", "batch_size": 8, "output": "raw_record"},
            'but `output="raw_record"` has no labels',
        ),
    ],
    ids=str,
)
def test_wrong_calls(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    folder = write_dataset(tmp_path / "d", {"train": [10]})
    with pytest.raises(UsageError, match=message):
        load(folder, split="train", **options)
