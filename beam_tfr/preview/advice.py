"""Warns of problems that are cheap to fix before a conversion and expensive after it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from beam_tfr.output.rejects import most
from beam_tfr.preview.estimates import Estimate
from beam_tfr.schema import NO_SPLIT, Plan, in_order

FEW = 10  # images of a class in a split
MAX_NAMED = 5


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


def class_warnings(plan: Plan) -> Iterator[str]:
    """Warns of classes with few images in a split."""
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
