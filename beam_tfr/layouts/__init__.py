"""Layouts: how the end of a path tells label, split and group.

`parsing` reads paths by a layout, `candidates` finds layouts that fit some names, `folders` finds folders that look
like splits or classes, but are read otherwise.
"""
