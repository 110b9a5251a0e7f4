"""Finds near copies: images whose hashes differ by at most a given number of bits.

Comparing every image with every other would take too long. The bits of a hash are therefore divided
into so many bands that two near hashes differ by at most two bits in at least one band (see Qin et
al., "GPH: Similarity Search in Hamming Space", 2018). For each band, an image is put into the
bucket for its bits in this band, and into the buckets for these bits with one of them inverted.
Images whose bits differ by at most two in a band then share a bucket. Only images that share a
bucket are compared, and no pair is missed.

If thousands of images share a bucket, comparing all pairs would take hours. Each image is then
compared with only some of the others, and all images of such buckets are compared again using other
bands, which divide the bits differently. Pairs of images that share such large buckets in bands of
both kinds may be missed; these images are reported.
"""

import concurrent.futures
import functools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from beam_tfr.copies.components import Components
from beam_tfr.copies.hashes import HALF_BITS, NO_ROWS, Hashes, Rows, UInt64

MOST_DISTANCE = 48  # from 46 on, different photos are as near as copies
_BAND_DIFFERENCES = 2  # bits in which bands of near hashes may differ
_FEWEST_BANDS = 8  # keeps bands to at most 32 bits
_STEP = 37  # between the bits of a band, since neighboring bits are alike
_TASK_KEYS = 1 << 23  # buckets that a thread sorts in one go: 64 MiB
_COMPARED_PAIRS = 1 << 18  # pairs to compare in one go, which stay in the processor's cache
# The most images in a bucket to compare all pairs; of 100 million random hashes, 600 share one.
MOST_IN_BUCKET = 1024
_THREADS = 2


class _Bit(NamedTuple):
    """A bit of a hash: the half, the word in the half, and the number of the bit in the word."""

    turns: bool
    word: int
    number: int


class Linked(NamedTuple):
    """The images that are near copies, directly or through others.

    Attributes:
        first: for each image, the first image of its component: int64 [images].
        is_crowded: whether an image may have more copies, because too many other images look like
            it: bool [images].
    """

    first: Rows
    is_crowded: npt.NDArray[np.bool_]


class _Comparison(NamedTuple):
    """Compares images, and links those whose hashes differ by at most `distance` bits."""

    hashes: Hashes
    components: Components
    distance: int

    def link(self, images: Rows, left: Rows, right: Rows) -> None:
        """Links the images of each pair of places if the images are near and not linked yet."""
        for begin in range(0, len(left), _COMPARED_PAIRS):
            pairs = slice(begin, begin + _COMPARED_PAIRS)
            one = images[left[pairs]]
            other = images[right[pairs]]
            are_apart = self.components.first[one] != self.components.first[other]
            one = one[are_apart]
            other = other[are_apart]
            near = self.hashes.are_near(one, other, self.distance)
            if near.any():
                self.components.link(one[near], other[near])


def link_near(hashes: Hashes, distance: int) -> Linked:
    """Finds images that are near copies, directly or through others.

    Args:
        hashes: the hashes of the images.
        distance: number of bits by which two near hashes may differ.
    """
    comparison = _Comparison(hashes, Components(len(hashes)), distance)
    crowded = _link_by_bands(comparison, choose_bands(distance))
    return _link_crowded(comparison, crowded)


def _link_by_bands(comparison: _Comparison, bands: Sequence[Sequence[_Bit]]) -> Rows:
    """Links near images that share a bucket in a band; returns images in crowded buckets."""
    crowded = [NO_ROWS]
    number_of_parts = count_parts(len(comparison.hashes), comparison.distance)
    with concurrent.futures.ThreadPoolExecutor(_THREADS) as pool:
        for band in bands:
            values = _Band(comparison.hashes, band)
            link = functools.partial(_link_part, comparison, values, number_of_parts)
            crowded += pool.map(link, range(number_of_parts))
    return np.unique(np.concatenate(crowded))


def _link_crowded(comparison: _Comparison, crowded: Rows) -> Linked:
    """Links images from crowded buckets by other bands.

    Near images that share a bucket in the first bands are already linked.
    """
    components = comparison.components
    distance = comparison.distance
    is_crowded = np.zeros(len(comparison.hashes), bool)
    if len(crowded):
        some = comparison.hashes.select(crowded)
        among_them = _Comparison(some, Components(len(crowded)), distance)
        still_crowded = _link_by_bands(among_them, _choose_other_bands(distance))
        components.link(crowded, crowded[among_them.components.first])
        is_crowded[crowded[still_crowded]] = True
    return Linked(components.first, is_crowded)


def link_in_part(
    hashes: Hashes, distance: int, band: int, number_of_parts: int, part: int
) -> Linked:
    """Finds near copies among images that share a bucket in one part of a band.

    Args:
        hashes: the hashes of the images.
        distance: number of bits by which two near hashes may differ.
        band: number of the band.
        number_of_parts: number of parts into which the buckets of a band are divided, a power of
            two.
        part: number of the part.
    """
    comparison = _Comparison(hashes, Components(len(hashes)), distance)
    values = _Band(hashes, choose_bands(distance)[band])
    crowded = _link_part(comparison, values, number_of_parts, part)
    return _link_crowded(comparison, crowded)


def find_parts(hashes: Hashes, distance: int, band: int, number_of_parts: int) -> tuple[Rows, Rows]:
    """Finds the parts of a band that hold the buckets of images, for `link_in_part`.

    Returns:
        Two arrays, int64 [n]: images, and the parts that hold their buckets, without repeated
        pairs.
    """
    chosen = list[Rows]()
    images = np.arange(len(hashes))
    for buckets in _Band(hashes, choose_bands(distance)[band]).buckets():
        parts = (buckets & np.uint64(number_of_parts - 1)).astype(np.int64)
        chosen.append(images * number_of_parts + parts)
        if number_of_parts == 1:
            break
    found = np.unique(np.concatenate(chosen))
    return found // number_of_parts, found % number_of_parts


def count_bands(distance: int) -> int:
    """Returns the number of bands into which a hash is divided for a distance."""
    return max(_FEWEST_BANDS, distance // (_BAND_DIFFERENCES + 1) + 1)


def choose_bands(distance: int) -> list[Sequence[_Bit]]:
    """Divides the bits of a hash into bands for a distance.

    If two hashes differed by three bits or more in each of n bands, they would differ by 3n bits or
    more.
    """
    number = count_bands(distance)
    bits = _list_bits()
    ends = [len(bits) * (band + 1) // number for band in range(number)]
    begins = [0, *ends[:-1]]
    return [bits[begin:end] for begin, end in zip(begins, ends, strict=True)]


def _choose_other_bands(distance: int) -> list[Sequence[_Bit]]:
    """Divides the bits into other bands, each with some bits from all bands of `choose_bands`."""
    number = count_bands(distance)
    bits = _list_bits()
    return [bits[band::number] for band in range(number)]


def _list_bits() -> list[_Bit]:
    """Lists the bits of a hash, in an order in which adjacent bits have little in common."""
    bits = list[_Bit]()
    for turns in (False, True):
        for index in range(HALF_BITS):
            word, bit = divmod(index * _STEP % HALF_BITS, 64)
            bits.append(_Bit(turns, word, bit))
    return bits


def count_parts(images: int, distance: int) -> int:
    """Returns the number of parts, a power of two, into which the buckets of a band are divided."""
    longest = max(map(len, choose_bands(distance)))
    keys = images * (1 + longest)
    parts = 1
    while parts * _TASK_KEYS < keys:
        parts *= 2
    return parts


class _Band:
    """A band of the hashes of all images.

    Attributes:
        size: number of bits in the band.
        own: the bucket of each image and its mirror image: uint64 [images].
    """

    def __init__(self, hashes: Hashes, bits: Sequence[_Bit]) -> None:
        self.size = len(bits)
        self._mirror = np.uint64(0)  # the bits that turn
        self._values = np.zeros(len(hashes), np.uint64)
        for place, bit in enumerate(bits):
            half = hashes.turning if bit.turns else hashes.staying
            isolated = (half[:, bit.word] >> np.uint64(bit.number)) & np.uint64(1)
            self._values |= isolated << np.uint64(place)
            if bit.turns:
                self._mirror |= np.uint64(1 << place)
        self.own: UInt64 = np.minimum(self._values, self._values ^ self._mirror)

    def buckets(self) -> Iterator[UInt64]:
        """Yields the buckets of all images, then, for each bit, the buckets with it inverted."""
        yield self.own
        for place in range(self.size):
            values = self._values ^ np.uint64(1 << place)
            yield np.minimum(values, values ^ self._mirror)


def _link_part(comparison: _Comparison, band: _Band, number_of_parts: int, part: int) -> Rows:
    """Links near images that share a bucket in one part of the buckets.

    Returns:
        The images in buckets that are too large to compare all pairs.
    """
    image_bits = max(1, len(comparison.hashes) - 1).bit_length()
    keys = _sort_part(band, image_bits, number_of_parts, part)
    images = (keys & np.uint64((1 << image_bits) - 1)).astype(np.int64)
    keys >>= np.uint64(image_bits)
    places = _leave_out_alike(keys, images, band.own)
    crowded = images[_find_crowded(keys, places)]
    comparison.link(images, places, places + 1)
    single, mixed = _sort_out_buckets(keys, images, places, comparison.components)
    _link_each(comparison, keys, images, single)
    is_mixed = np.zeros(len(keys), bool)
    is_mixed[mixed] = True
    is_mixed[mixed + 1] = True
    _link_blocks(comparison, keys[is_mixed], images[is_mixed])
    return crowded


def _sort_part(band: _Band, image_bits: int, number_of_parts: int, part: int) -> UInt64:
    """Returns the pairs of a bucket in one part and an image in the bucket, sorted: uint64 [n]."""
    chosen = list[UInt64]()
    numbers: UInt64 | None = None
    for buckets in band.buckets():
        if numbers is None:
            numbers = np.arange(len(buckets), dtype=np.uint64)
        keys = (buckets << np.uint64(image_bits)) | numbers
        if number_of_parts > 1:
            keys = keys[(buckets & np.uint64(number_of_parts - 1)) == part]
        chosen.append(keys)
    joined = np.concatenate(chosen)
    joined.sort()
    return joined


def _leave_out_alike(keys: UInt64, images: Rows, own: UInt64) -> Rows:
    """Returns the places at which a bucket continues, except in buckets of images with equal bands.

    Images with equal bands share all of their buckets. They are compared only in their own bucket.

    Args:
        keys: the bucket at each place, sorted.
        images: the image at each place.
        own: each image's own bucket.
    """
    places = np.flatnonzero(keys[1:] == keys[:-1])
    if not len(places):
        return places
    own_of_places = own[images[places]]
    is_own = own_of_places == keys[places]
    differ = own_of_places != own[images[places + 1]]
    begins, lengths = _divide_places(keys, places)
    is_compared: npt.NDArray[np.bool_] = np.logical_or.reduceat(is_own | differ, begins)
    compared: Rows = places[np.repeat(is_compared, lengths)]
    return compared


def _find_crowded(keys: UInt64, places: Rows) -> Rows:
    """Returns the places in buckets with more than `MOST_IN_BUCKET` images.

    Args:
        keys: the bucket at each place, sorted.
        places: the places at which a bucket continues.
    """
    if not len(places):
        return places
    _, lengths = _divide_places(keys, places)
    crowded = places[np.repeat(lengths >= MOST_IN_BUCKET, lengths)]
    return np.unique(np.concatenate([crowded, crowded + 1]))


def _divide_places(keys: UInt64, places: Rows) -> tuple[Rows, Rows]:
    """Returns the index in `places` where each bucket begins, and its number of places."""
    begins = np.flatnonzero(keys[places[1:]] != keys[places[:-1]]) + 1
    begins = np.insert(begins, 0, 0)
    return begins, np.diff(begins, append=len(places))


def _sort_out_buckets(
    keys: UInt64, images: Rows, places: Rows, components: Components
) -> tuple[Rows, Rows]:
    """Separates buckets in which no neighbors are linked from those in which only some are.

    Args:
        keys: the bucket at each place, sorted.
        images: the image at each place.
        places: the places at which a bucket continues.

    Returns:
        The places in buckets without linked neighbors, and those in buckets where some, but not
        all, neighbors are linked.
    """
    if not len(places):
        return places, places
    first = components.first
    is_linked = first[images[places]] == first[images[places + 1]]
    begins, lengths = _divide_places(keys, places)
    are_all_linked = np.repeat(np.logical_and.reduceat(is_linked, begins), lengths)
    are_any_linked = np.repeat(np.logical_or.reduceat(is_linked, begins), lengths)
    return places[~are_any_linked], places[are_any_linked & ~are_all_linked]


def _link_each(comparison: _Comparison, keys: UInt64, images: Rows, places: Rows) -> None:
    """Compares each image in a bucket with all others except its neighbors, in several steps.

    Args:
        keys: the bucket at each place, sorted.
        images: the image at each place.
        places: the places whose images are compared with those that follow in the bucket.
    """
    for step in range(2, MOST_IN_BUCKET):
        if not len(places):
            return
        places = places[places + step < len(keys)]
        places = places[keys[places] == keys[places + step]]
        comparison.link(images, places, places + step)


def _link_blocks(comparison: _Comparison, keys: UInt64, images: Rows) -> None:
    """Compares each image in a bucket with images that are not linked to it yet, in several steps.

    Linked images are placed next to each other, so that hundreds of copies in a bucket are not
    compared with each other.

    Args:
        keys: the bucket at each place.
        images: the image at each place.
    """
    first = comparison.components.first[images]
    order = np.lexsort((first, keys))
    keys = keys[order]
    images = images[order]
    first = first[order]
    is_other_bucket = keys[1:] != keys[:-1]
    bucket_ends = _find_ends(is_other_bucket)
    following = _find_ends(is_other_bucket | (first[1:] != first[:-1]))
    places = np.flatnonzero(following < bucket_ends)
    following = following[places]
    bucket_ends = bucket_ends[places]
    for _ in range(MOST_IN_BUCKET):
        if not len(places):
            return
        comparison.link(images, places, following)
        following = following + 1
        goes_on = following < bucket_ends
        places = places[goes_on]
        following = following[goes_on]
        bucket_ends = bucket_ends[goes_on]


def _find_ends(changes: npt.NDArray[np.bool_]) -> Rows:
    """Returns where each place's run ends, given whether the next place starts another run."""
    ends = np.concatenate([np.flatnonzero(changes) + 1, [len(changes) + 1]])
    lengths = np.diff(np.concatenate([[0], ends]))
    repeated: Rows = np.repeat(ends, lengths)
    return repeated
