"""The steps as PTransforms, around the functions of other modules.

`pipeline.Convert` composes them; `MapImages` adds a step of your own, `ReadRejects` reads the rejects from the output
of `Convert`.
"""

from beam_tfr.transforms.known import ReadDataset, ReadKnown
from beam_tfr.transforms.plans import PlanShards, Target
from beam_tfr.transforms.reading import ReadImages, ReadRows
from beam_tfr.transforms.references import MatchImages, ReadTable, TakeFirst
from beam_tfr.transforms.removing import LeaveOut, RejectRemoved
from beam_tfr.transforms.repairing import CheckRepaired
from beam_tfr.transforms.values import BuildExamples, MapImages, ParseArrays, ResizeImages
from beam_tfr.transforms.verifying import VerifyShards
from beam_tfr.transforms.writing import ReadRejects, WriteManifest, WriteShards

__all__ = [
    "BuildExamples",
    "CheckRepaired",
    "LeaveOut",
    "MapImages",
    "MatchImages",
    "ParseArrays",
    "PlanShards",
    "ReadDataset",
    "ReadImages",
    "ReadKnown",
    "ReadRejects",
    "ReadRows",
    "ReadTable",
    "RejectRemoved",
    "ResizeImages",
    "TakeFirst",
    "Target",
    "VerifyShards",
    "WriteManifest",
    "WriteShards",
]
