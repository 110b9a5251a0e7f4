"""Defines the steps of pipelines as PTransforms, around the functions of other modules.

`pipeline.Convert` composes them; `MapImages` adds a step of your own, and `ReadRejects` reads the
rejects from the output of `Convert`.
"""

from beam_tfr.transforms.plans import PlanShards as PlanShards
from beam_tfr.transforms.publishing import ReadRejects as ReadRejects
from beam_tfr.transforms.publishing import WriteManifest as WriteManifest
from beam_tfr.transforms.reading import ReadImages as ReadImages
from beam_tfr.transforms.references import MatchImages as MatchImages
from beam_tfr.transforms.references import ReadTable as ReadTable
from beam_tfr.transforms.values import BuildExamples as BuildExamples
from beam_tfr.transforms.values import MapImages as MapImages
from beam_tfr.transforms.values import ParseArrays as ParseArrays
from beam_tfr.transforms.values import ResizeImages as ResizeImages
from beam_tfr.transforms.writing import WriteShards as WriteShards
