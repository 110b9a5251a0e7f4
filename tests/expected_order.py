"""The examples of each step by `beam_tfr.order`, computed one by one.

Tests compare a reader with them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from beam_tfr.dataset.manifest import read_manifest
from beam_tfr.dataset.splits import select_examples
from beam_tfr.order import FILLER, WINDOW, Epoch, Order


def examples(order: Order, epoch: Epoch, step: int) -> list[int]:
    """The places in the epoch of a host's examples at a step; `FILLER` where there is none."""
    found = []
    for position in order.positions(step).tolist():
        index, stream = divmod(position, order.streams)
        window, slot = divmod(index, WINDOW)
        low = order.low(stream) + window * WINDOW
        size = min(WINDOW, order.low(stream + 1) - low)
        found.append(
            FILLER
            if position >= order.total
            else low + int(epoch.window(stream, window, size)[slot])
        )
    return found


def expected_steps(
    folder: Path,
    *,
    split: str = "train",
    shuffle: bool = False,
    seed: int = 0,
    epoch: int = 0,
    epochs: int = 1,
    start_step: int = 0,
    **options: Any,
) -> list[list[int]]:
    """The numbers of the examples at each step, in the split; `FILLER` where there is none."""
    selection = select_examples(read_manifest(str(folder)), split)
    order = Order(total=selection.total, **options)
    begins = [
        sum(part.take for part in selection.parts[:index]) for index in range(len(selection.parts))
    ]
    found = []
    for number in range(epochs):
        one = Epoch(
            [part.take for part in selection.parts],
            seed=seed if shuffle else None,
            number=epoch + number,
        )
        records = [
            begins[run.part] + record
            for run in one.runs(0, order.total)
            for record in range(run.skip, run.skip + run.take)
        ]
        for step in range(order.steps):
            if number * order.steps + step >= start_step:
                found.append(
                    [FILLER if at < 0 else records[at] for at in examples(order, one, step)]
                )
    return found
