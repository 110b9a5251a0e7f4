"""Warns of columns that are not stored: says what they may hold, and how to store it.

`columns` finds the columns, and asks functions of `boxes`, `masks`, `class_flags`, `pixels` and
others what they may hold; `beside_boxes` warns of columns beside those of boxes, and `later_tables`
of columns that the first table lacks.
"""
