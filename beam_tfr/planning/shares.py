"""Divides the images of a class among splits by fractions, in whole images.

Images that are in a split stay there: only splits that lack images get more.
"""

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction


def share_out(images: int, placed: Sequence[int], shares: Sequence[Fraction]) -> list[Fraction]:
    """Returns how many of some images each split gets, so that all are filled to the same level.

    A split that already has more than its share of all images gets none, and the others lack
    equally many in the end.

    For example, there are 20 images; train has 14 of its 16, and test 0 of its 4. Of the other 6,
    train gets 2 and test 4.

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
    """Rounds numbers with a whole sum, each up or down, so that the sum stays the same.

    The numbers with the largest fractional parts are rounded up; among equals, those of the splits
    that are owed most.

    Args:
        wanted: the numbers, one per split.
        owed: how much earlier rounding took from each split; added to its fractional part.
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
    """Gives each split an image of a class with at least as many images as there are splits.

    Each such image is taken from the split that exceeds its share most.
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
    """A divider of the images of one class after another among splits, by fractions.

    Each split is within one image of its share of each class, and has an image of each class that
    has at least as many images as there are splits. Images that a split gains by rounding in one
    class are deducted in the next, so that splits get their shares of all images too.

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
            placed: split -> number of images that it already has.
        """
        present = [placed[split] for split in self._splits]
        wanted = share_out(images, present, self._parts)
        rounded = round_shares(wanted, self._owed)
        numbers = fill_empty(rounded, present, self._parts)
        for place, (ideal, number) in enumerate(zip(wanted, numbers, strict=True)):
            self._owed[place] += ideal - number
        return numbers
