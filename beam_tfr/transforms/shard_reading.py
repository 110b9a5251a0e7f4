"""Reads the images of one shard, in order, for ReadImages."""

import collections
import dataclasses
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence

from beam_tfr.engine import interrupt
from beam_tfr.inputs.read_ahead import FileContent, ReadAhead, read_refs
from beam_tfr.output.known_records import KnownRecord
from beam_tfr.schema.errors import DataError, RejectError, RunError
from beam_tfr.schema.items import Change, ImageRef, Item, Known, KnownState, ShardWork
from beam_tfr.schema.plan import MOST_CAUSES, Unfinished
from beam_tfr.transforms.copying import Copier, is_source, stored_source

MOST_MISSED = 100  # reads that may fail in a row before the source is taken for gone
_MISSED_REASONS = ("not-found", "unreadable")


class MissedReads:
    """Counts the reads that failed in a row, to see when the source is gone.

    Args:
        accept_unreadable: whether any number may fail.
    """

    def __init__(self, *, accept_unreadable: bool) -> None:
        self._accept_unreadable = accept_unreadable
        self._number = 0

    def add(self, uri: str, content: FileContent) -> None:
        """Takes the result of a read.

        Raises:
            RunError: the source seems to be gone.
        """
        if not isinstance(content, RejectError) or content.reason not in _MISSED_REASONS:
            self._number = 0
            return
        self._number += 1
        if self._number >= MOST_MISSED and not self._accept_unreadable:
            raise RunError(
                f"the source seems to be gone: {self._number} files in a row cannot be read, the "
                f"last is {uri}: {content.detail}. Nothing is published. When it is back, run the "
                "same command again: it resumes from the finished shards. `accept_unreadable=` "
                "continues, and rejects what cannot be read"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShardReader:
    """Reads the images of a shard.

    Attributes:
        work: the shard.
        root, ahead: see `read_refs`.
        missed: counts the files that cannot be read.
        copier: copies records of the dataset that is updated; None without an update.
        accept_unreadable: whether to reject files that cannot be read now, but perhaps later.
    """

    work: ShardWork
    root: str
    ahead: ReadAhead | None
    missed: MissedReads
    copier: Copier | None = None
    accept_unreadable: bool = False

    def read_items(
        self, stable: Collection[int]
    ) -> Generator[Item, None, Mapping[ImageRef, RejectError]]:
        """Yields the items of the shard in order, up to the first file that cannot be read now.

        The rest of the shard is then read only to find all such files. Waiting for each would delay
        every shard in which a permission is missing.

        Args:
            stable: positions of the images whose records are copied several at a time.

        Returns:
            The files that cannot be read now, but perhaps later, and why; empty if all items were
            yielded.

        Raises:
            RecordError: a record at a stable position is damaged.
        """
        size = len(self.work.refs)
        positions = [position for position in range(size) if position not in stable]
        records = self._read_records(positions)
        contents = self._read_contents(positions)
        following = 0
        for position, (ref, content) in zip(positions, contents, strict=True):
            interrupt.check_interrupt()
            yield from self._copy_stretch(following, position)
            following = position + 1
            result = self._make_item(position, ref, content, records)
            if isinstance(result, RejectError):
                return {ref: result, **self._find_unread(contents)}
            yield result
        yield from self._copy_stretch(following, size)
        return {}

    def can_read(self, refs: Collection[ImageRef]) -> bool:
        """Tries to read files once more; returns whether all of them can be read now."""
        contents = read_refs(self.root, refs, self.ahead)
        return not any(_may_pass(content) for _, content in contents)

    def make_unfinished(self, unread: Mapping[ImageRef, RejectError]) -> Item:
        """The item that says that the shard is not finished, as files cannot be read now."""
        causes = collections.Counter(error.detail for error in unread.values())
        first = next(iter(unread))
        value = Unfinished(
            shard=self.work.shard,
            causes=dict(causes.most_common(MOST_CAUSES)),
            images=len(unread),
            example=self.root + first.key,
        )
        return Item(self.work.shard, 0, "", None, value)

    def _read_records(self, positions: Sequence[int]) -> Iterator[KnownRecord | None]:
        """The records to copy one by one; see `Copier.read_records`."""
        if self.copier is None:
            return iter(())
        return self.copier.read_records(self.work, positions)

    def _read_contents(self, positions: Sequence[int]) -> Iterator[tuple[ImageRef, FileContent]]:
        """The references at positions, with the contents of their files.

        None for what need not be read: the update knows that the source did not change.
        """
        refs = (ImageRef.decode(self.work.refs[position]) for position in positions)
        known = [self.work.known.get(position) for position in positions]
        unread = {index for index, image in enumerate(known) if image and image.state.same_source}
        return read_refs(self.root, refs, self.ahead, leave=unread)

    def _copy_stretch(self, begin: int, end: int) -> Iterator[Item]:
        """The records from one position to another, all of which stay as they are."""
        if self.copier is None:
            return
        for copied in self.copier.copy_stretch(self.work, begin, end):
            interrupt.check_interrupt()
            yield Item(self.work.shard, begin, "", None, copied, change=Change.KEPT)
            begin += len(copied.refs)

    def _make_item(
        self,
        position: int,
        ref: ImageRef,
        content: FileContent,
        records: Iterator[KnownRecord | None],
    ) -> Item | RejectError:
        """The item of an image; the error if its file cannot be read now, but perhaps later."""
        item = Item(self.work.shard, position, self.root + ref.key, ref, None)
        if ref.reason:
            stage = "MatchImages" if ref.columns is None else "ReadTable"
            return item.reject(stage, RejectError(ref.reason, ref.detail))
        known = self.work.known.get(position)
        if known is None:
            return self._with_content(item, content)
        if known.reject:
            return item.with_value(known.reject)
        if known.state is KnownState.CHANGED:
            return self._with_content(item._replace(change=Change.CHANGED), content)
        return self._copy_or_read(item, ref, content, known, next(records))

    def _copy_or_read(
        self,
        item: Item,
        ref: ImageRef,
        content: FileContent,
        known: Known,
        record: KnownRecord | None,
    ) -> Item | RejectError:
        """The item of an image that the dataset has: with its record, or what it is made from.

        Args:
            item: the item, without a value.
            ref: its reference.
            content: of its file; None if it was not read.
            known: what is known of the image.
            record: of the image; None if it is damaged.
        """
        copier = self.copier
        assert copier is not None, "known images come from a dataset that is updated"
        if isinstance(content, RejectError):
            return self._with_content(item, content)
        if isinstance(content, bytes) and record and not is_source(content, record):
            return self._with_content(item._replace(change=Change.CHANGED), content)
        if record and copier.can_copy(record, self.work, item.position):
            value, change = copier.copy_record(record, ref, known)
            return item._replace(value=value, change=change)
        if content is None:
            content = self._find_source(ref, record)
        return self._with_content(item._replace(change=copier.change_of(known)), content)

    def _find_source(self, ref: ImageRef, record: KnownRecord | None) -> FileContent:
        """The source of a record that cannot be copied: from the record itself, or read now.

        Raises:
            DataError: the update has no input, from which it could be read.
        """
        has_companions = self.ahead is not None and self.ahead.companions
        if record and not has_companions:
            source = stored_source(record)
            if source is not None:
                return source
        if not self.root:
            cause = "the sample for statistics needs its source"
            if record is None:
                cause = "its record is damaged"
            raise DataError(
                f"{ref.key}: {cause}; update with `input=` or `table=`, which reads it again"
            )
        ((_, content),) = read_refs(self.root, [ref], self.ahead)
        return content

    def _with_content(self, item: Item, content: FileContent) -> Item | RejectError:
        """An item with the content of its file, or with a reject if it can never be read.

        The error itself if it cannot be read now, but perhaps later.
        """
        self.missed.add(item.uri, content)
        if not isinstance(content, RejectError):
            return item.with_value(content)
        if content.may_pass and not self.accept_unreadable:
            return content
        return item.reject("ReadImages", content)

    def _find_unread(
        self, contents: Iterator[tuple[ImageRef, FileContent]]
    ) -> dict[ImageRef, RejectError]:
        """The files that cannot be read now, but perhaps later, among the rest of a shard."""
        unread = {}
        for ref, content in contents:
            interrupt.check_interrupt()
            self.missed.add(self.root + ref.key, content)
            if isinstance(content, RejectError) and content.may_pass:
                unread[ref] = content
        return unread


def _may_pass(content: FileContent) -> bool:
    """Whether a file cannot be read now, but perhaps later."""
    return isinstance(content, RejectError) and content.may_pass
