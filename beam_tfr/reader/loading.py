"""Loads a split of a converted dataset as a `tf.data.Dataset`.

epochs ──flat_map──▶ chunks of records (streams.py) ──map──▶ decoded (decode.py)
    ──rebatch──▶ batches
"""

import os
from typing import Any, NamedTuple

import tensorflow as tf

from beam_tfr import storage
from beam_tfr.dataset.manifest import Manifest, check_shard_files, read_manifest
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
from beam_tfr.dataset.windows import choose_window
from beam_tfr.options import ImageOptions
from beam_tfr.order import Order
from beam_tfr.reader.decode import Decoder
from beam_tfr.reader.images import ImageDecoder
from beam_tfr.reader.output_check import check_output
from beam_tfr.reader.streams import PartTensors, Streams
from beam_tfr.schema.errors import DataError, UsageError, without_traceback

# Approximate number of images to decode in one call: negligible overhead, moderate memory.
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
    one_hot: bool = False,
    boxes: str | None = None,
    max_boxes: int | None = None,
    target: str | None = None,
) -> tf.data.Dataset:
    """Reads a split of a dataset, every example exactly once per epoch.

    The examples come in the order of `beam_tfr.order`.

    Args:
        path: the folder that `convert` wrote, local or gs://.
        split: name of a split; several splits, as in "train+validation"; "all" for all splits; all
            splits except some, as in "all-fold4"; or slices by examples in the order on disk, which
            is random within a split: "train[:80%]", "train[1000:]", "train[-50:]". A slice of "all"
            treats all splits as one sequence. Percentages are rounded down.
        batch_size: total examples per batch, over all hosts; a multiple of `num_hosts`. Each host
            gets `batch_size / num_hosts`. None yields single examples.
        remainder: what to do with examples that do not fill the last batch of an epoch. "keep"
            yields a smaller batch, "drop" omits these examples, "pad" fills the batch up with black
            images of label 0 and weight 0 (every element then has a weight). None means "keep" on
            one host, "drop" on several.
        shuffle: whether to shuffle by (`seed`, epoch); otherwise, all epochs have the same order.
            True shuffles shards, then records within windows, and reads shards from beginning to
            end. To permute the whole split in each epoch, read it with `beam_tfr.Records` or
            `beam_tfr.torch.ImageDataset`.
        seed: seed for the shuffle and random crops.
        epoch: number of the first epoch. Without `repeat` and `start_step`, each iteration over a
            shuffled dataset has a new order (Keras starts more iterations than it trains epochs, so
            which order an epoch gets is not guaranteed).
        repeat: number of epochs; True repeats forever, False means one epoch. Epoch i equals
            `load(epoch=epoch + i)`, with its own last batch, and every iteration is the same.
        start_step: number of this host's elements to skip, as if they had been read. The number may
            exceed an epoch: reading then starts in a later epoch, even without `repeat`. Skipped
            examples are not decoded, and shards that contain only skipped examples are not opened.
        streams: number of parts of the split to read in parallel; changes the order. Without
            shuffling, streams=1 gives the order on disk.
        host_index: number of this host, from 0; needed if there are several hosts.
        num_hosts: number of hosts. Each gets different examples and the same number of batches.
            Over all hosts, a step contains the same examples for any number of hosts. A host reads
            `1 / gcd(num_hosts, streams)` of the records: only its own records if `num_hosts`
            divides `streams`, otherwise also some records that it skips.
        output: "pair": (image, label), or only the image if the dataset has no labels; the label is
            -1 where a table had no label (Keras' losses accept `ignore_class=-1`). "dict": all
            features by the manifest's names, but with decoded pixels instead of encoded bytes: the
            image as `image`, masks as `mask` (int32 [batch, height, width]), and the images of
            pairs under their names (like masks). "image": only the image. "encoded": like "pair",
            with the encoded bytes. "raw_record": serialized tf.train.Examples.
        image_size: (height, width), or one number for both, to resize images to (bilinear,
            antialiased).
        crop: part of the image to resize: None for the whole image, "center" for the largest
            centered part with that aspect ratio, "random" for a random part (8 to 100% of the area,
            3:4 to 4:3), possibly mirrored, drawn from (`seed`, epoch, example). Masks and pairs are
            cropped along with the image, and so are boxes if `boxes` is set.
        sizes: how to batch images of different sizes: "padded" with zeros at the bottom and right
            to the largest size, or "ragged". None raises an error.
        one_hot: labels become float32 [batch, classes]: 1 for each class of the image, and 0 for
            the others. Otherwise, labels are int64 [batch], or an int64 tf.RaggedTensor if images
            have several labels.
        boxes: returns the objects in each image instead of its labels, with their boxes in this
            format, named as in Keras: "xyxy" (left, top, right, bottom), "yxyx", "xywh" (left, top,
            width, height, as in COCO) or "center_xywh", in pixels of the returned image; "rel_xyxy"
            and so on are in fractions of the image's height and width. "pair" gives (image,
            {"boxes": float32 [objects, 4], "classes": int64 [objects]}); "dict" has `boxes`,
            `classes` and, if the dataset has masks of boxes, `masks` (uint8 [objects, height,
            width] of 0 and 1), instead of the features from which these are made. Boxes follow
            `image_size` and `crop`: they are clipped and mirrored with the pixels. An object is
            dropped, with all its features, if less than a tenth of its box's area is left.
        max_boxes: makes boxes and classes dense, [batch, max_boxes, 4] and [batch, max_boxes],
            padded with 0 and -1. If an image has more objects, only the first objects are kept.
            Without `max_boxes`, boxes and classes are tf.RaggedTensors.
        target: column to return instead of the labels, such as a number to predict: int64, float32
            or string [batch].

    Returns:
        For "pair": images uint8 [batch, height, width, channels], labels int64 [batch], and with
        "pad" also weights float32 [batch]; in a dict, the weights are `weight`. There is 1 channel
        with --color gray, otherwise 3: with --color keep, gray images have three equal channels (in
        WebP, which does not support gray, they may differ by 1). Height and width are static if all
        images have the same size, otherwise None. The batch dimension is absent without
        `batch_size`, static if all batches are equal, and otherwise None. The cardinality is known.
        The dataset's `class_names` is a tuple, indexed by label; datasets returned by `map`, `take`
        and so on lack this attribute.

    Raises:
        UsageError: an argument is wrong, or conflicts with another.
        DataError: the folder holds no complete dataset, a shard is missing or has the wrong size,
            or TensorFlow cannot read gs://.

    Iterating raises tf.errors.InvalidArgumentError, which mentions file and record, where a shard
    or an image is damaged or a label is outside the class list, and tf.errors.NotFoundError for a
    shard that has disappeared.
    """
    folder = check_folder(path)
    if host_index is None:
        _check_one_host(num_hosts)
    shuffle_seed = check_shuffle(shuffle, seed)
    epoch = check_integer("epoch", epoch, 0)
    start_step = check_integer("start_step", start_step, 0, bits=63)
    num_epochs = check_repeat(repeat)
    check_choice("output", output, OUTPUTS)
    check_choice("crop", crop, (None, "random", "center"))
    check_choice("sizes", sizes, (None, "padded", "ragged"))
    if image_size is not None:
        # One number means both sides.
        image_size = ImageOptions(image_size=image_size).image_size  # type: ignore[arg-type]
    elif crop:
        raise UsageError(
            "needs `image_size=(height, width)`, the size to resize the crop to",
            option="crop",
            value=crop,
        )

    dataset = read_manifest(folder)
    check_targets(
        dataset,
        output,
        one_hot=one_hot,
        boxes=boxes,
        max_boxes=max_boxes,
        target=target,
        label=dataset.names.label,
    )
    if crop and output == "dict" and boxes is None:
        _check_no_boxes(dataset, crop)
    selection = select_examples(dataset, split)
    streams = check_integer("streams", streams, 1)
    order = Order(
        total=selection.total,
        streams=streams,
        window=choose_window(dataset, selection.parts, streams),
        num_hosts=num_hosts,
        host_index=0 if host_index is None else host_index,
        batch_size=batch_size,
        remainder=remainder,
    )
    schedule = Schedule.plan(order, epoch=epoch, num_epochs=num_epochs, start_step=start_step)
    if shuffle and repeat is False and start_step == 0:
        schedule = schedule._replace(advancing=True)
    image = ImageDecoder(options=dataset.image_options, image_size=image_size, crop=crop, seed=seed)
    with tf.device("CPU"):
        parts = PartTensors(selection)
    decoder = Decoder(
        dataset=dataset,
        parts=parts,
        image=image,
        output=output,
        sizes=sizes,
        one_hot=one_hot,
        weighted=remainder == "pad",
        boxes=boxes,
        max_boxes=max_boxes,
        target=target,
    )
    check_output(decoder, batch_size)
    check_shard_files(dataset, selection.splits)
    check_access(dataset.digest_location.path)

    # On a machine with a GPU, tensors made here would be stored there, where tf.data's functions
    # cannot reach them. Autograph finds nothing to convert, and takes longer than everything else.
    build = tf.autograph.experimental.do_not_convert(_build_elements)
    with tf.device("CPU"):
        records = Streams(
            dataset=dataset, parts=parts, order=order, seed=shuffle_seed, padding=decoder.padding
        )
        elements = build(records, decoder, schedule)
    elements.class_names = dataset.class_names  # as with Keras' image_dataset_from_directory
    return elements


def _check_one_host(num_hosts: int) -> None:
    if check_integer("num_hosts", num_hosts, 1) > 1:
        raise UsageError(
            f"needs `host_index=`, the number of this host, 0 to {num_hosts - 1}",
            option="num_hosts",
            value=num_hosts,
        )


def check_access(path: str) -> None:
    """Checks that TensorFlow can read a file, if it is on gs://.

    TensorFlow has its own reader for gs://, with its own credentials and address.

    Raises:
        DataError: TensorFlow cannot read the file.
    """
    if not storage.is_gcs(path):
        return
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            file.read(1)
    except tf.errors.OpError as error:
        cause = str(error.message).partition("\n")[0]
        cure = "set up Google's default credentials (gcloud auth application-default login)"
        if "STORAGE_EMULATOR_HOST" in os.environ:
            cure = "use ImageDataset or Records, since TensorFlow ignores STORAGE_EMULATOR_HOST"
        raise DataError(
            f"TensorFlow, which reads gs:// by itself, cannot read {path}: {cause}; {cure}, or "
            "copy the files to a disk"
        ) from None


def _check_no_boxes(dataset: Manifest, crop: str) -> None:
    """Checks that a dataset has no boxes, since a crop would not move the boxes."""
    if dataset.feature_kinds.boxes:
        raise UsageError(
            "does not move the boxes of objects: add `boxes=`, such as "
            '`boxes="xyxy"`, to crop them too',
            option="crop",
            value=crop,
        )


class Schedule(NamedTuple):
    """The epochs of an iteration.

    Attributes:
        first: number of the first epoch.
        step: the step at which the first epoch starts.
        num_epochs: number of epochs; None means forever.
        advancing: whether each iteration reads the epoch after that of the previous iteration.
    """

    first: int
    step: int
    num_epochs: int | None
    advancing: bool = False

    @classmethod
    def plan(
        cls, order: Order, *, epoch: int, num_epochs: int | None, start_step: int
    ) -> "Schedule":
        """Plans to start at a step, counted from the beginning of an epoch.

        If the step is beyond the end of the epoch, reading starts in a later epoch; if several
        epochs are requested, the skipped epochs count.

        Raises:
            UsageError: the step is beyond the last of several epochs.
        """
        skipped, step = divmod(start_step, order.steps)
        if num_epochs is None or num_epochs == 1:
            return cls(epoch + skipped, step, num_epochs)
        if start_step > num_epochs * order.steps:
            raise UsageError(
                f"is beyond the {num_epochs * order.steps} steps of {num_epochs} epochs",
                option="start_step",
                value=start_step,
            )
        return cls(epoch + skipped, step, num_epochs - skipped)

    def epochs(self) -> Any:
        """Returns the numbers of the epochs: a dataset of scalar int64."""
        if self.advancing:
            # The only state that outlives an iteration. Dataset.random has such a state too, but
            # depends on tf.random.set_seed.
            following = tf.Variable(self.first, dtype=tf.int64, trainable=False)
            iteration = tf.data.Dataset.from_tensors(0)
            return iteration.map(lambda _: following.assign_add(1) - 1)
        end = tf.int64.max if self.num_epochs is None else self.first + self.num_epochs
        return tf.data.Dataset.range(self.first, end)

    def num_steps(self, order: Order) -> int:
        """Returns the number of steps of an iteration, or `INFINITE_CARDINALITY`."""
        if self.num_epochs is None:
            return int(tf.data.INFINITE_CARDINALITY)
        return self.num_epochs * order.steps - self.step


def _build_elements(streams: Streams, decoder: Decoder, schedule: Schedule) -> tf.data.Dataset:
    """Builds the dataset that `load` returns.

    Args:
        streams: where the records come from.
        decoder: turns records into elements.
        schedule: the epochs.
    """
    order = streams.order
    size = order.host_step_size
    cuts_last = not order.has_short_step
    chunk = _chunk_size(order, decoder, schedule)
    drop_rest = chunk == size and cuts_last

    def read_epoch(number: Any) -> Any:
        start = tf.constant(schedule.step * order.step_size, tf.int64)
        first = tf.where(tf.equal(number, schedule.first), start, 0)
        return streams.chunks(chunk, number, first).rebatch(chunk, drop_remainder=drop_rest)

    def decode(records: Any) -> Any:
        return records.map(decoder.element, num_parallel_calls=tf.data.AUTOTUNE)

    records = schedule.epochs().flat_map(read_epoch)
    if order.batch_size is not None:
        elements = decode(records)
        if chunk != size:
            elements = elements.rebatch(size, drop_remainder=cuts_last)
    elif decoder.variable or decoder.ragged:
        elements = decode(records.unbatch())
    else:
        elements = decode(records).unbatch()
    num_steps = tf.data.experimental.assert_cardinality(schedule.num_steps(order))
    elements = elements.apply(num_steps).prefetch(tf.data.AUTOTUNE)
    # If tf.distribute divides the dataset among workers, it must divide elements, not files: one
    # step reads all shards, so they count as one file.
    sharding = tf.data.Options()
    sharding.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    return elements.with_options(sharding)


def _chunk_size(order: Order, decoder: Decoder, schedule: Schedule) -> int:
    """Returns how many records to decode in one call: a batch if possible, otherwise a chunk."""
    if order.batch_size is None:
        return CHUNK
    size = order.host_step_size
    if decoder.sizes or decoder.ragged:  # such batches can be neither split nor joined
        return size
    # Records of one epoch are not joined to those of the next.
    if order.has_short_step and schedule.num_epochs != 1:
        return size
    if CHUNK // 2 <= size <= 2 * CHUNK:
        return size
    return CHUNK
