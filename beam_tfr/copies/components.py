"""Finds connected components: images that are linked directly or through others."""

import threading
from typing import Self

import numpy as np

from beam_tfr.copies.hashes import Rows


class Components:
    """The connected components of images, which are linked pair by pair.

    Several threads may use this object. The result does not depend on the order of the pairs.

    Args:
        number: number of images, which are not linked at first.

    Attributes:
        first: for each image, the first image of its component: int64 [images].
    """

    def __init__(self, number: int) -> None:
        self.first: Rows = np.arange(number)
        self._lock = threading.Lock()

    def copy(self) -> Self:
        """Returns components of the same images with the same links."""
        copied = type(self)(len(self.first))
        copied.first = self.first.copy()
        return copied

    def link(self, left: Rows, right: Rows) -> None:
        """Links the images of each pair."""
        with self._lock:
            first = self.first.copy()
            while True:
                left_first = first[left]
                right_first = first[right]
                differ = left_first != right_first
                if not differ.any():
                    break
                left = left[differ]
                right = right[differ]
                low = np.minimum(left_first, right_first)[differ]
                high = np.maximum(left_first, right_first)[differ]
                np.minimum.at(first, high, low)
                first = _follow(first)
            self.first = first

    def link_equal(self, values: Rows, images: Rows) -> None:
        """Links images that have the same value.

        Args:
            values: the value of each image.
            images: the images.
        """
        order = np.argsort(values, kind="stable")
        ordered = values[order]
        same = np.flatnonzero(ordered[1:] == ordered[:-1])
        self.link(images[order[same]], images[order[same + 1]])


def _follow(first: Rows) -> Rows:
    """Follows links until each image points to the first image of its component."""
    while True:
        following = first[first]
        if np.array_equal(following, first):
            return first
        first = following
