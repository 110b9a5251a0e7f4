"""Reads the images of one shard, in order."""

import collections
import dataclasses
import errno
import os
from collections.abc import Collection, Container, Generator, Iterator, Mapping, Sequence
from typing import TypeGuard

from beam_tfr.engine import interrupt
from beam_tfr.inputs.read_ahead import FileContent, ReadAhead, read_refs
from beam_tfr.schema.errors import RejectError, RunError
from beam_tfr.schema.items import ImageRef, Item, ShardWork
from beam_tfr.schema.plan import MOST_CAUSES, Unfinished

MOST_MISSED = 100  # consecutive failed reads after which the source is considered gone
_MISSED_REASONS = ("not-found", "unreadable")
_FORBIDDEN = os.strerror(errno.EACCES)


_GONE = "the source seems to be gone: {number} files in a row cannot be read"
_MISSING = "{number} files in a row do not exist, although files or folders near them do"
_CLOSED = "permission is denied for {number} files in a row"
_CURES = {
    _GONE: "Once the source is back",
    _MISSING: "Once their paths, or the folder they start from (`image_root=`), are corrected",
    _CLOSED: "Once you may read them",
}


class MissedReads:
    """Counts consecutive failed reads, to notice when the source is gone.

    Args:
        accept_unreadable: whether any number of reads may fail.
    """

    def __init__(self, *, accept_unreadable: bool) -> None:
        self._accept_unreadable = accept_unreadable
        self._number = 0
        self._problems = set[str]()  # problems of these reads

    def add(self, uri: str, content: FileContent) -> None:
        """Takes note of the result of a read.

        Raises:
            RunError: too many consecutive reads failed.
        """
        if not isinstance(content, RejectError) or content.reason not in _MISSED_REASONS:
            self._number = 0
            self._problems.clear()
            return
        self._number += 1
        self._problems.add(_problem_of(content))
        if self._number >= MOST_MISSED and not self._accept_unreadable:
            problem = _GONE if len(self._problems) > 1 else self._problems.pop()
            raise RunError(
                f"{problem.format(number=self._number)}; the last is {uri}: {content.detail}. "
                f"Nothing is published. {_CURES[problem]}, run the same command again: it resumes "
                "from the finished shards. With `accept_unreadable=`, it continues and rejects "
                "files that cannot be read"
            )


def _problem_of(error: RejectError) -> str:
    """Returns the problem with the source of a file that cannot be read."""
    if error.reason == "not-found":
        return _MISSING
    return _CLOSED if error.detail.startswith(_FORBIDDEN) else _GONE


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShardReader:
    """Reads the images of a shard.

    Attributes:
        work: the shard.
        root, ahead: see `read_refs`.
        missed: counts the files that cannot be read.
        accept_unreadable: whether to reject files that cannot be read now but may be later.
    """

    work: ShardWork
    root: str
    ahead: ReadAhead | None
    missed: MissedReads
    accept_unreadable: bool = False

    def read_items(self) -> Generator[Item, None, Mapping[ImageRef, RejectError]]:
        """Yields the items of the shard in order, up to the first file that cannot be read now.

        The rest of the shard is then read only to find all such files, because waiting for each of
        them would delay every shard in which a permission is missing.

        Returns:
            The files that cannot be read now but may be later, and why; an empty mapping if all
            items were yielded.
        """
        positions = range(len(self.work.refs))
        contents = self.read_contents(positions)
        for position, (ref, content) in zip(positions, contents, strict=True):
            interrupt.check_interrupt()
            result = self.make_item(position, ref, content)
            if isinstance(result, RejectError):
                return {ref: result, **self.find_unread(contents)}
            yield result
        return {}

    def read_contents(
        self, positions: Sequence[int], *, leave: Container[int] = ()
    ) -> Iterator[tuple[ImageRef, FileContent]]:
        """Yields the references at some positions, with the contents of their files.

        `read_refs` describes `leave`.
        """
        refs = (ImageRef.decode(self.work.refs[position]) for position in positions)
        return read_refs(self.root, refs, self.ahead, leave=leave)

    def make_item(self, position: int, ref: ImageRef, content: FileContent) -> Item | RejectError:
        """Makes the item of an image; returns the error if its file cannot be read now.

        It may be possible to read such a file later.
        """
        item = Item(self.work.shard, position, self.root + ref.key, ref, None)
        if ref.reason:
            stage = "MatchImages" if ref.columns is None else "ReadTable"
            return item.reject(stage, RejectError(ref.reason, ref.detail))
        return self.add_content(item, content)

    def add_content(self, item: Item, content: FileContent) -> Item | RejectError:
        """Makes an item with the content of its file, or with a reject for a file that is unusable.

        If the file cannot be read now but may be later, returns the error itself.
        """
        self.missed.add(item.uri, content)
        if not isinstance(content, RejectError):
            return item.with_value(content)
        if content.may_pass and not self.accept_unreadable:
            return content
        return item.reject("ReadImages", content)

    def find_unread(
        self, contents: Iterator[tuple[ImageRef, FileContent]]
    ) -> dict[ImageRef, RejectError]:
        """Finds the files in the rest of a shard that cannot be read now but may be later."""
        unread = {}
        for ref, content in contents:
            interrupt.check_interrupt()
            self.missed.add(self.root + ref.key, content)
            if _may_pass(content):
                unread[ref] = content
        return unread

    def can_read(self, refs: Collection[ImageRef]) -> bool:
        """Tries to read files once more; returns whether all of them can be read now."""
        contents = read_refs(self.root, refs, self.ahead)
        return not any(_may_pass(content) for _, content in contents)

    def make_unfinished(self, unread: Mapping[ImageRef, RejectError]) -> Item:
        """Makes the item that reports that some files of the shard cannot be read now."""
        causes = collections.Counter(error.detail for error in unread.values())
        first = next(iter(unread))
        value = Unfinished(
            shard=self.work.shard,
            causes=dict(causes.most_common(MOST_CAUSES)),
            images=len(unread),
            example=self.root + first.key,
        )
        return Item(self.work.shard, 0, "", None, value)


def _may_pass(content: FileContent) -> TypeGuard[RejectError]:
    """Whether a file cannot be read now but may be later."""
    return isinstance(content, RejectError) and content.may_pass
