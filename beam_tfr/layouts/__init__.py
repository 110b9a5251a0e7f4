"""Layouts: how the end of a path tells label, split and group.

`parsing` reads paths by a layout, `candidates` finds layouts that fit some names, `folders` finds folders that a layout
reads as something else than they look like.
"""
