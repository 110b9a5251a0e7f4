"""Turns shards into items, in the order of each shard."""

import dataclasses
import functools
from collections.abc import Iterator

import apache_beam as beam
from apache_beam.pvalue import PCollection
from apache_beam.utils.shared import Shared

from beam_tfr import storage
from beam_tfr.dataset.base import BaseDataset
from beam_tfr.inputs.read_ahead import ReadAhead
from beam_tfr.output import attempts, codec_versions
from beam_tfr.schema.items import Item, ShardWork, batch_items
from beam_tfr.transforms.copying import Copier
from beam_tfr.transforms.counting import CloudDoFn, count_read, count_waits
from beam_tfr.transforms.shard_reading import MissedReads, ShardReader
from beam_tfr.transforms.update_reading import UpdateReader


@dataclasses.dataclass(eq=False, repr=False)
class ReadImages(beam.PTransform):
    """Reads the bytes of every image of a shard, in order and ahead of the consumer.

    Attributes:
        root: folder that keys are relative to, with a trailing slash.
        ahead: how to read the files; None for table rows, whose references hold everything.
        accept_unreadable: whether to reject files that cannot be read now but may be later.
        output: folder of the dataset, where attempts at each shard are marked; the items of a shard
            that crashed twice are guarded. An empty string if nothing can crash.
        guarded: whether the items of all shards are guarded.
        base: the dataset to update; records are copied from it if their sources did not change.

    Output: lists of `Item` with bytes, or with a `Reject` for a file that can never be read. If
    some files of a shard cannot be read now, the shard ends with an `Unfinished`, or, if the files
    become readable after all, with all of its items again.
    """

    root: str
    _: dataclasses.KW_ONLY
    ahead: ReadAhead | None = dataclasses.field(default_factory=ReadAhead)
    accept_unreadable: bool = False
    output: str = ""
    guarded: bool = False
    base: BaseDataset | None = None

    def mark_path(self, name: str) -> str:
        """Returns the path of the file that marks attempts; an empty string if nothing can crash.

        Args:
            name: name of the file.
        """
        return self.output and storage.work_path(self.output, name)

    def expand(self, work: PCollection[ShardWork]) -> PCollection[list[Item]]:
        return work | "Read" >> beam.ParDo(_Read(self))


class _Read(CloudDoFn):
    def __init__(self, step: ReadImages) -> None:
        self._step = step
        self._copier: Copier | None = None
        # The threads of a process share contents, so that the contents of each shard are read once.
        self._shared = Shared()
        self._missed = MissedReads(accept_unreadable=step.accept_unreadable)

    def process(self, work: ShardWork) -> Iterator[list[Item]]:
        whole_shard = work.whole_item()
        if whole_shard:
            yield [whole_shard]
            return
        codec_versions.check_versions(work.shard.codecs)
        reader = self._make_reader(work)
        mark = self._step.mark_path(f"{work.shard.name}{attempts.SUFFIX}")
        with attempts.mark_attempt(mark) as crashed:
            guarded = crashed or self._step.guarded
            for items in batch_items(self._read_twice(reader)):
                count_read(items)
                count_waits()
                yield [item._replace(guarded=True) for item in items] if guarded else items

    def _make_reader(self, work: ShardWork) -> ShardReader:
        """Makes the reader of a shard, for the first attempt."""
        step = self._step
        if step.base is None or step.ahead is None:
            return ShardReader(work=work, root=step.root, ahead=step.ahead, missed=self._missed)
        if self._copier is None:
            self._copier = self._shared.acquire(functools.partial(Copier, step.base))
        return UpdateReader(
            work=work,
            root=step.root,
            ahead=step.ahead,
            missed=self._missed,
            copier=self._copier,
        )

    def _read_twice(self, reader: ShardReader) -> Iterator[Item]:
        """Yields the items of a shard; starts over if unreadable files become readable.

        This is necessary because no items were kept in memory, and the order of items is fixed.
        """
        unread = yield from reader.read_items()
        if not unread:
            return
        yield reader.make_unfinished(unread)
        accept_unreadable = self._step.accept_unreadable
        if reader.can_read(unread) or accept_unreadable:
            again = dataclasses.replace(reader, accept_unreadable=accept_unreadable)
            unread = yield from again.read_items()
            if unread:
                yield again.make_unfinished(unread)

    def teardown(self) -> None:
        if self._step.ahead is not None:
            self._step.ahead.close()
