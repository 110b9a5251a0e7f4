"""Reads through a tf.data service, whose workers read and decode the examples in no particular order.

    streams ──(each goes to one worker)──▶ chunks of records ──map──▶ decoded ══▶ here ──rebatch──▶ batches

The service hands out what lies below `distribute` stream by stream, each to one worker and never twice. So batches are
cut, and the cardinality is claimed, only here, where the parts of all workers meet.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import tensorflow as tf

from beam_tfr.order import Order
from beam_tfr.reader.assembly import CHUNK, elements_of
from beam_tfr.reader.decode import Decoder
from beam_tfr.reader.streams import Streams
from beam_tfr.schema import UsageError

STREAM_EXAMPLES = 4096  # a stream that is longer is cut, so that all workers have something to do
_PROMISED = "a tf.data service promises no order"


def check_service(address: Any, **options: Any) -> None:
    """Checks the arguments of `load` that do not go with `service`.

    Args:
        address: what `load` got as `service`.
        options: other arguments of `load` by name.

    Raises:
        UsageError: it is not an address, or one of the others cannot be combined with it.
    """
    if not isinstance(address, str) or not address.partition("://")[2]:
        raise UsageError(
            'must be the address of a dispatcher, such as "grpc://localhost:5000"',
            option="service",
            value=repr(address),
        )
    for name, allowed, cure in (
        ("deterministic", (False,), f"{_PROMISED}, so it cannot be repeated either: give False"),
        ("start_step", (0,), f"{_PROMISED}, so there is no place to resume from"),
        ("remainder", (None, "keep", "drop"), 'give "keep" or "drop"'),
        ("sizes", (None,), "give `image_size=(height, width)`"),
        ("on_error", ("raise",), "its workers share no count: fix the dataset, or read without a service"),
        ("num_hosts", (1,), "it does not deal examples equally to hosts"),
        ("cache", (False,), "leave it out"),
    ):
        if options[name] not in allowed:
            raise UsageError(f"cannot be combined with `service=`: {cure}", option=name, value=options[name])
    if options["repeat"] is True:
        raise UsageError(
            "cannot be combined with `service=`: give a number of epochs, or load each epoch with its number",
            option="repeat",
            value=True,
        )


def serve(
    streams: Streams, decoder: Decoder, *, address: str, epoch: int, epochs: int, drop_remainder: bool
) -> tf.data.Dataset:
    """The dataset: `epochs` epochs from `epoch` on, each with every example at most once.

    Raises:
        UsageError: the examples hold lists of any length, or no dispatcher answers at that address.
    """
    batch_size = streams.order.batch_size
    if decoder.ragged:
        raise UsageError(
            "`service=` cannot batch features that are lists of any length"
            + (": give `multi_hot=True`" if decoder.several_labels and decoder.output == "pair" else "")
        )
    total = streams.order.total
    count = max(min(streams.order.streams, total), total // STREAM_EXAMPLES)
    cut = dataclasses.replace(streams, order=Order(total=total, streams=count))
    single = batch_size is None and decoder.variable

    def one_epoch(number: int) -> Any:
        records = cut.side_by_side(tf.constant(number, tf.int64), CHUNK)
        if single:
            records = records.unbatch()
        decoded = elements_of(records, decoder, deterministic=False)
        served = decoded.apply(
            tf.data.experimental.service.distribute(
                processing_mode=tf.data.experimental.service.ShardingPolicy.DYNAMIC, service=address
            )
        )
        if batch_size is None:
            return served if single else served.unbatch()
        return served.rebatch(batch_size, drop_remainder=drop_remainder)

    together = functools.reduce(
        lambda before, number: before.concatenate(one_epoch(number)),
        range(epoch + 1, epoch + epochs),
        one_epoch(epoch),
    )
    steps = epochs * streams.order.steps
    return together.apply(tf.data.experimental.assert_cardinality(steps)).prefetch(tf.data.AUTOTUNE)
