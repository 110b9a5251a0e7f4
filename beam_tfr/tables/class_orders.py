"""Warns about tables that number classes differently from the first table."""

import contextlib
import re
from collections.abc import Iterator, Sequence

from beam_tfr.schema.errors import BeamTfrError
from beam_tfr.tables.content import TableContent
from beam_tfr.tables.foreign_paths import spread
from beam_tfr.tables.formats import read_class_names

_MOST_TABLES = 20  # tables whose classes are compared
_NUMBER = re.compile("[0-9]+")


def warn_of_class_orders(content: TableContent) -> Iterator[str]:
    """Yields a warning if tables declare a class, as ClassLabel does, with different numbers."""
    options = content.options
    if content.read_rows or not options.label_column or options.classes:
        return
    first = content.files[0]
    names = _read_names(first, options.label_column)
    for path in _choose_tables(content.files[1:]):
        others = _read_names(path, options.label_column)
        difference = _describe_difference(names, others)
        if difference:
            yield (
                f"{path} does not number its classes like {first}, whose numbers become the ids: "
                f"{difference}; to choose the ids, give `classes=`, a file with a class on each "
                "line"
            )
            return


def _choose_tables(files: Sequence[str]) -> Sequence[str]:
    """Selects tables to check: one per name, ignoring digits, and some other tables."""
    of_each_name = {_NUMBER.sub("", path): path for path in reversed(files)}
    chosen = [*reversed(of_each_name.values()), *spread(files, _MOST_TABLES)]
    return [*dict.fromkeys(chosen)][:_MOST_TABLES]


def _read_names(path: str, column: str) -> Sequence[str]:
    """Returns the classes that a table declares, in the order of their numbers."""
    with contextlib.suppress(BeamTfrError):  # reading its rows raises the same error
        return read_class_names(path, column)
    return ()


def _describe_difference(names: Sequence[str], others: Sequence[str]) -> str:
    """Describes the first class whose number differs from its number in the first table.

    The first table may also lack the class. If only one of the tables names classes, says that
    labels are used as they are. Returns an empty string if there is no difference.
    """
    if not names and not others:
        return ""
    if not names or not others:
        place = "former" if names else "latter"
        return f"the {place} has no names of classes, so labels are used as they are"
    number_of = {name: number for number, name in enumerate(names)}
    for number, name in enumerate(others):
        if number_of.get(name) != number:
            other = f"{number_of[name]}" if name in number_of else "missing"
            return f"class {name!r:.60} is {number} in the former, and {other} in the latter"
    return ""
