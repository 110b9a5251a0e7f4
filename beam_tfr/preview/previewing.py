"""Combines the listing and a sample into a preview of a conversion."""

from __future__ import annotations

import contextlib
import functools
import heapq
from collections.abc import Callable, Sequence

from beam_tfr.console.display import Progress
from beam_tfr.console.terminal import counted
from beam_tfr.dataflow import jobs
from beam_tfr.dataset import manifest
from beam_tfr.inputs.listing import check_there
from beam_tfr.inputs.patterns import exclusion
from beam_tfr.inputs.reading import measure_sample
from beam_tfr.inputs.skipped import Skipped, tell_left_behind
from beam_tfr.launch import prepare
from beam_tfr.layouts.folders import tell_nested
from beam_tfr.layouts.names import Ambiguities
from beam_tfr.options import ConvertOptions, default_threads
from beam_tfr.output import claim, lock
from beam_tfr.pipeline import Convert, make_plan
from beam_tfr.planning.survey import order_key
from beam_tfr.preview.advice import class_warnings, failure_warning
from beam_tfr.preview.estimates import NOISE, Estimate, mean, on_dataflow, share
from beam_tfr.preview.listed import list_references, survey_listing
from beam_tfr.preview.result import WRITES, Preview
from beam_tfr.preview.sampling import convert_sample
from beam_tfr.schema import BeamTfrError, DataError, Plan, UsageError, diff, whole_number
from beam_tfr.schema.features import things
from beam_tfr.tables.rows import Tables


def preview(
    options: ConvertOptions,
    beam_flags: Sequence[str] = (),
    *,
    check_output: bool = True,
    sample_size: int,
    workers: int,
    progress: Callable[[Progress], object] = lambda _: None,
) -> Preview:
    """Checks the call as `convert` does, lists the input, converts a sample, and estimates the rest; writes nothing.

    Args:
        options: options of the conversion.
        beam_flags: Beam's own options, as on a command line.
        check_output: whether to check what the output holds.
        sample_size: images to convert.
        workers: number of workers of a Dataflow job.
        progress: called while files are listed, the sample is converted, and the speed is measured.

    Raises:
        UsageError: the call is wrong, the input cannot be listed, or the output holds another dataset.
        DataError: a table is damaged, or no image of the sample can be converted.
        RunError: no file of the sample can be read now.
    """
    for name, value in {"sample_size": sample_size, "workers": workers}.items():
        try:
            whole_number(value, 1)
        except ValueError as error:
            raise UsageError(str(error), option=name, value=value) from None
    progress(Progress("listing", 0))
    beam_options, _, source = prepare(options, beam_flags)
    for pattern in source.input:
        check_there(pattern)
    skipped = Skipped(source.input, exclusion(source.exclude, source.root))
    ambiguous = Ambiguities(source.layout)
    refs = list_references(options, source, skipped, ambiguous)
    if options.limit is not None:
        refs = iter(heapq.nsmallest(options.limit, refs, key=lambda ref: order_key(options.seed, ref.key)))
    listed = survey_listing(refs, seed=options.seed, sample_size=sample_size, progress=progress)
    if not options.layout:
        listed.survey.folders.check(options.splits)
    listed.skipped, listed.left_behind = skipped.counts["skipped"], skipped.counts["left_behind"]
    step = Convert(options, source, run_id="")
    measured = measure_sample(
        listed.survey.sample_refs(),
        root=step.read.root,
        ahead=step.read.ahead,
        steps=[part.fn for part in step.make],
    )
    plan = make_plan(listed.survey, measured.record_bytes, source.plan)
    outcome, converts = WRITES, True
    if check_output:
        job_state = functools.partial(jobs.job_state, beam_options)
        outcome, converts = _predict_outcome(options, plan, job_state=job_state)
    usable = plan.matched - listed.reasons.total()
    sampled = convert_sample(listed.sample, step, of=usable, progress=progress)
    if not sampled.record_bytes:
        reason, example = next(iter((sampled.details or listed.details).items()))
        raise DataError(f"no file of the sample can be converted: {reason}, such as {example}")
    rejects = {reason: Estimate(*[float(n)] * 3) for reason, n in sorted(listed.reasons.items())}
    for reason, number in sorted(sampled.reasons.items()):
        rejects[reason] = share(number, sampled.tried, of=usable).times(usable)
    written = share(len(sampled.record_bytes), sampled.tried, of=usable).value * usable
    num_bytes = mean(sampled.record_bytes, of=usable).times(written * sampled.packed)
    seconds = cpu_s = dataflow = None
    if speed := sampled.speed:
        # The sample says how much the images differ; the speed of many at once, what one costs on all cores.
        cpu_s = mean(sampled.cpu_s, of=usable, noise=NOISE)
        cpu_s = cpu_s.times(usable * speed.image_cpu_s / cpu_s.value)
        image_s = max(speed.image_s, sampled.read_s / default_threads())
        seconds = cpu_s.times(usable * image_s / cpu_s.value, speed.ends_s)
        dataflow = on_dataflow(cpu_s, images=usable, workers=workers)
    warnings = [*source.origin.warnings] if isinstance(source.origin, Tables) else []
    if listed.left_behind:
        warnings.append(tell_left_behind(listed.left_behind, source.root))
    warnings += [
        *ambiguous.tell(),
        *tell_nested(listed.survey.folders.nested()),
        *class_warnings(plan),
    ]
    failure = failure_warning(options.max_rejects, rejects, of=plan.matched, what=things(options.encoding))
    progress(Progress("planned", plan.matched, plan.matched))
    return Preview(
        plan=plan,
        found=listed,
        sampled=sampled,
        num_bytes=num_bytes,
        rejects=rejects,
        seconds=seconds,
        cpu_seconds=cpu_s,
        dataflow=dataflow,
        outcome=outcome,
        failure=failure if converts else "",
        warnings=warnings,
    )


def _predict_outcome(options: ConvertOptions, plan: Plan, *, job_state: lock.JobState) -> tuple[str, bool]:
    """What `convert` would do with the output, and whether it would convert images.

    Raises:
        UsageError, DataError, RunError: it would refuse the output.
    """
    output = options.output
    lock.check(output, job_state=job_state)
    found, outcome, ids = claim.look(output, plan, overwrite=options.overwrite), WRITES, ""
    if found.complete:
        return f"writes nothing: {output} holds this dataset already", False
    claim.check_room(output, plan)
    if found.resumes and (done := claim.read_progress(output)):
        outcome = f"resumes an earlier run, which has finished {done.shards} of {counted(done.num_shards, 'shard')}"
    if found.replaces:
        outcome += f" and replaces the one in {output}"
        with contextlib.suppress(BeamTfrError):
            ids = diff.describe_ids(manifest.read(output).class_names, plan.labels or ())
    return f"{outcome}{ids and f'; class ids: {ids}'}", True
