"""The composition: the drawing of the architecture, in code.

globs ──MatchImages──▶ ImageRef ──PlanShards──▶ (shard, [ImageRef])
    ──ReadImages──▶ Item(bytes) ──ResizeImages──▶ Item(Image) ──BuildExamples──▶ Item(record)
    ──WriteShards──▶ ShardInfo ──WriteManifest──▶ manifest.json
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence

import apache_beam as beam
from apache_beam.pvalue import PBegin, PCollection

from beam_tfr import examples, images, inputs, planning, shards, storage
from beam_tfr.labels import Labeler, parse_layout, read_classes
from beam_tfr.options import ConvertOptions, ImageOptions
from beam_tfr.schema import MANIFEST_FILE, ImageRef, RejectError, RunError, UsageError
from beam_tfr.transforms import (
    BuildExamples,
    MatchImages,
    PlanShards,
    ReadImages,
    ResizeImages,
    WriteManifest,
    WriteShards,
)


class Convert(beam.PTransform):
    """The whole conversion.

    Args:
        options: checked.
        run_id: of this run, unique; the folder's lock is held under it.

    Output: the dataset digest, once the dataset is complete.

    Raises:
        UsageError: --layout or --classes is wrong, or the inputs have nothing in common.
    """

    def __init__(self, options: ConvertOptions, *, run_id: str) -> None:
        super().__init__()
        self.options, self.run_id = options, run_id
        layout = parse_layout(options.layout)
        classes = read_classes(options.classes) if options.classes else None
        patterns = inputs.all_patterns(options.input, options.input_list)
        self._root = inputs.common_root(patterns)
        _check_apart(options, patterns, inputs.exclusion(options.exclude, self._root))
        self._ahead = inputs.ReadAhead(
            options.max_file_bytes, images=options.read_ahead, deadline_s=options.read_deadline_s
        )
        self._labeler = Labeler(layout, options.splits, None if classes is None else frozenset(classes))
        self._image_options = options.image_options()
        self._draft = functools.partial(
            planning.draft_plan,
            name=options.name,
            suffix=options.suffix,
            options=options.data_options(classes),
            labelled=layout.has_labels,
            codecs=images.codec_versions(),
        )
        self._measure = functools.partial(
            mean_record_bytes, root=self._root, ahead=self._ahead, image_options=self._image_options
        )

    def expand(self, begin: PBegin) -> PCollection[str]:
        options = self.options
        level = shards.gzip_level(options.compression, options.gzip_level, options.encoding)
        plan, work = (
            begin
            | MatchImages(
                options.input,
                self._labeler,
                root=self._root,
                input_list=options.input_list,
                exclude=options.exclude,
            )  # ImageRef
            | PlanShards(
                options.output,
                draft=self._draft,
                measure=self._measure,
                seed=options.seed,
                run_id=self.run_id,
                overwrite=options.overwrite,
            )
        )  # Plan, ShardWork(shard, [ImageRef])
        return (
            work
            | ReadImages(self._root, ahead=self._ahead)  # Item(bytes)
            | ResizeImages(self._image_options)  # Item(Image)
            | BuildExamples()  # Item(Record)
            | WriteShards(options.output, name=options.name, suffix=options.suffix, level=level)  # ShardInfo
            | WriteManifest(options.output, plan=plan, run_id=self.run_id, max_rejects=options.max_rejects)
        )


def _check_apart(options: ConvertOptions, patterns: Sequence[str], exclude: re.Pattern[str] | None) -> None:
    """
    Raises:
        UsageError: a pattern matches what the conversion itself writes, which it would then read as images.
    """
    written = [MANIFEST_FILE, f"{options.name}-train-00000-of-00001{options.suffix}"]
    paths = [storage.work_path(options.output, "lock"), *(storage.join(options.output, name) for name in written)]
    paths = [path for path in paths if exclude is None or not exclude.fullmatch(path)]
    for pattern in filter(inputs.has_wildcard, patterns):
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
    sizes = []
    for ref, content in zip(refs, ahead.read(inputs.sources(root, refs)), strict=True):
        if isinstance(content, RejectError):
            if content.may_pass:
                raise RunError(f"{root}{ref.key} cannot be read now ({content.detail}); call again")
            continue
        if content is None:
            continue
        try:
            image = images.convert_image(content, image_options)
        except RejectError:
            continue
        sizes.append(len(examples.build_example(ref, image)))
    ahead.close()
    return sum(sizes) / len(sizes) if sizes else 0.0
