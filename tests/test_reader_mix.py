"""Several datasets in one stream: shares, order, hosts and resume by key."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from beam_tfr.reader import mix
from beam_tfr.reader.mixing import PERIOD, _Turns
from beam_tfr.records.examples import parse_example
from beam_tfr.schema import UsageError
from tests.converted import converted
from tests.expected_order import expected_steps
from tests.reader_fixtures import write_dataset

SEED = 7


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """200 photos of 2x2 in two shards, the same number of 4x2 in one: the height tells which it is."""
    parent = tmp_path_factory.mktemp("data")
    narrow = write_dataset(parent / "narrow", {"train": [20, 180]}, image_size=(2, 2))
    return [narrow, write_dataset(parent / "wide", {"train": [200]}, image_size=(4, 2))]


def examples(folders: list[Path], batches: int = 12, **options: Any) -> list[Any]:
    """Batch by batch: (dataset, number of the photo) of each example."""
    named = dict(zip(folders, (3, 1), strict=True))
    options = {"batch_size": 10, "shuffle": True, "seed": SEED, "output": "raw_record", **options}
    elements = mix(named, split="train", **options).take(batches).as_numpy_iterator()
    return [[dataset_and_number(record) for record in np.ravel(element)] for element in elements]


def dataset_and_number(record: bytes) -> tuple[int, int]:
    features = parse_example(record)
    return int(features["image/height"][0]) // 2 - 1, int(features["image/filename"][0].decode().removesuffix(".jpg"))


@pytest.fixture(scope="module")
def whole(folders: list[Path]) -> list[Any]:
    """Of one host, from the beginning: 900 examples."""
    return examples(folders, 90)


def test_every_dataset_comes_in_its_own_order(folders: list[Path], whole: list[Any]) -> None:
    found = list(itertools.chain(*whole))
    for index, folder in enumerate(folders):
        mine = [number for dataset, number in found if dataset == index]
        alone = expected_steps(folder, batch_size=8, remainder="drop", shuffle=True, seed=SEED, epochs=4)
        assert mine == list(itertools.chain(*alone))[: len(mine)]


def test_shares_hold_everywhere(whole: list[Any]) -> None:
    found = [dataset for dataset, _ in itertools.chain(*whole)]
    for begin in range(0, 896, 16):  # two rounds
        assert found[begin : begin + 16].count(0) in (8, 16)
    assert abs(found.count(1) / len(found) - 0.25) < 0.02


def test_turns_are_exact() -> None:
    turns = _Turns([7000, 2999, 1], 5)
    owners = np.concatenate([turns.period(tf.constant(number, tf.int64)) for number in range(3)])
    assert np.bincount(owners).tolist() == [21000, 8997, 3]
    for share, owner in ((0.7, 0), (0.2999, 1)):
        had = np.cumsum(owners == owner)
        assert np.abs(had - share * np.arange(1, len(owners) + 1)).max() < 2
    for first in (0, 1, 9_999, PERIOD, 12_345):
        assert turns.before(first) == np.bincount(owners[:first], minlength=3).tolist()
        assert list(turns.dataset(first).take(50).as_numpy_iterator()) == owners[first : first + 50].tolist()
    assert not np.array_equal(owners[:PERIOD], owners[PERIOD : 2 * PERIOD])


def test_hosts_share_every_step(folders: list[Path], whole: list[Any]) -> None:
    tf.random.set_seed(5)  # changes nothing
    context = tf.distribute.InputContext(2, 1, 2)
    found = examples(folders, 7, input_context=context, start_step=23)  # in the middle of a round
    assert found == [batch[1::2] for batch in whole[23:30]]


def test_a_resume_reads_on_exactly_there(folders: list[Path], whole: list[Any]) -> None:
    singles = [[one] for one in itertools.chain(*whole)]
    assert examples(folders, 7, batch_size=None, start_step=27) == singles[27:34]


def test_a_resume_decodes_nothing_before_it(tmp_path: Path) -> None:
    photos = [b"no image"] * 8 + [tf.io.encode_jpeg(np.zeros((2, 2, 3), np.uint8)).numpy()] * 56
    folder = write_dataset(tmp_path / "d", {"train": [64]}, image_size=(2, 2), photos=photos)
    elements = mix({folder: 1}, split="train", batch_size=8, streams=1, start_step=1)
    assert len(list(elements.take(7))) == 7
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"record 0 \(counted from 0\) holds an image"):
        list(elements.take(8))


def test_the_seed_makes_the_schedule(whole: list[Any]) -> None:
    first = tf.constant(0, tf.int64)
    owners = _Turns([7500, 2500], SEED).period(first).numpy()
    found = [dataset for dataset, _ in itertools.chain(*whole)]
    assert found == np.repeat(owners, 8)[: len(found)].tolist()
    assert not np.array_equal(owners, _Turns([7500, 2500], SEED + 1).period(first))


def test_elements(folders: list[Path]) -> None:
    elements = mix(dict.fromkeys(folders, 1), split="train", batch_size=16, image_size=(3, 5), one_hot=True)
    assert elements.element_spec == (tf.TensorSpec([16, 3, 5, 3], tf.uint8), tf.TensorSpec([16, 200], tf.float32))
    assert elements.cardinality() == tf.data.INFINITE_CARDINALITY


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, r"elements are .*\(8, 2, 2, 3\).* in .*narrow, .*\(8, 4, 2, 3\).* in .*wide; `image_size="),
        ({"repeat": True}, "mix does not take `repeat=`: its stream has no end"),
        ({"remainder": "pad"}, "mix does not take `remainder=`: its stream has no end"),
        (
            {"num_hosts": 3, "host_index": 0, "batch_size": 15},
            "`streams=8`: is not a multiple of the 3 hosts, .*: give 9",
        ),
        ({"num_hosts": 3, "host_index": 0}, "`batch_size=16`: is not a multiple of the 3 hosts"),
        ({"split": "test"}, "`split=test`: is not in .*; there are: train"),
        ({"split": "train[:7]"}, "`streams=8`: the 7 examples of .* do not fill a round: give fewer"),
        ({"start_step": -1}, "`start_step=-1`: must be a whole number from 0"),
        ({"dtype": "int8"}, "`dtype='int8'`: must be \"uint8\""),
    ],
    ids=str,
)
def test_wrong_calls(folders: list[Path], options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        mix(dict.fromkeys(folders, 1), **{"split": "train", "batch_size": 16, **options})


def test_wrong_weights(folders: list[Path]) -> None:
    for weights, message in (
        ({}, r"mix takes \{folder: weight, …\}, got \{\}"),
        ([folders[0]], r"mix takes \{folder: weight, …\}"),
        ({folders[0]: 0}, "the weight of .*narrow must be a number above 0, got 0; to exclude it"),
        ({folders[0]: "1"}, "must be a number above 0, got '1'"),
        ({folders[0]: float("nan")}, "must be a number above 0, got nan"),
        ({folders[0]: 1, str(folders[0]): 2}, "narrow is given twice"),
        ({folders[0]: 1, folders[1]: 1e-9}, "the weight of .*wide is 1e-09 of 1.000000001, less than one in 10000"),
    ):
        with pytest.raises(UsageError, match=message):
            mix(weights, split="train")  # type: ignore[arg-type]


def test_images_of_different_sizes_are_told_what_mix_takes() -> None:
    folder = converted("--encoding png --resize fit")
    with pytest.raises(UsageError) as error:
        mix({folder: 1}, split="train", batch_size=8)
    assert str(error.value) == (
        f"mix: the images of {folder} have different sizes (`resize=fit`), and rounds take equal ones. "
        "Give `image_size=(height, width)`, or convert with `resize=crop`, pad or stretch"
    )
    assert mix({folder: 1}, split="train", batch_size=8, output="encoded").element_spec[0].shape == (8,)


def test_class_lists_must_be_equal(folders: list[Path], tmp_path: Path) -> None:
    more = write_dataset(tmp_path / "more", {"train": [201]}, image_size=(2, 2))
    bare = write_dataset(tmp_path / "bare", {"train": [8]}, image_size=(2, 2), labelled=False)
    other = converted("--encoding jpeg")
    for folder, message in (
        (more, "class 200 is None in .*narrow, 'class00200' in .*more; convert them with"),
        (bare, '.*narrow has labels, .*bare has none; give `output="image"`'),
        (other, "class 0 is 'class00000' in .*narrow, 'clear.png' in .*; convert them with the same `classes=FILE`"),
    ):
        with pytest.raises(UsageError, match=message):
            mix({folders[0]: 1, folder: 1}, split="train", batch_size=8, image_size=(2, 2))
    elements = mix({folders[0]: 1, bare: 1}, split="train", batch_size=8, image_size=(2, 2), output="image")
    assert elements.element_spec == tf.TensorSpec([8, 2, 2, 3], tf.uint8)
