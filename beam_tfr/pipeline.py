"""The composition: the drawing of the architecture, in code.

globs ──MatchImages──▶ ImageRef ──PlanShards──▶ (shard, [ImageRef])       (tables: ReadTable)
    ──ReadImages──▶ Item(bytes) ──ResizeImages──▶ Item(Image) ──BuildExamples──▶ Item(record)
    ──WriteShards──▶ ShardInfo ──WriteManifest──▶ manifest.json

With --encoding bytes nothing is resized, with array ParseArrays comes in its place, with row (of a table) nothing is
read: it is in the references.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import PBegin, PCollection

from beam_tfr import arrays, examples, images, inputs, planning, saved_plan, shards, storage, tables
from beam_tfr.labels import Labeler, parse_layout, read_classes
from beam_tfr.naming import file_name, shard_name
from beam_tfr.options import ConvertOptions, ImageOptions
from beam_tfr.schema import (
    DICT_NAMES,
    MANIFEST_FILE,
    REJECTS_FILE,
    ImageRef,
    Item,
    Plan,
    RejectError,
    RunError,
    ShardWork,
    UsageError,
    features_of,
)
from beam_tfr.transforms import (
    BuildExamples,
    MatchImages,
    ParseArrays,
    PlanShards,
    ReadImages,
    ReadPlan,
    ReadRows,
    ReadTable,
    ResizeImages,
    SavePlan,
    WriteManifest,
    WriteShards,
)


class Convert(beam.PTransform):
    """The whole conversion.

    Args:
        options: checked.
        run_id: of this run, unique; the folder's lock is held under it.

    Output: the dataset digest, once the dataset is complete; with --save_plan that of the plan, once it is saved.

    Raises:
        UsageError: --layout or --classes is wrong, or the inputs have nothing in common.
    """

    def __init__(self, options: ConvertOptions, *, run_id: str) -> None:
        super().__init__()
        self.options, self.run_id = options, run_id
        names = read_classes(options.classes) if options.classes else None
        classes = None if names is None else frozenset(names)
        self._tables: tables.Tables | None = None
        if options.table:
            self._tables = _open_tables(options, classes)
            self._root, labelled = self._tables.root, bool(options.label_column)
            columns = {column: str(of) for column, of in self._tables.types.items()}
            data_options = options.data_options(names, columns=columns, multi_label=self._tables.multi_label)
        else:
            patterns = inputs.all_patterns(options.input, options.input_list)
            self._root = inputs.common_root(patterns)
            _check_apart(options, patterns, inputs.exclusion(options.exclude, self._root))
            layout = parse_layout(options.layout)
            self._labeler, labelled = Labeler(layout, options.splits, classes), layout.has_labels
            data_options = options.data_options(names)
        self._ahead = inputs.ReadAhead(
            options.max_file_bytes, images=options.read_ahead, deadline_s=options.read_deadline_s
        )
        self._image_options = options.image_options()
        named: dict[str, Any] = {"name": options.name, "suffix": options.suffix, "options": data_options}
        self._codecs = images.codec_versions()
        self._draft = functools.partial(planning.draft_plan, **named, labelled=labelled, codecs=self._codecs)
        self._named, self._call = (
            named,
            {
                "root": self._root,
                "input": sorted(set(options.input)),
                "input_list": options.input_list,
                "exclude": sorted(set(options.exclude)),
                "table": list(options.table),
            },
        )
        self._measure = functools.partial(
            mean_record_bytes, root=self._root, ahead=self._ahead, image_options=self._image_options
        )

    def check_plan(self) -> None:
        """
        Raises:
            UsageError: --plan cannot be read, is no plan, or one of another call.
        """
        if self.options.plan:
            with saved_plan.SavedPlan(self.options.plan) as saved:
                saved.check_call(self._call, self._named)

    def expand(self, begin: PBegin) -> PCollection[str]:
        options = self.options
        level = shards.gzip_level(options.compression, options.gzip_level, options.encoding)
        plan, work = self._planned(begin)  # Plan, ShardWork(shard, [ImageRef])
        if options.save_plan:
            return work | SavePlan(options.save_plan, plan=plan, call=self._call, replace=options.overwrite)
        return (
            self._values(work)  # Item(Image)
            | BuildExamples(options.encoding)  # Item(Record)
            | WriteShards(
                options.output, name=options.name, suffix=options.suffix, level=level, run_id=self.run_id
            )  # ShardInfo
            | WriteManifest(options.output, plan=plan, run_id=self.run_id, max_rejects=options.max_rejects)
        )

    def _planned(self, begin: PBegin) -> tuple[PCollection[Plan], PCollection[ShardWork]]:
        options = self.options
        if options.plan:
            return begin | ReadPlan(  # type: ignore[no-any-return]
                options.plan,
                output=options.output,
                run_id=self.run_id,
                overwrite=options.overwrite,
                codecs=self._codecs,
            )
        refs, distinct = self._references(begin)  # ImageRef
        return refs | PlanShards(  # type: ignore[no-any-return]
            None if options.save_plan else options.output,
            draft=self._draft,
            measure=self._measure,
            seed=options.seed,
            run_id=self.run_id,
            overwrite=options.overwrite,
            after=distinct,
        )

    def _references(self, begin: PBegin) -> tuple[PCollection[bytes], PCollection[None] | None]:
        options = self.options
        if self._tables is not None:
            refs, distinct = begin | ReadTable(self._tables)
            return refs, distinct
        refs = begin | MatchImages(
            options.input, self._labeler, root=self._root, input_list=options.input_list, exclude=options.exclude
        )
        return refs, None

    def _values(self, work: PCollection[ShardWork]) -> PCollection[Item]:
        encoding = self.options.encoding
        if encoding == "row":
            return work | ReadRows(self._root)
        contents = work | ReadImages(self._root, ahead=self._ahead)  # Item(bytes)
        if encoding == "bytes":
            return contents
        return contents | (ParseArrays() if encoding == "array" else ResizeImages(self._image_options))


def _open_tables(options: ConvertOptions, classes: frozenset[str] | None) -> tables.Tables:
    features = options.feature_columns
    if features is None:
        features = {} if options.uri_column else {tables.ALL: ""}
    opened = tables.open_tables(
        options.table,
        uri=options.uri_column,
        key=options.key_column,
        label=options.label_column,
        split=options.split_column,
        group=options.group_column,
        label_separator=options.label_separator,
        image_root=options.image_root,
        features=features,
        reserved=(*features_of({"encoding": options.encoding}, labelled=True), *DICT_NAMES),
        splits=options.splits,
        classes=classes,
    )
    written = [storage.join(options.output, name) for name in (MANIFEST_FILE, REJECTS_FILE)]
    if found := [path for path in opened.files if path in written]:
        raise UsageError(f"--table {found[0]}: is what the conversion writes; choose another --output")
    return opened


def _check_apart(options: ConvertOptions, patterns: Sequence[str], exclude: re.Pattern[str] | None) -> None:
    """
    Raises:
        UsageError: a pattern matches what the conversion itself writes, which it would then read as images.
    """
    written = [MANIFEST_FILE, file_name(options.name, shard_name("train", 0, 1), options.suffix)]
    paths = [storage.work_path(options.output, "lock"), *(storage.join(options.output, name) for name in written)]
    paths = [path for path in paths if exclude is None or not exclude.fullmatch(path)]
    for pattern in filter(inputs.has_wildcard, patterns):
        if options.save_plan and inputs.to_regex(pattern).fullmatch(options.save_plan):
            raise UsageError(
                f"--save_plan {options.save_plan}: --input {pattern} matches it; choose a file that is no image"
            )
        if any(inputs.to_regex(pattern).fullmatch(path) for path in paths):
            raise UsageError(
                f"--output {options.output}: --input {pattern} matches the files in it; choose a folder outside, or a "
                "pattern that says more, such as **/*.jpg, or leave them out with --exclude"
            )


def mean_record_bytes(
    refs: Sequence[ImageRef], *, root: str, ahead: inputs.ReadAhead, image_options: ImageOptions
) -> float:
    """Mean size of the serialized records of a sample; images that are rejects count nothing.

    Raises:
        RunError: an image of the sample cannot be read for a reason that may pass: the plan may not depend on luck.
    """
    if image_options.encoding == "row":
        return _mean([len(examples.build_row(ref)) for ref in refs])
    sizes = []
    for ref, content in zip(refs, ahead.read(inputs.sources(root, refs)), strict=True):
        if isinstance(content, RejectError):
            if content.may_pass:
                raise RunError(f"{root}{ref.key} cannot be read now ({content.detail}); call again")
            continue
        if content is None:
            continue
        try:
            value = _convert(content, image_options)
        except RejectError:
            continue
        sizes.append(len(examples.build_record(image_options.encoding, value, ref).serialized))
    ahead.close()
    return _mean(sizes)


def _convert(content: bytes, options: ImageOptions) -> object:
    if options.encoding == "bytes":
        return content
    return arrays.parse_array(content) if options.encoding == "array" else images.convert_image(content, options)


def _mean(sizes: Sequence[int]) -> float:
    return sum(sizes) / len(sizes) if sizes else 0.0
