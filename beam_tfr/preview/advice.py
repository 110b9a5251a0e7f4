"""Warns of problems that are cheap to fix before a conversion and expensive after it."""

from __future__ import annotations

import collections
from collections.abc import Iterator, Mapping

from beam_tfr.console.terminal import counted
from beam_tfr.options import ConvertOptions
from beam_tfr.output.rejects import most
from beam_tfr.preview.estimates import DOUBLED_S, FIRST_READS_PER_S, Estimate, ramped_s
from beam_tfr.preview.listed import Listed
from beam_tfr.preview.sampling import Sampled
from beam_tfr.schema import NO_SPLIT, Plan, in_order

MUCH = 0.1  # share of the sample above which a change is worth a warning
IMBALANCE = 10  # times as many images in the largest class as in the smallest
FEW = 10  # images of a class in a split
MAX_NAMED = 5
LONG_S = 600  # of waiting in a job


def advise(options: ConvertOptions, found: Listed, plan: Plan, sampled: Sampled) -> list[str]:
    """Warnings about what the user may not have intended."""
    return [*_of_images(options, sampled), *_of_classes(plan), *_of_files(found, sampled)]


def failure_warning(max_rejects: int | float, rejects: Mapping[str, Estimate], *, of: int, what: str) -> str:
    """Says that a conversion would or may fail for its rejects, and the cure; empty if it is not expected to.

    Args:
        max_rejects: maximum share (float) or number (int) of rejects.
        rejects: reason -> rejects.
        of: total number of images.
        what: plural noun for what is converted.
    """
    total, allowed = Estimate(*map(sum, zip((0, 0, 0), *rejects.values(), strict=True))), most(max_rejects, of=of)
    if total.high <= allowed:
        return ""
    return (
        f"convert {'would' if total.low > allowed else 'may'} fail: {total.text(',.0f')} of {of:,} {what} are rejects, "
        f"`max_rejects={max_rejects}` allows {allowed:,}; fix them, leave them out with `exclude=`, or raise "
        "`max_rejects=`"
    )


def wait_warnings(cpu_s: float, *, images: int, workers: int, vcpus: float) -> Iterator[str]:
    """A warning if a Dataflow job would spend much of its time waiting for a bucket."""
    per_worker = images * vcpus / cpu_s
    per_s = workers * per_worker
    if ramped_s(images, per_s) - images / per_s > LONG_S:
        yield (
            f"{workers:,} Dataflow workers would read {per_s:,.0f} images/s, but a bucket gives about "
            f"{FIRST_READS_PER_S:,}/s at first and twice as many every {DOUBLED_S // 60} minutes, so they would wait, "
            f"as the estimate assumes; {counted(max(1, int(FIRST_READS_PER_S / per_worker)), 'worker')} would not: "
            "`workers=`"
        )


def _of_images(options: ConvertOptions, sampled: Sampled) -> Iterator[str]:
    written = len(sampled.record_bytes)
    height, width = options.image_size
    stretched, enlarged = (sampled.adjusted[name] / written for name in ("aspect-changed", "enlarged"))
    if stretched > MUCH:
        yield (
            f"{stretched:.0%} of the sample would be stretched by more than 1.2: `resize=crop`, pad and shortest "
            "preserve the aspect ratio"
        )
    if enlarged > MUCH:
        size = f"{height}x{width} (height x width)"
        yield f"{enlarged:.0%} of the sample are smaller than {size} and would be enlarged: `image_size=`"


def _of_classes(plan: Plan) -> Iterator[str]:
    splits = {name: plan.splits[name].class_counts for name in in_order(plan.splits) if name != NO_SPLIT}
    classes = {name: {split: counts.get(name, 0) for split, counts in splits.items()} for name in plan.labels or ()}
    few = sorted(
        (name for name, counts in classes.items() if min(counts.values()) < FEW), key=lambda n: min(classes[n].values())
    )
    if few:
        named = [f"{name!r} ({', '.join(f'{s}: {n}' for s, n in classes[name].items() if n < FEW)})" for name in few]
        more = f" and {len(few) - MAX_NAMED:,} more" if len(few) > MAX_NAMED else ""
        yield (
            f"{len(few):,} of {len(classes):,} classes have fewer than {FEW} images in a split: "
            f"{', '.join(named[:MAX_NAMED])}{more}"
        )
    totals = collections.Counter({name: sum(counts.values()) for name, counts in classes.items()}).most_common()
    if len(totals) > 1:
        (largest, most), (smallest, least) = totals[0], totals[-1]
        if most > IMBALANCE * least:
            yield f"imbalance: {most:,} images of {largest!r}, {least:,} of {smallest!r}"


def _of_files(found: Listed, sampled: Sampled) -> Iterator[str]:
    if sampled.equal:
        first, second = sampled.equal_keys
        yield f"duplicates in the sample: {sampled.equal:,} of {sampled.tried:,} files, such as {first} and {second}"
    if found.doubled:
        yield (
            f"{counted(found.doubled, 'file')} with the name of a file in another split, such as {found.double}: make "
            "sure that they show different things"
        )
    if len(found.extensions) > 1:
        extensions = ", ".join(
            f"{count:,} {name or 'without extension'}" for name, count in found.extensions.most_common()
        )
        yield f"mixed file extensions: {extensions}"
