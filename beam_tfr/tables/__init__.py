"""ReadTable: turns rows of CSV, TSV, JSON Lines and Parquet into references, without Beam and TensorFlow.

`opening` finds the tables and reads their first rows, `formats` reads rows, `columns` converts cells to their types,
`rows` makes references, and `repeats` finds rows with the same key.
"""

from beam_tfr.tables.opening import ALL, open_tables
from beam_tfr.tables.repeats import Repeats, Seen, find_repeats, merge_repeats
from beam_tfr.tables.rows import Roles, Tables

__all__ = ["ALL", "Repeats", "Roles", "Seen", "Tables", "find_repeats", "merge_repeats", "open_tables"]
