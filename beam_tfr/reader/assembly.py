"""Assembles epochs, chunks of records, decoding and batches, here or in the workers of a tf.data service.

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
from beam_tfr.reader.decode import Decoder
from beam_tfr.reader.streams import Streams
from beam_tfr.schema import UsageError

CHUNK = 64  # images decoded in one call, about: enough that its overhead does not count, few enough for memory
STREAM_EXAMPLES = 4096  # a stream that is longer is cut, so that all workers of a service have something to do
_PROMISED = "a tf.data service promises no order"


def assemble(
    streams: Streams,
    decoder: Decoder,
    *,
    decoded: bool,
    epoch: int,
    epochs: int | None,
    start_step: int,
    moving: bool,
    deterministic: bool,
) -> tf.data.Dataset:
    """The dataset that `load` returns.

    Args:
        streams: where the records come from.
        decoder: turns them into elements.
        decoded: whether the streams give decoded features already.
        epoch: the first.
        epochs: how many; None means forever.
        start_step: elements to leave out. If it exceeds a single epoch, a later epoch follows.
        moving: whether each iteration takes the epoch after the last one's.
        deterministic: whether batches keep their order.
    """
    order = streams.order
    skipped, step = divmod(start_step, order.steps)
    first_epoch, left = epoch + skipped, None if epochs is None else epochs - skipped * (epochs > 1)
    size = order.host_step_size if order.batch_size else None
    short = order.remainder == "keep" and order.total % order.step_size > 0  # the last batch of an epoch
    chunk = size or CHUNK
    uneven = decoder.sizes or decoder.ragged  # such batches can be neither cut nor joined
    if not (CHUNK // 2 <= chunk <= 2 * CHUNK or uneven or (short and left != 1)):
        chunk = CHUNK
    chunks = streams.chunks(chunk)

    def one_epoch(number: Any) -> Any:
        first = tf.where(tf.equal(number, first_epoch), tf.constant(step * order.step_size, tf.int64), 0)
        return chunks(number, first).rebatch(chunk, drop_remainder=chunk == size and not short)

    records = _epochs(first_epoch, left, moving=moving).flat_map(one_epoch)
    single = size is None and (decoder.variable or decoder.ragged)
    if single:
        records = records.unbatch()
    elements = elements_of(records, decoder, decoded=decoded, deterministic=deterministic)
    if size is None:
        elements = elements if single else elements.unbatch()
    elif chunk != size:
        elements = elements.rebatch(size, drop_remainder=not short)
    steps = tf.data.INFINITE_CARDINALITY if left is None else left * order.steps - step
    return elements.apply(tf.data.experimental.assert_cardinality(steps)).prefetch(tf.data.AUTOTUNE)


def elements_of(records: Any, decoder: Decoder, *, decoded: bool = False, deterministic: bool) -> Any:
    """Turns records with their places, in chunks or single, into elements of `load`."""

    def element(*parts: Any) -> Any:
        contents, places = parts[:-1] if decoded else parts[0], parts[-1]
        if decoder.output == "raw_record":
            return contents
        features, sound = contents if decoded else decoder.decode(contents, places)
        return decoder.element(features, sound & (places[..., 1] >= 0))

    return records.map(element, num_parallel_calls=tf.data.AUTOTUNE, deterministic=deterministic)


def _epochs(first: int, number: int | None, *, moving: bool) -> Any:
    """The epoch numbers of one iteration: scalar int64."""
    if number is None:
        return tf.data.Dataset.counter(first)
    if not moving:
        return tf.data.Dataset.range(first, first + number)
    # The only state that outlives an iteration. Dataset.random has such a state too, but follows tf.random.set_seed.
    following = tf.Variable(first, dtype=tf.int64, trainable=False)
    return tf.data.Dataset.from_tensors(0).map(lambda _: following.assign_add(1) - 1)


def check_service(address: Any, **options: Any) -> None:
    """Checks the arguments of `load` that cannot be combined with `service`.

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
        ("deterministic", (False,), f"{_PROMISED}, so it is not deterministic: give False"),
        ("start_step", (0,), f"{_PROMISED}, so there is no place to resume from"),
        ("remainder", (None, "keep", "drop"), 'give "keep" or "drop"'),
        ("sizes", (None,), "give `image_size=(height, width)`"),
        ("on_error", ("raise",), "its workers share no count: fix the dataset, or read without a service"),
        ("num_hosts", (1,), "it does not divide examples equally among hosts"),
        ("cache", (False,), "leave it out"),
        ("repeat", (False,), "give a number of epochs, or load each epoch with its number"),
    ):
        if options[name] not in allowed:
            raise UsageError(f"cannot be combined with `service=`: {cure}", option=name, value=options[name])


def serve(
    streams: Streams, decoder: Decoder, *, address: str, epoch: int, epochs: int, drop_remainder: bool
) -> tf.data.Dataset:
    """The dataset: `epochs` epochs from `epoch` on, each with every example at most once.

    Raises:
        UsageError: the examples hold lists of any length, or no dispatcher answers at that address.
    """
    batch_size = streams.order.batch_size
    if decoder.ragged:
        raise UsageError("`service=` cannot batch lists of varying length; give `multi_hot=True` for several labels")
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
