"""Describes classes whose names are numbers that differ from the ids of the classes."""

import itertools
import re
from collections.abc import Sequence

_NUMBER = re.compile(r"-?[0-9]{1,15}(?:\.0+)?")
_MOST_IDS = 100_000  # in a file of classes


def describe_class_numbers(classes: Sequence[str], *, are_given: bool = False) -> str:
    """Returns a message if class names are numbers that differ from the ids, or an empty string.

    Folders named 0 to 42 are one example, because they are sorted as text: 0, 1, 10. The labels 1
    to 196 in a table are another.

    Args:
        classes: classes in the order of their ids.
        are_given: whether an option, or the data itself, defines the order.
    """
    if are_given or not all(map(_NUMBER.fullmatch, classes)):
        return ""
    numbers = [int(float(name)) for name in classes]
    for class_id, (number, following) in enumerate(itertools.pairwise(numbers)):
        if number > following:
            return (
                f"classes are numbers, but sorted as text: {classes[class_id]} comes before "
                f"{classes[class_id + 1]}, so the id of a class is not its number. To set their "
                "order, list them in a file for `classes=`, one per line"
            )
    for class_id, number in enumerate(numbers):
        if number != class_id:
            return (
                "classes are numbers, but ids are counted from 0 without gaps: class "
                f"{classes[class_id]} has the id {class_id}{_suggest_file(classes, numbers)}"
            )
    return ""


def _suggest_file(classes: Sequence[str], numbers: Sequence[int]) -> str:
    """Returns how to make ids equal to class names, or an empty string if that is impossible."""
    if numbers[0] < 0 or numbers[-1] > _MOST_IDS:
        return ""
    width = len(classes[0]) if len({*map(len, classes)}) == 1 else 1
    if [*classes] != [f"{number:0{width}}" for number in numbers]:
        return ""  # such as 007 beside 7 or 10
    last = classes[-1]
    return (
        f". To keep the numbers as ids, list all numbers from {0:0{width}} to {last} in a file for "
        "`classes=`, one per line"
    )
