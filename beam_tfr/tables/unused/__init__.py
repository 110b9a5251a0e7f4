"""Warns of columns of which nothing is stored: what they may hold, and what stores it.

`columns` finds the columns, and asks the functions of `boxes`, `masks`, `class_flags` and `pixels`
what they may hold; `beside_boxes` warns of columns beside those of boxes, `later_tables` of those
that the first table has not.
"""
