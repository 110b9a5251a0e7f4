"""ReadTable: turns rows of tables and datasets into references.

The package imports neither Beam nor TensorFlow.

`opening` finds the tables, reads their first rows and warns of what these look like, `content`
recognizes columns by their names, and `rows` makes references. `formats` reads rows, with
`annotations` and `samples`; `joining` joins rows that hold a box or a class each; `datasets` and
`tfds` read the rows of datasets.
"""
