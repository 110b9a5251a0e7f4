"""ReadTable: turns rows of tables and datasets into references, without Beam and TensorFlow.

`opening` finds the tables and reads their first rows, `content` says which columns are known by their names, `rows`
makes references, and `advice` warns of what the first rows look like. `formats` reads rows, with `annotations` and
`samples`; `datasets` and `tfds` read those of datasets.
"""
