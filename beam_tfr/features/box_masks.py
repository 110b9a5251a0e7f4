"""Decodes the masks of an image's boxes for readers."""

import operator
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from beam_tfr.features.gray_png import decode_mask

MOST_WHOLE_PIXELS = 1 << 28  # 268 million, for all masks of an image in memory together


class BoxMasks:
    """Masks that are decoded one by one, on access.

    Readers return them instead of an array if all masks of an image together have more than
    `MOST_WHOLE_PIXELS` pixels. Like an array, they have a length and a `shape`, can be iterated
    over, and can be indexed; a slice holds several masks, which are again decoded one by one.

    Args:
        pngs: the masks as stored.
        size: (height, width) of each mask.
    """

    def __init__(self, pngs: Sequence[bytes], size: tuple[int, int]) -> None:
        self._pngs = [*pngs]
        self._size = size

    @property
    def shape(self) -> tuple[int, int, int]:
        """The shape as (masks, height, width)."""
        return len(self._pngs), *self._size

    def __len__(self) -> int:
        return len(self._pngs)

    def __iter__(self) -> Iterator[NDArray[np.uint8]]:
        return (decode_mask(png, self._size) for png in self._pngs)

    def __getitem__(self, index: int | slice) -> "NDArray[np.uint8] | BoxMasks":
        """Returns the mask of a box, uint8 [height, width] of 0 and 1, or the masks of a slice.

        Raises:
            ValueError: the mask cannot be decoded.
        """
        if isinstance(index, slice):
            return BoxMasks(self._pngs[index], self._size)
        return decode_mask(self._pngs[operator.index(index)], self._size)


def read_masks(pngs: Sequence[bytes], size: tuple[int, int]) -> NDArray[np.uint8] | BoxMasks:
    """Reads the masks of an image: uint8 [masks, height, width], or `BoxMasks` for large masks.

    Raises:
        ValueError: a mask cannot be decoded.
    """
    masks = BoxMasks(pngs, size)
    height, width = size
    if len(masks) * height * width > MOST_WHOLE_PIXELS:
        return masks
    whole = np.zeros(masks.shape, np.uint8)
    for number, mask in enumerate(masks):
        whole[number] = mask
    return whole
