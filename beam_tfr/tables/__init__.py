"""ReadTable: turns rows of CSV, TSV, JSON Lines and Parquet into references, without Beam and TensorFlow.

`opening` finds the tables and reads their first rows, `content` says which columns are known by their names, `formats`
and `tfds` read rows, `rows` makes references, and `advice` warns of what the first rows look like.
"""
