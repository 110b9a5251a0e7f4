"""A preview, as text, as JSON and in a notebook."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from beam_tfr.console.display import duration
from beam_tfr.console.terminal import Printable
from beam_tfr.dataset.metadata import describe_other_readers
from beam_tfr.dataset.tallies import format_count_table
from beam_tfr.inputs.skipped import describe_skipped
from beam_tfr.preview.sampling import Listed, Sampled
from beam_tfr.records import box_counts
from beam_tfr.schema.dataset import ADJUSTMENTS, REJECT_REASONS
from beam_tfr.schema.encodings import noun_of
from beam_tfr.schema.errors import spell_as_flags
from beam_tfr.schema.plan import Plan


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Preview(Printable):
    """What a conversion would do.

    Attributes:
        plan: the splits with their images, shards and classes, exactly as in the conversion.
        found: the result of the listing.
        sampled: the result of converting the sample.
        num_bytes: bytes of the dataset's shards.
        rejects: reason -> number of rejects; those that the listing shows are exact.
        seconds: time on this machine; None, as the next, unless images are converted.
        cpu_seconds: CPU time of all cores; on Dataflow, of as many vCPUs.
        warnings: sentences about problems that are cheap to fix now.
        outcome: what `convert` would do: a verb and more.
        failure: why the conversion would or may fail; empty if it is not expected to.
    """

    plan: Plan
    found: Listed
    sampled: Sampled
    num_bytes: float
    rejects: Mapping[str, float]
    seconds: float | None
    cpu_seconds: float | None
    warnings: list[str]
    outcome: str
    failure: str

    def as_json(self) -> dict[str, Any]:
        """The preview as JSON values."""
        return {
            "matched": self.plan.matched,
            "skipped": dict(self.found.skipped),
            "source_bytes": self.found.num_bytes,
            "splits": {
                name: {
                    "matched": split.matched,
                    "num_shards": split.num_shards,
                    "class_counts": split.class_counts,
                }
                for name, split in self.plan.splits.items()
            },
            "sample": {
                "tried": self.sampled.tried,
                "adjusted": dict(self.sampled.adjusted),
                "boxes": self.sampled.boxes or None,
            },
            "num_bytes": self.num_bytes,
            "rejects": self.rejects,
            "seconds": self.seconds,
            "cpu_seconds": self.cpu_seconds,
            "warnings": [*map(spell_as_flags, self.warnings)],
            "outcome": spell_as_flags(self.outcome),
            "failure": spell_as_flags(self.failure),
        }

    def facts(self) -> Iterator[tuple[str, str]]:
        """The results of listing and sample, as titles and texts."""
        sampled = self.sampled
        what = noun_of(self.plan.options["encoding"])
        skipped = describe_skipped(self.found.skipped)
        if skipped:
            yield "skipped", skipped
        yield (
            "sample",
            f"{sampled.tried:,} of {self.plan.matched:,} {what}; what follows is estimated from it",
        )
        details = self.found.details | sampled.details
        for reason, number in self.rejects.items():
            yield (
                "rejects",
                f"{number:,.0f} {reason}: {REJECT_REASONS[reason]}, such as {details[reason]}",
            )
        if not self.rejects:
            yield "rejects", "none in the sample"
        for name, count in sorted(sampled.adjusted.items()):
            yield "adjusted", f"{count / sampled.written:.0%} {name}: {ADJUSTMENTS[name]}"
        if sampled.boxes:
            yield "boxes", box_counts.tell(sampled.boxes)
        shards = sum(split.num_shards for split in self.plan.splits.values())
        unit, size = ("MB", 1e6) if self.num_bytes >= 1e6 else ("kB", 1e3)
        out = self.num_bytes / size
        yield "output", f"{out:,.1f} {unit}, {out / max(shards, 1):,.1f} {unit} per shard"
        if self.seconds and self.cpu_seconds:
            yield (
                "time",
                f"about {duration(self.seconds)} here; CPU time {duration(self.cpu_seconds)}",
            )
        yield from (("warning", text) for text in self.warnings)
        yield "others", describe_other_readers(self.plan.options)
        done = self.failure or f"convert with the same options {self.outcome}"
        yield "next", f"nothing was written; {done}"

    def lines(self) -> Iterator[str]:
        """Yields a table of splits and classes, then the facts."""
        yield from format_count_table(self.plan.splits, self.plan.labels or [])
        before = ""
        for title, text in self.facts():
            begin = "" if title == before else f"{title}:"
            yield f"{begin:<11}" + text.replace("\n", "\n" + 11 * " ")
            before = title
