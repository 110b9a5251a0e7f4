"""ReadTable: turns rows of tables and datasets into references.

It imports neither Beam nor TensorFlow.

`opening` finds the tables, reads their first rows and warns of what these look like, `content` says
which columns are known by their names, and `rows` makes references. `formats` reads rows, with
`annotations` and `samples`, and `joining` joins those that hold a box each; `datasets` and `tfds`
read those of datasets.
"""
