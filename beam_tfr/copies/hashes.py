"""Measures distances between perceptual hashes, which `images.appearance` computes.

Mirroring an image inverts every second bit of its hash. A hash is therefore stored in two halves:
bits that stay the same, and bits that turn. The distance to a mirrored image can then be computed
from the same halves.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

HASH_BYTES = 32
HALF_BITS = 128
_STAYING = np.uint16(0x5555)  # the even frequencies among the 16 bits of a row
_TURNING = np.uint16(0xAAAA)

UInt64 = npt.NDArray[np.uint64]
Rows = npt.NDArray[np.int64]  # numbers of rows: int64 [n]
NO_ROWS: Rows = np.zeros(0, np.int64)


class Hashes(NamedTuple):
    """Perceptual hashes of some images.

    Attributes:
        staying: the bits that mirroring does not change: uint64 [images, 2].
        turning: the bits that mirroring inverts: uint64 [images, 2].
    """

    staying: UInt64
    turning: UInt64

    @classmethod
    def from_bytes(cls, hashes: npt.NDArray[np.uint8]) -> "Hashes":
        """Makes hashes from the bytes in the contents: uint8 [images, 32]."""
        rows = np.ascontiguousarray(hashes).view(">u2").astype(np.uint16)
        even = rows[:, 0::2]
        odd = rows[:, 1::2]
        staying = (even & _STAYING) | ((odd & _STAYING) << 1)
        turning = ((even & _TURNING) >> 1) | (odd & _TURNING)
        return cls(staying.view(np.uint64), turning.view(np.uint64))

    def __len__(self) -> int:  # the number of images; a tuple would count its fields
        return len(self.staying)

    def select(self, images: Rows) -> "Hashes":
        """Returns the hashes of some images."""
        return Hashes(self.staying[images], self.turning[images])

    def are_near(self, left: Rows, right: Rows, distance: int) -> npt.NDArray[np.bool_]:
        """Whether the images of each pair differ in at most `distance` bits, perhaps mirrored."""
        near = _count_differences(self.staying, left, right) <= distance
        candidates = np.flatnonzero(near)
        apart = self.distances(left[candidates], right[candidates])
        near[candidates] = apart <= distance
        return near

    def distances(self, left: Rows, right: Rows) -> Rows:
        """Counts the differing bits of each pair, with one image mirrored if fewer then differ."""
        staying = _count_differences(self.staying, left, right)
        turning = _count_differences(self.turning, left, right)
        return (staying + np.minimum(turning, HALF_BITS - turning)).astype(np.int64)


def _count_differences(half: UInt64, left: Rows, right: Rows) -> npt.NDArray[np.uint8]:
    """Counts the bits in which halves of hashes differ: uint8 [pairs]."""
    bits = np.take(half, left, axis=0)  # both words of an image together, since they are adjacent
    bits ^= np.take(half, right, axis=0)
    counts = np.bitwise_count(bits)
    differences: npt.NDArray[np.uint8] = counts[:, 0] + counts[:, 1]
    return differences
