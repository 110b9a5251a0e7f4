"""`mix`: several datasets in one endless stream, in proportions that hold everywhere in it.

    schedule ──▶ whose turn it is      choose_from_datasets ──▶ rounds ──rebatch──▶ batches
    each dataset: `load` for ever, in rounds of one example of each stream ──────────┘

What is chosen is the dataset of a whole round, so all hosts choose alike and every one gets its streams' share of it.
How often a dataset was chosen before any step is known without reading: there `load` goes on.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from beam_tfr import checks, manifest
from beam_tfr.checks import integer
from beam_tfr.manifest import Manifest
from beam_tfr.options.image import VARIABLE_SIZES
from beam_tfr.reader.layout import Layout
from beam_tfr.reader.loading import load
from beam_tfr.reader.streams import fold
from beam_tfr.schema import UsageError
from beam_tfr.selection import select

PERIOD = 10_000  # rounds in which each dataset has its share exactly
_NOT_HERE = {
    "repeat": "each dataset repeats for ever",
    "epoch": "each dataset begins at its own epoch 0; start_step leads on",
    "remainder": "there is no last batch",
    "sizes": "batches take examples of several datasets: give image_size=(height, width)",
}


def mix(
    weights: Mapping[str | os.PathLike[str], float],
    *,
    split: str,
    batch_size: int | None = None,
    shuffle: bool = False,
    seed: int = 0,
    start_step: int = 0,
    streams: int = 8,
    host_index: int = 0,
    num_hosts: int = 1,
    input_context: tf.distribute.InputContext | None = None,
    **options: Any,
) -> tf.data.Dataset:
    """Reads several datasets at once, for ever, each as often as its weight says.

    The stream consists of rounds of `streams` examples, and every round is of one dataset. Of each 10,000 rounds a
    dataset has its weight's share, rounded to whole rounds, spread evenly: after any number of them it had its share
    but for a round or two. Where in the stream is drawn from (`seed`, number of the 10,000 rounds). Each dataset gives
    its rounds in the order of `load(shuffle=, seed=, repeat=True)`, epoch after epoch; what does not fill a round of
    `streams` examples at the end of an epoch is left out of that epoch (other examples in each, when shuffled).

    Args:
        weights: folder that `convert` wrote, local or gs:// -> its weight; only their proportions count.
        split: of every dataset, as for `load`.
        batch_size: examples of a batch on all hosts together, a multiple of `streams`; None gives single examples.
        shuffle: whether the examples of each dataset come in a random order.
        seed: of that order, of random crops and of the stream.
        start_step: elements of this host that are left out at the beginning, as if they had been read, undecoded.
        streams, host_index, num_hosts, input_context: as for `load`: all hosts' batches at one step are together the
            same examples for every number of hosts.
        options: of `load`, for each of the datasets: output, dtype, image_size, crop, one_hot, cache, cache_decoded,
            deterministic, on_error, max_skipped.

    Returns:
        What `load` gives with these options. The batch is static, the cardinality infinite.

    Raises:
        UsageError: an argument is wrong, the datasets' class lists or elements differ (the error names where), or one
            is too small for a round.
        DataError: a folder holds no complete dataset.
    """
    for name in options.keys() & _NOT_HERE.keys():
        raise UsageError(f"mix takes no {name}: {_NOT_HERE[name]}")
    folders = _folders(weights)
    if input_context is not None:
        if (host_index, num_hosts) != (0, 1):
            raise UsageError("input_context names the host: leave host_index and num_hosts out")
        host_index, num_hosts = input_context.input_pipeline_id, input_context.num_input_pipelines
    layout = Layout(  # of one batch, which checks that the arguments fit together
        total=batch_size or streams,
        streams=integer("streams", streams, 1),
        num_hosts=integer("num_hosts", num_hosts, 1),
        host_index=integer("host_index", host_index, 0),
        batch_size=batch_size if batch_size is None else integer("batch_size", batch_size, 1),
        remainder=None,
    )
    start_step = integer("start_step", start_step, 0, bits=63)
    seed = integer("seed", seed, 0, bits=63)
    datasets = [manifest.read(folder) for folder in folders]
    for dataset in datasets:
        if (total := select(dataset, split).total) < streams:
            raise UsageError(
                f"{dataset.folder}: {total} examples do not fill a round of streams {streams}: give fewer streams"
            )
    if options.get("output", "pair") != "image":
        _check_classes(datasets)
    if not options.get("image_size") and options.get("output") not in ("encoded", "raw_record"):
        _check_sizes(datasets)

    shares = _shares(folders)
    if batch_size is None:
        first, singles = divmod(start_step, layout.local_streams)
    else:
        first, singles = start_step * layout.rounds_per_step, 0
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
        _check_elements(list(folders), [one.element_spec for one in rounds])
        mixed = tf.data.Dataset.choose_from_datasets(rounds, turns.dataset(first))
        if layout.host_batch is None:
            mixed = mixed.unbatch().skip(singles)
        elif layout.rounds_per_step > 1:
            mixed = mixed.rebatch(layout.host_batch, drop_remainder=True)
        return mixed.apply(tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY)).prefetch(
            tf.data.AUTOTUNE
        )


class _Turns:
    """Which dataset has which round. Dataset i, with k[i] of the `PERIOD` rounds of a period, has its j-th at the time
    (j + u) / k[i], with u in [0, 1) drawn from (seed, period): the order of these times is that of the turns.
    """

    def __init__(self, shares: Sequence[int], seed: int) -> None:
        self._shares = np.array(shares, np.int64)
        self._owners = np.repeat(np.arange(len(shares), dtype=np.int64), self._shares)
        starts = np.cumsum(self._shares) - self._shares
        self._numbers = (np.arange(PERIOD) - starts[self._owners]).astype(np.float32)
        self._seed = seed

    def period(self, number: Any) -> Any:
        """Owners of the rounds of a period: int64 [PERIOD]."""
        key = fold(fold(tf.constant([self._seed, 2], tf.int64), number), 0)
        drawn = tf.random.stateless_uniform([PERIOD], key, alg="philox")
        times = (self._numbers + drawn) / self._shares[self._owners].astype(np.float32)
        return tf.gather(self._owners, tf.argsort(times, stable=True))

    def before(self, first: int) -> list[int]:
        """How many rounds each dataset had before round `first`."""
        periods, rest = divmod(first, PERIOD)
        begun = self.period(tf.constant(periods, tf.int64)).numpy()[:rest]
        return [int(n) for n in periods * self._shares + np.bincount(begun, minlength=len(self._shares))]

    def dataset(self, first: int) -> Any:
        """Owners of all rounds from `first` on: scalar int64."""
        return tf.data.Dataset.counter(first // PERIOD).map(self.period).unbatch().skip(first % PERIOD)


def _folders(weights: Any) -> dict[str, float]:
    """Folder -> weight.

    Raises:
        UsageError: no datasets, one of them twice, or a weight that is no positive number.
    """
    if not isinstance(weights, Mapping) or not weights:
        raise UsageError(f"mix takes {{folder: weight, …}}, not {weights!r}")
    folders: dict[str, float] = {}
    for path, weight in weights.items():
        folder = checks.folder(path)
        if folder in folders:
            raise UsageError(f"mix: {folder} is named twice; give it one weight")
        if isinstance(weight, bool) or not isinstance(weight, (int, float)) or not 0 < weight < float("inf"):
            raise UsageError(
                f"mix: the weight of {folder} must be a number above 0, not {weight!r}; leave it out for none"
            )
        folders[folder] = float(weight)
    return folders


def _shares(folders: Mapping[str, float]) -> list[int]:
    """Rounds of a period for each dataset: by largest remainders, `PERIOD` together.

    Raises:
        UsageError: one would have none.
    """
    total = sum(folders.values())
    exact = [weight / total * PERIOD for weight in folders.values()]
    shares = [int(share) for share in exact]
    by_remainder = sorted(range(len(exact)), key=lambda i: shares[i] - exact[i])
    for i in by_remainder[: PERIOD - sum(shares)]:
        shares[i] += 1
    for folder, share in zip(folders, shares, strict=True):
        if not share:
            raise UsageError(
                f"mix: the weight of {folder} is {folders[folder]} of {total}, less than one in {PERIOD}; give it "
                "more, or leave it out"
            )
    return shares


def _check_classes(datasets: Sequence[Manifest]) -> None:
    first = datasets[0]
    cure = "convert them with the same --classes FILE"
    for other in datasets[1:]:
        with_labels = [dataset.names.label in dataset.features for dataset in (first, other)]
        if with_labels[0] != with_labels[1]:
            labelled, bare = (first, other) if with_labels[0] else (other, first)
            raise UsageError(
                f'mix: {labelled.folder} has labels, {bare.folder} has none; give output="image", or leave one out'
            )
        ours, theirs = first.class_names, other.class_names
        for label, (name, its) in enumerate(zip(ours, theirs, strict=False)):
            if name != its:
                raise UsageError(f"mix: class {label} is {name!r} in {first.folder}, {its!r} in {other.folder}; {cure}")
        if len(ours) != len(theirs):
            raise UsageError(
                f"mix: {first.folder} has {len(ours)} classes, {other.folder} has {len(theirs)}: "
                f"{max(ours, theirs, key=len)[min(len(ours), len(theirs))]!r} and those behind it differ; {cure}"
            )


def _check_sizes(datasets: Sequence[Manifest]) -> None:
    for dataset in datasets:
        if (resize := dataset.image_options.resize) in VARIABLE_SIZES:
            raise UsageError(
                f"mix: the images of {dataset.folder} have different sizes (--resize {resize}), and rounds take equal "
                "ones. Give image_size=(height, width), or convert with --resize stretch, crop or pad"
            )


def _check_elements(folders: Sequence[str], specs: Sequence[Any]) -> None:
    """
    Raises:
        UsageError: the elements of two datasets cannot stand in one stream; names the first part that differs.
    """
    flat = [_named(spec) for spec in specs]
    for folder, parts in zip(folders[1:], flat[1:], strict=True):
        for name in flat[0].keys() | parts.keys():
            ours, theirs = flat[0].get(name), parts.get(name)
            if ours != theirs:
                raise UsageError(
                    f"mix: {name} is {_described(ours)} in {folders[0]}, {_described(theirs)} in {folder}; "
                    "image_size=(height, width) makes sizes equal, and output says what is read"
                )


def _named(spec: Any) -> dict[str, Any]:
    if isinstance(spec, dict):
        return dict(sorted(spec.items()))
    parts = spec if isinstance(spec, tuple) else (spec,)
    return dict(zip(("image", "label", "weight"), parts, strict=False))


def _described(spec: Any) -> str:
    return f"{spec.dtype.name} {spec.shape}" if spec is not None else "absent"
