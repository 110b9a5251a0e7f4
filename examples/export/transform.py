"""ExportShards: writes the shards of a dataset in another format."""

import dataclasses
import functools
import sys
from collections.abc import Iterator, Mapping, Sequence

import apache_beam as beam
from apache_beam.internal.cloudpickle import cloudpickle
from apache_beam.pvalue import PBegin, PCollection
from apache_beam.typehints import with_output_types

from beam_tfr.dataset.base import Base
from beam_tfr.engine import interrupt
from beam_tfr.transforms.counting import FunctionDoFn, count
from examples.export.formats import write
from examples.export.shard import Shard

cloudpickle.register_pickle_by_value(sys.modules[__package__])  # workers do not have this program


@with_output_types(None)
@dataclasses.dataclass(eq=False, repr=False)
class ExportShards(beam.PTransform):
    """Writes shards of a dataset, each on one worker.

    Attributes:
        base: the dataset.
        shards: split and number of each shard.
        where, output: see `shard.Shard`.
        form: one of `formats.FORMATS`.

    Output: a PCollection of None for each shard.
    """

    base: Base
    shards: Sequence[tuple[str, int]]
    where: Mapping[str, str]
    output: str
    form: str

    def expand(self, begin: PBegin) -> PCollection[None]:
        write_one = functools.partial(_write, base=self.base, where=self.where, output=self.output, form=self.form)
        shown = {"folder": self.base.folder, "where": self.where, "output": self.output, "format": self.form}
        return (
            begin
            | "Shards" >> beam.Create(self.shards)
            | "SpreadShards" >> beam.Reshuffle()
            | "WriteShards" >> beam.ParDo(FunctionDoFn(write_one, **shown))
        )


def _write(shard: tuple[str, int], *, base: Base, where: Mapping[str, str], output: str, form: str) -> Iterator[None]:
    split, number = shard
    dataset = base.read()  # once in each process
    write(Shard(dataset, split, dataset.splits[split].shards[number], where, output, _count), form)
    count("exported-shards")
    yield


def _count(images: int, num_bytes: int) -> None:
    interrupt.check()
    count("exported-images", images)
    count("exported-bytes", num_bytes)
