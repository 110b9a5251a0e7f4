"""The seven steps as PTransforms, each a thin wire around the functions of one module.

`pipeline.convert` puts them together; in a pipeline of your own, put steps between with `MapImages`.
"""

from __future__ import annotations

import functools
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.pvalue import AsIter, AsSingleton, PBegin, PCollection
from apache_beam.transforms.window import GlobalWindows
from apache_beam.utils.windowed_value import WindowedValue

from beam_tfr import (
    arrays,
    books,
    claim,
    cloud,
    examples,
    images,
    inputs,
    interrupt,
    lock,
    manifest,
    planning,
    shards,
    storage,
    tables,
)
from beam_tfr.labels import Labeler
from beam_tfr.options import ImageOptions
from beam_tfr.schema import (
    NO_SPLIT,
    REJECTS_FILE,
    Array,
    DataError,
    ImageRef,
    Item,
    Plan,
    Record,
    Reject,
    RejectError,
    RunError,
    Shard,
    ShardInfo,
    ShardWork,
)

cloud.use_given()  # every worker process imports this module, and has its options by then


class MatchImages(beam.PTransform):
    """Patterns to references: the files that match, each once, with label and split as its path says.

    Args:
        patterns: local or gs://.
        labeler: reads labels and splits.
        root: of `inputs.common_root`, where it is known already.
        input_list: file with more patterns; read by a worker, since a pipeline has no place for millions of them.
        exclude: patterns of files to leave out.

    Output: encoded `ImageRef`.
    """

    def __init__(
        self,
        patterns: Sequence[str],
        labeler: Labeler,
        *,
        root: str | None = None,
        input_list: str | None = None,
        exclude: Sequence[str] = (),
    ) -> None:
        super().__init__()
        self._patterns, self._input_list = tuple(patterns), input_list
        self._labeler = labeler
        self._root = root or inputs.common_root(inputs.all_patterns(patterns, input_list))
        self._exclude = inputs.exclusion(exclude, self._root)

    def expand(self, begin: PBegin) -> PCollection[bytes]:
        return (
            begin
            | beam.Create([None])
            | "Patterns" >> beam.FlatMap(_batches, self._patterns, self._input_list)
            | "SpreadPatterns" >> beam.Reshuffle()
            | "List" >> beam.FlatMap(_list, exclude=self._exclude)
            | "Label" >> beam.Map(self._reference).with_output_types(bytes)
        )

    def _reference(self, entry: storage.Entry) -> bytes:
        interrupt.check()
        if not entry.path.startswith(self._root):
            raise RunError(f"{entry.path} is not below {self._root}: --input_list was changed meanwhile; call again")
        return self._labeler.label(entry, entry.path[len(self._root) :]).encode()


def _batches(_: None, patterns: Sequence[str], input_list: str | None) -> Iterator[list[list[bytes]]]:
    # As bytes: Beam's text has no place for the names of folders that are not UTF-8.
    for batch in inputs.batches(inputs.order_patterns(inputs.all_patterns(patterns, input_list))):
        yield [[*map(os.fsencode, [pattern, *before])] for pattern, before in batch]


def _list(batch: list[list[bytes]], exclude: re.Pattern[str] | None) -> Iterator[storage.Entry]:
    decoded = ([*map(os.fsdecode, patterns)] for patterns in batch)
    return inputs.list_all([(pattern, before) for pattern, *before in decoded], exclude=exclude)


class ReadTable(beam.PTransform):
    """Tables to references: a row each, with labels, split and columns as it says. Tables are read in parallel.

    Args:
        opened: of `tables.open_tables`.

    Output: (encoded `ImageRef`; a PCollection of one that is there when no two rows have the same key).
    """

    def __init__(self, opened: tables.Tables) -> None:
        super().__init__()
        self._opened = opened

    def expand(self, begin: PBegin) -> tuple[PCollection[bytes], PCollection[None]]:
        read = (
            begin
            | "Tables" >> beam.Create([*enumerate(self._opened.files)])
            | "SpreadTables" >> beam.Reshuffle()
            | "ReadRows"
            >> beam.ParDo(_ReadRows(self._opened)).with_output_types(bytes).with_outputs("seen", main="refs")
        )
        distinct = (
            read.seen
            | "GroupSeen" >> beam.GroupByKey()
            | "FindRepeats" >> beam.Map(lambda bucket: tables.find_repeats(bucket[1]))
            | beam.combiners.ToList()
            | "RefuseRepeats" >> beam.Map(_refuse_repeats, self._opened)
        )
        return read.refs, distinct


class _ReadRows(beam.DoFn):
    def __init__(self, opened: tables.Tables) -> None:
        self._opened = opened

    def process(self, table: tuple[int, str]) -> Iterator[Any]:
        number, path = table
        seen = tables.Seen(number)
        for row, ref in self._opened.read(path):
            interrupt.check()
            yield ref.encode()
            if self._opened.may_repeat:
                for part in seen.add(ref.key, row):
                    yield beam.pvalue.TaggedOutput("seen", part)
        for part in seen.flush():
            yield beam.pvalue.TaggedOutput("seen", part)


def _refuse_repeats(found: Sequence[tables.Repeats | None], opened: tables.Tables) -> None:
    if repeats := [one for one in found if one is not None]:
        raise DataError(opened.tell(tables.merge_repeats(repeats)))


class _Survey(beam.CombineFn):
    def __init__(self, seed: int) -> None:
        self._seed = seed

    def create_accumulator(self) -> planning.Survey:
        return planning.Survey(self._seed)

    def add_input(self, survey: planning.Survey, ref: bytes) -> planning.Survey:
        survey.add(ref)
        return survey

    def merge_accumulators(self, surveys: Iterable[planning.Survey]) -> planning.Survey:
        total = planning.Survey(self._seed)
        for survey in surveys:
            total.merge(survey)
        return total

    def extract_output(self, survey: planning.Survey) -> planning.Survey:
        return survey


class PlanShards(beam.PTransform):
    """References to shards: decides, before an image is read, which goes where, and claims the output for this plan.

    Only references are shuffled, each once, as short bytes, and the order keys of some. Every planned shard comes out,
    also an empty one.

    Args:
        output: folder of the dataset.
        draft: (survey, mean record bytes) -> `Plan` without cuts.
        measure: references of a sample -> mean bytes of their records.
        seed: of the order.
        run_id: holds the folder's lock.
        overwrite: whether another dataset in the folder is replaced.
        after: must be there before anything is written.

    Output: (the `Plan`, a PCollection of one; `ShardWork`).
    """

    def __init__(
        self,
        output: str,
        *,
        draft: Callable[[planning.Survey, float], Plan],
        measure: Callable[[Sequence[ImageRef]], float],
        seed: int,
        run_id: str,
        overwrite: bool,
        after: PCollection[None] | None = None,
    ) -> None:
        super().__init__()
        self._output, self._seed, self._run_id, self._overwrite = output, seed, run_id, overwrite
        self._draft, self._measure, self._after = draft, measure, after

    def expand(self, refs: PCollection[bytes]) -> tuple[PCollection[Plan], PCollection[ShardWork]]:
        survey = refs | "Survey" >> beam.CombineGlobally(_Survey(self._seed))
        after = [] if self._after is None else [AsSingleton(self._after)]
        drafted = survey | "Draft" >> beam.Map(_draft, *after, draft=self._draft, measure=self._measure)
        cuts = (
            refs
            | "KeepNearCuts" >> beam.FlatMap(_near_cuts, AsSingleton(drafted)).with_output_types(tuple[str, bytes])
            | "GroupByBucket" >> beam.GroupByKey()  # so that no worker ever holds more than the keys of one
            | "PickCuts" >> beam.Map(_pick_cuts, AsSingleton(drafted))
        )
        plan = drafted | "Claim" >> beam.Map(
            _claim, AsIter(cuts), output=self._output, run_id=self._run_id, overwrite=self._overwrite
        )
        assigned = refs | "Assign" >> beam.FlatMap(_assign, AsSingleton(plan)).with_output_types(tuple[str, bytes])
        planned = plan | "EveryShard" >> beam.FlatMap(_every_shard).with_output_types(tuple[str, bytes])
        work = (
            (assigned, planned)
            | beam.Flatten()
            | "GroupByShard" >> beam.GroupByKey()
            | "Order" >> beam.Map(_order, output=self._output)
        )
        return plan, work


_Draft = tuple[Plan, planning.CutBuckets]  # the plan without its cuts, and where they lie


def _draft(
    survey: planning.Survey,
    _: None = None,
    *,
    draft: Callable[[planning.Survey, float], Plan],
    measure: Callable[[Sequence[ImageRef]], float],
) -> _Draft:
    plan = draft(survey, measure(survey.sample_refs()))
    return plan, planning.find_cut_buckets(survey, plan)


def _near_cuts(ref: bytes, drafted: _Draft) -> list[tuple[str, bytes]]:
    return drafted[1].find(ref)


def _pick_cuts(bucket: tuple[str, Iterable[bytes]], drafted: _Draft) -> tuple[str, list[bytes]]:
    return bucket[0], drafted[1].pick(*bucket)


def _claim(
    drafted: _Draft, cuts: Iterable[tuple[str, list[bytes]]], *, output: str, run_id: str, overwrite: bool
) -> Plan:
    return claim.claim(output, planning.cut(*drafted, cuts), run_id=run_id, overwrite=overwrite)


def _assign(ref: bytes, plan: Plan) -> Iterator[tuple[str, bytes]]:
    if not plan.complete:
        yield planning.assign(ref, plan)


def _every_shard(plan: Plan) -> Iterator[tuple[str, bytes]]:
    if not plan.complete:
        yield from planning.every_shard(plan)


def _order(grouped: tuple[str, Iterable[bytes]], *, output: str) -> ShardWork:
    shard, refs = planning.order(grouped[1])
    return ShardWork(shard, refs, claim.read_finished(output, shard))


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
        if work.finished is not None or not work.refs:
            return iter([Item(work.shard, 0, "", None, work.finished)])
        refs = [ImageRef.decode(ref) for ref in work.refs]
        return self._read(work.shard, refs, self._ahead.read(inputs.sources(self._root, refs)))

    def _read(self, shard: Shard, refs: Sequence[ImageRef], contents: Iterator[inputs.Content]) -> Iterator[Item]:
        for position, (ref, content) in enumerate(zip(refs, contents, strict=True)):
            interrupt.check()
            item = Item(shard, position, self._root + ref.key, ref, None)
            if content is None:
                content = RejectError(ref.reason, ref.detail)
                yield _reject(item, "MatchImages" if ref.columns is None else "ReadTable", content)
            elif isinstance(content, RejectError):
                yield _reject(item, "ReadImages", content)
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
    if work.finished is not None or not work.refs:
        yield Item(work.shard, 0, "", None, work.finished)
        return
    for position, encoded in enumerate(work.refs):
        interrupt.check()
        ref = ImageRef.decode(encoded)
        item = Item(work.shard, position, root + ref.key, ref, None)
        yield _reject(item, "ReadTable", RejectError(ref.reason, ref.detail)) if ref.reason else item


def _reject(item: Item, stage: str, error: RejectError) -> Item:
    key = item.ref.key if item.ref else ""
    return item._replace(value=Reject(key, item.uri, stage, error.reason, error.detail))


class MapImages(beam.PTransform):
    """Applies a function of your own between the steps; rejects and finished shards pass by.

    Args:
        fn: (value, ref) -> new value; raises `RejectError` to leave the image out.
        stage: name in rejects.jsonl.

    Output: `Item`, in the same order.
    """

    def __init__(self, fn: Callable[[Any, ImageRef], Any], *, stage: str = "MapImages") -> None:
        super().__init__()
        self._fn, self._stage = fn, stage

    def expand(self, items: PCollection[Item]) -> PCollection[Item]:
        return items | self._stage >> beam.Map(self._apply)

    def _apply(self, item: Item) -> Item:
        if item.ref is None or isinstance(item.value, (Reject, ShardInfo)):
            return item
        try:
            return item._replace(value=self._fn(item.value, item.ref))
        except RejectError as error:
            return _reject(item, self._stage, error)


class ResizeImages(MapImages):
    """Bytes to `Image`: decodes, orients, resizes, encodes.

    Args:
        options: how.
    """

    def __init__(self, options: ImageOptions) -> None:
        super().__init__(lambda data, ref: images.convert_image(data, options, name=ref.key), stage="ResizeImages")


class ParseArrays(MapImages):
    """Bytes of .npy files to `Array`."""

    def __init__(self) -> None:
        super().__init__(_parse_array, stage="ParseArrays")


def _parse_array(data: bytes, _: ImageRef) -> Array:
    return arrays.parse_array(data)


class BuildExamples(MapImages):
    """`Image`, `Array`, bytes of a file, or row to `Record`: a serialized tf.train.Example.

    Args:
        encoding: of `ConvertOptions`, which says what there is.
    """

    def __init__(self, encoding: str = "jpeg") -> None:
        super().__init__(functools.partial(examples.build_record, encoding), stage="BuildExamples")


class WriteShards(beam.io.WriteToTFRecord):
    """Items to files: Beam's framing and naming, with the shards, the order, the level and the commit of the plan.

    Beam's own way assigns records to shards at random and renames all files at the end, where a retry can lose some.
    Here a file appears when its last item has come, whole, and its sidecar after it.

    Args:
        output: folder of the dataset.
        name: prefix of the files.
        suffix: of the files.
        level: of gzip, 0 to 9; None for no gzip.
        run_id: keeps the folder's lock alive from here, too, where the process that began the run may be gone.

    Output: `ShardInfo`, one for each planned shard.
    """

    def __init__(self, output: str, *, name: str, suffix: str, level: int | None, run_id: str = "") -> None:
        super().__init__(
            storage.join(output, name), file_name_suffix=suffix, compression_type=CompressionTypes.UNCOMPRESSED
        )
        self._output, self._name, self._suffix, self._level = output, name, suffix, level
        self._run_id = run_id

    def expand(self, items: PCollection[Item]) -> PCollection[ShardInfo]:
        write = _Write(self._sink, self._output, self._name, self._suffix, self._level, self._run_id)
        return items | "Write" >> beam.ParDo(write)


class _Write(beam.DoFn):
    def __init__(self, sink: Any, output: str, name: str, suffix: str, level: int | None, run_id: str) -> None:
        self._sink, self._output, self._level = sink, output, level
        self._name, self._suffix, self._run_id = name, suffix, run_id
        self._beaten = 0.0
        self._pending: storage.PendingFile | None = None

    def start_bundle(self) -> None:
        self._abort()  # what a failed attempt left open
        self._sequence = shards.Sequencer()

    def process(self, item: Item) -> Iterator[ShardInfo]:
        if self._run_id and time.monotonic() - self._beaten > lock.HEARTBEAT_S:
            self._beaten = time.monotonic()
            lock.beat(self._output, self._run_id)
        if isinstance(item.value, ShardInfo):
            self._sequence.check_closed()
            yield item.value
            return
        last = self._sequence.take(item, self._begin)
        if isinstance(item.value, Record) and item.ref is not None:
            self._sink.write_record(self._file, item.value.serialized)
            self._books.count_record(item.value, item.ref.label_ids or ())
        elif isinstance(item.value, Reject):
            self._books.count_reject(item.value)
        elif item.ref is not None:
            raise TypeError(f"{item.uri}: WriteShards takes a Record or a Reject, got {type(item.value).__name__}")
        if last:
            yield self._commit()

    def _begin(self, shard: Shard) -> None:
        self._books = shards.Books(shard)
        self._file_name = ""
        if shard.split != NO_SPLIT:
            number = self._sink.shard_name_format % {"shard_num": shard.number, "num_shards": shard.num_shards}
            self._file_name = f"{self._name}-{shard.split}{number}{self._suffix}"
            path = storage.join(self._output, self._file_name)
            self._pending = storage.create(path, scratch=storage.work_path(self._output, ""))
            self._file = shards.ShardFile(self._pending, self._level)

    def _commit(self) -> ShardInfo:
        if self._pending is not None:
            self._file.close()
            try:
                self._pending.commit()
            except storage.AlreadyExistsError:
                raise RunError(
                    f"{storage.join(self._output, self._file_name)} was written by another run meanwhile; call again"
                ) from None
            self._pending = None
        info = self._books.close(self._file_name, self._file if self._file_name else None)
        claim.write_sidecar(self._output, info, self._books.reject_lines)
        return info

    def finish_bundle(self) -> None:
        self._sequence.check_closed()

    def teardown(self) -> None:
        self._abort()

    def _abort(self) -> None:
        if self._pending is not None:
            self._pending.abort()
            self._pending = None


class WriteManifest(beam.PTransform):
    """The books of all shards to manifest.json, written last, and only when they balance.

    Args:
        output: folder of the dataset.
        plan: of `PlanShards`, a PCollection of one.
        run_id: must still hold the folder's lock.
        max_rejects: a share (float) or a number (int).

    Output: the dataset digest, when the dataset is complete.
    """

    def __init__(self, output: str, *, plan: PCollection[Plan], run_id: str, max_rejects: int | float) -> None:
        super().__init__()
        self._output, self._plan, self._run_id, self._max_rejects = output, plan, run_id, max_rejects

    def expand(self, infos: PCollection[ShardInfo]) -> PCollection[str]:
        return self._plan | "Publish" >> beam.Map(
            _publish, AsIter(infos), output=self._output, run_id=self._run_id, max_rejects=self._max_rejects
        )


def _publish(plan: Plan, infos: Iterable[ShardInfo], *, output: str, run_id: str, max_rejects: int | float) -> str:
    if plan.complete:
        claim.finish(output)  # what a run that was killed at its end left
        return manifest.read(output).dataset_digest
    balanced = books.balance(plan, infos)
    read_rejects = functools.partial(claim.read_rejects, output)
    try:
        books.check_enough(plan, balanced, max_rejects)
    except DataError as error:
        path = storage.work_path(output, REJECTS_FILE)
        books.write_rejects(path, balanced, read_rejects, scratch=storage.work_path(output, ""))
        raise DataError(f"{error}. Each reject with its reason: {path}") from error
    published = books.find_published(output, plan, balanced)  # by this step, run before
    if published is None:
        lock.check_held(output, run_id)
        published = books.publish(output, plan, balanced, read_rejects)
    claim.finish(output)
    return published.dataset_digest
