"""Blocks of rows, in which large images are processed.

So they are never held twice.
"""

BLOCK = 1 << 20  # samples processed at once


def row_blocks(height: int, row_samples: int) -> list[slice]:
    """Slices of rows that cover an image.

    Each has at most `BLOCK` samples, or one row.
    """
    rows = max(1, BLOCK // max(1, row_samples))
    return [slice(top, min(top + rows, height)) for top in range(0, height, rows)]
