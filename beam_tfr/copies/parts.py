"""Finds copies part by part, so that no machine needs all images of a dataset.

An image is put into the parts that hold its buckets (see `near`) for each band of its hash, and
into a part that is chosen by the checksum of its source. Copies share at least one part. Each part
yields pairs of images, as numbers of records. `clusters` makes clusters from the pairs of all parts
and needs only the images that have copies.
"""

import functools
from collections.abc import Iterable, Iterator
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from beam_tfr.copies import near
from beam_tfr.copies.clusters import link_different, number_equal
from beam_tfr.copies.components import Components
from beam_tfr.copies.hashes import HASH_BYTES, NO_ROWS, Hashes, Rows
from beam_tfr.copies.images import HashedImages

_ROW_BYTES = 8


class Parts(NamedTuple):
    """The division of a dataset's images into parts.

    Attributes:
        distance: number of bits by which the hashes of near copies may differ; None to compare
            only bytes.
        in_band: number of parts for each band, and for the checksums; a power of two.
    """

    distance: int | None
    in_band: int

    @classmethod
    def choose(cls, images: int, distance: int | None) -> Self:
        """Chooses parts small enough for a worker, given the total number of images."""
        most_bits = near.MOST_DISTANCE if distance is None else distance
        return cls(distance, near.count_parts(images, most_bits))

    @property
    def _bands(self) -> int:
        return 0 if self.distance is None else near.count_bands(self.distance)

    def divide(self, images: HashedImages, first: int) -> Iterator[tuple[int, bytes]]:
        """Yields (part, packed images) for some images.

        Args:
            images: the images of consecutive records.
            first: number of the first record.
        """
        rows = np.arange(first, first + images.number)
        with_source = np.flatnonzero(images.has_source)
        sources = images.sources[with_source]
        words = sources[:, :4].copy().view(np.uint32).ravel()
        for place, chosen in _group((words % self.in_band).astype(np.int64)):
            number = self._bands * self.in_band + place
            yield number, _pack(rows[with_source[chosen]], sources[chosen])
        if self.distance is None:
            return
        compared = np.flatnonzero(images.is_compared)
        hashes = images.hashes[compared]
        for band in range(self._bands):
            found, places = near.find_parts(
                Hashes.from_bytes(hashes), self.distance, band, self.in_band
            )
            for place, chosen in _group(places):
                members = found[chosen]
                yield band * self.in_band + place, _pack(rows[compared[members]], hashes[members])

    def link(self, part: int, packs: Iterable[bytes]) -> "Pairs":
        """Finds the copies in a part, given its packed images in any order."""
        rows, hashes = _unpack(packs)
        band, place = divmod(part, self.in_band)
        distance = self.distance
        if band == self._bands or distance is None:
            components = Components(len(rows))
            components.link_equal(number_equal(hashes), np.arange(len(rows)))
            return Pairs(_list_pairs(rows, components.first), _NO_PAIRS, NO_ROWS)

        link = functools.partial(
            near.link_in_part,
            distance=distance,
            band=band,
            number_of_parts=self.in_band,
            part=place,
        )
        linked = link_different(hashes, link)
        return Pairs(_NO_PAIRS, _list_pairs(rows, linked.first), rows[linked.is_crowded])


class Pairs(NamedTuple):
    """Pairs of images that are copies of each other, as numbers of records: int64 [pairs, 2].

    Attributes:
        equal: pairs of images with equal bytes.
        near: pairs of images with similar hashes, or linked by such pairs.
        crowded: images that may have more copies, because too many other images look like them:
            int64 [n].
    """

    equal: Rows
    near: Rows
    crowded: Rows

    @classmethod
    def join(cls, parts: Iterable["Pairs"]) -> Self:
        """Joins the pairs of all parts."""
        parts = [*parts]
        equal = [_NO_PAIRS, *(part.equal for part in parts)]
        nearby = [_NO_PAIRS, *(part.near for part in parts)]
        crowded = [NO_ROWS, *(part.crowded for part in parts)]
        return cls(
            np.concatenate(equal), np.concatenate(nearby), np.unique(np.concatenate(crowded))
        )

    def list_rows(self) -> Rows:
        """Returns the numbers of all images that are in pairs or crowded, sorted."""
        return np.unique(np.concatenate([self.equal.ravel(), self.near.ravel(), self.crowded]))


_NO_PAIRS: Rows = np.zeros((0, 2), np.int64)


def _group(values: Rows) -> Iterator[tuple[int, Rows]]:
    """Yields each value and the places where it occurs."""
    order = np.argsort(values, kind="stable")
    changes = np.flatnonzero(np.diff(values[order])) + 1
    for places in np.split(order, changes):
        if len(places):
            yield int(values[places[0]]), places


def _list_pairs(rows: Rows, first: Rows) -> Rows:
    """Pairs each image with the first of the images to which it is linked."""
    linked = np.flatnonzero(first != np.arange(len(first)))
    return np.stack([rows[linked], rows[first[linked]]], axis=1)


def _pack(rows: Rows, hashes: npt.NDArray[np.uint8]) -> bytes:
    """Packs numbers of records, and a hash for each record."""
    return rows.astype("<i8").tobytes() + hashes.tobytes()


def _unpack(packs: Iterable[bytes]) -> tuple[Rows, npt.NDArray[np.uint8]]:
    """Unpacks the numbers of records and the hashes, in the order of the numbers."""
    rows = [NO_ROWS]
    hashes = [np.zeros((0, HASH_BYTES), np.uint8)]
    for packed in packs:
        number = len(packed) // (_ROW_BYTES + HASH_BYTES)
        rows.append(np.frombuffer(packed, "<i8", number))
        values = np.frombuffer(packed, np.uint8, offset=_ROW_BYTES * number)
        hashes.append(values.reshape(number, HASH_BYTES))
    joined = np.concatenate(rows)
    order = np.argsort(joined)
    return joined[order], np.concatenate(hashes)[order]
