"""Results of a conversion: a dataset or a saved plan."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import json
import time
from collections.abc import Callable, Mapping

from beam_tfr import manifest, storage
from beam_tfr.claim import Progress
from beam_tfr.inputs.passed import LEFT_BEHIND, SKIPPED
from beam_tfr.launch.live import progress_of
from beam_tfr.manifest import Split
from beam_tfr.pipeline import Convert
from beam_tfr.saved_plan import SavedPlan
from beam_tfr.schema import REJECTS_FILE, BeamTfrError, DataError, Plan, Reject, RunError, UsageError, in_order
from beam_tfr.schema.features import things
from beam_tfr.sidecars import Changes
from beam_tfr.tallies import dataset_rows, html_table
from beam_tfr.transforms.counting import CHANGED, NESTED

MAX_REJECTS = 100  # that a result holds
SHOWN_REJECTS = 5  # in a notebook


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Result:
    """A complete dataset.

    Attributes:
        manifest: manifest of the dataset.
        seconds: wall time.
        fresh: False if the dataset was already complete.
        skipped: kind of name, such as ".txt" -> files in the folders of `input=` without an image extension.
        left_behind: kind of name -> files that look like images, next to a pattern's matches.
        resumed: images that an earlier run had finished.
        changes: shards of an earlier run that were rewritten because the input has changed.
        nested: result of `Folders.nested`.
    """

    manifest: manifest.Manifest
    seconds: float
    fresh: bool
    skipped: Mapping[str, int] = dataclasses.field(default_factory=dict)
    left_behind: Mapping[str, int] = dataclasses.field(default_factory=dict)
    resumed: int = 0
    changes: Changes = Changes()
    nested: Mapping[str, int] = dataclasses.field(default_factory=dict)

    @property
    def folder(self) -> str:
        """Where the dataset is, local or gs://."""
        return self.manifest.folder

    @property
    def digest(self) -> str:
        """Equal for equal datasets, wherever they are and whenever they were made; 64 hex digits."""
        return self.manifest.dataset_digest

    @property
    def class_names(self) -> tuple[str, ...]:
        """Indexed by label; empty without labels."""
        return self.manifest.class_names

    @property
    def splits(self) -> Mapping[str, Split]:
        """Name -> `matched`, `rejected`, `num_examples`, `num_bytes`, `class_counts`, `shards`."""
        return {name: self.manifest.splits[name] for name in in_order(self.manifest.splits)}

    @functools.cached_property
    def rejects(self) -> tuple[Reject, ...]:
        """The first `MAX_REJECTS` rejects: key, stage, reason, detail. rejects.jsonl in the folder has all."""
        with storage.open_seekable(storage.join(self.folder, REJECTS_FILE)) as file:
            return tuple(Reject(**json.loads(line)) for line in itertools.islice(file, MAX_REJECTS))

    def __repr__(self) -> str:
        splits = ", ".join(f"{name} {split.num_examples:,}" for name, split in self.splits.items())
        rejected = sum(self.manifest.counts["rejected"].values())
        return f"<{self._title()}: {splits}; {rejected:,} rejected; digest {self.digest[:16]}>"

    def _repr_html_(self) -> str:
        """The counts as a table, for notebooks."""
        rejected = self.manifest.counts["rejected"].items()
        notes = [f"rejected: {number:,} {reason}" for reason, number in rejected]
        notes += [f"{reject.key}: {reject.reason}: {reject.detail}" for reject in self.rejects[:SHOWN_REJECTS]]
        notes += [str(self.changes)] if self.changes.shards else []
        notes.append(f"digest {self.digest[:16]}, {self.seconds:.1f} s{'' if self.fresh else ', already complete'}")
        return html_table(self._title(), self.splits, dataset_rows(self.manifest), notes)

    def _title(self) -> str:
        counts, classes = self.manifest.counts, self.class_names
        of = f" of {len(classes):,} classes" if classes else ""
        return f"{self.folder}: {counts['written']:,} {things(self.manifest.options['encoding'])}{of}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Saved:
    """A plan that was made and saved.

    Attributes:
        path: path of the file.
        plan: the saved plan.
        seconds: wall time.
        nested: result of `Folders.nested`.
    """

    path: str
    plan: Plan
    seconds: float
    nested: Mapping[str, int] = dataclasses.field(default_factory=dict)


class Beginning:
    """The state of the output before a run, and the start time.

    Args:
        step: step of the run.
        progress: called at the end with what is then true: all is finished.
        look: whether to look at the output.
    """

    def __init__(self, step: Convert, progress: Callable[[Progress], object] | None, *, look: bool = True) -> None:
        self._step, self._progress, self._started = step, progress, time.monotonic()
        self._before = None
        if look:
            with contextlib.suppress(BeamTfrError):
                self._before = manifest.read(step.options.output).fields

    @property
    def crashed(self) -> bool:
        """True if images of an earlier dataset crashed the decoder."""
        return self._before is not None and "crashed-decoder" in self._before["counts"]["rejected"]

    def result(self, counters: Mapping[str, int]) -> Result | Saved:
        """The result of the run, which has ended.

        Args:
            counters: counters of this package, at the end.

        Raises:
            RunError: there is no dataset or plan, even if the engine reports success.
        """
        options = self._step.options

        def named(what: str) -> dict[str, int]:
            return {name[len(what) + 1 :]: n for name, n in counters.items() if name.startswith(f"{what} ")}

        seconds = time.monotonic() - self._started
        try:
            if options.save_plan:
                with SavedPlan(options.save_plan) as saved:
                    return Saved(path=options.save_plan, plan=saved.plan, seconds=seconds, nested=named(NESTED))
            published = manifest.read(options.output)
        except (UsageError, DataError) as error:
            raise RunError(f"the runner reports success, but it lost elements: {error}") from error
        fresh = options.overwrite or self._before != published.fields
        if self._progress:
            self._progress(progress_of(self._step.end(published), counters))
        return Result(
            manifest=published,
            seconds=seconds,
            fresh=fresh,
            skipped=named(SKIPPED),
            left_behind=named(LEFT_BEHIND),
            resumed=counters.get("resumed-images", 0),
            changes=Changes(counters.get("rewritten-shards", 0), counters.get("changed-images", 0), [*named(CHANGED)]),
            nested=named(NESTED),
        )
