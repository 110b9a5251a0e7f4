"""`ImageDataset`: some examples of a dataset, as PyTorch's DataLoader takes it."""

from __future__ import annotations

import collections
import concurrent.futures
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator
from multiprocessing.context import get_spawning_popen
from typing import Any

import numpy as np

from beam_tfr import checks, manifest
from beam_tfr.checks import REMAINDERS, boolean, choice, integer, skippable
from beam_tfr.manifest import Manifest
from beam_tfr.schema import DataError, UsageError
from beam_tfr.schema.features import IMAGE_ENCODINGS, LABEL
from beam_tfr.selection import select
from beam_tfr.torch.arguments import place
from beam_tfr.torch.elements import ExampleDecoder, stack_images
from beam_tfr.torch.order import Epoch, Share, share
from beam_tfr.torch.streams import Source, Stored, Stream

_Base: Any = object
try:
    from torch.utils.data import IterableDataset as _Base  # type: ignore[import-not-found, no-redef, unused-ignore]
except ModuleNotFoundError as error:  # then there is no DataLoader that would ask what it is
    if error.name != "torch":
        raise

OUTPUTS = ("pair", "dict", "image", "encoded")


class ImageDataset(_Base):  # type: ignore[misc, unused-ignore]
    """One split of a dataset: a `torch.utils.data.IterableDataset`.

    Every example comes once an epoch, to one rank and one worker; all ranks have the same number of batches. The order
    is the same on every machine, with every number of workers, and can be entered anywhere:

    - All records of `split`, shard after shard, are one circle. Shuffled, epoch e permutes the shards and begins at
      some record of the circle, both drawn from (seed, e).
    - The ranks share that in equal runs; each rank's run is cut into `streams` runs; its batch t comes from stream
      t % streams.
    - A stream permutes its records in windows of 512 (of four batches, where that is more), drawn from (seed, e, rank,
      stream, window).

    A number of workers that divides `streams` reads every byte once; with others some workers read, without decoding,
    what others give. Memory: for each stream one window of encoded records, in the worker that reads it.

    Args:
        path: the folder that `convert` wrote, local or gs://.
        split: name of one of its splits; several, "train+validation"; or slices by examples, in the order on disk:
            "train[:80%]", "train[1000:]", as for `beam_tfr.reader.load`.
        batch_size: examples per batch of this rank; None gives single examples. Then DataLoader may make the batches,
            but each worker makes its own, so that several may be smaller, and more than len(loader).
        remainder: what becomes of examples that fill no batch on every rank. "drop" leaves them out (others in each
            epoch, when shuffled); "keep" makes the last batch smaller, and is refused where ranks would have different
            numbers of batches; "pad" fills it up with black images, label 0 and weight 0. None: "keep" on one rank,
            "drop" on several.
        shuffle: whether the order is a random one, that of (`seed`, `epoch`), or a fixed one.
        seed: of the shuffle.
        epoch: number of the epoch, until `set_epoch` gives another.
        start_step: steps that are done: goes on exactly there, without decoding what is skipped or opening shards that
            lie wholly before it. More than an epoch has lead into a later one. Counts for the epoch it leads into;
            all others begin at their beginning.
        rank, world_size: which of how many processes this is. None: those of torch.distributed when it is initialized,
            else RANK and WORLD_SIZE of the environment (as torchrun sets them), else 0 of 1.
        streams: read in turn; another number is another order.
        threads: that decode ahead, as many batches as there are threads; 0 decodes in the caller's own. They save what
            sending batches between processes costs: take them in place of workers, or in each of them.
        output: "pair": (image, label), of a dataset without labels the image alone. "dict": all features by the
            manifest's names, with the pixels as `image` in the place of the encoded ones. "image": the image alone.
            "encoded": as "pair", with the encoded bytes, for a decoder of your own (a list of them in a batch).
        multi_hot: where an image has several labels, they become float32 [batch, classes].
        on_error: "raise" names file and record of what cannot be read or decoded; "skip" puts a black image of label 0
            and weight 0 in its place, says so on standard error, and raises after `max_skipped` of them.
        max_skipped: with on_error="skip", of all workers of this rank together, 100 when None; a damaged shard counts
            as many as it has records left.
        transform: called with each image (or its bytes), before batching, by all threads at once. What it draws is its
            own: DataLoader seeds PyTorch's generator in each worker, and no state of it is part of a resume.

    Attributes:
        class_names: index = label.
        steps_per_epoch: batches (examples without `batch_size`) of this rank in a whole epoch.

    With remainder="pad" or on_error="skip" a weight comes behind image and label, or as `weight` in a dict. The image
    is uint8 [batch, height, width, channels] with the pixels of `beam_tfr.reader.load`; 1 channel after --color gray,
    else 3. Labels are int64 [batch], weights float32 [batch]; other numbers int64 or float32 [batch, …]; bytes, and
    lists of any length (several labels, too), stand in a list, one for each example. They are NumPy arrays (of single
    examples: an array, an int, a float, bytes), which DataLoader makes tensors; bytes it leaves alone. What `transform`
    returns is stacked if it is arrays, else collated by PyTorch. The other features of fillers are 0 or empty.

    Raises:
        UsageError: an argument is wrong, or asks for batches of images that have different sizes.
        DataError: the folder holds no complete dataset, or a shard is missing or has not the size it should have.

    Iterating raises DataError that names file, record and cause of damage, and OSError where a file cannot be read.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        split: str,
        batch_size: int | None = None,
        remainder: str | None = None,
        shuffle: bool = False,
        seed: int = 0,
        epoch: int = 0,
        start_step: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
        streams: int = 8,
        threads: int = 0,
        output: str = "pair",
        multi_hot: bool = False,
        on_error: str = "raise",
        max_skipped: int | None = None,
        transform: Callable[[Any], Any] | None = None,
    ) -> None:
        super().__init__()
        folder = checks.folder(path)
        batch_size = batch_size if batch_size is None else integer("batch_size", batch_size, 1)
        self._seed = integer("seed", seed, 0, bits=63) if boolean("shuffle", shuffle) else None
        rank, world_size = place(rank, world_size)
        remainder = choice("remainder", remainder, REMAINDERS) or ("keep" if world_size == 1 else "drop")
        dataset = manifest.read(folder)
        if (encoding := dataset.image_options.encoding) not in IMAGE_ENCODINGS:
            raise UsageError(f"{folder} holds no images (--encoding {encoding}): read it by beam_tfr.records")
        chosen = select(dataset, split)
        manifest.check_shards(dataset, chosen.splits)
        self.class_names = dataset.class_names
        self._output = choice("output", output, OUTPUTS)
        _check_multi_hot(dataset, output, boolean("multi_hot", multi_hot))
        self._decoder = ExampleDecoder(dataset, output=output, multi_hot=multi_hot)
        variable = output != "encoded" and transform is None and self._decoder.image_size is None
        if batch_size is not None and variable:
            raise UsageError(
                f"batch_size {batch_size}: the images of {folder} have different sizes (--resize "
                f"{dataset.image_options.resize}), and a batch takes equal ones. Give a transform that brings them to "
                "one size, or leave batch_size out; or convert with --resize stretch, crop or pad"
            )
        self._source = Source(runs=chosen.parts, compression=dataset.compression)
        self._share: Share = share(
            chosen.total,
            rank=rank,
            world_size=world_size,
            batch_size=batch_size or 1,
            remainder=remainder,
            streams=integer("streams", streams, 1),
        )
        self._rank = rank
        self._threads = integer("threads", threads, 0, bits=10)
        self._batched = batch_size is not None
        self._max_skipped = skippable(on_error, max_skipped) or 0
        skips = on_error == "skip"
        self._weighted = remainder == "pad" or skips
        self._pads = remainder == "pad"
        self._transform = transform
        epoch, start_step = integer("epoch", epoch, 0), integer("start_step", start_step, 0, bits=63)
        more, step = divmod(start_step, self.steps_per_epoch or 1)
        self._start = (epoch + more, step)
        # Shared with workers that are already running: persistent_workers=True keeps them, and this object's copies.
        self._epoch = _shared(epoch + more, lock=False)
        self._skipped = _shared(0, lock=True) if skips else None

    @property
    def steps_per_epoch(self) -> int:
        return self._share.steps

    @property
    def epoch(self) -> int:
        return int(self._epoch.value)

    def set_epoch(self, epoch: int) -> None:
        """Which epoch the next iteration gives; without it, the same again. Reaches persistent workers too."""
        self._epoch.value = integer("epoch", epoch, 0)

    def __len__(self) -> int:
        """Batches (examples without `batch_size`) that an iteration over the current epoch gives."""
        return self.steps_per_epoch - self._first_step(self.epoch)

    def __iter__(self) -> Iterator[Any]:
        data = sys.modules.get("torch.utils.data")
        worker = data.get_worker_info() if data else None  # of DataLoader, in one of its workers
        return self.share_of_worker(worker.id, worker.num_workers) if worker else self.share_of_worker(0, 1)

    def share_of_worker(self, worker: int, num_workers: int) -> Iterator[Any]:
        """What one of several workers gives of the current epoch: elements worker, worker + num_workers, …

        DataLoader takes one from each worker in turn, which brings them back into their order.
        """
        return self._elements(self.epoch, worker, num_workers)  # the epoch of now, not that of the first element

    def _elements(self, epoch: int, worker: int, num_workers: int) -> Iterator[Any]:
        batches = self._batches(epoch, worker, num_workers)
        if not self._threads:
            yield from map(self._element, batches)
            return
        with concurrent.futures.ThreadPoolExecutor(self._threads) as pool:
            ahead: collections.deque[concurrent.futures.Future[Any]] = collections.deque()
            for records in batches:
                ahead.append(pool.submit(self._element, records))
                if len(ahead) > self._threads:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()

    def _batches(self, number: int, worker: int, num_workers: int) -> Iterator[list[Stored]]:
        epoch = Epoch([run.take for run in self._source.runs], seed=self._seed, number=number)
        streams: dict[int, Stream] = {}
        for step in range(self._first_step(number) + worker, self.steps_per_epoch, num_workers):
            batch = self._share.batch(step)
            if batch.stream not in streams:
                key = None if self._seed is None else (self._seed, number, self._rank, batch.stream)
                window = self._share.batch_size if key is None else self._share.window
                streams[batch.stream] = Stream(
                    self._source, epoch, *self._share.stream(batch.stream), window=window, key=key
                )
            yield streams[batch.stream].take(batch.begin, batch.end)

    def _element(self, records: list[Stored]) -> Any:
        examples, weights = [], []
        for record in records:
            try:
                examples.append(self._source.apply(self._decoder, record))
                weights.append(1.0)
            except DataError as error:
                self._skip(error)
                examples.append(self._decoder.filler())
                weights.append(0.0)
        if self._pads:
            missing = self._share.batch_size - len(examples)
            examples += [self._decoder.filler() for _ in range(missing)]
            weights += [0.0] * missing
        images = [image if self._transform is None else self._transform(image) for image, _ in examples]
        element = {"image": stack_images(images) if self._batched else images[0]}
        for name, column in self._decoder.columns.items():
            values = [features[name] for _, features in examples]
            element[name] = column.stack(values) if self._batched else values[0]
        if self._weighted:
            element["weight"] = np.array(weights, np.float32) if self._batched else weights[0]
        if self._output == "dict":
            return element
        if self._output == "image":
            element.pop(LABEL, None)
        parts = tuple(element.values())
        return parts if len(parts) > 1 else parts[0]

    def _skip(self, error: DataError) -> None:
        """Counts what cannot be read or decoded, and says so.

        Raises:
            DataError: of what was given, when no more may be skipped.
        """
        if self._skipped is None:
            raise error
        with self._skipped.get_lock():
            self._skipped.value += 1
            number = self._skipped.value
        if number > self._max_skipped:
            raise DataError(f"{error}; max_skipped {self._max_skipped} allows no more") from error
        print(f"beam_tfr: {error} - skipped, {number} of at most {self._max_skipped}", file=sys.stderr)

    def _first_step(self, epoch: int) -> int:
        return self._start[1] if epoch == self._start[0] else 0

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        if get_spawning_popen() is None:  # a copy of its own, not one for a worker
            state |= {"_epoch": self.epoch, "_skipped": self._skipped and self._skipped.value}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if isinstance(self._epoch, int):
            self._epoch = _shared(self._epoch, lock=False)
            self._skipped = None if self._skipped is None else _shared(self._skipped, lock=True)


def _shared(number: int, *, lock: bool) -> Any:
    """A number that all processes share. A lock made for fork could not go to workers that are spawned."""
    return multiprocessing.get_context("spawn").Value("q", number, lock=lock)


def _check_multi_hot(dataset: Manifest, output: str, multi_hot: bool) -> None:
    """
    Raises:
        UsageError: there are not several labels.
    """
    if not multi_hot:
        return
    if LABEL not in dataset.features or output == "image":
        why = f'output="{output}" has no labels' if LABEL in dataset.features else f"{dataset.folder} has no labels"
        raise UsageError(f"multi_hot has no effect: {why}")
    if not dataset.features[LABEL]["shape"]:
        raise UsageError(f"multi_hot: the images of {dataset.folder} have one label each: leave it out")
