"""Chooses the ids in COCO files: the ids in the sources if they are known, or numbers from 1.

No category has the id 0, because programs take it for the background.
"""

from collections.abc import Iterable

_LONGEST = 18  # digits of an id


def choose_category_ids(known: Iterable[tuple[int, int]], number: int) -> list[int]:
    """Chooses the category id for each label.

    Args:
        known: labels of objects, with the category ids in their sources.
        number: number of labels. A label without objects gets the first free id.
    """
    ids = dict[int, int]()
    for label, category_id in known:
        if ids.setdefault(label, category_id) != category_id:
            return _count_from_1(number)  # several sources with other ids
    are_distinct = len({*ids.values()}) == len(ids)
    if not are_distinct or min(ids.values(), default=1) < 1:
        return _count_from_1(number)
    taken = {*ids.values()}
    free = (candidate for candidate in range(1, number + len(taken) + 1) if candidate not in taken)
    return [ids[label] if label in ids else next(free) for label in range(number)]


def _count_from_1(number: int) -> list[int]:
    return [*range(1, number + 1)]


def choose_image_ids(texts: Iterable[str | None]) -> list[int]:
    """Chooses the ids of images: their source ids if these are different whole numbers.

    Args:
        texts: the source id of each image; None if the id is unknown.
    """
    ids = list[int]()
    are_numbers = True
    for text in texts:
        number = _parse_id(text)
        are_numbers = are_numbers and number is not None
        ids.append(number or 0)
    if are_numbers and len({*ids}) == len(ids):
        return ids
    return _count_from_1(len(ids))


def _parse_id(text: str | None) -> int | None:
    """Returns the whole number that a string spells; None if it spells none of up to 18 digits."""
    if text is None or not text.isascii() or not text.isdigit() or len(text) > _LONGEST:
        return None
    number = int(text)
    return number if str(number) == text else None
