"""What the arguments of `ImageDataset` may be."""

from __future__ import annotations

import os
import sys

from beam_tfr.checks import integer
from beam_tfr.schema import UsageError


def place(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """Which of how many processes this is."""
    if (rank is None) != (world_size is None):
        raise UsageError(f"rank {rank} and world_size {world_size}: give both, or none of them")
    if rank is None:
        distributed = sys.modules.get("torch.distributed")
        if distributed and distributed.is_available() and distributed.is_initialized():
            rank, world_size = distributed.get_rank(), distributed.get_world_size()
        elif {"RANK", "WORLD_SIZE"} <= os.environ.keys():
            found = os.environ["RANK"], os.environ["WORLD_SIZE"]
            if not all(text.isdecimal() for text in found):
                raise UsageError(f"RANK and WORLD_SIZE of the environment are {found}: give rank and world_size")
            rank, world_size = map(int, found)
        else:
            rank, world_size = 0, 1
    world_size = integer("world_size", world_size, 1)
    rank = integer("rank", rank, 0)
    if rank >= world_size:
        raise UsageError(f"rank {rank} must be less than world_size {world_size}: ranks count from 0")
    return rank, world_size
