"""ReadImages and ReadRows: shards to items, in order."""

from __future__ import annotations

from collections.abc import Iterator

import apache_beam as beam
from apache_beam.pvalue import PCollection
from apache_beam.transforms.window import GlobalWindows
from apache_beam.utils.windowed_value import WindowedValue

from beam_tfr import interrupt
from beam_tfr.inputs.reading import Content, ReadAhead, read_refs
from beam_tfr.schema import ImageRef, Item, RejectError, Shard, ShardWork


class ReadImages(beam.PTransform):
    """Shards to items: the bytes of every image, in the shard's order, read ahead.

    Args:
        root: folder that the keys are below, with a slash at its end.
        ahead: how they are read.

    Output: `Item` with bytes, or with a `Reject` for a file that cannot be read.
    """

    def __init__(self, root: str, *, ahead: ReadAhead | None = None) -> None:
        super().__init__()
        self.root = root
        self.ahead: ReadAhead | None = ahead or ReadAhead()

    def expand(self, work: PCollection[ShardWork]) -> PCollection[Item]:
        return work | "Read" >> beam.ParDo(_Read(self.root, self.ahead))


class ReadRows(ReadImages):
    """Shards to items: rows of a table, in the shard's order.

    Args:
        root: folder of the tables, with a slash at its end.

    Output: `Item` with None, or with a `Reject`.
    """

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.ahead = None


class _Read(beam.DoFn):
    def __init__(self, root: str, ahead: ReadAhead | None) -> None:
        self._root, self._ahead = root, ahead

    def start_bundle(self) -> None:
        self._items: Iterator[Item] = iter(())

    def process(self, work: ShardWork) -> Iterator[Item]:
        items, self._items = self._items, self._begin(work)  # the next shard is read ahead too
        yield from items

    def finish_bundle(self) -> Iterator[WindowedValue]:
        yield from map(GlobalWindows.windowed_value, self._items)

    def _begin(self, work: ShardWork) -> Iterator[Item]:
        if item := work.done():
            return iter([item])
        return self._read(work.shard, read_refs(self._root, map(ImageRef.decode, work.refs), self._ahead))

    def _read(self, shard: Shard, contents: Iterator[tuple[ImageRef, Content]]) -> Iterator[Item]:
        for position, (ref, content) in enumerate(contents):
            interrupt.check()
            item = Item(shard, position, self._root + ref.key, ref, None)
            if ref.reason:
                error = RejectError(ref.reason, ref.detail)
                yield item.reject("MatchImages" if ref.columns is None else "ReadTable", error)
            elif isinstance(content, RejectError):
                yield item.reject("ReadImages", content)
            else:
                yield item._replace(value=content)

    def teardown(self) -> None:
        if self._ahead is not None:
            self._ahead.close()
