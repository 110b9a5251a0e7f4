"""Finds out which of several training processes this is."""

from __future__ import annotations

import os
import sys

from beam_tfr.reader_arguments import integer
from beam_tfr.schema import UsageError


def rank_of(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """The rank of this process and how many there are: as given, else of torch.distributed, else of the environment.

    Raises:
        UsageError: they are wrong, or only one of them is given.
    """
    if (rank is None) != (world_size is None):
        raise UsageError(f"give both `rank=` and `world_size=`, or neither: got {rank} and {world_size}")
    if rank is None:
        distributed = sys.modules.get("torch.distributed")
        if distributed and distributed.is_available() and distributed.is_initialized():
            rank, world_size = distributed.get_rank(), distributed.get_world_size()
        elif {"RANK", "WORLD_SIZE"} <= os.environ.keys():
            found = os.environ["RANK"], os.environ["WORLD_SIZE"]
            if not all(text.isdecimal() for text in found):
                raise UsageError(
                    f"the environment variables RANK and WORLD_SIZE are {found}: give `rank=` and `world_size=`"
                )
            rank, world_size = map(int, found)
        else:
            rank, world_size = 0, 1
    world_size = integer("world_size", world_size, 1)
    rank = integer("rank", rank, 0)
    if rank >= world_size:
        raise UsageError(f"must be less than `world_size={world_size}`: ranks count from 0", option="rank", value=rank)
    return rank, world_size
