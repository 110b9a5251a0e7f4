"""Turns rows of tables and datasets into references, the inputs of `ReadTable`.

The package imports neither Beam nor TensorFlow.

`opening` finds the tables, reads the first rows and warns about doubtful values, `content`
recognizes columns by their names, and `rows` makes references. `formats` reads rows, using
`annotations` and `samples`; `joining` joins rows that each hold one box or one class; `datasets`
and `tfds` read the rows of datasets.
"""
