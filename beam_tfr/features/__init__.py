"""Defines the kinds of features that records have besides the image; each kind has a module.

A string such as `bbox[xywh]` declares a column of a table; `registry` lists the kinds of columns
and finds the kind that a string declares. `FeaturesDict` holds all features of a dataset. `base`
defines the interface of every kind.

The package imports neither TensorFlow nor the modules that read and write images, so that tables,
records, readers and checks of datasets can all use it.
"""
