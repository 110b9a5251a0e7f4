"""Adds up the shards that a run wrote, and checks that it wrote all of them."""

import collections
import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Self

from beam_tfr.console.terminal import counted
from beam_tfr.dataset.manifest import read_manifest
from beam_tfr.schema.errors import DataError, RunError
from beam_tfr.schema.plan import (
    MOST_CAUSES,
    Counts,
    Plan,
    Shard,
    ShardInfo,
    Unfinished,
    WrittenFile,
)
from beam_tfr.version import __version__


@dataclasses.dataclass(frozen=True, slots=True)
class CommittedShard:
    """The facts about a finished shard that the manifest needs, in a few hundred bytes.

    Shards with equal content are equal, because another attempt writes the same bytes to new files.
    """

    file: str
    num_examples: int
    num_rejected: int
    num_bytes: int
    sha256: str
    records_sha256: str
    rejects_sha256: str
    built: str = dataclasses.field(compare=False)
    generation: int = dataclasses.field(compare=False)
    contents: WrittenFile | None = dataclasses.field(compare=False)

    @classmethod
    def from_info(cls, info: ShardInfo) -> Self:
        return cls(
            file=info.file,
            num_examples=info.num_examples,
            num_rejected=info.num_rejected,
            num_bytes=info.num_bytes,
            sha256=info.sha256,
            records_sha256=info.records_sha256,
            rejects_sha256=info.rejects_sha256,
            built=info.built,
            generation=info.generation,
            contents=info.contents,
        )

    @property
    def written(self) -> WrittenFile:
        """The shard's file."""
        return WrittenFile(self.built, self.num_bytes, self.sha256, self.generation)


@dataclasses.dataclass(slots=True)
class SplitTotals:
    """The totals of the shards of a split, and its shards by name."""

    counts: Counts = dataclasses.field(default_factory=Counts)
    shards: dict[str, CommittedShard] = dataclasses.field(default_factory=dict)

    @property
    def shards_with_file(self) -> list[CommittedShard]:
        """The shards that have a file; shards of `NO_SPLIT` have no file."""
        return [shard for shard in self.shards.values() if shard.file]

    def add(self, info: ShardInfo) -> None:
        """Adds a shard, unless it was added before.

        Raises:
            RunError: the shard was added before with different content.
        """
        shard = CommittedShard.from_info(info)
        earlier = self.shards.setdefault(info.shard.name, shard)
        if earlier is shard:
            self.counts.add(info)
        elif earlier != shard:
            raise RunError(
                f"shard {info.shard.name} was written twice, with different content. "
                "Nothing is published"
            )

    def merge(self, other: "SplitTotals") -> None:
        """Adds the totals of other shards of the split."""
        self.counts.add(other.counts)
        self.shards.update(other.shards)

    def sort_shards(self) -> None:
        """Sorts the shards by number, which is the order of their names."""
        self.shards = dict(sorted(self.shards.items()))


@dataclasses.dataclass(slots=True)
class RunTotals:
    """The totals of some shards of a run for the manifest, with a few facts about each shard.

    These facts take a few hundred bytes per shard, but with a thousand classes, a `ShardInfo` takes
    tens of kilobytes.

    Attributes:
        splits: split -> totals of the finished shards of the split.
        unfinished: name -> shard that is not finished.
        plans: digest of a plan -> the name of one of its shards; a correct run has a single plan.
    """

    splits: dict[str, SplitTotals] = dataclasses.field(default_factory=dict)
    unfinished: dict[str, Unfinished] = dataclasses.field(default_factory=dict)
    plans: dict[str, str] = dataclasses.field(default_factory=dict)

    def add(self, info: ShardInfo | Unfinished) -> None:
        """Adds the result of a shard, which may have been added before, even as `Unfinished`.

        Raises:
            RunError: the shard was added before with different content.
        """
        shard = info.shard
        self.plans.setdefault(shard.plan_digest, shard.name)
        if isinstance(info, Unfinished):
            self.unfinished[shard.name] = info
        else:
            self.splits.setdefault(shard.split, SplitTotals()).add(info)

    def merge(self, other: "RunTotals") -> None:
        """Adds the totals of other shards; no shard may be in both totals."""
        for split, totals in other.splits.items():
            self.splits.setdefault(split, SplitTotals()).merge(totals)
        self.unfinished.update(other.unfinished)
        self.plans.update(other.plans)

    @property
    def finished(self) -> set[str]:
        """The names of the finished shards."""
        return {name for totals in self.splits.values() for name in totals.shards}


def add_up_shards(infos: Iterable[ShardInfo | Unfinished]) -> RunTotals:
    """Adds up the results of shards, in any order.

    A shard may occur several times in one call, but not in several calls whose totals are merged.

    Raises:
        RunError: a shard was written twice with different content.
    """
    totals = RunTotals()
    for info in infos:
        totals.add(info)
    return totals


def merge_totals(plan: Plan, parts: Iterable[RunTotals]) -> dict[str, SplitTotals]:
    """Adds up the totals of a run, and checks that nothing is missing.

    Args:
        plan: the plan of the run.
        parts: results of `add_up_shards`; no shard is in several parts.

    Returns:
        split -> totals, with the shards in order, for every split of the plan.

    Raises:
        RunError: shards are unfinished, because images cannot be read now; or the runner lost or
            repeated elements: a shard is missing or not in the plan, or the written and rejected
            images do not add up to the matched images.
    """
    run = RunTotals()
    for part in parts:  # `parts` may be an iterator, and is not kept
        run.merge(part)
    planned = {*plan.shards()}
    finished = run.finished
    _check_planned(plan, run, planned)
    never_finished = sorted(run.unfinished.keys() - finished)
    _check_unfinished(plan, [run.unfinished[name] for name in never_finished])
    _check_missing(plan, sorted(planned - finished))
    totals = dict[str, SplitTotals]()
    for split in sorted(plan.splits):
        totals[split] = run.splits.get(split, SplitTotals())
        totals[split].sort_shards()
        _check_matched(plan, split, totals[split].counts)
    return totals


def _check_planned(plan: Plan, run: RunTotals, planned: Set[str]) -> None:
    """Checks that all shards with these names are in the plan."""
    foreign = {name for digest, name in run.plans.items() if digest != plan.digest}
    foreign |= (run.finished | run.unfinished.keys()) - planned
    if foreign:
        raise RunError(f"shard {min(foreign)} is not in the plan. Nothing is published")


def _check_unfinished(plan: Plan, unfinished: Sequence[Unfinished]) -> None:
    if unfinished:
        noun = f"of {plan.matched:,} {plan.noun}"
        problem = describe_unfinished(unfinished, noun, plan.num_shards)
        raise RunError(
            f"{problem}. Nothing is published. Run the same command again: it reads only these "
            "shards. `accept_unreadable=` rejects files that cannot be read"
        )


def _check_missing(plan: Plan, missing: Sequence[str]) -> None:
    if missing:
        raise RunError(
            f"{len(missing)} of {plan.num_shards} shards are missing at the end, such as "
            f"{missing[0]}: the runner lost them. Nothing is published; run the same command "
            "again to resume from the finished shards"
        )


def _check_matched(plan: Plan, split: str, counts: Counts) -> None:
    matched = plan.splits[split].matched
    if counts.num_examples + counts.num_rejected != matched:
        raise RunError(
            f"split {split}: {matched} {plan.noun} were matched, but {counts.num_examples} written "
            f"and {counts.num_rejected} rejected: the runner lost or repeated some. "
            "Nothing is published"
        )


def describe_unfinished(unfinished: Sequence[Unfinished], noun: str, num_shards: int) -> str:
    """Describes the unfinished shards, and why they are unfinished.

    Args:
        unfinished: the shards.
        noun: text that follows the number of images, such as "of 18 images".
        num_shards: number of all shards.
    """
    causes: collections.Counter[str] = collections.Counter()
    for shard in unfinished:
        causes.update(shard.causes)
    leading = causes.most_common(MOST_CAUSES)
    reasons = "; ".join(f"{number:,}: {cause}" for cause, number in leading)
    images = sum(shard.images for shard in unfinished)
    shards = counted(num_shards, "shard")
    return (
        f"{images:,} {noun} cannot be read, such as {unfinished[0].example} ({reasons}). "
        f"That leaves {len(unfinished):,} of {shards} unfinished"
    )


def check_repaired(
    plan: Plan, infos: Iterable[ShardInfo | Unfinished], *, folder: str
) -> Iterator[None]:
    """Checks that all broken shards of a dataset were repaired.

    This check comes last, so that all shards that can be repaired are repaired before it fails.

    Args:
        plan: the plan of the dataset's shards.
        infos: results of repairing the broken shards.
        folder: folder of the dataset.

    Raises:
        DataError: the bytes of some shards would differ from before.
        RunError: some shards are unfinished.
    """
    results: dict[Shard, ShardInfo | Unfinished] = {info.shard: info for info in infos}
    unfinished = [info for info in results.values() if isinstance(info, Unfinished)]
    differing = sorted(info.shard.name for info in unfinished if info.differs)
    if differing:
        raise _different_bytes(plan, differing, folder)
    if unfinished:
        problem = describe_unfinished(unfinished, plan.noun, len(results))
        raise RunError(f"{problem}. Run the same command again")
    yield None


def _different_bytes(plan: Plan, differing: Sequence[str], folder: str) -> DataError:
    """Creates the exception for a repair that would change the bytes of shards."""
    versions = sorted(plan.codecs.items())
    codecs = ", ".join(f"{name} {version}" for name, version in versions)
    dataset = read_manifest(folder)
    shards = counted(len(differing), "broken shard")
    limits = ", but compares no masks or pairs" if dataset.feature_kinds.companions else ""
    return DataError(
        f"{shards}, such as {differing[0]}, would not get the same bytes as before: {plan.noun} "
        f"have changed, or libraries (beam_tfr {dataset.fields['tool_version']} made the dataset, "
        f"this is beam_tfr {__version__}, {codecs}). `beam-tfr verify` with `sources=` lists "
        f"which {plan.noun} changed{limits}: restore them, or use `beam-tfr update`, which "
        "converts the current ones"
    )


def list_shards_with_file(totals: Mapping[str, SplitTotals]) -> list[CommittedShard]:
    """Lists the shards of all splits that have a file, in order."""
    return [*itertools.chain.from_iterable(split.shards_with_file for split in totals.values())]


def reject_digests(totals: Mapping[str, SplitTotals]) -> dict[str, str]:
    """Returns shard name -> SHA-256 of its reject lines, for shards that have rejects."""
    digests = dict[str, str]()
    for split in totals.values():
        for name, shard in split.shards.items():
            if shard.num_rejected:
                digests[name] = shard.rejects_sha256
    return digests
