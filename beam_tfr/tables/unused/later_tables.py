"""Warns of tables with columns that the first table lacks."""

import contextlib
from collections.abc import Iterator, Set

from beam_tfr import storage
from beam_tfr.schema.errors import BeamTfrError
from beam_tfr.tables.base import list_columns
from beam_tfr.tables.content import TableContent
from beam_tfr.tables.formats import read_columns
from beam_tfr.tables.text_rows import Delimited, JsonLines
from beam_tfr.tables.tfrecord_rows import TfRecord
from beam_tfr.tables.unused.columns import MADE_ANEW
from beam_tfr.tables.unused.suggestions import FIRST_ROWS

_MOST_TABLES = 20  # tables whose columns are compared


def warn_of_later_tables(content: TableContent) -> Iterator[str]:
    """Yields a warning about a table with columns that the first table lacks.

    On disk, compares the first text tables, or the first rows of TFRecords.
    """
    first = content.files[0]
    has_choice = content.options.feature_columns is not None and not content.implies_features
    if not content.options.uri_column or has_choice:
        return
    if storage.is_remote(first) or content.read_rows:
        return
    known = {*content.columns}
    if isinstance(content.table_format, TfRecord):
        known |= MADE_ANEW
        num_rows = 1
        cure = f"to have them read, omit from `table=` the tables that lack them, such as {first}"
    elif isinstance(content.table_format, Delimited | JsonLines):
        num_rows = FIRST_ROWS
        cure = "add them there, with empty cells, to have them read"
    else:
        return
    for path in content.files[1:_MOST_TABLES]:
        others = _list_other_columns(path, num_rows, known)
        if others:
            yield (
                f"{path} has columns that the first table, {first}, lacks and which are not "
                f"stored: {list_columns(others)}; {cure}"
            )
            return


def _list_other_columns(path: str, num_rows: int, known: Set[str]) -> list[str]:
    """Lists the columns in the first rows of a table, except known columns."""
    columns = list[str]()
    with contextlib.suppress(BeamTfrError):  # reading the rows raises the same error
        columns = read_columns(path, num_rows)
    return [name for name in columns if name and name not in known]
