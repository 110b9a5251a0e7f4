"""beam_tfr: folders of images become sharded, verified TFRecord datasets, with Apache Beam.

Importing this package loads neither Beam nor TensorFlow. The command line is `beam-tfr`; training code wants
`beam_tfr.reader.load`; pipelines of your own want `beam_tfr.transforms`.
"""

__version__ = "0.1.0"
