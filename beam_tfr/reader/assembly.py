"""Epochs, chunks of records, decoding and batches, put together."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from beam_tfr.reader.decode import Decoder
from beam_tfr.reader.layout import Layout
from beam_tfr.reader.streams import Streams

CHUNK = 64  # images that one call decodes, about: enough that its cost does not count, few enough for memory


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
    """The dataset.

    Args:
        streams: where the records come from.
        decoder: what becomes of them.
        decoded: the streams give decoded features already.
        epoch: the first.
        epochs: how many; None for ever.
        start_step: elements that are left out; of a single epoch also whole ones, then a later epoch comes.
        moving: each iteration takes the epoch after that of the last one.
        deterministic: whether batches keep their order.
    """
    layout = streams.layout
    skipped, step = divmod(start_step, layout.steps)
    first_epoch, left = epoch + skipped, None if epochs is None else epochs - skipped * (epochs > 1)
    if layout.batch_size is None:
        first_round, singles = divmod(step, layout.local_streams)
    else:
        first_round, singles = step * layout.rounds_per_step, 0
    keeps = layout.fills and layout.remainder == "keep"
    uneven = decoder.sizes or decoder.ragged  # such batches can neither be cut nor joined
    rounds = layout.rounds_per_step if keeps or uneven else _rounds_of_chunk(layout)
    chunks = streams.chunks(rounds)

    def one_epoch(number: Any) -> Any:
        resumed = tf.equal(number, first_epoch)
        records = chunks(number, tf.where(resumed, tf.constant(first_round, tf.int64), 0))
        if keeps:
            records = records.map(without_padding)
        if singles:
            records = records.unbatch().skip(tf.where(resumed, tf.constant(singles, tf.int64), 0)).batch(CHUNK)
        return records

    together = _epochs(first_epoch, left, moving=moving)
    records = together.flat_map(one_epoch)
    single = layout.batch_size is None and (decoder.variable or decoder.ragged)
    static = (
        None if keeps or singles or layout.rounds % rounds or first_round % rounds else rounds * layout.local_streams
    )
    if single:
        records = records.unbatch()
    else:
        records = records.map(
            lambda *parts: tf.nest.map_structure(
                lambda column: tf.ensure_shape(column, [static, *column.shape[1:]]), parts
            )
        )
    elements = elements_of(records, decoder, decoded=decoded, deterministic=deterministic)
    if layout.batch_size is None:
        elements = elements if single else elements.unbatch()
    elif rounds != layout.rounds_per_step:
        elements = elements.rebatch(layout.host_batch, drop_remainder=True)
    steps = tf.data.INFINITE_CARDINALITY if left is None else left * layout.steps - step
    return elements.apply(tf.data.experimental.assert_cardinality(steps)).prefetch(tf.data.AUTOTUNE)


def elements_of(records: Any, decoder: Decoder, *, decoded: bool = False, deterministic: bool) -> Any:
    """Chunks of records, or single ones, with their places, to what `load` gives."""

    def element(*parts: Any) -> Any:
        contents, places = parts[:-1] if decoded else parts[0], parts[-1]
        if decoder.output == "raw_record":
            return contents
        features, sound = contents if decoded else decoder.decode(contents, places)
        return decoder.element(features, sound & (places[..., 1] >= 0))

    return records.map(element, num_parallel_calls=tf.data.AUTOTUNE, deterministic=deterministic)


def _rounds_of_chunk(layout: Layout) -> int:
    if layout.host_batch and CHUNK // 2 <= layout.host_batch <= 2 * CHUNK:
        return layout.rounds_per_step
    return max(1, CHUNK // layout.local_streams)


def without_padding(*parts: Any) -> Any:
    real = parts[-1][:, 1] >= 0
    return tf.nest.map_structure(lambda column: tf.boolean_mask(column, real), parts)


def _epochs(first: int, number: int | None, *, moving: bool) -> Any:
    """The epoch numbers of one iteration: scalar int64."""
    if number is None:
        return tf.data.Dataset.counter(first)
    if not moving:
        return tf.data.Dataset.range(first, first + number)
    # The one state that outlives an iteration. Dataset.random, which has such a state too, follows tf.random.set_seed.
    following = tf.Variable(first, dtype=tf.int64, trainable=False)
    return tf.data.Dataset.from_tensors(0).map(lambda _: following.assign_add(1) - 1)
