"""Shares out the images of a class among splits, in whole images.

Only what is short gets more: images that are in a split already stay there.
"""

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction


def share_out(images: int, placed: Sequence[int], shares: Sequence[Fraction]) -> list[Fraction]:
    """How many of some images each split gets, so that all are filled to the same level.

    A split that has more than its share of all images gets none, and the others are equally short.

    20 images, of which train has 14 of its 16, and test 0 of its 4: of the other 6, train gets 2
    and test 4.

    Args:
        images: how many there are to place.
        placed: images that each split has already.
        shares: share of each split, above 0.
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
    """Rounds numbers that add up to a whole one, each up or down, so that they still do.

    The largest fractions are rounded up; of equal ones, those of the splits that are owed most.

    Args:
        wanted: the numbers, one for each split.
        owed: what earlier rounding took from each split, which is added to its fraction.
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
    """Gives each split an image of a class that has as many images as splits.

    It comes from the split that has most beyond its share.
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
    """Divides the images of one class after another among splits, by their shares.

    A class is within one image of its share in each split, and is in each if it has as many images
    as splits. What rounding gives to a split in one class it takes in the next, so the splits have
    their shares of all images too.

    Args:
        shares: split -> share; they may add up to little more or less than 1.
    """

    def __init__(self, shares: Mapping[str, Fraction]) -> None:
        total = sum(shares.values(), Fraction(0))
        self._parts = [share / total for share in shares.values()]
        self._splits = [*shares]
        self._owed = [Fraction(0)] * len(shares)

    def divide(self, images: int, placed: Mapping[str, int]) -> list[int]:
        """How many images of the next class go to each split.

        Args:
            images: how many there are to place.
            placed: split -> images that are in it already.
        """
        present = [placed[split] for split in self._splits]
        wanted = share_out(images, present, self._parts)
        rounded = round_shares(wanted, self._owed)
        numbers = fill_empty(rounded, present, self._parts)
        for place, (ideal, number) in enumerate(zip(wanted, numbers, strict=True)):
            self._owed[place] += ideal - number
        return numbers
