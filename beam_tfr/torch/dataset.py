"""`ImageDataset`: one split of a dataset, as PyTorch's DataLoader takes it."""

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

from beam_tfr import manifest, storage
from beam_tfr.schema import UsageError
from beam_tfr.torch.arguments import boolean, choose_split, integer, place
from beam_tfr.torch.order import Epoch, Share, share
from beam_tfr.torch.pixels import ExampleDecoder
from beam_tfr.torch.streams import Run, Source, Stored, Stream

_Base: Any = object
try:
    from torch.utils.data import IterableDataset as _Base  # type: ignore[import-not-found, no-redef, unused-ignore]
except ModuleNotFoundError as error:  # then there is no DataLoader that would ask what it is
    if error.name != "torch":
        raise

REMAINDERS = ("drop", "keep", "pad")


class ImageDataset(_Base):  # type: ignore[misc, unused-ignore]
    """One split of a dataset: a `torch.utils.data.IterableDataset`.

    Every example comes once an epoch, to one rank and one worker; all ranks have the same number of batches. The order
    is the same on every machine, with every number of workers, and can be entered anywhere:

    - All records of the split, shard after shard, are one circle. Shuffled, epoch e permutes the shards and begins at
      some record of the circle, both drawn from (seed, e).
    - The ranks share that in equal runs; each rank's run is cut into `streams` runs; its batch t comes from stream
      t % streams.
    - A stream permutes its records in windows of 512 (of four batches, where that is more), drawn from (seed, e, rank,
      stream, window).

    A number of workers that divides `streams` reads every byte once; with others some workers read, without decoding,
    what others give. Memory: for each stream one window of encoded records, in the worker that reads it.

    Args:
        path: the folder that `convert` wrote, local or gs://.
        split: name of one of its splits.
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
        decode: False gives the encoded bytes, for a decoder of your own (a list of them in a batch).
        transform: called with each image (or its bytes), before batching, by all threads at once. What it draws is its
            own: DataLoader seeds PyTorch's generator in each worker, and no state of it is part of a resume.

    Attributes:
        class_names: index = label.
        steps_per_epoch: batches (examples without `batch_size`) of this rank in a whole epoch.

    Iterating gives (image, label), or image alone of an unlabelled dataset; with remainder="pad" a weight behind them.
    The image is uint8 [batch, height, width, channels] with the pixels of `beam_tfr.reader.load`; 1 channel after
    --color gray, else 3. Labels are int64 [batch], weights float32 [batch]. They are NumPy arrays (of single examples:
    an array, an int, a float), which DataLoader makes tensors. What `transform` returns is stacked if it is arrays,
    else collated by PyTorch.

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
        decode: bool = True,
        transform: Callable[[Any], Any] | None = None,
    ) -> None:
        super().__init__()
        folder = storage.check_path(os.fspath(path), "path")
        batch_size = batch_size if batch_size is None else integer("batch_size", batch_size, 1)
        self._seed = integer("seed", seed, 0, bits=63) if boolean("shuffle", shuffle) else None
        rank, world_size = place(rank, world_size)
        if remainder not in (None, *REMAINDERS):
            raise UsageError(f"remainder must be one of {', '.join(REMAINDERS)}, not {remainder!r}")
        remainder = remainder or ("keep" if world_size == 1 else "drop")
        dataset = manifest.read(folder)
        chosen = choose_split(dataset, split)
        manifest.check_shards(dataset, [chosen])
        self.class_names = dataset.class_names
        self._decoder = ExampleDecoder(dataset, decode=boolean("decode", decode))
        if batch_size is not None and decode and transform is None and self._decoder.image_size is None:
            raise UsageError(
                f"batch_size {batch_size}: the images of {folder} have different sizes (--resize "
                f"{dataset.image_options.resize}), and a batch takes equal ones. Give a transform that brings them to "
                "one size, or leave batch_size out; or convert with --resize stretch, crop or pad"
            )
        self._source = Source(
            runs=tuple(
                Run(storage.join(folder, shard.file), shard.num_examples, 0, shard.num_examples)
                for shard in chosen.shards
                if shard.num_examples
            ),
            compression=dataset.compression,
        )
        self._share: Share = share(
            chosen.num_examples,
            rank=rank,
            world_size=world_size,
            batch_size=batch_size or 1,
            remainder=remainder,
            streams=integer("streams", streams, 1),
        )
        self._rank = rank
        self._threads = integer("threads", threads, 0, bits=10)
        self._batched = batch_size is not None
        self._weighted = remainder == "pad"
        self._transform = transform
        epoch, start_step = integer("epoch", epoch, 0), integer("start_step", start_step, 0, bits=63)
        more, step = divmod(start_step, self.steps_per_epoch or 1)
        self._start = (epoch + more, step)
        # Shared with workers that are already running: persistent_workers=True keeps them, and this object's copies.
        self._epoch = multiprocessing.Value("q", epoch + more, lock=False)

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
        examples = [self._source.apply(self._decoder, record) for record in records]
        missing = self._share.batch_size - len(examples) if self._weighted else 0
        examples += [(self._decoder.filler(), 0)] * missing
        images = [image if self._transform is None else self._transform(image) for image, _ in examples]
        parts: list[Any] = [_stack(images) if self._batched else images[0]]
        if self._decoder.labelled:
            labels = [label for _, label in examples]
            parts.append(np.array(labels, np.int64) if self._batched else labels[0])
        if self._weighted:
            weights = np.repeat(np.array([1, 0], np.float32), [len(examples) - missing, missing])
            parts.append(weights if self._batched else float(weights[0]))
        return tuple(parts) if len(parts) > 1 else parts[0]

    def _first_step(self, epoch: int) -> int:
        return self._start[1] if epoch == self._start[0] else 0

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        if get_spawning_popen() is None:  # a copy of its own, not one for a worker
            state["_epoch"] = self.epoch
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if isinstance(self._epoch, int):
            self._epoch = multiprocessing.Value("q", self._epoch, lock=False)


def _stack(images: list[Any]) -> Any:
    first = images[0]
    if isinstance(first, bytes):
        return images
    if isinstance(first, np.ndarray):
        if len({image.shape for image in images}) > 1:
            shapes = " and ".join(sorted({str(image.shape) for image in images})[:2])
            raise UsageError(f"transform gave arrays of different shapes, {shapes}, and a batch takes equal ones")
        return np.stack(images)
    if "torch" not in sys.modules:
        raise UsageError(f"transform gave a {type(first).__name__}: without PyTorch only arrays make a batch")
    return sys.modules["torch.utils.data"].default_collate(images)
