"""Defines the kinds of features that records have besides the image, one module each.

A text such as `bbox[xywh]` declares a column of a table; `registry` knows the kinds of columns and
finds the kind that a text declares. `FeaturesDict` has all features of a dataset. `base` defines
what every kind has to know.

The package imports neither TensorFlow nor the modules that read and write images, so that tables,
records, readers and checks of datasets can all use it.
"""
