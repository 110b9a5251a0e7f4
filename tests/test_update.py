"""`beam-tfr update` makes the dataset that a fresh conversion would write.

It costs what changes.
"""

from __future__ import annotations

import pathlib
import random

import pytest

import beam_tfr
from tests.living_photos import FEW, REJECTS, ROUNDS, Photos, choose_plan, files_of, fresh, updated

SLOW = [
    pytest.param(encoding, rounds, marks=pytest.mark.slow)
    for encoding, rounds in {"jpeg": ROUNDS, "keep": FEW, "raw": FEW, "bytes": FEW}.items()
]


@pytest.mark.parametrize(("encoding", "rounds"), [("png", FEW), *SLOW])
def test_updates_in_a_row_give_what_fresh_conversions_give(
    tmp_path: pathlib.Path, encoding: str, rounds: int
) -> None:
    photos, output = Photos(tmp_path / "photos", 1), tmp_path / "d"
    pattern, chance = f"{photos.folder}/**", random.Random(2)
    image = (
        {}
        if encoding == "bytes"
        else {"image_size": 32}
        if encoding != "keep"
        else {"resize": "none"}
    )
    fixed = {"encoding": encoding, **image}
    plan = choose_plan(chance)
    beam_tfr.convert(input=pattern, output=output, progress=False, **REJECTS, **fixed, **plan)
    for number in range(rounds):
        photos.change()
        given = {} if number % 2 else choose_plan(chance)
        plan |= given
        done = updated(output, input=pattern, **REJECTS, **given)
        assert files_of(output) == fresh(
            tmp_path / "fresh", input=pattern, **REJECTS, **fixed, **plan
        ), (number, plan)
        assert beam_tfr.verify(output, progress=False).ok
        assert min(done.changed["added"], done.changed["removed"]) > 0
