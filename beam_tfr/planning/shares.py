"""Divides the images of a class among splits by fractions, in whole images.

Images that are already in a split stay there; only splits that lack images get more images.
"""

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction


def share_out(images: int, placed: Sequence[int], shares: Sequence[Fraction]) -> list[Fraction]:
    """Returns how many images each split gets, so that all splits are filled to the same level.

    A split that already has more than its share of all images gets no images; the other splits then
    lack images in proportion to their shares.

    For example, train should have 16 of 20 images, and has 14; test should have 4, and has none. Of
    the remaining 6 images, train gets 2, and test gets 4.

    Args:
        images: number of images to place.
        placed: number of images that each split already has.
        shares: fraction for each split, above 0.
    """
    levels = [has / share for has, share in zip(placed, shares, strict=True)]
    lowest = sorted(range(len(shares)), key=levels.__getitem__)
    filled = 0
    share_of_filled = Fraction(0)
    level = Fraction(0)
    for number, split in enumerate(lowest):
        filled += placed[split]
        share_of_filled += shares[split]
        level = (images + filled) / share_of_filled
        following = lowest[number + 1 : number + 2]
        if not following or level <= levels[following[0]]:
            break
    wanted = []
    for has, share in zip(placed, shares, strict=True):
        wanted.append(max(Fraction(0), level * share - has))
    return wanted


def round_shares(wanted: Sequence[Fraction], owed: Sequence[Fraction]) -> list[int]:
    """Rounds numbers, whose sum is a whole number, up or down, so that the sum stays the same.

    The numbers for which the fractional part plus `owed` is largest are rounded up.

    Args:
        wanted: the numbers, one per split.
        owed: how much earlier rounding took from each split.
    """
    numbers = [math.floor(number) for number in wanted]
    left = int(sum(wanted)) - sum(numbers)
    fractions = [number - math.floor(number) for number in wanted]
    claims = [split for split, fraction in enumerate(fractions) if fraction]
    claims.sort(key=lambda split: -(fractions[split] + owed[split]))
    for split in claims[:left]:
        numbers[split] += 1
    return numbers


def fill_empty(
    numbers: Sequence[int], placed: Sequence[int], shares: Sequence[Fraction]
) -> list[int]:
    """Gives each split an image of a class, if there are at least as many images as splits.

    Each image for an empty split is taken from the split that exceeds its share most.
    """
    filled = [*numbers]
    total = sum(numbers) + sum(placed)
    if total < len(shares):
        return filled
    for split in range(len(shares)):
        if filled[split] + placed[split]:
            continue
        donors = [
            donor for donor, number in enumerate(filled) if number and number + placed[donor] > 1
        ]
        if not donors:
            break
        surplus = {donor: filled[donor] + placed[donor] - total * shares[donor] for donor in donors}
        filled[max(donors, key=surplus.__getitem__)] -= 1
        filled[split] = 1
    return filled


class Divider:
    """A divider of images among splits by fractions, one class after another.

    Each split is within one image of its share of each class, and has an image of each class that
    has at least as many images as there are splits. Images that a split gains by rounding in one
    class are deducted in the next class, so that splits also get their shares of all images.

    Args:
        shares: split -> fraction; the sum may differ slightly from 1.
    """

    def __init__(self, shares: Mapping[str, Fraction]) -> None:
        total = sum(shares.values(), Fraction(0))
        self._parts = [share / total for share in shares.values()]
        self._splits = [*shares]
        self._owed = [Fraction(0)] * len(shares)

    def divide(self, images: int, placed: Mapping[str, int]) -> list[int]:
        """Returns how many images of the next class go to each split.

        Args:
            images: number of images to place.
            placed: split -> number of images that the split already has.
        """
        present = [placed[split] for split in self._splits]
        wanted = share_out(images, present, self._parts)
        rounded = round_shares(wanted, self._owed)
        numbers = fill_empty(rounded, present, self._parts)
        for place, (ideal, number) in enumerate(zip(wanted, numbers, strict=True)):
            self._owed[place] += ideal - number
        return numbers
