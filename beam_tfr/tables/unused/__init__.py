"""Warns of columns that are not stored: says what the columns may hold, and how to store that.

`columns` finds such columns, and asks functions in `boxes`, `masks`, `class_flags`, `pixels` and
other modules what they may hold; `beside_boxes` warns of columns next to box columns, and
`later_tables` of columns that the first table lacks.
"""
