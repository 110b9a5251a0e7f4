"""Blocks of rows, in which large images are processed, so that they are never held twice."""

BLOCK = 1 << 20  # samples processed at once


def row_blocks(height: int, row_samples: int) -> list[slice]:
    """Slices of rows that cover an image, of at most `BLOCK` samples if one row has no more."""
    rows = max(1, BLOCK // max(1, row_samples))
    return [slice(top, min(top + rows, height)) for top in range(0, height, rows)]
