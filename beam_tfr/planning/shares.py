"""Shares out the images of a class among splits, in whole images.

Only what is short gets more: images that are in a split already stay there.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple


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


class ClassTally(NamedTuple):
    """The images of a class.

    Attributes:
        name: of the class.
        images: how many there are to place.
        placed: those that each split has already.
    """

    name: str
    images: int
    placed: Sequence[int]


def share_classes(
    tallies: Iterable[ClassTally], shares: Mapping[str, Fraction], *, fills_empty: bool
) -> dict[str, list[int]]:
    """How many images of each class go to each split: class -> numbers, in the order of `shares`.

    A class is within one image of its share in each split. What rounding gives to a split in one
    class it takes in the next, so the splits have their shares of all images too.

    Args:
        tallies: of all classes, in an order that is always the same.
        shares: split -> share; they may add up to little more or less than 1.
        fills_empty: whether each split gets an image of a class that has as many as splits.
    """
    total = sum(shares.values(), Fraction(0))
    parts = [share / total for share in shares.values()]
    owed = [Fraction(0)] * len(parts)
    numbers_of = dict[str, list[int]]()
    for tally in tallies:
        wanted = share_out(tally.images, tally.placed, parts)
        numbers = round_shares(wanted, owed)
        if fills_empty:
            numbers = fill_empty(numbers, tally.placed, parts)
        for split, number in enumerate(numbers):
            owed[split] += wanted[split] - number
        numbers_of[tally.name] = numbers
    return numbers_of
