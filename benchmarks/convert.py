"""Converting to JPEGs of 224x224, beside other ways.

They are tf.data, the codec alone, a minimal Beam pipeline and a Pillow loop.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Iterator

from benchmarks import measuring
from benchmarks.measuring import Table, python
from benchmarks.turns import add_contest, compete, table

FLOOR = "floor"
CONTESTANTS = {  # name -> function of contestants.py
    "tutorial GZIP": "tutorial_gzip",
    "tutorial": "tutorial",
    "tutorial Lanczos": "tutorial_lanczos",
    FLOOR: "floor",
    "planned shards": "planned_shards",
    "Pillow loop": "pillow_loop",
}
DEFAULT = ["beam_tfr", "tutorial GZIP", "tutorial", FLOOR]
QUICK = [
    "beam_tfr",
    "tutorial Lanczos",
    FLOOR,
    "planned shards",
    "Pillow loop",
]  # each kind of code once
add_arguments = add_contest


def commands(pattern: str, folder: str) -> dict[str, list[str]]:
    """Name -> command."""
    others = {
        name: python("-m", "benchmarks.contestants", function, pattern, f"{folder}/{function}")
        for name, function in CONTESTANTS.items()
    }
    return {"beam_tfr": measuring.convert(pattern, f"{folder}/beam_tfr"), **others}


def run(arguments: argparse.Namespace) -> Iterator[Table]:
    arguments.only = arguments.only or (QUICK if arguments.quick else DEFAULT)
    images, costs = compete(arguments, commands)
    if FLOOR in costs:  # it measures itself: decoding and encoding alone, of each photo once
        alone = [float(cost.output) * (images - arguments.net) for cost in costs[FLOOR]]
        costs[FLOOR] = [
            dataclasses.replace(cost, wall_s=cpu_s, cpu_s=cpu_s)
            for cost, cpu_s in zip(costs[FLOOR], alone, strict=True)
        ]
    yield table("convert", images, costs, cpu_of=FLOOR, net=arguments.net)
