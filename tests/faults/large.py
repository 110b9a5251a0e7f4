"""Memory and time that large sound images take, each in a process of its own."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

from tests.faults.outcome import Outcome
from tests.large_images import draw_case, measure_cost


def trials(_: Path) -> Callable[[int], Outcome]:
    """A function that converts a large image, prints what it took, and says if that is too much."""

    def trial(seed: int) -> Outcome:
        case = draw_case(random.Random(seed))
        cost = measure_cost(case)
        print(f"{cost}  {case}")
        outcome = Outcome(faults=1, longest_s=cost.seconds)
        if not cost.is_bounded:
            outcome.problem(f"{case} takes {cost}")
        return outcome

    return trial
