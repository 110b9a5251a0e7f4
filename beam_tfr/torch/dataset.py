"""`ImageDataset`: a split of a dataset, for PyTorch's DataLoader."""

import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from beam_tfr.dataset.elements import ExampleDecoder, stack_images
from beam_tfr.dataset.lookup import RecordLookup
from beam_tfr.dataset.manifest import check_shard_files, read_manifest
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
from beam_tfr.order import Epoch, Order
from beam_tfr.schema.encodings import IMAGE_ENCODINGS
from beam_tfr.schema.errors import UsageError, without_traceback
from beam_tfr.torch.streams import Share, Stored, damage, global_batches, rank_of

_Base: Any = object
try:
    from torch.utils.data import IterableDataset as _Base  # type: ignore[import-not-found, no-redef, unused-ignore]
except ModuleNotFoundError as error:  # then no DataLoader asks for the type
    if error.name != "torch":
        raise


class ImageDataset(_Base):  # type: ignore[misc, unused-ignore]
    """One split of a dataset: a `torch.utils.data.IterableDataset`.

    Yields every example once per epoch, to one rank and one worker, in the order of
    `beam_tfr.order`. Equal arguments give the same examples in the same order as
    `beam_tfr.reader.load`, on every machine and with any number of workers.

    DataLoader's workers take turns. Each reads the records of all streams, but keeps and decodes
    only its own: for 224x224 JPEGs, reading costs about a tenth of decoding. All workers together
    hold one window of encoded records per stream.

    Args:
        path: the folder that `convert` wrote, local or gs://.
        split: name of a split; several, "train+validation"; or slices by examples in the order on
            disk: "train[:80%]", "train[1000:]", as for `beam_tfr.reader.load`.
        batch_size: examples per batch in total, over all ranks, a multiple of `world_size`; each
            rank gets `batch_size / world_size`. None yields single examples; DataLoader may then
            make the batches, of images of one size, but each worker makes its own, so several may
            be smaller, and there may be more than len(loader).
        remainder: what to do with the examples that do not fill the last batch of an epoch. "keep"
            yields a smaller batch, and is refused if ranks would have different numbers of batches;
            "drop" omits them (different ones in each shuffled epoch); "pad" fills the batch up with
            black images of label 0 and weight 0. None: "keep" on one rank, "drop" on several.
        shuffle: whether to shuffle by (`seed`, `epoch`); otherwise, all epochs have the same order.
            "global" permutes the whole split and reads each record by itself, as in
            `beam_tfr.reader.load`: each worker only its own.
        seed: seed for the shuffle.
        epoch: number of the epoch, until `set_epoch` is called.
        start_step: number of finished steps, after which to resume, without decoding earlier
            examples or opening shards that contain only those. It may exceed an epoch. It applies
            only to the epoch that it leads into; all others start at their beginning.
        rank, world_size: number of this process, and of all processes. None: those of
            torch.distributed if it is initialized, else RANK and WORLD_SIZE of the environment (as
            torchrun sets them), else 0 of 1.
        streams: number of runs of records to read in parallel; changes the order. Unshuffled,
            streams=1 gives the order on disk.
        output: "pair": (image, label), or the image alone if the dataset has no labels. "dict": all
            features by the manifest's names, with the pixels as `image`, masks as `mask` (int32)
            and the images of pairs by their names (int32, or uint8 with channels in color) instead
            of the encoded bytes. "image": the image alone.
            "encoded": as "pair", with the encoded bytes, for a decoder of your own (a list of them
            in a batch).
        multi_hot: labels become float32 [batch, classes], if an image can have several.
        boxes: returns the objects of each image in place of its labels, with their boxes in this
            format: see `beam_tfr.reader.load`. "pair" gives (image, {"boxes": float32 [objects, 4],
            "classes": int64 [objects]}), and a batch is a list of images and a list of such dicts,
            as torchvision's detectors take them. "dict" has `masks` too, uint8 [objects, height,
            width], if the dataset has masks of boxes.
        transform: function called with each image (or its bytes) before batching. With `boxes`, or
            masks or pairs in a "dict", it is called with (image, dict of the other features), and
            returns such a pair. If it draws random numbers, a resumed run draws others; DataLoader
            seeds PyTorch's generator in each worker.

    Attributes:
        class_names: a tuple of class names; the index is the label.
        steps_per_epoch: batches (examples without `batch_size`) of this rank in a whole epoch.

    With remainder="pad" a weight follows image and label, or is called `weight` in a dict. The
    image is uint8 [batch, height, width, channels] with the pixels of `beam_tfr.reader.load`; 1
    channel after --color gray, else 3. Labels are int64 [batch], weights float32 [batch], other
    numbers int64 or float32 [batch, …]; bytes, and lists of any length (several labels, too), are
    in a list with one item for each example. They are NumPy arrays (for single examples: an array,
    an int, a float, bytes), which DataLoader turns into tensors; it leaves bytes alone. What
    `transform` returns is stacked if it is arrays, else collated by PyTorch. Other features of
    fillers are 0 or empty.

    Raises:
        UsageError: an argument is wrong, or asks for batches of images of different sizes.
        DataError: the folder holds no complete dataset, or a shard is missing or has the wrong
            size.

    Iterating raises DataError that names file, record and cause of damage, and OSError if a file
    cannot be read.
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
        multi_hot: bool = False,
        boxes: str | None = None,
        transform: Callable[[Any], Any] | None = None,
    ) -> None:
        super().__init__()
        folder = check_folder(path)
        self._seed: int | None
        if shuffle == GLOBAL:
            self._seed = check_global_shuffle(seed, streams)
        else:
            self._seed = check_shuffle(shuffle, seed)
        rank, world_size = rank_of(rank, world_size)
        dataset = read_manifest(folder)
        if (encoding := dataset.image_options.encoding) not in IMAGE_ENCODINGS:
            raise UsageError(
                f"{folder} holds no images (`encoding={encoding}`): read it with `Records`"
            )
        chosen = select_examples(dataset, split)
        check_shard_files(dataset, chosen.splits)
        self.class_names = dataset.class_names
        check_choice("output", output, OUTPUTS[:-1])  # not "raw_record"
        check_targets(dataset, output, multi_hot=multi_hot, boxes=boxes)
        self._decoder = ExampleDecoder(
            dataset, output=output, multi_hot=multi_hot, boxes=boxes, transform=transform
        )
        self._boxes = boxes
        variable = (
            output != "encoded"
            and transform is None
            and not boxes
            and self._decoder.image_size is None
        )
        if batch_size is not None and variable:
            sizes = f"the images of {folder} have different sizes (`resize={dataset.image_options.resize}`)"
            cure = "Give a `transform=` that brings them to one size, or leave `batch_size=` out"
            why = f"{sizes}, and a batch takes equal ones. {cure}; or convert with `resize=crop`, pad or stretch"
            raise UsageError(why, option="batch_size", value=batch_size)
        self._dataset = dataset
        self._parts = chosen.parts
        self._order = Order(
            total=chosen.total,
            streams=streams,
            num_hosts=world_size,
            host_index=rank,
            batch_size=batch_size,
            remainder=remainder,
        )
        self._lookup = None
        if shuffle == GLOBAL:
            self._lookup = RecordLookup(dataset, chosen.parts)
            self._lookup.check_contents()
        self._pads = remainder == "pad"
        epoch = check_integer("epoch", epoch, 0)
        more, step = divmod(
            check_integer("start_step", start_step, 0, bits=63), self.steps_per_epoch
        )
        self._start = (epoch + more, step)
        # Shared with workers that are already running: persistent_workers=True keeps them, and this
        # object's copies. A lock made for fork could not be sent to spawned workers.
        self._epoch = multiprocessing.get_context("spawn").Value("q", epoch + more)

    @property
    def steps_per_epoch(self) -> int:
        return self._order.steps

    @property
    def epoch(self) -> int:
        return int(self._epoch.value)

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next iteration, also in persistent workers; otherwise it repeats
        the last one."""
        self._epoch.value = check_integer("epoch", epoch, 0)

    def __len__(self) -> int:
        """Batches (examples without `batch_size`) of an iteration over the current epoch."""
        return self.steps_per_epoch - self._first_step(self.epoch)

    def __iter__(self) -> Iterator[Any]:
        data = sys.modules.get("torch.utils.data")
        worker = data.get_worker_info() if data else None  # of DataLoader, in one of its workers
        if worker:
            return self.share_of_worker(worker.id, worker.num_workers)
        return self.share_of_worker(0, 1)

    def share_of_worker(self, worker: int, num_workers: int) -> Iterator[Any]:
        """The elements worker, worker + num_workers, … of the current epoch: the share of one of
        several workers.

        DataLoader takes one from each worker in turn, which restores the order.
        """
        epoch = self.epoch  # of now, not that of the first element
        steps = range(self._first_step(epoch) + worker, self.steps_per_epoch, num_workers)
        if self._lookup is not None and self._seed is not None:
            batches = global_batches(self._lookup, self._order, steps, seed=self._seed, epoch=epoch)
        else:
            whole = Epoch([part.take for part in self._parts], seed=self._seed, number=epoch)
            share = Share(
                dataset=self._dataset,
                parts=self._parts,
                order=self._order,
                epoch=whole,
                steps=steps,
            )
            batches = share.batches()
        return map(self._element, batches)

    def _element(self, records: list[Stored]) -> Any:
        examples = []
        for record in records:
            try:
                examples.append(self._decoder(record.data))
            except ValueError as error:
                raise damage(f"{record.file}: record {record.record}: {error}") from error
        if self._pads:
            missing = self._order.host_step_size - len(examples)
            examples += [self._decoder.filler() for _ in range(missing)]
        parts = [self._decoder.parts(*example) for example in examples]
        batched = self._order.batch_size is not None
        element: dict[str, Any] = parts[0]
        if batched:
            element = {name: [values[name] for values in parts] for name in element}
        if batched and not self._boxes:
            columns = self._decoder.columns.items()
            stacked = {name: column.stack(element[name]) for name, column in columns}
            element = {"image": stack_images(element["image"])} | stacked
        if self._pads:
            weights = [1.0] * len(records) + [0.0] * (len(examples) - len(records))
            element["weight"] = np.array(weights, np.float32) if batched else weights[0]
        return self._decoder.element(element)

    def _first_step(self, epoch: int) -> int:
        return self._start[1] if epoch == self._start[0] else 0
