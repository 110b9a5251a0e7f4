"""Layouts: how the end of a path gives label, split and group.

`parsing` reads paths by a layout, and finds names that it may read wrongly; `folders` finds folders
that look like splits or classes, but are read otherwise; `mask_names` finds files that look like
masks.
"""
