"""The law of the order, over whole epochs, with NumPy alone.

It holds for any hosts, batch sizes and beginnings.
"""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from beam_tfr.order import FILLER, REMAINDERS, WINDOW, Epoch, Order, hash_numbers, permutation
from beam_tfr.schema.errors import UsageError
from tests.expected_order import examples

COUNTS = st.lists(st.integers(1, 400), min_size=1, max_size=6)
SEEDS = st.none() | st.integers(0, (1 << 63) - 1)
EPOCHS = st.integers(0, (1 << 31) - 1)
STREAMS = st.integers(1, 9)


def sequence(counts: list[int], **options: object) -> list[int]:
    """The example at each position of an epoch, by the law as it is stated, record by record."""
    streams = options.pop("streams", 8)
    epoch = Epoch(counts, **options)
    order = Order(total=sum(counts), streams=streams)
    return [place for step in range(order.steps) for place in examples(order, epoch, step)]


def hosts_of(**options: object) -> list[Order]:
    """The orders of all hosts.

    If the arguments do not fit, hypothesis leaves the example out.
    """
    try:
        return [Order(host_index=host, **options) for host in range(options["num_hosts"])]
    except UsageError:
        assume(False)
        raise


def test_splitmix64() -> None:
    # The first outputs for the seed 1234567, as in the reference implementation and Java's
    # SplittableRandom.
    state, outputs = 1234567, []
    for _ in range(3):
        outputs.append(int(hash_numbers(state)[0]))
        state = (state + 0x9E3779B97F4A7C15) % (1 << 64)
    assert outputs == [6457827717110365317, 3203168211198807973, 9817491932198370423]


@given(st.lists(st.integers(0, (1 << 63) - 1), min_size=1, max_size=4), st.integers(0, 600))
def test_permutations(key: list[int], size: int) -> None:
    found = permutation(size, *key)
    assert sorted(found) == list(range(size))
    assert np.array_equal(
        hash_numbers(*key, np.arange(size)),
        [hash_numbers(*key, number)[0] for number in range(size)],
    )


def test_permutations_are_uniform() -> None:
    first = np.array([permutation(8, seed)[0] for seed in range(4000)])
    assert np.bincount(first).min() > 400  # 500 expected, 5 standard deviations


@settings(max_examples=60, deadline=None)
@given(COUNTS, SEEDS, EPOCHS, STREAMS)
def test_every_example_once_per_epoch(
    counts: list[int], seed: int | None, number: int, streams: int
) -> None:
    assert sorted(sequence(counts, seed=seed, number=number, streams=streams)) == list(
        range(sum(counts))
    )


@given(COUNTS, SEEDS, EPOCHS, st.data())
def test_an_epoch_is_a_circle_of_parts(
    counts: list[int], seed: int | None, number: int, data: st.DataObject
) -> None:
    total = sum(counts)
    epoch = Epoch(counts, seed=seed, number=number)

    def records(low: int, high: int) -> list[tuple[int, int]]:
        runs = epoch.runs(low, high)
        return [
            (run.part, record) for run in runs for record in range(run.skip, run.skip + run.take)
        ]

    whole = records(0, total)
    assert sorted(whole) == [
        (part, record) for part, count in enumerate(counts) for record in range(count)
    ]
    if seed is None:
        assert whole == sorted(whole)
    for (part, record), (next_part, next_record) in itertools.pairwise(whole):
        assert (next_part, next_record) == (part, record + 1) or (
            record == counts[part] - 1 and next_record == 0
        )
    low = data.draw(st.integers(0, total))
    high = data.draw(st.integers(low, total))
    assert records(low, high) == whole[low:high]


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 3000), st.integers(0, 99), STREAMS)
def test_streams_are_runs_permuted_in_windows(total: int, seed: int, streams: int) -> None:
    found = sequence([total], seed=seed, number=0, streams=streams)
    low = 0
    for stream in range(streams):
        mine = found[stream::streams]
        assert len(mine) == total // streams + (stream < total % streams)
        for begin in range(0, len(mine), WINDOW):
            window = mine[begin : begin + WINDOW]
            assert sorted(window) == list(range(low + begin, low + begin + len(window)))
        low += len(mine)
    assert low == total


@settings(max_examples=70)
@given(
    total=st.integers(1, 700),
    num_hosts=st.integers(1, 8),
    per_host=st.integers(0, 40),
    streams=STREAMS,
    remainder=st.sampled_from(REMAINDERS),
)
def test_hosts_share_every_step(
    total: int, num_hosts: int, per_host: int, streams: int, remainder: str | None
) -> None:
    batch_size = per_host * num_hosts or None
    hosts = hosts_of(
        total=total,
        num_hosts=num_hosts,
        batch_size=batch_size,
        streams=streams,
        remainder=remainder,
    )
    assert len({host.steps for host in hosts}) == 1
    size = batch_size or num_hosts
    remainder = remainder or ("keep" if num_hosts == 1 else "drop")
    end = {"drop": total // size * size, "keep": total, "pad": -(-total // size) * size}[remainder]
    for step in range(hosts[0].steps):
        shares = [host.positions(step).tolist() for host in hosts]
        # The same positions for any number of hosts, ascending, in equal shares.
        assert sorted(itertools.chain(*shares)) == list(
            range(step * size, min((step + 1) * size, end))
        )
        assert all(share == sorted(share) for share in shares)
        assert all(shares)
        assert max(map(len, shares)) - min(map(len, shares)) <= (remainder == "keep")
        for host, share in zip(hosts, shares, strict=True):
            assert {position % streams for position in share} <= {*host.host_streams}
    assert [len(host.positions(hosts[0].steps)) for host in hosts] == [0] * num_hosts
    if streams % num_hosts == 0:
        assert sorted(itertools.chain(*(host.host_streams for host in hosts))) == list(
            range(streams)
        )


@settings(max_examples=30, deadline=None)
@given(
    COUNTS,
    SEEDS,
    EPOCHS,
    STREAMS,
    st.integers(1, 4),
    st.integers(1, 60),
    st.sampled_from(["keep", "drop", "pad"]),
)
def test_batch_size_and_hosts_only_cut_the_order(
    counts: list[int],
    seed: int | None,
    number: int,
    streams: int,
    num_hosts: int,
    per_host: int,
    remainder: str,
) -> None:
    whole = sequence(counts, seed=seed, number=number, streams=streams)
    epoch = Epoch(counts, seed=seed, number=number)
    size = per_host * num_hosts
    hosts = hosts_of(
        total=len(whole), streams=streams, num_hosts=num_hosts, batch_size=size, remainder=remainder
    )
    for step in {
        0,
        hosts[0].steps // 2,
        hosts[0].steps - 1,
    }:  # a step needs none of those before it
        batch = whole[step * size : (step + 1) * size]
        if remainder == "pad":
            batch += [FILLER] * (size - len(batch))
        for index, host in enumerate(hosts):
            assert examples(host, epoch, step) == batch[index::num_hosts]


def test_epochs_differ_in_the_order_of_parts_in_their_beginning_and_in_their_windows() -> None:
    one = [sequence([600], seed=4, number=number) for number in range(6)]
    assert len({order[0] for order in one}) > 3
    many = [
        [run.part for run in Epoch([5] * 9, seed=4, number=number).runs(0, 45)][1:]
        for number in range(6)
    ]
    assert len({tuple(parts) for parts in many}) == 6
    for order, other in itertools.pairwise(one):
        assert not any({*order[at : at + 64]} == {*other[at : at + 64]} for at in range(0, 600, 64))


def test_order_stays_the_same_over_versions() -> None:
    # A resumed training run must read on in the same order, whatever the versions of NumPy and of
    # this package.
    assert sequence([10, 7, 3], seed=7, number=3) == GOLDEN
    assert sequence([5], seed=None, number=0, streams=2) == [0, 3, 1, 4, 2]


GOLDEN = [0, 3, 8, 9, 13, 15, 17, 18, 1, 5, 6, 11, 12, 14, 16, 19, 2, 4, 7, 10]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_hosts": 3, "batch_size": 64}, "`batch_size=64`: is not a multiple of the 3 hosts"),
        ({"num_hosts": 3, "batch_size": 2}, "`batch_size=2`: is not a multiple of the 3 hosts"),
        (
            {"num_hosts": 2, "host_index": 2},
            "`host_index=2`: must be less than the number of hosts, 2",
        ),
        ({"num_hosts": 0}, "`num_hosts=0`: must be a whole number from 1"),
        ({"streams": 0}, "`streams=0`: must be a whole number from 1"),
        ({"batch_size": 0}, "`batch_size=0`: must be a whole number from 1 to 2147483647"),
        ({"batch_size": 2.0}, "`batch_size=2.0`: must be a whole number"),
        ({"batch_size": True}, "`batch_size=True`: must be a whole number"),
        ({"remainder": "pad"}, "`remainder=pad`: has no effect without `batch_size=`"),
        (
            {"batch_size": 8, "remainder": "fill"},
            '''`remainder='fill'`: must be None, "keep", "drop" or "pad"''',
        ),
        (
            {"num_hosts": 4, "batch_size": 12, "remainder": "keep"},
            "`remainder=keep`: 37 examples would give some of the 4 hosts one step more than "
            'others, .* Use "drop" or',
        ),
        ({"num_hosts": 4, "remainder": "keep"}, "some of the 4 hosts one step more than others"),
        (
            {"batch_size": 40, "remainder": "drop"},
            'leaves no complete step of .* from 37 examples.*, or `remainder="pad"`',
        ),
        ({"num_hosts": 40}, "leaves no complete step of 40 from 37 examples"),
    ],
    ids=str,
)
def test_wrong_arguments_say_what_fits(options: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError) as error:
        Order(total=37, **options)
    assert re.search(message, str(error.value)), error.value


def test_numpy_integers_are_taken() -> None:
    assert Order(total=4, batch_size=np.int64(2), streams=np.uint8(2)) == Order(
        total=4, batch_size=2, streams=2
    )
