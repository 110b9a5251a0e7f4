"""Describes what columns may hold, and reads the first rows to find out."""

import contextlib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from beam_tfr.features.cells import MAX_VALUES
from beam_tfr.schema.errors import BeamTfrError
from beam_tfr.tables.base import count_values
from beam_tfr.tables.content import TableContent
from beam_tfr.tables.formats import list_fields, read_first_rows

FIRST_ROWS = 100


class Suggestion(NamedTuple):
    """The likely content of columns without a role.

    Attributes:
        columns: the columns.
        message: what the columns may hold, and how to store that.
    """

    columns: Sequence[str]
    message: str


def read_first_cells(content: TableContent, columns: Sequence[str]) -> dict[str, list[Any]]:
    """Returns column -> its cells in the first readable rows of the first table.

    Fewer rows are read if rows have very many values.
    """
    if not columns:
        return {}
    cells_of: dict[str, list[Any]] = {name: [] for name in columns}
    room = MAX_VALUES
    with contextlib.suppress(BeamTfrError):  # reading the rows raises the same error
        for _, cells in read_first_rows(content.files[0], columns, FIRST_ROWS):
            for name, cell in zip(columns, cells, strict=True):
                cells_of[name].append(cell)
                room -= count_values(cell)
            if room <= 0:
                break
    return cells_of


def list_fields_of(content: TableContent, columns: Iterable[str]) -> list[str]:
    """Lists the fields of the objects in the columns, such as `objects.bbox`."""
    wanted = {*columns}
    if content.read_rows or not wanted:  # a dataset has no columns of objects
        return []
    fields = list_fields(content.files[0], FIRST_ROWS)
    return [name for name in fields if name not in wanted and name.partition(".")[0] in wanted]
