"""Processes large images in blocks of rows that share memory, so that no image is held twice."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

BLOCK = 1 << 20  # samples to process together


def row_blocks(height: int, row_samples: int) -> list[slice]:
    """Returns slices of rows that cover an image: each has one row, or at most `BLOCK` samples."""
    rows = max(1, BLOCK // max(1, row_samples))
    return [slice(top, min(top + rows, height)) for top in range(0, height, rows)]


def reuse_memory(shape: tuple[int, int, int], samples: NDArray[Any]) -> NDArray[np.uint8]:
    """Returns a uint8 array of the given shape, in the memory of the samples if they fit there.

    Rows written there in order never overwrite a later row of the samples, as long as a row of the
    result has no more bytes than a row of the samples.
    """
    if not samples.flags.carray or samples.nbytes < math.prod(shape):
        return np.empty(shape, np.uint8)
    memory = samples.reshape(-1).view(np.uint8)
    return memory[: math.prod(shape)].reshape(shape)
