"""Reads a split of a dataset for PyTorch's DataLoader, as `ImageDataset`."""

import importlib
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from beam_tfr.dataset.elements import ExampleDecoder, stack_images
from beam_tfr.dataset.lookup import RecordLookup
from beam_tfr.dataset.manifest import Manifest, check_shard_files, read_manifest
from beam_tfr.dataset.reader_arguments import (
    GLOBAL,
    OUTPUTS,
    STREAMS,
    check_choice,
    check_folder,
    check_global_shuffle,
    check_integer,
    check_shuffle,
    check_targets,
)
from beam_tfr.dataset.splits import select_examples
from beam_tfr.dataset.windows import choose_window
from beam_tfr.order import WINDOW, Epoch, Order
from beam_tfr.schema.encodings import IMAGE_ENCODINGS
from beam_tfr.schema.errors import UsageError, without_traceback
from beam_tfr.schema.spelling import spell_option
from beam_tfr.torch.streams import LocatedRecord, Share, damage, find_rank, global_batches

_Base: Any = object
try:
    _Base = importlib.import_module("torch.utils.data").IterableDataset
except ModuleNotFoundError as error:  # without PyTorch, no DataLoader asks for the type
    if error.name != "torch":
        raise


class ImageDataset(_Base):  # type: ignore[misc, unused-ignore]
    """One split of a dataset: a `torch.utils.data.IterableDataset`.

    Yields every example once per epoch, to one rank and one worker, in the order of
    `beam_tfr.order`. Equal arguments give the same examples in the same order as
    `beam_tfr.reader.load`, on every machine and with any number of workers.

    DataLoader's workers take turns. Each worker reads the records of all streams, but keeps and
    decodes only its own records: for 224x224 JPEGs, reading takes about a tenth of the time of
    decoding. All workers together hold one window of encoded records per stream.

    Args:
        path: the folder that `convert` wrote, local or gs://.
        split: name of a split; several splits, as in "train+validation"; "all" for all splits; all
            splits except some, as in "all-fold4"; or slices by examples in the order on disk:
            "train[:80%]", "train[1000:]", as for `beam_tfr.reader.load`.
        batch_size: total examples per batch, over all ranks; a multiple of `world_size`. Each rank
            gets `batch_size / world_size`. None yields single examples. DataLoader can then batch
            images of the same size, but each worker makes its own batches, so several batches may
            be smaller than the others, and there may be more batches than len(loader).
        remainder: what to do with examples that do not fill the last batch of an epoch. "keep"
            yields a smaller batch, and is an error if ranks would have different numbers of
            batches; "drop" omits these examples (different examples in each shuffled epoch); "pad"
            fills the batch up with black images of label 0 and weight 0. None means "keep" on one
            rank, "drop" on several.
        shuffle: whether to shuffle by (`seed`, `epoch`); otherwise, all epochs have the same order.
            "global" permutes the whole split and reads each record by itself, like
            `beam_tfr.Records`; each worker reads only its own records.
        seed: seed for the shuffle.
        epoch: number of the epoch, until `set_epoch` is called.
        start_step: number of finished steps after which to resume, without decoding earlier
            examples or opening shards that contain only such examples. The number may exceed an
            epoch. It applies only to the epoch in which the step falls; all other epochs start at
            their beginning.
        rank, world_size: number of this process, from 0, and total number of processes. If None,
            these numbers come from torch.distributed if it is initialized, otherwise from the
            environment variables RANK and WORLD_SIZE (which torchrun sets) if they are set;
            otherwise they are 0 and 1.
        streams: number of runs of records to read in parallel; changes the order. Without
            shuffling, streams=1 gives the order on disk.
        output: "pair": (image, label), or only the image if the dataset has no labels. "dict": all
            features by the manifest's names, but with decoded pixels instead of encoded bytes: the
            image as `image`, masks as `mask` (int32), and the images of pairs under their names
            (int32 too). "image": only the image. "encoded": like "pair", with the encoded bytes,
            for a decoder of your own (a batch holds a list of encoded images).
        one_hot: labels become float32 [batch, classes]: 1 for each class of the image, and 0 for
            the others.
        boxes: returns the objects in each image instead of its labels, with their boxes in this
            format: see `beam_tfr.reader.load`. "pair" gives (image, {"boxes": float32 [objects, 4],
            "classes": int64 [objects]}), and a batch is a list of images and a list of such dicts,
            as torchvision's detectors expect. "dict" also has `masks`, uint8 [objects, height,
            width], if the dataset has masks of boxes.
        target: column to return instead of the labels, such as a number to predict.
        transform: function called with each image (or its bytes) before batching. With `boxes`, or
            masks or pairs in a "dict", it is called with (image, dict of the other features), and
            returns such a pair. If the function draws random numbers, a resumed run draws different
            numbers; DataLoader seeds PyTorch's generator in each worker.

    Attributes:
        class_names: a tuple of class names, indexed by label.
        steps_per_epoch: batches (examples without `batch_size`) of this rank in a whole epoch.

    With remainder="pad", a weight follows the image and label; in a dict, the weight is `weight`.
    The image is uint8 [batch, height, width, channels] with the same pixels as from
    `beam_tfr.reader.load`; 1 channel after --color gray, otherwise 3. Labels are int64 [batch],
    weights float32 [batch], other numbers int64 or float32 [batch, …]; bytes, and lists of any
    length (such as several labels), are returned as a list with one item per example. Everything
    else is a NumPy array (for single examples: an array, an int, a float, bytes), which DataLoader
    turns into tensors, except bytes. Results of `transform` are stacked if they are arrays,
    otherwise collated by PyTorch. Other features of fillers are 0 or empty.

    Raises:
        UsageError: an argument is wrong, or batches are requested but images have different sizes.
        DataError: the folder holds no complete dataset, or a shard is missing or has the wrong
            size.

    Iterating raises DataError, which mentions file, record and cause, where data is damaged, and
    OSError if a file cannot be read.
    """

    @without_traceback
    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        split: str,
        batch_size: int | None = None,
        remainder: str | None = None,
        shuffle: bool | str = False,
        seed: int = 0,
        epoch: int = 0,
        start_step: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
        streams: int = STREAMS,
        output: str = "pair",
        one_hot: bool = False,
        boxes: str | None = None,
        target: str | None = None,
        transform: Callable[[Any], Any] | None = None,
    ) -> None:
        super().__init__()
        folder = check_folder(path)
        self._seed: int | None
        is_global = isinstance(shuffle, str) and shuffle == GLOBAL
        if is_global:
            self._seed = check_global_shuffle(seed, streams)
        else:
            self._seed = check_shuffle(shuffle, seed)
        rank, world_size = find_rank(rank, world_size)
        dataset = read_manifest(folder)
        encoding = dataset.image_options.encoding
        if encoding not in IMAGE_ENCODINGS:
            raise UsageError(
                f"{folder} holds no images ({spell_option('encoding', encoding)}): read it with "
                "`Records`"
            )
        selection = select_examples(dataset, split)
        check_shard_files(dataset, selection.splits)
        check_choice("output", output, OUTPUTS[:-1])  # not "raw_record"
        check_targets(dataset, output, one_hot=one_hot, boxes=boxes, target=target)
        if batch_size is not None and transform is None and boxes is None and output != "encoded":
            _check_one_size(dataset, batch_size)
        self.class_names = dataset.class_names
        self._decoder = ExampleDecoder(
            dataset,
            output=output,
            one_hot=one_hot,
            boxes=boxes,
            target=target,
            transform=transform,
        )
        self._boxes = boxes
        self._dataset = dataset
        self._parts = selection.parts
        streams = check_integer("streams", streams, 1)
        self._order = Order(
            total=selection.total,
            streams=streams,
            window=WINDOW if is_global else choose_window(dataset, selection.parts, streams),
            num_hosts=world_size,
            host_index=rank,
            batch_size=batch_size,
            remainder=remainder,
        )
        self._pads = remainder == "pad"
        self._lookup = None
        if is_global:
            self._lookup = RecordLookup(dataset, selection.parts)
            self._lookup.check_contents()
        epoch = check_integer("epoch", epoch, 0)
        start_step = check_integer("start_step", start_step, 0, bits=63)
        skipped, self._first_step = divmod(start_step, self.steps_per_epoch)
        self._first_epoch = epoch + skipped
        # Shared with running workers: persistent_workers=True keeps the workers, with their copies
        # of this object. Eight bytes are written at once, so the value needs no lock, which a
        # killed worker might hold forever.
        spawn = multiprocessing.get_context("spawn")
        self._epoch = spawn.Value("q", self._first_epoch, lock=False)

    @property
    def steps_per_epoch(self) -> int:
        return self._order.steps

    @property
    def epoch(self) -> int:
        return int(self._epoch.value)

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next iteration, even in persistent workers.

        Without a call, the next iteration repeats the last epoch.
        """
        self._epoch.value = check_integer("epoch", epoch, 0)

    def __len__(self) -> int:
        """Returns the number of batches (examples without `batch_size`) of the current epoch."""
        return self.steps_per_epoch - self._start_of(self.epoch)

    def __iter__(self) -> Iterator[Any]:
        data = sys.modules.get("torch.utils.data")
        worker = data.get_worker_info() if data else None
        if worker is None:  # this process is not a worker of a DataLoader
            return self.share_of_worker(0, 1)
        return self.share_of_worker(worker.id, worker.num_workers)

    def share_of_worker(self, worker: int, num_workers: int) -> Iterator[Any]:
        """Yields the elements worker, worker + num_workers, … of the current epoch.

        DataLoader takes one element from each worker in turn, which restores the order.
        """
        check_integer("num_workers", num_workers, 1)
        check_integer("worker", worker, 0)
        epoch = self.epoch  # the current epoch, not that of the first element
        first = self._start_of(epoch) + worker
        steps = range(first, self.steps_per_epoch, num_workers)
        return map(self._element, self._batches(epoch, steps))

    def _batches(self, epoch: int, steps: range) -> Iterator[list[LocatedRecord]]:
        """Yields the records of some steps of an epoch, without fillers."""
        if self._lookup is not None and self._seed is not None:
            return global_batches(self._lookup, self._order, steps, seed=self._seed, epoch=epoch)
        counts = [part.take for part in self._parts]
        whole = Epoch(counts, seed=self._seed, number=epoch)
        share = Share(
            dataset=self._dataset,
            parts=self._parts,
            order=self._order,
            epoch=whole,
            steps=steps,
        )
        return share.batches()

    def _element(self, records: list[LocatedRecord]) -> Any:
        """Makes an example, or a batch, from the records of a step."""
        examples = [self._decode(record) for record in records]
        weights = [1.0] * len(examples)
        if self._pads:
            num_fillers = self._order.host_step_size - len(examples)
            examples += [self._decoder.filler() for _ in range(num_fillers)]
            weights += [0.0] * num_fillers
        parts = [self._decoder.parts(*example) for example in examples]
        weight: Any = weights[0]
        element = parts[0]
        if self._order.batch_size is not None:
            weight = np.array(weights, np.float32)
            element = self._stack(parts)
        if self._pads:
            element["weight"] = weight
        return self._decoder.element(element)

    def _decode(self, record: LocatedRecord) -> tuple[Any, dict[str, Any]]:
        try:
            return self._decoder(record.data)
        except ValueError as error:
            raise damage(f"{record.file}: record {record.number}: {error}") from error

    def _stack(self, examples: list[dict[str, Any]]) -> dict[str, Any]:
        """Combines the parts of examples into the parts of a batch.

        With boxes, each part becomes a list.
        """
        lists = {name: [example[name] for example in examples] for name in examples[0]}
        if self._boxes:
            return lists
        batch = {"image": stack_images(lists["image"])}
        for name, column in self._decoder.columns.items():
            batch[name] = column.stack(lists[name])
        return batch

    def _start_of(self, epoch: int) -> int:
        """Returns the step at which an epoch starts."""
        return self._first_step if epoch == self._first_epoch else 0


def _check_one_size(dataset: Manifest, batch_size: int) -> None:
    """Checks that the images of a dataset can be stacked into batches without resizing."""
    if dataset.image_options.stored_size is None:
        raise UsageError(
            f"the images of {dataset.folder} have different sizes "
            f"({spell_option('resize', dataset.image_options.resize)}), but a batch needs images "
            "of equal size. Pass a `transform=` that resizes them to one size, or omit "
            "`batch_size=`; or convert with `resize=crop`, pad or stretch",
            option="batch_size",
            value=batch_size,
        )
