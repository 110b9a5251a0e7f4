"""Trials of `tests.faults` of which no other test has the like.

See docs/reliability.md for the long run.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from beam_tfr.records.tfrecords import RecordFile
from tests.conftest import files_of
from tests.converted import converted_photos
from tests.faults import mutations
from tests.faults.mutations import container, mutated
from tests.faults.outcome import Outcome
from tests.faults.places import write_photos
from tests.faults.trials import Scene, run_trial

MUTATIONS = 80


def run_disturbed_trial(scene: Scene, kind: str, seed: int) -> Outcome:
    """The first trial in which something was disturbed: a fast run may end before."""
    for number in range(seed, seed + 5):
        outcome = run_trial(scene, kind, number)
        if outcome.faults or outcome.problems:
            break
    return outcome


@pytest.mark.slow
@pytest.mark.parametrize(
    ("engine", "kinds", "seed"),
    [
        ("threads", ["takeover", "corrupt"], 3),
        ("gcs", ["permission"], 5),
        ("threads", ["settled"], 2),
    ],
)
def test_disturbed_runs_end_as_if_they_had_not_been(
    tmp_path: Path, engine: str, kinds: list[str], seed: int
) -> None:
    scene = Scene(engine, write_photos(tmp_path / "photos"))
    outcomes = {kind: run_disturbed_trial(scene, kind, seed) for kind in kinds}
    scene.close()
    assert {kind: outcome.problems for kind, outcome in outcomes.items()} == {
        kind: [] for kind in kinds
    }
    assert all(outcome.faults for outcome in outcomes.values())


@pytest.mark.slow
def test_every_mutation_of_files_records_and_bytes_is_found(tmp_path: Path) -> None:
    trial, total = mutations.trials(tmp_path), Outcome()
    for seed in range(MUTATIONS):
        total.add(trial(seed))
    assert total.problems == []
    assert len(total.kinds) == 8


def test_what_is_lost_or_doubled_is_counted() -> None:
    expected = files_of(converted_photos())
    name = next(name for name in expected if name.startswith("d-train"))
    records = [*RecordFile(str(converted_photos() / name))]
    outcome = Outcome()
    outcome.compare(
        expected,
        expected | {name: container([records[0], *records[2:], records[0], records[0]], 0)},
    )
    assert (outcome.lost, outcome.duplicated) == (1, 2)
    outcome.compare(expected, {other: data for other, data in expected.items() if other != name})
    assert (outcome.lost, outcome.duplicated) == (1 + len(records), 2)


def test_a_mutation_is_a_change() -> None:
    for seed in range(200):
        data = bytes(seed % 7) + b"ab" * (seed % 3)
        assert mutated(data, random.Random(seed)) != data
