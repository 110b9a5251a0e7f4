"""`mix`: several datasets in one endless stream, in proportions that hold throughout.

    schedule ──▶ whose turn it is      choose_from_datasets ──▶ rounds ──rebatch──▶ batches
    each dataset: `load` forever, in rounds of `streams` examples ───────┘

The schedule chooses the dataset of a whole round, so all hosts choose alike and each gets its share of every round. How
often a dataset was chosen before a step is known without reading, so `load` starts there.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from beam_tfr.dataset import manifest, reader_arguments
from beam_tfr.dataset.manifest import Manifest
from beam_tfr.dataset.reader_arguments import integer
from beam_tfr.dataset.splits import select
from beam_tfr.options.image import VARIABLE_SIZES
from beam_tfr.order import Order
from beam_tfr.reader.images import fold
from beam_tfr.reader.loading import host_of, load
from beam_tfr.schema import UsageError, without_traceback

PERIOD = 10_000  # rounds in which each dataset has its share exactly


@without_traceback
def mix(
    weights: Mapping[str | os.PathLike[str], float],
    *,
    split: str,
    batch_size: int | None = None,
    shuffle: bool = False,
    seed: int = 0,
    start_step: int = 0,
    streams: int = 8,
    host_index: int | None = None,
    num_hosts: int = 1,
    input_context: tf.distribute.InputContext | None = None,
    **options: Any,
) -> tf.data.Dataset:
    """Mixes several datasets in one endless stream, in proportion to their weights.

    The stream consists of rounds of `streams` examples from one dataset. In every 10,000 rounds, each dataset gets a
    share proportional to its weight, rounded to whole rounds and spread evenly: after any number of rounds, its share
    is right to within a round or two. The schedule is drawn from (`seed`, number of the 10,000 rounds). Each dataset is
    read in the order of `load(shuffle=, seed=, repeat=True)`, epoch after epoch; examples that do not fill a
    round at the end of an epoch are omitted from it (different ones in each shuffled epoch).

    Args:
        weights: folder that `convert` wrote, local or gs:// -> its weight; only their proportions count.
        split: split of every dataset, as for `load`.
        batch_size: examples per batch in total, over all hosts, a multiple of `num_hosts`; None yields single examples.
        shuffle: whether to shuffle the examples of each dataset.
        seed: seed for the shuffle, random crops and the schedule.
        start_step: number of elements of this host to skip, decoding at most those of one round.
        streams: as for `load`, and the number of examples in a round; a multiple of `num_hosts`.
        host_index, num_hosts, input_context: as for `load`.
        options: `load` options for each of the datasets: output, dtype, image_size, crop, one_hot, cache,
            cache_decoded, deterministic, on_error, max_skipped.

    Returns:
        A dataset like that of `load` with these options. Batch shapes are static, and the cardinality is infinite.

    Raises:
        UsageError: an argument is wrong, the datasets' class lists or elements differ (the error says where), or a
            dataset is too small for a round.
        DataError: a folder holds no complete dataset.
    """
    for name in options.keys() & {"repeat", "epoch", "remainder", "sizes"}:
        raise UsageError(
            f"mix does not take `{name}=`: its stream has no end, begins at epoch 0 and takes images of one size"
        )
    folders = _folders(weights)
    host_index, num_hosts = host_of(input_context, host_index, num_hosts)
    streams = integer("streams", streams, 1)
    order = Order(total=1 << 31, num_hosts=num_hosts, host_index=host_index, batch_size=batch_size)
    if streams % order.num_hosts:
        raise UsageError(
            f"is not a multiple of the {order.num_hosts} hosts, which share every round equally: give "
            f"{-(-streams // order.num_hosts) * order.num_hosts}, on every host (another number is another order)",
            option="streams",
            value=streams,
        )
    start_step = integer("start_step", start_step, 0, bits=63)
    seed = integer("seed", seed, 0, bits=63)
    datasets = [manifest.read(folder) for folder in folders]
    for dataset in datasets:
        if (total := select(dataset, split).total) < streams:
            raise UsageError(
                f"the {total} examples of {dataset.folder} do not fill a round: give fewer",
                option="streams",
                value=streams,
            )
        variable = (resize := dataset.image_options.resize) in VARIABLE_SIZES and not options.get("image_size")
        if variable and options.get("output") not in ("encoded", "raw_record"):
            raise UsageError(
                f"mix: the images of {dataset.folder} have different sizes (`resize={resize}`), and rounds take "
                "equal ones. Give `image_size=(height, width)`, or convert with `resize=crop`, pad or stretch"
            )
    if options.get("output", "pair") != "image":
        _check_classes(datasets)

    shares = _shares(folders)
    first, begun = divmod(start_step * order.step_size, streams)
    with tf.device("CPU"):
        turns = _Turns(shares, seed)
        rounds = [
            load(
                folder,
                split=split,
                batch_size=streams,
                remainder="drop",
                shuffle=shuffle,
                seed=seed,
                repeat=True,
                start_step=before,
                streams=streams,
                host_index=host_index,
                num_hosts=num_hosts,
                **options,
            )
            for folder, before in zip(folders, turns.before(first), strict=True)
        ]
        first_folder, first_spec = next(iter(folders)), rounds[0].element_spec
        for folder, one in zip(folders, rounds, strict=True):
            if one.element_spec != first_spec:
                raise UsageError(
                    f"mix: elements are {first_spec} in {first_folder}, {one.element_spec} in {folder}; "
                    "`image_size=(height, width)` makes sizes equal, and `output=` chooses what is read"
                )
        mixed = tf.data.Dataset.choose_from_datasets(rounds, turns.dataset(first))
        if begun or batch_size is None:
            mixed = mixed.unbatch().skip(begun // order.num_hosts)
        if batch_size is not None:
            together = mixed.batch if begun else mixed.rebatch
            mixed = together(order.host_step_size, drop_remainder=True)
        endless = mixed.apply(tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY))
        endless = endless.prefetch(tf.data.AUTOTUNE)
    endless.class_names = datasets[0].class_names
    return endless


class _Turns:
    """The schedule: which dataset has which round.

    Dataset i, with k[i] of the `PERIOD` rounds of a period, has its j-th at the time (j + u) / k[i], where u in [0, 1)
    is drawn from (seed, period); rounds are sorted by these times.
    """

    def __init__(self, shares: Sequence[int], seed: int) -> None:
        self._shares = np.array(shares, np.int64)
        self._owners = np.repeat(np.arange(len(shares), dtype=np.int64), self._shares)
        starts = np.cumsum(self._shares) - self._shares
        self._numbers = (np.arange(PERIOD) - starts[self._owners]).astype(np.float32)
        self._seed = seed

    def period(self, number: Any) -> Any:
        """The dataset of each round of a period: int64 [PERIOD]."""
        key = fold(fold(tf.constant([self._seed, 2], tf.int64), number), 0)
        drawn = tf.random.stateless_uniform([PERIOD], key, alg="philox")
        times = (self._numbers + drawn) / self._shares[self._owners].astype(np.float32)
        return tf.gather(self._owners, tf.argsort(times, stable=True))

    def before(self, first: int) -> list[int]:
        """How many rounds each dataset has before round `first`."""
        periods, rest = divmod(first, PERIOD)
        begun = self.period(tf.constant(periods, tf.int64)).numpy()[:rest]
        return [int(n) for n in periods * self._shares + np.bincount(begun, minlength=len(self._shares))]

    def dataset(self, first: int) -> Any:
        """The datasets of all rounds from `first` on: scalar int64."""
        return tf.data.Dataset.counter(first // PERIOD).map(self.period).unbatch().skip(first % PERIOD)


def _folders(weights: Any) -> dict[str, float]:
    """Checks the weights: folder -> weight.

    Raises:
        UsageError: there are no datasets, one is given twice, or a weight is not a positive number.
    """
    if not isinstance(weights, Mapping) or not weights:
        raise UsageError(f"mix takes {{folder: weight, …}}, got {weights!r}")
    folders: dict[str, float] = {}
    for path, weight in weights.items():
        folder = reader_arguments.folder(path)
        if folder in folders:
            raise UsageError(f"mix: {folder} is given twice; give it one weight")
        if isinstance(weight, bool) or not isinstance(weight, (int, float)) or not 0 < weight < float("inf"):
            raise UsageError(
                f"mix: the weight of {folder} must be a number above 0, got {weight!r}; to exclude it, leave it out"
            )
        folders[folder] = float(weight)
    return folders


def _shares(folders: Mapping[str, float]) -> list[int]:
    """Rounds of a period for each dataset, `PERIOD` in total, by largest remainders.

    Raises:
        UsageError: a dataset would have none.
    """
    total = sum(folders.values())
    exact = np.array([weight / total * PERIOD for weight in folders.values()])
    shares = exact.astype(np.int64)
    shares[np.argsort(shares - exact, kind="stable")[: PERIOD - shares.sum()]] += 1
    for folder, share in zip(folders, shares, strict=True):
        if not share:
            raise UsageError(
                f"mix: the weight of {folder} is {folders[folder]} of {total}, less than one in {PERIOD}; "
                "increase it, or leave the dataset out"
            )
    return shares.tolist()  # type: ignore[no-any-return]


def _check_classes(datasets: Sequence[Manifest]) -> None:
    first = datasets[0]
    for other in datasets[1:]:
        labels = {dataset.names.label in dataset.features: dataset.folder for dataset in (first, other)}
        if len(labels) == 2:
            raise UsageError(
                f'mix: {labels[True]} has labels, {labels[False]} has none; give `output="image"`, or leave one out'
            )
        pairs = itertools.zip_longest(first.class_names, other.class_names)
        for label, (name, its) in enumerate(pairs):
            if name != its:
                raise UsageError(
                    f"mix: class {label} is {name!r} in {first.folder}, {its!r} in {other.folder}; "
                    "convert them with the same `classes=FILE`"
                )
