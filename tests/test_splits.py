"""What `split=` selects, as runs of records in shards."""

from __future__ import annotations

import re

import pytest

from beam_tfr.dataset.manifest import Manifest, read_manifest
from beam_tfr.dataset.splits import select_examples
from beam_tfr.schema.errors import UsageError
from tests.reader_fixtures import write_dataset


@pytest.fixture(scope="module", params=[[100], [3] * 33 + [0, 1]], ids=["one shard", "35 shards"])
def dataset(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    """train: examples 0 to 99; validation: 100 to 106."""
    splits = {"train": request.param, "validation": [7]}
    return read_manifest(
        str(write_dataset(tmp_path_factory.mktemp("data") / "d", splits, image_size=(2, 2)))
    )


def examples(dataset: Manifest, split: str) -> list[int]:
    """The numbers of the selected examples, in order."""
    shards = [shard for name in ("train", "validation") for shard in dataset.splits[name].shards]
    begins, first = {}, 0
    for shard in shards:
        begins[f"{dataset.folder}/{shard.file}"] = first
        first += shard.num_examples
    selection = select_examples(dataset, split)
    assert all(0 < part.take <= part.records - part.begin for part in selection.parts)
    found = [
        begins[part.file] + part.begin + record
        for part in selection.parts
        for record in range(part.take)
    ]
    assert selection.total == len(found)
    return found


def test_slices_are_exact(dataset: Manifest) -> None:
    assert examples(dataset, "train") == list(range(100))
    assert examples(dataset, "train[:80%]") == list(range(80))
    assert examples(dataset, "train[80%:]") == list(range(80, 100))
    assert examples(dataset, "train[33%:66.5%]") == list(range(33, 66))
    assert (
        examples(dataset, "train[-30:-20]")
        == examples(dataset, "train[-30%:80%]")
        == list(range(70, 80))
    )
    assert examples(dataset, "validation[5:] + train[:3] + train[50:51]") == [105, 106, 0, 1, 2, 50]
    assert [
        split.num_examples
        for split in select_examples(dataset, "validation[5:]+train[:3]+train[50:51]").splits
    ] == [7, 100]


def test_a_slice_of_all_is_one_of_all_splits_in_a_row(dataset: Manifest) -> None:
    assert examples(dataset, "all") == list(range(107))
    assert examples(dataset, "all[:10%]") == list(range(10))
    assert examples(dataset, "all [95:]") == list(range(95, 107))
    assert examples(dataset, "all[-3:] + train[:1]") == [104, 105, 106, 0]
    assert examples(dataset, "all-train[:3]") == [100, 101, 102]


@pytest.mark.parametrize(
    ("split", "message"),
    [
        ("train[:50%]+train[49:]", "selects examples 49 to 49 of train twice"),
        ("all[:101]+validation", "selects examples 0 to 0 of validation twice"),
        ("all[107:]", r"all\[107:\] is empty; all has 107"),
        ("train[50:50]", r"train\[50:50\] is empty; train has 100"),
        ("train[:101]", "101 is outside the 100 examples"),
        ("train[:x]", "'x' is neither a number of examples nor a percentage"),
        ("train[5]", r"the splits are: train, validation; specify one split"),
        ("train+dev", "is not in .*; the splits are: train, validation$"),
        ("train[:0.4%]", "is empty"),
        ("trian", "is not in .*; the splits are: train, validation$"),
        ("none", "the splits are: train, validation$"),
        ("train]", "specify one split"),
        ("[5:]", "specify one split"),
        ("train[5:", "specify one split"),
        ("train[5:]x", "specify one split"),
        ("train[:5:]", "specify one split"),
        ("train[[:5]", "neither a number of examples nor a percentage"),
        ("train[:]5]", "neither a number of examples nor a percentage"),
    ],
)
def test_wrong_splits_say_what_there_is(dataset: Manifest, split: str, message: str) -> None:
    with pytest.raises(UsageError) as error:
        select_examples(dataset, split)
    assert str(error.value).startswith(f"`split={split}`: ")
    assert re.search(message, str(error.value)), error.value


@pytest.mark.timeout(100)
@pytest.mark.parametrize("split", ["train{}x", "train[{}x", "train[{}:{}x]", "{}x", "train[:{}x]"])
def test_splits_take_no_time_to_speak_of(dataset: Manifest, split: str) -> None:
    """20,000 spaces took more than 20 s."""
    with pytest.raises(UsageError):
        select_examples(dataset, split.replace("{}", " " * 100_000))
