"""`load`: a split of a converted dataset as a `tf.data.Dataset`.

epochs ──flat_map──▶ chunks of records (streams.py) ──map──▶ decoded (decode.py) ──rebatch──▶ batches
"""

import os
from typing import Any

import tensorflow as tf

from beam_tfr.dataset.manifest import check_shard_files, read_manifest
from beam_tfr.dataset.reader_arguments import (
    OUTPUTS,
    STREAMS,
    check_choice,
    check_folder,
    check_integer,
    check_repeat,
    check_shuffle,
    check_targets,
)
from beam_tfr.dataset.splits import select_examples
from beam_tfr.options import ImageOptions
from beam_tfr.order import Order
from beam_tfr.reader.decode import Decoder
from beam_tfr.reader.images import ImageDecoder
from beam_tfr.reader.streams import Parts, Streams
from beam_tfr.schema.errors import UsageError, without_traceback
from beam_tfr.schema.feature_names import SIDES

# images decoded in one call, about: enough that its overhead does not count, few enough for memory
CHUNK = 64


@without_traceback
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
    streams: int = STREAMS,
    host_index: int | None = None,
    num_hosts: int = 1,
    output: str = "pair",
    image_size: int | tuple[int, int] | None = None,
    crop: str | None = None,
    sizes: str | None = None,
    multi_hot: bool = False,
    boxes: str | None = None,
    max_boxes: int | None = None,
) -> tf.data.Dataset:
    """Reads a split of a dataset, every example exactly once per epoch, in the order of
    `beam_tfr.order`.

    Args:
        path: the folder that `convert` wrote, local or gs://.
        split: name of a split; several, "train+validation"; or slices by examples in the order on
            disk, which is random: "train[:80%]", "train[1000:]", "train[-50:]". Percentages are
            rounded down.
        batch_size: examples per batch in total, over all hosts, a multiple of `num_hosts`; each
            host gets `batch_size / num_hosts`. None yields single examples.
        remainder: what to do with the examples that do not fill the last batch of an epoch. "keep"
            yields a smaller batch, "drop" omits them, "pad" fills the batch up with black images of
            label 0 and weight 0 (every element then has a weight). None: "keep" on one host, "drop"
            on several.
        shuffle: whether to shuffle by (`seed`, epoch); otherwise, all epochs have the same order.
            True shuffles shards, then records within windows, and reads shards from beginning to
            end. To permute the whole split in each epoch, read it with `beam_tfr.Records` or
            `beam_tfr.torch.ImageDataset`.
        seed: seed for the shuffle and random crops.
        epoch: number of the first epoch. Without `repeat` and `start_step`, each iteration over a
            shuffled dataset has a new order (Keras starts more iterations than it trains epochs, so
            which one is not guaranteed).
        repeat: number of epochs, True for endlessly many, False for one. Epoch i equals
            `load(epoch=epoch + i)`, with a last batch of its own, and every iteration is the same.
        start_step: number of elements of this host to skip, as if they had been read; may exceed an
            epoch. Skipped examples are not decoded, and shards that contain only those are not
            opened.
        streams: number of runs of records to read in parallel; changes the order. Unshuffled,
            streams=1 gives the order on disk.
        host_index: which of the hosts this is, from 0; needed if there are several.
        num_hosts: number of hosts. Each gets different examples and the same number of batches.
            Over all hosts, a step contains the same examples for any number of hosts. A host reads
            `1 / gcd(num_hosts, streams)` of the records: only its own if the number of hosts
            divides that of the streams, else also some that it skips.
        output: "pair": (image, label), or the image alone if the dataset has no labels; the label
            is -1 where a table had none (Keras' losses take `ignore_class=-1`). "dict": all
            features by the manifest's names, with the pixels as `image` and masks as `mask` (int32
            [batch, height, width]) instead of the encoded bytes, and the images of pairs by their
            names (as masks). "image": the image alone. "encoded": as "pair", with the encoded
            bytes. "raw_record": serialized tf.train.Examples.
        image_size: (height, width), or one number for both, to resize images to (bilinear,
            antialiased).
        crop: part of the image to resize: None for all, "center" for the largest centered part of
            that shape, "random" for a random part (8 to 100 % of the area, 3:4 to 4:3), possibly
            mirrored, drawn from (`seed`, epoch, example). Masks and pairs follow, and boxes if you
            ask for them.
        sizes: how to batch images of different sizes: "padded" with zeros at the bottom and right
            to the largest size, or "ragged". None raises an error.
        multi_hot: labels become float32 [batch, classes], if an image can have several; they are
            otherwise a tf.RaggedTensor, int64.
        boxes: returns the objects of each image in place of its labels, with their boxes in this
            format, as Keras names it: "xyxy" (left, top, right, bottom), "yxyx", "xywh" (left, top,
            width, height, as COCO has it) or "center_xywh", in pixels of the image that is
            returned; "rel_xyxy" and so on as shares of its height and width. "pair" gives (image,
            {"boxes": float32 [objects, 4], "classes": int64 [objects]}); "dict" has `boxes`,
            `classes`, and if the dataset has masks of boxes, `masks` (uint8 [objects, height,
            width] of 0 and 1), in place of the features that they are made from. Boxes follow
            `image_size` and `crop`: they are clipped and mirrored with the pixels, and dropped,
            with all other features of their object, if less than a tenth of their area is left.
        max_boxes: makes boxes dense [batch, max_boxes, 4] and classes [batch, max_boxes], padded
            with 0 and -1. Of an image with more objects, the first are kept. Without it, both are
            tf.RaggedTensors.

    Returns:
        For "pair": images uint8 [batch, height, width, channels], labels int64 [batch], and with
        "pad" weights float32 [batch], called `weight` in a dict. There is 1 channel after --color
        gray, else 3: gray images have three equal channels after --color keep (up to 1 apart for
        WebP, which has no gray). Height and width are static if all images have one size, else
        None. The batch dimension is absent without `batch_size`, static if all batches are equal,
        else None. The cardinality is known. Its `class_names` is a tuple, whose index is the label;
        `map`, `take` and so on give datasets without it.

    Raises:
        UsageError: an argument is wrong, or two of them do not fit together.
        DataError: the folder holds no complete dataset, or a shard is missing or has the wrong
            size.

    Iterating raises tf.errors.InvalidArgumentError, naming file and record, where a shard or an
    image is damaged or a label is outside the class list, and tf.errors.NotFoundError for a shard
    that has disappeared.
    """
    folder = check_folder(path)
    if host_index is None and check_integer("num_hosts", num_hosts, 1) > 1:
        which = f"needs `host_index=`, the number of this host, 0 to {num_hosts - 1}"
        raise UsageError(which, option="num_hosts", value=num_hosts)
    shuffled = check_shuffle(shuffle, seed)
    epoch = check_integer("epoch", epoch, 0)
    start_step = check_integer("start_step", start_step, 0, bits=63)
    epochs = check_repeat(repeat)
    check_choice("output", output, OUTPUTS)
    check_choice("crop", crop, (None, "random", "center"))
    check_choice("sizes", sizes, (None, "padded", "ragged"))
    if image_size is not None:
        image_size = ImageOptions(image_size=image_size).image_size  # type: ignore[arg-type]  # takes a number too
    elif crop:
        why = "needs `image_size=(height, width)`, the size to resize the crop to"
        raise UsageError(why, option="crop", value=crop)

    dataset = read_manifest(folder)
    label = dataset.names.label
    check_targets(
        dataset, output, multi_hot=multi_hot, boxes=boxes, max_boxes=max_boxes, label=label
    )
    if crop and output == "dict" and SIDES[0] in dataset.features and not boxes:
        why = 'leaves the boxes of the objects where they are: give `boxes=` too, such as "xyxy", and they follow'
        raise UsageError(why, option="crop", value=crop)
    selection = select_examples(dataset, split)
    order = Order(
        total=selection.total,
        streams=streams,
        num_hosts=num_hosts,
        host_index=host_index or 0,
        batch_size=batch_size,
        remainder=remainder,
    )
    if epochs is not None and epochs > 1 and start_step > epochs * order.steps:
        why = f"is beyond the {epochs * order.steps} steps of {epochs} epochs"
        raise UsageError(why, option="start_step", value=start_step)
    image = ImageDecoder(options=dataset.image_options, image_size=image_size, crop=crop, seed=seed)
    with tf.device("CPU"):
        parts = Parts(selection)
    decoder = Decoder(
        dataset=dataset,
        parts=parts,
        image=image,
        output=output,
        sizes=sizes,
        multi_hot=multi_hot,
        weighted=remainder == "pad",
        boxes=boxes,
        max_boxes=max_boxes,
    )
    _check_output(decoder, batch_size)
    check_shard_files(dataset, selection.splits)

    # On a machine with a GPU, tensors made here would lie on it, where tf.data's functions cannot
    # reach them. Autograph finds nothing to convert here, and takes longer for that than all the
    # rest.
    build = tf.autograph.experimental.do_not_convert(_assembled)
    with tf.device("CPU"):
        records = Streams(
            dataset=dataset, parts=parts, order=order, seed=shuffled, padding=decoder.padding
        )
        advancing = bool(shuffle) and repeat is False and not start_step
        loaded = build(
            records, decoder, epoch=epoch, epochs=epochs, start_step=start_step, advancing=advancing
        )
    loaded.class_names = dataset.class_names  # so named by Keras' image_dataset_from_directory too
    return loaded


def _assembled(
    streams: Streams,
    decoder: Decoder,
    *,
    epoch: int,
    epochs: int | None,
    start_step: int,
    advancing: bool,
) -> tf.data.Dataset:
    """The dataset that `load` returns.

    Args:
        streams: where the records come from.
        decoder: turns them into elements.
        epoch: the first.
        epochs: how many; None means forever.
        start_step: elements to leave out. If it exceeds a single epoch, a later epoch follows.
        advancing: whether each iteration takes the epoch after the last one's.
    """
    order = streams.order
    skipped, step = divmod(start_step, order.steps)
    first_epoch = epoch + skipped
    left = None if epochs is None else epochs - skipped * (epochs > 1)
    size = order.host_step_size if order.batch_size else None
    short = (
        order.remainder == "keep" and order.total % order.step_size > 0
    )  # the last batch of an epoch
    chunk = size or CHUNK
    uneven = decoder.sizes or decoder.ragged  # such batches can be neither cut nor joined
    if not (CHUNK // 2 <= chunk <= 2 * CHUNK or uneven or (short and left != 1)):
        chunk = CHUNK

    def one_epoch(number: Any) -> Any:
        first = tf.where(
            tf.equal(number, first_epoch), tf.constant(step * order.step_size, tf.int64), 0
        )
        return streams.chunks(chunk, number, first).rebatch(
            chunk, drop_remainder=chunk == size and not short
        )

    records = _epochs(first_epoch, left, advancing=advancing).flat_map(one_epoch)
    single = size is None and (decoder.variable or decoder.ragged)
    if single:
        records = records.unbatch()
    elements = records.map(decoder.element, num_parallel_calls=tf.data.AUTOTUNE)
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
    # The only state that outlives an iteration. Dataset.random has such a state too, but follows
    # tf.random.set_seed.
    following = tf.Variable(first, dtype=tf.int64, trainable=False)
    return tf.data.Dataset.from_tensors(0).map(lambda _: following.assign_add(1) - 1)


def _check_output(decoder: Decoder, batch_size: int | None) -> None:
    """Checks that the options have an effect on the output.

    Raises:
        UsageError: one has none, or the output cannot hold what it asks for.
    """
    folder = decoder.dataset.folder
    output = decoder.output
    options = decoder.image.options
    undecoded = ""  # why nothing is decoded
    if not decoder.holds_images:
        undecoded = f"{folder} holds no images (`encoding={options.encoding}`)"
        if output not in ("dict", "raw_record"):
            raise UsageError(
                f'{undecoded}: give "dict", or "raw_record"', option="output", value=output
            )
    elif output in ("encoded", "raw_record"):
        undecoded = f'`output="{output}"` decodes nothing'
    if batch_size and decoder.variable:
        one_size = ""
    else:
        one_size = "it applies to batches of images of different sizes"
    effects = [
        ("image_size", decoder.image.image_size, undecoded),
        ("sizes", decoder.sizes, undecoded or one_size),
    ]
    for option, value, why in effects:
        if value and why:
            raise UsageError(f"has no effect: {why}", option=option, value=value)
    if (
        decoder.weighted
        and output != "dict"
        and (not decoder.labelled or output in ("image", "raw_record"))
    ):
        what = f'`output="{output}"`' if decoder.labelled else folder
        raise UsageError(
            f'`remainder="pad"` gives labels a weight, but {what} has no labels: give `output="dict"`'
        )
    if decoder.variable and batch_size and not decoder.sizes:
        why = f"the images of {folder} have different sizes (`resize={options.resize}`), and a batch takes equal ones"
        cure = 'Give load `image_size=(height, width)`, or `batch_size=` with `sizes="padded"` or "ragged"'
        others = "read single images; or convert with `resize=crop`, pad or stretch"
        raise UsageError(f"{why}. {cure}; {others}", option="batch_size", value=batch_size)
