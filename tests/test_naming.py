"""Names of shards and their files: made and parsed by one module, and Beam's own numbering."""

from __future__ import annotations

import pytest
from apache_beam.io import WriteToTFRecord
from hypothesis import given
from hypothesis import strategies as st

from beam_tfr.schema.naming import NAME, SUFFIXES, file_name, parse_file_name, shard_name

names = st.from_regex(NAME, fullmatch=True)
numbers = st.integers(0, 10**7)


@given(names, names, numbers, numbers, st.sampled_from([*SUFFIXES.values()]))
def test_names_are_parsed_into_their_parts(
    dataset: str, split: str, number: int, num_shards: int, suffix: str
) -> None:
    shard = shard_name(split, number, num_shards)
    assert parse_file_name(file_name(dataset, shard, suffix)) == (dataset, shard, suffix)


PARTS = st.sampled_from(
    ["d", "é", "-", "of", "00001", "12345", "012345", "123", ".tfrecord", ".gz", "-of-", "\n"]
)


@given(st.lists(PARTS, max_size=9).map("".join))
def test_whatever_is_parsed_is_made_again(text: str) -> None:
    if file := parse_file_name(text):
        assert file_name(*file) == text


@pytest.mark.parametrize(
    "text",
    [
        "d-train-00000-of-00001.tfrecord.bz2",
        "d-train-00000-of-00001.json",
        "d-train-0000-of-00001.tfrecord",
        "d-train-000000-of-000001.tfrecord",
        "d-ü-00000-of-00001.tfrecord",
        "a-d-train-00000-of-00001.tfrecord",
        "train-00000-of-00001.tfrecord",
        "d-train-00000-of-00001.tfrecord.gz\n",
    ],
)
def test_other_files_are_not_shard_files(text: str) -> None:
    assert parse_file_name(text) is None


@pytest.mark.parametrize(("number", "num_shards"), [(0, 1), (3, 16), (123_456, 234_567)])
def test_shards_are_numbered_as_beam_numbers_them(number: int, num_shards: int) -> None:
    template = WriteToTFRecord("train")._sink.shard_name_format
    assert shard_name("train", number, num_shards) == "train" + template % {
        "shard_num": number,
        "num_shards": num_shards,
    }
