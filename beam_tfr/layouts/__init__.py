"""Layouts: how the end of a path gives label, split and group.

`parsing` reads paths by a layout, and finds names that it may read wrongly. What folders and files
look like, and are not read as: `split_names` and `split_levels` find splits, which `folders`
refuses to ignore and `ignored_splits` tells of, `class_folders` classes in and around folders,
`named_classes` classes in names of files, `mask_folders` and `mask_names` masks; `mask_paths`
has the paths that name these, and `mask_cures` the options that convert them.
"""
