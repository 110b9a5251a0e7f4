"""Combines the listing and a sample into a preview of a conversion."""

import collections
import contextlib
import functools
import heapq
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from beam_tfr.console.display import Progress, duration
from beam_tfr.console.terminal import as_message, counted
from beam_tfr.copies.summary import describe_sample
from beam_tfr.dataflow import jobs
from beam_tfr.dataset.class_numbers import describe_class_numbers
from beam_tfr.dataset.groups import LargestGroup
from beam_tfr.dataset.manifest import read_manifest
from beam_tfr.dataset.read_items import MOST_ITEMS, ReadItem, build_item
from beam_tfr.dataset.reader_arguments import check_integer
from beam_tfr.dataset.share_notes import describe_shares
from beam_tfr.dataset.split_notes import (
    SourceHashes,
    describe_classes,
    describe_contradiction,
    describe_overlap,
    encode_label,
    find_contradiction,
    find_overlaps,
)
from beam_tfr.dataset.taken_down import Removed, read_removed
from beam_tfr.dataset.unused_names import describe_unused_allowances, describe_unused_renames
from beam_tfr.features.box_counts import dropped_share
from beam_tfr.features.features_dict import FeaturesDict
from beam_tfr.first_look import (
    FirstLook,
    check_folders,
    describe_copies,
    describe_folders,
    describe_labels,
    describe_lists,
    describe_pairs_in_folders,
    describe_strays,
)
from beam_tfr.inputs.measuring import measure_sample
from beam_tfr.inputs.patterns import describe_unused
from beam_tfr.inputs.skipped import describe_missed
from beam_tfr.launch import prepare_run
from beam_tfr.launch.bounds import bounded_look, list_given
from beam_tfr.launch.examples import name_files
from beam_tfr.layouts.class_folders import (
    describe_deep_folders,
    describe_no_classes,
    describe_only_class,
    find_deep_folders,
)
from beam_tfr.layouts.class_names import describe_class_names
from beam_tfr.layouts.mask_names import MaskNames
from beam_tfr.options import ConvertOptions
from beam_tfr.options.run import UpdateOptions
from beam_tfr.output import claim, lock
from beam_tfr.output.drop_limit import DropLimit
from beam_tfr.output.lock_holder import JobState
from beam_tfr.output.rejects import describe_excess
from beam_tfr.pipeline import Convert
from beam_tfr.planning import dividing
from beam_tfr.planning.survey import SAMPLE_IMAGES, Survey, order_key
from beam_tfr.preview.estimate import Estimate
from beam_tfr.preview.result import Preview
from beam_tfr.preview.sampling import (
    ConvertedSample,
    KnownFiles,
    Listing,
    RemovedImages,
    convert_sample,
    hash_known_files,
    list_references,
    survey_listing,
)
from beam_tfr.records.examples import parse_example
from beam_tfr.records.repeats import RepeatedKeys
from beam_tfr.schema import differences
from beam_tfr.schema.dataset import sort_splits
from beam_tfr.schema.encoded_ref import GROUP_MARK
from beam_tfr.schema.encodings import IMAGE_ENCODINGS, noun_of
from beam_tfr.schema.errors import BeamTfrError, DataError, RunError, UsageError
from beam_tfr.schema.items import ImageRef
from beam_tfr.schema.palettes import describe_palettes
from beam_tfr.schema.plan import Plan
from beam_tfr.sources import Input
from beam_tfr.tables.places import describe_ignored_splits
from beam_tfr.tables.repeats import REPEATED_NOTE, RowKeys, check_repeats
from beam_tfr.tables.rows import Tables
from beam_tfr.transforms.drafting import make_plan

_NO_KEYS: RepeatedKeys = {}
MOST_DROPPED = 0.05  # fraction of boxes that may be dropped without a warning


class _Outcome(NamedTuple):
    """The effect that `convert` would have on the output.

    Attributes:
        text: the effect in words, beginning with a verb.
        converts: whether `convert` would convert images.
    """

    text: str = "writes the dataset"
    converts: bool = True


def preview(
    options: ConvertOptions,
    beam_flags: Sequence[str] = (),
    *,
    check_output: bool = True,
    sample_size: int,
    progress: Callable[[Progress], object] = lambda _: None,
) -> Preview:
    """Previews a conversion: lists the input, converts a sample, and estimates the rest.

    The call is checked as by `convert`; nothing is written.

    Args:
        options: options of the conversion.
        beam_flags: Beam's own options, as on a command line.
        check_output: whether to check the contents of the output folder.
        sample_size: number of images to convert.
        progress: called while files are listed and the sample is converted.

    Raises:
        UsageError: the call is wrong, the input cannot be listed, or the output folder holds
            another dataset.
        DataError: a table is damaged, or no image in the sample can be converted.
        RunError: no file in the sample can be read now.
    """
    check_integer("sample_size", sample_size, 1)
    progress(Progress("listing", 0))
    beam_options, _, source = prepare_run(options, beam_flags)
    known_files = hash_known_files(options.output) if check_output else KnownFiles()
    gives_splits = not options.stratify
    survey = Survey(options.seed, max(sample_size, SAMPLE_IMAGES), gives_splits)
    removed = read_removed(options.output) if check_output else Removed()
    list_input = functools.partial(
        _list_input,
        options,
        source,
        known_files=known_files,
        removed=removed,
        progress=progress,
    )
    listing = list_input(survey)
    repeated = listing.row_keys.find_repeated()
    if repeated and isinstance(source.origin, Tables):
        check_repeats(source.origin, repeated)
        survey = Survey(options.seed, survey.sample_size, gives_splits)
        listing = list_input(survey, repeated)
    step = Convert(options, source, removed=removed)
    sample = convert_sample(survey.sample_refs()[:sample_size], step, progress=progress)
    plan = _make_plan(survey, step, sample, listing)
    estimate = Estimate(plan, listing, sample)
    outcome = _Outcome()
    if check_output:
        job_state = functools.partial(jobs.read_job_state, beam_options)
        outcome = _predict_outcome(options, estimate, known_files, job_state=job_state)
    if not sample.written:
        raise _nothing_converted(source, listing, sample)
    failure = ""
    excess = describe_excess(estimate.rejects, options.max_rejects, plan)
    if excess and outcome.converts:
        failure = f"convert would fail: {excess}"
    progress(Progress("planned", plan.matched, plan.matched))
    seconds = cpu_seconds = None
    if source.encoding in IMAGE_ENCODINGS:
        seconds = estimate.seconds
        cpu_seconds = estimate.cpu_seconds
    with bounded_look(list_given(options)):
        texts = [
            *_find_warnings(options, source, survey, listing, sample),
            *_describe_splits(plan, sample, listing),
            *_describe_class_options(options, source, plan, listing),
        ]
    return Preview(
        plan=plan,
        listing=listing,
        sample=sample,
        examples=[*_describe_first(source, plan, sample)],
        num_bytes=estimate.num_bytes,
        rejects=estimate.rejects,
        seconds=seconds,
        cpu_seconds=cpu_seconds,
        outcome=outcome.text,
        failure=failure,
        warnings=[*map(as_message, texts)],
    )


def _list_input(
    options: ConvertOptions,
    source: Input,
    survey: Survey,
    repeated: RepeatedKeys = _NO_KEYS,
    *,
    known_files: KnownFiles,
    removed: Removed,
    progress: Callable[[Progress], object],
) -> Listing:
    """Lists the input, and surveys the references to the images that are to be converted.

    Args:
        survey: the survey to add the references to.
        repeated: keys shared by several table rows; such rows are merged.
        known_files: the files that the dataset in the output was made from.
        removed: the images that were removed earlier and are kept out.
    """
    skipped = source.count_skipped()
    masks = MaskNames()
    row_keys = RowKeys()
    refs = list_references(options, source, skipped, masks, row_keys, repeated)
    removed_images = RemovedImages(removed.keys)
    if removed.keys:
        refs = removed_images.leave_out(refs)
    if options.limit is not None:
        order_of = functools.partial(_order_of, seed=options.seed)
        refs = iter(heapq.nsmallest(options.limit, refs, key=order_of))
    renamed = set[str]()
    if source.renames:
        refs = (_rename_classes(ref, source.renames, renamed) for ref in refs)
    groups = collections.Counter[str]()
    if options.stratify:
        refs = _choose_splits(refs, options, groups)
    listing = survey_listing(refs, survey, known_files, progress)
    listing.largest_group = LargestGroup.of(groups)
    listing.skipped = skipped.kinds
    listing.annotations = skipped.annotations
    listing.repeats = skipped.repeats
    listing.guessed_names = skipped.guessed_names
    listing.packed_labels = skipped.packed_labels
    listing.empty = skipped.empty
    listing.used_exclusions = skipped.used_exclusions
    listing.masks = masks
    listing.num_removed = removed_images.number
    listing.row_keys = row_keys
    listing.renamed = renamed
    listing.num_repeated_keys = len(repeated)
    unused = describe_unused(options.exclude, skipped.used_exclusions, source.root)
    look = FirstLook(source)
    labels = describe_labels(look, skipped.annotations)
    marked = masks.describe(in_archives=source.has_archives, given_pairs=source.pairs)
    marked = marked or describe_pairs_in_folders(look)
    check_folders(
        source,
        survey.folders,
        [ref.key for ref in survey.sample_refs()],
        shares_option=options.shares_option,
        notes=filter(None, itertools.chain(unused, labels, [marked, describe_copies(look)])),
    )
    return listing


def _rename_classes(ref: ImageRef, renames: Mapping[str, str], renamed: set[str]) -> ImageRef:
    """Returns the reference with its classes renamed, and records which classes these were."""
    renamed.update(renames.keys() & ref.labels)
    return ref._replace(labels=tuple(renames.get(label, label) for label in ref.labels))


def _choose_splits(
    refs: Iterable[ImageRef], options: ConvertOptions, groups: collections.Counter[str]
) -> Iterator[ImageRef]:
    """Returns the references with the splits that a conversion would choose; counts groups."""
    encoded = (ref.encode() for ref in _count_groups(refs, groups))
    placed = dividing.choose_splits(encoded, options.shares, options.seed)
    return map(ImageRef.decode, placed)


def _count_groups(refs: Iterable[ImageRef], groups: collections.Counter[str]) -> Iterator[ImageRef]:
    for ref in refs:
        _, _, group = ref.split.partition(GROUP_MARK)
        if group:
            groups[group] += 1
        yield ref


def _order_of(ref: ImageRef, seed: int) -> bytes:
    return order_key(seed, ref.key)


def _make_plan(survey: Survey, step: Convert, sample: ConvertedSample, listing: Listing) -> Plan:
    """Builds the plan that a conversion would build from its sample.

    Images in the plan's sample are measured here only if the converted `sample` lacks them.

    Raises:
        RunError, UsageError: the plan cannot be built; the message also mentions missing images
            and, if no file matches the layout, labels next to the images.
    """
    try:
        record_bytes, _ = measure_sample(
            survey.sample_refs()[:SAMPLE_IMAGES],
            root=step.read.root,
            ahead=step.read.ahead,
            steps=step.record_functions(),
            known_sizes=sample.sizes,
        )
        return make_plan(survey, record_bytes, step.source.plan)
    except (RunError, UsageError) as error:
        notes = [step.source.missing]
        if not sample.tried:
            notes += describe_labels(FirstLook(step.source), listing.annotations)
        raise type(error)("; ".join([str(error), *filter(None, notes)])) from None


def _nothing_converted(source: Input, listing: Listing, sample: ConvertedSample) -> DataError:
    """Builds the error for a sample in which no file can be converted."""
    details = sample.details or listing.details
    reason, example = next(iter(details.items()))
    problem = f"no file in the sample can be converted: {reason}, such as {example}"
    return DataError("; ".join(filter(None, [problem, *source.notes, source.missing])))


def _predict_outcome(
    options: ConvertOptions, estimate: Estimate, known_files: KnownFiles, *, job_state: JobState
) -> _Outcome:
    """Predicts what `convert` would do with the output.

    Args:
        known_files: the files that the dataset in the output was made from.
        job_state: function that asks the service for the state of a job.

    Raises:
        UsageError, DataError, RunError: `convert` would refuse the output; the message says what an
            update of the existing dataset would do.
    """
    try:
        return _inspect_output(options, estimate.plan, job_state=job_state)
    except UsageError as error:
        if known_files.refs:
            update = _describe_update(options, estimate, known_files)
            *lines, last = error.args
            raise UsageError(*lines, f"{last}: {update}") from None
        raise


def _inspect_output(options: ConvertOptions, plan: Plan, *, job_state: JobState) -> _Outcome:
    """Returns what `convert` would do with the output; raises the same errors as `convert`."""
    output = options.output
    lock.check_lockable(output, job_state=job_state)
    state = claim.inspect_output(output, plan, overwrite=options.overwrite)
    if state.complete:
        return _Outcome(f"writes nothing: {output} already holds this dataset", converts=False)
    claim.check_room(output, plan)
    text = _Outcome().text
    finished = claim.read_progress(output) if state.resumes else None
    if finished:
        shards = counted(finished.num_shards, "shard")
        text = f"resumes an earlier run, which has finished {finished.shards} of {shards}"
    if state.replaces:
        text += f" and replaces the one in {output}"
        with contextlib.suppress(BeamTfrError):
            replaced = read_manifest(output)
            changes = differences.describe_id_changes(replaced.class_names, plan.labels or ())
            if changes:
                text += f"; class ids: {changes}"
            images = {name: split.num_examples for name, split in replaced.splits.items()}
            lost = differences.describe_lost_splits(images, plan.splits)
            if lost:
                text += f"; {lost}"
    return _Outcome(text)


def _describe_update(options: ConvertOptions, estimate: Estimate, known_files: KnownFiles) -> str:
    """Describes what an update of the dataset in the output would do, and whether it would fail."""
    num_known = len(known_files.refs)
    num_records = len(known_files.keys)
    max_removed = UpdateOptions().max_removed
    drop_limit = DropLimit(options.output, num_records, max_removed, options.limit)
    dropped = num_records - estimate.listing.num_kept
    excess = drop_limit.describe_excess(dropped, estimate.plan)
    failure = f"; but it would fail: {excess}" if excess else ""
    copied = estimate.listing.num_known
    added = estimate.plan.matched - copied
    return (
        f"it would add {added:,} that are new or seem changed, drop {num_known - copied:,}, and "
        f"copy {copied:,}, in about {duration(estimate.update_cpu_seconds)} of CPU time"
        f"{failure}"
    )


def _describe_first(source: Input, plan: Plan, sample: ConvertedSample) -> Iterator[ReadItem]:
    """Yields, for each of the first splits, the first item in the sample."""
    features = FeaturesDict.from_options(plan.options, labelled=plan.labels is not None)
    for split in sort_splits(sample.first)[:MOST_ITEMS]:
        first = sample.first[split]
        yield build_item(
            parse_example(first.serialized),
            split=split,
            features=features,
            places=source.places,
            files=name_files(first.ref, features, source.root),
            labels=first.ref.labels,
        )


def _find_warnings(
    options: ConvertOptions,
    source: Input,
    survey: Survey,
    listing: Listing,
    sample: ConvertedSample,
) -> Iterator[str]:
    """Yields warnings about problems that are cheap to fix now."""
    yield from source.notes
    if isinstance(source.origin, Tables):
        yield from source.origin.warnings
        ignored_splits = source.origin.find_ignored_splits(survey.split_folders)
        yield from filter(None, [describe_ignored_splits(ignored_splits)])
    if listing.num_repeated_keys:
        yield REPEATED_NOTE.format(number=listing.num_repeated_keys)
    keys = {ref.key for ref in survey.sample_refs()}
    look = FirstLook(source)
    deep = ""
    if not source.has_default_layout:  # otherwise `describe_folders` reports it
        deep_folders = find_deep_folders(survey.folders, source.layout)
        deep = describe_deep_folders(deep_folders, source.layout)
    no_classes = describe_no_classes(keys) if source.has_default_layout else ""
    warnings = (
        describe_missed(listing.skipped, source.root),
        *describe_labels(look, listing.annotations),
        listing.repeats.describe(),
        listing.guessed_names.describe(),
        listing.packed_labels.describe(),
        source.layout.describe_ambiguity(keys),
        deep,
        no_classes,
        describe_palettes(sample.palettes),
        listing.empty.describe(),
        listing.masks.describe(in_archives=source.has_archives, given_pairs=source.pairs)
        or describe_pairs_in_folders(look),
        *describe_folders(source, survey.folders),
        *describe_strays(look),
        describe_copies(look),
        *describe_lists(look),
        *describe_unused(options.exclude, listing.used_exclusions, source.root),
    )
    yield from filter(None, warnings)
    if source.plan.options.get("resize") == "crop" and sample.adjusted["boxes-dropped"]:
        share = dropped_share(sample.boxes)
        if share > MOST_DROPPED:
            yield (
                f"{share:.0%} of the boxes in the sample are dropped; `resize=pad` keeps those "
                "that crops drop"
            )


def _describe_class_options(
    options: ConvertOptions, source: Input, plan: Plan, listing: Listing
) -> Iterator[str]:
    """Yields notes about the classes, and about options that refer to classes."""
    renamed = {*listing.renamed, *source.plan.allowed_classes}
    yield from describe_unused_renames(source.renames, renamed, plan.classes)
    yield from describe_unused_allowances(options.allow_empty, plan.splits, plan.classes)
    class_numbers = describe_class_numbers(plan.classes, are_given=source.plan.gives_classes)
    only_class = describe_only_class(plan.labels or (), str(source.layout))
    yield from filter(None, [class_numbers, only_class])
    layout = plan.options.get("layout", "")
    yield from describe_class_names(plan.labels or (), plan.splits, layout)


def _describe_splits(plan: Plan, sample: ConvertedSample, listing: Listing) -> Iterator[str]:
    """Yields notes about the splits, according to the listing and the sample."""
    encoding = plan.options["encoding"]
    overlaps = find_overlaps(sample.sources)
    for overlap in overlaps[:1]:
        keys = [sample.written_refs[part].key for part, _ in overlap.first]
        yield f"in the sample, {describe_overlap(overlap, keys, noun_of(encoding)[:-1])}"
    contradiction = find_contradiction(_label_sources(plan, sample))
    if contradiction:
        keys = [sample.written_refs[part].key for part, _ in contradiction.first]
        note = describe_contradiction(contradiction.number, keys, noun_of(encoding)[:-1])
        yield f"in the sample, {note}"
    for note in describe_sample(sample.images, noun_of(encoding)[:-1]):
        yield f"in the sample, {note}"
    yield from describe_classes(plan.splits, plan.classes, encoding)
    sizes = {name: split.matched for name, split in plan.splits.items()}
    yield from describe_shares(
        plan.splits,
        plan.classes,
        plan.options,
        sizes=sizes,
        find_largest=lambda: listing.largest_group,
    )


def _label_sources(plan: Plan, sample: ConvertedSample) -> list[SourceHashes]:
    """Returns the sources in the sample with their classes; none unless each has one class."""
    label = FeaturesDict.from_options(plan.options, labelled=plan.labels is not None).label
    if label is None or label.is_list:
        return []
    ids = {name: label_id for label_id, name in enumerate(plan.classes)}
    sources = []
    for ref, source in zip(sample.written_refs, sample.sources, strict=True):
        labels = [ids.get(name, -1) for name in ref.labels]
        sources.append(source._replace(labels=encode_label(labels)))
    return sources
