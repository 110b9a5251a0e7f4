"""Warns of columns that are not stored: says what they may hold, and how to store it.

`columns` finds these columns, and asks functions in `boxes`, `masks`, `class_flags`, `pixels` and
others what they may hold; `beside_boxes` warns of columns next to box columns, and `later_tables`
of columns that the first table lacks.
"""
