"""ReadTable: rows of CSV, TSV, JSON Lines and Parquet become references. Never Beam, never TensorFlow.

`formats` reads rows, `columns` knows what fits a type, `rows` makes references, `opening` finds the tables and looks at
their first rows, `repeats` finds rows with the same key.
"""

from beam_tfr.tables.opening import ALL, open_tables
from beam_tfr.tables.repeats import Repeats, Seen, find_repeats, merge_repeats
from beam_tfr.tables.rows import Tables

__all__ = ["ALL", "Repeats", "Seen", "Tables", "find_repeats", "merge_repeats", "open_tables"]
