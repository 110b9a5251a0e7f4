"""Reads labels, splits and groups from the ends of paths, by layouts.

`parsing` reads paths by a layout, and finds names that the layout may misread. The other modules
recognize folders and files that the layout treats differently from what their names suggest:
`split_names` and `split_levels` find splits, which `folders` refuses to ignore and `ignored_splits`
reports; `class_folders` finds classes in and around folders, `named_classes` finds classes in file
names, `pair_folders` and `twin_names` find photos that belong together, and `mask_folders` and
`mask_names` find masks; `mask_paths` finds the paths that name masks, and `mask_cures` the options
that convert them.
"""
