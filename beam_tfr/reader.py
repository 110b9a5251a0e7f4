"""A converted dataset as a `tf.data.Dataset`, in an order that can be repeated. Never Beam.

    epochs ──flat_map──▶ STREAMS streams, each a range of the epoch's records ──interleave──▶ records ──batch──▶ decode

Every stream owns an equal range of the records, whatever the shards, and shuffles windows of them by stateless ops that
are keyed by (seed, epoch, stream, window). So the order depends on nothing but the dataset, `seed` and `epoch`: not on
the batch size, the machine, the timing of threads, or `tf.random.set_seed`.
"""

from __future__ import annotations

import functools
import operator
import os
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from beam_tfr import manifest, storage
from beam_tfr.manifest import KEPT_FORMATS, Manifest, Split
from beam_tfr.options import ImageOptions
from beam_tfr.options.image import VARIABLE_SIZES
from beam_tfr.schema import ENCODED, FORMAT, LABEL, NO_SPLIT, RAW, UsageError

STREAMS = 8  # read side by side; another number is another order
WINDOW = 256  # records of a stream that are shuffled at a time: together with STREAMS as good as a buffer of 2,048

# Format -> from (bytes, 1 or 3 channels) to uint8 [height, width, channels].
_DECODERS: dict[str, Callable[[Any, int], Any]] = {
    # INTEGER_ACCURATE gives libjpeg-turbo's own pixels at the same cost; TensorFlow's default differs in most values.
    "jpeg": lambda data, channels: tf.io.decode_jpeg(data, channels=channels, dct_method="INTEGER_ACCURATE"),
    "png": lambda data, channels: tf.io.decode_png(data, channels=channels),
    # The first frame; without channels=3, which refuses an alpha plane.
    "webp": lambda data, channels: tf.io.decode_webp(data)[0, :, :, :channels],
    "bmp": lambda data, channels: tf.io.decode_bmp(data, channels=3)[:, :, :channels],
    "gif": lambda data, channels: tf.io.decode_gif(data)[0, :, :, :channels],
    "raw": lambda data, channels: _broadcast(tf.io.parse_tensor(data, tf.uint8), channels),
}
_COMPRESSIONS = {"gzip": "GZIP", "none": ""}


def load(
    path: str | os.PathLike[str],
    *,
    split: str,
    batch_size: int | None = None,
    shuffle: bool = False,
    seed: int = 0,
    epoch: int = 0,
    repeat: bool | int = False,
    remainder: str = "keep",
) -> tf.data.Dataset:
    """Reads one split of a dataset: every example exactly once per epoch.

    Args:
        path: the folder that `convert` wrote, local or gs://.
        split: name of one of its splits.
        batch_size: examples per batch; None gives single examples, the only way for images of different sizes
            (--resize fit, shortest or none): resize or pad them in `.map`, and `.batch` them then.
        shuffle: whether the order is a random one, that of (`seed`, `epoch`), or a fixed one.
        seed: of the shuffle.
        epoch: number of the first epoch. Without `repeat`, each further iteration over a shuffled dataset takes
            another order (Keras begins an epoch more often than it trains one, so which is not promised).
        repeat: how many epochs in a row: a number, True for ever, False for one. The i-th of them is what
            `load(epoch=epoch + i)` gives, with a last batch of its own, and so is every iteration's.
        remainder: "keep" gives the examples that do not fill the last batch of an epoch as a smaller batch, "drop"
            leaves them out.

    Returns:
        Pairs (image, label) of a labelled dataset, uint8 [batch, height, width, channels] and int64 [batch]; the image
        alone of an unlabelled one. 1 channel after --color gray, else 3: so that all images of a dataset are alike,
        gray ones have three equal channels after --color keep (of WebP, which knows no gray, up to 1 apart). Height
        and width are static where all images have one size, else None. The batch dimension is absent without
        `batch_size`, static where all batches are equal (with remainder="drop", or where `batch_size` divides the
        number of examples), else None. The cardinality is known.

    Raises:
        UsageError: an argument is wrong, or asks for batches of images that have different sizes.
        DataError: the folder holds no complete dataset, or a shard is missing or has not the size it should have.

    Iterating over it raises tf.errors.InvalidArgumentError that names the file where a shard ends too early, and
    TensorFlow's own errors (DataLossError, without a name) for other damage: `beam-tfr verify` names it.
    """
    folder = storage.check_path(os.fspath(path), "path")
    batch_size = batch_size if batch_size is None else _integer("batch_size", batch_size, 1)
    seed = _integer("seed", seed, 0, bits=63)
    epoch = _integer("epoch", epoch, 0)
    num_epochs = None if repeat is True else 1 if repeat is False else _integer("repeat", repeat, 1)
    if not isinstance(shuffle, bool):
        raise UsageError(f"shuffle must be True or False, not {shuffle!r}: there is no buffer whose size to give")
    if remainder not in ("keep", "drop"):
        raise UsageError(f'remainder must be "keep" or "drop", not {remainder!r}')
    if remainder == "drop" and batch_size is None:
        raise UsageError('remainder="drop" has no effect without batch_size: give one, or leave remainder out')

    dataset = manifest.read(folder)
    chosen = _choose_split(dataset, split)
    if batch_size is not None and dataset.image_options.resize in VARIABLE_SIZES:
        raise UsageError(
            f"batch_size {batch_size}: the images of {folder} have different sizes (--resize "
            f"{dataset.image_options.resize}), and a batch takes equal ones. Leave batch_size out, bring them to one "
            f"size with .map(...), then .batch({batch_size}); or convert with --resize stretch, crop or pad"
        )
    manifest.check_shards(dataset, [chosen])
    decode = _decoder(dataset, batched=batch_size is not None)
    total, steps = chosen.num_examples, chosen.num_examples
    if batch_size is not None:
        steps = total // batch_size if remainder == "drop" else -(-total // batch_size)
        if total and not steps:
            raise UsageError(f"batch_size {batch_size} leaves no batch of split {split}, which has {total} examples")

    def one_epoch(number: Any) -> Any:
        records = _records(dataset, chosen, number, seed if shuffle else None)
        if batch_size is None:
            return records
        return records.batch(batch_size, drop_remainder=remainder == "drop" or total % batch_size == 0)

    # On a machine with a GPU, tensors made here would lie on it, where tf.data's functions cannot reach them.
    with tf.device("CPU"):
        return (
            _epochs(epoch, num_epochs, moving=shuffle and repeat is False)
            .flat_map(one_epoch)
            .apply(
                tf.data.experimental.assert_cardinality(
                    tf.data.INFINITE_CARDINALITY if num_epochs is None else steps * num_epochs
                )
            )
            .map(decode, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
            .prefetch(tf.data.AUTOTUNE)
        )


def _integer(name: str, value: Any, at_least: int, bits: int = 31) -> int:
    try:
        number = operator.index(value)  # NumPy's integers too
    except TypeError:
        number = -1
    if isinstance(value, bool) or not at_least <= number < 1 << bits:
        raise UsageError(f"{name} must be a whole number from {at_least} to {(1 << bits) - 1}, not {value!r}")
    return number


def _choose_split(dataset: Manifest, split: str) -> Split:
    names = sorted(dataset.splits.keys() - {NO_SPLIT})
    if split not in names:
        raise UsageError(f"split {split!r} is not in {dataset.folder}; there are: {', '.join(names)}")
    return dataset.splits[split]


def _epochs(first: int, number: int | None, *, moving: bool) -> Any:
    """The epoch numbers of one iteration: scalar int64."""
    if number is None:
        return tf.data.Dataset.counter(first)
    if not moving:
        return tf.data.Dataset.range(first, first + number)
    # The one state that outlives an iteration. Dataset.random, which has such a state too, follows tf.random.set_seed.
    following = tf.Variable(first, dtype=tf.int64, trainable=False)
    return tf.data.Dataset.from_tensors(0).map(lambda _: following.assign_add(1) - 1)


def _records(dataset: Manifest, split: Split, epoch: Any, seed: int | None) -> Any:
    """One epoch's serialized records: scalar string, in their order (not shuffled when `seed` is None)."""
    files = tf.constant([storage.join(dataset.folder, shard.file) for shard in split.shards], tf.string)
    counts = tf.constant([shard.num_examples for shard in split.shards], tf.int64)
    if seed is not None:
        epoch_key = _fold(tf.constant([seed, 0], tf.int64), epoch)
        order = _shuffle(tf.range(len(split.shards)), _fold(epoch_key, STREAMS))  # a key that no stream has
        files, counts = tf.gather(files, order), tf.gather(counts, order)
    ends = tf.cumsum(counts)
    begins = ends - counts

    def stream(index: Any) -> Any:
        low, high = index * split.num_examples // STREAMS, (index + 1) * split.num_examples // STREAMS
        skip = tf.maximum(begins, low) - begins
        take = tf.minimum(ends, high) - begins - skip
        parts = tuple(tf.boolean_mask(column, take > 0) for column in (files, counts, skip, take))
        records = tf.data.Dataset.from_tensor_slices(parts).flat_map(
            lambda *part: _part(*part, compression=_COMPRESSIONS[dataset.compression])
        )
        if seed is None:
            return records
        key = _fold(epoch_key, index)
        windows = records.batch(WINDOW).enumerate()
        return windows.map(lambda number, window: _shuffle(window, _fold(key, number))).unbatch()

    return tf.data.Dataset.range(STREAMS).interleave(
        stream, cycle_length=STREAMS, num_parallel_calls=STREAMS, deterministic=True
    )


def _part(file: Any, count: Any, skip: Any, take: Any, *, compression: str) -> Any:
    """Records [skip, skip + take) of a shard that must hold `count`.

    Some truncations of GZIP read short in silence. Such a shard runs into a last record that cannot be made; nothing is
    done per record.
    """

    def fail(record: Any) -> Any:
        # Not tf.debugging.Assert, which would fail while the graph is built.
        tf.raw_ops.Assert(condition=False, data=["damaged shard", file, "ends before the last of its records:", count])
        return record

    # No ignore_errors here, so that all damage could be named: on a file that is gone it tries again for ever.
    records = tf.data.TFRecordDataset(file, compression).skip(skip)
    return records.concatenate(tf.data.Dataset.from_tensors(b"").map(fail)).take(take)


def _fold(key: Any, number: Any) -> Any:
    return tf.random.fold_in(key, number, alg="philox")


def _shuffle(values: Any, key: Any) -> Any:
    return tf.random.experimental.stateless_shuffle(values, key, alg="philox")


def _decoder(dataset: Manifest, *, batched: bool) -> Callable[[Any], Any]:
    """Serialized records, string [batch] or scalar, to what `load` returns."""
    options = dataset.image_options
    labelled = LABEL in dataset.features
    names = _image_features(options)
    spec = {name: tf.io.FixedLenFeature([], tf.string) for name in names}
    if labelled:
        spec[LABEL] = tf.io.FixedLenFeature([], tf.int64)
    channels = 1 if options.color == "gray" else 3
    size = (None, None) if options.resize in VARIABLE_SIZES else options.image_size

    def decode_one(image: Any) -> Any:
        data, *form = image
        if form:
            index = tf.argmax(tf.equal(form[0], KEPT_FORMATS), output_type=tf.int32)
            decoders = [functools.partial(_DECODERS[name], data, channels) for name in KEPT_FORMATS]
            pixels = tf.switch_case(index, decoders)
        else:
            pixels = _DECODERS[options.encoding](data, channels)
        return tf.ensure_shape(pixels, [*size, channels])

    def decode(records: Any) -> Any:
        features = tf.io.parse_example(records, spec)
        encoded = tuple(features[name] for name in names)
        image = tf.map_fn(decode_one, encoded, fn_output_signature=tf.uint8) if batched else decode_one(encoded)
        return (image, features[LABEL]) if labelled else image

    return decode


def _image_features(options: ImageOptions) -> tuple[str, ...]:
    if options.encoding == "raw":
        return (RAW,)
    return (ENCODED, FORMAT) if options.encoding == "keep" else (ENCODED,)


def _broadcast(pixels: Any, channels: int) -> Any:
    """[h, w, 1 or channels] to [h, w, channels]."""
    pixels = tf.ensure_shape(pixels, [None, None, None])
    return tf.broadcast_to(pixels, tf.concat([tf.shape(pixels)[:2], [channels]], 0))
