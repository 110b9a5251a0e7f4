"""The result of a conversion: a dataset."""

import collections
import contextlib
import dataclasses
import functools
import itertools
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from beam_tfr import storage
from beam_tfr.console.terminal import Printable, counted
from beam_tfr.dataset.history import CHANGE_KINDS, read_history
from beam_tfr.dataset.manifest import Manifest, Split, read_manifest
from beam_tfr.dataset.metadata import describe_other_readers
from beam_tfr.dataset.tallies import format_count_table
from beam_tfr.output import rejects
from beam_tfr.pipeline import Convert
from beam_tfr.records import box_counts
from beam_tfr.schema import differences
from beam_tfr.schema.dataset import ADJUSTMENTS, NO_SPLIT, REJECTS_FILE, sort_splits
from beam_tfr.schema.encodings import noun_of
from beam_tfr.schema.errors import BeamTfrError, DataError, RunError, UsageError
from beam_tfr.schema.items import Reject

MAX_REJECTS = 100  # that a result holds
_OF_RUN = {name: name for name in ("skipped", "missed", "nested")}  # name in a result -> counter
_OF_RUN |= {"resumed": "resumed-images", "rewritten_shards": "rewritten-shards"}
_COMPLETE = """This folder already holds this complete dataset; nothing was written.
Its files were compared by name and size; beam-tfr verify reads all their bytes."""


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Result(Printable):
    """A complete dataset.

    Attributes:
        manifest: manifest of the dataset.
        seconds: wall time.
        fresh: False if the dataset was already complete.
        run: what this run counted: "resumed", images that an earlier run had finished;
            "rewritten_shards", those that an earlier run had finished, and that were written again
            because the input has changed; "skipped", files that the listing skipped because they
            have no image extension; "missed", images that the patterns miss; "nested", images in
            folders of classes within those of other classes.
        new_ids: how the label ids differ from those of the dataset that was replaced; empty if they
            do not.
        changed: "added", "removed", "changed" and "relabelled" -> records, of an update.
    """

    manifest: Manifest
    seconds: float
    fresh: bool
    run: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    new_ids: str = ""
    changed: Mapping[str, int] = dataclasses.field(default_factory=dict)

    @property
    def folder(self) -> str:
        """Where the dataset is, local or gs://."""
        return self.manifest.folder

    @property
    def digest(self) -> str:
        """Equal for equal datasets, wherever they are and whenever they were made; 64 hex
        digits."""
        return self.manifest.dataset_digest

    @property
    def class_names(self) -> tuple[str, ...]:
        """Indexed by label; empty without labels."""
        return self.manifest.class_names

    @property
    def counts(self) -> Mapping[str, Any]:
        """`matched`, `written`, `rejected` (reason -> number), `adjusted` (kind -> number)."""
        return self.manifest.counts

    @property
    def splits(self) -> Mapping[str, Split]:
        """Name -> `matched`, `rejected`, `num_examples`, `num_bytes`, `class_counts`, `shards`."""
        return {name: self.manifest.splits[name] for name in sort_splits(self.manifest.splits)}

    @functools.cached_property
    def rejects(self) -> tuple[Reject, ...]:
        """The first `MAX_REJECTS` rejects: key, stage, reason, detail. rejects.jsonl in the folder
        has all."""
        return tuple(
            itertools.islice(
                rejects.read_rejects(storage.join(self.folder, REJECTS_FILE)), MAX_REJECTS
            )
        )

    @property
    def images_per_second(self) -> float:
        """Images of this run, without those that an earlier run had finished."""
        done = self.manifest.counts["matched"] - self.run["resumed"] if self.fresh else 0
        return done / max(self.seconds, 1e-3)

    def as_json(self) -> dict[str, Any]:
        """The summary as JSON values."""
        dataset = self.manifest
        splits = {name: dict(split) for name, split in dataset.fields["splits"].items()}
        for split in splits.values():
            split["num_shards"] = len(split.pop("shards"))
        return {
            "output": dataset.folder,
            "name": dataset.name,
            "complete_already": not self.fresh,
            **dataset.counts,
            "splits": splits,
            "cropped": dataset.statistics.get("cropped"),
            "boxes": dataset.statistics.get("boxes"),
            "columns": dataset.options.get("feature_columns", {}),
            **{name: self.run[name] for name in _OF_RUN},
            "new_ids": self.new_ids,
            "dataset_digest": dataset.dataset_digest,
            "seconds": round(self.seconds, 3),
            "images_per_second": round(self.images_per_second, 1),
            "changed": dict(self.changed),
        }

    def lines(self) -> Iterator[str]:
        """Yields a table of splits and classes, then facts."""
        dataset = self.manifest
        counts = self.manifest.counts
        what = noun_of(self.manifest.options["encoding"])
        rejected = sum(counts["rejected"].values())
        if not self.fresh:
            yield _COMPLETE
        yield from format_count_table(dataset.splits, dataset.class_names)
        limit = dataset.options.get("limit")
        if limit:
            yield f"limit:   a trial run of the first {limit:,} in the order of `seed=`"
        yield f"balance: {counts['matched']:,} matched = {counts['written']:,} written + {rejected:,} rejected"
        skipped = self.run["skipped"]
        if skipped:
            yield f"skipped: {skipped:,} without an image extension; `beam-tfr plan` shows which kinds"
        yield from rejects.describe_rejects(
            storage.join(dataset.folder, REJECTS_FILE), counts["rejected"]
        )
        for title, number in counts["adjusted"].items():
            yield f"adjusted: {number:,} {title} ({ADJUSTMENTS[title]})"
        if (cropped := dataset.statistics.get("cropped")) is not None:
            yield f"cropped: {cropped:.0%} of an image on average; `resize=pad` keeps all of it"
        boxes = dataset.statistics.get("boxes")
        if boxes:
            yield f"boxes:   {box_counts.tell(boxes)}"
        for name, kind in dataset.options.get("feature_columns", {}).items():
            yield f"column:  {name} {kind}"
        if self.new_ids:
            old = "; models of it have the old ones" if "->" in self.new_ids else ""
            yield f"note:    class ids since the replaced dataset: {self.new_ids}{old}"
        rewritten = self.run["rewritten_shards"]
        if rewritten:
            yield f"note:    the input has changed since an earlier run: {rewritten:,} shards were written again"
        nested = self.run["nested"]
        if nested:
            images = counted(nested, "image")
            yield f"note:    {images} in a folder within that of another class: their class is the inner folder's"
        missed = self.run["missed"]
        if missed:
            yield f"note:    {counted(missed, 'image')} beside them skipped: `input=DIR` takes all images"
        yield f"dataset: {dataset.folder}   digest {self.digest[:16]}"
        if self.fresh and (resumed := self.run["resumed"]):
            done = f"{resumed:,} of {counts['matched']:,} {what}"
            kept = f"kept:    {done} are in shards that stay as they are"
            yield kept if self.changed else f"resumed: {done} were finished by an earlier run"
        if self.fresh:
            yield f"time:    {self.seconds:.1f} s, {self.images_per_second:,.0f} {what}/s"
        split = next((name for name in self.splits if name != NO_SPLIT), "train")
        yield f"load:    from beam_tfr.reader import load; {split} = load({self.folder!r}, split={split!r})"
        yield f"others:  {describe_other_readers(dataset.options)}"
        yield f"next:    beam-tfr verify {shlex.quote(self.folder)}"
        if self.changed:
            changes = ", ".join(
                f"{number:,} {kind}" for kind, number in self.changed.items() if number
            )
            yield f"update:  {changes or 'no image changed, but the dataset did'}"


def read_before(output: str) -> Mapping[str, Any] | None:
    """The content of the manifest that is in an output before a run, if there is one."""
    with contextlib.suppress(BeamTfrError):
        return read_manifest(output).fields
    return None


def result_of(
    step: Convert, before: Mapping[str, Any] | None, counters: Mapping[str, int], seconds: float
) -> Result:
    """The result of a run, which has ended.

    Args:
        step: step of the run.
        before: content of the manifest that was in the output, if there was one.
        counters: counters of this package, at the end.
        seconds: wall time.

    Raises:
        RunError: there is no dataset, even if the engine reports success.
    """
    options = step.options
    updates = step.update is not None
    try:
        published = read_manifest(options.output)
    except (UsageError, DataError) as error:
        raise RunError(f"the runner reports success, but it lost elements: {error}") from error
    fresh = (options.overwrite and not updates) or before != published.fields
    last = read_history(options.output)[-1:] if updates and fresh else []
    old_names = before["labels"]["names"] if before else published.class_names
    return Result(
        manifest=published,
        seconds=seconds,
        fresh=fresh,
        run=collections.Counter(
            {name: counters.get(counter, 0) for name, counter in _OF_RUN.items()}
        ),
        new_ids=differences.describe_id_changes(old_names, published.class_names),
        changed={
            kind: number for line in last for kind, number in line.items() if kind in CHANGE_KINDS
        },
    )
