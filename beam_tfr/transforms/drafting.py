"""Drafts the plan of a conversion or a repair, on the worker that plans the shards."""

import dataclasses
import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from beam_tfr.dataset.base import BaseDataset, read_unchanged_manifest
from beam_tfr.inputs.labels import Labeler
from beam_tfr.inputs.listing import list_names
from beam_tfr.inputs.measuring import SampleSize, measure_sample
from beam_tfr.inputs.parquet import is_in_parquet
from beam_tfr.inputs.png_kinds import find_kind
from beam_tfr.layouts.class_folders import describe_last_folders, find_deep_folders
from beam_tfr.layouts.folders import check_split_folders
from beam_tfr.layouts.ignored_splits import describe_ignored_split
from beam_tfr.layouts.mask_folders import find_mask_folders
from beam_tfr.layouts.pair_folders import find_pair_folders
from beam_tfr.layouts.parsing import Layout
from beam_tfr.output import attempts, codec_versions
from beam_tfr.output.known_records import KnownRecords
from beam_tfr.planning import drafts
from beam_tfr.planning.drafts import PlanSettings
from beam_tfr.planning.survey import Survey
from beam_tfr.records.shard_file import gzip_level
from beam_tfr.schema.errors import DataError
from beam_tfr.schema.items import ImageRef
from beam_tfr.schema.plan import Plan
from beam_tfr.tables.rows import Tables
from beam_tfr.transforms.counting import count
from beam_tfr.transforms.reading import ReadImages


def make_plan(survey: Survey, record_bytes: float, settings: PlanSettings) -> Plan:
    """Makes the plan of a conversion, without its cuts.

    Args:
        survey: a survey of all references.
        record_bytes: mean size of a record, from the sample.
        settings: `Input.plan`.
    """
    options = settings.options
    codecs = codec_versions.used_versions(options)
    plan = drafts.draft_plan(survey, record_bytes, settings, codecs=codecs)
    sizes = [ref.size_bytes for ref in survey.sample_refs() if is_in_parquet(ref.place)]
    num_bytes = plan.matched * sum(sizes) // max(1, len(sizes))  # of copies in the work folder
    level = gzip_level(options["compression"], options["gzip_level"], options["encoding"])
    if not level:  # otherwise the size of the shards is unknown
        num_bytes += round(plan.matched * (record_bytes + drafts.FRAME_BYTES))
    return dataclasses.replace(plan, num_bytes=num_bytes)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DraftFromSample:
    """Drafts the plan of a conversion from the survey and a sample, on a worker.

    Does not hold all options, since a job must not contain local paths.

    Attributes:
        settings: settings of the plan.
        origin: origin of the input; see `Input`.
        layout: how labels and splits are read from paths.
        shares_option: the option that specifies the fractions of splits, or an empty string.
        has_default_layout: whether the option `layout` was omitted.
        read: the step that reads files.
        functions: the functions that turn the content of a file into its record.
        guarded_functions: the functions that do so for files with which earlier attempts crashed.
        settles_copies: whether the images of a dataset keep the digest of the dataset's input: once
            copies are settled, the references to the images are no longer those of the input.
    """

    settings: PlanSettings
    origin: Tables | Labeler | BaseDataset
    layout: Layout
    shares_option: str
    has_default_layout: bool
    read: ReadImages
    functions: Sequence[Callable[[Any, ImageRef], Any]]
    guarded_functions: Sequence[Callable[[Any, ImageRef], Any]]
    settles_copies: bool

    def __call__(self, survey: Survey) -> Plan:
        self._count_doubts(survey)
        record_bytes, is_complete = self._measure_records(survey.sample_refs())
        plan = make_plan(survey, record_bytes, self.settings)
        if self.read.base:
            self.read.base.check_codecs(plan.codecs)
        return dataclasses.replace(
            plan,
            input_digest=self._find_input_digest(plan),
            provisional=not (is_complete or self.read.accept_unreadable),
        )

    def _count_doubts(self, survey: Survey) -> None:
        """Counts the images in folders whose names may have another meaning.

        Raises:
            UsageError: see `check_split_folders`.
        """
        names_in = functools.partial(list_names, self.read.root)
        kind_of = functools.partial(find_kind, self.read.root)
        if self.has_default_layout and isinstance(self.origin, Labeler):
            keys = [ref.key for ref in survey.sample_refs()]
            check_split_folders(survey.folders, self.shares_option, keys, names_in, kind_of)
            _count_doubtful_classes(survey.folders, self.origin.all_splits)
        if find_mask_folders(survey.folders, names_in, kind_of):
            count("mask-folders", survey.folders.total())
        elif find_pair_folders(survey.folders, names_in):
            count("pair-folders", survey.folders.total())
        if isinstance(self.origin, Tables):
            ignored_splits = self.origin.find_ignored_splits(survey.split_folders)
            count("split-folders", sum(ignored_splits.values()))
        for folder in find_deep_folders(survey.folders, self.layout):
            count("nested", folder.images)

    def _find_input_digest(self, plan: Plan) -> str:
        """Finds the digest of the input: of the references, or of the dataset that they are in."""
        if self.settles_copies and isinstance(self.origin, BaseDataset):
            dataset = self.origin.read_manifest()
            if plan.matched == dataset.counts["matched"]:  # no image was taken down
                return str(dataset.fields["input_digest"])
        return plan.input_digest

    def _measure_records(self, refs: Sequence[ImageRef]) -> SampleSize:
        """Measures the mean size of the records of a sample.

        Also returns whether all files of the sample could be read.
        """
        sizes: Mapping[str, int | None] = {}
        if isinstance(self.origin, BaseDataset):
            keys = [ref.key for ref in refs]
            sizes = KnownRecords(self.origin).find_sizes(keys)
        with attempts.mark_attempt(self.read.mark_path(attempts.SAMPLE_MARK)) as crashed:
            return measure_sample(
                refs,
                root=self.read.root,
                ahead=self.read.ahead,
                steps=self.guarded_functions if crashed else self.functions,
                known_sizes=sizes,
            )


def _count_doubtful_classes(folders: Mapping[str, int], splits: Collection[str]) -> None:
    """Counts the images in folders that the default layout may misinterpret."""
    images = sum(folders.values())
    if describe_last_folders(folders):
        count("last-folders", images)
    if describe_ignored_split(folders, splits):
        count("ignored-split", images)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DraftAgain:
    """Drafts the plan of an existing dataset again, on a worker.

    Attributes:
        folder: folder of the dataset.
        manifest_digest: digest of the manifest of the dataset to repair.
        input_digest: digest of the input that the dataset was made from.
        digest_differs: whether rows of the input are in other splits, so that only numbers of
            images are compared.
        matched: split -> number of images.
        options: options of the dataset.
        settings: settings of the plan, with the number of shards of each split.
    """

    folder: str
    manifest_digest: str
    input_digest: str
    digest_differs: bool
    matched: Mapping[str, int]
    options: dict[str, Any]
    settings: PlanSettings

    def __call__(self, survey: Survey) -> Plan:
        # The manifest is checked again, because the run holds the folder only from here on.
        read_unchanged_manifest(self.folder, self.manifest_digest)
        if not self._is_same_input(survey):
            raise DataError(
                "the input has changed since the dataset was made: keys or sizes differ "
                f"({survey.counts.total():,} keys now). `beam-tfr verify` with `sources=` names "
                "the changes. Undo them, or run `beam-tfr update`; if shards are damaged, write "
                "the dataset again with `beam-tfr convert` and `overwrite=`"
            )
        codecs = codec_versions.used_versions(self.options)
        plan = drafts.draft_plan(survey, 0.0, self.settings, codecs=codecs)
        return dataclasses.replace(plan, options=self.options)

    def _is_same_input(self, survey: Survey) -> bool:
        """Whether a survey matches the images that the dataset was made from."""
        if self.digest_differs:
            return survey.counts == self.matched
        return f"{survey.digest:064x}" == self.input_digest
