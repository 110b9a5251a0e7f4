"""ReadImages and ReadRows: shards to items, in order."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

import apache_beam as beam
from apache_beam.pvalue import PCollection
from apache_beam.transforms.window import GlobalWindows
from apache_beam.utils.windowed_value import WindowedValue

from beam_tfr import interrupt
from beam_tfr.inputs.reading import Content, ReadAhead
from beam_tfr.schema import ImageRef, Item, RejectError, Shard, ShardWork
from beam_tfr.storage import Entry


@dataclasses.dataclass(frozen=True)
class Contents:
    """Reads the files that references name.

    Attributes:
        root: folder that the keys are below, with a slash at its end.
        ahead: how the files are read; None where there are none: a row of a table is all in its reference.
    """

    root: str
    ahead: ReadAhead | None

    def read(self, refs: Iterable[ImageRef]) -> Iterator[tuple[ImageRef, Content]]:
        """Each reference with its content, in order; None for rows and known rejects."""
        if self.ahead is None:
            return ((ref, None) for ref in refs)  # one by one: a shard may have a million rows
        refs = list(refs)
        files = [None if r.reason else Entry(self.root + r.key, r.size_bytes, r.generation) for r in refs]
        return zip(refs, self.ahead.read(files), strict=True)

    def read_once(self, refs: Iterable[ImageRef]) -> Iterator[tuple[ImageRef, Content]]:
        """As `read`, then closes."""
        yield from self.read(refs)
        self.close()

    def close(self) -> None:
        """Ends the threads that read ahead."""
        if self.ahead is not None:
            self.ahead.close()


class ReadImages(beam.PTransform):
    """Shards to items: the bytes of every image, in the shard's order, read ahead.

    Args:
        root: folder that the keys are below, with a slash at its end.
        ahead: how they are read.

    Output: `Item` with bytes, or with a `Reject` for a file that cannot be read.
    """

    def __init__(self, root: str, *, ahead: ReadAhead | None = None) -> None:
        super().__init__()
        self.contents = Contents(root, ahead or ReadAhead())

    def expand(self, work: PCollection[ShardWork]) -> PCollection[Item]:
        return work | "Read" >> beam.ParDo(_Read(self.contents))


class ReadRows(beam.PTransform):
    """Shards to items: rows of a table, in the shard's order.

    Args:
        root: folder of the tables, with a slash at its end.

    Output: `Item` with None, or with a `Reject`.
    """

    def __init__(self, root: str) -> None:
        super().__init__()
        self.contents = Contents(root, None)

    def expand(self, work: PCollection[ShardWork]) -> PCollection[Item]:
        return work | "Read" >> beam.ParDo(_Read(self.contents))


class _Read(beam.DoFn):
    def __init__(self, contents: Contents) -> None:
        self._contents = contents

    def start_bundle(self) -> None:
        self._items: Iterator[Item] = iter(())

    def process(self, work: ShardWork) -> Iterator[Item]:
        items, self._items = self._items, self._begin(work)  # the next shard is read ahead too
        yield from items

    def finish_bundle(self) -> Iterator[WindowedValue]:
        items, self._items = self._items, iter(())
        yield from map(GlobalWindows.windowed_value, items)

    def _begin(self, work: ShardWork) -> Iterator[Item]:
        if item := work.done():
            return iter([item])
        return self._read(work.shard, self._contents.read(map(ImageRef.decode, work.refs)))

    def _read(self, shard: Shard, contents: Iterator[tuple[ImageRef, Content]]) -> Iterator[Item]:
        for position, (ref, content) in enumerate(contents):
            interrupt.check()
            item = Item(shard, position, self._contents.root + ref.key, ref, None)
            if ref.reason:
                error = RejectError(ref.reason, ref.detail)
                yield item.reject("MatchImages" if ref.columns is None else "ReadTable", error)
            elif isinstance(content, RejectError):
                yield item.reject("ReadImages", content)
            else:
                yield item._replace(value=content)

    def teardown(self) -> None:
        self._contents.close()
