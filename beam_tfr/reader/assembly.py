"""Assembles epochs, chunks of records, decoding and batches.

epochs ──flat_map──▶ chunks of records ──map──▶ decoded chunks ──rebatch──▶ batches
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from beam_tfr.reader.decode import Decoder
from beam_tfr.reader.random_reads import RandomReads
from beam_tfr.reader.streams import Streams

CHUNK = 64  # images decoded in one call, about: enough that its overhead does not count, few enough for memory


def assemble(
    streams: Streams | RandomReads,
    decoder: Decoder,
    *,
    epoch: int,
    epochs: int | None,
    start_step: int,
    advancing: bool,
    deterministic: bool,
) -> tf.data.Dataset:
    """The dataset that `load` returns.

    Args:
        streams: where the records come from.
        decoder: turns them into elements.
        epoch: the first.
        epochs: how many; None means forever.
        start_step: elements to leave out. If it exceeds a single epoch, a later epoch follows.
        advancing: whether each iteration takes the epoch after the last one's.
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

    records = _epochs(first_epoch, left, advancing=advancing).flat_map(one_epoch)
    single = size is None and (decoder.variable or decoder.ragged)
    if single:
        records = records.unbatch()
    elements = records.map(decoder.element, num_parallel_calls=tf.data.AUTOTUNE, deterministic=deterministic)
    if size is None:
        elements = elements if single else elements.unbatch()
    elif chunk != size:
        elements = elements.rebatch(size, drop_remainder=not short)
    steps = tf.data.INFINITE_CARDINALITY if left is None else left * order.steps - step
    return elements.apply(tf.data.experimental.assert_cardinality(steps)).prefetch(tf.data.AUTOTUNE)


def _epochs(first: int, number: int | None, *, advancing: bool) -> Any:
    """The epoch numbers of one iteration: scalar int64."""
    if not advancing:
        return tf.data.Dataset.range(first, tf.int64.max if number is None else first + number)
    # The only state that outlives an iteration. Dataset.random has such a state too, but follows tf.random.set_seed.
    following = tf.Variable(first, dtype=tf.int64, trainable=False)
    return tf.data.Dataset.from_tensors(0).map(lambda _: following.assign_add(1) - 1)
