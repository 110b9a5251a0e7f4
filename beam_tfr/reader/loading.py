"""`load`: a split of a converted dataset as a `tf.data.Dataset`.

epochs ──flat_map──▶ chunks of records (streams.py) ──map──▶ decoded (decode.py) ──rebatch──▶ batches
"""

from __future__ import annotations

import os
from typing import Any

import tensorflow as tf

from beam_tfr import checks, manifest
from beam_tfr.checks import REMAINDERS, boolean, choice, integer, num_epochs, skippable
from beam_tfr.options.image import MAX_SIDE
from beam_tfr.reader import caching
from beam_tfr.reader.assembly import assemble
from beam_tfr.reader.decode import Decoder
from beam_tfr.reader.images import ImageDecoder
from beam_tfr.reader.layout import Layout
from beam_tfr.reader.serving import check_service, serve
from beam_tfr.reader.streams import Streams
from beam_tfr.schema import UsageError
from beam_tfr.selection import select

OUTPUTS = ("pair", "dict", "image", "encoded", "raw_record")
DTYPES = ("uint8", "float32", "bfloat16")


def load(
    path: str | os.PathLike[str],
    *,
    split: str,
    batch_size: int | None = None,
    remainder: str | None = None,
    shuffle: bool = False,
    seed: int = 0,
    epoch: int = 0,
    repeat: bool | int = False,
    start_step: int = 0,
    streams: int = 8,
    host_index: int = 0,
    num_hosts: int = 1,
    input_context: tf.distribute.InputContext | None = None,
    output: str = "pair",
    dtype: str | tf.DType = "uint8",
    image_size: tuple[int, int] | None = None,
    crop: str | None = None,
    sizes: str | None = None,
    one_hot: bool = False,
    multi_hot: bool = False,
    cache: bool | str | os.PathLike[str] = False,
    cache_decoded: bool = False,
    deterministic: bool = True,
    on_error: str = "raise",
    max_skipped: int | None = None,
    service: str | None = None,
) -> tf.data.Dataset:
    """Reads examples of a dataset: every one exactly once per epoch, on one of the hosts.

    Args:
        path: the folder that `convert` wrote, local or gs://.
        split: name of one of its splits; several, "train+validation"; or slices by examples, in the order on disk,
            which is a random one: "train[:80%]", "train[1000:]", "train[-50:]". Percentages are rounded down.
        batch_size: examples of a batch on all hosts together, a multiple of `streams`; each host gets `batch_size /
            num_hosts`. None gives single examples.
        remainder: what becomes of the examples that do not fill the last batch of an epoch. "keep" gives them as a
            smaller batch, "drop" leaves them out, "pad" fills the batch with black images of label 0 and weight 0
            (every element then has a weight). None: "keep", with several hosts "drop".
        shuffle: whether the order is a random one, that of (`seed`, epoch, `streams`), or a fixed one.
        seed: of the shuffle and of random crops.
        epoch: number of the first epoch. Without `repeat` and `start_step`, each further iteration over a shuffled
            dataset takes another order (Keras begins an epoch more often than it trains one, so which is not promised).
        repeat: how many epochs in a row: a number, True for ever, False for one. The i-th of them is what
            `load(epoch=epoch + i)` gives, with a last batch of its own, and so is every iteration's.
        start_step: elements of this host that are left out at the beginning, as if they had been read: it may exceed
            an epoch. Nothing of them is decoded, and no shard opened that lies wholly before them.
        streams: read side by side; another number is another order. A multiple of `num_hosts`.
        host_index: which of the hosts this is, from 0.
        num_hosts: each gets other examples, and the same number of batches. All hosts' batches at one step are together
            the same examples for every number of hosts.
        input_context: gives both for `tf.distribute`'s `distribute_datasets_from_function`.
        output: "pair": (image, label), of a dataset without labels the image alone; label -1 where a table named none
            for it (Keras' losses take `ignore_class=-1`). "dict": all features by the manifest's names, with the
            pixels as `image` in the place of the encoded ones. "image": the image alone. "encoded": as "pair", with
            the encoded bytes. "raw_record": serialized tf.train.Examples.
        dtype: of the images: "uint8", 0 to 255; "float32" or "bfloat16", divided by 255: 0 to 1.
        image_size: (height, width) that images are brought to at reading (bilinear, antialiased).
        crop: which part of them: None all, "center" the largest middle part of that shape, "random" a random part
            (8 to 100 % of the area, 3:4 to 4:3), mirrored or not, that of (`seed`, epoch, example).
        sizes: how images of different sizes come into a batch: "padded" with zeros, below and to the right, to the
            largest; "ragged". None: not at all.
        one_hot: labels as float32 [batch, classes].
        multi_hot: the same where an image has several labels; without it they are a tf.RaggedTensor, int64.
        cache: "memory", or a folder on a local disk: remembers the records from epoch to epoch. The order is another
            one then: a stream has the same records in every epoch. Only an epoch that is read to its end fills it;
            what iterates meanwhile reads the shards.
        cache_decoded: remembers the decoded images instead.
        deterministic: False lets batches overtake each other.
        on_error: "raise" names file and record of what cannot be read or decoded; "skip" puts a black image of weight 0
            and label 0 in its place, says so on standard error, and raises after `max_skipped` of them.
        max_skipped: with on_error="skip", 100 when None; a damaged shard counts as many as it has records left.
        service: address of a tf.data service, such as "grpc://localhost:5000", whose workers read and decode: in an
            order that nobody promises. Every example comes at most once in an epoch; when no worker fails, only the
            remainder is missing. What needs an order, or a count of all workers, is refused.

    Returns:
        For "pair", images [batch, height, width, channels] of `dtype`, int64 [batch], and with "pad" or "skip" weights
        float32 [batch], which stand as `weight` in a dict. 1 channel after --color gray, else 3: so that all images of
        a dataset are alike, gray ones have three equal channels after --color keep (of WebP, which knows no gray, up
        to 1 apart). Height and width are static where all images have one size, else None. The batch dimension is
        absent without `batch_size`, static where all batches are equal, else None. The cardinality is known.

    Raises:
        UsageError: an argument is wrong, or two of them do not fit together.
        DataError: the folder holds no complete dataset, or a shard is missing or has not the size it should have.

    Iterating over it raises tf.errors.InvalidArgumentError that names file and record where a shard or an image is
    damaged or a label outside the class list, and tf.errors.NotFoundError for a shard that has gone since.
    """
    folder = checks.folder(path)
    if input_context is not None:
        if not isinstance(input_context, tf.distribute.InputContext):
            raise UsageError(f"input_context must be a tf.distribute.InputContext, not {input_context!r}")
        if (host_index, num_hosts) != (0, 1):
            raise UsageError("input_context names the host: leave host_index and num_hosts out")
        host_index, num_hosts = input_context.input_pipeline_id, input_context.num_input_pipelines
    batch_size = batch_size if batch_size is None else integer("batch_size", batch_size, 1)
    seed = integer("seed", seed, 0, bits=63)
    epoch = integer("epoch", epoch, 0)
    start_step = integer("start_step", start_step, 0, bits=63)
    epochs = num_epochs(repeat)
    boolean("shuffle", shuffle, "there is no buffer whose size to give")
    boolean("one_hot", one_hot)
    boolean("multi_hot", multi_hot)
    boolean("deterministic", deterministic)
    choice("remainder", remainder, REMAINDERS)
    choice("output", output, OUTPUTS)
    choice("crop", crop, (None, "random", "center"))
    choice("sizes", sizes, (None, "padded", "ragged"))
    max_skipped = skippable(on_error, max_skipped)
    dtype = _dtype(dtype)
    image_size = _image_size(image_size, crop)
    if service is not None:
        check_service(
            service,
            deterministic=deterministic,
            repeat=repeat,
            remainder=remainder,
            sizes=sizes,
            on_error=on_error,
            start_step=start_step,
            num_hosts=num_hosts,
            cache=cache,
        )
    weighted = remainder == "pad" or on_error == "skip"

    dataset = manifest.read(folder)
    selection = select(dataset, split)
    layout = Layout(
        total=selection.total,
        streams=integer("streams", streams, 1),
        num_hosts=integer("num_hosts", num_hosts, 1),
        host_index=integer("host_index", host_index, 0),
        batch_size=batch_size,
        remainder=remainder,
    )
    if epochs is not None and epochs > 1 and start_step > epochs * layout.steps:
        raise UsageError(f"start_step {start_step} lies behind the {epochs * layout.steps} steps of {epochs} epochs")
    image = ImageDecoder(options=dataset.image_options, image_size=image_size, crop=crop, seed=seed)
    decoder = Decoder(
        dataset=dataset,
        selection=selection,
        image=image,
        output=output,
        dtype=dtype,
        sizes=sizes,
        one_hot=one_hot,
        multi_hot=multi_hot,
        weighted=weighted,
        max_skipped=max_skipped,
    )
    _check_output(decoder, batch_size)
    manifest.check_shards(dataset, selection.splits)
    remember = caching.memory_of(cache, cache_decoded, decoder, layout)

    # On a machine with a GPU, tensors made here would lie on it, where tf.data's functions cannot reach them.
    # Autograph finds nothing to convert here, and takes longer for that than all the rest.
    build, through_service = map(tf.autograph.experimental.do_not_convert, (assemble, serve))
    with tf.device("CPU"):
        padding = (tf.constant(decoder.padding),)
        records = Streams(
            selection=selection,
            layout=layout,
            compression=dataset.compression,
            seed=seed if shuffle else None,
            padding=decoder.decode(*padding, tf.zeros([2], tf.int64)) if cache_decoded else padding,
            strict=on_error == "raise",
            remember=remember,
        )
        if service is not None:
            return through_service(
                records,
                decoder,
                address=service,
                epoch=epoch,
                epochs=epochs or 1,
                drop_remainder=layout.remainder == "drop",
            )
        return build(
            records,
            decoder,
            decoded=cache_decoded,
            epoch=epoch,
            epochs=epochs,
            start_step=start_step,
            moving=shuffle and repeat is False and not start_step,
            deterministic=deterministic,
        )


def _dtype(dtype: Any) -> Any:
    name = dtype.name if isinstance(dtype, tf.DType) else dtype
    return tf.as_dtype(choice("dtype", name, DTYPES))


def _image_size(image_size: Any, crop: str | None) -> tuple[int, int] | None:
    if image_size is None:
        if crop:
            raise UsageError(f'crop="{crop}" needs image_size=(height, width), which the part is brought to')
        return None
    if not isinstance(image_size, (tuple, list)) or len(image_size) != 2:
        raise UsageError(f"image_size must be (height, width) in pixels, not {image_size!r}")
    height, width = (integer("image_size", side, 1) for side in image_size)
    if max(height, width) > MAX_SIDE:
        raise UsageError(f"image_size {height}x{width} is beyond {MAX_SIDE} pixels a side")
    return height, width


def _check_output(decoder: Decoder, batch_size: int | None) -> None:
    """
    Raises:
        UsageError: an option has no effect on this output, or the output cannot hold it.
    """
    folder, output, image = decoder.dataset.folder, decoder.output, decoder.image
    why = ""  # nothing is decoded
    if not decoder.holds_images:
        encoding = image.options.encoding
        if output not in ("dict", "raw_record"):
            raise UsageError(
                f'output="{output}": {folder} holds no images (--encoding {encoding}): give output="dict", or '
                '"raw_record"'
            )
        why = f": {folder} holds no images (--encoding {encoding})"
    elif output in ("encoded", "raw_record"):
        why = f' on output="{output}", which decodes nothing'
    given = {"image_size": image.image_size, "dtype": decoder.dtype != tf.uint8, "sizes": decoder.sizes}
    for name in (name for name, value in given.items() if why and value):
        raise UsageError(f"{name} has no effect{why}")
    hot = "one_hot" if decoder.one_hot else "multi_hot" if decoder.multi_hot else ""
    if hot and (not decoder.labelled or output in ("image", "raw_record")):
        why = f'output="{output}" has no labels' if decoder.labelled else f"{folder} has no labels"
        raise UsageError(f"{hot} has no effect: {why}")
    if decoder.one_hot and decoder.several_labels:
        raise UsageError(
            f"one_hot: the examples of {folder} have any number of labels each: give multi_hot=True instead"
        )
    if decoder.multi_hot and not decoder.several_labels:
        raise UsageError(f"multi_hot: the examples of {folder} have one label each: give one_hot=True instead")
    if decoder.weighted and (output in ("image", "raw_record") or (output != "dict" and not decoder.labelled)):
        raise UsageError(
            'remainder="pad" and on_error="skip" mark what is no example by a weight of 0, which '
            + (f'output="{output}" cannot hold: ' if decoder.labelled else "an example without a label cannot have: ")
            + 'give output="dict"'
        )
    if decoder.sizes and batch_size is None:
        raise UsageError(f'sizes="{decoder.sizes}" has no effect without batch_size: give one, or leave sizes out')
    if decoder.sizes and not decoder.variable:
        raise UsageError(f'sizes="{decoder.sizes}" has no effect: all images have one size. Leave it out')
    if decoder.variable and batch_size and not decoder.sizes:
        raise UsageError(
            f"batch_size {batch_size}: the images of {folder} have different sizes (--resize {image.options.resize}), "
            f'and a batch takes equal ones. Give image_size=(height, width), or sizes="padded" or "ragged"; leave '
            f"batch_size out; or convert with --resize stretch, crop or pad"
        )
