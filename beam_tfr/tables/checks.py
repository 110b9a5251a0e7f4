"""What the formats of tables share: rows, checks of their columns, and errors."""

import csv
import gzip
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

from beam_tfr.schema.errors import DataError, UsageError

# The number of a row, from 1, and a cell for each requested column, None where it is missing.
Row = tuple[int, Sequence[Any]]
_T = TypeVar("_T")


def table_error(path: str, problem: str) -> UsageError:
    """The error for a table that does not fit the call."""
    return UsageError(problem, option="table", value=path)


def damaged_table(path: str, problem: str) -> DataError:
    """The error for a table, or a row of it, that cannot be read."""
    return DataError(problem, option="table", value=path)


def number_rows(path: str, rows: Iterable[_T], first: int = 1) -> Iterator[tuple[int, _T]]:
    """Numbers the rows of a table.

    Raises:
        DataError: the next row cannot be read; names it.
    """
    number = first - 1
    try:
        for number, row in enumerate(rows, first):
            yield number, row
    except csv.Error as error:
        problem = f"{error}; is a quote not closed, or not doubled?"
        raise damaged_table(f"{path}, row {number + 1}", problem) from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        problem = f"the compressed data is damaged: {error}"
        raise damaged_table(f"{path}, row {number + 1}", problem) from error
    except ValueError as error:
        raise damaged_table(f"{path}, row {number + 1}", str(error)) from None


def select_cells(
    path: str,
    rows: Iterable[tuple[int, dict[str, Any]]],
    columns: Sequence[str],
    known: Sequence[str],
) -> Iterator[Row]:
    """Yields the cells of some columns, given all that each row has.

    Raises:
        UsageError: a row has a column that is not known.
    """
    allowed = set(known)
    for number, row in rows:
        if known and not row.keys() <= allowed:
            check_columns(f"{path}, row {number}", [*row], (), known)
        yield number, [row.get(name) for name in columns]


def check_columns(
    path: str, present: Sequence[str], required: Sequence[str], known: Sequence[str] = ()
) -> None:
    """Checks the columns of a table.

    Args:
        path: the table.
        present: the columns that it has.
        required: those that it must have.
        known: those that it may have; empty for any.

    Raises:
        UsageError: a column is missing, repeated or unknown.
    """
    for name in required:
        number = present.count(name)
        if number > 1:
            raise table_error(path, f"has {number} columns {name!r}; rename all but one")
        if not number:
            names = ", ".join(present)[:500]
            raise table_error(path, f"there is no column {name!r}; there are: {names}")
    unknown = [name for name in present if name not in known]
    if known and unknown:
        raise table_error(
            path,
            f"column {unknown[0]!r} is not in the first rows of the first table; "
            "name the columns that become features with `feature_columns=`",
        )
