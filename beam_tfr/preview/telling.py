"""A preview as text."""

from __future__ import annotations

import sys
from typing import IO

from beam_tfr.preview.estimates import Estimate
from beam_tfr.preview.planning import Preview
from beam_tfr.schema import ADJUSTMENTS, REJECT_REASONS, ImageRef
from beam_tfr.schema.features import things
from beam_tfr.summary import print_plan
from beam_tfr.terminal import printable


def print_preview(found: Preview, *, to: IO[str] | None = None) -> None:
    """Prints a preview for people."""
    to = to or sys.stdout
    plan, sampled = found.plan, found.sampled
    what = things(plan.options["encoding"])

    def line(title: str, text: str) -> None:
        print(f"{title + ':':<11}{printable(text)}" if title else f"{'':11}{printable(text)}", file=to)

    for number, ref in enumerate(found.found.first):
        line("" if number else "first", _read(ref))
    print(file=to)
    print_plan(plan, to=to)
    print(file=to)
    line("sample", f"{sampled.tried:,} of {plan.matched:,} {what}; every estimate has its 95 % interval")
    for reason, rejected in found.rejects.items():
        such = f", such as {sampled.details[reason]}" if reason in sampled.details else ""
        line("rejects", f"{_interval(rejected, ',.0f')} {reason}: {REJECT_REASONS[reason]}{such}")
    if not found.rejects:
        line("rejects", "none in the sample")
    for name, count in sorted(sampled.adjusted.items()):
        line("adjusted", f"{count / len(sampled.record_bytes):.0%} {name}: {ADJUSTMENTS[name]}")
    shards = sum(of.num_shards for of in plan.splits.values())
    line(
        "output",
        f"{_interval(found.num_bytes.times(1e-6), ',.1f')} MB in {shards:,} shards of "
        f"{found.num_bytes.value / 1e6 / max(shards, 1):,.1f} MB",
    )
    if found.seconds and found.cpu_seconds and found.dataflow_seconds and found.cost:
        line("time", f"{_duration(found.seconds)} here; CPU time {_duration(found.cpu_seconds)}")
        line(
            "Dataflow",
            f"{_duration(found.dataflow_seconds)} on {found.workers:,} workers of "
            f"{found.prices.vcpus:g} vCPUs; {_interval(found.cost, ',.2f')} USD (--workers, --price)",
        )
    for text in found.warnings:
        line("warning", text)
    line("next", "nothing was written; beam-tfr convert with the same options writes the dataset")


def _read(ref: ImageRef) -> str:
    if ref.reason:
        return f"{ref.key}   {ref.reason}: {ref.detail}"
    labels = f", label {', '.join(ref.labels) or 'none'}" if ref.labels else ""
    return f"{ref.key}   split {ref.split}{labels}"


def _interval(of: Estimate, how: str) -> str:
    value, low, high = (format(each, how) for each in of)
    return value if low == high else f"{value} ({low} to {high})"


def _duration(seconds: Estimate) -> str:
    unit, size = ("s", 1) if seconds.value < 120 else ("minutes", 60) if seconds.value < 7200 else ("hours", 3600)
    return f"{_interval(seconds.times(1 / size), ',.1f' if size > 1 else ',.0f')} {unit}"
