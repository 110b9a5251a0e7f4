"""CheckRepaired: checks that all broken shards were rebuilt, with the bytes that the manifest promises."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Set

import apache_beam as beam
from apache_beam.pvalue import AsIter, PCollection
from apache_beam.typehints import with_input_types, with_output_types

from beam_tfr.console.terminal import counted
from beam_tfr.dataset import manifest
from beam_tfr.schema import MOST_CAUSES, DataError, Plan, RunError, ShardInfo, Unfinished
from beam_tfr.transforms.counting import FunctionDoFn
from beam_tfr.version import __version__


@with_input_types(ShardInfo | Unfinished)
@with_output_types(None)
@dataclasses.dataclass(eq=False, repr=False)
class CheckRepaired(beam.PTransform):
    """Checks the repaired shards; raises an error at the end, after all that can be repaired are.

    Attributes:
        folder: folder of the dataset.
        wanted: names of the broken shards.
        plan: the plan from `PlanShards`, a PCollection of one.

    Output: a PCollection of one None, if all of them are repaired.
    """

    folder: str
    _: dataclasses.KW_ONLY
    wanted: Set[str]
    plan: PCollection[Plan]

    def expand(self, infos: PCollection[ShardInfo | Unfinished]) -> PCollection[None]:
        return self.plan | "Check" >> beam.ParDo(FunctionDoFn(self._check), AsIter(infos))

    def _check(self, plan: Plan, infos: Iterable[ShardInfo | Unfinished]) -> Iterator[None]:
        found = {info.shard.name: info for info in infos}  # of the shards that are repaired alone
        unfinished = [info for info in found.values() if isinstance(info, Unfinished)]
        if missing := sorted(self.wanted - found.keys()):
            raise RunError(f"the runner lost {len(missing)} shards, such as {missing[0]}; run the same command again")
        differing = sorted(info.shard.name for info in unfinished if info.differs)
        if differing:
            raise DataError(_tell_differing(plan, self.folder, differing))
        if unfinished:
            causes = "; ".join(f"{n:,}: {cause}" for info in unfinished for cause, n in info.causes.items())
            raise RunError(
                f"{sum(info.images for info in unfinished):,} {plan.things} cannot be read, such as "
                f"{unfinished[0].example} ({causes[: MOST_CAUSES * 100]}): "
                f"{counted(len(unfinished), 'broken shard')} {'is' if len(unfinished) == 1 else 'are'} left. "
                "Run the same command again"
            )
        yield None


def _tell_differing(plan: Plan, folder: str, differing: list[str]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in sorted(plan.codecs.items()))
    made = manifest.read(folder).fields["tool_version"]
    return (
        f"{counted(len(differing), 'broken shard')}, such as {differing[0]}, would get different bytes than before: "
        f"{plan.things} have changed, or libraries (beam_tfr {made} made the dataset, this is beam_tfr {__version__}, "
        f"{versions}). `beam-tfr verify` with `sources=` tells which {plan.things} changed: put them back, or use "
        "`beam-tfr update`, which takes the dataset as it is now"
    )
