"""Blocks of rows, in which large images are processed, and the memory that they share.

So they are never held twice.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

BLOCK = 1 << 20  # samples processed at once


def row_blocks(height: int, row_samples: int) -> list[slice]:
    """Slices of rows that cover an image.

    Each has at most `BLOCK` samples, or one row.
    """
    rows = max(1, BLOCK // max(1, row_samples))
    return [slice(top, min(top + rows, height)) for top in range(0, height, rows)]


def reuse_memory(shape: tuple[int, int, int], samples: NDArray[Any]) -> NDArray[np.uint8]:
    """Memory for uint8 of a shape: the beginning of that of some samples, if possible.

    Rows that are written there in order overwrite no row of the samples that comes later, where a
    row of the result has no more bytes than one of the samples.
    """
    if not samples.flags.carray or samples.nbytes < math.prod(shape):
        return np.empty(shape, np.uint8)
    memory = samples.reshape(-1).view(np.uint8)
    return memory[: math.prod(shape)].reshape(shape)
