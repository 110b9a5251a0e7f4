"""Reads labels, splits and groups from the ends of paths, by layouts.

`parsing` reads paths by a layout, and finds names that it may read wrongly. The other modules find
what folders and files look like though the layout does not read them so: `split_names` and
`split_levels` find splits, which `folders` refuses to ignore and `ignored_splits` reports,
`class_folders` finds classes in and around folders, `named_classes` classes in names of files, and
`mask_folders` and `mask_names` masks; `mask_paths` finds the paths that name masks, and
`mask_cures` the options that convert them.
"""
