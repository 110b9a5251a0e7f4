"""ReadImages and ReadRows: shards to items, in their order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import apache_beam as beam
from apache_beam.pvalue import PCollection
from apache_beam.transforms.window import GlobalWindows
from apache_beam.utils.windowed_value import WindowedValue

from beam_tfr import inputs, interrupt
from beam_tfr.schema import ImageRef, Item, RejectError, Shard, ShardWork


class ReadImages(beam.PTransform):
    """Shards to items: the bytes of every image, in the shard's order, read ahead.

    Args:
        root: folder that the keys are below, with a slash at its end.
        ahead: how they are read.

    Output: `Item` with bytes, or a `Reject` for a file that cannot be read.
    """

    def __init__(self, root: str, *, ahead: inputs.ReadAhead | None = None) -> None:
        super().__init__()
        self._root, self._ahead = root, ahead or inputs.ReadAhead()

    def expand(self, work: PCollection[ShardWork]) -> PCollection[Item]:
        return work | "Read" >> beam.ParDo(_Read(self._root, self._ahead))


class _Read(beam.DoFn):
    def __init__(self, root: str, ahead: inputs.ReadAhead) -> None:
        self._root, self._ahead = root, ahead

    def start_bundle(self) -> None:
        self._items: Iterator[Item] = iter(())

    def process(self, work: ShardWork) -> Iterator[Item]:
        items, self._items = self._items, self._begin(work)  # so that the next shard is read ahead too
        yield from items

    def finish_bundle(self) -> Iterator[WindowedValue]:
        items, self._items = self._items, iter(())
        yield from map(GlobalWindows.windowed_value, items)

    def _begin(self, work: ShardWork) -> Iterator[Item]:
        if item := work.done():
            return iter([item])
        refs = [ImageRef.decode(ref) for ref in work.refs]
        return self._read(work.shard, refs, self._ahead.read(inputs.sources(self._root, refs)))

    def _read(self, shard: Shard, refs: Sequence[ImageRef], contents: Iterator[inputs.Content]) -> Iterator[Item]:
        for position, (ref, content) in enumerate(zip(refs, contents, strict=True)):
            interrupt.check()
            item = Item(shard, position, self._root + ref.key, ref, None)
            if content is None:
                content = RejectError(ref.reason, ref.detail)
                yield item.reject("MatchImages" if ref.columns is None else "ReadTable", content)
            elif isinstance(content, RejectError):
                yield item.reject("ReadImages", content)
            else:
                yield item._replace(value=content)

    def teardown(self) -> None:
        self._ahead.close()


class ReadRows(beam.PTransform):
    """Shards to items: the rows of a table, which are all in their references, in the shard's order.

    Args:
        root: folder of the tables, with a slash at its end.

    Output: `Item` with None, or a `Reject`.
    """

    def __init__(self, root: str) -> None:
        super().__init__()
        self._root = root

    def expand(self, work: PCollection[ShardWork]) -> PCollection[Item]:
        return work | "Rows" >> beam.FlatMap(_rows, root=self._root)


def _rows(work: ShardWork, *, root: str) -> Iterator[Item]:
    if whole := work.done():
        yield whole
        return
    for position, encoded in enumerate(work.refs):
        interrupt.check()
        ref = ImageRef.decode(encoded)
        item = Item(work.shard, position, root + ref.key, ref, None)
        yield item.reject("ReadTable", RejectError(ref.reason, ref.detail)) if ref.reason else item
