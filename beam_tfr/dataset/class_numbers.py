"""Tells classes that are numbers, and get other ids than these."""

import itertools
import re
from collections.abc import Sequence

_NUMBER = re.compile(r"-?[0-9]{1,15}(?:\.0+)?")
_MOST_IDS = 100_000  # in a file of classes


def describe_class_numbers(classes: Sequence[str], *, are_given: bool = False) -> str:
    """The message about classes that are numbers, but not their ids; empty if there are none.

    Folders named 0 to 42 are such classes, as texts have the order 0, 1, 10; and so are the labels
    1 to 196 of a table.

    Args:
        classes: in the order of their ids.
        are_given: whether an option, or what is read, gives the order.
    """
    if are_given or not all(map(_NUMBER.fullmatch, classes)):
        return ""
    numbers = [int(float(name)) for name in classes]
    for class_id, (number, following) in enumerate(itertools.pairwise(numbers)):
        if number > following:
            return (
                f"classes are numbers, but sorted as text: {classes[class_id]} comes before "
                f"{classes[class_id + 1]}, and the id of a class is not its number. A file of "
                "`classes=`, one in each line, sets their order"
            )
    for class_id, number in enumerate(numbers):
        if number != class_id:
            return (
                "classes are numbers, but ids are counted from 0 without gaps: class "
                f"{classes[class_id]} has the id {class_id}{_suggest_file(classes, numbers)}"
            )
    return ""


def _suggest_file(classes: Sequence[str], numbers: Sequence[int]) -> str:
    """What makes the numbers of classes their ids; empty if nothing does."""
    if numbers[0] < 0 or numbers[-1] > _MOST_IDS:
        return ""
    width = len(classes[0]) if len({*map(len, classes)}) == 1 else 1
    if [*classes] != [f"{number:0{width}}" for number in numbers]:
        return ""  # such as 007 beside 7 or 10
    last = classes[-1]
    return (
        f". A file of `classes=`, with all numbers from {0:0{width}} to {last}, one in each line, "
        "keeps them as ids"
    )
