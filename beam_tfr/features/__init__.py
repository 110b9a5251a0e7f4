"""The kinds of features that records have besides the image.

Each kind is a class in a module of its own.

A column of a table is declared by a text, such as `bbox[xywh]`; `registry` has the kinds of columns
and finds the one that a text declares. `FeaturesDict` has all features of a dataset. `base` says
what a kind has to know.

The package imports neither TensorFlow nor the modules that read and write images, so that tables,
records, readers and checks of datasets can all ask a feature for what it knows.
"""
