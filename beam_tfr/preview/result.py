"""Shows a preview as text, as JSON and in a notebook."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from beam_tfr.console.display import duration
from beam_tfr.console.terminal import Printable, counted
from beam_tfr.dataset.read_items import ReadItem
from beam_tfr.dataset.tallies import format_count_table
from beam_tfr.features.box_counts import describe_boxes
from beam_tfr.features.mask_colors import describe_all_colors
from beam_tfr.features.mask_counts import describe_masks
from beam_tfr.inputs.skipped import describe_skipped
from beam_tfr.preview.sampling import ConvertedSample, Listing
from beam_tfr.schema.dataset import ADJUSTMENTS, REJECT_REASONS, REMOVED_FILE
from beam_tfr.schema.encodings import noun_of
from beam_tfr.schema.plan import Plan
from beam_tfr.schema.spelling import spell_as_flags


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Preview(Printable):
    """A preview of a conversion.

    Attributes:
        plan: the splits with their images, shards and classes, exactly as in the conversion.
        listing: the result of listing the input.
        sample: the result of converting a sample.
        examples: for each of the first three splits, an item in the sample, as it was read.
        num_bytes: size of the dataset's shards in bytes.
        rejects: reason -> number of rejects; rejects found by the listing are counted exactly.
        seconds: time to convert on this machine; None if no images are converted.
        cpu_seconds: total CPU time of all cores or, on Dataflow, vCPUs; None if no images are
            converted.
        warnings: sentences about problems that are cheap to fix now.
        outcome: what `convert` would do, beginning with a verb.
        failure: why the conversion would or may fail; empty if it should succeed.
    """

    plan: Plan
    listing: Listing
    sample: ConvertedSample
    examples: list[ReadItem]
    num_bytes: float
    rejects: Mapping[str, float]
    seconds: float | None
    cpu_seconds: float | None
    warnings: list[str]
    outcome: str
    failure: str

    def as_json(self) -> dict[str, Any]:
        """Returns the preview as JSON values."""
        splits = {}
        for name, split in self.plan.splits.items():
            splits[name] = {
                "matched": split.matched,
                "num_shards": split.num_shards,
                "class_counts": split.class_counts,
            }
        sample = {
            "tried": self.sample.tried,
            "adjusted": dict(self.sample.adjusted),
            "boxes": self.sample.boxes or None,
            "masks": self.sample.masks or None,
        }
        return {
            "matched": self.plan.matched,
            "skipped": dict(self.listing.skipped),
            "left_out": self.listing.num_removed,
            "source_bytes": self.listing.num_bytes,
            "splits": splits,
            "columns": self.plan.options.get("feature_columns", {}),
            "sample": sample,
            "examples": [item.as_json() for item in self.examples],
            "num_bytes": self.num_bytes,
            "rejects": self.rejects,
            "seconds": self.seconds,
            "cpu_seconds": self.cpu_seconds,
            "warnings": [*map(spell_as_flags, self.warnings)],
            "outcome": spell_as_flags(self.outcome),
            "failure": spell_as_flags(self.failure),
        }

    def facts(self) -> Iterator[tuple[str, str]]:
        """Returns the results of the listing and the sample, as titles and texts."""
        yield from self._describe_input()
        yield from self._describe_records()
        yield from self._describe_output()
        for text in self.warnings:
            yield "warning", text
        if not self.failure:
            yield "look", "afterwards, beam-tfr report DIR shows the dataset on a page"
        action = self.failure or f"convert with the same options {self.outcome}"
        for line in f"nothing was written; {action}".split("\n"):
            yield "next", line

    def _describe_input(self) -> Iterator[tuple[str, str]]:
        """Yields lines about the listed files, and the expected rejects."""
        skipped = describe_skipped(self.listing.skipped)
        if skipped:
            yield "skipped", skipped
        num_removed = self.listing.num_removed
        if num_removed:
            images = counted(num_removed, "image")
            yield "kept out", f"{images}, by earlier removals ({REMOVED_FILE})"
        noun = noun_of(self.plan.options["encoding"])
        part = f"{self.sample.tried:,} of {self.plan.matched:,} {noun}"
        yield "sample", f"{part}; the following is estimated from it"
        details = self.listing.details | self.sample.details
        for reason, number in self.rejects.items():
            meaning = REJECT_REASONS[reason]
            yield "rejects", f"{number:,.0f} {reason}: {meaning}, such as {details[reason]}"
        for text in describe_all_colors(self.sample.bad_values):
            yield "rejects", text
        if not self.rejects:
            yield "rejects", "none in the sample"

    def _describe_records(self) -> Iterator[tuple[str, str]]:
        """Yields lines about the records in the sample."""
        for item in self.examples:
            yield "example", item.describe()
        for name, kind in self.plan.options.get("feature_columns", {}).items():
            yield "column", f"{name} {kind}"
        for kind, number in sorted(self.sample.adjusted.items()):
            share = number / self.sample.written
            yield "adjusted", f"{share:.0%} {kind}: {ADJUSTMENTS[kind]}"
        if self.sample.boxes:
            yield "boxes", describe_boxes(self.sample.boxes)
        if self.sample.masks:
            for sentence in describe_masks(self.sample.masks):
                yield "masks", sentence

    def _describe_output(self) -> Iterator[tuple[str, str]]:
        """Yields the size of the dataset, and the time that the conversion takes."""
        unit = "kB"
        size = self.num_bytes / 1e3
        if self.num_bytes >= 1e6:
            unit = "MB"
            size = self.num_bytes / 1e6
        shards = sum(split.num_shards for split in self.plan.splits.values())
        shard_size = size / max(shards, 1)
        yield "output", f"{size:,.1f} {unit}, {shard_size:,.1f} {unit} per shard"
        if self.seconds and self.cpu_seconds:
            here = duration(self.seconds)
            yield "time", f"about {here} here; CPU time {duration(self.cpu_seconds)}"

    def lines(self) -> Iterator[str]:
        """Yields a table of splits and classes, and then the facts."""
        yield from format_count_table(self.plan.splits, self.plan.labels or [])
        before = ""
        for title, text in self.facts():
            begin = "" if title == before else f"{title}:"
            yield f"{begin:<11}" + text
            before = title
