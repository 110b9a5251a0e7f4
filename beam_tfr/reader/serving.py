"""The examples of a selection through a tf.data service: its workers read and decode them, in no promised order.

    streams ──(each goes to one worker)──▶ chunks of records ──map──▶ decoded ══▶ here ──rebatch──▶ batches

The service hands out what lies below `distribute` stream by stream, each to one worker and never twice: so nothing may
be cut to batches, and no cardinality be claimed, before the parts of all workers have come together here.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import tensorflow as tf

from beam_tfr.reader.assembly import CHUNK, elements_of, without_padding
from beam_tfr.reader.decode import Decoder
from beam_tfr.reader.layout import Layout
from beam_tfr.reader.streams import Streams
from beam_tfr.schema import UsageError

STREAM_EXAMPLES = 4096  # a stream that is longer is cut, so that all workers have something to do
_PROMISED = "a tf.data service promises no order"


def check_service(address: Any, **options: Any) -> None:
    """
    Args:
        address: what `load` got as `service`.
        options: other arguments of `load` by name.

    Raises:
        UsageError: it is no address, or one of the others cannot be had with it.
    """
    if not isinstance(address, str) or not address.partition("://")[2]:
        raise UsageError(
            f'service must be the address of a dispatcher, such as "grpc://localhost:5000", not {address!r}'
        )
    refused = {
        "deterministic": (True, f"{_PROMISED}, so it cannot be repeated either: give deterministic=False"),
        "repeat": (True, "give a number of epochs, or load each epoch with its number"),
        "remainder": ("pad", 'give "keep" or "drop"'),
        "sizes": ("padded", "give image_size=(height, width)", "ragged"),
        "on_error": ("skip", "its workers share no count: repair the dataset, or read without a service"),
    }
    for name, (value, cure, *others) in refused.items():
        if options[name] in (value, *others) and type(options[name]) is type(value):
            raise UsageError(f"{name}={options[name]!r} cannot be had with service: {cure}")
    if options["start_step"]:
        raise UsageError(f"start_step cannot be had with service: {_PROMISED}, so there is no place to go on from")
    if options["num_hosts"] != 1:
        raise UsageError("num_hosts cannot be had with service: nobody deals its examples out to hosts equally")
    if options["cache"] is not False:
        raise UsageError("cache cannot be had with service: give cache=False")


def serve(
    streams: Streams, decoder: Decoder, *, address: str, epoch: int, epochs: int, drop_remainder: bool
) -> tf.data.Dataset:
    """`epochs` epochs from `epoch` on: every example at most once in each; only the remainder may be missing.

    Raises:
        UsageError: lists of any length cannot be had, or nobody answers at that address.
    """
    batch_size = streams.layout.batch_size
    if decoder.ragged:
        raise UsageError(
            "service cannot batch features that are lists of any length"
            + (": give multi_hot=True" if decoder.several_labels and decoder.output == "pair" else "")
        )
    total = streams.layout.total
    count = max(min(streams.layout.streams, total), total // STREAM_EXAMPLES)
    cut = dataclasses.replace(
        streams,
        layout=Layout(total=total, streams=count, num_hosts=1, host_index=0, batch_size=None, remainder="keep"),
    )
    single = batch_size is None and decoder.variable

    def one_epoch(number: int) -> Any:
        records = cut.side_by_side(tf.constant(number, tf.int64), CHUNK).map(without_padding)
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
    steps = epochs * streams.layout.steps
    return together.apply(tf.data.experimental.assert_cardinality(steps)).prefetch(tf.data.AUTOTUNE)
