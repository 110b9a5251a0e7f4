"""Warns about classes whose ids differ from the class numbers in a table."""

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from beam_tfr.features.cells import members_of
from beam_tfr.schema.errors import BeamTfrError
from beam_tfr.schema.feature_names import LABEL, OBJECT_LABEL, OBJECT_TEXT, TEXT
from beam_tfr.tables.content import TableContent
from beam_tfr.tables.formats import read_first_rows

_FIRST_ROWS = 1_000
_NUMBERS_OF = {TEXT: LABEL, OBJECT_TEXT: OBJECT_LABEL}


def warn_of_other_ids(content: TableContent, class_texts: Iterable[Any]) -> Iterator[str]:
    """Yields a warning if ids differ from the numbers next to the classes in the first table.

    Args:
        content: the findings about the tables.
        class_texts: the classes of the first rows.
    """
    numbers = _NUMBERS_OF.get(content.options.label_column, "")
    if content.options.classes or content.read_rows or numbers not in content.columns:
        return
    number_of = _read_numbers(content, numbers)
    texts = (text for text in class_texts if text is not None)  # background images have none
    names = {str(text).strip() for text in texts} | {*number_of}
    if all(map(str.isdecimal, names)):  # numbers are sorted by value
        return
    for label_id, name in enumerate(sorted(names)):
        number = number_of.get(name, label_id)
        if number != label_id:
            yield (
                f"the column {numbers} is not stored: class {name} is {number} there, but "
                f"gets the id {label_id}, since classes are sorted by name and counted from 0; to "
                "choose the ids, give `classes=`, a file with a class on each line, starting with "
                "the id 0 (write a name such as unused for a number without a class)"
            )
            return


def _read_numbers(content: TableContent, numbers: str) -> Mapping[str, int]:
    """Returns class -> its number in the first rows.

    Args:
        content: the findings about the tables.
        numbers: the column of numbers.
    """
    number_of = dict[str, int]()
    columns = [content.options.label_column, numbers]
    with contextlib.suppress(BeamTfrError):  # reading the rows raises the same error
        for _, cells in read_first_rows(content.files[0], columns, _FIRST_ROWS):
            texts, row_numbers = map(members_of, cells)
            for text, number in zip(texts, row_numbers, strict=False):
                if isinstance(text, str) and isinstance(number, int):
                    number_of.setdefault(text.strip(), number)
    return number_of
