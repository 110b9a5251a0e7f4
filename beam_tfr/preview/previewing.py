"""Combines the listing and a sample into a preview of a conversion."""

import contextlib
import functools
import heapq
from collections.abc import Callable, Sequence

from beam_tfr.console.display import Progress, duration
from beam_tfr.console.terminal import counted
from beam_tfr.dataflow import jobs
from beam_tfr.dataset.manifest import read_manifest
from beam_tfr.dataset.reader_arguments import check_integer
from beam_tfr.inputs.measuring import measure_sample
from beam_tfr.inputs.patterns import compile_exclusion
from beam_tfr.inputs.skipped import SkippedFiles, describe_missed
from beam_tfr.launch import prepare_run
from beam_tfr.layouts.folders import (
    check_split_folders,
    describe_nested_classes,
    find_nested_classes,
)
from beam_tfr.options import ConvertOptions, default_threads
from beam_tfr.output import claim, lock
from beam_tfr.output.rejects import describe_excess
from beam_tfr.pipeline import Convert, make_plan
from beam_tfr.planning.survey import SAMPLE_IMAGES, Survey, order_key
from beam_tfr.preview.result import Preview
from beam_tfr.preview.sampling import convert_sample, known_files, list_references, survey_listing
from beam_tfr.records import box_counts
from beam_tfr.schema import differences
from beam_tfr.schema.encodings import IMAGE_ENCODINGS
from beam_tfr.schema.errors import BeamTfrError, DataError, UsageError
from beam_tfr.schema.plan import Plan
from beam_tfr.tables.rows import Tables

MOST_DROPPED = 0.05  # share of boxes that may be dropped without a warning
WRITES = "writes the dataset"
# CPU time of the same work while all cores, which often are hyperthreads, are busy, relative to one
BUSY = 1.15
OVERHEAD_S = (
    0.0005  # CPU time of an image outside of its conversion: in the engine, and to write its record
)
COPY_S = 0.00015  # CPU time of an image that an update lists and copies
START_S = 0.6  # of a conversion on this machine, until it converts, and at its end


def preview(
    options: ConvertOptions,
    beam_flags: Sequence[str] = (),
    *,
    check_output: bool = True,
    sample_size: int,
    progress: Callable[[Progress], object] = lambda _: None,
) -> Preview:
    """Checks the call as `convert` does, lists the input, converts a sample, and estimates the
    rest; writes nothing.

    Args:
        options: options of the conversion.
        beam_flags: Beam's own options, as on a command line.
        check_output: whether to check what the output holds.
        sample_size: images to convert.
        progress: called while files are listed and the sample is converted.

    Raises:
        UsageError: the call is wrong, the input cannot be listed, or the output holds another
            dataset.
        DataError: a table is damaged, or no image of the sample can be converted.
        RunError: no file of the sample can be read now.
    """
    check_integer("sample_size", sample_size, 1)
    progress(Progress("listing", 0))
    beam_options, _, source = prepare_run(options, beam_flags)
    skipped = SkippedFiles(source.input, compile_exclusion(source.exclude, source.root))
    known = known_files(options.output) if check_output else set()
    refs = list_references(options, source, skipped)
    if options.limit is not None:
        refs = iter(
            heapq.nsmallest(options.limit, refs, key=lambda ref: order_key(options.seed, ref.key))
        )
    survey = Survey(options.seed, max(sample_size, SAMPLE_IMAGES))
    listed = survey_listing(refs, survey, known, progress)
    if not options.layout:
        check_split_folders(survey.folders, options.splits)
    listed.skipped = skipped.kinds
    step = Convert(options, source, run_id="")
    sample = survey.sample_refs()
    sampled = convert_sample(sample[:sample_size], step, progress=progress)
    record_bytes, _ = measure_sample(
        sample[:SAMPLE_IMAGES],
        root=step.read.root,
        ahead=step.read.ahead,
        steps=step.record_functions(),
        known=sampled.sizes,
    )
    plan = make_plan(survey, record_bytes, source.plan)

    def cpu_seconds(images: int) -> float:
        return images * (sampled.cpu_s / max(sampled.written, 1) * BUSY + OVERHEAD_S)

    outcome = WRITES
    converts = True
    if check_output:
        job_state = functools.partial(jobs.job_state, beam_options)
        try:
            outcome, converts = _predict_outcome(options, plan, job_state=job_state)
        except UsageError as error:
            if not known:
                raise
            others = plan.matched - listed.known
            cpu_s = START_S + cpu_seconds(others) + COPY_S * listed.known
            gone = len(known) - listed.known
            would = f"add {others:,} that are new or seem changed, drop {gone:,}, and copy {listed.known:,}"
            raise UsageError(
                f"{error}: it would {would}, in about {duration(cpu_s)} of CPU time"
            ) from None
    if not sampled.written:
        reason, example = next(iter((sampled.details or listed.details).items()))
        raise DataError(f"no file of the sample can be converted: {reason}, such as {example}")
    usable = plan.matched - listed.reasons.total()
    rejects: dict[str, float] = dict(sorted(listed.reasons.items()))
    for reason, number in sorted(sampled.reasons.items()):
        rejects[reason] = rejects.get(reason, 0) + number * usable / sampled.tried
    cpu_s = cpu_seconds(usable)
    seconds = START_S + max(cpu_s, usable * sampled.read_s) / default_threads()
    is_timed = options.encoding in IMAGE_ENCODINGS
    warnings = [*source.origin.warnings] if isinstance(source.origin, Tables) else []
    ambiguity = source.layout.describe_ambiguity({ref.key for ref in sample})
    nested = describe_nested_classes(find_nested_classes(survey.folders, source.layout))
    warnings += filter(None, [describe_missed(listed.skipped, source.root), ambiguity, nested])
    share = box_counts.dropped_share(sampled.boxes) if sampled.adjusted["boxes-dropped"] else 0
    if share > MOST_DROPPED and options.resize == "crop":
        warnings.append(
            f"{share:.0%} of the boxes in the sample are dropped; `resize=pad` keeps those that crops drop"
        )
    problem = describe_excess(rejects, options.max_rejects, plan) if converts else ""
    progress(Progress("planned", plan.matched, plan.matched))
    return Preview(
        plan=plan,
        found=listed,
        sampled=sampled,
        num_bytes=sampled.num_bytes / sampled.tried * usable,
        rejects=rejects,
        seconds=seconds if is_timed else None,
        cpu_seconds=cpu_s if is_timed else None,
        outcome=outcome,
        failure=problem and f"convert would fail: {problem}",
        warnings=warnings,
    )


def _predict_outcome(
    options: ConvertOptions, plan: Plan, *, job_state: lock.JobState
) -> tuple[str, bool]:
    """What `convert` would do with the output, and whether it would convert images.

    Raises:
        UsageError, DataError, RunError: it would refuse the output.
    """
    output = options.output
    lock.check_lockable(output, job_state=job_state)
    found = claim.inspect_output(output, plan, overwrite=options.overwrite)
    outcome = WRITES
    ids = ""
    if found.complete:
        return f"writes nothing: {output} holds this dataset already", False
    claim.check_room(output, plan)
    if found.resumes and (done := claim.read_progress(output)):
        outcome = f"resumes an earlier run, which has finished {done.shards} of {counted(done.num_shards, 'shard')}"
    if found.replaces:
        outcome += f" and replaces the one in {output}"
        with contextlib.suppress(BeamTfrError):
            ids = differences.describe_id_changes(
                read_manifest(output).class_names, plan.labels or ()
            )
    return f"{outcome}{ids and f'; class ids: {ids}'}", True
