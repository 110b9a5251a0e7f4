"""Time and memory that each hostile file takes, in a process of its own."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.faults.outcome import Outcome
from tests.hostile_images import LONGEST_S, in_another_process


@functools.cache
def measured() -> dict[str, list[Any]]:
    """Name -> [reason, adjustments, seconds of the processor, bytes above an ordinary photo]."""
    run = in_another_process("measure_all()", timeout=1200)
    assert run.returncode == 0, run.stderr
    found: dict[str, list[Any]] = json.loads(run.stdout)
    return found


def trials(_: Path) -> Callable[[int], Outcome]:
    """A function that measures all files, prints each, and says which takes too much."""

    def trial(_: int) -> Outcome:
        found = measured()
        outcome = Outcome(
            faults=len(found), longest_s=max(seconds for _, _, seconds, _ in found.values())
        )
        for name, (reason, _, seconds, memory) in sorted(
            found.items(), key=lambda item: item[1][3]
        ):
            print(f"{memory / 1e6:6.0f} MB {seconds:6.2f} s  {name}: {reason or 'converted'}")
            if seconds > LONGEST_S:
                outcome.problem(f"{name} takes {seconds} s")
        return outcome

    return trial
