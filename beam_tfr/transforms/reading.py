"""ReadImages: turns shards into items, in order."""

import collections
import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence

import apache_beam as beam
from apache_beam.pvalue import PCollection
from apache_beam.utils.shared import Shared

from beam_tfr import storage
from beam_tfr.dataset.base import BaseDataset
from beam_tfr.engine import interrupt
from beam_tfr.inputs.read_ahead import FileContent, ReadAhead, read_refs
from beam_tfr.output import attempts, codec_versions
from beam_tfr.output.known_records import KnownRecord
from beam_tfr.records.tfrecords import RecordError
from beam_tfr.schema.errors import DataError, RejectError, RunError
from beam_tfr.schema.items import ImageRef, Item, Known, KnownState, ShardWork, batch_items
from beam_tfr.schema.plan import MOST_CAUSES, Shard, Unfinished
from beam_tfr.transforms.copying import Copier, is_source, stored_source
from beam_tfr.transforms.counting import CloudDoFn, count_read, count_waits

MOST_MISSED = 100  # reads that may fail in a row before the source is taken for gone


@dataclasses.dataclass(eq=False, repr=False)
class ReadImages(beam.PTransform):
    """Reads the bytes of every image of a shard, in order and ahead of the consumer.

    Attributes:
        root: folder that keys are relative to, with a trailing slash.
        ahead: how to read the files; None for rows of tables, whose references hold everything.
        accept_unreadable: whether to reject files that cannot be read now, but perhaps later.
        output: folder of the dataset, where attempts at each shard are marked; if they crashed
            twice, its items are guarded. Empty where nothing can crash.
        guarded: whether the items of all shards are guarded.
        base: the dataset to update, whose records are copied where their sources did not change.

    Output: lists of `Item` with bytes, or with a `Reject` for a file that can never be read. A
    shard with files that cannot be read now ends with an `Unfinished`, or, if they can be read in
    the end, with all of its items again.
    """

    root: str
    _: dataclasses.KW_ONLY
    ahead: ReadAhead | None = dataclasses.field(default_factory=ReadAhead)
    accept_unreadable: bool = False
    output: str = ""
    guarded: bool = False
    base: BaseDataset | None = None

    def mark_path(self, name: str) -> str:
        """The file of this name that marks attempts; empty where nothing can crash."""
        return self.output and storage.work_path(self.output, name)

    def expand(self, work: PCollection[ShardWork]) -> PCollection[list[Item]]:
        return work | "Read" >> beam.ParDo(_Read(self))


class _Read(CloudDoFn):
    def __init__(self, step: ReadImages) -> None:
        self._step = step
        self._copier: Copier | None = None
        self._shared = (
            Shared()
        )  # so that all threads of a process read the contents of each shard once
        self._missed = 0  # reads that failed since the last one that did not

    def process(self, work: ShardWork) -> Iterator[list[Item]]:
        item = work.done()
        if item:
            yield [item]
            return
        codec_versions.check_versions(work.shard.codecs)
        if self._copier is None and (base := self._step.base):
            self._copier = self._shared.acquire(lambda: Copier(base))
        mark = self._step.mark_path(f"{work.shard.name}{attempts.SUFFIX}")
        with attempts.mark_attempt(mark) as crashed:
            guarded = crashed or self._step.guarded
            for items in batch_items(self._read(work)):
                count_read(items)
                count_waits()
                yield [item._replace(guarded=True) for item in items] if guarded else items

    def _contents(
        self, work: ShardWork, positions: Sequence[int]
    ) -> Iterator[tuple[ImageRef, FileContent]]:
        refs = (ImageRef.decode(work.refs[position]) for position in positions)
        known = [work.known.get(position) for position in positions]
        leave = {place for place, image in enumerate(known) if image and image.state.same_source}
        return read_refs(self._step.root, refs, self._step.ahead, leave=leave)

    def _unchanged(self, work: ShardWork, begin: int, end: int) -> Iterator[Item]:
        """The records from one position to another, all of which an update takes as they are."""
        for copied in (
            self._copier.unchanged(work, begin, end) if self._copier and begin < end else ()
        ):
            interrupt.check()
            yield Item(work.shard, begin, "", None, copied, before="kept")
            begin += len(copied.refs)

    def _copied(
        self,
        item: Item,
        known: Known,
        content: FileContent,
        copy: KnownRecord | None,
        work: ShardWork,
    ) -> tuple[Item, FileContent]:
        """An item with the existing record, or with what has to be converted, which is also
        returned."""
        if isinstance(content, RejectError):
            return item, content
        copier = self._copier
        ref = item.ref
        if isinstance(content, bytes) and copy and not is_source(content, copy):
            return item._replace(before="changed"), content
        if copy and copier and ref and copier.can_copy(copy, work, item.position):
            record = copier.record(copy, ref, known)
            before = "kept" if record.serialized == copy.serialized else "relabelled"
            return Item(item.shard, item.position, item.uri, ref, record, False, before), None
        if content is None and copy and not (self._step.ahead and self._step.ahead.companions):
            content = stored_source(copy)
        if content is None and ref:
            if not self._step.root:  # without an input
                if copy:
                    cause = "the sample for statistics needs its source"
                else:
                    cause = "its record is damaged"
                raise DataError(
                    f"{ref.key}: {cause}; update with `input=` or `table=`, which reads it again"
                )
            ((_, content),) = read_refs(self._step.root, [ref], self._step.ahead)
        about_boxes = self._step.base and self._step.base.boxes and not known.state.same_reference
        return item._replace(before="relabelled" if about_boxes else "kept"), content

    def _read(self, work: ShardWork) -> Iterator[Item]:
        """The items of a shard; if one of several records to copy is damaged, it starts over, one
        by one."""
        try:
            yield from self._read_beside(work, self._copier.stays(work) if self._copier else ())
        except RecordError as error:
            value = Unfinished(
                shard=work.shard, causes={str(error): 1}, images=1, example=error.file
            )
            yield Item(work.shard, 0, "", None, value)
            yield from self._read_beside(work, ())

    def _read_beside(
        self, work: ShardWork, stay: Collection[int], *, again: bool = False
    ) -> Iterator[Item]:
        """The items of a shard, up to the first image that cannot be read now, but perhaps later.

        The rest of the shard is then read only to find all such images, which are tried again at
        its end. If that succeeds, the shard starts over, because nothing of it was kept in memory
        and its order is fixed. Waiting for each image would delay every shard in which a permission
        is missing.
        """
        positions = [position for position in range(len(work.refs)) if position not in stay]
        following = 0
        copies = self._copier.copies(work, positions) if self._copier else iter(())
        contents = self._contents(work, positions)
        for position, (ref, content) in zip(positions, contents, strict=True):
            interrupt.check()
            yield from self._unchanged(work, following, position)
            following = position + 1
            item = Item(work.shard, position, self._step.root + ref.key, ref, None)
            if ref.reason:
                error = RejectError(ref.reason, ref.detail)
                yield item.reject("MatchImages" if ref.columns is None else "ReadTable", error)
                continue
            known = work.known.get(position)
            if known:
                if known.reject:
                    yield item.with_value(known.reject)
                    continue
                if known.state is KnownState.CHANGED:
                    item = item._replace(before="changed")
                else:
                    item, content = self._copied(item, known, content, next(copies), work)
                    if item.value is not None:
                        yield item
                        continue
            self._watch(item.uri, content)
            if not isinstance(content, RejectError):
                yield item.with_value(content)
            elif not content.may_pass or (again and self._step.accept_unreadable):
                yield item.reject("ReadImages", content)
            else:
                break
        else:
            yield from self._unchanged(work, following, len(work.refs))
            return
        unread = {ref: content}
        for ref, content in contents:
            interrupt.check()
            self._watch(self._step.root + ref.key, content)
            if isinstance(content, RejectError) and content.may_pass:
                unread[ref] = content
        yield self._unfinished(work.shard, unread)
        if not again:
            tried = read_refs(self._step.root, unread, self._step.ahead)
            still = any(
                isinstance(content, RejectError) and content.may_pass for _, content in tried
            )
            if self._step.accept_unreadable or not still:
                yield from self._read_beside(work, stay, again=True)

    def _watch(self, uri: str, content: FileContent) -> None:
        """Raises an error when the source seems to be gone."""
        if not isinstance(content, RejectError) or content.reason not in (
            "not-found",
            "unreadable",
        ):
            self._missed = 0
            return
        self._missed += 1
        if self._missed >= MOST_MISSED and not self._step.accept_unreadable:
            raise RunError(
                f"the source seems to be gone: {self._missed} files in a row cannot be read, the last is {uri}: "
                f"{content.detail}. Nothing is published. When it is back, run the same command again: it resumes from "
                "the finished shards. `accept_unreadable=` continues, and rejects what cannot be read"
            )

    def _unfinished(self, shard: Shard, unread: Mapping[ImageRef, RejectError]) -> Item:
        causes = collections.Counter(error.detail for error in unread.values())
        example = self._step.root + next(iter(unread)).key
        value = Unfinished(
            shard=shard,
            causes=dict(causes.most_common(MOST_CAUSES)),
            images=len(unread),
            example=example,
        )
        return Item(shard, 0, "", None, value)

    def teardown(self) -> None:
        if self._step.ahead is not None:
            self._step.ahead.close()
